/* SPDX-License-Identifier: MIT */
/*
 * A kernel that a simulated library launches on a stream. It has no code, so its launch takes no
 * memory for code. Only its presence matters: a captured stream gets a node for it, an
 * instantiated graph takes memory for it, and time passes.
 *
 * Each library call launches one kernel. This is known for NCCL only, where all operations of a
 * group are one kernel. For the others it is assumed: on a card, cuBLAS splits some products and
 * adds the parts with a second kernel, and a cuDNN plan may first convert its data to another
 * layout.
 */
#ifndef RVL_SIMCUDA_KERNEL_H
#define RVL_SIMCUDA_KERNEL_H

#include <cuda.h>
#include <stdint.h>

#include "simcuda/wire/current.h"

/*
 * An address identifies the kernel, as for a function of the program. On an error such as
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, nothing was launched.
 */
static inline CUresult rvli_library_kernel_at(const void *kernel, CUstream stream)
{
    int device;
    CUresult result = rvli_current_or_first(&device);
    if (result != CUDA_SUCCESS)
        return result;
    return cuLaunchKernel((CUfunction)(uintptr_t)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* Launches a kernel about which nothing is known. */
static inline CUresult rvli_library_kernel(CUstream stream)
{
    static const char kernel;
    return rvli_library_kernel_at(&kernel, stream);
}

#endif
