/* SPDX-License-Identifier: MIT */
/*
 * Copies between a device and host memory that the driver would not register.
 *
 * A small ring of pinned buffers stands between the two: while one buffer is on the link, another
 * is copied from or to the pageable memory by several threads. The ring is made when it is first
 * needed, one a direction and device, and kept. A copy has ended when its call returns, in the
 * order of what was queued on its stream before.
 */
#ifndef RVL_BACKENDS_CUDA_STAGING_H
#define RVL_BACKENDS_CUDA_STAGING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/cuda/driver.h"
#include "base/workers.h"

#define RVLI_STAGING_BUFFERS 4
/*
 * Beside the calling thread: one thread alone is slower than the link, and 4 bring small pages, as
 * those of a store, at a fifth of its rate.
 */
#define RVLI_STAGING_HELPERS 11

typedef struct rvli_staging rvli_staging;

/* What a helper copies of one buffer. */
typedef struct rvli_staging_share {
    rvli_job job;
    rvli_staging *ring;
    char *to;
    const char *from;
    uint64_t size;
} rvli_staging_share;

struct rvli_staging {
    pthread_mutex_t lock; /* held for the length of a copy */
    char *memory;         /* RVLI_STAGING_BUFFERS buffers, NULL until they are made */
    uint64_t buffer_bytes;
    CUevent passed[RVLI_STAGING_BUFFERS]; /* when the link has let go of a buffer */
    bool unsettled;                       /* a copy failed, and may still use a buffer */
    rvli_workers *helpers;                /* NULL: the calling thread is alone */
    rvli_staging_share shares[RVLI_STAGING_HELPERS];
    unsigned shares_left;
    pthread_mutex_t shares_lock; /* guards shares_left */
    pthread_cond_t shares_done;
};

void rvli_staging_open(rvli_staging *ring);
/* After its stream is gone. With the device's context current, if there is still one. */
void rvli_staging_close(rvli_staging *ring);

/*
 * Copies size bytes, with the device's context current. *staged_out is false, and nothing was
 * done, if the driver refuses the ring as well. A ring has one stream and one direction.
 */
CUresult rvli_staging_to_host(rvli_staging *ring, CUstream stream, char *host, CUdeviceptr addr,
                              uint64_t size, bool *staged_out);
CUresult rvli_staging_to_device(rvli_staging *ring, CUstream stream, CUdeviceptr addr,
                                const char *host, uint64_t size, bool *staged_out);

#endif
