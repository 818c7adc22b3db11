/* SPDX-License-Identifier: MIT */
/*
 * A kernel that a simulated library launches on a stream. It has no code, so that it takes nothing
 * where it is launched. What it does for the program is that it is there: a stream that is captured
 * gets a node for it, an instantiated graph takes memory for it, and time passes.
 *
 * A call of a library launches one. That is known of NCCL alone: the operations of a group are one.
 * Assumed of the others: cuBLAS splits some products on a card and adds the parts with a second
 * kernel, and a plan of cuDNN may bring its data into another layout first.
 */
#ifndef RVL_SIMCUDA_KERNEL_H
#define RVL_SIMCUDA_KERNEL_H

#include <cuda.h>
#include <stdint.h>

#include "simcuda/wire/current.h"

/*
 * An address stands for it, as that of a program's function does.
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED and the like: nothing was launched.
 */
static inline CUresult rvli_library_kernel_at(const void *kernel, CUstream stream)
{
    int device;
    CUresult result = rvli_current_or_first(&device);
    if (result != CUDA_SUCCESS)
        return result;
    return cuLaunchKernel((CUfunction)(uintptr_t)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

/* One of which nothing is known. */
static inline CUresult rvli_library_kernel(CUstream stream)
{
    static const char kernel;
    return rvli_library_kernel_at(&kernel, stream);
}

#endif
