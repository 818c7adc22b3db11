/* SPDX-License-Identifier: MIT */
/* Why the thread's last call failed: this library's reason, or the planner's. */
#include <stdio.h>

#include "simcuda/dnn/dnn.h"

static __thread const char *own;

cudnnStatus_t rvli_dnn_fail(cudnnStatus_t status, const char *why)
{
    own = why;
    return status;
}

cudnnStatus_t rvli_dnn_planned(cudnnStatus_t status)
{
    if (status != CUDNN_STATUS_SUCCESS)
        own = NULL;
    return status;
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    const rvli_planner *planner = rvli_dnn_planner();
    if (message == NULL || max_size == 0)
        return;
    if (own == NULL && planner != NULL)
        planner->last_error(message, max_size);
    else
        snprintf(message, max_size, "%s", own != NULL ? own : "");
    own = NULL;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    const rvli_planner *planner = rvli_dnn_planner();
    return planner != NULL                  ? planner->status_text(status)
           : status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS"
                                            : "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED";
}
