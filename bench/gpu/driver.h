/* SPDX-License-Identifier: MIT */
/*
 * The few driver calls that the benchmark makes itself: limits, and a look at content. The driver
 * is opened at run time, as the library does: RVL_CUDA_LIBRARY names another, such as the fake one
 * of the tests.
 */
#ifndef RVL_BENCH_GPU_DRIVER_H
#define RVL_BENCH_GPU_DRIVER_H

#include <stdint.h>

#include <cuda.h>

/* Exit status where there is no driver. */
#define SKIPPED 77

/* X(entry point, CUDA version of its signature). */
#define ENTRIES(X)                                                                                 \
    X(cuInit, 2000)                                                                                \
    X(cuDeviceGet, 2000)                                                                           \
    X(cuDeviceGetName, 2000)                                                                       \
    X(cuDriverGetVersion, 2020)                                                                    \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuCtxSetCurrent, 4000)                                                                       \
    X(cuCtxSynchronize, 2000)                                                                      \
    X(cuMemAddressReserve, 10020)                                                                  \
    X(cuMemAddressFree, 10020)                                                                     \
    X(cuMemCreate, 10020)                                                                          \
    X(cuMemRelease, 10020)                                                                         \
    X(cuMemMap, 10020)                                                                             \
    X(cuMemUnmap, 10020)                                                                           \
    X(cuMemSetAccess, 10020)                                                                       \
    X(cuMemHostAlloc, 2020)                                                                        \
    X(cuMemFreeHost, 2000)                                                                         \
    X(cuMemcpyDtoHAsync, 3020)                                                                     \
    X(cuMemcpyHtoDAsync, 3020)                                                                     \
    X(cuMemsetD8Async, 3020)                                                                       \
    X(cuModuleLoadData, 2000)                                                                      \
    X(cuModuleGetFunction, 2000)                                                                   \
    X(cuLaunchKernel, 4000)

typedef struct driver {
#define POINTER(name, version) __typeof__(&name) name;
    ENTRIES(POINTER)
#undef POINTER
} driver;

extern driver cuda;

/* Opens the driver and makes device 0's primary context current. */
void driver_open(void);

/* Calls of the driver so far, where it counts them: the fake one. 0: it does not. */
uint64_t driver_calls(void);

/* A block of device 0, mapped. */
CUdeviceptr map_block(uint64_t size);

/* Ends the program unless the call succeeded. */
void cuda_need(CUresult result, const char *what);

#endif
