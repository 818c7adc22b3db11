/* SPDX-License-Identifier: MIT */
/*
 * Copies between a device and host memory that is not registered with the driver.
 *
 * Threads copy through pinned buffers. Each thread has a stream and two small buffers. While one
 * buffer is on the link, the thread copies from or to the other. Together the threads are as fast
 * as the link (docs/performance.md). A copy is queued and split into pieces of the size of a
 * buffer. Threads take the pieces in order and finish them in any order. Threads and buffers are
 * created when they are first needed, and kept.
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
 * 8 threads copy memory with large pages at the rate of the link. Small pages, as in a store, need
 * more. Limited to the number of cores.
 */
#define RVLI_STAGING_THREADS_MAX 12
#define RVLI_STAGING_BUFFERS 2 /* for each thread */

typedef struct rvli_staging rvli_staging;
typedef struct rvli_staging_copy rvli_staging_copy;

/* A part of a copy, of the size of a buffer except for the last. */
typedef struct rvli_staging_piece {
    rvli_staging_copy *copy; /* NULL: none */
    char *host;
    CUdeviceptr addr;
    uint64_t size;
} rvli_staging_piece;

/* The state of a thread. Its job ends when staging closes. */
typedef struct rvli_staging_carrier {
    rvli_job job;
    rvli_staging *staging;
    CUstream stream;
    char *buffers[RVLI_STAGING_BUFFERS];
    CUevent passed[RVLI_STAGING_BUFFERS]; /* end of the transfer of each buffer */
    rvli_staging_piece pieces[RVLI_STAGING_BUFFERS];
    _Atomic bool unsettled; /* a piece failed, and the link may still use the buffers */
} rvli_staging_carrier;

struct rvli_staging {
    pthread_mutex_t lock; /* guards the fields below; a carrier's pieces are its own */
    pthread_cond_t queued, ended;
    rvli_staging_copy *first, *last; /* unfinished copies, in the order of their tickets */
    rvli_staging_copy *next;         /* the first copy with pieces left to take */
    uint64_t tickets;                /* ticket of the last copy */
    uint64_t marks;                  /* marks that will still be waited for */
    uint64_t failed_ticket;          /* ticket of the first failed copy; 0: none */
    CUresult failure;
    bool stop;

    _Atomic bool made; /* the fields below are valid */
    CUcontext context;
    char *memory;
    uint64_t buffer_bytes;
    rvli_workers *threads;
    unsigned carrier_count;
    rvli_staging_carrier carriers[RVLI_STAGING_THREADS_MAX];
};

void rvli_staging_open(rvli_staging *staging);
/* Finishes queued copies. With the device's context current, if it still exists. */
void rvli_staging_close(rvli_staging *staging);

/*
 * Queues a copy of size bytes, with the device's context current. To order two copies of the same
 * memory, wait for the first before you queue the second. Returns false, with nothing done, if the
 * driver refuses the buffers, too. *result_out: CUDA_ERROR_OUT_OF_MEMORY, or the result of waiting
 * for buffers in use.
 */
bool rvli_staging_to_host(rvli_staging *staging, CUcontext context, char *host, CUdeviceptr addr,
                          uint64_t size, CUresult *result_out);
bool rvli_staging_to_device(rvli_staging *staging, CUcontext context, CUdeviceptr addr,
                            const char *host, uint64_t size, CUresult *result_out);

/*
 * Marks all copies queued so far. Wait exactly once for each mark. The wait returns the failure of
 * a marked copy, and so do the waits for all other marks that were set after that copy. Mark 0:
 * there were no copies, and there is nothing to wait for.
 */
uint64_t rvli_staging_mark(rvli_staging *staging);
CUresult rvli_staging_wait(rvli_staging *staging, uint64_t mark);

/*
 * Waits for all copies. Returns a failure that no wait has returned yet, or that a mark still has
 * to return.
 */
CUresult rvli_staging_drain(rvli_staging *staging);

#endif
