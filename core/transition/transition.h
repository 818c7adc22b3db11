/* SPDX-License-Identifier: MIT */
/*
 * What pause and resume have in common: the set of tags, the claim on them, the list of what moves.
 *
 * A transition claims its tags one by one in order of number, waiting for the one that has them, so
 * that overlapping sets cannot deadlock. It then marks the allocations that are to move, under the
 * lock, and works on them without it. Whatever ends the transition flips them under the lock again.
 */
#ifndef RVL_CORE_TRANSITION_TRANSITION_H
#define RVL_CORE_TRANSITION_TRANSITION_H

#include "core/moving.h"

/*
 * Claims the tags (count 0: all of the process) and waits for the one that moves them.
 * RVL_ERR_INVALID, RVL_ERR_HOST_OOM; RVL_ERR_BUSY if that one is prepared: it may take forever.
 */
rvl_status rvli_transition_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                 rvl_process process, rvli_transition *transition);

/*
 * Lists the tags' allocations for which the move is legal and, with `mark`, makes it. Others stay
 * as they are. With the lock held; without `mark` the list is good only while it is.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_transition_collect(rvli_transition *transition, rvli_move move, bool mark);

/*
 * Asks the context's guard and, if that lets it pass, tells the listener; and tells both how it
 * ended, if it was let pass. Without the lock, once what moves is marked and with its tags still
 * claimed (core/transition/guard.c).
 */
rvl_status rvli_transition_ask(rvli_transition *transition, rvl_event_kind kind);
void rvli_transition_tell(const rvli_transition *transition, bool done);

/*
 * The second half of a prepared one, by core/transition/pause.c and core/transition/resume.c: it is
 * done, and nothing of that can fail; or undone, and the answer is why some could not be and are
 * lost.
 */
void rvli_pause_commit(rvli_transition *transition);
rvl_status rvli_pause_abort(rvli_transition *transition);
void rvli_resume_commit(rvli_transition *transition);
rvl_status rvli_resume_abort(rvli_transition *transition);

/* Gives the claims back, wakes who waits, frees the lists. */
void rvli_transition_end(rvli_transition *transition);

/* RVL_ERR_BUSY if one of the caller's streams is being captured. */
rvl_status rvli_streams_check(rvl_context *context, void *const *streams, size_t stream_count);

/* Charges the time since start_ns to the devices that moved something. With the lock held. */
void rvli_transition_spend(rvli_transition *transition);

/*
 * Reads the options of a pause or resume, checks them, and claims the tags: what the call, its
 * prepare and its forecast begin with.
 */
rvl_status rvli_pause_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                            const rvl_pause_options *user_options, rvl_pause_options *options,
                            rvli_transition *transition);
rvl_status rvli_resume_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_resume_options *user_options, rvl_resume_options *options,
                             rvli_transition *transition);

#endif
