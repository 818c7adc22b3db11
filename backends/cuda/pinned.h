/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory, pooled for the process.
 *
 * One address range is cut into chunks. A chunk is made by several threads: its pages are brought
 * in piece by piece, and the thread that brings in the last one registers it with the driver.
 * Allocating only queues that; copies wait for the chunk that they come to, so that the first is
 * being copied while the next are made. Freed chunks stay as they are and are used again; what is
 * kept beyond the caller's limit goes back to the system on the same threads.
 *
 * Where registering is refused (ulimit -l, cgroup) a chunk stays pageable, and also where nobody
 * wants it registered. The driver's checkpoint goes over all registered memory, which takes longer
 * than to do without it.
 * On a machine of several NUMA nodes a chunk is made near the device that asks for it; when it is
 * used again it stays where it is.
 */
#ifndef RVL_BACKENDS_CUDA_PINNED_H
#define RVL_BACKENDS_CUDA_PINNED_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/cuda/driver.h"

#define RVLI_PINNED_KEEP_ALL UINT64_MAX

/* Facts about the pool. */
typedef struct rvli_pinned_facts {
    uint64_t used_bytes;     /* handed out */
    uint64_t pinned_bytes;   /* registered, used or not */
    uint64_t pageable_bytes; /* made, and not registered */
    uint64_t staged_bytes;   /* copied from and to pageable memory by staging, in all */
    uint64_t refusals;       /* chunks that the driver did not register, in all */
    bool registers;          /* what is made from now on */
} rvli_pinned_facts;

/* A stretch of host memory that is copied in one way. */
typedef struct rvli_pinned_span {
    uint64_t bytes;
    bool pageable; /* the driver has not registered it, or it is not the pool's */
} rvli_pinned_span;

/*
 * Counts one more, or one fewer, user of the pool. The first creates it on a device: its threads
 * use the device's primary context. With the last it goes, and all memory with it. While a user
 * wants memory registered, what is made is; it stays as it was made. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_pinned_hold(CUdevice device, bool registered);
void rvli_pinned_let_go(bool registered);

/*
 * size bytes, 2 MiB aligned, content undefined; their pages are being made, on a NUMA node if one
 * is named (RVLI_NUMA_ANY: none). RVL_ERR_HOST_OOM: the system has not so much memory to give.
 */
rvl_status rvli_pinned_alloc(uint64_t size, int node, void **host_out);

/*
 * What the backups of one more device will want, *own before. Making ahead is for the sum.
 */
void rvli_pinned_want(uint64_t *own, uint64_t bytes);

/*
 * Begins to make idle memory, until there is as much as is wanted. It stops at keep_bytes, and
 * where less than an eighth of the system's memory would stay free. How many of bytes are there
 * then, or are being made. A failure makes less, and is not an error: who asks for a buffer tries
 * again.
 */
uint64_t rvli_pinned_ahead(uint64_t bytes, int node, uint64_t keep_bytes);

/* Gives a whole allocation back, then idle chunks as long as more than keep_bytes are pinned. */
rvl_status rvli_pinned_free(void *host, uint64_t size, uint64_t keep_bytes);

/* Gives idle chunks back as long as more than keep_bytes are there, and waits for it. */
void rvli_pinned_trim(uint64_t keep_bytes);

/*
 * Waits until the memory at `at` is there; *span_out gets how many of the size bytes from there on
 * lie in one chunk. Memory that is not the pool's is there as a whole, and taken to be pageable.
 * RVL_ERR_HOST_OOM: it could not be made.
 */
rvl_status rvli_pinned_wait(const void *at, uint64_t size, rvli_pinned_span *span_out);

/* Counts bytes that were copied from or to pageable memory by staging. */
void rvli_pinned_count_staged(uint64_t bytes);

rvli_pinned_facts rvli_pinned_get_facts(void);

/* Waits until nothing is being made or given back. */
void rvli_pinned_settle(void);

#endif
