/* SPDX-License-Identifier: MIT */
/*
 * Transitions in two phases. The prepare does everything that can fail, and changes no state. Then
 * the transition is committed, which cannot fail, or aborted. So several processes move together or
 * not at all.
 *
 * A prepared transition keeps its tags claimed. Other calls that move them, free their allocations
 * or close the context are refused instead of waiting, because nobody knows how long it takes.
 */
#ifndef RVL_CORE_TRANSITION_PREPARE_H
#define RVL_CORE_TRANSITION_PREPARE_H

#include "core/transition/transition.h"

/* Makes the record of a transition that will be prepared. RVL_ERR_INVALID, RVL_ERR_HOST_OOM. */
rvl_status rvli_prepare_new(rvl_transition *const *transition_out, rvli_transition **new_out);

/*
 * rvli_prepare_hold(): everything that can fail is done. Other calls are now refused, because
 * nobody knows how long the transition will be held. rvli_prepare_take_up() begins the second
 * phase: other calls wait for its end again.
 */
void rvli_prepare_hold(rvli_transition *transition);
void rvli_prepare_take_up(rvli_transition *transition);

/* Ends a prepare. After a success the record keeps the claims. Otherwise both are freed. */
rvl_status rvli_prepare_end(rvli_transition *transition, rvl_status status,
                            rvl_transition **transition_out);

/*
 * Checks whether a call with a prepared transition may proceed. RVL_ERR_INVALID, _STATE, _FORKED.
 */
rvl_status rvli_prepared_check(const rvl_transition *transition);

/* Restores an item to its state before. Returns false if it is lost, and fills the error record. */
typedef bool (*rvli_undo_fn)(rvli_transition *transition, rvli_move_item *item);

/*
 * Undoes all items, and tells guard and listener. Returns the first failure, with its item in the
 * error record.
 */
rvl_status rvli_abort(rvli_transition *transition, rvli_undo_fn undo_item, const char *what);

#endif
