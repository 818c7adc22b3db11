/* SPDX-License-Identifier: MIT */
/*
 * Digests on a GPU: what a device keeps for them.
 *
 * Everything is there when a pause begins: the kernel is loaded, and results go to pinned host
 * memory with room for one digest of every granule that the device has. The caller's memory may be
 * pageable, which a GPU cannot write to behind his back: results are handed over by the thread that
 * waits for the work. Each queued piece has a number; an event knows the last one before it.
 *
 * A granule keeps one multiprocessor busy and no more, so pieces are gathered until somebody
 * records an event or waits, and then computed by one launch, on a stream of its own: the GPU's
 * processors read what its copy engines are copying. A launch computes digests of one kind.
 */
#ifndef RVL_BACKENDS_CUDA_DIGEST_H
#define RVL_BACKENDS_CUDA_DIGEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/cuda/driver.h"
#include "base/digest.h"
#include "base/secret_digest.h"

/* Results that are to be handed over. */
typedef struct rvli_cuda_delivery {
    const rvli_digest *from;
    rvli_digest *to;
    uint64_t count;
    uint64_t number;
    struct rvli_cuda_delivery *next;
} rvli_cuda_delivery;

typedef struct rvli_cuda_digests {
    CUresult refusal; /* of the driver, at opening; CUDA_SUCCESS: none */
    CUmodule module;
    CUfunction kernel;
    CUfunction secret_kernel; /* of digests by a secret */
    CUstream stream;
    CUevent arrived;    /* in the stream of what comes in: that digests are to wait for */
    rvli_digest *slots; /* pinned, and written to by the GPU; NULL: no digests */
    uint64_t *granules; /* pinned: the address of the granule of each slot */
    uint64_t slot_count;
    bool computes; /* the kernel does: not on simulated GPUs */

    pthread_mutex_t lock;    /* guards what follows */
    uint64_t slots_used;     /* the first of slots; 0 again when nothing is to be handed over */
    uint64_t slots_launched; /* of those, the first are being computed */
    bool await_arrival;      /* some of the others are of what is still coming in */
    bool by_secret;          /* the others are digests by a secret */
    rvli_secret secret;
    uint64_t last_number;
    rvli_cuda_delivery *first, *last; /* by number */
} rvli_cuda_digests;

#endif
