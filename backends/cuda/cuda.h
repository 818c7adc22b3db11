/* SPDX-License-Identifier: MIT */
/*
 * Real GPUs: the state of a backend instance, and its parts.
 *
 * Each device is used through its primary context, which it shares with the rest of the process.
 * The context is made current for calls that need one, and restored on every path. Calls of virtual
 * memory management need none.
 */
#ifndef RVL_BACKENDS_CUDA_CUDA_H
#define RVL_BACKENDS_CUDA_CUDA_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/cuda/digest.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/staging.h"
#include "core/backend.h"
#include "reveille/cuda.h"

/* Marks the end of everything queued on a device's streams so far. */
typedef struct rvli_cuda_event {
    CUevent out;
    CUevent in;
    CUevent computed;             /* end of the digests, if any */
    uint64_t digests;             /* number of the last digests; 0: none */
    uint64_t staged;              /* mark of staged copies; 0: none */
    struct rvli_cuda_event *next; /* in the list of reusable events */
} rvli_cuda_event;

typedef struct rvli_cuda_device {
    CUdevice ordinal;
    CUcontext context; /* the primary context */
    bool retained;
    char name[64];
    char bus_id[32];
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    bool rdma;             /* the device supports GPUDirect RDMA to its memory */
    _Atomic bool try_rdma; /* request it for every block; cleared when it is refused */
    _Atomic int lost;      /* the CUresult that lost the device; 0: not lost */
    CUstream out;          /* copies to the host */
    CUstream in;           /* copies to the device, and fills */
    _Atomic bool fills;    /* a fill is queued, and nothing has waited for it */
    rvli_staging staging;  /* for copies of memory that is not registered */
    int numa_node;         /* RVLI_NUMA_ANY: unknown */
    /* for backups, as the core last set it; guarded by the pool's lock */
    uint64_t host_wanted_bytes;
    pthread_mutex_t lock;  /* guards idle */
    rvli_cuda_event *idle; /* reusable events */
    rvli_cuda_digests digests;
} rvli_cuda_device;

typedef struct rvli_cuda_instance {
    int device_count;
    bool pool_held;
    uint64_t keep_bytes; /* pinned host memory to keep when backups are freed */
    bool host_ahead;     /* allocate it before backups need it */
    bool registers;      /* register it with the driver */
    rvli_cuda_device devices[];
} rvli_cuda_instance;

extern const rvli_backend_ops rvli_cuda_ops;

/* ---- device.c ---- */

/* Finds a device by number. RVL_ERR_NO_DEVICE, RVL_ERR_DEVICE_LOST. */
rvl_status rvli_cuda_device_of(void *self, int number, rvli_cuda_device **device_out);

/*
 * Converts a result to a status with an error record. Marks the device as lost if the result says
 * so.
 */
rvl_status rvli_cuda_device_check(rvli_cuda_device *device, CUresult result, const char *what);

/*
 * Enter makes a device's context current on the calling thread, and its calls harmless to captures
 * elsewhere. Leave undoes both. Do not nest them.
 */
rvl_status rvli_cuda_enter(rvli_cuda_device *device);
void rvli_cuda_leave(void);

/* ---- The ops: memory.c, copies.c, digest.c and process.c ---- */

#define RVLI_CUDA_OP_DECLARE(name, parameters, arguments) rvl_status rvli_cuda_op_##name parameters;
RVLI_BACKEND_OP_MAP(RVLI_CUDA_OP_DECLARE)
RVLI_BACKEND_HOST_MAP(RVLI_CUDA_OP_DECLARE)
RVLI_BACKEND_DIGEST_MAP(RVLI_CUDA_OP_DECLARE)
RVLI_BACKEND_SHARE_MAP(RVLI_CUDA_OP_DECLARE)
RVLI_BACKEND_PROCESS_MAP(RVLI_CUDA_OP_DECLARE)
#undef RVLI_CUDA_OP_DECLARE

/* ---- copies.c ---- */

rvl_status rvli_cuda_copies_open(rvli_cuda_device *device);
/* Waits for queued work. With the device's context current. */
void rvli_cuda_copies_close(rvli_cuda_device *device);

/* ---- digest.c ---- */

/*
 * Loads the kernel and allocates room for results, with the device's context current. If that
 * fails, the device has no digests, and the digest op returns why. RVL_ERR_DEVICE_LOST.
 */
rvl_status rvli_cuda_digests_open(rvli_cuda_device *device);
/* Call after the streams are destroyed, with the device's context current. */
void rvli_cuda_digests_close(rvli_cuda_device *device);
bool rvli_cuda_digests_available(const rvli_cuda_device *device);

/*
 * Launches the gathered digests, before an event is recorded or waited for. *number_out, set also
 * on failure: the number of the last digests that are not delivered yet; 0: none.
 */
rvl_status rvli_cuda_digests_compute(rvli_cuda_device *device, uint64_t *number_out);
/*
 * Copies the results up to a number, which have been waited for, to their callers. Drops them
 * instead if waiting failed.
 */
void rvli_cuda_digests_deliver(rvli_cuda_device *device, uint64_t up_to, bool good);

#endif
