/* SPDX-License-Identifier: MIT */
/*
 * The contexts that sleep together, and what core/sleep/sleep.c and core/sleep/sleep_forecast.c
 * both need of them.
 *
 * A simulated context sleeps by itself. On real devices the driver moves the whole process, so all
 * its contexts sleep.
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
    _Atomic bool *moving; /* while it is set, no other thread may begin */
    bool real;
} rvli_sleepers;

/*
 * Finds the contexts, and lets calls of this thread pass until rvli_sleepers_end(). One thread at a
 * time. RVL_ERR_BUSY: another thread has begun; RVL_ERR_INVALID, RVL_ERR_STATE,
 * RVL_ERR_NOT_SUPPORTED.
 */
rvl_status rvli_sleepers_begin(rvl_context *context, rvli_sleepers *all);
void rvli_sleepers_end(const rvli_sleepers *all);

int rvli_sleepers_state(const rvli_sleepers *all);
void rvli_sleepers_set_state(rvli_sleepers *all, rvli_sleep_state state);

/* Finds obstacles to a sleep without trying. flags: RVL_SLEEP_* */
rvl_status rvli_sleepers_check(const rvli_sleepers *all, uint64_t flags);

/* RVL_ERR_STATE: they are awake; RVL_ERR_DEVICE_LOST. */
rvl_status rvli_sleepers_check_asleep(const rvli_sleepers *all);

/*
 * Lists all tags of a context, of all its processes. The caller frees the list. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_sleepers_tags(rvl_context *context, rvl_tag **tags_out, size_t *count_out);

/* Reads and checks the options. For a sleep, fills in the default timeout. */
rvl_status rvli_sleep_read_options(rvl_sleep_options *options, const rvl_sleep_options *user);
rvl_status rvli_wake_read_options(rvl_wake_up_options *options, const rvl_wake_up_options *user);

#define RVLI_SLEEP_TIMEOUT_NS UINT64_C(10000000000) /* the default timeout */

/* Process ops may be called on any of the contexts. Adds the op's name to the error record. */
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
