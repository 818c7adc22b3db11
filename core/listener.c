/* SPDX-License-Identifier: MIT */
#include "core/listener.h"

#include "base/error.h"
#include "base/options.h"
#include "core/state.h"

static _Atomic(const rvl_listener *) listener;

static bool is_whole(const rvl_listener *new)
{
    return new->opening != NULL &&new->opened != NULL &&new->closed != NULL &&new->allocated !=
           NULL &&new->freeing != NULL &&new->before != NULL &&new->after != NULL &&new->stage !=
           NULL &&new->step != NULL;
}

rvl_status rvl_listener_set(const rvl_listener *new)
{
    const rvl_listener *before = NULL;
    if (new == NULL) {
        atomic_store(&listener, NULL);
        return RVL_OK;
    }
    rvl_listener known; /* only used to check the fields; the struct itself is not copied */
    rvl_status status = rvli_options_read(&known, sizeof known, new);
    if (status != RVL_OK)
        return status;
    if (!is_whole(&known))
        return rvli_error(RVL_ERR_INVALID, "the listener lacks a function: give all of them");
    if (!atomic_compare_exchange_strong(&listener, &before, new) && before != new)
        return rvli_error(RVL_ERR_STATE, "this process has another listener: take it away first");
    return RVL_OK;
}

const rvl_listener *rvli_listener_of(const rvl_context *context)
{
    return context->ops.simulated ? NULL : atomic_load(&listener);
}

void rvli_listener_tell_alloc(const rvl_context *context, const rvli_allocation *allocation,
                              rvl_addr addr)
{
    const rvl_listener *hears = rvli_listener_of(context);
    if (hears == NULL)
        return;
    const rvl_listened what = {
        .struct_size = sizeof what,
        .context = context,
        .addr = addr,
        .size_bytes = allocation->size,
        .tag = allocation->tag->key->name,
        .ordinal = context->devices[allocation->device].facts.ordinal,
        .backup = (rvl_backup)allocation->policy,
        .state = (rvl_state)allocation->state,
    };
    hears->allocated(&what);
}

void rvli_listener_tell_free(const rvl_context *context, rvl_addr addr)
{
    const rvl_listener *hears = rvli_listener_of(context);
    if (hears != NULL)
        hears->freeing(context, addr);
}

/* Returns all functions of a listener. Functions missing from its version are NULL. */
static rvl_listener functions_of(const rvl_listener *hears)
{
    rvl_listener known = {0};
    if (hears != NULL && rvli_options_read(&known, sizeof known, hears) != RVL_OK)
        known = (rvl_listener){0};
    return known;
}

void rvli_listener_tell_refusal(const rvl_context *context, const rvli_tag *tag, int device,
                                uint64_t requested_bytes, uint64_t free_bytes)
{
    rvl_listener known = functions_of(rvli_listener_of(context));
    if (known.refused == NULL)
        return;
    const rvl_listened what = {
        .struct_size = sizeof what,
        .context = context,
        .size_bytes = requested_bytes,
        .tag = tag->key->name,
        .ordinal = context->devices[device].facts.ordinal,
        .state = RVL_STATE_PAUSED,
    };
    known.refused(&what, free_bytes);
}

void rvli_listener_tell_sleep(rvl_event_kind kind, bool skips)
{
    rvl_listener known = functions_of(atomic_load(&listener));
    if (kind == RVL_EVENT_SLEEP && known.sleeping != NULL)
        known.sleeping(skips);
    if (kind == RVL_EVENT_WAKE && known.awake != NULL)
        known.awake(skips);
}

/* ---- Opening and closing ---- */

void rvli_listener_tell_opening(const rvli_backend_ops *ops, uint64_t *before_bytes)
{
    const rvl_listener *hears = ops->simulated ? NULL : atomic_load(&listener);
    for (int device = 0; device < RVL_MAX_DEVICES; device++)
        before_bytes[device] = RVL_LISTENED_UNKNOWN;
    if (hears != NULL)
        hears->opening(before_bytes);
}

uint64_t rvli_listener_ordinals(const rvl_context *context)
{
    uint64_t mask = 0;
    for (int device = 0; device < context->device_count; device++)
        mask |= UINT64_C(1) << context->devices[device].facts.ordinal;
    return mask;
}

void rvli_listener_tell_opened(const rvl_context *context, const uint64_t *before_bytes)
{
    const rvl_listener *hears = context->ops.simulated ? NULL : atomic_load(&listener);
    if (hears != NULL)
        hears->opened(rvli_listener_ordinals(context), before_bytes);
}

void rvli_listener_tell_closed(const rvli_backend_ops *ops, uint64_t ordinals)
{
    const rvl_listener *hears = ops->simulated ? NULL : atomic_load(&listener);
    if (hears != NULL)
        hears->closed(ordinals);
}

/* ---- All contexts on real devices ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken before a context's lock */
static rvl_context *contexts;

static void lock_contexts(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_contexts(void)
{
    pthread_mutex_unlock(&lock);
}

/*
 * Registered as early as possible: prepare handlers run in reverse order, so this one takes its
 * lock last.
 */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_contexts, unlock_contexts, unlock_contexts);
}

void rvli_listener_enter(rvl_context *context)
{
    if (context->ops.simulated)
        return;
    lock_contexts();
    context->next_real = contexts;
    contexts = context;
    unlock_contexts();
}

void rvli_listener_leave(rvl_context *context)
{
    lock_contexts();
    for (rvl_context **link = &contexts; *link != NULL; link = &(*link)->next_real)
        if (*link == context) {
            *link = context->next_real;
            break;
        }
    unlock_contexts();
}

size_t rvli_listener_contexts(rvl_context **contexts_out, size_t capacity)
{
    size_t count = 0;
    lock_contexts();
    for (rvl_context *each = contexts; each != NULL; each = each->next_real) {
        if (each->fork_generation != rvli_fork_generation())
            continue;
        if (count < capacity)
            contexts_out[count] = each;
        count++;
    }
    unlock_contexts();
    return count;
}

/* With the lock of all contexts held. False for contexts of the parent process. */
static bool is_paused_in(rvl_context *context, rvl_addr addr)
{
    if (rvli_context_check(context) != RVL_OK)
        return false;
    rvli_lock(context);
    const rvli_allocation *allocation = rvli_index_get(&context->by_addr, addr);
    bool paused = allocation != NULL && rvli_mover(allocation)->state == RVL_STATE_PAUSED;
    rvli_unlock(context);
    return paused;
}

bool rvl_address_is_paused(rvl_addr addr)
{
    rvl_error before = *rvli_error_get();
    bool paused = false;
    lock_contexts();
    for (rvl_context *each = contexts; each != NULL && !paused; each = each->next_real)
        paused = is_paused_in(each, addr);
    unlock_contexts();
    rvli_error_set(&before);
    return paused;
}
