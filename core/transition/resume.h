/* SPDX-License-Identifier: MIT */
/*
 * The steps of a resume. core/transition/resume.c runs them all at once, core/transition/wake.c
 * piece by piece.
 */
#ifndef RVL_CORE_TRANSITION_RESUME_H
#define RVL_CORE_TRANSITION_RESUME_H

#include "core/transition/transition.h"

/* Lists and marks the items, orders them, and calls the guard. On failure nothing is marked. */
rvl_status rvli_resume_mark(rvli_transition *transition, const rvl_resume_options *options);

/*
 * Counts the memory of a prepared resume while it waits for commit or abort. A pause has none. With
 * the lock held.
 */
void rvli_resume_count_prepared(const rvli_transition *transition, bool waits);

/*
 * With a timeout, creates all memory before anything else, and waits for it. Otherwise does
 * nothing.
 */
rvl_status rvli_resume_create(rvli_transition *transition, uint64_t timeout_ns, size_t *failed_out);

/* Maps memory at the addresses of an item. Creates it if that has not been done. */
rvl_status rvli_resume_map_item(rvli_transition *transition, rvli_move_item *item);
/* Queues restoring its content, if it has a backup and is to be restored. */
rvl_status rvli_resume_load_item(rvli_transition *transition, const rvli_move_item *item);

/*
 * Changes the states of the items from `begin` to `end` of the order. Their content is restored.
 * Cannot fail. From then on other threads may free those allocations.
 */
void rvli_resume_hand_over(rvli_transition *transition, size_t begin, size_t end);
/* After everything is handed over: drops backups, calls the guard and the callbacks. */
void rvli_resume_end(rvli_transition *transition);

/*
 * After a failure, with nothing in flight: undoes the items that were not handed over, tells the
 * guard, and completes the error record. failed: the number of the item that failed.
 */
void rvli_resume_fail(rvli_transition *transition, size_t failed);

#endif
