/* SPDX-License-Identifier: MIT */
/*
 * A library of a Python wheel that carries a copy of CUDA's runtime, under a name with a digest.
 * With WHEEL_RUNTIME, it is that copy, which has 7 devices.
 */
#ifdef WHEEL_RUNTIME
int cudaGetDeviceCount(int *count);

int cudaGetDeviceCount(int *count)
{
    *count = 7;
    return 0;
}
#else
#include <cuda_runtime_api.h>

int wheel_devices(void);

int wheel_devices(void)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    return error == cudaSuccess ? count : -(int)error;
}
#endif
