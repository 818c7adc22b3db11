/* SPDX-License-Identifier: MIT */
/*
 * Blocks: physical memory, moving between the backend, allocations, and the kept list.
 *
 * An allocation's memory is a list of blocks in order of address. Building it has three steps, so
 * that no lock is held across a backend call: prepare (with the lock: the records, and kept blocks
 * that fit), create and map (without the lock), and the caller's commit to the ledger (with the
 * lock).
 *
 * A released block may be kept, up to the context's budget, for the next request of exactly its
 * size and properties. It is filled before anyone can read its old content, unless a restore is
 * about to overwrite all of it.
 */
#ifndef RVL_CORE_MEMORY_BLOCKS_H
#define RVL_CORE_MEMORY_BLOCKS_H

#include "core/tables.h"

/* The content of blocks when they are mapped. */
typedef enum rvli_fill {
    RVLI_FILL_NONE,        /* undefined: it is about to be overwritten completely */
    RVLI_FILL_HANDED_OVER, /* kept blocks: zeros; others: as the driver returns them */
    RVLI_FILL_POISON,      /* all blocks: RVLI_POISON */
} rvli_fill;

/* A NaN in each floating-point type from 8 to 64 bits. */
#define RVLI_POISON 0xFF

/* A property in addition to the backend's: another process has made the block. */
#define RVLI_BLOCK_IMPORTED 4u

/*
 * Makes records for the blocks of an allocation, using kept blocks that fit. With the lock held.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_blocks_prepare(rvl_context *context, const rvli_allocation *allocation,
                               rvli_block **blocks_out);

/* Creates the blocks that have no memory yet. On failure it releases the blocks that it created. */
rvl_status rvli_blocks_create(rvl_context *context, rvli_block *blocks);

/*
 * Maps the blocks at their addresses, makes them accessible for access_mask, and queues filling
 * them. On failure none is mapped. If even undoing failed, blocks that are still mapped have
 * `mapped` set.
 */
rvl_status rvli_blocks_map(rvl_context *context, rvli_block *blocks, uint64_t access_mask,
                           rvli_fill how);

/*
 * Unmaps the mapped blocks, neighbours in one call. An earlier failure may have left some unmapped.
 */
rvl_status rvli_blocks_unmap(rvl_context *context, rvli_block *blocks);
bool rvli_blocks_any_mapped(const rvli_block *blocks);
bool rvli_blocks_all_mapped(const rvli_block *blocks);

/*
 * Returns blocks that were never committed to the ledger: handed-over ones to the kept list,
 * created ones to the backend. Blocks that the backend refuses are stranded.
 */
void rvli_blocks_undo_create(rvl_context *context, rvli_block *blocks);

/*
 * Charges the blocks to a holder: new blocks are added, handed-over blocks change holders. Lock
 * held.
 */
void rvli_blocks_commit(rvl_context *context, rvli_block *blocks, rvli_holder *holder);

/*
 * Releases (or keeps) the unmapped blocks of an allocation. If the backend refuses a block, this
 * tries a second time, because a release cannot be undone. If it refuses the first block, nothing
 * has changed and its error is returned. A later block that it refuses is stranded, and the others
 * are released.
 */
rvl_status rvli_blocks_release(rvl_context *context, rvli_allocation *allocation);

/*
 * Like rvli_blocks_release(), but strands every block that the backend refuses, even the first:
 * this cannot fail.
 */
void rvli_blocks_release_or_strand(rvl_context *context, rvli_allocation *allocation);

/* Releases all kept blocks of a device. Returns how many bytes that freed. */
uint64_t rvli_kept_give_up(rvl_context *context, int device);

/* Returns whether a block of the list came from the kept blocks and is not committed yet. */
bool rvli_blocks_handed_over(const rvli_block *blocks);

/* Returns the number of blocks in a list. */
uint32_t rvli_blocks_count(const rvli_block *blocks);

/* Returns the bytes of the blocks that still have to be created. */
uint64_t rvli_blocks_missing_bytes(const rvli_block *blocks);

/* Releases kept and stranded blocks at close. Returns the first error. */
rvl_status rvli_blocks_close(rvl_context *context);

#endif
