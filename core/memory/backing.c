/* SPDX-License-Identifier: MIT */
#include "core/memory/backing.h"

#include "base/error.h"
#include "core/copies.h"
#include "core/memory/blocks.h"

rvl_status rvli_reserve(rvl_context *context, rvli_allocation *draft)
{
    rvl_status status =
        context->ops.reserve(context->self, draft->device, draft->size, &draft->addr);
    if (status != RVL_OK)
        rvli_error_op("reserve");
    return status;
}

void rvli_range_release(rvl_context *context, const rvli_allocation *allocation)
{
    const rvli_backend_ops *ops = &context->ops;
    rvli_error_before before;
    rvli_error_keep(&before);
    if (ops->release_range(context->self, allocation->device, allocation->addr, allocation->size) ==
        RVL_OK)
        return;
    if (ops->release_range(context->self, allocation->device, allocation->addr, allocation->size) !=
        RVL_OK)
        rvli_log(context, RVL_LOG_WARN, "an address range could not be given back");
    rvli_error_put_back(&before);
}

void rvli_undo_reserve(rvl_context *context, const rvli_allocation *allocation)
{
    rvl_error cause = *rvli_error_get();
    rvli_range_release(context, allocation);
    rvli_error_set(&cause);
}

rvl_status rvli_back(rvl_context *context, rvli_allocation *allocation)
{
    rvl_status status = rvli_blocks_create(context, allocation->blocks);
    if (status != RVL_OK)
        return status;
    bool filled = rvli_blocks_handed_over(allocation->blocks);
    status = rvli_blocks_map(context, allocation->blocks, allocation->access_mask,
                             RVLI_FILL_HANDED_OVER);
    if (status == RVL_OK && filled) {
        status = rvli_copies_wait(context, UINT64_C(1) << allocation->device);
        if (status != RVL_OK)
            rvli_copies_quiesce(context, UINT64_C(1) << allocation->device);
    }
    return status;
}

void rvli_undo_back(rvl_context *context, rvli_allocation *allocation)
{
    if (allocation->blocks == NULL)
        return;
    rvl_error cause = *rvli_error_get();
    if (rvli_blocks_any_mapped(allocation->blocks))
        rvli_blocks_unmap(context, allocation->blocks);
    rvli_blocks_undo_create(context, allocation->blocks);
    allocation->blocks = NULL;
    rvli_error_set(&cause);
}

rvl_status rvli_unback(rvl_context *context, rvli_allocation *allocation)
{
    if (rvli_blocks_any_mapped(allocation->blocks)) {
        rvl_status status = rvli_blocks_unmap(context, allocation->blocks);
        if (status != RVL_OK)
            return status;
    }
    return rvli_blocks_release(context, allocation);
}
