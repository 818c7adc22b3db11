/* SPDX-License-Identifier: MIT */
/*
 * Blocks of the allocator model, and ordered sets of them.
 *
 * A block is a part of a segment, linked to its neighbours there. Free blocks are ordered by (size,
 * address), unmapped ones by address. A set is a treap threaded through the blocks. Priorities are
 * derived from the addresses, so equal runs build equal trees. Inserting and removing a block
 * allocates nothing. There are two sets of free blocks for each power of two, so most sets are
 * small.
 */
#ifndef RVL_PREDICT_SNAPSHOT_BLOCK_H
#define RVL_PREDICT_SNAPSHOT_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef enum rvli_block_use {
    RVLI_USE_FREE, /* cached, or unmapped */
    RVLI_USE_LIVE,
    RVLI_USE_PENDING /* freed, but other streams may still use it */
} rvli_block_use;

/* A range of addresses. Its pages are mapped as they are needed. */
typedef struct rvli_snapshot_range {
    struct rvli_snapshot_range *next;
    struct rvli_snapshot_range *prev;
    uint64_t base;
    uint64_t size;
    uint64_t page;
} rvli_snapshot_range;

typedef struct rvli_cached_block {
    uint64_t addr;
    uint64_t key;      /* order in the set: the size; 0 for an unmapped block */
    uint64_t priority; /* in its set */
    struct rvli_cached_block *left;
    struct rvli_cached_block *right;
    struct rvli_cached_block *parent; /* NULL: the root */
    uint64_t size;
    struct rvli_cached_block *prev;
    struct rvli_cached_block *next;
    uint64_t requested;         /* of a live or pending block */
    rvli_snapshot_range *range; /* NULL: in a segment that is not expandable */
    uint64_t releasable;        /* free: bytes that empty_cache would release */
    uint64_t calls_before;      /* free: searches of its side before it became free */
    uint64_t event; /* live: the entry that allocated it; pending: an entry with its address */
    uint32_t bucket;
    uint32_t segment; /* number of the segment, in order of creation; 0 in a range */
    uint8_t use;      /* rvli_block_use */
    bool mapped;
} rvli_cached_block;

void rvli_blocks_insert(rvli_cached_block **root, rvli_cached_block *block);
void rvli_blocks_remove(rvli_cached_block **root, rvli_cached_block *block);

/* Returns the first block at or above (key, addr); NULL: none. */
rvli_cached_block *rvli_blocks_at_least(rvli_cached_block *root, uint64_t key, uint64_t addr);

/* Returns the last block below (key, addr); NULL: none. */
rvli_cached_block *rvli_blocks_below(rvli_cached_block *root, uint64_t key, uint64_t addr);

static inline rvli_cached_block *rvli_blocks_after(rvli_cached_block *root,
                                                   const rvli_cached_block *block)
{
    return rvli_blocks_at_least(root, block->key, block->addr + 1);
}

#define RVLI_BINS 64

/* Free blocks, in sets by their size. */
typedef struct rvli_bins {
    uint64_t filled; /* one bit for each set that is not empty */
    rvli_cached_block *sets[RVLI_BINS];
} rvli_bins;

void rvli_bins_insert(rvli_bins *bins, rvli_cached_block *block);
void rvli_bins_remove(rvli_bins *bins, rvli_cached_block *block);

/* Like rvli_blocks_at_least() and rvli_blocks_below(), across all sets. */
rvli_cached_block *rvli_bins_at_least(const rvli_bins *bins, uint64_t size, uint64_t addr);
rvli_cached_block *rvli_bins_below(const rvli_bins *bins, uint64_t size, uint64_t addr);

static inline rvli_cached_block *rvli_bins_after(const rvli_bins *bins,
                                                 const rvli_cached_block *block)
{
    return rvli_bins_at_least(bins, block->key, block->addr + 1);
}

#endif
