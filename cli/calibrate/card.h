/* SPDX-License-Identifier: MIT */
/*
 * The card under measurement: the driver's calls, the primary context, and the state that all parts
 * of the measurement share.
 *
 * The driver is the one that the library has opened (rvl_cuda_get_entry()). An optional call that
 * the driver lacks is NULL, and figures that need it are not measured.
 */
#ifndef RVL_CLI_CALIBRATE_CARD_H
#define RVL_CLI_CALIBRATE_CARD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include <cuda.h>

#include "calibrate/samples.h"
#include "reveille/status.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* X(entry point, CUDA version of its signature) for the required calls. */
#define CARD_ENTRY_MAP(X)                                                                          \
    X(cuInit, 2000)                                                                                \
    X(cuDriverGetVersion, 2020)                                                                    \
    X(cuGetErrorName, 6000)                                                                        \
    X(cuDeviceGet, 2000)                                                                           \
    X(cuDeviceGetName, 2000)                                                                       \
    X(cuDeviceGetAttribute, 2000)                                                                  \
    X(cuDeviceGetPCIBusId, 4010)                                                                   \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuDevicePrimaryCtxRelease, 11000)                                                            \
    X(cuCtxSetCurrent, 4000)                                                                       \
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
    X(cuMemHostAlloc, 2020)                                                                        \
    X(cuMemFreeHost, 2000)                                                                         \
    X(cuMemcpyDtoHAsync, 3020)                                                                     \
    X(cuMemcpyHtoDAsync, 3020)                                                                     \
    X(cuMemsetD8Async, 3020)                                                                       \
    X(cuStreamCreate, 2000)                                                                        \
    X(cuStreamDestroy, 4000)                                                                       \
    X(cuStreamSynchronize, 2000)

/* X(entry point, CUDA version of its signature) for the optional calls. */
#define CARD_OPTIONAL_MAP(X)                                                                       \
    X(cuModuleLoadData, 2000)                                                                      \
    X(cuModuleUnload, 2000)                                                                        \
    X(cuModuleGetFunction, 2000)                                                                   \
    X(cuLaunchKernel, 4000)                                                                        \
    X(cuGraphCreate, 10000)                                                                        \
    X(cuGraphAddEmptyNode, 10000)                                                                  \
    X(cuGraphInstantiateWithFlags, 11040)                                                          \
    X(cuGraphLaunch, 10000)                                                                        \
    X(cuGraphExecDestroy, 10000)                                                                   \
    X(cuGraphDestroy, 10000)

/* Options of library.c. */
struct library_options {
    const char *disk_directory; /* NULL: do not measure the disk */
    uint64_t host_bytes_max;    /* most host memory to pin */
};

typedef struct card {
#define CARD_POINTER(name, version) __typeof__(&name) name;
    CARD_ENTRY_MAP(CARD_POINTER)
    CARD_OPTIONAL_MAP(CARD_POINTER)
#undef CARD_POINTER
    int ordinal;
    CUdevice device;
    CUcontext context;
    int driver_version; /* 13000 for CUDA 13.0 */
    bool rdma;
    char name[64];
    char bus_id[32];
    uint64_t total_bytes; /* from cuMemGetInfo() */
    uint64_t granularity_bytes;
    uint64_t released_bytes; /* since a block was last created */
    struct library_options library;
    uint64_t began_ns;
    const char *failed; /* describes the first failed call, for the message; NULL: none */
    CUresult result;    /* of that call */
    samples *measured;  /* receives the values */
} card;

/* Finds the calls, starts the driver, and reads the facts that need no context. */
rvl_status card_find(card *it, int ordinal);

/* Makes the primary context current, and reads the other facts. */
rvl_status card_open(card *it);

/* Runs a part. Stores a failure in the error record. */
rvl_status card_measure(card *it, bool (*part)(card *it));

/* Releases the context. */
void card_close(card *it);

/* Remembers the first failure. Returns whether the call succeeded. */
bool card_ok(card *it, CUresult result, const char *what);

/* Returns the free bytes from cuMemGetInfo(); 0 after a failure. */
uint64_t card_free_bytes(card *it);

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/*
 * Whether there is time for another size. A slow machine skips the large sizes, so that the whole
 * measurement takes less than a minute.
 */
bool card_has_time(const card *it);

void sleep_ms(unsigned milliseconds);

/* Counts released bytes for the next create, which pays for clearing them. */
void card_note_released(card *it, uint64_t bytes);

/* Waits until the driver has cleared what was just released. */
void settle(uint64_t released_bytes);

/* ---- Parts. false: a call of the driver failed (card.failed), or another failure is in the error
 * record ---- */

/* footprint.c: the memory that kernels, streams and graphs take. A child measures a context's. */
bool measure_footprint(card *it);
/* Forks the child that measures a context. Call it before this process starts the driver. NULL:
 * failed. */
typedef struct context_child context_child;
context_child *context_child_start(int ordinal);
/* Returns the memory that the child's context takes. 0: not measured. */
uint64_t context_child_measure(context_child *child, card *it);
/* Returns how long the first pause in the child takes, in ns, with a backup of *bytes_out. 0: not
 * measured. */
uint64_t context_child_first_pause(context_child *child, uint64_t *bytes_out);
void context_child_end(context_child *child);

/* calls.c: the cost of each call by size, and of the first create after a release. */
bool measure_calls(card *it);

/* copies.c: the link in each direction and in both at once, and fills. */
bool measure_copies(card *it);

/* library.c: pauses and resumes by the library: cold and warm host memory, digests, disk. */
bool measure_library(card *it);
/* Returns the time of the first backup to host memory in this process, in ns. 0: it failed. */
uint64_t measure_first_pause(card *it, uint64_t *bytes_out);

/* library.c: blocks in pauses and resumes by the library. */
bool measure_blocks(card *it);

/* clearing.c: how fast the driver clears released memory. */
bool measure_clearing(card *it);

/* Returns the properties of a block, as the library requests them. */
CUmemAllocationProp card_block(const card *it);

#endif
