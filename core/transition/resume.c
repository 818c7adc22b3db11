/* SPDX-License-Identifier: MIT */
/*
 * Resuming: create, map and restore (overlapped), and set the final states last.
 *
 * Backups are kept until the final states are set. Undoing unmaps and releases what this call
 * created. If undoing fails for an allocation, it is LOST. One that was LOST before is LOST again.
 * It keeps its address and backup.
 */
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/options.h"
#include "core/backup/backup.h"
#include "core/backup/content.h"
#include "core/fail.h"
#include "core/memory/blocks.h"
#include "core/transition/order.h"
#include "core/transition/parts.h"
#include "core/transition/prepare.h"
#include "core/transition/resume.h"
#include "core/transition/transition.h"

/* Time between two attempts to get memory that another process still holds. */
#define RETRY_NS 2000000u

static rvli_holder *holder_of(const rvli_allocation *allocation)
{
    return allocation->tag->holders[allocation->device];
}

/* ---- Creating ---- */

static void undo_create_item(rvl_context *context, rvli_move_item *item)
{
    if (item->had_blocks || item->blocks == NULL)
        return;
    rvli_blocks_undo_create(context, item->blocks);
    item->blocks = NULL;
}

static rvl_status create_item(rvl_context *context, rvli_move_item *item)
{
    if (item->had_blocks)
        return RVL_OK;
    rvli_lock(context);
    rvl_status status = rvli_blocks_prepare(context, item->allocation, &item->blocks);
    rvli_unlock(context);
    if (status == RVL_OK)
        status = rvli_blocks_create(context, item->blocks);
    return status;
}

static rvl_status create_all(rvli_transition *transition, size_t *failed_out)
{
    for (size_t i = 0; i < transition->item_count; i++) {
        *failed_out = i;
        rvl_status status = create_item(transition->context, &transition->items[i]);
        if (status == RVL_OK)
            continue;
        rvl_error cause = *rvli_error_get();
        for (size_t done = 0; done <= i; done++)
            undo_create_item(transition->context, &transition->items[done]);
        rvli_error_set(&cause);
        return status;
    }
    return RVL_OK;
}

/*
 * Creates all memory before anything else. While time is left, waits for other processes without
 * holding any memory: two processes that each hold half of what they need would wait forever.
 */
static rvl_status create_in_time(rvli_transition *transition, uint64_t timeout_ns,
                                 size_t *failed_out)
{
    uint64_t start_ns = rvli_monotonic_ns();
    rvli_error_before before;
    rvli_error_keep(&before);
    for (;;) {
        rvl_status status = create_all(transition, failed_out);
        if (status == RVL_OK)
            rvli_error_put_back(&before);
        if (status != RVL_ERR_DEVICE_OOM)
            return status;
        if (rvli_monotonic_ns() - start_ns >= timeout_ns)
            return rvli_error(RVL_ERR_TIMEOUT, "the memory was not given back in time");
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
}

/* ---- Mapping and restoring ---- */

static bool loads(const rvli_transition *transition, const rvli_move_item *item)
{
    return !transition->skip_content && item->allocation->backup != NULL;
}

static rvli_fill fill_of(const rvli_transition *transition, const rvli_move_item *item)
{
    if (loads(transition, item))
        return RVLI_FILL_NONE;
    return item->allocation->tag->poison ? RVLI_FILL_POISON : RVLI_FILL_HANDED_OVER;
}

rvl_status rvli_resume_map_item(rvli_transition *transition, rvli_move_item *item)
{
    rvl_context *context = transition->context;
    rvl_status status = item->blocks == NULL ? create_item(context, item) : RVL_OK;
    if (status == RVL_OK)
        status = rvli_blocks_map(context, item->blocks, item->allocation->access_mask,
                                 fill_of(transition, item));
    return status;
}

rvl_status rvli_resume_load_item(rvli_transition *transition, const rvli_move_item *item)
{
    rvli_allocation *allocation = item->allocation;
    if (!loads(transition, item) || item->load.size == 0)
        return RVL_OK;
    return rvli_content_load(transition, allocation, allocation->backup, item->load);
}

/* While the content of one allocation is copied, the next is created and mapped. */
static rvl_status back_all(rvli_transition *transition, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < transition->item_count && status == RVL_OK; i++) {
        rvli_move_item *item = rvli_order_item(transition, i);
        *failed_out = (size_t)(item - transition->items);
        status = rvli_resume_map_item(transition, item);
        if (status == RVL_OK)
            status = rvli_resume_load_item(transition, item);
    }
    if (status == RVL_OK) /* waits for copies, and for the filling of handed-over blocks */
        status = rvli_content_settle(transition, !transition->skip_content, failed_out);
    if (status != RVL_OK)
        rvli_content_quiesce(transition);
    return status;
}

/* ---- Final states ---- */

static void commit_item(rvli_transition *transition, rvli_move_item *item)
{
    rvl_context *context = transition->context;
    rvli_allocation *allocation = item->allocation;
    rvli_holder *holder = holder_of(allocation);
    rvli_ledger *ledger = &context->devices[allocation->device].ledger;

    rvli_allocation_move(allocation, RVLI_MOVE_RESUME_COMMIT);
    if (!item->had_blocks)
        rvli_blocks_commit(context, item->blocks, holder);
    allocation->blocks = item->blocks;
    holder->paused_bytes -= allocation->size;
    holder->resumes += rvli_weight(allocation);
    ledger->resumes += rvli_weight(allocation);
    if (allocation->backup == NULL)
        return;
    ledger->backup_in_bytes += transition->skip_content ? 0 : allocation->size - item->filled_bytes;
    ledger->filled_in_bytes += item->filled_bytes;
    if (allocation->tag->retain_backups)
        return;
    rvli_backup_uncount(context, allocation->tag, allocation->backup);
    item->discarded = allocation->backup;
    allocation->backup = NULL;
}

/* Returns the bytes that the transition creates on a device, not counting kept blocks. */
static uint64_t created_bytes(const rvli_transition *transition, int device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < transition->item_count; i++) {
        const rvli_move_item *item = &transition->items[i];
        if (item->allocation->device != device || item->had_blocks)
            continue;
        for (const rvli_block *block = item->blocks; block != NULL; block = block->next)
            bytes += block->handed_over ? 0 : block->size;
    }
    return bytes;
}

void rvli_resume_count_prepared(const rvli_transition *transition, bool waits)
{
    rvl_context *context = transition->context;
    for (int device = 0; device < context->device_count; device++) {
        uint64_t bytes =
            transition->device_mask >> device & 1 ? created_bytes(transition, device) : 0;
        uint64_t *counted = &context->devices[device].ledger.prepared_bytes;
        *counted = waits ? *counted + bytes : *counted - bytes;
    }
}

static void check_fit(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    const rvli_tag *tag = transition->items[0].allocation->tag;
    for (int device = 0; device < context->device_count; device++)
        if (transition->device_mask >> device & 1)
            rvli_ledger_check_fit(context, device, tag->number, tag->process->number,
                                  created_bytes(transition, device));
}

static void record(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    for (size_t i = 0; i < transition->touched_count && rvli_recording(&context->recorder); i++)
        rvli_record_transition(context, transition->touched[i], RVL_EVENT_RESUME,
                               transition->skip_content);
}

/*
 * Hands over the items from `begin` to `end` of the order. From here on their allocations may be
 * freed.
 */
void rvli_resume_hand_over(rvli_transition *transition, size_t begin, size_t end)
{
    rvl_context *context = transition->context;
    rvli_lock(context);
    if (begin == 0)
        check_fit(transition);
    for (size_t i = begin; i < end; i++) {
        commit_item(transition, rvli_order_item(transition, i));
        rvli_order_item(transition, i)->handed_over = true;
    }
    if (end == transition->item_count)
        record(transition);
    rvli_announce_moved(context);
    rvli_unlock(context);
}

/* Drops the backups of items that were handed over. */
static void drop_discarded(rvli_transition *transition)
{
    for (size_t i = 0; i < transition->item_count; i++)
        rvli_backup_drop(transition->context, transition->items[i].discarded);
}

static void spend(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    rvli_lock(context);
    rvli_transition_spend(transition);
    rvli_unlock(context);
}

static void tell_callbacks(const rvli_transition *transition)
{
    rvli_callback_enter();
    for (size_t i = 0; i < transition->touched_count; i++) {
        const rvli_tag *tag = transition->touched[i];
        const rvli_tag_callbacks told = rvli_tag_get_callbacks(transition->context, tag);
        if (told.after_map != NULL)
            told.after_map(told.user, tag->number);
    }
    rvli_callback_leave();
}

/* ---- Backward ---- */

static bool unmap(rvl_context *context, rvli_block *blocks)
{
    return !rvli_blocks_any_mapped(blocks) || rvli_blocks_unmap(context, blocks) == RVL_OK;
}

/*
 * Releases the memory again. Returns false if it could not be unmapped: it then stays with the
 * allocation.
 */
static bool unback_item(rvl_context *context, rvli_move_item *item)
{
    if (item->had_blocks || item->blocks == NULL)
        return true;
    if (!unmap(context, item->blocks) && !unmap(context, item->blocks))
        return false;
    undo_create_item(context, item);
    return true;
}

/* Returns false if the allocation is lost, and fills the error record. */
static bool undo_item(rvli_transition *transition, rvli_move_item *item)
{
    rvl_context *context = transition->context;
    rvli_allocation *allocation = item->allocation;
    bool unbacked = unback_item(context, item);
    rvli_lock(context);
    if (!unbacked) {
        rvli_blocks_commit(context, item->blocks, holder_of(allocation));
        allocation->blocks = item->blocks;
    }
    /* It was counted as paused before, and still is. */
    bool paused = unbacked && item->before == RVL_STATE_PAUSED;
    rvli_allocation_move(allocation, paused ? RVLI_MOVE_RESUME_UNDO : RVLI_MOVE_LOSE);
    rvli_unlock(context);
    return unbacked;
}

static void undo(rvli_transition *transition)
{
    rvl_error cause = *rvli_error_get();
    for (size_t i = 0; i < transition->item_count; i++)
        if (!transition->items[i].handed_over)
            (void)undo_item(transition, &transition->items[i]);
    rvli_error_set(&cause);
}

/* ---- The call ---- */

/* Returns what the resume needs of a device in total, for the error record. */
static uint64_t needed_bytes(const rvli_transition *transition, int device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < transition->item_count; i++) {
        const rvli_move_item *item = &transition->items[i];
        if (!item->handed_over && item->allocation->device == device && !item->had_blocks)
            bytes += item->allocation->size;
    }
    return bytes;
}

rvl_status rvli_resume_mark(rvli_transition *transition, const rvl_resume_options *options)
{
    rvl_context *context = transition->context;
    rvli_lock(context);
    rvl_status status = rvli_transition_collect(transition, RVLI_MOVE_RESUME_BEGIN, true);
    bool marked = status == RVL_OK && transition->item_count > 0;
    if (marked)
        status = rvli_order_make(transition, options->order, options->order_count);
    rvli_unlock(context);
    if (!marked)
        return status;
    if (status == RVL_OK)
        status = rvli_transition_ask(transition, RVL_EVENT_RESUME);
    if (status != RVL_OK)
        undo(transition);
    return status;
}

rvl_status rvli_resume_create(rvli_transition *transition, uint64_t timeout_ns, size_t *failed_out)
{
    return timeout_ns > 0 ? create_in_time(transition, timeout_ns, failed_out) : RVL_OK;
}

void rvli_resume_fail(rvli_transition *transition, size_t failed)
{
    /* Reads these before undoing, because other threads may then free the allocation. Reports free
       memory as it is after undoing. */
    const rvli_allocation *allocation = transition->items[failed].allocation;
    const rvli_tag *tag = allocation->tag;
    int device = allocation->device;
    uint64_t needed = needed_bytes(transition, device);
    undo(transition);
    drop_discarded(transition);
    rvli_transition_tell(transition, false);
    rvli_fail(transition->context, "resume", tag, device, needed);
}

/*
 * Does everything that can fail: memory and content are ready, and only the final states are
 * missing.
 */
static rvl_status resume_claimed(rvli_transition *transition, const rvl_resume_options *options)
{
    size_t failed = 0;
    rvl_status status = rvli_resume_mark(transition, options);
    if (status != RVL_OK || transition->item_count == 0)
        return status;
    status = rvli_parts_cut(transition);
    if (status == RVL_OK)
        status = rvli_resume_create(transition, options->timeout_ns, &failed);
    if (status == RVL_OK)
        status = back_all(transition, &failed);
    if (status == RVL_OK)
        status = rvli_part_load_begin(transition, &failed);
    if (status != RVL_OK)
        rvli_resume_fail(transition, failed);
    return status;
}

void rvli_resume_end(rvli_transition *transition)
{
    drop_discarded(transition);
    spend(transition);
    rvli_transition_tell(transition, true);
    tell_callbacks(transition);
}

void rvli_resume_commit(rvli_transition *transition)
{
    if (transition->item_count == 0)
        return;
    rvli_resume_hand_over(transition, 0, transition->item_count);
    rvli_resume_end(transition);
}

rvl_status rvli_resume_abort(rvli_transition *transition)
{
    rvli_part_load_stop(transition);
    return rvli_abort(transition, undo_item, "abort of a resume");
}

static rvl_status read_options(rvl_resume_options *options, const rvl_resume_options *user)
{
    rvl_status status = rvli_options_read(options, sizeof *options, user);
    return status == RVL_OK
               ? rvli_flags_check(options->flags, RVL_RESUME_NO_RESTORE | RVL_RESUME_BY_PIECES,
                                  options->reserved)
               : status;
}

rvl_status rvli_resume_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_resume_options *user_options, rvl_resume_options *options,
                             rvli_transition *transition)
{
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK)
        status = read_options(options, user_options);
    if (status == RVL_OK)
        status = rvli_streams_check(context, options->streams, options->stream_count);
    if (status == RVL_OK && options->order_count > 0 && options->order == NULL)
        status = rvli_error(RVL_ERR_INVALID, "order_count without order");
    if (status == RVL_OK && options->arrived != NULL)
        status = rvli_error(RVL_ERR_INVALID, "arrived is for rvl_resume_start() alone");
    if (status == RVL_OK && (options->part_index | options->part_count) != 0)
        status = rvli_error(RVL_ERR_INVALID, "part_count is for rvl_resume_prepare() alone");
    if (status == RVL_OK && options->flags & RVL_RESUME_BY_PIECES)
        status =
            rvli_error(RVL_ERR_INVALID, "RVL_RESUME_BY_PIECES is for rvl_resume_prepare() alone");
    if (status == RVL_OK)
        status = rvli_transition_begin(context, tags, tag_count, options->process, transition);
    if (status == RVL_OK)
        transition->skip_content = options->flags & RVL_RESUME_NO_RESTORE;
    return status;
}

rvl_status rvl_resume(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                      const rvl_resume_options *user_options)
{
    rvl_resume_options options;
    rvli_transition transition;
    rvl_status status =
        rvli_resume_begin(context, tags, tag_count, user_options, &options, &transition);
    if (status != RVL_OK)
        return status;
    status = resume_claimed(&transition, &options);
    if (status == RVL_OK)
        rvli_resume_commit(&transition);
    rvli_transition_end(&transition);
    return status;
}

rvl_status rvl_resume_prepare(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                              const rvl_resume_options *user_options,
                              rvl_transition **transition_out)
{
    rvl_resume_options told, options;
    rvli_transition *transition = NULL;
    rvli_parts parts = {0};
    rvl_status status = rvli_prepare_new(transition_out, &transition);
    if (status == RVL_OK)
        status = rvli_options_read(&told, sizeof told, user_options);
    if (status == RVL_OK)
        status = rvli_parts_read(&told, &parts);
    if (status == RVL_OK)
        status = rvli_resume_begin(context, tags, tag_count, &told, &options, transition);
    if (status != RVL_OK) {
        free(transition);
        return status;
    }
    transition->kind = RVL_EVENT_RESUME;
    transition->parts = parts;
    status = resume_claimed(transition, &options);
    return rvli_prepare_end(transition, status, transition_out);
}
