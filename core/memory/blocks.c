/* SPDX-License-Identifier: MIT */
#include "core/memory/blocks.h"

#include "base/cost.h"
#include "base/error.h"
#include "core/copies.h"

/* ---- Preparing ---- */

/*
 * Takes a kept block of exactly this size and these properties off the list. Returns NULL if there
 * is none.
 */
static rvli_block *take_kept(rvli_device *device, uint64_t size, uint8_t properties)
{
    for (rvli_block **link = &device->kept; *link != NULL; link = &(*link)->next) {
        rvli_block *block = *link;
        if (block->size == size && block->properties == properties) {
            *link = block->next;
            device->kept_bytes -= size;
            return block;
        }
    }
    return NULL;
}

/* Returns a kept block's share of the budget, because it has a holder now. With the lock held. */
static void leave_kept(rvl_context *context, const rvli_block *block, rvli_holder *holder)
{
    rvli_ledger *ledger = &context->devices[block->device].ledger;
    rvli_ledger_hand_over(context, block->device, &ledger->kept, holder, block->size);
    context->kept_bytes -= block->size;
}

static void put_kept(rvli_device *device, rvli_block *block)
{
    block->next = device->kept;
    device->kept = block;
    device->kept_bytes += block->size;
}

/* Undoes prepare for blocks that create has not touched. With the lock held. */
static void unprepare(rvl_context *context, rvli_block *blocks)
{
    while (blocks != NULL) {
        rvli_block *next = blocks->next;
        if (blocks->handed_over)
            put_kept(&context->devices[blocks->device], blocks);
        else
            rvli_pool_put(&context->block_pool, blocks);
        blocks = next;
    }
}

static uint8_t block_properties(const rvli_allocation *allocation)
{
    uint8_t properties = 0;
    if (allocation->flags & RVL_ALLOC_EXPORTABLE)
        properties |= RVLI_BLOCK_EXPORTABLE;
    if (allocation->flags & RVL_ALLOC_RDMA)
        properties |= RVLI_BLOCK_RDMA;
    return properties;
}

static rvli_block *prepare_one(rvl_context *context, uint8_t device, uint64_t size,
                               uint8_t properties)
{
    rvli_block *block = take_kept(&context->devices[device], size, properties);
    if (block != NULL) {
        block->handed_over = true;
        return block;
    }
    block = rvli_pool_get(&context->block_pool);
    if (block != NULL)
        *block = (rvli_block){.size = size, .device = device, .properties = properties};
    return block;
}

rvl_status rvli_blocks_prepare(rvl_context *context, const rvli_allocation *allocation,
                               rvli_block **blocks_out)
{
    uint64_t largest = allocation->tag->block_bytes;
    uint8_t properties = block_properties(allocation);
    rvli_block *first = NULL;
    rvli_block **link = &first;

    for (uint64_t done = 0; done < allocation->size;) {
        uint64_t size = allocation->size - done;
        if (largest != 0 && size > largest)
            size = largest;
        rvli_block *block = prepare_one(context, allocation->device, size, properties);
        if (block == NULL) {
            unprepare(context, first);
            return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a block");
        }
        block->addr = allocation->addr + done;
        block->next = NULL;
        *link = block;
        link = &block->next;
        done += size;
    }
    *blocks_out = first;
    return RVL_OK;
}

/* ---- Creating ---- */

/*
 * For forecasts: a create or a release has paid for everything that the driver has cleared by now.
 */
static void note_paid(rvl_context *context, int device)
{
    rvli_lock(context);
    (void)rvli_clearing_take(&context->devices[device].clearing, rvli_clock_now(&context->clock));
    rvli_unlock(context);
}

static rvl_status create_one(rvl_context *context, rvli_block *block)
{
    const rvli_backend_ops *ops = &context->ops;
    rvli_error_before before;
    rvli_error_keep(&before);
    rvl_status status =
        ops->create(context->self, block->device, block->size, block->properties, &block->handle);
    if (status != RVL_ERR_DEVICE_OOM || rvli_kept_give_up(context, block->device) == 0)
        return status;
    status =
        ops->create(context->self, block->device, block->size, block->properties, &block->handle);
    if (status == RVL_OK)
        rvli_error_put_back(&before);
    return status;
}

rvl_status rvli_blocks_create(rvl_context *context, rvli_block *blocks)
{
    for (rvli_block *block = blocks; block != NULL; block = block->next) {
        if (block->handle != 0)
            continue;
        rvl_status status = create_one(context, block);
        if (status != RVL_OK) {
            rvli_error_op("create");
            return status;
        }
        note_paid(context, block->device);
    }
    return RVL_OK;
}

/*
 * For forecasts: the driver begins to clear the block. An imported block is still held elsewhere,
 * and not free yet.
 */
static void note_released(rvl_context *context, const rvli_block *block)
{
    rvli_device *device = &context->devices[block->device];
    if (block->properties & RVLI_BLOCK_IMPORTED)
        return;
    rvli_lock(context);
    rvli_clearing_add(&device->clearing, device->facts.waits.clear, block->size,
                      rvli_clock_now(&context->clock));
    rvli_unlock(context);
}

/* Tries a second time if the backend refuses. */
static rvl_status release_handle(rvl_context *context, const rvli_block *block)
{
    const rvli_backend_ops *ops = &context->ops;
    rvli_error_before before;
    rvli_error_keep(&before);
    note_paid(context, block->device);
    rvl_status status = ops->release(context->self, block->device, block->handle, block->size);
    if (status != RVL_OK) {
        status = ops->release(context->self, block->device, block->handle, block->size);
        if (status == RVL_OK)
            rvli_error_put_back(&before);
    }
    if (status == RVL_OK)
        note_released(context, block);
    else
        rvli_error_op("release");
    return status;
}

/*
 * Returns whether a block can be undone: kept blocks always, created blocks if they can be
 * released.
 */
static bool take_back(rvl_context *context, const rvli_block *block)
{
    if (block->mapped) /* unmapping failed: it cannot be reused */
        return false;
    return block->handed_over || block->handle == 0 || release_handle(context, block) == RVL_OK;
}

/* Moves a block that cannot be released to the stranded list. holder: its holder; NULL: none. */
static void strand(rvl_context *context, rvli_block *block, rvli_holder *holder)
{
    rvli_device *device = &context->devices[block->device];
    rvli_lock(context);
    block->next = device->stranded;
    device->stranded = block;
    if (block->handed_over)
        leave_kept(context, block, &device->ledger.stranded);
    else if (holder != NULL)
        rvli_ledger_hand_over(context, block->device, holder, &device->ledger.stranded,
                              block->size);
    else
        rvli_ledger_add(context, block->device, &device->ledger.stranded, block->size);
    rvli_unlock(context);
    rvli_log(context, RVL_LOG_WARN,
             "a block of device memory could not be released; tried again at close");
}

void rvli_blocks_undo_create(rvl_context *context, rvli_block *blocks)
{
    while (blocks != NULL) {
        rvli_block *next = blocks->next;
        blocks->next = NULL;
        if (take_back(context, blocks)) {
            rvli_lock(context);
            unprepare(context, blocks);
            rvli_unlock(context);
        } else {
            strand(context, blocks, NULL);
        }
        blocks = next;
    }
}

/* ---- Mapping ---- */

static uint64_t list_bytes(const rvli_block *blocks, const rvli_block *end)
{
    uint64_t bytes = 0;
    for (; blocks != end; blocks = blocks->next)
        bytes += blocks->size;
    return bytes;
}

static void set_mapped(rvli_block *blocks, const rvli_block *end, bool mapped)
{
    for (; blocks != end; blocks = blocks->next)
        blocks->mapped = mapped;
}

/* Undoes the mapping of [blocks, end). If that fails they stay marked as mapped. */
static void undo_map(rvl_context *context, rvli_block *blocks, const rvli_block *end)
{
    if (blocks == end)
        return;
    rvl_error cause = *rvli_error_get();
    if (context->ops.unmap(context->self, blocks->device, blocks->addr, list_bytes(blocks, end)) ==
        RVL_OK)
        set_mapped(blocks, end, false);
    rvli_error_set(&cause);
}

/*
 * Fills blocks, because the next owner must not read a kept block's old content. Waits only after a
 * failure.
 */
static rvl_status fill(rvl_context *context, const rvli_block *blocks, rvli_fill how)
{
    uint8_t byte = how == RVLI_FILL_POISON ? RVLI_POISON : 0;
    for (; blocks != NULL && how != RVLI_FILL_NONE; blocks = blocks->next) {
        if (how == RVLI_FILL_HANDED_OVER && !blocks->handed_over)
            continue;
        rvl_status status =
            context->ops.fill(context->self, blocks->device, blocks->addr, blocks->size, byte);
        if (status != RVL_OK) {
            rvli_error_op("fill");
            rvli_copies_quiesce(context, UINT64_C(1) << blocks->device);
            return status;
        }
    }
    return RVL_OK;
}

rvl_status rvli_blocks_map(rvl_context *context, rvli_block *blocks, uint64_t access_mask,
                           rvli_fill how)
{
    const rvli_backend_ops *ops = &context->ops;
    rvl_status status = RVL_OK;
    rvli_block *block = blocks;

    for (; block != NULL; block = block->next) {
        if (block->mapped)
            continue; /* it could not be unmapped when an earlier attempt was undone */
        status = ops->map(context->self, block->device, block->addr, block->size, block->handle);
        if (status != RVL_OK) {
            rvli_error_op("map");
            break;
        }
        block->mapped = true;
    }
    if (status == RVL_OK) {
        status = ops->set_access(context->self, blocks->device, blocks->addr,
                                 list_bytes(blocks, NULL), access_mask);
        if (status != RVL_OK)
            rvli_error_op("set_access");
    }
    if (status == RVL_OK)
        status = fill(context, blocks, how);
    if (status != RVL_OK)
        undo_map(context, blocks, block);
    return status;
}

/* Returns the end of the run of blocks with the same `mapped` as the first. */
static rvli_block *end_of_run(rvli_block *first)
{
    rvli_block *end = first;
    while (end != NULL && end->mapped == first->mapped)
        end = end->next;
    return end;
}

rvl_status rvli_blocks_unmap(rvl_context *context, rvli_block *blocks)
{
    while (blocks != NULL) {
        rvli_block *end = end_of_run(blocks);
        rvl_status status = RVL_OK;
        if (blocks->mapped)
            status = context->ops.unmap(context->self, blocks->device, blocks->addr,
                                        list_bytes(blocks, end));
        if (status != RVL_OK) {
            rvli_error_op("unmap");
            return status;
        }
        set_mapped(blocks, end, false);
        blocks = end;
    }
    return RVL_OK;
}

bool rvli_blocks_any_mapped(const rvli_block *blocks)
{
    while (blocks != NULL && !blocks->mapped)
        blocks = blocks->next;
    return blocks != NULL;
}

bool rvli_blocks_all_mapped(const rvli_block *blocks)
{
    while (blocks != NULL && blocks->mapped)
        blocks = blocks->next;
    return blocks == NULL;
}

/* ---- Ledger ---- */

void rvli_blocks_commit(rvl_context *context, rvli_block *blocks, rvli_holder *holder)
{
    for (; blocks != NULL; blocks = blocks->next) {
        if (blocks->handed_over)
            leave_kept(context, blocks, holder);
        else
            rvli_ledger_add(context, blocks->device, holder, blocks->size);
        blocks->handed_over = false;
    }
}

/* ---- Releasing ---- */

/*
 * Keeps a block if the budget has room. A block that was taken off the list keeps its share of the
 * budget until it is committed, because it may be put back. Exportable memory may be held
 * elsewhere, so it is never kept.
 */
static bool keep(rvl_context *context, rvli_block *block, rvli_holder *holder)
{
    if (context->keep_bytes == 0 ||
        (block->properties & (RVLI_BLOCK_EXPORTABLE | RVLI_BLOCK_IMPORTED)))
        return false;
    rvli_lock(context);
    bool room = block->size <= context->keep_bytes - context->kept_bytes;
    if (room) {
        rvli_device *device = &context->devices[block->device];
        put_kept(device, block);
        context->kept_bytes += block->size;
        rvli_ledger_hand_over(context, block->device, holder, &device->ledger.kept, block->size);
    }
    rvli_unlock(context);
    return room;
}

/*
 * Subtracts a block's bytes from the ledger before they are free for others, because otherwise both
 * could be counted at once. Adds them back if the backend refuses, when nobody else can have them.
 */
static rvl_status release_charged(rvl_context *context, rvli_block *block, rvli_holder *holder)
{
    rvli_lock(context);
    rvli_ledger_sub(context, block->device, holder, block->size);
    rvli_unlock(context);
    rvl_status status = release_handle(context, block);
    rvli_lock(context);
    if (status == RVL_OK)
        rvli_pool_put(&context->block_pool, block);
    else
        rvli_ledger_add(context, block->device, holder, block->size);
    rvli_unlock(context);
    return status;
}

/* On failure the block is unchanged. */
static rvl_status release_one(rvl_context *context, rvli_block *block, rvli_holder *holder)
{
    return keep(context, block, holder) ? RVL_OK : release_charged(context, block, holder);
}

static rvli_holder *holder_of(rvl_context *context, const rvli_allocation *allocation)
{
    return allocation->kind == RVLI_KIND_IMPORT
               ? &context->devices[allocation->device].ledger.imported
               : allocation->tag->holders[allocation->device];
}

/* first: return the backend's error for the first block, with nothing changed. */
static rvl_status release_all(rvl_context *context, rvli_allocation *allocation, bool first)
{
    rvli_holder *holder = holder_of(context, allocation);
    rvli_error_before before;
    rvli_error_keep(&before);
    while (allocation->blocks != NULL) {
        rvli_block *block = allocation->blocks;
        rvli_block *next = block->next;
        rvl_status status = release_one(context, block, holder);
        if (status != RVL_OK && first)
            return status;
        if (status != RVL_OK) {
            strand(context, block, holder);
            rvli_error_put_back(&before);
        }
        allocation->blocks = next;
        first = false;
    }
    return RVL_OK;
}

rvl_status rvli_blocks_release(rvl_context *context, rvli_allocation *allocation)
{
    return release_all(context, allocation, true);
}

void rvli_blocks_release_or_strand(rvl_context *context, rvli_allocation *allocation)
{
    (void)release_all(context, allocation, false);
}

/*
 * Releases the blocks of a list that belonged to holder. Blocks that are refused go back on the
 * list.
 */
static rvl_status release_list(rvl_context *context, rvli_block **list, rvli_holder *holder,
                               uint64_t *freed_out)
{
    rvl_status first = RVL_OK;
    rvli_lock(context);
    rvli_block *block = *list;
    *list = NULL;
    rvli_unlock(context);
    while (block != NULL) {
        rvli_block *next = block->next;
        uint64_t size = block->size;
        rvl_status status = release_charged(context, block, holder);
        if (status == RVL_OK) {
            *freed_out += size;
        } else {
            rvli_lock(context);
            block->next = *list;
            *list = block;
            rvli_unlock(context);
            first = first != RVL_OK ? first : status;
        }
        block = next;
    }
    return first;
}

uint64_t rvli_kept_give_up(rvl_context *context, int device)
{
    rvli_device *owner = &context->devices[device];
    uint64_t freed = 0;
    rvl_error cause = *rvli_error_get();
    release_list(context, &owner->kept, &owner->ledger.kept, &freed);
    rvli_error_set(&cause);
    rvli_lock(context);
    owner->kept_bytes -= freed;
    context->kept_bytes -= freed;
    rvli_unlock(context);
    return freed;
}

/*
 * A block is stranded with its mapping if unmapping failed. It can only be released once it is
 * unmapped.
 */
static void unmap_stranded(rvl_context *context, rvli_block *blocks)
{
    for (; blocks != NULL; blocks = blocks->next)
        if (blocks->mapped &&
            context->ops.unmap(context->self, blocks->device, blocks->addr, blocks->size) == RVL_OK)
            blocks->mapped = false;
}

rvl_status rvli_blocks_close(rvl_context *context)
{
    rvl_status first = RVL_OK;
    for (int device = 0; device < context->device_count; device++) {
        rvli_device *owner = &context->devices[device];
        uint64_t freed = 0;
        rvl_status kept = release_list(context, &owner->kept, &owner->ledger.kept, &freed);
        unmap_stranded(context, owner->stranded);
        rvl_status stranded =
            release_list(context, &owner->stranded, &owner->ledger.stranded, &freed);
        if (first == RVL_OK)
            first = kept != RVL_OK ? kept : stranded;
    }
    return first;
}

bool rvli_blocks_handed_over(const rvli_block *blocks)
{
    for (; blocks != NULL; blocks = blocks->next)
        if (blocks->handed_over)
            return true;
    return false;
}

uint32_t rvli_blocks_count(const rvli_block *blocks)
{
    uint32_t count = 0;
    for (; blocks != NULL; blocks = blocks->next)
        count++;
    return count;
}

uint64_t rvli_blocks_missing_bytes(const rvli_block *blocks)
{
    uint64_t bytes = 0;
    for (; blocks != NULL; blocks = blocks->next)
        bytes += blocks->handle == 0 ? blocks->size : 0;
    return bytes;
}
