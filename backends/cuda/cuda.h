/* SPDX-License-Identifier: MIT */
/*
 * Real GPUs: the state of a backend instance, and its parts.
 *
 * Every device is driven through its primary context, which it shares with everybody else in the
 * process. A context is made current for the calls that need one and taken back on every path; the
 * calls of virtual memory management need none.
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

/* When everything queued on a device's streams so far has ended. */
typedef struct rvli_cuda_event {
    CUevent out;
    CUevent in;
    CUevent computed;             /* of the digests, if it waits for any */
    uint64_t digests;             /* number of the last of them; 0: none */
    uint64_t staged;              /* the mark of copies by staging; 0: none */
    struct rvli_cuda_event *next; /* among those that can be used again */
} rvli_cuda_event;

typedef struct rvli_cuda_device {
    CUdevice ordinal;
    CUcontext context; /* the primary one */
    bool retained;
    char name[64];
    char bus_id[32];
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    bool rdma;                  /* the device says that GPUDirect RDMA reaches its memory */
    _Atomic bool try_rdma;      /* ask for that in every block; cleared when it is refused */
    _Atomic int lost;           /* the CUresult that took it from us, 0: none */
    CUstream out;               /* copies to the host */
    CUstream in;                /* copies to the device, and fills */
    _Atomic bool fills;         /* a fill is queued, and nobody has waited for it */
    rvli_staging staging;       /* for copies from and to what is not registered */
    int numa_node;              /* RVLI_NUMA_ANY: not known */
    uint64_t host_wanted_bytes; /* by backups, as the core last said; the pool's lock guards it */
    pthread_mutex_t lock;       /* guards idle */
    rvli_cuda_event *idle;      /* events that can be used again */
    rvli_cuda_digests digests;
} rvli_cuda_device;

typedef struct rvli_cuda_instance {
    int device_count;
    bool pool_held;
    uint64_t keep_bytes; /* of pinned host memory, after a backup is gone */
    bool host_ahead;     /* it is made before backups ask for it */
    bool registers;      /* with the driver */
    rvli_cuda_device devices[];
} rvli_cuda_instance;

extern const rvli_backend_ops rvli_cuda_ops;

/* ---- device.c ---- */

/* The device of a number. RVL_ERR_NO_DEVICE, RVL_ERR_DEVICE_LOST. */
rvl_status rvli_cuda_device_of(void *self, int number, rvli_cuda_device **device_out);

/* The status of a result, its record, and whether the device is lost from now on. */
rvl_status rvli_cuda_device_check(rvli_cuda_device *device, CUresult result, const char *what);

/*
 * Makes a device's context current for the calling thread, and its calls harmless to captures that
 * run elsewhere; leave takes both back. Not nested.
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
/* Waits for what is queued. With the device's context current. */
void rvli_cuda_copies_close(rvli_cuda_device *device);

/* ---- digest.c ---- */

/*
 * Loads the kernel and makes room for results, with the device's context current. A device that
 * cannot have them is one without digests: the op tells why. RVL_ERR_DEVICE_LOST.
 */
rvl_status rvli_cuda_digests_open(rvli_cuda_device *device);
/* After the streams are gone. With the device's context current. */
void rvli_cuda_digests_close(rvli_cuda_device *device);
bool rvli_cuda_digests_available(const rvli_cuda_device *device);

/*
 * Begins to compute what was gathered, before an event is recorded or something is waited for.
 * *number_out: of the last digests that are not handed over yet, also on failure; 0: none.
 */
rvl_status rvli_cuda_digests_compute(rvli_cuda_device *device, uint64_t *number_out);
/*
 * Gives the results up to a number, which have been waited for, to those who asked for them;
 * forgets them instead if the waiting failed.
 */
void rvli_cuda_digests_deliver(rvli_cuda_device *device, uint64_t up_to, bool good);

#endif
