/* SPDX-License-Identifier: MIT */
/* The checks at the start of every public call. And the log, which is a callback. */
#include "base/error.h"
#include "core/tables.h"

/* ---- Fork ---- */

/* Rises in every forked child, so that a context shows that it was inherited. */
static _Atomic uint64_t fork_generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

uint64_t rvli_fork_generation(void)
{
    pthread_once(&fork_once, watch_forks);
    return atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

/* ---- Callbacks ---- */

static _Thread_local int callback_depth __attribute__((tls_model("initial-exec")));

void rvli_callback_enter(void)
{
    callback_depth++;
}

void rvli_callback_leave(void)
{
    callback_depth--;
}

bool rvli_in_callback(void)
{
    return callback_depth > 0;
}

void rvli_log(const rvl_context *context, rvl_log_level level, const char *message)
{
    if (context->log == NULL)
        return;
    rvli_callback_enter();
    context->log(context->log_user, level, message);
    rvli_callback_leave();
}

/* ---- Sleeping processes ---- */

static _Thread_local int sleeper_depth __attribute__((tls_model("initial-exec")));

void rvli_sleeper_enter(void)
{
    sleeper_depth++;
}

void rvli_sleeper_leave(void)
{
    sleeper_depth--;
}

/* Without this refusal, a call would wait in the driver until the process is woken. */
static rvl_status refuse_asleep(int state)
{
    if (state == RVLI_SLEEP_LOST)
        return rvli_error(RVL_ERR_DEVICE_LOST, "the driver could not bring the process back to its "
                                               "devices: end it, and start it again");
    return rvli_error(RVL_ERR_STATE,
                      state == RVLI_ASLEEP
                          ? "the process is asleep: rvl_wake_up() first"
                          : "the process is going to sleep, or waking: wait for that");
}

/* ---- Checks ---- */

rvl_status rvli_context_check(const rvl_context *context)
{
    if (context == NULL)
        return rvli_error(RVL_ERR_INVALID, "the context is NULL");
    if (context->fork_generation != atomic_load_explicit(&fork_generation, memory_order_relaxed))
        return rvli_error(RVL_ERR_FORKED, "the context was opened before fork: open one here");
    int state = atomic_load_explicit(&context->sleep.state, memory_order_relaxed);
    return state == RVLI_AWAKE || sleeper_depth > 0 ? RVL_OK : refuse_asleep(state);
}

rvl_status rvli_context_check_change(const rvl_context *context)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && callback_depth > 0)
        return rvli_error(RVL_ERR_STATE, "a callback may only read statistics");
    return status;
}

rvl_status rvli_device_check(const rvl_context *context, int device)
{
    if (device >= 0 && device < context->device_count)
        return RVL_OK;
    rvli_error(RVL_ERR_NO_DEVICE, "no device of this number in the context");
    rvli_error_bytes(device, 0, 0);
    return RVL_ERR_NO_DEVICE;
}
