/* SPDX-License-Identifier: MIT */
#include "core/memory/enter.h"

#include <stdatomic.h>

#include "base/error.h"
#include "core/memory/blocks.h"

void rvli_enter_memory(rvl_context *context, rvli_allocation *allocation)
{
    rvli_tag *tag = allocation->tag;
    rvli_holder *holder = tag->holders[allocation->device];
    rvli_tag_link(allocation);
    if (allocation->blocks != NULL) {
        rvli_ledger_check_fit(context, allocation->device, tag->number, tag->process->number,
                              allocation->size);
        rvli_blocks_commit(context, allocation->blocks, holder);
    } else {
        holder->paused_bytes += allocation->size;
    }
}

/*
 * Returns whether a pause puts its content into host memory of this process, and not into a store.
 */
static bool wants_host(const rvl_context *context, const rvli_allocation *allocation)
{
    return allocation->policy == RVL_BACKUP_HOST &&
           !rvli_backup_is_shared(context, allocation->device, RVL_BACKUP_HOST);
}

rvl_status rvli_enter_address(rvl_context *context, rvli_allocation *allocation)
{
    rvl_status status = rvli_index_insert(&context->by_addr, allocation);
    if (status != RVL_OK) {
        rvli_error_op("insert");
        return status;
    }
    allocation->id = ++context->last_id;
    rvli_ledger *ledger = &context->devices[allocation->device].ledger;
    ledger->allocation_count++;
    if (allocation->kind != RVLI_KIND_IMPORT)
        ledger->alloc_calls++;
    allocation->tag->holders[allocation->device]->allocation_count++;
    if (wants_host(context, allocation))
        atomic_fetch_add(&context->devices[allocation->device].host.wanted_bytes, allocation->size);
    return RVL_OK;
}

void rvli_forget_address(rvl_context *context, rvli_allocation *allocation)
{
    rvli_ledger *ledger = &context->devices[allocation->device].ledger;
    rvli_index_remove(&context->by_addr, allocation);
    ledger->allocation_count--;
    if (allocation->kind != RVLI_KIND_IMPORT)
        ledger->free_calls++;
    allocation->tag->holders[allocation->device]->allocation_count--;
    if (wants_host(context, allocation))
        atomic_fetch_sub(&context->devices[allocation->device].host.wanted_bytes, allocation->size);
}
