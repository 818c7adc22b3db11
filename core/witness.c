/* SPDX-License-Identifier: MIT */
#include "core/witness.h"

#include "base/error.h"
#include "core/state.h"

static _Atomic(const rvli_witness *) witness;

void rvli_witness_set(const rvli_witness *new)
{
    atomic_store(&witness, new);
}

const rvli_witness *rvli_witness_of(const rvl_context *context)
{
    return !context->ops.simulated && context->guard == NULL ? atomic_load(&witness) : NULL;
}

void rvli_witness_tell_alloc(const rvl_context *context, const rvli_allocation *allocation,
                             rvl_addr addr)
{
    const rvli_witness *hears = rvli_witness_of(context);
    if (hears == NULL)
        return;
    const rvli_witnessed what = {
        .addr = addr,
        .size_bytes = allocation->size,
        .tag = allocation->tag->key->name,
        .ordinal = context->devices[allocation->device].facts.ordinal,
        .backup = (rvl_backup)allocation->policy,
        .paused = allocation->state != RVL_STATE_ACTIVE,
    };
    hears->allocated(&what);
}

void rvli_witness_tell_free(const rvl_context *context, rvl_addr addr)
{
    const rvli_witness *hears = rvli_witness_of(context);
    if (hears != NULL)
        hears->freeing(addr);
}

/* ---- Opening and closing ---- */

void rvli_witness_tell_opening(const rvli_backend_ops *ops, uint64_t *before_bytes)
{
    const rvli_witness *hears = ops->simulated ? NULL : atomic_load(&witness);
    for (int device = 0; device < RVL_MAX_DEVICES; device++)
        before_bytes[device] = RVLI_USE_UNKNOWN;
    if (hears != NULL)
        hears->opening(before_bytes);
}

uint64_t rvli_witness_ordinals(const rvl_context *context)
{
    uint64_t mask = 0;
    for (int device = 0; device < context->device_count; device++)
        mask |= UINT64_C(1) << context->devices[device].facts.ordinal;
    return mask;
}

void rvli_witness_tell_opened(const rvl_context *context, const uint64_t *before_bytes)
{
    const rvli_witness *hears = context->ops.simulated ? NULL : atomic_load(&witness);
    if (hears != NULL)
        hears->opened(rvli_witness_ordinals(context), before_bytes);
}

void rvli_witness_tell_closed(const rvli_backend_ops *ops, uint64_t ordinals)
{
    const rvli_witness *hears = ops->simulated ? NULL : atomic_load(&witness);
    if (hears != NULL)
        hears->closed(ordinals);
}

/* ---- All contexts on real devices ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* before that of a context */
static rvl_context *contexts;

static void lock_contexts(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_contexts(void)
{
    pthread_mutex_unlock(&lock);
}

/* As early as can be: those whose lock comes first lock after those that were registered later. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_contexts, unlock_contexts, unlock_contexts);
}

void rvli_witness_enter(rvl_context *context)
{
    if (context->ops.simulated)
        return;
    lock_contexts();
    context->next_real = contexts;
    contexts = context;
    unlock_contexts();
}

void rvli_witness_leave(rvl_context *context)
{
    lock_contexts();
    for (rvl_context **link = &contexts; *link != NULL; link = &(*link)->next_real)
        if (*link == context) {
            *link = context->next_real;
            break;
        }
    unlock_contexts();
}

/* With the lock of all contexts held. Those of the parent process answer nothing. */
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

bool rvli_is_paused_anywhere(rvl_addr addr)
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
