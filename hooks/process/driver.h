/* SPDX-License-Identifier: MIT */
/* The functions of the CUDA driver that the hooks themselves call. */
#ifndef RVL_HOOKS_PROCESS_DRIVER_H
#define RVL_HOOKS_PROCESS_DRIVER_H

#include <cuda.h>

#include "reveille/status.h"

/* X(entry point, CUDA version of its signature) */
#define RVLI_DRIVER_CALLS_MAP(X)                                                                   \
    X(cuDriverGetVersion, 2020)                                                                    \
    X(cuCtxGetDevice, 2000)                                                                        \
    X(cuCtxPushCurrent, 4000)                                                                      \
    X(cuCtxPopCurrent, 4000)                                                                       \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuDevicePrimaryCtxRelease, 11000)                                                            \
    X(cuMemGetInfo, 3020)                                                                          \
    X(cuStreamIsCapturing, 10000)                                                                  \
    X(cuThreadExchangeStreamCaptureMode, 10010)

typedef struct rvli_driver_calls {
#define RVLI_DRIVER_CALL(name, version) __typeof__(&name) name;
    RVLI_DRIVER_CALLS_MAP(RVLI_DRIVER_CALL)
#undef RVLI_DRIVER_CALL
} rvli_driver_calls;

/*
 * The driver's functions. Starts the driver if needed. Returns NULL on failure, with an error
 * record.
 */
const rvli_driver_calls *rvli_driver(void);

#endif
