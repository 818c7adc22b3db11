/* SPDX-License-Identifier: MIT */
/*
 * Allocating and freeing: the functions that other parts of the core use.
 *
 * Allocating builds everything without the lock and enters it into the tables last. Freeing first
 * removes the allocation from view. In between, no other thread can see it.
 */
#ifndef RVL_CORE_CONTEXT_ALLOCATE_H
#define RVL_CORE_CONTEXT_ALLOCATE_H

#include "core/tables.h"

/*
 * Fills in an allocation from its arguments: everything except its address, memory and state. Makes
 * the tag if needed. Returns the errors of rvl_alloc().
 */
rvl_status rvli_allocation_describe(rvl_context *context, uint64_t size,
                                    const rvl_alloc_options *options, rvli_allocation *allocation);

/*
 * Releases everything an allocation has and frees its record. The caller must own it: out of its
 * tag's list, marked as freeing. On failure it keeps everything.
 */
rvl_status rvli_free_allocation(rvl_context *context, rvli_allocation *allocation);

#endif
