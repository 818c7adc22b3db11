/* SPDX-License-Identifier: MIT */
/*
 * The CUDA driver, opened at run time.
 *
 * libcuda is not linked. It is opened by name, and each entry point is looked up with the version
 * of the signature that we compile against. So one build runs with any driver that has them, and
 * without one. RVL_CUDA_LIBRARY can be the path of another library.
 */
#ifndef RVL_BACKENDS_CUDA_DRIVER_H
#define RVL_BACKENDS_CUDA_DRIVER_H

#include <cuda.h>
#include <stdbool.h>

#include "reveille/status.h"

/* X(entry point, CUDA version of its signature). The pointer's type is that of cuda.h. */
#define RVLI_CUDA_ENTRY_MAP(X)                                                                     \
    X(cuInit, 2000)                                                                                \
    X(cuDriverGetVersion, 2020)                                                                    \
    X(cuGetErrorName, 6000)                                                                        \
    X(cuDeviceGetCount, 2000)                                                                      \
    X(cuDeviceGet, 2000)                                                                           \
    X(cuDeviceGetName, 2000)                                                                       \
    X(cuDeviceGetAttribute, 2000)                                                                  \
    X(cuDeviceGetPCIBusId, 4010)                                                                   \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuDevicePrimaryCtxRelease, 11000)                                                            \
    X(cuCtxPushCurrent, 4000)                                                                      \
    X(cuCtxPopCurrent, 4000)                                                                       \
    X(cuCtxSetCurrent, 4000)                                                                       \
    X(cuCtxGetDevice, 2000)                                                                        \
    X(cuCtxSynchronize, 2000)                                                                      \
    X(cuMemGetInfo, 3020)                                                                          \
    X(cuMemGetAllocationGranularity, 10020)                                                        \
    X(cuMemAddressReserve, 10020)                                                                  \
    X(cuMemAddressFree, 10020)                                                                     \
    X(cuMemCreate, 10020)                                                                          \
    X(cuMemRelease, 10020)                                                                         \
    X(cuMemMap, 10020)                                                                             \
    X(cuMemUnmap, 10020)                                                                           \
    X(cuMemSetAccess, 10020)                                                                       \
    X(cuMemExportToShareableHandle, 10020)                                                         \
    X(cuMemImportFromShareableHandle, 10020)                                                       \
    X(cuStreamWaitEvent, 3020)                                                                     \
    X(cuMemHostAlloc, 2020)                                                                        \
    X(cuMemFreeHost, 2000)                                                                         \
    X(cuMemHostRegister, 6050)                                                                     \
    X(cuMemHostUnregister, 4000)                                                                   \
    X(cuMemcpyDtoHAsync, 3020)                                                                     \
    X(cuMemcpyHtoDAsync, 3020)                                                                     \
    X(cuMemsetD8Async, 3020)                                                                       \
    X(cuStreamCreate, 2000)                                                                        \
    X(cuStreamDestroy, 4000)                                                                       \
    X(cuStreamSynchronize, 2000)                                                                   \
    X(cuThreadExchangeStreamCaptureMode, 10010)                                                    \
    X(cuStreamIsCapturing, 10000)                                                                  \
    X(cuEventCreate, 2000)                                                                         \
    X(cuEventDestroy, 4000)                                                                        \
    X(cuEventRecord, 2000)                                                                         \
    X(cuEventSynchronize, 2000)                                                                    \
    X(cuModuleLoadData, 2000)                                                                      \
    X(cuModuleUnload, 2000)                                                                        \
    X(cuModuleGetFunction, 2000)                                                                   \
    X(cuLaunchKernel, 4000)

/*
 * The process checkpoint of CUDA 12.8 and newer; NULL if the driver lacks it. The types are
 * declared here, so headers of CUDA 12.0 suffice.
 */
typedef struct rvli_cuda_lock_options {
    unsigned timeout_ms; /* 0: none */
    unsigned reserved[15];
} rvli_cuda_lock_options;

#define RVLI_CUDA_CHECKPOINT_VERSION 12080
#define RVLI_CUDA_CHECKPOINT_MAP(X)                                                                \
    X(cuCheckpointProcessGetState, (int process, int *state_out))                                  \
    X(cuCheckpointProcessLock, (int process, rvli_cuda_lock_options *options))                     \
    X(cuCheckpointProcessCheckpoint, (int process, void *options))                                 \
    X(cuCheckpointProcessRestore, (int process, void *options))                                    \
    X(cuCheckpointProcessUnlock, (int process, void *options))

typedef struct rvli_cuda_checkpoint {
#define RVLI_CUDA_CHECKPOINT_POINTER(name, parameters) CUresult(*name) parameters;
    RVLI_CUDA_CHECKPOINT_MAP(RVLI_CUDA_CHECKPOINT_POINTER)
#undef RVLI_CUDA_CHECKPOINT_POINTER
} rvli_cuda_checkpoint;

/* The oldest driver with all of them: cuGetProcAddress and the GPUDirect flag of cuMemCreate. */
#define RVLI_CUDA_DRIVER_MIN 12000

/* Entry points by unversioned names: rvli_cuda.cuMemMap(...). */
typedef struct rvli_cuda_driver {
#define RVLI_CUDA_POINTER(name, version) __typeof__(&name) name;
    RVLI_CUDA_ENTRY_MAP(RVLI_CUDA_POINTER)
#undef RVLI_CUDA_POINTER
    bool simulated; /* the driver of `reveille run`: it tracks content by the addresses of copies */
} rvli_cuda_driver;

/* Valid after rvli_cuda_driver_load() has returned RVL_OK. Process-wide. */
extern rvli_cuda_driver rvli_cuda;
extern rvli_cuda_checkpoint rvli_cuda_process;

/*
 * Opens and initializes the driver, once. RVL_ERR_NO_DRIVER: there is none, or it cannot start;
 * RVL_ERR_DRIVER_TOO_OLD; RVL_ERR_NO_DEVICE. Thread-safe.
 */
rvl_status rvli_cuda_driver_load(void);

/* ---- result.c ---- */

/* Converts a result to a status, without an error record. */
rvl_status rvli_cuda_status(CUresult result);

/*
 * Converts a result to a status. On failure, fills in the error record (message, CUresult and its
 * name). what: the action that failed, "mapping a block".
 */
rvl_status rvli_cuda_check(CUresult result, const char *what);

#endif
