/* SPDX-License-Identifier: MIT */
/*
 * What pause and resume have in common: the set of tags, the claim on them, the list of items.
 *
 * A transition claims its tags one by one in order of their numbers, and waits for a transition
 * that has claimed one. So overlapping sets cannot deadlock. It then marks the allocations to move,
 * with the lock held, and works on them without it. The end of the transition sets their final
 * states with the lock held again.
 */
#ifndef RVL_CORE_TRANSITION_TRANSITION_H
#define RVL_CORE_TRANSITION_TRANSITION_H

#include "core/moving.h"

/*
 * Claims the tags (count 0: all tags of the process) and waits for transitions that have claimed
 * them. RVL_ERR_INVALID, RVL_ERR_HOST_OOM; RVL_ERR_BUSY if such a transition is prepared, because
 * that wait might never end.
 */
rvl_status rvli_transition_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                 rvl_process process, rvli_transition *transition);

/*
 * Lists the tags' allocations for which the move is legal and, with `mark`, makes the move. Others
 * are unchanged. With the lock held; without `mark` the list is only valid while the lock is held.
 * RVL_ERR_HOST_OOM.
 */
rvl_status rvli_transition_collect(rvli_transition *transition, rvli_move move, bool mark);

/*
 * rvli_transition_ask() calls the context's guard and, if that allows the transition, the listener.
 * rvli_transition_tell() tells both how it ended, if it was allowed. Without the lock, once the
 * items are marked, and with the tags still claimed (core/transition/guard.c).
 */
rvl_status rvli_transition_ask(rvli_transition *transition, rvl_event_kind kind);
void rvli_transition_tell(const rvli_transition *transition, bool done);

/*
 * The second phase of a prepared transition, in core/transition/pause.c and
 * core/transition/resume.c. A commit cannot fail. An abort returns the error of items that could
 * not be undone and are lost.
 */
void rvli_pause_commit(rvli_transition *transition);
rvl_status rvli_pause_abort(rvli_transition *transition);
void rvli_resume_commit(rvli_transition *transition);
rvl_status rvli_resume_abort(rvli_transition *transition);

/* Releases the claims, wakes waiting threads, frees the lists. */
void rvli_transition_end(rvli_transition *transition);

/* Returns RVL_ERR_BUSY if one of the caller's streams is being captured. */
rvl_status rvli_streams_check(rvl_context *context, void *const *streams, size_t stream_count);

/* Charges the time since start_ns to the devices that moved something. With the lock held. */
void rvli_transition_spend(rvli_transition *transition);

/*
 * Reads and checks the options of a pause or resume, and claims the tags: the common start of the
 * call, its prepare and its forecast.
 */
rvl_status rvli_pause_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                            const rvl_pause_options *user_options, rvl_pause_options *options,
                            rvli_transition *transition);
rvl_status rvli_resume_begin(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_resume_options *user_options, rvl_resume_options *options,
                             rvli_transition *transition);

#endif
