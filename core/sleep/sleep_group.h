/* SPDX-License-Identifier: MIT */
/*
 * Who sleeps together, and what core/sleep/sleep.c and core/sleep/sleep_forecast.c both ask of
 * them.
 *
 * A simulated context sleeps by itself. On real devices the driver moves the whole process, so that
 * all its contexts sleep.
 */
#ifndef RVL_CORE_SLEEP_SLEEP_GROUP_H
#define RVL_CORE_SLEEP_SLEEP_GROUP_H

#include "base/error.h"
#include "core/tables.h"
#include "core/transition/transition.h"
#include "reveille/sleep.h"

#define RVLI_SLEEPERS_MAX 256

typedef struct rvli_sleepers {
    rvl_context *contexts[RVLI_SLEEPERS_MAX];
    rvl_transition *pauses[RVLI_SLEEPERS_MAX]; /* prepared */
    size_t count;
    _Atomic bool *moving; /* while it is set, no other thread may do the same */
    bool real;
} rvli_sleepers;

/*
 * Finds them, and lets the calling thread's calls pass until the end; one thread at a time.
 * RVL_ERR_BUSY: another one is at it; RVL_ERR_INVALID, RVL_ERR_STATE, RVL_ERR_NOT_SUPPORTED.
 */
rvl_status rvli_sleepers_begin(rvl_context *context, rvli_sleepers *all);
void rvli_sleepers_end(const rvli_sleepers *all);

int rvli_sleepers_state(const rvli_sleepers *all);
void rvli_sleepers_set_state(rvli_sleepers *all, rvli_sleep_state state);

/* What forbids a sleep, found without trying. flags: RVL_SLEEP_* */
rvl_status rvli_sleepers_check(const rvli_sleepers *all, uint64_t flags);

/* RVL_ERR_STATE: they are awake; RVL_ERR_DEVICE_LOST. */
rvl_status rvli_sleepers_check_asleep(const rvli_sleepers *all);

/* All tags of a context, of all its processes: the caller frees them. RVL_ERR_HOST_OOM. */
rvl_status rvli_sleepers_tags(rvl_context *context, rvl_tag **tags_out, size_t *count_out);

/* The options, checked; those of a sleep with the usual timeout filled in. */
rvl_status rvli_sleep_read_options(rvl_sleep_options *options, const rvl_sleep_options *user);
rvl_status rvli_wake_read_options(rvl_wake_up_options *options, const rvl_wake_up_options *user);

#define RVLI_SLEEP_TIMEOUT_NS UINT64_C(10000000000) /* where options say none */

/* An op of the process is that of any of its contexts. Adds its name to the record. */
static inline rvl_status rvli_process_named(rvl_status status, const char *op)
{
    if (status != RVL_OK)
        rvli_error_op(op);
    return status;
}
#define RVLI_PROCESS_SELF(all) ((all)->contexts[0]->self)
#define RVLI_PROCESS(all, op, arguments)                                                           \
    rvli_process_named((all)->contexts[0]->ops.op arguments, #op)

#endif
