/* SPDX-License-Identifier: MIT */
/*
 * The steps of a resume, for those who put them together: core/transition/resume.c all at once,
 * core/transition/wake.c piece by piece.
 */
#ifndef RVL_CORE_TRANSITION_RESUME_H
#define RVL_CORE_TRANSITION_RESUME_H

#include "core/transition/transition.h"

/*
 * Lists and marks what moves, gives it its order, and asks the guard. On failure nothing is marked.
 */
rvl_status rvli_resume_mark(rvli_transition *transition, const rvl_resume_options *options);

/*
 * Counts what a prepared transition has made, while it waits for commit or abort. A pause has made
 * nothing. With the lock held.
 */
void rvli_resume_count_prepared(const rvli_transition *transition, bool waits);

/* With a timeout, creates all memory before anything else, waiting for it. Else does nothing. */
rvl_status rvli_resume_create(rvli_transition *transition, uint64_t timeout_ns, size_t *failed_out);

/* Puts memory behind the addresses of an item: creates it if that has not been done. */
rvl_status rvli_resume_map_item(rvli_transition *transition, rvli_move_item *item);
/* Queues bringing its content back, if it has any and is to have it. */
rvl_status rvli_resume_load_item(rvli_transition *transition, const rvli_move_item *item);

/*
 * Flips the states of what stands from `begin` to `end` of the order. Its content is there. Cannot
 * fail. Those allocations may be freed by others from then on.
 */
void rvli_resume_hand_over(rvli_transition *transition, size_t begin, size_t end);
/* After all has been handed over: drops backups, tells the guard and the callbacks. */
void rvli_resume_end(rvli_transition *transition);

/*
 * After a failure, with nothing under way: takes back what was not handed over, tells the guard,
 * and completes the error record. failed: the number of the item that it failed at.
 */
void rvli_resume_fail(rvli_transition *transition, size_t failed);

#endif
