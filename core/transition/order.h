/* SPDX-License-Identifier: MIT */
/*
 * The order in which a resume restores: what the caller names first, then the rest in the order in
 * which it was allocated.
 */
#ifndef RVL_CORE_TRANSITION_ORDER_H
#define RVL_CORE_TRANSITION_ORDER_H

#include "core/transition/transition.h"

/*
 * Gives the listed items of a transition their order. addrs: one within each allocation; what does
 * not move is passed over. With the lock held. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_order_make(rvli_transition *transition, const rvl_addr *addrs, size_t count);

/* The item at a place of the order. */
static inline rvli_move_item *rvli_order_item(const rvli_transition *transition, size_t place)
{
    return transition->order != NULL ? transition->order[place] : &transition->items[place];
}

#endif
