/* SPDX-License-Identifier: MIT */
/* Releases memory to the device in PyTorch's order, and finds what keeps the rest from it. */
#include <stdlib.h>

#include "base/grow.h"

#include "predict/snapshot/allocator_internal.h"

/* ---- Lists ---- */

static rvl_status push(rvli_allocator *allocator, rvli_cached_block *block)
{
    if (allocator->list_count == allocator->list_capacity &&
        !rvli_grow(&allocator->list, sizeof(rvli_cached_block *), &allocator->list_capacity,
                   sizeof allocator->list_capacity, 64))
        return RVL_ERR_HOST_OOM;
    allocator->list[allocator->list_count++] = block;
    return RVL_OK;
}

static bool is_whole_segment(const rvli_cached_block *block)
{
    return block->range == NULL && block->prev == NULL && block->next == NULL;
}

typedef struct stream_bucket {
    uint64_t stream;
    uint32_t number; /* bucket + 1 */
} stream_bucket;

static int by_stream(const void *a, const void *b)
{
    uint64_t left = ((const stream_bucket *)a)->stream, right = ((const stream_bucket *)b)->stream;
    return (left > right) - (left < right);
}

/* Sorts the buckets of a side by stream. */
static rvl_status sort_side(rvli_allocator *allocator, rvli_side *side)
{
    uint32_t count = 0;
    stream_bucket *sorted = malloc(allocator->bucket_count * sizeof *sorted);
    if (sorted == NULL)
        return RVL_ERR_HOST_OOM;
    for (uint32_t number = side->first; number > 0; number = allocator->buckets[number - 1].next) {
        uint64_t stream = allocator->streams[allocator->buckets[number - 1].stream];
        sorted[count++] = (stream_bucket){stream, number};
    }
    qsort(sorted, count, sizeof *sorted, by_stream);
    uint32_t *link = &side->first;
    for (uint32_t i = 0; i < count; i++) {
        *link = sorted[i].number;
        link = &allocator->buckets[sorted[i].number - 1].next;
    }
    *link = 0;
    side->mixed = false;
    free(sorted);
    return RVL_OK;
}

/*
 * Lists the free blocks of a side by stream, size and address: either whole segments, or blocks of
 * ranges.
 */
static rvl_status list_side(rvli_allocator *allocator, uint32_t side, bool ranges, size_t most)
{
    if (side < allocator->side_count && allocator->sides[side].mixed) {
        rvl_status status = sort_side(allocator, &allocator->sides[side]);
        if (status != RVL_OK)
            return status;
    }
    uint32_t number = side < allocator->side_count ? allocator->sides[side].first : 0;
    for (; number > 0; number = allocator->buckets[number - 1].next) {
        const rvli_bins *bins = &allocator->buckets[number - 1].free_blocks;
        rvli_cached_block *block = rvli_bins_at_least(bins, 0, 0);
        for (; block != NULL && allocator->list_count < most;
             block = rvli_bins_after(bins, block)) {
            if (ranges ? block->range == NULL || block->releasable == 0 : !is_whole_segment(block))
                continue;
            rvl_status status = push(allocator, block);
            if (status != RVL_OK)
                return status;
        }
    }
    return RVL_OK;
}

static rvl_status list_both(rvli_allocator *allocator, uint32_t side, size_t most)
{
    rvl_status status = list_side(allocator, side, false, most);
    return status == RVL_OK ? list_side(allocator, side, true, most) : status;
}

rvl_status rvli_allocator_list_cached(rvli_allocator *allocator, size_t most)
{
    allocator->list_count = 0;
    rvl_status status = list_both(allocator, 0, most);
    if (status == RVL_OK)
        status = list_both(allocator, 1, most);
    for (uint32_t side = 2; side + 1 < allocator->side_count && status == RVL_OK; side += 2) {
        if (!allocator->sides[side].freeable)
            continue;
        status = list_both(allocator, side + 1, most);
        if (status == RVL_OK)
            status = list_both(allocator, side, most);
    }
    return status;
}

/*
 * Goes over the candidates in rounds until enough is reclaimed. Each round takes those that are at
 * least as old as the mean age of those left. Candidates that are taken become NULL.
 */
static rvl_status collect_rounds(rvli_allocator *allocator, rvli_cached_block **candidates,
                                 size_t count, uint64_t target_bytes)
{
    uint64_t calls = allocator->sides[0].calls, age = 0, reclaimed = 0;
    size_t left = count;
    bool freed = true;
    for (size_t i = 0; i < count; i++)
        age += calls - candidates[i]->calls_before;
    while (reclaimed < target_bytes && freed && left > 0) {
        double mean = (double)age / (double)left;
        freed = false;
        for (size_t i = 0; i < count; i++) {
            rvli_cached_block *block = candidates[i];
            if (block == NULL || (double)(calls - block->calls_before) < mean)
                continue;
            freed = true;
            reclaimed += block->size;
            age -= calls - block->calls_before;
            left--;
            candidates[i] = NULL;
            rvl_status status = push(allocator, block);
            if (status != RVL_OK)
                return status;
        }
    }
    return RVL_OK;
}

rvl_status rvli_allocator_list_garbage(rvli_allocator *allocator, uint64_t target_bytes)
{
    allocator->list_count = 0;
    rvl_status status = list_side(allocator, 0, false, SIZE_MAX);
    if (status != RVL_OK || allocator->list_count == 0)
        return status;
    size_t count = allocator->list_count;
    rvli_cached_block **candidates = allocator->list;
    allocator->list = NULL;
    allocator->list_count = allocator->list_capacity = 0;
    status = collect_rounds(allocator, candidates, count, target_bytes);
    free(candidates);
    return status;
}

rvl_status rvli_allocator_list_oversize(rvli_allocator *allocator, const rvli_request *request,
                                        bool *enough_out)
{
    uint64_t rounded = rvli_allocator_round(&allocator->settings, request->size);
    uint64_t bound = allocator->settings.max_split_bytes;
    uint64_t needed = rounded < bound ? bound : rounded, total = 0;
    uint32_t number;
    rvl_status status = rvli_bucket_get(allocator, request->pool, rounded <= RVLI_SMALL_SIZE,
                                        request->stream, &number);
    allocator->list_count = 0;
    *enough_out = false;
    if (status != RVL_OK)
        return status;
    const rvli_bins *bins = &allocator->buckets[number].free_blocks;
    rvli_cached_block *block = rvli_bins_at_least(bins, needed, 0);
    if (block != NULL) {
        *enough_out = is_whole_segment(block);
        return *enough_out ? push(allocator, block) : RVL_OK;
    }
    block = rvli_bins_below(bins, UINT64_MAX, UINT64_MAX);
    while (block != NULL && total < needed && block->size >= bound && is_whole_segment(block)) {
        total += block->size;
        status = push(allocator, block);
        if (status != RVL_OK)
            return status;
        block = rvli_bins_below(bins, block->key, block->addr);
    }
    *enough_out = total >= needed;
    return RVL_OK;
}

/* ---- Releasing ---- */

static void release_segment(rvli_allocator *allocator, rvli_cached_block *block)
{
    rvli_free_remove(allocator, block);
    allocator->bytes.reserved -= block->size;
    allocator->change(allocator->owner, RVLI_CHANGE_FREE, block->addr, block->size,
                      rvli_bucket_of(allocator, block)->stream);
    rvli_pool_put(&allocator->blocks, block);
}

rvl_status rvli_allocator_release(rvli_allocator *allocator, rvli_cached_block *block)
{
    if (block->range != NULL)
        return rvli_unmap(allocator, block);
    release_segment(allocator, block);
    return RVL_OK;
}

rvl_status rvli_allocator_release_list(rvli_allocator *allocator)
{
    for (size_t i = 0; i < allocator->list_count; i++) {
        rvl_status status = rvli_allocator_release(allocator, allocator->list[i]);
        if (status != RVL_OK)
            return status;
    }
    allocator->list_count = 0;
    return RVL_OK;
}

/* ---- Searching ---- */

/* Drops the map if there is no memory for it. The next search by address builds it again. */
static void drop_index(rvli_allocator *allocator)
{
    rvli_addrmap_destroy(&allocator->by_addr);
    rvli_addrmap_init(&allocator->by_addr);
    allocator->indexed = false;
}

/*
 * If entries contradict each other, two blocks can have one address. Only one of them is in the
 * map.
 */
void rvli_index_add(rvli_allocator *allocator, rvli_cached_block *block)
{
    if (rvli_addrmap_insert(&allocator->by_addr, block->addr, block) == RVL_ERR_HOST_OOM)
        drop_index(allocator);
}

void rvli_index_drop(rvli_allocator *allocator, const rvli_cached_block *block)
{
    if (rvli_addrmap_get(&allocator->by_addr, block->addr) == block)
        (void)rvli_addrmap_remove(&allocator->by_addr, block->addr);
}

/*
 * Finds the free block that contains an address by visiting all of them, and puts them in the map.
 */
static rvli_cached_block *scan_free(rvli_allocator *allocator, uint64_t addr)
{
    rvli_cached_block *found = NULL;
    allocator->indexed = true;
    for (uint32_t i = 0; i < allocator->bucket_count; i++) {
        const rvli_bins *bins = &allocator->buckets[i].free_blocks;
        rvli_cached_block *block = rvli_bins_at_least(bins, 0, 0);
        for (; block != NULL; block = rvli_bins_after(bins, block)) {
            if (found == NULL && addr >= block->addr && addr - block->addr < block->size)
                found = block;
            if (allocator->indexed)
                rvli_index_add(allocator, block);
        }
    }
    return found;
}

rvli_cached_block *rvli_allocator_find_free(rvli_allocator *allocator, uint64_t addr)
{
    if (!allocator->indexed)
        return scan_free(allocator, addr);
    rvli_cached_block *block = rvli_addrmap_floor(&allocator->by_addr, addr, NULL);
    return block != NULL && addr - block->addr < block->size ? block : NULL;
}

static uint64_t stuck(const rvli_cached_block *block)
{
    return block != NULL && block->use == RVLI_USE_FREE && block->mapped
               ? block->size - block->releasable
               : 0;
}

static void weigh(const rvli_cached_block *block, const rvli_cached_block **most, uint64_t *bytes)
{
    if (block == NULL || block->use != RVLI_USE_LIVE)
        return;
    uint64_t pinned = stuck(block->prev) + stuck(block->next);
    if (pinned > *bytes || (pinned == *bytes && *most != NULL && block->event < (*most)->event)) {
        *most = block;
        *bytes = pinned;
    }
}

const rvli_cached_block *rvli_allocator_pinning(const rvli_allocator *allocator,
                                                uint64_t *bytes_out, uint64_t *work)
{
    const rvli_cached_block *most = NULL;
    *bytes_out = 0;
    *work += allocator->bucket_count;
    for (uint32_t i = 0; i < allocator->bucket_count; i++) {
        const rvli_bins *bins = &allocator->buckets[i].free_blocks;
        const rvli_cached_block *block = rvli_bins_at_least(bins, 0, 0);
        for (; block != NULL; block = rvli_bins_after(bins, block)) {
            ++*work;
            weigh(block->prev, &most, bytes_out);
            weigh(block->next, &most, bytes_out);
        }
    }
    return most;
}
