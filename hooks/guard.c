/* SPDX-License-Identifier: MIT */
#include "hooks/guard.h"

#include "base/error.h"
#include "base/text.h"
#include "hooks/captures.h"
#include "hooks/ipc_export.h"
#include "hooks/recorder.h"
#include "core/witness.h"

/* A tag moves in several contexts: that is one move to the recording, and to importers. */
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

rvl_status rvli_guard_refuse_capture(rvl_event_kind kind)
{
    if (!rvli_capture_running())
        return RVL_OK;
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "a stream is being captured: end the capture before ");
    rvli_text_add(&text, kind == RVL_EVENT_PAUSE ? "pausing" : "resuming");
    return rvli_error(RVL_ERR_BUSY, message);
}

/* A trace knows a tag of a process alone, whichever contexts its memory lies in. */
void rvli_guard_record_begin(const rvli_transition *transition)
{
    for (size_t i = 0; i < transition->touched_count && !recorded_by_caller; i++)
        rvli_recorder_pause(transition->touched[i]->key->name);
}

void rvli_guard_record_end(const rvli_transition *transition)
{
    for (size_t i = 0; i < transition->touched_count && !recorded_by_caller; i++)
        rvli_recorder_settle(transition->touched[i]->key->name, rvli_is_paused_anywhere);
}

static rvl_status before(const rvli_transition *transition, rvl_event_kind kind)
{
    rvl_status status = rvli_guard_refuse_capture(kind);
    if (status != RVL_OK || kind != RVL_EVENT_PAUSE)
        return status;
    rvli_guard_record_begin(transition); /* before anybody else can have the memory */
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

static void after(const rvli_transition *transition, rvl_event_kind kind, bool done)
{
    if (kind == RVL_EVENT_PAUSE)
        rvli_ipc_settle(transition, done);
    rvli_guard_record_end(transition);
}

const rvli_guard rvli_hooks_guard = {before, after};
