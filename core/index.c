/* SPDX-License-Identifier: MIT */
#include "core/index.h"

#include "base/error.h"
#include "base/memory.h"
#include "core/tables.h"

#define PENDING_KEPT 4096u

void rvli_index_init(rvli_index *index)
{
    *index = (rvli_index){0};
    rvli_addrmap_init(&index->ordered);
}

void rvli_index_destroy(rvli_index *index)
{
    rvli_intmap_destroy(&index->exact);
    rvli_addrmap_destroy(&index->ordered);
    rvli_memory_free(index->pending, index->pending_capacity * sizeof(rvli_allocation *));
}

static rvl_status grow_pending(rvli_index *index)
{
    uint32_t capacity = index->pending_capacity ? index->pending_capacity * 2 : 64;
    rvli_allocation **pending = NULL;
    if (capacity > index->pending_capacity)
        pending =
            rvli_memory_grow(index->pending, index->pending_capacity * sizeof(rvli_allocation *),
                             capacity * sizeof(rvli_allocation *));
    if (pending == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the table of allocations");
    index->pending = pending;
    index->pending_capacity = capacity;
    return RVL_OK;
}

rvl_status rvli_index_insert(rvli_index *index, rvli_allocation *allocation)
{
    rvl_status status = RVL_OK;
    if (index->pending_count == index->pending_capacity)
        status = grow_pending(index);
    if (status == RVL_OK)
        status = rvli_intmap_insert(&index->exact, allocation->addr, (uintptr_t)allocation);
    if (status != RVL_OK)
        return status;
    allocation->pending_slot = index->pending_count;
    index->pending[index->pending_count++] = allocation;
    return RVL_OK;
}

void rvli_index_remove(rvli_index *index, rvli_allocation *allocation)
{
    rvli_intmap_remove(&index->exact, allocation->addr, NULL);
    if (allocation->pending_slot == RVLI_INDEX_ORDERED) {
        rvli_addrmap_remove(&index->ordered, allocation->addr);
        return;
    }
    rvli_allocation *last = index->pending[--index->pending_count];
    index->pending[allocation->pending_slot] = last;
    last->pending_slot = allocation->pending_slot;
}

rvli_allocation *rvli_index_get(const rvli_index *index, uint64_t addr)
{
    uint64_t value = 0;
    rvli_intmap_get(&index->exact, addr, &value);
    return (rvli_allocation *)(uintptr_t)value;
}

/* Frees a long list, because it may stay short for a long time. */
static void forget_pending(rvli_index *index)
{
    if (index->pending_capacity <= PENDING_KEPT)
        return;
    rvli_memory_free(index->pending, index->pending_capacity * sizeof(rvli_allocation *));
    index->pending = NULL;
    index->pending_capacity = 0;
}

/* Moves pending allocations into the ordered map. */
static rvl_status order(rvli_index *index)
{
    while (index->pending_count > 0) {
        rvli_allocation *allocation = index->pending[index->pending_count - 1];
        rvl_status status = rvli_addrmap_insert(&index->ordered, allocation->addr, allocation);
        if (status != RVL_OK)
            return status;
        allocation->pending_slot = RVLI_INDEX_ORDERED;
        index->pending_count--;
    }
    forget_pending(index);
    return RVL_OK;
}

rvl_status rvli_index_containing(rvli_index *index, uint64_t addr, rvli_allocation **allocation_out)
{
    rvl_status status = order(index);
    if (status != RVL_OK)
        return status;
    rvli_allocation *allocation = rvli_addrmap_floor(&index->ordered, addr, NULL);
    if (allocation != NULL && addr - allocation->addr >= allocation->size)
        allocation = NULL;
    *allocation_out = allocation;
    return RVL_OK;
}

rvl_status rvli_index_next(rvli_index *index, uint64_t addr, rvli_allocation **allocation_out)
{
    rvl_status status = order(index);
    if (status == RVL_OK)
        *allocation_out = rvli_addrmap_ceil(&index->ordered, addr, NULL);
    return status;
}

rvli_allocation *rvli_index_any(const rvli_index *index)
{
    if (index->pending_count > 0)
        return index->pending[0];
    return rvli_addrmap_ceil(&index->ordered, 0, NULL);
}

size_t rvli_index_count(const rvli_index *index)
{
    return index->exact.count;
}
