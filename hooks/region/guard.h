/* SPDX-License-Identifier: MIT */
/*
 * What a pause or resume of a region's memory has to do with others: streams that are captured,
 * processes that have imported the memory, and the recording. As the guard of the contexts in which
 * regions allocate it is asked, by any thread that begins the transition, also by rvl_pause() and
 * rvl_resume().
 */
#ifndef RVL_HOOKS_REGION_GUARD_H
#define RVL_HOOKS_REGION_GUARD_H

#include "reveille/guard.h"

extern const rvl_guard rvli_hooks_guard;

/* RVL_ERR_BUSY, with the reason, while a stream is captured. */
rvl_status rvli_guard_refuse_capture(rvl_transition_kind kind);

/* A pause of a transition's tags is about to be made; a transition has ended, as it may be. */
void rvli_guard_record_begin(const rvl_transition *transition);
void rvli_guard_record_end(const rvl_transition *transition);

/* From begin to end this thread moves a tag in several contexts, and records it as one by itself.
 */
void rvli_guard_begin_move(void);
void rvli_guard_end_move(void);

#endif
