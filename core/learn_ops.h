/* SPDX-License-Identifier: MIT */
/*
 * The learning decorator: an ops table around that of a real device. It measures how long calls and
 * copies take, so that forecasts use the costs of this card instead of those of the card that the
 * profile was measured on.
 *
 * A call is timed by itself: the first ones, then one of every few. Copies run in parallel with the
 * caller. They are timed from the first queued copy to the wait after the last, if all went in one
 * direction. Copies into new host memory show how fast that memory is made, because making it is
 * slower than copying.
 *
 * Old measurements fade. A cost without measurements stays as the backend reports it.
 */
#ifndef RVL_CORE_LEARN_OPS_H
#define RVL_CORE_LEARN_OPS_H

#include "core/backend.h"

typedef struct rvli_learner rvli_learner;

/*
 * Use *ops_out and the learner in place of ops and self. Closing the learner closes the inner
 * instance. RVL_ERR_HOST_OOM leaves the inner instance unchanged.
 */
rvl_status rvli_learn_wrap(const rvli_backend_ops *ops, void *self, int device_count,
                           rvli_backend_ops *ops_out, rvli_learner **learner_out);

/* Returns the inner instance, for tests of a backend. */
void *rvli_learner_inner(const rvli_learner *learner);

/* Replaces the costs of a device that were learned. learner NULL: replaces none. */
void rvli_learned_costs(rvli_learner *learner, int device, rvl_cost_model *cost);

#endif
