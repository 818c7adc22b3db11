/* SPDX-License-Identifier: MIT */
/*
 * The CUDA devices, and the memory in use on each, by this process or others.
 *
 * NVML needs no context and can be read at any time. It is libnvidia-ml.so.1, or the library that
 * RVL_NVML_LIBRARY names. Without it the driver is read, but only where the program already has a
 * primary context: none is created for this. Devices have the numbers of the program's CUDA.
 */
#ifndef RVL_HOOKS_RECORD_USAGE_H
#define RVL_HOOKS_RECORD_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/context.h"

#define RVLI_USAGE_NAME_BYTES 128u

typedef struct rvli_usage_device {
    uint32_t place; /* of the card in this machine: the same in all processes if NVML reports it */
    char name[RVLI_USAGE_NAME_BYTES];
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    bool always; /* can be read before the program has a context there */
} rvli_usage_device;

/*
 * Opens the driver, and NVML if there is one. Does nothing the second time. Holds no lock while it
 * loads libraries, so it may run inside a dlopen(). RVL_ERR_NO_DRIVER, RVL_ERR_DRIVER_TOO_OLD,
 * RVL_ERR_NO_DEVICE or RVL_ERR_HOST_OOM. Thread-safe.
 */
rvl_status rvli_usage_load(void);

/* Whether a device has a primary context; true if unknown. Needs no rvli_usage_load(). */
bool rvli_usage_active(int device);

/* Call these only after rvli_usage_load() has returned RVL_OK. */
int rvli_usage_count(void);
const rvli_usage_device *rvli_usage_device_at(int device);

/* The device of the calling thread's context; -1 without a context. */
int rvli_usage_current(void);

/* Bytes in use on the whole device. Returns false if unknown now. */
bool rvli_usage_read(int device, uint64_t *used_bytes_out);

#endif
