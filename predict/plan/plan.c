/* SPDX-License-Identifier: MIT */
/* The object that is planned: traces that were read once, or a model. */
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "predict/plan/plan_internal.h"

static rvl_status keep(rvl_plan plan, rvl_plan **plan_out)
{
    rvl_plan *kept = malloc(sizeof *kept);
    if (kept == NULL) {
        rvli_subject_close(&plan.traces);
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a plan");
    }
    *kept = plan;
    *plan_out = kept;
    return RVL_OK;
}

rvl_status rvl_plan_open(const char *const *paths, size_t path_count,
                         const rvl_replay_options *reading, rvl_plan **plan_out)
{
    rvl_replay_options known;
    rvl_plan plan = {.model = NULL};
    if (paths == NULL || path_count == 0 || plan_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "no trace to plan from, or the output is NULL");
    rvl_status status = rvli_options_read(&known, sizeof known, reading);
    if (status == RVL_OK)
        status = rvli_subject_open(paths, path_count, &known, &plan.traces);
    return status == RVL_OK ? keep(plan, plan_out) : status;
}

rvl_status rvl_plan_open_model(const rvl_model *model, rvl_plan **plan_out)
{
    if (model == NULL || plan_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the model or the output is NULL");
    return keep((rvl_plan){.model = model}, plan_out);
}

void rvl_plan_close(rvl_plan *plan)
{
    if (plan == NULL)
        return;
    rvli_subject_close(&plan->traces);
    free(plan);
}
