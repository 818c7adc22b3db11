/* SPDX-License-Identifier: MIT */
/*
 * An allocation's address range and memory: reserving and mapping them when it is made, releasing
 * them when it is freed.
 *
 * Works on a record that no other thread can see, without the lock. Does not touch tables or
 * ledger.
 */
#ifndef RVL_CORE_MEMORY_BACKING_H
#define RVL_CORE_MEMORY_BACKING_H

#include "core/tables.h"

/* Reserves an address range of the draft's size, into draft->addr. */
rvl_status rvli_reserve(rvl_context *context, rvli_allocation *draft);
/* Releases the range. A failure leaks an address, not memory. */
void rvli_range_release(rvl_context *context, const rvli_allocation *allocation);
/* Like rvli_range_release(), while undoing a failure: keeps the error record. */
void rvli_undo_reserve(rvl_context *context, const rvli_allocation *allocation);

/* Maps memory at the address, in the prepared blocks. Undo it with rvli_undo_back(). */
rvl_status rvli_back(rvl_context *context, rvli_allocation *allocation);
/* Undoes rvli_back(), at whatever step it failed. Keeps the error record. */
void rvli_undo_back(rvl_context *context, rvli_allocation *allocation);

/*
 * Unmaps and releases. Once the first block is released, blocks that the backend refuses are
 * stranded.
 */
rvl_status rvli_unback(rvl_context *context, rvli_allocation *allocation);

#endif
