/* SPDX-License-Identifier: MIT */
/*
 * A rehearsal: the context of a forecast.
 *
 * It is a separate context, on core/forecast/pricing_ops.h, with copies of the allocations that a
 * transition would move, of their blocks and backups, and of the kept blocks. A pause or resume of
 * everything in it runs the code of pause.c and resume.c, and its clock measures how long that
 * takes. It never affects the context that it was made from.
 */
#ifndef RVL_CORE_FORECAST_REHEARSAL_H
#define RVL_CORE_FORECAST_REHEARSAL_H

#include "core/transition/transition.h"

/*
 * Makes a context with copies of a transition's items, which are listed and not marked. With the
 * lock held. End it with rvli_rehearsal_end(). changed: treat the content of retained backups as
 * changed. Copies of items with an order are found by their addresses. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_rehearsal_begin(const rvli_transition *transition, bool changed,
                                rvl_context **rehearsal_out);

/* NULL is fine. */
void rvli_rehearsal_end(rvl_context *rehearsal);

#endif
