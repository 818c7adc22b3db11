/* SPDX-License-Identifier: MIT */
/*
 * Connects pauses and resumes of regions' memory with stream captures, processes that have imported
 * the memory, and the recording. It is the guard of the contexts of regions, so it runs on any
 * thread that begins a transition, also by rvl_pause() and rvl_resume().
 */
#ifndef RVL_HOOKS_REGION_GUARD_H
#define RVL_HOOKS_REGION_GUARD_H

#include "reveille/guard.h"

extern const rvl_guard rvli_hooks_guard;

/* RVL_ERR_BUSY, with a message, while a stream is captured. */
rvl_status rvli_guard_refuse_capture(rvl_transition_kind kind);

/*
 * Records that a pause of the transition's tags begins; records the actual states after a
 * transition.
 */
void rvli_guard_record_begin(const rvl_transition *transition);
void rvli_guard_record_end(const rvl_transition *transition);

/*
 * From begin to end, this thread moves a tag in several contexts, and records that itself as one
 * move.
 */
void rvli_guard_begin_move(void);
void rvli_guard_end_move(void);

#endif
