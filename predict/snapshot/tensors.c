/* SPDX-License-Identifier: MIT */
/* Finds tensors and segments from the entries of a trace (predict/snapshot/tensors.h). */
#include "predict/snapshot/tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/addrmap.h"
#include "base/grow.h"
#include "base/intmap.h"

typedef struct finder {
    rvli_tensors *found;
    rvli_intmap live;     /* address to tensor */
    rvli_intmap pending;  /* freed, but another stream may still use it */
    rvli_addrmap present; /* first address of a segment to mapped + 1 */
    uint32_t now;         /* the instant after the current entry */
} finder;

/* ---- Lists ---- */

static rvl_status add_tensor(rvli_tensors *found, rvli_snapshot_tensor tensor)
{
    if (!RVLI_ROOM(found->list, found->count, found->capacity, 256))
        return RVL_ERR_HOST_OOM;
    found->list[found->count++] = tensor;
    return RVL_OK;
}

static rvl_status add_mapped(rvli_tensors *found, rvli_mapped mapped)
{
    if (!RVLI_ROOM(found->mapped, found->mapped_count, found->mapped_capacity, 256))
        return RVL_ERR_HOST_OOM;
    found->mapped[found->mapped_count++] = mapped;
    return RVL_OK;
}

/* ---- Tensors ---- */

/* Sets the tensor at an address, replacing one that is still in the map. */
static rvl_status put(rvli_intmap *map, uint64_t addr, uint32_t index)
{
    (void)rvli_intmap_remove(map, addr, NULL);
    return rvli_intmap_insert(map, addr, index);
}

static void complete(finder *from, uint64_t addr)
{
    uint64_t index;
    if (rvli_intmap_remove(&from->pending, addr, &index))
        from->found->list[index].done = from->now;
}

/* If an address is given out twice, the first tensor is gone, although the trace lacks its free. */
static rvl_status allocate(finder *from, const rvli_event_row *event)
{
    rvli_snapshot_tensor *list = from->found->list;
    uint64_t index;
    if (rvli_intmap_remove(&from->live, event->addr, &index))
        list[index].end = list[index].done = from->now;
    complete(from, event->addr);
    rvl_status status = put(&from->live, event->addr, from->found->count);
    return status != RVL_OK
               ? status
               : add_tensor(from->found, (rvli_snapshot_tensor){.addr = event->addr,
                                                                .size = event->size,
                                                                .begin = from->now,
                                                                .end = RVLI_NEVER,
                                                                .done = RVLI_NEVER,
                                                                .stack = event->stack,
                                                                .label = event->label});
}

/*
 * The stack of a free is that of the code that freed the tensor, not of the code that allocated it.
 */
static rvl_status free_requested(finder *from, const rvli_event_row *event)
{
    uint64_t index = from->found->count;
    rvl_status status = RVL_OK;
    if (!rvli_intmap_remove(&from->live, event->addr, &index))
        status = add_tensor(
            from->found,
            (rvli_snapshot_tensor){.addr = event->addr, .size = event->size, .done = RVLI_NEVER});
    if (status != RVL_OK)
        return status;
    from->found->list[index].end = from->now;
    return put(&from->pending, event->addr, (uint32_t)index);
}

/* Adds the live blocks of the final segments that no entry allocated. */
static rvl_status add_final(finder *from, const rvli_recording *recording)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < recording->block_count && status == RVL_OK; i++) {
        const rvli_block_row *block = &recording->blocks[i];
        if (block->state != RVLI_BLOCK_ACTIVE || block->addr == 0 ||
            rvli_intmap_get(&from->live, block->addr, NULL))
            continue;
        status = put(&from->live, block->addr, from->found->count);
        if (status == RVL_OK)
            status = add_tensor(from->found, (rvli_snapshot_tensor){.addr = block->addr,
                                                                    .size = block->requested > 0
                                                                                ? block->requested
                                                                                : block->size,
                                                                    .end = RVLI_NEVER,
                                                                    .done = RVLI_NEVER,
                                                                    .stack = block->stack,
                                                                    .label = block->label});
    }
    return status;
}

/* ---- Segments ---- */

static rvl_status map(finder *from, uint64_t addr, uint64_t end, uint32_t begin, bool expandable)
{
    uintptr_t number = (uintptr_t)from->found->mapped_count + 1;
    if (addr >= end)
        return RVL_OK;
    rvl_status status = rvli_addrmap_insert(&from->present, addr, (void *)number);
    return status != RVL_OK ? status
                            : add_mapped(from->found, (rvli_mapped){.addr = addr,
                                                                    .size = end - addr,
                                                                    .begin = begin,
                                                                    .end = RVLI_NEVER,
                                                                    .expandable = expandable});
}

/* Notes a segment without a known start: it existed before the first entry. */
static rvl_status note_before(finder *from, uint64_t addr, uint64_t end, bool expandable)
{
    return addr >= end ? RVL_OK
                       : add_mapped(from->found, (rvli_mapped){.addr = addr,
                                                               .size = end - addr,
                                                               .end = from->now,
                                                               .expandable = expandable});
}

/*
 * Removes a range from the present segments, from its end downwards. A segment that reaches beyond
 * the range leaves the rest. With `before`, notes parts of the range that were not present as
 * segments from before the first entry.
 */
static rvl_status unmap(finder *from, uint64_t addr, uint64_t end, bool expandable, bool before)
{
    rvl_status status = RVL_OK;
    uint64_t open = end; /* the range is done from here upwards */
    uintptr_t number;
    while (status == RVL_OK && open > addr &&
           (number = (uintptr_t)rvli_addrmap_floor(&from->present, open - 1, NULL)) != 0) {
        rvli_mapped *mapped = &from->found->mapped[number - 1];
        const rvli_mapped old = *mapped;
        uint64_t old_end = old.addr + old.size;
        if (old_end <= addr)
            break;
        (void)rvli_addrmap_remove(&from->present, old.addr);
        mapped->end = from->now;
        status = before ? note_before(from, old_end, open, expandable) : RVL_OK;
        if (status == RVL_OK)
            status = map(from, old.addr, addr, from->now, old.expandable);
        if (status == RVL_OK)
            status = map(from, end, old_end, from->now, old.expandable);
        open = old.addr;
    }
    return status == RVL_OK && before ? note_before(from, addr, open, expandable) : status;
}

/* Adds the parts of the final segments that no entry mentions. They always existed. */
static rvl_status add_final_segments(finder *from, const rvli_recording *recording)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < recording->segment_count && status == RVL_OK; i++) {
        const rvli_segment_row *segment = &recording->segments[i];
        uint64_t at = segment->addr, end = segment->addr + segment->size, next;
        while (status == RVL_OK && at < end) {
            uintptr_t number = (uintptr_t)rvli_addrmap_floor(&from->present, at, NULL);
            const rvli_mapped *there = number > 0 ? &from->found->mapped[number - 1] : NULL;
            if (there != NULL && there->addr + there->size > at) {
                at = there->addr + there->size;
                continue;
            }
            if (rvli_addrmap_ceil(&from->present, at, &next) == NULL || next > end)
                next = end;
            status = map(from, at, next, 0, segment->expandable);
            at = next;
        }
    }
    return status;
}

/* ---- Entries ---- */

static rvl_status take_entry(finder *from, const rvli_event_row *event)
{
    uint64_t end = event->addr + event->size;
    if (event->addr == 0 || event->size > RVLI_SIZE_MAX_BYTES || end < event->addr)
        return RVL_OK;
    bool expandable =
        event->action == RVLI_ACTION_SEGMENT_MAP || event->action == RVLI_ACTION_SEGMENT_UNMAP;
    rvl_status status;
    switch (event->action) {
    case RVLI_ACTION_ALLOC:
        return allocate(from, event);
    case RVLI_ACTION_FREE_REQUESTED:
        return free_requested(from, event);
    case RVLI_ACTION_FREE_COMPLETED:
        complete(from, event->addr);
        return RVL_OK;
    case RVLI_ACTION_SEGMENT_ALLOC:
    case RVLI_ACTION_SEGMENT_MAP:
        status = unmap(from, event->addr, end, expandable, false);
        return status == RVL_OK ? map(from, event->addr, end, from->now, expandable) : status;
    case RVLI_ACTION_SEGMENT_FREE:
    case RVLI_ACTION_SEGMENT_UNMAP:
        return unmap(from, event->addr, end, expandable, true);
    default:
        return RVL_OK;
    }
}

static int by_begin(const void *a, const void *b)
{
    const rvli_snapshot_tensor *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return (left->addr > right->addr) - (left->addr < right->addr);
}

/*
 * Sorts by begin. Only tensors from before the first entry are out of order, since they are found
 * late.
 */
static rvl_status put_in_order(rvli_tensors *found)
{
    rvli_snapshot_tensor *ordered = malloc((found->count + (size_t)1) * sizeof *ordered);
    uint32_t count = 0;
    if (ordered == NULL)
        return RVL_ERR_HOST_OOM;
    for (uint32_t i = 0; i < found->count; i++) {
        if (found->list[i].begin == 0)
            ordered[count++] = found->list[i];
    }
    qsort(ordered, count, sizeof *ordered, by_begin);
    for (uint32_t i = 0; i < found->count; i++) {
        if (found->list[i].begin > 0)
            ordered[count++] = found->list[i];
    }
    free(found->list);
    found->list = ordered;
    found->capacity = found->count + 1;
    return RVL_OK;
}

rvl_status rvli_tensors_find(const rvli_recording *recording, rvli_tensors *tensors_out)
{
    rvli_tensors found = {0};
    finder from = {.found = &found};
    rvl_status status = RVL_OK;
    rvli_addrmap_init(&from.present);
    for (uint32_t i = 0; i < recording->event_count && status == RVL_OK; i++) {
        from.now = i + 1;
        status = take_entry(&from, &recording->events[i]);
    }
    if (status == RVL_OK)
        status = add_final(&from, recording);
    if (status == RVL_OK)
        status = add_final_segments(&from, recording);
    if (status == RVL_OK)
        status = put_in_order(&found);
    rvli_intmap_destroy(&from.live);
    rvli_intmap_destroy(&from.pending);
    rvli_addrmap_destroy(&from.present);
    if (status == RVL_OK)
        *tensors_out = found;
    else
        rvli_tensors_clear(&found);
    return status;
}

void rvli_tensors_clear(rvli_tensors *tensors)
{
    free(tensors->list);
    free(tensors->mapped);
    *tensors = (rvli_tensors){0};
}
