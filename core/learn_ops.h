/* SPDX-License-Identifier: MIT */
/*
 * The learning decorator: an ops table around that of a real device, which notes how long calls and
 * copies take, so that forecasts have the costs of this card and not of the one that a profile was
 * measured on.
 *
 * A call is timed by itself: the first ones, then one of every few. Copies run beside the caller:
 * they are timed from the first that is queued to the wait behind the last, if all went in one
 * direction. Copies into host memory that had to be made say how fast it is made, since that is the
 * slower of the two.
 *
 * What came long ago fades. A cost that nothing was learned of stays as the backend says it.
 */
#ifndef RVL_CORE_LEARN_OPS_H
#define RVL_CORE_LEARN_OPS_H

#include "core/backend.h"

typedef struct rvli_learner rvli_learner;

/*
 * *ops_out and the learner stand wherever ops and self stood; closing it closes the inner one.
 * RVL_ERR_HOST_OOM; the inner instance is then as it was.
 */
rvl_status rvli_learn_wrap(const rvli_backend_ops *ops, void *self, int device_count,
                           rvli_backend_ops *ops_out, rvli_learner **learner_out);

/* The inner instance, for tests of a backend. */
void *rvli_learner_inner(const rvli_learner *learner);

/* Replaces the costs of a device that were learned. NULL: nothing was. */
void rvli_learned_costs(rvli_learner *learner, int device, rvl_cost_model *cost);

#endif
