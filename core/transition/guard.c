/* SPDX-License-Identifier: MIT */
/*
 * Calls before and after a transition: the context's guard, which may refuse it, and the process's
 * listener, such as the recording, which is told of transitions that the guard allowed.
 */
#include "reveille/guard.h"

#include "base/error.h"
#include "base/options.h"
#include "core/listener.h"
#include "core/transition/transition.h"

/* ---- Queries for a guard ---- */

rvl_transition_kind rvl_transition_get_kind(const rvl_transition *transition)
{
    return transition == NULL || transition->kind == RVL_EVENT_PAUSE ? RVL_TRANSITION_PAUSE
                                                                     : RVL_TRANSITION_RESUME;
}

rvl_context *rvl_transition_get_context(const rvl_transition *transition)
{
    return transition != NULL ? transition->context : NULL;
}

rvl_tag rvl_transition_get_tag(const rvl_transition *transition, size_t index)
{
    return transition != NULL && index < transition->touched_count
               ? transition->touched[index]->number
               : 0;
}

uint32_t rvl_transition_find(const rvl_transition *transition, uint64_t allocation_id)
{
    const rvli_move_item *item =
        transition != NULL ? rvli_transition_item(transition, allocation_id) : NULL;
    if (item == NULL)
        return 0;
    return RVL_TRANSITION_MOVES | (item->renewed ? RVL_TRANSITION_RENEWED : 0);
}

/* ---- The guard ---- */

rvl_status rvl_context_set_guard(rvl_context *context, const rvl_guard *user_guard)
{
    rvl_guard guard;
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_options_read(&guard, sizeof guard, user_guard);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    context->guard = guard;
    rvli_unlock(context);
    return RVL_OK;
}

/* A refusal fills the error record even if the guard leaves it empty. */
static rvl_status ask(const rvli_transition *transition)
{
    const rvl_error none = {.struct_size = sizeof none, .device = RVL_NO_DEVICE};
    rvl_error before = *rvli_error_get();
    rvli_error_set(&none);
    rvli_callback_enter();
    rvl_status status = transition->guard.before(transition->guard.user, transition);
    rvli_callback_leave();
    if (status == RVL_OK)
        rvli_error_set(&before);
    else if (rvli_error_get()->status != status)
        rvli_error(status, "the context's guard refused");
    return status;
}

rvl_status rvli_transition_ask(rvli_transition *transition, rvl_event_kind kind)
{
    rvl_context *context = transition->context;
    rvl_status status = RVL_OK;
    rvli_lock(context);
    transition->guard = context->guard;
    rvli_unlock(context);
    transition->kind = kind;
    if (transition->guard.before != NULL)
        status = ask(transition);
    if (status != RVL_OK)
        return status;
    transition->let_pass = true;
    transition->listener = rvli_listener_of(context);
    if (transition->listener != NULL)
        transition->listener->before(transition);
    return RVL_OK;
}

void rvli_transition_tell(const rvli_transition *transition, bool done)
{
    if (!transition->let_pass)
        return;
    rvl_error before = *rvli_error_get();
    if (transition->listener != NULL)
        transition->listener->after(transition);
    rvli_callback_enter();
    if (transition->guard.after != NULL)
        transition->guard.after(transition->guard.user, transition, done);
    rvli_callback_leave();
    rvli_error_set(&before);
}
