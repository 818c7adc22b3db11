/* SPDX-License-Identifier: MIT */
#include "hooks/region/guard.h"

#include "base/error.h"
#include "base/text.h"
#include "hooks/export/export.h"
#include "hooks/process/captures.h"
#include "hooks/record/recorder.h"
#include "reveille/listen.h"

/* A move of a tag in several contexts is one move for the recording and for importers. */
static _Thread_local bool recorded_by_caller __attribute__((tls_model("initial-exec")));

void rvli_guard_begin_move(void)
{
    recorded_by_caller = true;
    rvli_ipc_begin_waiting();
}

void rvli_guard_end_move(void)
{
    recorded_by_caller = false;
}

rvl_status rvli_guard_refuse_capture(rvl_transition_kind kind)
{
    if (!rvli_capture_running())
        return RVL_OK;
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "a stream is being captured: end the capture before ");
    rvli_text_add(&text, kind == RVL_TRANSITION_PAUSE ? "pausing" : "resuming");
    return rvli_error(RVL_ERR_BUSY, message);
}

/* ---- The recording ---- */

static const char *tag_name(const rvl_transition *transition, size_t index)
{
    rvl_tag tag = rvl_transition_get_tag(transition, index);
    return tag != 0 ? rvl_tag_name(rvl_transition_get_context(transition), tag) : NULL;
}

/* A trace has one tag for each process and name, regardless of contexts. */
void rvli_guard_record_begin(const rvl_transition *transition)
{
    const char *tag;
    for (size_t i = 0; !recorded_by_caller && (tag = tag_name(transition, i)) != NULL; i++)
        rvli_recorder_pause(tag);
}

void rvli_guard_record_end(const rvl_transition *transition)
{
    const char *tag;
    for (size_t i = 0; !recorded_by_caller && (tag = tag_name(transition, i)) != NULL; i++)
        rvli_recorder_settle(tag, rvl_address_is_paused);
}

/* ---- The guard ---- */

static rvl_status before(void *unused, const rvl_transition *transition)
{
    (void)unused;
    rvl_transition_kind kind = rvl_transition_get_kind(transition);
    rvl_status status = rvli_guard_refuse_capture(kind);
    if (status != RVL_OK || kind != RVL_TRANSITION_PAUSE)
        return status;
    rvli_guard_record_begin(transition); /* before another process can get the memory */
    if (!recorded_by_caller)
        rvli_ipc_begin_waiting();
    status = rvli_ipc_suspend(transition);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvli_guard_record_end(transition);
        rvli_error_set(&cause);
    }
    return status;
}

static void after(void *unused, const rvl_transition *transition, bool done)
{
    (void)unused;
    if (rvl_transition_get_kind(transition) == RVL_TRANSITION_PAUSE)
        rvli_ipc_settle(transition, done);
    rvli_guard_record_end(transition);
}

const rvl_guard rvli_hooks_guard = {
    .struct_size = sizeof rvli_hooks_guard, .before = before, .after = after};
