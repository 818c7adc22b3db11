/* SPDX-License-Identifier: MIT */
/*
 * Pausing: back up everything, unmap everything but keep the blocks, release everything.
 *
 * Until the first block is released nothing is lost: undoing maps the blocks again. A failed
 * release is tried once more. If a later one still fails, memory that is already released is
 * created again and restored from its backup. Allocations for which that fails are LOST. On the way
 * forward, no device memory is allocated.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "core/backup/backup.h"
#include "core/backup/content.h"
#include "core/fail.h"
#include "core/memory/blocks.h"
#include "core/transition/prepare.h"
#include "core/transition/transition.h"

static rvli_holder *holder_of(const rvli_allocation *allocation)
{
    return allocation->tag->holders[allocation->device];
}

/* ---- Forward ---- */

static rvl_status ask_callbacks(const rvli_transition *transition)
{
    rvl_status status = RVL_OK;
    rvli_callback_enter();
    for (size_t i = 0; i < transition->touched_count && status == RVL_OK; i++) {
        const rvli_tag *tag = transition->touched[i];
        const rvli_tag_callbacks told = rvli_tag_get_callbacks(transition->context, tag);
        if (told.before_unmap == NULL || told.before_unmap(told.user, tag->number) == RVL_OK)
            continue;
        status = rvli_error(RVL_ERR_VETOED, "the tag's callback refused the pause");
        rvli_error_tag(tag->key->name);
    }
    rvli_callback_leave();
    return status;
}

/* Nothing may still use the memory when it is released. */
static rvl_status wait_until_unused(const rvli_transition *transition,
                                    const rvl_pause_options *options)
{
    rvl_context *context = transition->context;
    rvl_status status = RVL_OK;
    for (size_t i = 0; options->events != NULL && i < options->event_count; i++) {
        status = context->ops.wait_user(context->self, options->events[i]);
        if (status != RVL_OK) {
            rvli_error_op("wait_user");
            return status;
        }
    }
    for (int device = 0; options->events == NULL && device < context->device_count; device++) {
        if (!(transition->access_mask >> device & 1))
            continue;
        status = context->ops.synchronize(context->self, device);
        if (status != RVL_OK) {
            rvli_error_op("synchronize");
            return status;
        }
    }
    return RVL_OK;
}

static rvl_status unmap_all(rvli_transition *transition, size_t *failed_out)
{
    for (size_t i = 0; i < transition->item_count; i++) {
        *failed_out = i;
        rvl_status status =
            rvli_blocks_unmap(transition->context, transition->items[i].allocation->blocks);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static rvl_status release_all(rvli_transition *transition, size_t *failed_out)
{
    for (size_t i = 0; i < transition->item_count; i++) {
        *failed_out = i;
        rvl_status status =
            rvli_blocks_release(transition->context, transition->items[i].allocation);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

/* Makes the filled backup the allocation's backup. Discards another one if there was one. */
static void take_backup(rvl_context *context, rvli_move_item *item)
{
    rvli_allocation *allocation = item->allocation;
    rvli_content_saved(item);
    if (item->backup == allocation->backup)
        return;
    item->discarded = allocation->backup;
    if (item->discarded != NULL)
        rvli_backup_uncount(context, allocation->tag, item->discarded);
    rvli_backup_count(context, allocation->tag, item->backup);
    allocation->backup = item->backup;
}

static void commit_item(rvl_context *context, rvli_move_item *item)
{
    rvli_allocation *allocation = item->allocation;
    rvli_holder *holder = holder_of(allocation);
    rvli_ledger *ledger = &context->devices[allocation->device].ledger;

    rvli_allocation_move(allocation, RVLI_MOVE_PAUSE_COMMIT);
    holder->paused_bytes += allocation->size;
    holder->pauses += rvli_weight(allocation);
    ledger->pauses += rvli_weight(allocation);
    ledger->backup_out_bytes += item->copied_bytes;
    if (item->backup != NULL)
        take_backup(context, item);
}

/* Discards a retained backup, because the content is discarded. */
static void forget_backup(rvl_context *context, rvli_move_item *item)
{
    rvli_allocation *allocation = item->allocation;
    item->discarded = allocation->backup;
    if (allocation->backup != NULL)
        rvli_backup_uncount(context, allocation->tag, allocation->backup);
    allocation->backup = NULL;
}

static void commit(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    rvli_lock(context);
    for (size_t i = 0; i < transition->item_count; i++) {
        if (transition->skip_content)
            forget_backup(context, &transition->items[i]);
        commit_item(context, &transition->items[i]);
    }
    for (size_t i = 0; i < transition->touched_count && rvli_recording(&context->recorder); i++)
        rvli_record_transition(context, transition->touched[i], RVL_EVENT_PAUSE,
                               transition->skip_content);
    rvli_transition_spend(transition);
    rvli_unlock(context);
    for (size_t i = 0; i < transition->item_count; i++)
        rvli_backup_drop(context, transition->items[i].discarded);
}

/* Strands blocks that the backend refuses to release: the allocations are paused all the same. */
static void release_or_strand(rvli_transition *transition)
{
    for (size_t i = 0; i < transition->item_count; i++)
        rvli_blocks_release_or_strand(transition->context, transition->items[i].allocation);
}

/* ---- Backward ---- */

/* Creates the memory again, and restores the content from the backup. */
static bool recreate(rvli_transition *transition, rvli_move_item *item)
{
    rvl_context *context = transition->context;
    rvli_allocation *allocation = item->allocation;
    size_t ignored = 0;
    if (item->backup == NULL)
        return false;
    rvli_lock(context);
    rvl_status status = rvli_blocks_prepare(context, allocation, &allocation->blocks);
    rvli_unlock(context);
    if (status != RVL_OK)
        return false;
    status = rvli_blocks_create(context, allocation->blocks);
    if (status == RVL_OK)
        status =
            rvli_blocks_map(context, allocation->blocks, allocation->access_mask, RVLI_FILL_NONE);
    if (status == RVL_OK)
        status = rvli_content_load(transition, allocation, item->backup, item->load);
    if (status == RVL_OK)
        status = rvli_content_settle(transition, false, &ignored);
    bool settled = status == RVL_OK;
    if (!settled) {
        rvli_content_quiesce(transition);
        /* Blocks that cannot be unmapped stay with the allocation, because nothing else may be
           mapped at its address. */
        if (rvli_blocks_unmap(context, allocation->blocks) == RVL_OK) {
            rvli_blocks_undo_create(context, allocation->blocks);
            allocation->blocks = NULL;
            return false;
        }
    }
    rvli_lock(context);
    rvli_blocks_commit(context, allocation->blocks, holder_of(allocation));
    rvli_unlock(context);
    return settled;
}

static bool map_again(rvli_transition *transition, const rvli_allocation *allocation)
{
    return rvli_blocks_map(transition->context, allocation->blocks, allocation->access_mask,
                           RVLI_FILL_NONE) == RVL_OK;
}

/* Restores an allocation's memory and content, from whatever is left. */
static bool restore_item(rvli_transition *transition, rvli_move_item *item)
{
    rvli_allocation *allocation = item->allocation;
    if (allocation->blocks == NULL)
        return recreate(transition, item);
    if (rvli_blocks_all_mapped(allocation->blocks))
        return true;
    return map_again(transition, allocation) || map_again(transition, allocation);
}

/*
 * Its content stays in the backup, because everything was saved before the first block was
 * released.
 */
static void lose_item(rvl_context *context, rvli_move_item *item)
{
    rvli_allocation_lose(item->allocation);
    if (item->backup != NULL)
        take_backup(context, item);
}

/* Returns false if the allocation is lost, and fills the error record. */
static bool undo_item(rvli_transition *transition, rvli_move_item *item)
{
    rvl_context *context = transition->context;
    rvli_allocation *allocation = item->allocation;
    rvli_backup *unused = NULL;
    bool released = allocation->blocks == NULL;
    bool restored = restore_item(transition, item);
    item->renewed = released || !restored;
    rvli_lock(context);
    if (!restored) {
        lose_item(context, item);
    } else {
        if (item->backup != allocation->backup)
            unused = item->backup;
        else
            rvli_content_unsaved(item);
        rvli_allocation_move(allocation, RVLI_MOVE_PAUSE_UNDO);
    }
    rvli_unlock(context);
    rvli_backup_drop(context, unused);
    rvli_backup_drop(context, item->discarded);
    item->discarded = NULL;
    return restored;
}

static void undo(rvli_transition *transition)
{
    rvl_error cause = *rvli_error_get();
    for (size_t i = 0; i < transition->item_count; i++)
        (void)undo_item(transition, &transition->items[i]);
    rvli_error_set(&cause);
}

/* ---- The call ---- */

/* Runs the steps in order. *failed_out: the item that failed. */
static rvl_status unmap_saved(rvli_transition *transition, const rvl_pause_options *options,
                              size_t *failed_out)
{
    rvl_status status = ask_callbacks(transition);
    if (status == RVL_OK)
        status = wait_until_unused(transition, options);
    if (status == RVL_OK && !transition->skip_content) {
        status = rvli_content_save(transition, failed_out);
        if (status != RVL_OK)
            rvli_content_quiesce(transition);
    }
    if (status == RVL_OK)
        status = unmap_all(transition, failed_out);
    return status;
}

/*
 * Does everything that can fail. With `release`, only the final states are missing. Without it,
 * nothing is released yet.
 */
static rvl_status pause_claimed(rvli_transition *transition, const rvl_pause_options *options,
                                bool release)
{
    rvl_context *context = transition->context;
    size_t failed = 0;
    rvli_lock(context);
    rvl_status status = rvli_transition_collect(transition, RVLI_MOVE_PAUSE_BEGIN, true);
    rvli_unlock(context);
    if (status != RVL_OK || transition->item_count == 0)
        return status;
    status = rvli_transition_ask(transition, RVL_EVENT_PAUSE);
    bool refused = status != RVL_OK;
    if (!refused)
        status = unmap_saved(transition, options, &failed);
    if (status == RVL_OK && release)
        status = release_all(transition, &failed);
    if (status == RVL_OK)
        return RVL_OK;
    const rvli_allocation *allocation = transition->items[failed].allocation;
    if (!refused && status != RVL_ERR_VETOED)
        rvli_fail(context, "pause", allocation->tag, allocation->device, allocation->size);
    undo(transition);
    rvli_transition_tell(transition, false);
    return status;
}

/* Sets the final states. */
static void finish(rvli_transition *transition)
{
    if (transition->item_count == 0)
        return;
    commit(transition);
    rvli_transition_tell(transition, true);
}

void rvli_pause_commit(rvli_transition *transition)
{
    release_or_strand(transition);
    finish(transition);
}

rvl_status rvli_pause_abort(rvli_transition *transition)
{
    return rvli_abort(transition, undo_item, "abort of a pause");
}

static rvl_status read_options(rvl_pause_options *options, const rvl_pause_options *user)
{
    rvl_status status = rvli_options_read(options, sizeof *options, user);
    return status == RVL_OK ? rvli_flags_check(options->flags, RVL_PAUSE_DISCARD, options->reserved)
                            : status;
}

rvl_status rvli_pause_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                            const rvl_pause_options *user_options, rvl_pause_options *options,
                            rvli_transition *transition)
{
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK)
        status = read_options(options, user_options);
    if (status == RVL_OK)
        status = rvli_streams_check(context, options->streams, options->stream_count);
    if (status == RVL_OK)
        status = rvli_transition_begin(context, tags, tag_count, options->process, transition);
    if (status == RVL_OK)
        transition->skip_content = options->flags & RVL_PAUSE_DISCARD;
    return status;
}

rvl_status rvl_pause(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                     const rvl_pause_options *user_options)
{
    rvl_pause_options options;
    rvli_transition transition;
    rvl_status status =
        rvli_pause_begin(context, tags, tag_count, user_options, &options, &transition);
    if (status != RVL_OK)
        return status;
    status = pause_claimed(&transition, &options, true);
    if (status == RVL_OK)
        finish(&transition);
    rvli_transition_end(&transition);
    return status;
}

rvl_status rvl_pause_prepare(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_pause_options *user_options, rvl_transition **transition_out)
{
    rvl_pause_options options;
    rvli_transition *transition = NULL;
    rvl_status status = rvli_prepare_new(transition_out, &transition);
    if (status == RVL_OK)
        status = rvli_pause_begin(context, tags, tag_count, user_options, &options, transition);
    if (status != RVL_OK) {
        free(transition);
        return status;
    }
    transition->kind = RVL_EVENT_PAUSE;
    status = pause_claimed(transition, &options, false);
    return rvli_prepare_end(transition, status, transition_out);
}
