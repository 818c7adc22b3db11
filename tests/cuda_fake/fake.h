/* SPDX-License-Identifier: MIT */
/*
 * A CUDA driver that is none: controls of libcuda-fake.so for tests without a GPU.
 *
 * Code under test opens the library instead of libcuda.so.1 and asks cuGetProcAddress_v2 for every
 * entry point, as it would ask the driver. A test links the same library and turns these controls.
 * Device memory is the simulator's: its addresses are addresses of the process, and a test may read
 * and write what is mapped and accessible.
 *
 * What is queued on a stream happens when something waits for it and not before, so that a program
 * that forgets to wait sees old bytes. What a real driver refuses is refused here with the same
 * result.
 *
 * All controls are thread-safe. None prints, aborts or exits.
 */
#ifndef RVL_TESTS_CUDA_FAKE_H
#define RVL_TESTS_CUDA_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>

#include "reveille/sim.h"

#define FAKE_API __attribute__((visibility("default")))

/* X(entry point, CUDA version of its signature): all that cuGetProcAddress knows. */
#define FAKE_ENTRY_MAP(X)                                                                          \
    X(cuInit, 2000)                                                                                \
    X(cuDriverGetVersion, 2020)                                                                    \
    X(cuGetProcAddress, 12000)                                                                     \
    X(cuGetErrorName, 6000)                                                                        \
    X(cuDeviceGetCount, 2000)                                                                      \
    X(cuDeviceGet, 2000)                                                                           \
    X(cuDeviceGetName, 2000)                                                                       \
    X(cuDeviceGetAttribute, 2000)                                                                  \
    X(cuDeviceTotalMem, 3020)                                                                      \
    X(cuDeviceGetPCIBusId, 4010)                                                                   \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuDevicePrimaryCtxRelease, 11000)                                                            \
    X(cuDevicePrimaryCtxGetState, 7000)                                                            \
    X(cuCtxGetCurrent, 4000)                                                                       \
    X(cuCtxSetCurrent, 4000)                                                                       \
    X(cuCtxPushCurrent, 4000)                                                                      \
    X(cuCtxPopCurrent, 4000)                                                                       \
    X(cuCtxGetDevice, 2000)                                                                        \
    X(cuCtxSynchronize, 2000)                                                                      \
    X(cuMemGetInfo, 3020)                                                                          \
    X(cuMemGetAllocationGranularity, 10020)                                                        \
    X(cuMemCreate, 10020)                                                                          \
    X(cuMemRelease, 10020)                                                                         \
    X(cuMemAddressReserve, 10020)                                                                  \
    X(cuMemAddressFree, 10020)                                                                     \
    X(cuMemMap, 10020)                                                                             \
    X(cuMemSetAccess, 10020)                                                                       \
    X(cuMemUnmap, 10020)                                                                           \
    X(cuMemExportToShareableHandle, 10020)                                                         \
    X(cuMemImportFromShareableHandle, 10020)                                                       \
    X(cuMemPoolImportFromShareableHandle, 11020)                                                   \
    X(cuMemPoolDestroy, 11020)                                                                     \
    X(cuIpcGetMemHandle, 4010)                                                                     \
    X(cuIpcOpenMemHandle, 11000)                                                                   \
    X(cuIpcCloseMemHandle, 4010)                                                                   \
    X(cuMemHostRegister, 6050)                                                                     \
    X(cuMemHostUnregister, 4000)                                                                   \
    X(cuMemHostAlloc, 2020)                                                                        \
    X(cuMemFreeHost, 2000)                                                                         \
    X(cuMemcpyDtoHAsync, 3020)                                                                     \
    X(cuMemcpyHtoDAsync, 3020)                                                                     \
    X(cuMemsetD8Async, 3020)                                                                       \
    X(cuStreamCreate, 2000)                                                                        \
    X(cuStreamCreateWithPriority, 5050)                                                            \
    X(cuStreamDestroy, 4000)                                                                       \
    X(cuStreamSynchronize, 2000)                                                                   \
    X(cuStreamWaitEvent, 3020)                                                                     \
    X(cuThreadExchangeStreamCaptureMode, 10010)                                                    \
    X(cuStreamIsCapturing, 10000)                                                                  \
    X(cuEventCreate, 2000)                                                                         \
    X(cuEventDestroy, 4000)                                                                        \
    X(cuEventRecord, 2000)                                                                         \
    X(cuEventSynchronize, 2000)                                                                    \
    X(cuModuleLoadData, 2000)                                                                      \
    X(cuModuleUnload, 2000)                                                                        \
    X(cuModuleGetFunction, 2000)                                                                   \
    X(cuLaunchKernel, 4000)                                                                        \
    X(cuCheckpointProcessGetState, 12080)                                                          \
    X(cuCheckpointProcessLock, 12080)                                                              \
    X(cuCheckpointProcessCheckpoint, 12080)                                                        \
    X(cuCheckpointProcessRestore, 12080)                                                           \
    X(cuCheckpointProcessUnlock, 12080)

#define FAKE_MAX_DEVICES 64

/*
 * What the driver is like. Zero is the default of every field. Without fake_configure(), cuInit
 * (or whatever is called first) reads FAKE_CUDA_<FIELD IN CAPITALS> of the environment.
 */
typedef struct fake_config {
    int devices;                     /* 0: 2, -1: none. Every device reaches every other */
    int driver_version;              /* 0: 13000 */
    uint64_t capacity_bytes;         /* of each device; 0: 1 GiB */
    uint64_t registered_limit_bytes; /* pinned host memory in all; 0: no limit */
    bool rdma_refused;               /* cuMemCreate refuses gpuDirectRDMACapable */
    bool export_refused;             /* cuMemCreate refuses requestedHandleTypes */
    bool memory_needs_context;       /* cuMem{Create,Map,...} want a current context too */
    const char *missing_symbol;      /* cuGetProcAddress does not know it; copied */
} fake_config;

/* Objects that exist. */
typedef struct fake_live {
    uint64_t handles; /* cuMemCreate and imports without cuMemRelease */
    uint64_t exports; /* exported file descriptors still open somewhere */
    uint64_t mappings;
    uint64_t ranges;
    uint64_t streams;
    uint64_t events;
    uint64_t modules;
    uint64_t registrations;
    uint64_t host_allocations;
    uint64_t context_references; /* of primary contexts */
} fake_live;

typedef struct fake_stats {
    uint64_t to_host_pinned_bytes;
    uint64_t to_host_pageable_bytes;
    uint64_t to_device_pinned_bytes;
    uint64_t to_device_pageable_bytes;
    uint64_t set_bytes;    /* by cuMemsetD8Async */
    uint64_t launches;     /* kernels that ran */
    uint64_t pending;      /* operations queued and not carried out yet */
    uint64_t pinned_bytes; /* registered and allocated */
    uint64_t used_bytes[FAKE_MAX_DEVICES];
    uint64_t rdma_bytes; /* of blocks created with gpuDirectRDMACapable that still exist */
    fake_live live;
} fake_stats;

/* ---- State ---- */

/*
 * Sets what the driver is like instead of the environment, until fake_reset(). Once cuInit has
 * succeeded, devices, driver_version and capacity_bytes stay as they are.
 */
FAKE_API void fake_configure(const fake_config *config);

/*
 * Gives back everything, also what leaked, and goes back to the state before cuInit: defaults, no
 * faults, no kernels, counts at zero. What is queued is dropped. Returns what was still alive.
 * No other thread may be inside the driver, or use its memory. Code that initializes the driver
 * once in a process needs a cuInit(0) by the test afterwards.
 */
FAKE_API fake_live fake_reset(void);

FAKE_API fake_stats fake_stats_get(void);

/* Makes cuDeviceGetAttribute answer a value for every device, until fake_reset(). */
FAKE_API void fake_attribute_set(CUdevice_attribute attribute, int value);

/* From now on another process holds bytes of the device, in all. False: no room, or no device. */
FAKE_API bool fake_take(int device, uint64_t bytes);

/* ---- Faults ---- */

/*
 * The nth (1: next) call of an entry point from now on answers result and does nothing; for good:
 * that one and every later one. NULL: of any entry point but cuInit, cuGetProcAddress
 * and cuGetErrorName. A second fault for the same symbol replaces the first;
 * nth 0 takes it away. False: no such entry point.
 */
FAKE_API bool fake_fail(const char *symbol, uint64_t nth, CUresult result, bool for_good);

/* Calls of an entry point since fake_reset(), failed ones too. NULL: of all, as in fake_fail(). */
FAKE_API uint64_t fake_calls(const char *symbol);

/*
 * From now on a call of cuMemCreate, cuMemRelease, cuMemMap, cuMemUnmap or cuMemSetAccess, or a
 * copy that cuMemcpyDtoHAsync or cuMemcpyHtoDAsync queued, lasts at least so long. False: no such
 * entry point.
 */
FAKE_API bool fake_cost(const char *symbol, rvl_cost cost);

/*
 * What a call that lasts does with its ns, instead of sleeping: for tests that have a clock of
 * their own. It must not call the driver. NULL, and after fake_reset(): sleep.
 */
FAKE_API void fake_set_sleep(void (*sleep)(uint64_t ns));

/* Calls that a fault has made fail since fake_reset(). */
FAKE_API uint64_t fake_failures(void);

/*
 * Calls since fake_reset() that would have waited on a card, because the process was locked or off
 * its devices. They answer CUDA_ERROR_NOT_READY.
 */
FAKE_API uint64_t fake_calls_asleep(void);

/* ---- Streams and kernels ---- */

/* Begins or ends a capture. Work queued on a capturing stream is swallowed. False: no stream. */
FAKE_API bool fake_stream_set_capturing(CUstream stream, bool capturing);

/* Whether something has invalidated a capture since fake_reset(). */
FAKE_API bool fake_capture_invalidated(void);

/* Stands for a kernel. params as in cuLaunchKernel; must not call the driver. */
typedef void (*fake_kernel)(void **params);

/*
 * Adds a kernel that cuModuleGetFunction finds in every module. param_sizes: bytes of each of its
 * parameters, which a launch copies; at most 16 of at most 64 bytes in all. False: too many.
 */
FAKE_API bool fake_kernel_set(const char *name, fake_kernel kernel, size_t param_count,
                              const size_t *param_sizes);

#endif
