/* SPDX-License-Identifier: MIT */
/*
 * Sharing memory between processes (reveille/share.h).
 *
 * An import is an allocation with blocks of another process. It moves by itself, not with its tag,
 * so it is in no tag's list. Its states and their undoing are those of any allocation, and its
 * bytes have a separate holder.
 */
#include "reveille/share.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/options.h"
#include "core/context/allocate.h"
#include "core/fail.h"
#include "core/memory/backing.h"
#include "core/memory/blocks.h"
#include "core/memory/enter.h"

/* ---- Exporting ---- */

/* With the lock held. */
static rvl_status find_exportable(rvl_context *context, rvl_addr addr, uint64_t id,
                                  rvli_allocation **allocation_out)
{
    rvli_allocation *found = rvli_index_get(&context->by_addr, addr);
    if (found == NULL || found->freeing || (id != 0 && found->id != id))
        return rvli_error(RVL_ERR_NOT_FOUND, "no such allocation begins at this address: it was "
                                             "freed, and the address may be another's by now");
    if ((found->flags & RVL_ALLOC_EXPORTABLE) == 0)
        return rvli_error(RVL_ERR_NOT_SUPPORTED, "the driver did not make this memory exportable: "
                                                 "ask for it by RVL_ALLOC_EXPORTABLE");
    if (found->state != RVL_STATE_ACTIVE)
        return rvli_error(RVL_ERR_STATE, "the memory is paused: resume it first");
    *allocation_out = found;
    return RVL_OK;
}

static void close_files(const int *fds, size_t count)
{
    while (count > 0)
        close(fds[--count]);
}

/* With the lock held, so that no transition takes the blocks away. Nothing here waits. */
static rvl_status export_blocks(rvl_context *context, const rvli_allocation *allocation,
                                uint64_t first, int *fds, uint64_t *block_bytes, size_t capacity,
                                rvl_export *done)
{
    uint64_t number = 0;
    for (const rvli_block *each = allocation->blocks; each != NULL; each = each->next, number++) {
        if (number < first || done->file_count == capacity)
            continue;
        rvl_status status = context->ops.export_block(context->self, each->device, each->handle,
                                                      &fds[done->file_count]);
        if (status != RVL_OK) {
            rvli_error_op("export_block");
            close_files(fds, done->file_count);
            return status;
        }
        block_bytes[done->file_count++] = each->size;
    }
    done->allocation_id = allocation->id;
    done->size_bytes = allocation->size;
    done->block_count = number;
    return RVL_OK;
}

static rvl_status export_all(rvl_context *context, rvl_addr addr, const rvl_export_options *options,
                             int *fds, uint64_t *block_bytes, size_t capacity, rvl_export *done)
{
    rvli_allocation *allocation = NULL;
    rvli_lock(context);
    rvl_status status = find_exportable(context, addr, options->allocation_id, &allocation);
    if (status == RVL_OK)
        status = export_blocks(context, allocation, options->first_block, fds, block_bytes,
                               capacity, done);
    rvli_unlock(context);
    return status;
}

rvl_status rvl_allocation_export(rvl_context *context, rvl_addr addr,
                                 const rvl_export_options *user_options, int *fds_out,
                                 uint64_t *block_bytes_out, size_t capacity, rvl_export *export_out)
{
    rvl_export_options options;
    rvl_export done = {0};
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK && capacity > 0 && (fds_out == NULL || block_bytes_out == NULL))
        status = rvli_error(RVL_ERR_INVALID, "fds_out or block_bytes_out is NULL");
    if (status == RVL_OK)
        status = export_all(context, addr, &options, fds_out, block_bytes_out, capacity, &done);
    if (status != RVL_OK)
        return status;
    status = rvli_result_write(export_out, &done, sizeof done);
    if (status != RVL_OK)
        close_files(fds_out, done.file_count);
    return status;
}

/* ---- Building an import ---- */

struct rvl_import {
    rvl_context *context;
    rvli_allocation draft;
    rvli_block **link; /* where the next block is linked */
    uint64_t added_bytes;
};

rvl_status rvl_import_begin(rvl_context *context, uint64_t size_bytes,
                            const rvl_import_options *user_options, rvl_import **import_out)
{
    rvl_import_options options;
    rvl_import *new = NULL;
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && import_out == NULL)
        status = rvli_error(RVL_ERR_INVALID, "import_out is NULL");
    if (status == RVL_OK)
        status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK && (new = calloc(1, sizeof *new)) == NULL)
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for an import");
    if (status != RVL_OK)
        return status;
    const rvl_alloc_options as = {.struct_size = sizeof as,
                                  .tag = options.tag,
                                  .process = options.process,
                                  .device = options.device,
                                  .access = options.access,
                                  .access_count = options.access_count};
    status = rvli_allocation_describe(context, size_bytes, &as, &new->draft);
    if (status == RVL_OK && new->draft.size != size_bytes)
        status = rvli_error(RVL_ERR_INVALID, "an import is not a multiple of the granularity");
    if (status != RVL_OK) {
        free(new);
        return status;
    }
    new->context = context;
    new->draft.kind = RVLI_KIND_IMPORT;
    new->draft.flags = RVL_ALLOC_IMPORTED;
    new->link = &new->draft.blocks;
    *import_out = new;
    return RVL_OK;
}

static rvl_status check_block(const rvl_import *import, uint64_t size_bytes, uint64_t before_bytes)
{
    uint64_t granularity = import->context->devices[import->draft.device].facts.granularity_bytes;
    if (size_bytes == 0 || size_bytes % granularity != 0)
        return rvli_error(RVL_ERR_INVALID, "a block is not a multiple of the granularity");
    if (size_bytes > import->draft.size - before_bytes)
        return rvli_error(RVL_ERR_INVALID, "the blocks are larger than the import");
    return RVL_OK;
}

static rvl_status import_block(const rvl_import *import, int fd, uint64_t size_bytes,
                               rvli_block **block_out)
{
    rvl_context *context = import->context;
    int device = import->draft.device;
    rvli_handle handle = 0;
    rvl_status status = context->ops.import_block(context->self, device, fd, size_bytes, &handle);
    if (status != RVL_OK) {
        rvli_error_op("import_block");
        return status;
    }
    rvli_lock(context);
    rvli_block *new = rvli_pool_get(&context->block_pool);
    rvli_unlock(context);
    if (new == NULL) {
        (void)context->ops.release(context->self, device, handle, size_bytes);
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a block");
    }
    *new = (rvli_block){.handle = handle,
                        .size = size_bytes,
                        .device = (uint8_t)device,
                        .properties = RVLI_BLOCK_IMPORTED};
    *block_out = new;
    return RVL_OK;
}

rvl_status rvl_import_add(rvl_import *import, const int *fds, const uint64_t *block_bytes,
                          size_t count)
{
    rvl_status status = import == NULL || (count > 0 && (fds == NULL || block_bytes == NULL))
                            ? rvli_error(RVL_ERR_INVALID, "the import, fds or block_bytes is NULL")
                            : rvli_context_check(import->context);
    if (status != RVL_OK)
        return status;
    rvli_block *first = NULL, **link = &first;
    uint64_t bytes = import->added_bytes;
    for (size_t i = 0; i < count && status == RVL_OK; i++) {
        status = check_block(import, block_bytes[i], bytes);
        if (status == RVL_OK)
            status = import_block(import, fds[i], block_bytes[i], link);
        if (status == RVL_OK) {
            link = &(*link)->next;
            bytes += block_bytes[i];
        }
    }
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvli_blocks_undo_create(import->context, first);
        rvli_error_set(&cause);
    } else if (first != NULL) {
        *import->link = first;
        import->link = link;
        import->added_bytes = bytes;
    }
    return status;
}

/* Places the blocks one after another, from the start of the range. */
static void place_blocks(rvli_allocation *draft)
{
    uint64_t addr = draft->addr;
    for (rvli_block *each = draft->blocks; each != NULL; each = each->next) {
        each->addr = addr;
        addr += each->size;
    }
}

/* Adds a mapped import to tables and ledger. With the lock held. */
static rvl_status enter(rvl_context *context, const rvli_allocation *draft)
{
    rvl_status status = rvli_tag_reach(draft->tag, draft->device);
    rvli_allocation *new = status == RVL_OK ? rvli_pool_get(&context->allocation_pool) : NULL;
    if (status != RVL_OK)
        return status;
    if (new == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for an allocation");
    *new = *draft;
    status = rvli_enter_address(context, new);
    if (status == RVL_OK)
        rvli_ledger_add(context, new->device, &context->devices[new->device].ledger.imported,
                        new->size);
    else
        rvli_pool_put(&context->allocation_pool, new);
    return status;
}

/* Reserves the range and maps all blocks in it, or does neither. */
static rvl_status place(rvl_context *context, rvli_allocation *draft)
{
    rvl_status status = rvli_reserve(context, draft);
    if (status != RVL_OK)
        return status;
    place_blocks(draft);
    status = rvli_blocks_map(context, draft->blocks, draft->access_mask, RVLI_FILL_NONE);
    if (status != RVL_OK)
        rvli_undo_reserve(context, draft);
    return status;
}

rvl_status rvl_import_finish(rvl_import *import, rvl_addr *addr_out)
{
    rvl_status status = import == NULL || addr_out == NULL
                            ? rvli_error(RVL_ERR_INVALID, "the import or addr_out is NULL")
                            : rvli_context_check(import->context);
    if (status == RVL_OK && import->added_bytes != import->draft.size)
        status = rvli_error(RVL_ERR_INVALID, "the import has not all its blocks: add them first");
    if (status != RVL_OK)
        return status;
    rvl_context *context = import->context;
    rvli_allocation *draft = &import->draft;
    status = place(context, draft);
    if (status == RVL_OK) {
        rvli_lock(context);
        status = enter(context, draft);
        rvli_unlock(context);
        if (status != RVL_OK) {
            rvl_error cause = *rvli_error_get();
            (void)rvli_blocks_unmap(context, draft->blocks);
            rvli_undo_reserve(context, draft);
            rvli_error_set(&cause);
        }
    }
    if (status != RVL_OK) {
        rvli_fail(context, "import", draft->tag, draft->device, draft->size);
        return status;
    }
    *addr_out = draft->addr;
    free(import);
    return RVL_OK;
}

/* In a forked child the blocks belong to the parent. */
void rvl_import_cancel(rvl_import *import)
{
    if (import == NULL)
        return;
    rvl_error before = *rvli_error_get();
    if (rvli_context_check(import->context) == RVL_OK)
        rvli_blocks_undo_create(import->context, import->draft.blocks);
    free(import);
    rvli_error_set(&before);
}

/* ---- Moving an import ---- */

static bool is_moving(const rvli_allocation *import)
{
    return import->freeing || import->state == RVL_STATE_PAUSING ||
           import->state == RVL_STATE_RESUMING;
}

/* Finds the import at addr, and waits until no thread moves it. With the lock held. */
static rvl_status find_import(rvl_context *context, rvl_addr addr, rvli_allocation **import_out)
{
    for (;;) {
        rvli_allocation *found = rvli_index_get(&context->by_addr, addr);
        if (found == NULL || found->kind != RVLI_KIND_IMPORT)
            return rvli_error(RVL_ERR_NOT_FOUND, "no imported memory begins at this address");
        if (!is_moving(found)) {
            *import_out = found;
            return RVL_OK;
        }
        pthread_cond_wait(&context->moved, &context->lock);
    }
}

/*
 * Returns whether a move that begins in this way has anything to do: a pause needs a mapped import,
 * and the other moves need an import that is not active and has blocks.
 */
static bool is_due(const rvli_allocation *import, rvli_move begin)
{
    bool active = import->state == RVL_STATE_ACTIVE;
    return begin == RVLI_MOVE_PAUSE_BEGIN ? active : !active && import->blocks != NULL;
}

/*
 * Claims the import at addr for a move. *import_out is NULL if there is nothing to do, or the move
 * cannot begin. *was_out is a copy of the import before: other threads write to the record itself.
 */
static rvl_status claim(rvl_context *context, rvl_addr addr, rvli_move begin,
                        rvli_allocation **import_out, rvli_allocation *was_out)
{
    rvli_allocation *found = NULL;
    rvl_status status = rvli_context_check(context);
    *import_out = NULL;
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = find_import(context, addr, &found);
    if (status == RVL_OK) {
        *was_out = *found;
        if (is_due(found, begin)) {
            rvli_allocation_move(found, begin);
            *import_out = found;
        }
    }
    rvli_unlock(context);
    return status;
}

static void settle(rvl_context *context, rvli_allocation *import, rvli_move end)
{
    rvli_lock(context);
    rvli_allocation_move(import, end);
    rvli_announce_moved(context);
    rvli_unlock(context);
}

/* Completes the error record. Takes a copy, because the import may already be freed. */
static rvl_status tell(rvl_context *context, const char *what, const rvli_allocation *was,
                       rvl_status status)
{
    if (status != RVL_OK)
        rvli_fail(context, what, was->tag, was->device, was->size);
    return status;
}

/* Nothing may still use the memory when it is released. */
static rvl_status wait_until_unused(rvl_context *context, uint64_t device_mask)
{
    rvl_status status = RVL_OK;
    for (int device = 0; device < context->device_count && status == RVL_OK; device++)
        if (device_mask >> device & 1)
            status = rvl_device_synchronize(context, device);
    return status;
}

rvl_status rvl_import_pause(rvl_context *context, rvl_addr addr)
{
    rvli_allocation *import, was;
    rvl_status status = claim(context, addr, RVLI_MOVE_PAUSE_BEGIN, &import, &was);
    if (import == NULL)
        return status;
    status = wait_until_unused(context, was.access_mask);
    if (status == RVL_OK)
        status = rvli_blocks_unmap(context, was.blocks);
    settle(context, import, status == RVL_OK ? RVLI_MOVE_PAUSE_COMMIT : RVLI_MOVE_PAUSE_UNDO);
    return tell(context, "pause of an import", &was, status);
}

rvl_status rvl_import_resume(rvl_context *context, rvl_addr addr)
{
    rvli_allocation *import, was;
    rvl_status status = claim(context, addr, RVLI_MOVE_RESUME_BEGIN, &import, &was);
    if (status == RVL_OK && import == NULL && was.state != RVL_STATE_ACTIVE)
        return rvli_error(RVL_ERR_STATE, "the imported memory was given back: free its address, "
                                         "and import it again");
    if (import == NULL)
        return status;
    rvli_move end = RVLI_MOVE_RESUME_COMMIT;
    status = rvli_blocks_map(context, was.blocks, was.access_mask, RVLI_FILL_NONE);
    if (status != RVL_OK)
        end = was.blocks->mapped ? RVLI_MOVE_LOSE : RVLI_MOVE_RESUME_UNDO;
    settle(context, import, end);
    return tell(context, "resume of an import", &was, status);
}

rvl_status rvl_import_release(rvl_context *context, rvl_addr addr)
{
    rvli_allocation *import, was;
    rvl_status status = claim(context, addr, RVLI_MOVE_RESUME_BEGIN, &import, &was);
    if (status == RVL_OK && import == NULL && was.state == RVL_STATE_ACTIVE)
        return rvli_error(RVL_ERR_STATE, "the imported memory is in use: pause the import first");
    if (import == NULL)
        return status;
    status = rvli_unback(context, import);
    bool lost = status == RVL_OK || was.state == RVL_STATE_LOST;
    settle(context, import, lost ? RVLI_MOVE_LOSE : RVLI_MOVE_RESUME_UNDO);
    return tell(context, "release of an import", &was, status);
}
