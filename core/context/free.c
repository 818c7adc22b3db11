/* SPDX-License-Identifier: MIT */
/*
 * Freeing.
 *
 * First hides the allocation, then releases its memory, and frees the record last. So if the
 * backend refuses, the allocation can be put back. A rider leaves its carrier, and the last rider
 * takes the carrier with it.
 */
#include "base/error.h"
#include "core/backup/backup.h"
#include "core/backup/disk_space.h"
#include "core/backup/host_buffer.h"
#include "core/context/allocate.h"
#include "core/fail.h"
#include "core/listener.h"
#include "core/memory/backing.h"
#include "core/memory/blocks.h"
#include "core/memory/coalesce.h"
#include "core/memory/enter.h"

/* Returns whether no thread is working on it. */
static bool is_settled(const rvli_allocation *allocation)
{
    return !allocation->freeing &&
           rvli_state_move((rvl_state)rvli_mover(allocation)->state, RVLI_MOVE_FREE, NULL);
}

/*
 * Finds the allocation that begins at addr, and waits while a thread works on it. Lock held.
 * RVL_ERR_INVALID: no allocation begins there. RVL_ERR_BUSY: its move is prepared, and nobody knows
 * for how long.
 */
static rvl_status find_settled(rvl_context *context, rvl_addr addr,
                               rvli_allocation **allocation_out)
{
    for (;;) {
        rvli_allocation *allocation = rvli_index_get(&context->by_addr, addr);
        *allocation_out = allocation;
        if (allocation == NULL)
            return rvli_error(RVL_ERR_INVALID,
                              "no allocation begins at this address (freed already?)");
        if (is_settled(allocation))
            return RVL_OK;
        if (!allocation->freeing && allocation->tag->prepared)
            return rvli_error(RVL_ERR_BUSY, "the allocation is prepared for a move: commit or "
                                            "abort that first");
        pthread_cond_wait(&context->moved, &context->lock);
    }
}

/* Imported memory is recorded by the process that made it. */
static bool is_recorded(const rvl_context *context, const rvli_allocation *allocation)
{
    return rvli_recording(&context->recorder) && allocation->kind != RVLI_KIND_IMPORT;
}

/* After a failed free: restores the allocation, or makes it LOST if that fails too. */
static void put_back(rvl_context *context, rvli_allocation *allocation)
{
    rvl_error cause = *rvli_error_get();
    rvli_allocation *mover = rvli_mover(allocation);
    bool lost =
        mover->state == RVL_STATE_ACTIVE && !rvli_blocks_all_mapped(mover->blocks) &&
        rvli_blocks_map(context, mover->blocks, mover->access_mask, RVLI_FILL_NONE) != RVL_OK;
    rvli_lock(context);
    if (lost)
        rvli_allocation_lose(mover);
    allocation->freeing = false;
    if (mover->kind != RVLI_KIND_IMPORT)
        rvli_tag_link(mover);
    if (allocation->kind == RVLI_KIND_RIDER)
        rvli_carrier_open(allocation->carrier);
    if (is_recorded(context, allocation)) {
        allocation->id = ++context->last_id; /* the old id is recorded as freed */
        rvli_record_alloc(context, allocation);
    }
    rvli_change_end(context);
    rvli_announce_moved(context);
    rvli_unlock(context);
    rvli_error_set(&cause);
}

/* Removes it from tables and ledger, before its address can be reserved again. Ends the change. */
static void forget(rvl_context *context, rvli_allocation *allocation)
{
    rvli_allocation *mover = rvli_mover(allocation);
    rvli_holder *holder = mover->tag->holders[mover->device];
    rvli_lock(context);
    rvli_forget_address(context, allocation);
    if (mover->state != RVL_STATE_ACTIVE && mover->kind != RVLI_KIND_IMPORT)
        holder->paused_bytes -= mover->size;
    if (mover->backup != NULL)
        rvli_backup_uncount(context, mover->tag, mover->backup);
    if (allocation->kind == RVLI_KIND_RIDER)
        rvli_pool_put(&context->carrier_pool, allocation->carrier);
    rvli_pool_put(&context->allocation_pool, allocation);
    rvli_change_end(context);
    rvli_announce_moved(context);
    rvli_unlock(context);
}

rvl_status rvli_free_allocation(rvl_context *context, rvli_allocation *allocation)
{
    rvli_allocation *mover = rvli_mover(allocation);
    rvl_status status = mover->blocks != NULL ? rvli_unback(context, mover) : RVL_OK;
    if (status != RVL_OK)
        return status;
    rvli_allocation gone = *mover;
    forget(context, allocation);
    rvli_backup_drop(context, gone.backup);
    rvli_disk_space_clear(context);
    rvli_range_release(context, &gone);
    return RVL_OK;
}

/* Hides an allocation, with the memory that is freed with it, from other threads. Lock held. */
static void hide(rvl_context *context, rvli_allocation *allocation)
{
    rvli_change_begin(context);
    /* Its entry by address stays until the end, because putting it back must not need memory. */
    allocation->freeing = true;
    if (allocation->kind == RVLI_KIND_RIDER)
        rvli_carrier_close(allocation->carrier);
    if (allocation->kind != RVLI_KIND_IMPORT)
        rvli_tag_unlink(rvli_mover(allocation));
}

/*
 * Claims the allocation at addr for freeing. *allocation_out is NULL if that was all: a rider has
 * left its carrier. *before_out is a copy of the record: other threads write to the record itself,
 * because its index slot changes with theirs. Errors as in find_settled().
 */
static rvl_status claim(rvl_context *context, rvl_addr addr, rvli_allocation **allocation_out,
                        rvli_allocation *before_out)
{
    rvli_lock(context);
    rvli_allocation *allocation = NULL;
    rvl_status status = find_settled(context, addr, &allocation);
    bool found = status == RVL_OK;
    if (found && is_recorded(context, allocation))
        rvli_record_free(context, allocation);
    if (found && rvli_rides_with_others(allocation)) {
        rvli_rider_leave(context, allocation);
        allocation = NULL;
    } else if (found) {
        *before_out = *allocation;
        before_out->state = rvli_mover(allocation)->state;
        hide(context, allocation);
    }
    rvli_unlock(context);
    *allocation_out = allocation;
    return status;
}

static bool is_import(rvl_context *context, rvl_addr addr)
{
    rvli_lock(context);
    const rvli_allocation *found = rvli_index_get(&context->by_addr, addr);
    bool import = found != NULL && found->kind == RVLI_KIND_IMPORT;
    rvli_unlock(context);
    return import;
}

/* A callback may only free imports, which no transition moves. */
static rvl_status may_free(rvl_context *context, rvl_addr addr)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && rvli_in_callback() && !is_import(context, addr))
        status = rvli_context_check_change(context);
    return status;
}

rvl_status rvl_free(rvl_context *context, rvl_addr addr)
{
    rvli_allocation *allocation = NULL, before;
    rvl_status status = may_free(context, addr);
    if (status != RVL_OK)
        return status;
    rvli_listener_tell_free(context, addr); /* before another thread can get the address */
    status = claim(context, addr, &allocation, &before);
    if (status != RVL_OK || allocation == NULL)
        return status;

    status = rvli_free_allocation(context, allocation);
    if (status == RVL_OK) {
        rvli_host_buffer_ahead(context, before.device);
    } else {
        put_back(context, allocation); /* from now on other threads may free it */
        if (before.kind != RVLI_KIND_IMPORT)
            rvli_listener_tell_alloc(context, &before, addr);
        rvli_fail(context, "free", before.tag, before.device, before.size);
    }
    return status;
}
