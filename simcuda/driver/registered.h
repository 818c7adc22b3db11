/* SPDX-License-Identifier: MIT */
/*
 * Code that is linked into a program or its libraries. Compilers write calls that register it with
 * the runtime: a fat binary for each source file, and for each kernel the address of the function
 * that launches it. There are tens of thousands of kernels in PyTorch, most of which nobody uses,
 * so a fat binary is read when one of its kernels is launched first.
 *
 * Exported, for the runtime (rvli_registered_*).
 */
#ifndef RVL_SIMCUDA_REGISTERED_H
#define RVL_SIMCUDA_REGISTERED_H

#include <cuda.h>
#include <stdint.h>

/* A fat binary, by the wrapper that compilers write. NULL: no host memory. */
void *rvli_registered_begin(const void *wrapper);

/* A kernel of it, by the address that is launched. */
void rvli_registered_kernel(void *handle, const void *host, const char *name);

/* Code of a library that is not there, and that may fail an assert(), is on a device. */
CUresult rvli_registered_assert(int device);

/*
 * Loads a kernel of a library that is not there, as its first launch does: the library's number for
 * it, and what its code takes. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult rvli_registered_library(int device, uint64_t number, uint64_t code_bytes);

/* It is unloaded, and its kernels with it. */
void rvli_registered_end(void *handle);

/*
 * Loads the kernel of an address on a device, as its first launch does. Of an address that nobody
 * registered nothing is known, and nothing is taken. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult rvli_registered_load(int device, const void *host);

/*
 * The kernel of an address has so many bytes of arguments: one of a library that is not there.
 * Without host memory for it, it has none.
 */
void rvli_registered_describe(const void *host, uint64_t argument_bytes);

/* Bytes of arguments of the kernel of an address. 0: nobody registered or described it. */
uint64_t rvli_registered_arguments(int device, const void *host);

#endif
