/* SPDX-License-Identifier: MIT */
#include "core/context/allocate.h"

#include "base/error.h"
#include "base/options.h"
#include "core/backup/backup.h"
#include "core/backup/host_buffer.h"
#include "core/fail.h"
#include "core/listener.h"
#include "core/memory/backing.h"
#include "core/memory/blocks.h"
#include "core/memory/coalesce.h"
#include "core/memory/enter.h"

#define KNOWN_FLAGS (RVL_ALLOC_EXPORTABLE | RVL_ALLOC_RDMA | RVL_ALLOC_PAUSED)
#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX)

/* ---- Arguments ---- */

static rvl_status round_size(const rvli_device *device, uint64_t size, uint64_t *rounded_out)
{
    uint64_t granularity = device->facts.granularity_bytes;
    if (size == 0)
        return rvli_error(RVL_ERR_INVALID, "an allocation of 0 bytes");
    if (size > SIZE_MAX_BYTES - (granularity - 1))
        return rvli_error(RVL_ERR_INVALID, "an allocation of 2^63 bytes or more");
    *rounded_out = (size + granularity - 1) & ~(granularity - 1);
    return RVL_OK;
}

static rvl_status access_mask_of(const rvl_context *context, const rvl_alloc_options *options,
                                 uint64_t *mask_out)
{
    uint64_t mask = UINT64_C(1) << options->device;
    if (options->access == NULL && options->access_count > 0)
        return rvli_error(RVL_ERR_INVALID, "access_count without an access list");
    for (size_t i = 0; i < options->access_count; i++) {
        rvl_status status = rvli_device_check(context, options->access[i]);
        if (status != RVL_OK)
            return status;
        mask |= UINT64_C(1) << options->access[i];
    }
    *mask_out = mask;
    return RVL_OK;
}

static rvl_status tag_of(rvl_context *context, const rvl_alloc_options *options, rvli_tag **tag_out)
{
    if (options->tag_id == 0)
        return rvli_tag_add(context, options->process, options->tag ? options->tag : "", tag_out);
    rvli_tag *tag = rvli_tag_get(context, options->tag_id);
    if (tag == NULL)
        return rvli_error(RVL_ERR_INVALID, "no tag of this number: rvl_tag_define() first");
    *tag_out = tag;
    return RVL_OK;
}

/*
 * Checked here as well: otherwise a born-paused allocation would only be refused at its first
 * resume, when the program already uses its address.
 */
static rvl_status check_rdma(const rvli_device *device, uint64_t flags)
{
    if ((flags & RVL_ALLOC_RDMA) == 0 || device->facts.rdma)
        return RVL_OK;
    return rvli_error(RVL_ERR_NOT_SUPPORTED, "the device has no memory that GPUDirect RDMA "
                                             "reaches: allocate without RVL_ALLOC_RDMA");
}

rvl_status rvli_allocation_describe(rvl_context *context, uint64_t size,
                                    const rvl_alloc_options *options, rvli_allocation *allocation)
{
    rvl_status status = rvli_device_check(context, options->device);
    if (status == RVL_OK)
        status = round_size(&context->devices[options->device], size, &allocation->size);
    if (status == RVL_OK)
        status = access_mask_of(context, options, &allocation->access_mask);
    if (status != RVL_OK)
        return status;
    status = rvli_flags_check(options->flags, KNOWN_FLAGS, 0);
    if (status != RVL_OK)
        return status;
    status = rvli_backup_check(context, options->device, options->backup);
    if (status == RVL_OK)
        status = check_rdma(&context->devices[options->device], options->flags);
    if (status != RVL_OK)
        return status;
    allocation->device = (uint8_t)options->device;
    allocation->policy = (uint8_t)options->backup;
    allocation->flags = (uint8_t)options->flags;
    return tag_of(context, options, &allocation->tag);
}

/* ---- Adding to the tables ---- */

/* Adds a finished allocation to tables, ledger and recording. With the lock held. */
static rvl_status enter(rvl_context *context, rvli_allocation *allocation)
{
    rvl_status status = rvli_enter_address(context, allocation);
    if (status != RVL_OK)
        return status;
    rvli_enter_memory(context, allocation);
    if (rvli_recording(&context->recorder))
        rvli_record_alloc(context, allocation);
    return RVL_OK;
}

/* ---- Allocating ---- */

/* Makes a record of the allocation, and of its blocks if it is to have memory. Begins a change. */
static rvl_status prepare(rvl_context *context, const rvli_allocation *draft,
                          rvli_allocation **allocation_out)
{
    rvli_lock(context);
    rvl_status status = rvli_tag_reach(draft->tag, draft->device);
    rvli_allocation *allocation =
        status == RVL_OK ? rvli_pool_get(&context->allocation_pool) : NULL;
    if (status == RVL_OK && allocation == NULL) {
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for an allocation");
    } else if (status == RVL_OK) {
        *allocation = *draft;
        if (allocation->state == RVL_STATE_ACTIVE)
            status = rvli_blocks_prepare(context, allocation, &allocation->blocks);
        if (status != RVL_OK)
            rvli_pool_put(&context->allocation_pool, allocation);
        else
            rvli_change_begin(context);
    }
    rvli_unlock(context);
    *allocation_out = allocation;
    return status;
}

static rvl_status build(rvl_context *context, const rvli_allocation *draft, rvl_addr *addr_out)
{
    rvli_allocation *allocation;
    rvl_status status = prepare(context, draft, &allocation);
    if (status != RVL_OK)
        return status;
    if (allocation->blocks != NULL)
        status = rvli_back(context, allocation);
    rvli_lock(context);
    if (status == RVL_OK)
        status = enter(context, allocation);
    if (status == RVL_OK) {
        *addr_out = allocation->addr;
        rvli_change_end(context);
    }
    rvli_unlock(context);
    if (status != RVL_OK) {
        rvli_undo_back(context, allocation);
        rvli_lock(context);
        rvli_change_end(context);
        rvli_pool_put(&context->allocation_pool, allocation);
        rvli_unlock(context);
    }
    return status;
}

/* Allocates separate memory, or none if the allocation is born paused. */
static rvl_status alloc_alone(rvl_context *context, rvli_allocation *draft, rvl_addr *addr_out)
{
    rvl_status status = rvli_reserve(context, draft);
    if (status != RVL_OK)
        return status;
    status = build(context, draft, addr_out);
    if (status != RVL_OK)
        rvli_undo_reserve(context, draft);
    return status;
}

/* Allocates in a carrier, or separate memory if there is no room for a whole carrier. */
static rvl_status alloc_among_others(rvl_context *context, rvli_allocation *draft,
                                     uint64_t carrier_bytes, rvl_addr *addr_out)
{
    rvli_error_before before;
    rvli_error_keep(&before);
    rvl_status status = rvli_coalesce_alloc(context, draft, carrier_bytes, addr_out);
    if (status != RVL_ERR_DEVICE_OOM)
        return status;
    status = alloc_alone(context, draft, addr_out);
    if (status == RVL_OK)
        rvli_error_put_back(&before);
    return status;
}

rvl_status rvl_alloc(rvl_context *context, uint64_t size_bytes,
                     const rvl_alloc_options *user_options, rvl_addr *addr_out)
{
    rvl_alloc_options options;
    rvli_allocation draft = {0};
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK && addr_out == NULL)
        status = rvli_error(RVL_ERR_INVALID, "addr_out is NULL");
    if (status == RVL_OK)
        status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = rvli_allocation_describe(context, size_bytes, &options, &draft);
    if (status != RVL_OK)
        return status;

    draft.state = options.flags & RVL_ALLOC_PAUSED ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE;
    uint64_t carrier_bytes = rvli_coalesce_bytes(&draft);
    status = carrier_bytes > 0 ? alloc_among_others(context, &draft, carrier_bytes, addr_out)
                               : alloc_alone(context, &draft, addr_out);
    if (status == RVL_OK) {
        rvli_host_buffer_ahead(context, draft.device);
        rvli_listener_tell_alloc(context, &draft, *addr_out);
    } else {
        rvli_fail(context, "allocation", draft.tag, draft.device, draft.size);
    }
    return status;
}
