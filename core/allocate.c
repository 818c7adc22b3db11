/* SPDX-License-Identifier: MIT */
/*
 * Allocating and freeing.
 *
 * Allocating builds everything without the lock and enters it into the tables last; freeing takes
 * the allocation out of the tables first. In between nobody else can see it.
 */
#include "base/error.h"
#include "base/options.h"
#include "core/backup.h"
#include "core/blocks.h"
#include "core/fail.h"
#include "core/model.h"
#include "core/transition.h"

#define KNOWN_FLAGS (RVL_ALLOC_EXPORTABLE | RVL_ALLOC_RDMA | RVL_ALLOC_PAUSED)
#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX)

/* ---- Arguments ---- */

static rvl_status round_size(const rvli_device *device, uint64_t size, uint64_t *rounded_out)
{
    uint64_t granularity = device->facts.granularity_bytes;
    if (size == 0)
        return rvli_error(RVL_ERR_INVALID, "an allocation of 0 bytes");
    if (size > SIZE_MAX_BYTES - (granularity - 1))
        return rvli_error(RVL_ERR_INVALID, "an allocation of 2^63 bytes or more");
    *rounded_out = (size + granularity - 1) & ~(granularity - 1);
    return RVL_OK;
}

static rvl_status access_mask_of(const rvl_context *context, const rvl_alloc_options *options,
                                 uint64_t *mask_out)
{
    uint64_t mask = UINT64_C(1) << options->device;
    if (options->access == NULL && options->access_count > 0)
        return rvli_error(RVL_ERR_INVALID, "access_count without an access list");
    for (size_t i = 0; i < options->access_count; i++) {
        rvl_status status = rvli_device_check(context, options->access[i]);
        if (status != RVL_OK)
            return status;
        mask |= UINT64_C(1) << options->access[i];
    }
    *mask_out = mask;
    return RVL_OK;
}

static rvl_status tag_of(rvl_context *context, const rvl_alloc_options *options, rvli_tag **tag_out)
{
    if (options->tag_id == 0)
        return rvli_tag_add(context, options->process, options->tag ? options->tag : "", tag_out);
    rvli_tag *tag = rvli_tag_get(context, options->tag_id);
    if (tag == NULL)
        return rvli_error(RVL_ERR_INVALID, "no tag of this number: rvl_tag_define() first");
    *tag_out = tag;
    return RVL_OK;
}

/* Fills in everything but the address and the memory. */
static rvl_status describe(rvl_context *context, uint64_t size, const rvl_alloc_options *options,
                           rvli_allocation *allocation)
{
    rvl_status status = rvli_device_check(context, options->device);
    if (status == RVL_OK)
        status = round_size(&context->devices[options->device], size, &allocation->size);
    if (status == RVL_OK)
        status = access_mask_of(context, options, &allocation->access_mask);
    if (status != RVL_OK)
        return status;
    if (options->flags & ~KNOWN_FLAGS)
        return rvli_error(RVL_ERR_INVALID, "an allocation flag that this version does not know");
    if ((unsigned)options->backup > RVL_BACKUP_DISK)
        return rvli_error(RVL_ERR_INVALID, "a backup policy that this version does not know");
    if (!rvli_backup_supported(options->backup))
        return rvli_error(RVL_ERR_NOT_SUPPORTED, "this version has no disk backup: use host");
    allocation->device = (uint8_t)options->device;
    allocation->policy = (uint8_t)options->backup;
    allocation->flags = (uint8_t)options->flags;
    return tag_of(context, options, &allocation->tag);
}

/* ---- Allocating ---- */

/* Puts memory behind the address, without the ledger. Undoes itself. */
static rvl_status back(rvl_context *context, rvli_allocation *allocation)
{
    rvl_status status = rvli_blocks_create(context, allocation->blocks);
    if (status != RVL_OK)
        return status;
    bool filled = rvli_blocks_handed_over(allocation->blocks);
    status = rvli_blocks_map(context, allocation->blocks, allocation->access_mask, false);
    if (status == RVL_OK && filled) {
        status = rvli_copies_wait(context, UINT64_C(1) << allocation->device);
        if (status != RVL_OK)
            rvli_copies_quiesce(context, UINT64_C(1) << allocation->device);
    }
    return status;
}

/* A range that cannot be given back costs an address, not memory. */
static void release_range(rvl_context *context, const rvli_allocation *allocation)
{
    const rvli_backend_ops *ops = &context->ops;
    if (ops->release_range(context->self, allocation->device, allocation->addr, allocation->size) !=
            RVL_OK &&
        ops->release_range(context->self, allocation->device, allocation->addr, allocation->size) !=
            RVL_OK)
        rvli_log(context, RVL_LOG_WARN, "an address range could not be given back");
}

static void undo_reserve(rvl_context *context, const rvli_allocation *allocation)
{
    rvl_error cause = *rvli_error_get();
    release_range(context, allocation);
    rvli_error_set(&cause);
}

static void undo_back(rvl_context *context, rvli_allocation *allocation)
{
    if (allocation->blocks == NULL)
        return;
    rvl_error cause = *rvli_error_get();
    if (allocation->blocks->mapped)
        rvli_blocks_unmap(context, allocation->blocks);
    rvli_blocks_undo_create(context, allocation->blocks);
    allocation->blocks = NULL;
    rvli_error_set(&cause);
}

/* Enters a finished allocation into tables, ledger and recording. With the lock held. */
static rvl_status enter(rvl_context *context, rvli_allocation *allocation)
{
    rvl_status status = rvli_index_insert(&context->by_addr, allocation);
    if (status != RVL_OK) {
        rvli_error_op("insert");
        return status;
    }
    allocation->id = ++context->last_id;
    rvli_tag_link(allocation);

    rvli_tag *tag = allocation->tag;
    rvli_ledger *ledger = &context->devices[allocation->device].ledger;
    rvli_holder *holder = &tag->holders[allocation->device];
    ledger->allocation_count++;
    ledger->alloc_calls++;
    holder->allocation_count++;
    if (allocation->blocks != NULL) {
        rvli_ledger_check_fit(context, allocation->device, tag->number, tag->process->number,
                              allocation->size);
        rvli_blocks_commit(context, allocation->blocks, holder);
    } else {
        holder->paused_bytes += allocation->size;
    }
    if (rvli_recording(&context->recorder))
        rvli_record_alloc(context, allocation);
    return RVL_OK;
}

/* A record of the allocation, and of its blocks if it is to have memory. */
static rvl_status prepare(rvl_context *context, const rvli_allocation *draft,
                          rvli_allocation **allocation_out)
{
    rvl_status status = RVL_OK;
    rvli_lock(context);
    rvli_allocation *allocation = rvli_pool_get(&context->allocation_pool);
    if (allocation == NULL) {
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for an allocation");
    } else {
        *allocation = *draft;
        if (allocation->state == RVL_STATE_ACTIVE)
            status = rvli_blocks_prepare(context, allocation, &allocation->blocks);
        if (status != RVL_OK)
            rvli_pool_put(&context->allocation_pool, allocation);
    }
    rvli_unlock(context);
    *allocation_out = allocation;
    return status;
}

static rvl_status build(rvl_context *context, const rvli_allocation *draft, rvl_addr *addr_out)
{
    rvli_allocation *allocation;
    rvl_status status = prepare(context, draft, &allocation);
    if (status != RVL_OK)
        return status;
    if (allocation->blocks != NULL)
        status = back(context, allocation);
    rvli_lock(context);
    if (status == RVL_OK)
        status = enter(context, allocation);
    if (status == RVL_OK)
        *addr_out = allocation->addr;
    rvli_unlock(context);
    if (status != RVL_OK) {
        undo_back(context, allocation);
        rvli_lock(context);
        rvli_pool_put(&context->allocation_pool, allocation);
        rvli_unlock(context);
    }
    return status;
}

rvl_status rvl_alloc(rvl_context *context, uint64_t size_bytes,
                     const rvl_alloc_options *user_options, rvl_addr *addr_out)
{
    rvl_alloc_options options;
    rvli_allocation draft = {0};
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK && addr_out == NULL)
        status = rvli_error(RVL_ERR_INVALID, "addr_out is NULL");
    if (status == RVL_OK)
        status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = describe(context, size_bytes, &options, &draft);
    if (status != RVL_OK)
        return status;

    draft.state = options.flags & RVL_ALLOC_PAUSED ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE;
    status = context->ops.reserve(context->self, draft.device, draft.size, &draft.addr);
    if (status != RVL_OK) {
        rvli_error_op("reserve");
    } else {
        status = build(context, &draft, addr_out);
        if (status != RVL_OK)
            undo_reserve(context, &draft);
    }
    if (status != RVL_OK)
        rvli_fail(context, "allocation", draft.tag, draft.device, draft.size);
    return status;
}

/* ---- Freeing ---- */

/* Finds the allocation that begins at addr, waiting while somebody works on it. Lock held. */
static rvli_allocation *find_settled(rvl_context *context, rvl_addr addr)
{
    for (;;) {
        rvli_allocation *allocation = rvli_index_get(&context->by_addr, addr);
        if (allocation == NULL ||
            (!allocation->freeing &&
             rvli_state_move((rvl_state)allocation->state, RVLI_MOVE_FREE, NULL)))
            return allocation;
        pthread_cond_wait(&context->moved, &context->lock);
    }
}

/* Unmaps and releases; what cannot be released once the first is gone is stranded. */
static rvl_status unback(rvl_context *context, rvli_allocation *allocation)
{
    rvli_holder *holder = &allocation->tag->holders[allocation->device];
    rvl_status status = RVL_OK;
    if (allocation->blocks->mapped)
        status = rvli_blocks_unmap(context, allocation->blocks);
    bool first = true;
    while (status == RVL_OK && allocation->blocks != NULL) {
        rvli_block *block = allocation->blocks;
        rvli_block *next = block->next;
        status = rvli_block_release(context, block, holder);
        if (status != RVL_OK && !first) {
            rvli_block_strand(context, block, holder);
            status = RVL_OK;
        }
        if (status == RVL_OK)
            allocation->blocks = next;
        first = false;
    }
    return status;
}

/* Freeing failed: the allocation comes back as it was, or, if that fails too, as LOST. */
static void put_back(rvl_context *context, rvli_allocation *allocation)
{
    rvl_error cause = *rvli_error_get();
    bool lost =
        allocation->state == RVL_STATE_ACTIVE && !allocation->blocks->mapped &&
        rvli_blocks_map(context, allocation->blocks, allocation->access_mask, true) != RVL_OK;
    rvli_lock(context);
    if (lost)
        rvli_allocation_lose(allocation);
    allocation->freeing = false;
    rvli_tag_link(allocation);
    if (rvli_recording(&context->recorder)) {
        allocation->id = ++context->last_id; /* the old number has been recorded as freed */
        rvli_record_alloc(context, allocation);
    }
    rvli_announce_moved(context);
    rvli_unlock(context);
    rvli_error_set(&cause);
}

/* Takes it out of tables and ledger, before its address can be reserved anew. */
static void forget(rvl_context *context, rvli_allocation *allocation)
{
    rvli_ledger *ledger = &context->devices[allocation->device].ledger;
    rvli_holder *holder = &allocation->tag->holders[allocation->device];
    rvli_lock(context);
    rvli_index_remove(&context->by_addr, allocation);
    ledger->allocation_count--;
    ledger->free_calls++;
    holder->allocation_count--;
    if (allocation->state != RVL_STATE_ACTIVE)
        holder->paused_bytes -= allocation->size;
    if (allocation->backup != NULL)
        rvli_ledger_host_sub(context, allocation->device, holder, allocation->size);
    rvli_pool_put(&context->allocation_pool, allocation);
    rvli_announce_moved(context);
    rvli_unlock(context);
}

rvl_status rvli_free_allocation(rvl_context *context, rvli_allocation *allocation)
{
    rvl_status status = allocation->blocks != NULL ? unback(context, allocation) : RVL_OK;
    if (status != RVL_OK)
        return status;
    rvli_allocation gone = *allocation;
    forget(context, allocation);
    if (gone.backup != NULL)
        rvli_backup_store_of((rvl_backup)gone.policy)
            ->drop(context, gone.device, gone.size, gone.backup);
    release_range(context, &gone);
    return RVL_OK;
}

/* Takes an allocation out of sight of everybody else. NULL: none begins at addr. */
static rvli_allocation *claim(rvl_context *context, rvl_addr addr)
{
    rvli_lock(context);
    rvli_allocation *allocation = find_settled(context, addr);
    if (allocation != NULL) {
        /* Its entry by address stays until the end: putting it back must not need memory. */
        allocation->freeing = true;
        rvli_tag_unlink(allocation);
        if (rvli_recording(&context->recorder))
            rvli_record_free(context, allocation);
    }
    rvli_unlock(context);
    return allocation;
}

rvl_status rvl_free(rvl_context *context, rvl_addr addr)
{
    rvl_status status = rvli_context_check_change(context);
    if (status != RVL_OK)
        return status;
    rvli_allocation *allocation = claim(context, addr);
    if (allocation == NULL)
        return rvli_error(RVL_ERR_INVALID, "no allocation begins at this address (freed already?)");

    rvli_tag *tag = allocation->tag;
    int device = allocation->device;
    uint64_t size = allocation->size;
    status = rvli_free_allocation(context, allocation);
    if (status != RVL_OK) {
        put_back(context, allocation);
        rvli_fail(context, "free", tag, device, size);
    }
    return status;
}
