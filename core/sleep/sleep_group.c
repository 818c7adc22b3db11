/* SPDX-License-Identifier: MIT */
#include "core/sleep/sleep_group.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "core/listener.h"
#include "core/sleep/obstacles.h"

static _Atomic bool process_moves;  /* on real devices: a thread is putting the process to sleep or
                                       waking it */
static _Atomic bool process_sleeps; /* on real devices: no context may be opened there */

/* A forked child has neither its parent's contexts nor the thread that moved them. */
static void in_child(void)
{
    atomic_store(&process_moves, false);
    atomic_store(&process_sleeps, false);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* ---- The group ---- */

static rvl_status find_group(rvl_context *context, rvli_sleepers *all)
{
    if (rvli_in_callback())
        return rvli_error(RVL_ERR_STATE, "a callback may only read statistics");
    if (!all->real) {
        all->contexts[all->count++] = context;
        return RVL_OK;
    }
    all->count = rvli_listener_contexts(all->contexts, RVLI_SLEEPERS_MAX);
    if (all->count == 0)
        return rvli_error(RVL_ERR_INVALID, "this process has no context on a device: open one, or "
                                           "name a simulated one");
    if (all->count > RVLI_SLEEPERS_MAX)
        return rvli_error(RVL_ERR_NOT_SUPPORTED, "this process has more than 256 contexts open");
    return RVL_OK;
}

int rvli_sleepers_state(const rvli_sleepers *all)
{
    return atomic_load(&all->contexts[0]->sleep.state);
}

void rvli_sleepers_set_state(rvli_sleepers *all, rvli_sleep_state state)
{
    for (size_t i = 0; i < all->count; i++)
        atomic_store(&all->contexts[i]->sleep.state, (int)state);
    if (all->real)
        atomic_store(&process_sleeps, state != RVLI_AWAKE);
}

bool rvl_context_is_asleep(const rvl_context *context)
{
    if (context == NULL || !context->ops.simulated)
        return atomic_load(&process_sleeps);
    return atomic_load(&context->sleep.state) != RVLI_AWAKE;
}

rvl_status rvli_sleep_check_open(const rvli_backend_ops *ops)
{
    return ops->simulated || !atomic_load(&process_sleeps)
               ? RVL_OK
               : rvli_error(RVL_ERR_STATE, "the process is asleep: rvl_wake_up() first");
}

/* ---- Obstacles ---- */

/* With the lock held. */
static rvl_status check_tables(rvl_context *context)
{
    if (context->prepared > 0)
        return rvli_error(RVL_ERR_BUSY, "a transition is prepared: commit or abort it first");
    if (context->wakes > 0)
        return rvli_error(RVL_ERR_BUSY, "a resume was started: rvl_resume_finish() first");
    uint64_t from = 0;
    rvli_allocation *each = NULL;
    for (;;) {
        rvl_status status = rvli_index_next(&context->by_addr, from, &each);
        if (status != RVL_OK || each == NULL)
            return status;
        if (each->kind == RVLI_KIND_IMPORT && !each->freeing)
            break;
        from = each->addr + 1;
    }
    rvli_error(RVL_ERR_BUSY, "memory of another process is open here (an import), and no process "
                             "with another's memory open comes back: rvl_free() it first");
    rvli_error_bytes(context->devices[each->device].facts.ordinal, each->size, 0);
    return RVL_ERR_BUSY;
}

static rvl_status check_running(const rvli_sleepers *all)
{
    rvli_process_state state = RVLI_PROCESS_RUNNING;
    rvl_status status = RVLI_PROCESS(all, process_state, (RVLI_PROCESS_SELF(all), &state));
    if (status == RVL_OK && state != RVLI_PROCESS_RUNNING)
        status = rvli_error(RVL_ERR_BUSY, "somebody else has locked or checkpointed this process "
                                          "(cuda-checkpoint): have it restored and unlocked first");
    return status;
}

rvl_status rvli_sleepers_check(const rvli_sleepers *all, uint64_t flags)
{
    rvl_status status = all->real ? rvli_obstacles_check() : RVL_OK;
    if (status == RVL_OK)
        status = RVLI_PROCESS(all, process_check, (RVLI_PROCESS_SELF(all)));
    if (status == RVL_ERR_BUSY && (flags & RVL_SLEEP_SHARED_EVENTS))
        status = RVL_OK;
    if (status == RVL_OK)
        status = check_running(all);
    for (size_t i = 0; i < all->count && status == RVL_OK; i++) {
        rvli_lock(all->contexts[i]);
        status = check_tables(all->contexts[i]);
        rvli_unlock(all->contexts[i]);
    }
    return status;
}

/* ---- Tags and options ---- */

rvl_status rvli_sleepers_tags(rvl_context *context, rvl_tag **tags_out, size_t *count_out)
{
    uint32_t count = atomic_load(&context->tag_count);
    *count_out = count;
    *tags_out = malloc((count + 1) * sizeof **tags_out);
    for (uint32_t i = 0; *tags_out != NULL && i < count; i++)
        (*tags_out)[i] = i + 1;
    return *tags_out != NULL ? RVL_OK : rvli_error(RVL_ERR_HOST_OOM, "no host memory for a sleep");
}

rvl_status rvli_sleep_read_options(rvl_sleep_options *options, const rvl_sleep_options *user)
{
    rvl_status status = rvli_options_read(options, sizeof *options, user);
    if (status == RVL_OK)
        status = rvli_flags_check(options->flags, RVL_SLEEP_DISCARD | RVL_SLEEP_SHARED_EVENTS, 0);
    if (options->timeout_ns == 0)
        options->timeout_ns = RVLI_SLEEP_TIMEOUT_NS;
    return status;
}

rvl_status rvli_wake_read_options(rvl_wake_up_options *options, const rvl_wake_up_options *user)
{
    rvl_status status = rvli_options_read(options, sizeof *options, user);
    return status == RVL_OK ? rvli_flags_check(options->flags, RVL_WAKE_UP_PAUSED, 0) : status;
}

/* ---- One thread at a time ---- */

rvl_status rvli_sleepers_check_asleep(const rvli_sleepers *all)
{
    int state = rvli_sleepers_state(all);
    if (state == RVLI_SLEEP_LOST)
        return rvli_error(RVL_ERR_DEVICE_LOST, "the driver could not bring the process back to its "
                                               "devices: end it, and start it again");
    return state == RVLI_ASLEEP ? RVL_OK
                                : rvli_error(RVL_ERR_STATE, "the process is awake already");
}

static rvl_status take_turn(rvl_context *context, rvli_sleepers *all)
{
    all->real = context == NULL || !context->ops.simulated;
    all->moving = all->real ? &process_moves : &context->sleep.moving;
    return atomic_exchange(all->moving, true)
               ? rvli_error(RVL_ERR_BUSY, "another thread puts the process to sleep, or wakes it: "
                                          "wait for that")
               : RVL_OK;
}

rvl_status rvli_sleepers_begin(rvl_context *context, rvli_sleepers *all)
{
    rvli_sleeper_enter();
    rvl_status status = context != NULL ? rvli_context_check_change(context) : RVL_OK;
    if (status == RVL_OK)
        status = take_turn(context, all);
    if (status == RVL_OK) {
        status = find_group(context, all);
        if (status == RVL_OK)
            return RVL_OK;
        atomic_store(all->moving, false);
    }
    rvli_sleeper_leave();
    return status;
}

void rvli_sleepers_end(const rvli_sleepers *all)
{
    rvli_sleeper_leave();
    atomic_store(all->moving, false);
}
