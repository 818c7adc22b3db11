/* SPDX-License-Identifier: MIT */
/*
 * Digests on a GPU: the state of a device.
 *
 * Everything is allocated before a pause begins: the kernel is loaded, and results go to pinned
 * host memory with room for one digest of each granule of the device. A caller's buffer may be
 * pageable, which a GPU cannot write to, so the thread that waits for the work copies the results
 * there. Each queued piece has a number, and an event has the number of the last piece before it.
 *
 * A granule keeps only one multiprocessor busy. So pieces are gathered until an event is recorded
 * or waited for, and then computed by one launch on a separate stream: the GPU's processors read
 * what its copy engines copy. All digests of a launch have one secret, or none.
 */
#ifndef RVL_BACKENDS_CUDA_DIGEST_H
#define RVL_BACKENDS_CUDA_DIGEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/cuda/driver.h"
#include "base/digest.h"
#include "base/secret_digest.h"

/* Results that are to be copied to their caller. */
typedef struct rvli_cuda_delivery {
    const rvli_digest *from;
    rvli_digest *to;
    uint64_t count;
    uint64_t number;
    struct rvli_cuda_delivery *next;
} rvli_cuda_delivery;

typedef struct rvli_cuda_digests {
    CUresult refusal; /* the driver's error at opening; CUDA_SUCCESS: none */
    CUmodule module;
    CUfunction kernel;
    CUfunction secret_kernel; /* for digests with a secret */
    CUstream stream;
    CUevent arrived;    /* in stream `in`: digests of arriving content wait for it */
    rvli_digest *slots; /* pinned, written by the GPU; NULL: no digests */
    uint64_t *granules; /* pinned: the address of the granule of each slot */
    uint64_t slot_count;
    bool computes; /* the kernel runs: false on simulated GPUs */

    pthread_mutex_t lock;    /* guards the fields below */
    uint64_t slots_used;     /* number of slots in use; 0 again when all results are delivered */
    uint64_t slots_launched; /* how many of these were launched */
    bool await_arrival;      /* some of the rest are of content that is still arriving */
    bool by_secret;          /* the rest are digests with a secret */
    rvli_secret secret;
    uint64_t last_number;
    rvli_cuda_delivery *first, *last; /* in the order of their numbers */
} rvli_cuda_digests;

#endif
