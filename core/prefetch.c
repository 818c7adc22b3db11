/* SPDX-License-Identifier: MIT */
/*
 * Prefetches an allocation into the processor's caches before it is needed.
 *
 * With a million live allocations, freeing an old one misses the cache in the table, in its record,
 * and in its block and neighbours. Each address is only known after the previous miss. A caller
 * that knows some calls ahead what will be freed can have all of these fetched in the meantime.
 */
#include "core/prefetch.h"

#include "core/tables.h"

static void prefetch_record(const rvli_allocation *allocation)
{
    __builtin_prefetch(allocation);
    __builtin_prefetch((const char *)allocation + 64); /* the record has two cache lines */
}

static void prefetch_parts(const rvli_allocation *allocation)
{
    if (allocation->kind == RVLI_KIND_RIDER) {
        prefetch_record(&allocation->carrier->as);
        return;
    }
    __builtin_prefetch(allocation->blocks);
    if (allocation->next != NULL)
        __builtin_prefetch(&allocation->next->previous);
    if (allocation->previous != NULL)
        __builtin_prefetch(&allocation->previous->next);
}

rvl_status rvl_private_prefetch(rvl_context *context, rvl_addr addr, int depth)
{
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    if (depth <= 0) {
        rvli_intmap_prefetch(&context->by_addr.exact, addr);
    } else {
        const rvli_allocation *allocation = rvli_index_get(&context->by_addr, addr);
        if (allocation != NULL && depth == 1)
            prefetch_record(allocation);
        else if (allocation != NULL)
            prefetch_parts(allocation);
    }
    rvli_unlock(context);
    return context->ops.prefetch(context->self, addr, depth);
}
