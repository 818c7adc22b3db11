/* SPDX-License-Identifier: MIT */
/*
 * Allocating and freeing, as far as other parts of the core take part in it.
 *
 * Allocating builds everything without the lock and enters it into the tables last; freeing takes
 * the allocation out of sight first. In between nobody else can see it.
 */
#ifndef RVL_CORE_CONTEXT_ALLOCATE_H
#define RVL_CORE_CONTEXT_ALLOCATE_H

#include "core/tables.h"

/*
 * What the arguments of an allocation come to: everything but its address, memory and state. Makes
 * the tag if needed. As rvl_alloc() refuses them.
 */
rvl_status rvli_allocation_describe(rvl_context *context, uint64_t size,
                                    const rvl_alloc_options *options, rvli_allocation *allocation);

/*
 * Releases everything an allocation has and forgets it. It is the caller's alone: out of its tag's
 * list, marked as freeing. On failure it still has what it had.
 */
rvl_status rvli_free_allocation(rvl_context *context, rvli_allocation *allocation);

#endif
