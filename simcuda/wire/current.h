/* SPDX-License-Identifier: MIT */
/*
 * The device that a CUDA library works on: the device of the thread's context. Such a library
 * contains a runtime, which uses device 0 where there is no context yet. So does this function.
 */
#ifndef RVL_SIMCUDA_CURRENT_H
#define RVL_SIMCUDA_CURRENT_H

#include <cuda.h>

static inline CUresult rvli_current_or_first(int *device_out)
{
    CUcontext first;
    CUresult result = cuCtxGetDevice(device_out);
    if (result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_NOT_INITIALIZED)
        return result;
    result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxRetain(&first, 0);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(first);
    return result == CUDA_SUCCESS ? cuCtxGetDevice(device_out) : result;
}

#endif
