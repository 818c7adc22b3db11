/* SPDX-License-Identifier: MIT */
/*
 * An allocation's address range and the memory behind it: how they come at its birth and go at its
 * end.
 *
 * Works on a record that nobody else can see, without the lock. Neither tables nor ledger hear of
 * it here.
 */
#ifndef RVL_CORE_MEMORY_BACKING_H
#define RVL_CORE_MEMORY_BACKING_H

#include "core/tables.h"

/* An address range of the draft's size, into draft->addr. */
rvl_status rvli_reserve(rvl_context *context, rvli_allocation *draft);
/* Gives the range back; one that cannot be given back costs an address, not memory. */
void rvli_range_release(rvl_context *context, const rvli_allocation *allocation);
/* The same on the way out of a failure: the error record stays. */
void rvli_undo_reserve(rvl_context *context, const rvli_allocation *allocation);

/* Puts memory behind the address, in the blocks that were prepared. Then rvli_undo_back(). */
rvl_status rvli_back(rvl_context *context, rvli_allocation *allocation);
/* Takes away what rvli_back() did, wherever it failed. The error record stays. */
void rvli_undo_back(rvl_context *context, rvli_allocation *allocation);

/* Unmaps and releases; what cannot be released once the first is gone is stranded. */
rvl_status rvli_unback(rvl_context *context, rvli_allocation *allocation);

#endif
