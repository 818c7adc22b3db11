/* SPDX-License-Identifier: MIT */
/*
 * Transitions in two phases. Prepared, all that can fail is done and nothing is flipped; then it is
 * committed, which cannot fail, or aborted. So several processes move together or not at all.
 *
 * A prepared transition keeps its tags claimed. Who else wants to move them is refused and does not
 * wait, since nobody knows for how long; so is who wants to free what moves, or close the context.
 */
#ifndef RVL_CORE_TRANSITION_PREPARE_H
#define RVL_CORE_TRANSITION_PREPARE_H

#include "core/transition/transition.h"

/* The record of a transition that is to be prepared. RVL_ERR_INVALID, RVL_ERR_HOST_OOM. */
rvl_status rvli_prepare_new(rvl_transition *const *transition_out, rvli_transition **new_out);

/*
 * All that can fail is done. From here on others are refused, since nobody knows how long it will
 * be held. Taking it up begins the second phase: others wait for its end again.
 */
void rvli_prepare_hold(rvli_transition *transition);
void rvli_prepare_take_up(rvli_transition *transition);

/* Ends a prepare: after a success the record keeps the claims, else both are gone. */
rvl_status rvli_prepare_end(rvli_transition *transition, rvl_status status,
                            rvl_transition **transition_out);

/* Whether a call with a prepared transition may go on. RVL_ERR_INVALID, _STATE, _FORKED. */
rvl_status rvli_prepared_check(const rvl_transition *transition);

/* How an item is brought back to what it was: false, and the error record says why it is lost. */
typedef bool (*rvli_undo_fn)(rvli_transition *transition, rvli_move_item *item);

/* Undoes all items and tells of it. The answer is the first failure; what it was of is named. */
rvl_status rvli_abort(rvli_transition *transition, rvli_undo_fn undo_item, const char *what);

#endif
