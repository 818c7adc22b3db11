/* SPDX-License-Identifier: MIT */
/*
 * Copies between a device and host memory that the driver has not registered.
 *
 * Some threads stand between the two. Each has a stream and two small pinned buffers: while one of
 * them is on the link, the thread copies from or to the other. Together they are as fast as the
 * link (docs/performance.md). A copy is queued, and cut into pieces that fill a buffer; threads
 * take pieces in order, and end them in any order. Threads and buffers are made when they are first
 * needed, and kept.
 */
#ifndef RVL_BACKENDS_CUDA_STAGING_H
#define RVL_BACKENDS_CUDA_STAGING_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/cuda/driver.h"
#include "base/workers.h"

/*
 * 8 carry memory of large pages at the rate of the link; small pages, as those of a store, need
 * more. No more than the machine has cores.
 */
#define RVLI_STAGING_THREADS_MAX 12
#define RVLI_STAGING_BUFFERS 2 /* of each thread */

typedef struct rvli_staging rvli_staging;
typedef struct rvli_staging_copy rvli_staging_copy;

/* A part of a copy that fills a buffer, or the last one. */
typedef struct rvli_staging_piece {
    rvli_staging_copy *copy; /* NULL: none */
    char *host;
    CUdeviceptr addr;
    uint64_t size;
} rvli_staging_piece;

/* What a thread works with; its run ends when staging closes. */
typedef struct rvli_staging_carrier {
    rvli_job job;
    rvli_staging *staging;
    CUstream stream;
    char *buffers[RVLI_STAGING_BUFFERS];
    CUevent passed[RVLI_STAGING_BUFFERS]; /* when the link has let go of a buffer */
    rvli_staging_piece pieces[RVLI_STAGING_BUFFERS];
    _Atomic bool unsettled; /* a piece failed, and the link may still use the buffers */
} rvli_staging_carrier;

struct rvli_staging {
    pthread_mutex_t lock; /* guards what follows; a carrier's pieces are its own */
    pthread_cond_t queued, ended;
    rvli_staging_copy *first, *last; /* that have not ended, in the order of their tickets */
    rvli_staging_copy *next;         /* the first of which pieces are left to take */
    uint64_t tickets;                /* of the last copy */
    uint64_t marks;                  /* that somebody will wait for */
    uint64_t failed_ticket;          /* of the first copy that failed; 0: none */
    CUresult failure;
    bool stop;

    _Atomic bool made; /* what follows is there */
    CUcontext context;
    char *memory;
    uint64_t buffer_bytes;
    rvli_workers *threads;
    unsigned carrier_count;
    rvli_staging_carrier carriers[RVLI_STAGING_THREADS_MAX];
};

void rvli_staging_open(rvli_staging *staging);
/* Ends what is queued. With the device's context current, if there is still one. */
void rvli_staging_close(rvli_staging *staging);

/*
 * Queues a copy of size bytes, with the device's context current. Two copies of the same memory are
 * in order only if the first is waited for before the second is queued. False, and nothing was
 * done: the driver refuses the buffers as well. *result_out: CUDA_ERROR_OUT_OF_MEMORY, or what
 * waiting for buffers in use answers.
 */
bool rvli_staging_to_host(rvli_staging *staging, CUcontext context, char *host, CUdeviceptr addr,
                          uint64_t size, CUresult *result_out);
bool rvli_staging_to_device(rvli_staging *staging, CUcontext context, CUdeviceptr addr,
                            const char *host, uint64_t size, CUresult *result_out);

/*
 * All copies that are queued so far, to be waited for once. The wait's result is a failure of any
 * of them, which is told to all that were marked behind it. 0: there were none, and nothing is to
 * be waited for.
 */
uint64_t rvli_staging_mark(rvli_staging *staging);
CUresult rvli_staging_wait(rvli_staging *staging, uint64_t mark);

/* Waits for all copies; the result is a failure that somebody is still to be told of. */
CUresult rvli_staging_drain(rvli_staging *staging);

#endif
