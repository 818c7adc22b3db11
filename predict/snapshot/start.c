/* SPDX-License-Identifier: MIT */
/*
 * What a device held before the first entry of a trace that lacks its beginning.
 *
 * Blocks were live if they are freed without having been allocated, or if the final segments hold
 * them and no entry allocated them. The segments are the final ones with the trace's changes
 * undone, from the last to the first. If the file lacks the entries that show where segments begin,
 * a segment is taken to have existed if it holds a live block, and a page if a live block lies on
 * it.
 */
#include <stdlib.h>

#include "base/grow.h"
#include "predict/snapshot/allocator_internal.h"
#include "predict/snapshot/run.h"

/*
 * The most passes over the whole trace to find where ranges begin. Each pass extends a range
 * downwards.
 */
#define BASE_PASSES_MAX 64

typedef struct held {
    uint64_t addr;
    uint64_t requested;
    uint64_t size;   /* 0: not known */
    uint64_t behind; /* start of the first block that the trace placed after it; 0: none */
    uint64_t event;  /* an entry with its address */
    uint64_t until;  /* the entry that frees it; UINT64_MAX: none */
    uint32_t stream;
    uint32_t pool;
    bool pending;
} held;

typedef struct start {
    held *held;
    uint32_t held_count, held_capacity;
    rvli_addrmap pieces; /* reserved memory, by address: rvli_segment_row */
    uint32_t base_passes;
    bool shows_segments; /* the trace has entries that show where segments begin */
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
    if (low == 0 || event->addr - segments[low - 1].addr >= segments[low - 1].size)
        return 0;
    return event - run->recording.events >= segments[low - 1].since ? segments[low - 1].pool : 0;
}

/* ---- Live blocks ---- */

static rvl_status add_held(start *begin, held item)
{
    if (item.requested > RVLI_SIZE_MAX_BYTES || item.size > RVLI_SIZE_MAX_BYTES)
        return RVL_OK;
    if (!RVLI_ROOM(begin->held, begin->held_count, begin->held_capacity, 256))
        return RVL_ERR_HOST_OOM;
    begin->held[begin->held_count++] = item;
    return RVL_OK;
}

static bool is_begin(const rvli_event_row *event)
{
    return event->action == RVLI_ACTION_SEGMENT_ALLOC || event->action == RVLI_ACTION_SEGMENT_MAP;
}

static rvl_status find_freed(const rvli_run *run, start *begin, rvli_intmap *seen)
{
    for (uint32_t i = 0; i < run->recording.event_count; i++) {
        const rvli_event_row *event = rvli_event(run, i);
        begin->shows_segments = begin->shows_segments || is_begin(event);
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
                                       .until = i,
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
                                       .event = UINT64_MAX,
                                       .until = UINT64_MAX,
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

/* ---- Segments ---- */

static rvli_segment_row *piece_at_most(const start *begin, uint64_t addr)
{
    return rvli_addrmap_floor(&begin->pieces, addr, NULL);
}

static rvli_segment_row *piece_at_least(const start *begin, uint64_t addr)
{
    return rvli_addrmap_ceil(&begin->pieces, addr, NULL);
}

/*
 * Adds a piece. If one already begins there, which only contradictory entries cause, that one
 * stays.
 */
static rvl_status add_piece(start *begin, const rvli_segment_row *piece)
{
    rvli_segment_row *own = malloc(sizeof *own);
    if (own == NULL)
        return RVL_ERR_HOST_OOM;
    *own = *piece;
    rvl_status status = rvli_addrmap_insert(&begin->pieces, own->addr, own);
    if (status != RVL_OK)
        free(own);
    return status == RVL_ERR_INVALID ? RVL_OK : status;
}

static void drop_pieces(start *begin)
{
    rvli_segment_row *piece;
    while ((piece = piece_at_least(begin, 0)) != NULL)
        free(rvli_addrmap_remove(&begin->pieces, piece->addr));
    rvli_addrmap_destroy(&begin->pieces);
}

static rvl_status add_part(start *begin, rvli_segment_row piece, uint64_t addr, uint64_t end)
{
    piece.addr = addr;
    piece.size = end - addr;
    return end > addr ? add_piece(begin, &piece) : RVL_OK;
}

/* Removes a range from the pieces that it overlaps. The rest of each piece stays. */
static rvl_status cut(start *begin, uint64_t addr, uint64_t end)
{
    rvl_status status = RVL_OK;
    rvli_segment_row *piece = piece_at_most(begin, addr);
    if (piece == NULL || piece->addr + piece->size <= addr)
        piece = piece_at_least(begin, addr);
    while (piece != NULL && piece->addr < end && status == RVL_OK) {
        rvli_segment_row whole = *piece;
        uint64_t whole_end = whole.addr + whole.size;
        free(rvli_addrmap_remove(&begin->pieces, whole.addr));
        if (whole.addr < addr)
            status = add_part(begin, whole, whole.addr, addr);
        if (status == RVL_OK && whole_end > end)
            status = add_part(begin, whole, end, whole_end);
        piece = piece_at_least(begin, whole_end);
    }
    return status;
}

/*
 * Returns whether a mapped range of addresses has small blocks: as a piece beside it, or else by
 * its size.
 */
static bool is_small(const rvli_run *run, const start *begin, const rvli_event_row *event)
{
    uint64_t end = event->addr + event->size;
    const rvli_segment_row *before = piece_at_most(begin, event->addr);
    const rvli_segment_row *after = piece_at_least(begin, end);
    if (before != NULL && before->addr + before->size == event->addr)
        return before->small;
    if (after != NULL && after->addr == end)
        return after->small;
    return event->size % run->recording.settings.large_segment_bytes != 0;
}

/* Returns the first held block at or above an address; held_count: none. */
static uint32_t held_at_least(const start *begin, uint64_t addr)
{
    uint32_t low = 0, high = begin->held_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (begin->held[middle].addr < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * Adds the pages of a range that held live blocks. The page grid starts at the range's first
 * address.
 */
static rvl_status add_pages(const rvli_run *run, start *begin, const rvli_segment_row *range)
{
    const rvli_settings *settings = &run->recording.settings;
    uint64_t page = range->small ? RVLI_SMALL_BUFFER : settings->large_segment_bytes;
    uint64_t done = range->addr, range_end = range->addr + range->size;
    rvl_status status = RVL_OK;
    for (uint32_t i = held_at_least(begin, range->addr);
         i < begin->held_count && begin->held[i].addr < range_end && status == RVL_OK; i++) {
        const held *item = &begin->held[i];
        uint64_t rounded = rvli_allocator_round(settings, item->requested);
        uint64_t size = item->size > 0 ? item->size : rounded;
        uint64_t first = (item->addr - range->addr) / page * page + range->addr;
        uint64_t end = (item->addr + size - range->addr + page - 1) / page * page + range->addr;
        first = first > done ? first : done;
        end = end < range_end ? end : range_end;
        status = first < end ? add_part(begin, *range, first, end) : RVL_OK;
        done = end > done ? end : done;
    }
    return status;
}

/* Entries and lists may have any bytes. Impossible ones are ignored. */
static bool can_be(uint64_t addr, uint64_t size)
{
    return size > 0 && size <= RVLI_SIZE_MAX_BYTES && addr <= UINT64_MAX - size;
}

/*
 * Adds a piece of what was reserved. Without entries on where segments begin, adds only pieces that
 * held a live block, and of a range only the pages that did.
 */
static rvl_status add_shown(const rvli_run *run, start *begin, const rvli_segment_row *piece)
{
    if (!can_be(piece->addr, piece->size))
        return RVL_OK;
    if (begin->shows_segments)
        return add_piece(begin, piece);
    if (piece->expandable)
        return add_pages(run, begin, piece);
    uint32_t first = held_at_least(begin, piece->addr);
    bool holds = first < begin->held_count && begin->held[first].addr - piece->addr < piece->size;
    return holds ? add_piece(begin, piece) : RVL_OK;
}

static rvl_status take_back(const rvli_run *run, start *begin, const rvli_event_row *event)
{
    rvli_segment_row piece = {.addr = event->addr,
                              .size = event->size,
                              .stream = event->stream,
                              .pool = rvli_pool_of(run, event),
                              .small = event->size == RVLI_SMALL_BUFFER};
    if (!can_be(event->addr, event->size))
        return RVL_OK;
    switch (event->action) {
    case RVLI_ACTION_SEGMENT_ALLOC:
    case RVLI_ACTION_SEGMENT_MAP:
        return cut(begin, event->addr, event->addr + event->size);
    case RVLI_ACTION_SEGMENT_UNMAP:
        piece.expandable = true;
        piece.small = is_small(run, begin, event);
        return add_shown(run, begin, &piece);
    case RVLI_ACTION_SEGMENT_FREE:
        return add_shown(run, begin, &piece);
    default:
        return RVL_OK;
    }
}

static rvl_status find_segments(const rvli_run *run, start *begin)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < run->recording.segment_count && status == RVL_OK; i++)
        status = add_shown(run, begin, &run->recording.segments[i]);
    for (uint32_t i = run->recording.event_count; i > 0 && status == RVL_OK; i--)
        status = take_back(run, begin, rvli_event(run, i - 1));
    return status;
}

/*
 * Finds where live blocks ended. A free block is used from its low addresses upwards, so the first
 * block that the trace places after a live block begins where that one ends.
 */
static void find_ends(const rvli_run *run, start *begin)
{
    for (uint32_t i = 0; i < run->recording.event_count; i++) {
        const rvli_event_row *event = rvli_event(run, i);
        if (event->action != RVLI_ACTION_ALLOC || event->addr == 0)
            continue;
        uint32_t above = held_at_least(begin, event->addr);
        held *item = above > 0 ? &begin->held[above - 1] : NULL;
        if (item == NULL || item->behind != 0 || item->until < i)
            continue;
        const rvli_segment_row *piece = piece_at_most(begin, item->addr);
        if (piece != NULL && event->addr - piece->addr < piece->size)
            item->behind = event->addr;
    }
}

/* ---- Building ---- */

static rvl_status add_block(rvli_run *run, const rvli_segment_row *segment,
                            rvli_cached_block **block_out)
{
    rvl_status status = rvli_places_take(&run->places, segment->addr, segment->size);
    return status == RVL_OK ? rvli_allocator_add_segment(&run->allocator, segment->pool,
                                                         segment->small, segment->stream,
                                                         segment->addr, segment->size, block_out)
                            : status;
}

/*
 * Returns the start of the lowest page of a piece's range, as far as adjoining entries reach down.
 */
static uint64_t range_base(const rvli_run *run, start *begin, const rvli_segment_row *piece)
{
    uint64_t low = piece->addr, before = 0;
    for (; begin->base_passes < BASE_PASSES_MAX && low != before; begin->base_passes++) {
        before = low;
        for (uint32_t i = 0; i < run->recording.event_count; i++) {
            const rvli_event_row *event = rvli_event(run, i);
            if ((event->action == RVLI_ACTION_SEGMENT_MAP ||
                 event->action == RVLI_ACTION_SEGMENT_UNMAP) &&
                event->stream == piece->stream && event->addr != 0 && event->addr < low &&
                event->size >= low - event->addr)
                low = event->addr;
        }
    }
    return low;
}

static rvl_status build_piece(rvli_run *run, start *begin, const rvli_segment_row *piece)
{
    rvli_allocator *allocator = &run->allocator;
    rvli_cached_block *block;
    uint32_t bucket;
    if (!piece->expandable)
        return add_block(run, piece, &block);
    rvl_status status =
        rvli_bucket_get(allocator, piece->pool, piece->small, piece->stream, &bucket);
    if (status != RVL_OK)
        return status;
    block = rvli_blocks_below(allocator->buckets[bucket].unmapped, 0, piece->addr + 1);
    if (block == NULL || piece->addr - block->addr >= block->size ||
        piece->size > block->size - (piece->addr - block->addr)) {
        uint64_t base = range_base(run, begin, piece);
        uint64_t size = allocator->range_bytes + piece->addr - base + piece->size;
        uint64_t page = run->recording.settings.large_segment_bytes;
        size += page - size % page;
        status = rvli_snapshot_range_add(allocator, bucket, base, size, &block);
    }
    return status == RVL_OK ? rvli_map_at(allocator, block, piece->addr, piece->size) : status;
}

/*
 * Returns the size of a block that was live. It reaches to the next block if the rest would be too
 * small to split off, or else to the first block that the trace placed after it. If there is none,
 * sets *guessed_out and returns the rounded size.
 */
static uint64_t block_bytes(const rvli_run *run, const held *item, const rvli_cached_block *room,
                            uint64_t next, bool *guessed_out)
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
    if (rounded >= settings->max_split_bytes || all - rounded <= RVLI_SMALL_SIZE)
        return all;
    uint64_t shown = item->behind - item->addr;
    if (item->behind != 0 && shown >= rounded && shown <= rounded + RVLI_SMALL_SIZE && shown <= all)
        return shown;
    *guessed_out = true;
    return rounded;
}

static rvl_status build_held(rvli_run *run, const held *item, uint64_t next)
{
    rvli_allocator *allocator = &run->allocator;
    rvli_cached_block *room = rvli_allocator_find_free(allocator, item->addr);
    rvl_status status = RVL_OK;
    if (room == NULL) { /* its segment is not known: give it one */
        uint64_t size = rvli_allocator_round(&run->recording.settings, item->requested);
        rvli_segment_row own = {.addr = item->addr,
                                .size = item->size > 0 ? item->size : size,
                                .stream = item->stream,
                                .pool = item->pool,
                                .small = size <= RVLI_SMALL_SIZE};
        status = add_block(run, &own, &room);
    }
    if (status == RVL_OK) {
        bool guessed = false;
        uint64_t size = block_bytes(run, item, room, next, &guessed);
        if (guessed && item->until > run->guessed_until)
            run->guessed_until = item->until;
        uint64_t requested = item->requested < size ? item->requested : size; /* may be wrong */
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

/*
 * Looks for a segment that is released, or is left at the end, although no entry shows where it
 * began.
 */
rvl_status rvli_start_shows(const rvli_run *run, bool *shows_out)
{
    start begin = {0};
    rvl_status status = RVL_OK;
    *shows_out = false;
    for (uint32_t i = 0; i < run->recording.event_count && !begin.shows_segments; i++)
        begin.shows_segments = is_begin(rvli_event(run, i));
    if (!begin.shows_segments)
        return RVL_OK;
    rvli_addrmap_init(&begin.pieces);
    status = find_segments(run, &begin);
    *shows_out = status == RVL_OK && piece_at_least(&begin, 0) != NULL;
    drop_pieces(&begin);
    return status;
}

static rvl_status build_all(rvli_run *run, start *begin)
{
    rvl_status status = RVL_OK;
    const rvli_segment_row *piece = piece_at_least(begin, 0);
    for (; piece != NULL && status == RVL_OK; piece = piece_at_least(begin, piece->addr + 1))
        status = build_piece(run, begin, piece);
    for (uint32_t i = 0; i < begin->held_count && status == RVL_OK; i++)
        status = build_held(run, &begin->held[i],
                            i + 1 < begin->held_count ? begin->held[i + 1].addr : 0);
    return status;
}

rvl_status rvli_start_build(rvli_run *run)
{
    start begin = {0};
    rvli_addrmap_init(&begin.pieces);
    rvl_status status = find_held(run, &begin);
    if (status == RVL_OK)
        status = find_segments(run, &begin);
    if (status == RVL_OK) {
        find_ends(run, &begin);
        status = build_all(run, &begin);
    }
    free(begin.held);
    drop_pieces(&begin);
    return status;
}
