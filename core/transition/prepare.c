/* SPDX-License-Identifier: MIT */
#include "core/transition/prepare.h"

#include <stdlib.h>

#include "base/error.h"
#include "core/backup/backup_disk.h"
#include "core/backup/shared_transfer.h"
#include "core/fail.h"
#include "core/transition/resume.h"

/* ---- Preparing ---- */

rvl_status rvli_prepare_new(rvl_transition *const *transition_out, rvli_transition **new_out)
{
    if (transition_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "transition_out is NULL");
    *new_out = calloc(1, sizeof **new_out);
    return *new_out != NULL
               ? RVL_OK
               : rvli_error(RVL_ERR_HOST_OOM, "no host memory for a prepared transition");
}

static void mark_prepared(rvli_transition *transition, bool prepared)
{
    for (size_t i = 0; i < transition->tag_count; i++)
        transition->tags[i]->prepared = prepared;
    rvli_resume_count_prepared(transition, prepared);
}

void rvli_prepare_hold(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    rvli_disk_end(transition); /* frees its buffers: the content is saved, or restored */
    rvli_shared_end(transition);
    transition->spent_ns = rvli_clock_now(&context->clock) - transition->start_ns;
    rvli_lock(context);
    mark_prepared(transition, true);
    context->prepared++;
    rvli_announce_moved(context);
    rvli_unlock(context);
}

static void drop(rvli_transition *transition)
{
    rvli_transition_end(transition);
    free(transition);
}

rvl_status rvli_prepare_end(rvli_transition *transition, rvl_status status,
                            rvl_transition **transition_out)
{
    if (status == RVL_OK) {
        rvli_prepare_hold(transition);
        *transition_out = transition;
        return RVL_OK;
    }
    drop(transition);
    return status;
}

/* ---- Ending ---- */

rvl_status rvli_prepared_check(const rvl_transition *transition)
{
    if (transition == NULL)
        return rvli_error(RVL_ERR_INVALID, "the transition is NULL");
    return rvli_context_check_change(transition->context);
}

/* Counts the time until it was prepared, but not the time in which it was held. */
void rvli_prepare_take_up(rvli_transition *transition)
{
    rvl_context *context = transition->context;
    transition->start_ns = rvli_clock_now(&context->clock) - transition->spent_ns;
    rvli_lock(context);
    mark_prepared(transition, false);
    context->prepared--;
    rvli_unlock(context);
}

rvl_status rvl_transition_commit(rvl_transition *transition)
{
    rvl_status status = rvli_prepared_check(transition);
    if (status == RVL_OK && transition->parts.open_count > 0)
        status = rvli_error(RVL_ERR_STATE, "pieces of the resume are open: rvl_transition_fill() "
                                           "restores them; or abort it");
    if (status != RVL_OK)
        return status;
    rvli_prepare_take_up(transition);
    if (transition->kind == RVL_EVENT_PAUSE)
        rvli_pause_commit(transition);
    else
        rvli_resume_commit(transition);
    drop(transition);
    return RVL_OK;
}

rvl_status rvl_transition_abort(rvl_transition *transition)
{
    rvl_status status = rvli_prepared_check(transition);
    if (status != RVL_OK)
        return status;
    rvli_prepare_take_up(transition);
    status = transition->kind == RVL_EVENT_PAUSE ? rvli_pause_abort(transition)
                                                 : rvli_resume_abort(transition);
    drop(transition);
    return status;
}

rvl_status rvli_abort(rvli_transition *transition, rvli_undo_fn undo_item, const char *what)
{
    rvl_error before = *rvli_error_get(), why;
    const rvli_allocation *failed = NULL;
    for (size_t i = 0; i < transition->item_count; i++) {
        rvli_move_item *item = &transition->items[i];
        if (undo_item(transition, item) || failed != NULL)
            continue;
        failed = item->allocation;
        why = *rvli_error_get();
    }
    rvli_error_set(failed != NULL ? &why : &before);
    if (failed != NULL)
        rvli_fail(transition->context, what, failed->tag, failed->device, failed->size);
    rvli_transition_tell(transition, false);
    return failed != NULL ? why.status : RVL_OK;
}
