/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory, in one pool for the process.
 *
 * One address range is divided into chunks. Several threads make a chunk: they populate its pages
 * piece by piece, and the thread that populates the last piece registers the chunk with the driver.
 * An allocation only queues that. Copies wait for each chunk as they reach it, so the first chunk
 * is copied while the next are made. Freed chunks keep their state and are reused. Beyond the
 * caller's limit, idle chunks are returned to the system on the same threads.
 *
 * A chunk stays pageable if registering is refused (ulimit -l, cgroup), or if no user wants memory
 * registered: the driver's checkpoint processes all registered memory, which costs more time than
 * registering saves. On a machine with several NUMA nodes, a chunk is made near the device that
 * needs it. It stays there when it is reused.
 */
#ifndef RVL_BACKENDS_CUDA_PINNED_H
#define RVL_BACKENDS_CUDA_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/cuda/driver.h"

#define RVLI_PINNED_KEEP_ALL UINT64_MAX

/* The state of the pool. */
typedef struct rvli_pinned_facts {
    uint64_t used_bytes;     /* allocated */
    uint64_t pinned_bytes;   /* registered, used or not */
    uint64_t pageable_bytes; /* populated but not registered */
    uint64_t staged_bytes;   /* copied from and to pageable memory by staging, in total */
    uint64_t refusals;       /* chunks that the driver refused to register, in total */
    bool registers;          /* whether new chunks are registered */
} rvli_pinned_facts;

/* A span of host memory that is copied in one way. */
typedef struct rvli_pinned_span {
    uint64_t bytes;
    bool pageable; /* not registered with the driver, or not the pool's */
} rvli_pinned_span;

/*
 * Adds or removes a user of the pool. The first creates it on a device, and its threads use the
 * device's primary context. The last destroys it with all its memory. New chunks are registered
 * while any user wants that; existing chunks do not change. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_pinned_hold(CUdevice device, bool registered);
void rvli_pinned_let_go(bool registered);

/*
 * Allocates size bytes, aligned to 2 MiB, with undefined content. Their pages are populated in the
 * background, on a NUMA node if one is given (RVLI_NUMA_ANY: none). RVL_ERR_HOST_OOM: the system
 * does not have that much memory.
 */
rvl_status rvli_pinned_alloc(uint64_t size, int node, void **host_out);

/*
 * Sets the bytes that a device's backups will need; *own has its previous value. Allocation ahead
 * is for the sum over all devices.
 */
void rvli_pinned_want(uint64_t *own, uint64_t bytes);

/*
 * Begins to make idle chunks until the wanted bytes are reached, up to keep_bytes, and as long as
 * an eighth of the system's memory stays free. Returns how many of `bytes` are made or being made.
 * A failure only makes less: allocations try again.
 */
uint64_t rvli_pinned_ahead(uint64_t bytes, int node, uint64_t keep_bytes);

/*
 * Frees a whole allocation. Then returns idle chunks to the system while more than keep_bytes are
 * populated.
 */
rvl_status rvli_pinned_free(void *host, uint64_t size, uint64_t keep_bytes);

/*
 * Returns idle chunks to the system while more than keep_bytes are populated, and waits for that.
 */
void rvli_pinned_trim(uint64_t keep_bytes);

/*
 * Waits until the memory at `at` is populated. *span_out: how many of the size bytes from there on
 * are in one chunk. Memory outside the pool is one span, and counts as pageable. RVL_ERR_HOST_OOM:
 * it could not be populated.
 */
rvl_status rvli_pinned_wait(const void *at, uint64_t size, rvli_pinned_span *span_out);

/* Counts bytes that were copied from or to pageable memory by staging. */
void rvli_pinned_count_staged(uint64_t bytes);

rvli_pinned_facts rvli_pinned_get_facts(void);

/* Waits until no chunk is being made or returned. */
void rvli_pinned_settle(void);

#endif
