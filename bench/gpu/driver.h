/* SPDX-License-Identifier: MIT */
/*
 * The few driver calls that the benchmark makes itself: limits, and a look at content. The driver
 * is opened at run time, as the library does.
 */
#ifndef RVL_BENCH_GPU_DRIVER_H
#define RVL_BENCH_GPU_DRIVER_H

#include <cuda.h>

#define ENTRIES(X)                                                                                 \
    X(cuInit)                                                                                      \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDriverGetVersion)                                                                          \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxSynchronize)                                                                            \
    X(cuMemAddressReserve)                                                                         \
    X(cuMemCreate)                                                                                 \
    X(cuMemRelease)                                                                                \
    X(cuMemMap)                                                                                    \
    X(cuMemUnmap)                                                                                  \
    X(cuMemSetAccess)                                                                              \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuMemcpyDtoH)                                                                                \
    X(cuMemcpyHtoD)                                                                                \
    X(cuMemsetD32)                                                                                 \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleGetFunction)                                                                         \
    X(cuLaunchKernel)

typedef struct driver {
#define POINTER(name) __typeof__(&name) name;
    ENTRIES(POINTER)
#undef POINTER
} driver;

extern driver cuda;

/* Opens the driver and makes device 0's primary context current. */
void driver_open(void);

/* Ends the program unless the call succeeded. */
void cuda_need(CUresult result, const char *what);

#endif
