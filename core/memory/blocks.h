/* SPDX-License-Identifier: MIT */
/*
 * Blocks: physical memory, on its way between the backend, allocations, and the kept list.
 *
 * An allocation's memory is a list of blocks in order of address. Building it has three parts, so
 * that no lock is held across a backend call: prepare (under the lock: the records, and kept blocks
 * that fit), create and map (without it), and the caller's commit to the ledger (under it).
 *
 * A released block may be kept, up to the context's budget, for the next request of exactly its
 * size and properties. Its content is filled before anyone can read it, unless the whole of it is
 * about to be overwritten by a restore.
 */
#ifndef RVL_CORE_MEMORY_BLOCKS_H
#define RVL_CORE_MEMORY_BLOCKS_H

#include "core/tables.h"

/* What blocks hold when they are mapped. */
typedef enum rvli_fill {
    RVLI_FILL_NONE,        /* the whole of it is about to be written */
    RVLI_FILL_HANDED_OVER, /* kept blocks: zeros. Others: what the driver gives */
    RVLI_FILL_POISON,      /* all: RVLI_POISON */
} rvli_fill;

/* A NaN in each type of floating point from 8 to 64 bits. */
#define RVLI_POISON 0xFF

/* A property beside the backend's: another process has made the block. */
#define RVLI_BLOCK_IMPORTED 4u

/*
 * Records for the blocks of an allocation, kept blocks already among them. With the lock held.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_blocks_prepare(rvl_context *context, const rvli_allocation *allocation,
                               rvli_block **blocks_out);

/* Creates those that have no memory yet. On failure none that it made is left. */
rvl_status rvli_blocks_create(rvl_context *context, rvli_block *blocks);

/*
 * Maps the blocks at their addresses, makes them accessible for access_mask, and queues filling
 * them. On failure none is mapped, or, if even undoing failed, those that still are say so.
 */
rvl_status rvli_blocks_map(rvl_context *context, rvli_block *blocks, uint64_t access_mask,
                           rvli_fill how);

/* Unmaps those that are mapped, neighbours in one call. What has failed before may have left some.
 */
rvl_status rvli_blocks_unmap(rvl_context *context, rvli_block *blocks);
bool rvli_blocks_any_mapped(const rvli_block *blocks);
bool rvli_blocks_all_mapped(const rvli_block *blocks);

/*
 * Gives blocks back that were never committed to the ledger: handed-over ones to the kept list,
 * created ones to the backend. What the backend refuses is stranded.
 */
void rvli_blocks_undo_create(rvl_context *context, rvli_block *blocks);

/* Charges the blocks to a holder: new ones are added, handed-over ones change hands. Lock held. */
void rvli_blocks_commit(rvl_context *context, rvli_block *blocks, rvli_holder *holder);

/*
 * Releases (or keeps) the unmapped blocks of an allocation. A backend that refuses a block is asked
 * a second time, since there is nothing to undo with. If it refuses the first, all are as they were
 * and its answer is returned. A later one that it refuses is stranded, and the others go.
 */
rvl_status rvli_blocks_release(rvl_context *context, rvli_allocation *allocation);

/* The same, and what the backend refuses is stranded, the first too: this cannot fail. */
void rvli_blocks_release_or_strand(rvl_context *context, rvli_allocation *allocation);

/* Gives all kept blocks of a device back. Returns how many bytes that freed. */
uint64_t rvli_kept_give_up(rvl_context *context, int device);

/* Whether one of them came from the kept blocks and is not committed yet. */
bool rvli_blocks_handed_over(const rvli_block *blocks);

/* Number of blocks in a list. */
uint32_t rvli_blocks_count(const rvli_block *blocks);

/* Bytes of those that still have to be created. */
uint64_t rvli_blocks_missing_bytes(const rvli_block *blocks);

/* Releases kept and stranded blocks at close; the first error. */
rvl_status rvli_blocks_close(rvl_context *context);

#endif
