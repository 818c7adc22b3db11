/* SPDX-License-Identifier: MIT */
/* Shared by the files of the allocator model, and used nowhere else. */
#ifndef RVL_PREDICT_SNAPSHOT_ALLOCATOR_INTERNAL_H
#define RVL_PREDICT_SNAPSHOT_ALLOCATOR_INTERNAL_H

#include "predict/snapshot/allocator.h"

static inline rvli_bucket *rvli_bucket_of(rvli_allocator *allocator, const rvli_cached_block *block)
{
    return &allocator->buckets[block->bucket];
}

static inline bool rvli_is_small(const rvli_bucket *bucket)
{
    return bucket->side % 2 == 1;
}

/* Finds the bucket of a pool, class and stream, or makes it. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_bucket_get(rvli_allocator *allocator, uint32_t pool, bool small, uint32_t stream,
                           uint32_t *bucket_out);

/* Makes a free block without links. NULL: no memory. */
rvli_cached_block *rvli_block_new(rvli_allocator *allocator, uint32_t bucket, uint64_t addr,
                                  uint64_t size);

/* Adds a mapped block to the free blocks of its bucket, or removes it. */
void rvli_free_insert(rvli_allocator *allocator, rvli_cached_block *block);
void rvli_free_remove(rvli_allocator *allocator, rvli_cached_block *block);

/* Adds a free block to the map by address, or removes it. */
void rvli_index_add(rvli_allocator *allocator, rvli_cached_block *block);
void rvli_index_drop(rvli_allocator *allocator, const rvli_cached_block *block);

/* Adds an unmapped block to its bucket, or removes it. */
void rvli_unmapped_insert(rvli_allocator *allocator, rvli_cached_block *block);
void rvli_unmapped_remove(rvli_allocator *allocator, rvli_cached_block *block);

/* Links a block between two neighbours. Either may be NULL. */
void rvli_block_link(rvli_cached_block *block, rvli_cached_block *prev, rvli_cached_block *next);

/*
 * Merges a free neighbour into the block if both are mapped or both are unmapped. The neighbour may
 * be NULL.
 */
void rvli_block_merge(rvli_allocator *allocator, rvli_cached_block *block,
                      rvli_cached_block *neighbour);

/*
 * Finds or makes a free block of at least size bytes in a range of addresses, and maps the pages
 * that it lacks. The block is in no set. RVL_OK; RVL_ERR_DEVICE_OOM; RVL_ERR_NOT_FOUND: the owner
 * has no address; or RVL_ERR_HOST_OOM.
 */
rvl_status rvli_expand(rvli_allocator *allocator, uint32_t bucket, uint64_t size, bool unlimited,
                       rvli_cached_block **block_out);

/* The bytes that rvli_expand() would map. */
uint64_t rvli_expand_bytes(const rvli_allocator *allocator, uint32_t bucket, uint64_t size);

/* Unmaps the whole pages of a free block in a range of addresses. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_unmap(rvli_allocator *allocator, rvli_cached_block *block);

/*
 * Returns the bytes of the whole pages that a block in a range covers. *first_out: where they
 * begin.
 */
uint64_t rvli_whole_pages(const rvli_cached_block *block, uint64_t *first_out);

/* Adds a range of addresses with one unmapped block. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_snapshot_range_add(rvli_allocator *allocator, uint32_t bucket, uint64_t base,
                                   uint64_t size, rvli_cached_block **block_out);

/*
 * Maps the first size bytes of an unmapped block, which becomes free. RVL_OK, RVL_ERR_DEVICE_OOM or
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_map(rvli_allocator *allocator, rvli_cached_block *block, uint64_t size,
                    bool unlimited);

/* Maps whole pages within an unmapped block. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_map_at(rvli_allocator *allocator, rvli_cached_block *block, uint64_t addr,
                       uint64_t size);

#endif
