/* SPDX-License-Identifier: MIT */
/* Processes that sleep (asleep.c). */
#ifndef RVL_PREDICT_REPLAY_ASLEEP_H
#define RVL_PREDICT_REPLAY_ASLEEP_H

#include "predict/replay/replay_internal.h"

/* Apply the verbs of a trace. A process that already sleeps, or is awake, is unchanged. */
rvl_status rvli_replay_sleep(rvl_replay *replay, const rvl_trace_event *event,
                             rvli_replay_process *process);
rvl_status rvli_replay_wake(rvl_replay *replay, const rvl_trace_event *event,
                            rvli_replay_process *process);

bool rvli_replay_sleeps(const rvli_replay_process *process);

/* Notes what a process holds for a cause, so that its sleep can release it. */
rvl_status rvli_replay_sleeper_holds(rvl_replay *replay, const rvl_trace_event *event,
                                     rvli_replay_process *process, int device, const char *cause,
                                     uint64_t bytes);

void rvli_replay_sleeper_destroy(rvli_replay_process *process);

/* ---- Of apply.c ---- */

rvl_status rvli_replay_resume(rvl_replay *replay, const rvl_trace_event *event, const rvl_tag *tags,
                              size_t count, bool no_restore);
rvl_status rvli_replay_set_external(rvl_replay *replay, const rvl_trace_event *event, int device,
                                    const char *cause, uint64_t bytes);

#endif
