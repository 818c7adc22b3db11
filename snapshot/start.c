/* SPDX-License-Identifier: MIT */
/*
 * What a device held before the first entry of a trace that lacks its beginning.
 *
 * Live then was what is freed without having been allocated, and what the final segments hold
 * without an entry that allocated it. The segments of then are the final ones, with the trace's
 * changes taken back from the last to the first; where those have been taken out of the file, the
 * final ones that hold what was live.
 */
#include <stdlib.h>
#include <string.h>

#include "snapshot/parts.h"
#include "snapshot/run.h"

typedef struct held {
    uint64_t addr;
    uint64_t requested;
    uint64_t size;  /* 0: not known */
    uint64_t event; /* one with its address */
    uint32_t stream;
    uint32_t pool;
    bool pending;
} held;

typedef struct start {
    held *held;
    uint32_t held_count, held_capacity;
    rvli_segment_row *segments;
    uint32_t segment_count, segment_capacity;
    bool shows_segments; /* the trace says where segments begin */
} start;

uint32_t rvli_pool_of(const rvli_run *run, const rvli_event_row *event)
{
    const rvli_segment_row *segments = run->recording.segments;
    uint32_t low = 0, high = run->recording.segment_count;
    if (event->has_pool || !run->private_pools)
        return event->pool;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (segments[middle].addr <= event->addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && event->addr - segments[low - 1].addr < segments[low - 1].size
               ? segments[low - 1].pool
               : 0;
}

/* ---- What was live ---- */

static rvl_status add_held(start *begin, held item)
{
    if (begin->held_count == begin->held_capacity) {
        uint32_t capacity = begin->held_capacity > 0 ? begin->held_capacity * 2 : 256;
        held *grown = realloc(begin->held, capacity * sizeof *grown);
        if (grown == NULL)
            return RVL_ERR_HOST_OOM;
        begin->held = grown;
        begin->held_capacity = capacity;
    }
    begin->held[begin->held_count++] = item;
    return RVL_OK;
}

static rvl_status find_freed(const rvli_run *run, start *begin, rvli_intmap *seen)
{
    for (uint32_t i = 0; i < run->recording.event_count; i++) {
        const rvli_event_row *event = rvli_event(run, i);
        if (event->action == RVLI_ACTION_SEGMENT_ALLOC || event->action == RVLI_ACTION_SEGMENT_MAP)
            begin->shows_segments = true;
        if (event->action < RVLI_ACTION_ALLOC || event->action > RVLI_ACTION_FREE_COMPLETED ||
            event->addr == 0)
            continue;
        rvl_status status = rvli_intmap_insert(seen, event->addr, 1);
        if (status == RVL_ERR_INVALID) /* seen before */
            continue;
        if (status == RVL_OK && event->action != RVLI_ACTION_ALLOC)
            status =
                add_held(begin, (held){.addr = event->addr,
                                       .requested = event->size,
                                       .event = i,
                                       .stream = event->stream,
                                       .pool = rvli_pool_of(run, event),
                                       .pending = event->action == RVLI_ACTION_FREE_COMPLETED});
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static rvl_status find_kept(const rvli_run *run, start *begin, const rvli_intmap *seen)
{
    const rvli_recording *recording = &run->recording;
    for (uint32_t s = 0; s < recording->segment_count; s++) {
        const rvli_segment_row *segment = &recording->segments[s];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const rvli_block_row *block = &recording->blocks[i];
            if ((block->state != RVLI_BLOCK_ACTIVE && block->state != RVLI_BLOCK_PENDING) ||
                block->addr == 0 || rvli_intmap_get(seen, block->addr, NULL))
                continue;
            rvl_status status =
                add_held(begin, (held){.addr = block->addr,
                                       .requested = block->requested,
                                       .size = block->size,
                                       .stream = segment->stream,
                                       .pool = segment->pool,
                                       .pending = block->state == RVLI_BLOCK_PENDING});
            if (status != RVL_OK)
                return status;
        }
    }
    return RVL_OK;
}

static int held_by_address(const void *a, const void *b)
{
    uint64_t left = ((const held *)a)->addr, right = ((const held *)b)->addr;
    return (left > right) - (left < right);
}

static rvl_status find_held(const rvli_run *run, start *begin)
{
    rvli_intmap seen = {0};
    rvl_status status = find_freed(run, begin, &seen);
    if (status == RVL_OK)
        status = find_kept(run, begin, &seen);
    rvli_intmap_destroy(&seen);
    if (begin->held_count > 0)
        qsort(begin->held, begin->held_count, sizeof *begin->held, held_by_address);
    return status;
}

/* ---- Its segments ---- */

static rvl_status add_segment(start *begin, rvli_segment_row segment)
{
    if (begin->segment_count == begin->segment_capacity) {
        uint32_t capacity = begin->segment_capacity > 0 ? begin->segment_capacity * 2 : 64;
        rvli_segment_row *grown = realloc(begin->segments, capacity * sizeof *grown);
        if (grown == NULL)
            return RVL_ERR_HOST_OOM;
        begin->segments = grown;
        begin->segment_capacity = capacity;
    }
    begin->segments[begin->segment_count++] = segment;
    return RVL_OK;
}

/* Takes a range away from the segment that holds it: what it leaves of that stays. */
static rvl_status cut(start *begin, const rvli_event_row *event)
{
    for (uint32_t i = 0; i < begin->segment_count; i++) {
        rvli_segment_row *segment = &begin->segments[i];
        uint64_t end = segment->addr + segment->size, cut_end = event->addr + event->size;
        if (event->addr < segment->addr || cut_end > end)
            continue;
        rvli_segment_row rest = *segment;
        rest.addr = cut_end;
        rest.size = end - cut_end;
        segment->size = event->addr - segment->addr;
        if (segment->size == 0)
            *segment = begin->segments[--begin->segment_count];
        return rest.size > 0 ? add_segment(begin, rest) : RVL_OK;
    }
    return RVL_OK;
}

/* The class of a mapped range of addresses: that of a segment beside it, else by its size. */
static bool is_small(const start *begin, const rvli_event_row *event)
{
    for (uint32_t i = 0; i < begin->segment_count; i++) {
        const rvli_segment_row *segment = &begin->segments[i];
        if (segment->addr + segment->size == event->addr ||
            event->addr + event->size == segment->addr)
            return segment->small;
    }
    return event->size % RVLI_LARGE_BUFFER != 0;
}

static rvl_status take_back(const rvli_run *run, start *begin, const rvli_event_row *event)
{
    rvli_segment_row segment = {.addr = event->addr,
                                .size = event->size,
                                .stream = event->stream,
                                .pool = rvli_pool_of(run, event),
                                .small = event->size == RVLI_SMALL_BUFFER};
    switch (event->action) {
    case RVLI_ACTION_SEGMENT_ALLOC:
    case RVLI_ACTION_SEGMENT_MAP:
        return cut(begin, event);
    case RVLI_ACTION_SEGMENT_UNMAP:
        segment.expandable = true;
        segment.small = is_small(begin, event);
        return add_segment(begin, segment);
    case RVLI_ACTION_SEGMENT_FREE:
        return add_segment(begin, segment);
    default:
        return RVL_OK;
    }
}

static bool holds_any(const start *begin, const rvli_segment_row *segment)
{
    for (uint32_t i = 0; i < begin->held_count; i++) {
        if (begin->held[i].addr - segment->addr < segment->size)
            return true;
    }
    return false;
}

static int segment_by_address(const void *a, const void *b)
{
    uint64_t left = ((const rvli_segment_row *)a)->addr;
    uint64_t right = ((const rvli_segment_row *)b)->addr;
    return (left > right) - (left < right);
}

static rvl_status find_segments(const rvli_run *run, start *begin)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < run->recording.segment_count && status == RVL_OK; i++) {
        const rvli_segment_row *segment = &run->recording.segments[i];
        if (begin->shows_segments || holds_any(begin, segment))
            status = add_segment(begin, *segment);
    }
    for (uint32_t i = run->recording.event_count; i > 0 && status == RVL_OK; i--)
        status = take_back(run, begin, rvli_event(run, i - 1));
    if (begin->segment_count > 0)
        qsort(begin->segments, begin->segment_count, sizeof *begin->segments, segment_by_address);
    return status;
}

/* ---- Building ---- */

static rvl_status add_block(rvli_run *run, const rvli_segment_row *segment, rvli_block **block_out)
{
    rvl_status status = rvli_places_take(&run->places, segment->addr, segment->size);
    return status == RVL_OK ? rvli_allocator_add_segment(&run->allocator, segment->pool,
                                                         segment->small, segment->stream,
                                                         segment->addr, segment->size, block_out)
                            : status;
}

static rvl_status build_segment(rvli_run *run, const rvli_segment_row *segment)
{
    rvli_allocator *allocator = &run->allocator;
    rvli_block *block;
    uint32_t bucket;
    if (!segment->expandable)
        return add_block(run, segment, &block);
    rvl_status status =
        rvli_bucket_get(allocator, segment->pool, segment->small, segment->stream, &bucket);
    if (status != RVL_OK)
        return status;
    rvli_block *unmapped = allocator->buckets[bucket].unmapped;
    for (block = rvli_blocks_at_least(unmapped, 0, 0); block != NULL;
         block = rvli_blocks_after(unmapped, block)) {
        if (segment->addr >= block->addr &&
            segment->addr + segment->size <= block->addr + block->size)
            break;
    }
    if (block == NULL) {
        uint64_t size = allocator->range_bytes + segment->size;
        size += RVLI_LARGE_BUFFER - size % RVLI_LARGE_BUFFER;
        status = rvli_range_add(allocator, bucket, segment->addr, size, &block);
    }
    return status == RVL_OK ? rvli_map_at(allocator, block, segment->addr, segment->size) : status;
}

/* The bytes of a block that was live: all up to the next one, if so little would not be split. */
static uint64_t block_bytes(const rvli_run *run, const held *item, const rvli_block *room,
                            uint64_t next)
{
    const rvli_settings *settings = &run->recording.settings;
    uint64_t rounded = rvli_allocator_round(settings, item->requested);
    uint64_t end = room->addr + room->size;
    uint64_t all = (next > item->addr && next < end ? next : end) - item->addr;
    if (item->size > 0)
        return item->size < all ? item->size : all;
    if (rounded >= all)
        return all;
    if (rounded <= RVLI_SMALL_SIZE || room->range != NULL)
        return rounded;
    return rounded >= settings->max_split_bytes || all - rounded <= RVLI_SMALL_SIZE ? all : rounded;
}

static rvl_status build_held(rvli_run *run, const held *item, uint64_t next)
{
    rvli_allocator *allocator = &run->allocator;
    rvli_block *room = rvli_allocator_find_free(allocator, item->addr);
    rvl_status status = RVL_OK;
    if (room == NULL) { /* no segment of it is known: it gets one of its own */
        uint64_t size = rvli_allocator_round(&run->recording.settings, item->requested);
        rvli_segment_row own = {.addr = item->addr,
                                .size = item->size > 0 ? item->size : size,
                                .stream = item->stream,
                                .pool = item->pool,
                                .small = size <= RVLI_SMALL_SIZE};
        status = add_block(run, &own, &room);
    }
    if (status == RVL_OK) {
        uint64_t size = block_bytes(run, item, room, next);
        uint64_t requested = item->requested < size ? item->requested : size; /* entries may lie */
        status = rvli_allocator_carve(allocator, room, item->addr, size, requested, &room);
    }
    if (status != RVL_OK)
        return status;
    room->event = item->event;
    status = rvli_intmap_insert(&run->live, item->addr, (uint64_t)(uintptr_t)room);
    if (status == RVL_OK && item->pending)
        rvli_allocator_free(allocator, room);
    return status == RVL_ERR_INVALID ? RVL_OK : status;
}

rvl_status rvli_start_build(rvli_run *run)
{
    start begin = {0};
    rvl_status status = find_held(run, &begin);
    if (status == RVL_OK)
        status = find_segments(run, &begin);
    for (uint32_t i = 0; i < begin.segment_count && status == RVL_OK; i++)
        status = build_segment(run, &begin.segments[i]);
    for (uint32_t i = 0; i < begin.held_count && status == RVL_OK; i++)
        status =
            build_held(run, &begin.held[i], i + 1 < begin.held_count ? begin.held[i + 1].addr : 0);
    free(begin.held);
    free(begin.segments);
    return status;
}
