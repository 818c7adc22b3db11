/* SPDX-License-Identifier: MIT */
#include "core/memory/coalesce.h"

#include "base/error.h"
#include "core/memory/backing.h"
#include "core/memory/blocks.h"
#include "core/memory/enter.h"

#define GRANULES_MAX 64u /* the bits of rvli_carrier.taken */

/* How many carriers to try: some are paused or too full, and the search must stay cheap. */
#define TRIES_MAX 32

/* ---- Which allocations ride ---- */

rvl_status rvli_coalesce_check(const rvl_context *context, uint64_t coalesce_bytes)
{
    for (int device = 0; device < context->device_count; device++) {
        uint64_t granularity = context->devices[device].facts.granularity_bytes;
        if (coalesce_bytes % granularity != 0 || coalesce_bytes / granularity > GRANULES_MAX)
            return rvli_error(RVL_ERR_INVALID, "coalesce_bytes is not a multiple of the device's "
                                               "granularity, or more than 64 of it");
    }
    return RVL_OK;
}

uint64_t rvli_coalesce_bytes(const rvli_allocation *draft)
{
    uint64_t bytes = atomic_load_explicit(&draft->tag->coalesce_bytes, memory_order_relaxed);
    bool rides = draft->size <= bytes / 2 && draft->state == RVL_STATE_ACTIVE &&
                 !(draft->flags & RVL_ALLOC_EXPORTABLE);
    return rides ? bytes : 0;
}

bool rvli_rides_with_others(const rvli_allocation *allocation)
{
    return allocation->kind == RVLI_KIND_RIDER && allocation->carrier->riders > 1;
}

/* ---- Room ---- */

static uint64_t granularity_of(const rvl_context *context, const rvli_allocation *allocation)
{
    return context->devices[allocation->device].facts.granularity_bytes;
}

static uint64_t bits(uint64_t count)
{
    return count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
}

/* Returns the granules of a rider, as bits of its carrier. */
static uint64_t granules_of(const rvl_context *context, const rvli_allocation *rider)
{
    uint64_t granularity = granularity_of(context, rider);
    uint64_t first = (rider->addr - rider->carrier->as.addr) / granularity;
    return bits(rider->size / granularity) << first;
}

/* Finds the lowest run of free granules that is long enough. */
static bool find_run(const rvl_context *context, const rvli_carrier *carrier, uint64_t size,
                     uint64_t *offset_out)
{
    uint64_t granularity = granularity_of(context, &carrier->as);
    uint64_t count = size / granularity;
    uint64_t end = carrier->as.size / granularity;
    for (uint64_t first = 0; first + count <= end; first++) {
        if (carrier->taken >> first & bits(count))
            continue;
        *offset_out = first * granularity;
        return true;
    }
    return false;
}

static bool fits(const rvli_carrier *carrier, const rvli_allocation *draft)
{
    const rvli_allocation *as = &carrier->as;
    return as->state == RVL_STATE_ACTIVE && as->device == draft->device &&
           as->policy == draft->policy && as->flags == draft->flags &&
           as->access_mask == draft->access_mask;
}

static rvli_carrier *find_carrier(const rvl_context *context, const rvli_allocation *draft,
                                  uint64_t *offset_out)
{
    int tries = TRIES_MAX;
    for (rvli_carrier *carrier = draft->tag->carriers; carrier != NULL && tries-- > 0;
         carrier = carrier->next)
        if (fits(carrier, draft) && find_run(context, carrier, draft->size, offset_out))
            return carrier;
    return NULL;
}

static bool is_full(const rvl_context *context, const rvli_carrier *carrier)
{
    return carrier->taken == bits(carrier->as.size / granularity_of(context, &carrier->as));
}

/* ---- The list of carriers with room ---- */

void rvli_carrier_open(rvli_carrier *carrier)
{
    rvli_tag *tag = carrier->as.tag;
    if (carrier->open)
        return;
    carrier->open = true;
    carrier->previous = NULL;
    carrier->next = tag->carriers;
    if (tag->carriers != NULL)
        tag->carriers->previous = carrier;
    tag->carriers = carrier;
}

void rvli_carrier_close(rvli_carrier *carrier)
{
    if (!carrier->open)
        return;
    carrier->open = false;
    if (carrier->previous != NULL)
        carrier->previous->next = carrier->next;
    else
        carrier->as.tag->carriers = carrier->next;
    if (carrier->next != NULL)
        carrier->next->previous = carrier->previous;
}

/* ---- Adding and removing riders ---- */

/* Adds a rider at an offset of a carrier. With the lock held. RVL_ERR_HOST_OOM. */
static rvl_status board(rvl_context *context, rvli_allocation *rider, rvli_carrier *carrier,
                        uint64_t offset, rvl_addr *addr_out)
{
    rider->kind = RVLI_KIND_RIDER;
    rider->carrier = carrier;
    rider->addr = carrier->as.addr + offset;
    rvl_status status = rvli_enter_address(context, rider);
    if (status != RVL_OK)
        return status;
    carrier->riders++;
    carrier->taken |= granules_of(context, rider);
    if (is_full(context, carrier))
        rvli_carrier_close(carrier);
    if (rvli_recording(&context->recorder))
        rvli_record_alloc(context, rider);
    *addr_out = rider->addr;
    return RVL_OK;
}

void rvli_rider_leave(rvl_context *context, rvli_allocation *rider)
{
    rvli_carrier *carrier = rider->carrier;
    rvli_forget_address(context, rider);
    carrier->riders--;
    carrier->taken &= ~granules_of(context, rider);
    rvli_carrier_open(carrier);
    rvli_pool_put(&context->allocation_pool, rider);
    rvli_announce_moved(context);
}

/* ---- Carriers ---- */

static rvl_status new_carrier(rvl_context *context, const rvli_allocation *draft, uint64_t size,
                              rvli_carrier **carrier_out)
{
    rvli_lock(context);
    rvl_status status = rvli_tag_reach(draft->tag, draft->device);
    rvli_carrier *carrier = status == RVL_OK ? rvli_pool_get(&context->carrier_pool) : NULL;
    if (carrier != NULL) {
        *carrier = (rvli_carrier){.as = *draft};
        carrier->as.kind = RVLI_KIND_CARRIER;
        carrier->as.size = size;
        carrier->as.id = ++context->last_id; /* its position in the order of transitions */
        rvli_change_begin(context);
    }
    rvli_unlock(context);
    if (status == RVL_OK && carrier == NULL)
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for a shared block");
    if (status != RVL_OK)
        return status;
    *carrier_out = carrier;
    return RVL_OK;
}

static void put_carrier(rvl_context *context, rvli_carrier *carrier)
{
    rvli_lock(context);
    rvli_change_end(context);
    rvli_pool_put(&context->carrier_pool, carrier);
    rvli_unlock(context);
}

/* Makes the address range and memory of a carrier. On failure undoes both. */
static rvl_status build_carrier(rvl_context *context, rvli_carrier *carrier)
{
    rvl_status status = rvli_reserve(context, &carrier->as);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = rvli_blocks_prepare(context, &carrier->as, &carrier->as.blocks);
    rvli_unlock(context);
    if (status == RVL_OK)
        status = rvli_back(context, &carrier->as);
    if (status == RVL_OK)
        return RVL_OK;
    rvli_undo_back(context, &carrier->as);
    rvli_undo_reserve(context, &carrier->as);
    return status;
}

/* Adds a rider to a new carrier, which no other thread can see until then. */
static rvl_status board_new(rvl_context *context, rvli_allocation *rider,
                            const rvli_allocation *draft, uint64_t carrier_bytes,
                            rvl_addr *addr_out)
{
    rvli_carrier *carrier = NULL;
    rvl_status status = new_carrier(context, draft, carrier_bytes, &carrier);
    if (status != RVL_OK)
        return status;
    status = build_carrier(context, carrier);
    if (status == RVL_OK) {
        rvli_lock(context);
        status = board(context, rider, carrier, 0, addr_out);
        if (status == RVL_OK) {
            rvli_enter_memory(context, &carrier->as);
            rvli_carrier_open(carrier);
            rvli_change_end(context);
        }
        rvli_unlock(context);
        if (status == RVL_OK)
            return RVL_OK;
        rvli_undo_back(context, &carrier->as);
        rvli_undo_reserve(context, &carrier->as);
    }
    put_carrier(context, carrier);
    return status;
}

rvl_status rvli_coalesce_alloc(rvl_context *context, const rvli_allocation *draft,
                               uint64_t carrier_bytes, rvl_addr *addr_out)
{
    uint64_t offset = 0;
    rvl_status status = RVL_OK;
    rvli_lock(context);
    rvli_allocation *rider = rvli_pool_get(&context->allocation_pool);
    rvli_carrier *carrier = rider != NULL ? find_carrier(context, draft, &offset) : NULL;
    if (rider == NULL)
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for an allocation");
    else
        *rider = *draft;
    if (carrier != NULL)
        status = board(context, rider, carrier, offset, addr_out);
    rvli_unlock(context);
    if (rider != NULL && carrier == NULL)
        status = board_new(context, rider, draft, carrier_bytes, addr_out);
    if (status != RVL_OK && rider != NULL) {
        rvli_lock(context);
        rvli_pool_put(&context->allocation_pool, rider);
        rvli_unlock(context);
    }
    return status;
}
