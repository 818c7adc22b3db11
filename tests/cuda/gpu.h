/* SPDX-License-Identifier: MIT */
/*
 * What tests of the CUDA backend need: content of device memory, and whether there is a device.
 * They run on a real driver, or on the fake one (RVL_CUDA_LIBRARY); exit status 77 where there is
 * none.
 */
#ifndef RVL_TESTS_GPU_H
#define RVL_TESTS_GPU_H

#include <stdbool.h>

#include "backends/cuda/cuda.h"
#include "base/error.h"
#include "tests/support/fault.h"
#include "core/tables.h"
#include "reveille/reveille.h"
#include "tests/support/skip.h"
#include "tests/support/support.h"

/* RVL_OK if there is a driver and a device; else the program should end with SKIPPED. */
bool gpu_is_there(void);

/* Whether the driver is the fake one. */
bool gpu_is_fake(void);

/* Whether the devices are those of `reveille run`. */
bool gpu_is_simulated(void);

/* Gives the fake driver the kernels of the library, in C. gpu_is_there() has; fake_reset() takes
 * them away. */
void gpu_fake_kernels(void);

/* Opens a context on the CUDA backend; fails the test if it cannot. fault_out may be NULL. */
rvl_context *gpu_open(const rvl_cuda_options *options, fault_injector **fault_out);

/* Writes, or checks, a pattern that depends on seed and place, through the backend's copies. */
void gpu_fill(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint64_t seed);
bool gpu_holds(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint64_t seed);
bool gpu_is_filled(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint8_t byte);

/* Bytes free on device 0 by the driver. */
uint64_t gpu_free_bytes(rvl_context *context);

/* Runs this program again with the words; its stdin and stdout are *to_out and *from_out. */
pid_t gpu_spawn(const char *verb, const char *word, int *to_out, int *from_out);

#endif
