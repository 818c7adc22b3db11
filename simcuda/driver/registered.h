/* SPDX-License-Identifier: MIT */
/*
 * Code linked into a program or its libraries. Compilers generate calls that register it with
 * the runtime: a fat binary for each source file, and for each kernel the address of the
 * function that launches it. PyTorch has tens of thousands of kernels, most of them unused, so a
 * fat binary is read only when one of its kernels is first launched.
 *
 * Exported, for the runtime (rvli_registered_*).
 */
#ifndef RVL_SIMCUDA_REGISTERED_H
#define RVL_SIMCUDA_REGISTERED_H

#include <cuda.h>
#include <stdint.h>

/* Registers a fat binary, by the wrapper that compilers generate. NULL: out of host memory. */
void *rvli_registered_begin(const void *wrapper);

/* Registers a kernel, by its launch address. */
void rvli_registered_kernel(void *handle, const void *host, const char *name);

/* Loads code that may fail an assert() on a device, for a library that is simulated. */
CUresult rvli_registered_assert(int device);

/*
 * Loads a kernel of a simulated library, as its first launch does. number: the library's number
 * for it; code_bytes: the size of its code. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult rvli_registered_library(int device, uint64_t number, uint64_t code_bytes);

/* Unregisters a fat binary and its kernels. */
void rvli_registered_end(void *handle);

/*
 * Loads the kernel of an address on a device, as its first launch does. For an unregistered
 * address, nothing is known, and no memory is taken. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult rvli_registered_load(int device, const void *host);

/*
 * Sets the argument bytes of a simulated library's kernel. Without host memory, it has none.
 */
void rvli_registered_describe(const void *host, uint64_t argument_bytes);

/* The argument bytes of the kernel at an address. 0: the address is neither registered nor
 * described. */
uint64_t rvli_registered_arguments(int device, const void *host);

#endif
