/* SPDX-License-Identifier: MIT */
/*
 * The order in which a resume restores: first what the caller lists, then the rest in the order in
 * which it was allocated.
 */
#ifndef RVL_CORE_TRANSITION_ORDER_H
#define RVL_CORE_TRANSITION_ORDER_H

#include "core/transition/transition.h"

/*
 * Orders the items of a transition. addrs: an address within each allocation; those of allocations
 * that do not move are ignored. With the lock held. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_order_make(rvli_transition *transition, const rvl_addr *addrs, size_t count);

/* Returns the item at a place in the order. */
static inline rvli_move_item *rvli_order_item(const rvli_transition *transition, size_t place)
{
    return transition->order != NULL ? transition->order[place] : &transition->items[place];
}

#endif
