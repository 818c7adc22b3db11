/* SPDX-License-Identifier: MIT */
#include "core/copies.h"

#include "base/error.h"

static rvl_status device_copies_wait(rvl_context *context, int device)
{
    uint64_t event = 0;
    rvl_status status = context->ops.record_event(context->self, device, &event);
    if (status != RVL_OK) {
        rvli_error_op("record_event");
        return status;
    }
    status = context->ops.wait_event(context->self, device, event);
    if (status != RVL_OK)
        rvli_error_op("wait_event");
    return status;
}

rvl_status rvli_copies_wait(rvl_context *context, uint64_t device_mask)
{
    rvl_status first = RVL_OK;
    rvl_error cause = *rvli_error_get();
    for (int device = 0; device < context->device_count; device++) {
        if (!(device_mask >> device & 1))
            continue;
        rvl_status status = device_copies_wait(context, device);
        if (status != RVL_OK && first == RVL_OK) {
            first = status;
            cause = *rvli_error_get();
        }
    }
    if (first != RVL_OK)
        rvli_error_set(&cause);
    return first;
}

void rvli_copies_quiesce(rvl_context *context, uint64_t device_mask)
{
    rvl_error cause = *rvli_error_get();
    for (int device = 0; device < context->device_count; device++)
        if (device_mask >> device & 1 && context->ops.synchronize(context->self, device) != RVL_OK)
            context->ops.synchronize(context->self, device);
    rvli_error_set(&cause);
}
