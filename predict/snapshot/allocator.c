/* SPDX-License-Identifier: MIT */
/* Buckets, the search for a block, splitting it, and freeing it. */
#include "predict/snapshot/allocator.h"

#include <stdlib.h>
#include <string.h>

#include "predict/snapshot/allocator_internal.h"

/* Size of a range of addresses if the device's memory is not known. */
#define RANGE_BYTES_UNKNOWN (UINT64_C(1) << 40)
/* Buckets of a side to check in the list before the map is searched. */
#define NEAR_BUCKETS 4

/* ---- Rules ---- */

uint64_t rvli_allocator_round(const rvli_settings *settings, uint64_t size)
{
    if (size < RVLI_MIN_BLOCK)
        return RVLI_MIN_BLOCK;
    uint64_t divisions = rvli_settings_divisions(settings, size);
    if (divisions <= 1 || size <= RVLI_MIN_BLOCK * divisions)
        return (size + RVLI_MIN_BLOCK - 1) / RVLI_MIN_BLOCK * RVLI_MIN_BLOCK;
    if ((size & (size - 1)) == 0)
        return size;
    uint64_t below = UINT64_C(1) << (63 - __builtin_clzll(size));
    uint64_t step = below >> (63 - __builtin_clzll(divisions));
    return step > 0 ? (size + step - 1) & ~(step - 1) : below * 2;
}

static uint64_t segment_bytes(const rvli_settings *settings, uint64_t rounded)
{
    if (rounded <= RVLI_SMALL_SIZE)
        return RVLI_SMALL_BUFFER;
    if (rounded < RVLI_MIN_LARGE_ALLOC && rounded <= settings->large_segment_bytes)
        return settings->large_segment_bytes;
    return (rounded + RVLI_ROUND_LARGE - 1) / RVLI_ROUND_LARGE * RVLI_ROUND_LARGE;
}

static bool should_split(const rvli_allocator *allocator, const rvli_bucket *bucket,
                         const rvli_cached_block *block, uint64_t size)
{
    uint64_t rest = block->size - size;
    if (rvli_is_small(bucket) || allocator->settings.expandable)
        return rest >= RVLI_MIN_BLOCK;
    return size < allocator->settings.max_split_bytes && rest > RVLI_SMALL_SIZE;
}

/* ---- Creating and destroying ---- */

void rvli_allocator_init(rvli_allocator *allocator, const rvli_settings *settings,
                         const uint64_t *streams, rvli_snapshot_change_fn change, void *owner)
{
    *allocator = (rvli_allocator){.settings = *settings,
                                  .range_bytes = RANGE_BYTES_UNKNOWN,
                                  .streams = streams,
                                  .change = change,
                                  .owner = owner};
    rvli_pool_init(&allocator->blocks, sizeof(rvli_cached_block));
    rvli_addrmap_init(&allocator->by_addr);
}

void rvli_allocator_destroy(rvli_allocator *allocator)
{
    rvli_pool_destroy(&allocator->blocks);
    while (allocator->ranges != NULL) {
        rvli_snapshot_range *range = allocator->ranges;
        allocator->ranges = range->next;
        free(range);
    }
    rvli_addrmap_destroy(&allocator->by_addr);
    rvli_intmap_destroy(&allocator->bucket_numbers);
    free(allocator->buckets);
    free(allocator->sides);
    free(allocator->list);
    *allocator = (rvli_allocator){0};
}

void rvli_allocator_limit(rvli_allocator *allocator, uint64_t capacity_bytes)
{
    double fraction = allocator->settings.memory_fraction;
    allocator->capacity_bytes = capacity_bytes;
    allocator->allowed_bytes = fraction > 0 ? (uint64_t)(fraction * (double)capacity_bytes) : 0;
    allocator->range_bytes =
        capacity_bytes > 0 ? capacity_bytes + capacity_bytes / 8 : RANGE_BYTES_UNKNOWN;
}

/* ---- Buckets and sets ---- */

static rvl_status grow_sides(rvli_allocator *allocator, uint32_t count)
{
    if (count <= allocator->side_count)
        return RVL_OK;
    rvli_side *sides = realloc(allocator->sides, count * sizeof *sides);
    if (sides == NULL)
        return RVL_ERR_HOST_OOM;
    memset(sides + allocator->side_count, 0, (count - allocator->side_count) * sizeof *sides);
    allocator->sides = sides;
    allocator->side_count = count;
    return RVL_OK;
}

static uint64_t number_key(uint32_t side, uint32_t stream)
{
    return ((uint64_t)side << 32 | stream) + 1;
}

static rvl_status add_bucket(rvli_allocator *allocator, uint32_t side, uint32_t stream,
                             uint32_t *bucket_out)
{
    rvli_bucket *buckets =
        realloc(allocator->buckets, (allocator->bucket_count + 1) * sizeof *buckets);
    if (buckets == NULL)
        return RVL_ERR_HOST_OOM;
    allocator->buckets = buckets;
    rvl_status status = rvli_intmap_insert(&allocator->bucket_numbers, number_key(side, stream),
                                           allocator->bucket_count + 1);
    if (status != RVL_OK)
        return status;
    uint32_t *first = &allocator->sides[side].first;
    allocator->sides[side].mixed = *first > 0;
    buckets[allocator->bucket_count] =
        (rvli_bucket){.side = side, .stream = stream, .next = *first};
    *bucket_out = allocator->bucket_count++;
    *first = allocator->bucket_count;
    return RVL_OK;
}

rvl_status rvli_bucket_get(rvli_allocator *allocator, uint32_t pool, bool small, uint32_t stream,
                           uint32_t *bucket_out)
{
    uint32_t side = 2 * pool + (small ? 1 : 0);
    rvl_status status = grow_sides(allocator, 2 * pool + 2);
    if (status != RVL_OK)
        return status;
    uint32_t number = allocator->sides[side].first;
    for (int i = 0; i < NEAR_BUCKETS && number > 0; i++) {
        if (allocator->buckets[number - 1].stream == stream) {
            *bucket_out = number - 1;
            return RVL_OK;
        }
        number = allocator->buckets[number - 1].next;
    }
    uint64_t known = 0;
    if (number == 0 ||
        !rvli_intmap_get(&allocator->bucket_numbers, number_key(side, stream), &known))
        return add_bucket(allocator, side, stream, bucket_out);
    *bucket_out = (uint32_t)known - 1;
    return RVL_OK;
}

rvli_cached_block *rvli_block_new(rvli_allocator *allocator, uint32_t bucket, uint64_t addr,
                                  uint64_t size)
{
    rvli_cached_block *block = rvli_pool_get(&allocator->blocks);
    if (block != NULL)
        *block = (rvli_cached_block){.addr = addr, .size = size, .bucket = bucket, .mapped = true};
    return block;
}

void rvli_free_insert(rvli_allocator *allocator, rvli_cached_block *block)
{
    rvli_bucket *bucket = rvli_bucket_of(allocator, block);
    uint64_t first;
    block->use = RVLI_USE_FREE;
    block->key = block->size;
    block->calls_before = allocator->sides[bucket->side].calls;
    if (block->range != NULL)
        block->releasable = rvli_whole_pages(block, &first);
    else
        block->releasable = block->prev == NULL && block->next == NULL ? block->size : 0;
    allocator->bytes.free_bytes += block->size;
    allocator->bytes.releasable += block->releasable;
    rvli_bins_insert(&bucket->free_blocks, block);
    if (allocator->indexed)
        rvli_index_add(allocator, block);
}

void rvli_free_remove(rvli_allocator *allocator, rvli_cached_block *block)
{
    allocator->bytes.free_bytes -= block->size;
    allocator->bytes.releasable -= block->releasable;
    rvli_bins_remove(&rvli_bucket_of(allocator, block)->free_blocks, block);
    if (allocator->indexed)
        rvli_index_drop(allocator, block);
}

void rvli_unmapped_insert(rvli_allocator *allocator, rvli_cached_block *block)
{
    block->key = 0;
    rvli_blocks_insert(&rvli_bucket_of(allocator, block)->unmapped, block);
}

void rvli_unmapped_remove(rvli_allocator *allocator, rvli_cached_block *block)
{
    rvli_blocks_remove(&rvli_bucket_of(allocator, block)->unmapped, block);
}

void rvli_block_link(rvli_cached_block *block, rvli_cached_block *prev, rvli_cached_block *next)
{
    block->prev = prev;
    block->next = next;
    if (prev != NULL)
        prev->next = block;
    if (next != NULL)
        next->prev = block;
}

void rvli_block_merge(rvli_allocator *allocator, rvli_cached_block *block,
                      rvli_cached_block *neighbour)
{
    if (neighbour == NULL || neighbour->use != RVLI_USE_FREE || neighbour->mapped != block->mapped)
        return;
    if (neighbour->mapped)
        rvli_free_remove(allocator, neighbour);
    else
        rvli_unmapped_remove(allocator, neighbour);
    if (block->prev == neighbour) {
        block->addr = neighbour->addr;
        rvli_block_link(block, neighbour->prev, block->next);
    } else {
        rvli_block_link(block, block->prev, neighbour->next);
    }
    block->size += neighbour->size;
    rvli_pool_put(&allocator->blocks, neighbour);
}

/* ---- Finding a block ---- */

/* The size that a block can reach if the unmapped block behind it is mapped too. */
static uint64_t expandable_size(const rvli_cached_block *block)
{
    return block->size + (block->next != NULL && !block->next->mapped ? block->next->size : 0);
}

static rvli_cached_block *best_expandable(const rvli_allocator *allocator, const rvli_bins *bins,
                                          rvli_cached_block *block)
{
    if (!allocator->settings.expandable) {
        while (block != NULL && block->range != NULL)
            block = rvli_bins_after(bins, block);
        return block;
    }
    rvli_cached_block *next = rvli_bins_after(bins, block);
    while (block->range != NULL && next != NULL && expandable_size(next) < expandable_size(block)) {
        block = next;
        next = rvli_bins_after(bins, block);
    }
    return block;
}

static bool is_oversize(const rvli_settings *settings, const rvli_cached_block *block,
                        uint64_t size)
{
    if (size < settings->max_split_bytes)
        return block->size >= settings->max_split_bytes;
    return block->size >= size + settings->max_non_split_rounding_bytes;
}

static rvli_cached_block *find_free(const rvli_allocator *allocator, const rvli_bucket *bucket,
                                    uint64_t size)
{
    rvli_cached_block *block = rvli_bins_at_least(&bucket->free_blocks, size, 0);
    if (block != NULL && block->range != NULL)
        block = best_expandable(allocator, &bucket->free_blocks, block);
    return block != NULL && !is_oversize(&allocator->settings, block, size) ? block : NULL;
}

/*
 * Notes that a block was chosen by its address, among blocks of one size. Predicted addresses may
 * differ from recorded ones.
 */
static void note_tie(rvli_allocator *allocator, const rvli_bucket *bucket,
                     const rvli_cached_block *block)
{
    if (allocator->tied || block->range != NULL)
        return;
    const rvli_cached_block *next = rvli_bins_after(&bucket->free_blocks, block);
    allocator->tied = next != NULL && next->size == block->size;
}

/* ---- New segments ---- */

rvl_status rvli_allocator_add_segment(rvli_allocator *allocator, uint32_t pool, bool small,
                                      uint32_t stream, uint64_t addr, uint64_t size,
                                      rvli_cached_block **block_out)
{
    uint32_t bucket;
    rvl_status status = rvli_bucket_get(allocator, pool, small, stream, &bucket);
    if (status != RVL_OK)
        return status;
    rvli_cached_block *block = rvli_block_new(allocator, bucket, addr, size);
    if (block == NULL)
        return RVL_ERR_HOST_OOM;
    allocator->bytes.reserved += size;
    rvli_free_insert(allocator, block);
    *block_out = block;
    return RVL_OK;
}

static bool exceeds(const rvli_allocator *allocator, uint64_t limit, uint64_t more)
{
    return limit > 0 && (more > limit || allocator->bytes.reserved > limit - more);
}

/* Makes a block for a request, from a new segment or by mapping pages. The block is in no set. */
static rvl_status new_segment(rvli_allocator *allocator, const rvli_request *request,
                              uint32_t bucket, uint64_t rounded, rvli_cached_block **block_out)
{
    uint64_t size = segment_bytes(&allocator->settings, rounded);
    if (!request->unlimited && exceeds(allocator, allocator->allowed_bytes, size))
        return RVL_ERR_DEVICE_OOM;
    if (allocator->settings.expandable)
        return rvli_expand(allocator, bucket, rounded, request->unlimited, block_out);
    if (!request->unlimited && exceeds(allocator, allocator->capacity_bytes, size))
        return RVL_ERR_DEVICE_OOM;
    rvli_cached_block *block = rvli_block_new(allocator, bucket, 0, size);
    if (block == NULL)
        return RVL_ERR_HOST_OOM;
    block->addr = allocator->change(allocator->owner, RVLI_CHANGE_ALLOC, 0, size, request->stream);
    if (block->addr == 0) {
        rvli_pool_put(&allocator->blocks, block);
        return RVL_ERR_NOT_FOUND;
    }
    block->segment = allocator->segment_count++;
    allocator->bytes.reserved += size;
    *block_out = block;
    return RVL_OK;
}

static void complete_all(rvli_allocator *allocator)
{
    while (allocator->pending != NULL) {
        rvli_cached_block *block = allocator->pending;
        allocator->change(allocator->owner, RVLI_CHANGE_COMPLETE, block->event, block->size, 0);
        rvli_allocator_complete(allocator, block);
    }
}

rvl_status rvli_allocator_empty_cache(rvli_allocator *allocator)
{
    complete_all(allocator);
    rvl_status status = rvli_allocator_list_cached(allocator, SIZE_MAX);
    return status == RVL_OK ? rvli_allocator_release_list(allocator) : status;
}

/* The bytes that garbage collection has to reclaim. 0: it need not run, or no fraction is set. */
static uint64_t garbage_target(const rvli_allocator *allocator)
{
    double threshold = allocator->settings.gc_threshold;
    uint64_t bound = (uint64_t)(threshold * (double)allocator->allowed_bytes);
    if (bound == 0 || allocator->bytes.reserved <= bound)
        return 0;
    return allocator->bytes.reserved - bound;
}

static rvl_status collect_garbage(rvli_allocator *allocator)
{
    uint64_t target = garbage_target(allocator);
    if (target == 0)
        return RVL_OK;
    rvl_status status = rvli_allocator_list_garbage(allocator, target);
    return status == RVL_OK ? rvli_allocator_release_list(allocator) : status;
}

/* Releases blocks above max_split and tries again. */
static rvl_status retry_oversize(rvli_allocator *allocator, const rvli_request *request,
                                 uint32_t bucket, uint64_t rounded, rvli_cached_block **block_out)
{
    bool enough = false;
    if (allocator->settings.max_split_bytes == UINT64_MAX)
        return RVL_ERR_DEVICE_OOM;
    rvl_status status = rvli_allocator_list_oversize(allocator, request, &enough);
    if (status == RVL_OK)
        status = rvli_allocator_release_list(allocator);
    if (status != RVL_OK)
        return status;
    return enough ? new_segment(allocator, request, bucket, rounded, block_out)
                  : RVL_ERR_DEVICE_OOM;
}

static rvl_status find_memory(rvli_allocator *allocator, const rvli_request *request,
                              uint32_t bucket, uint64_t rounded, rvli_cached_block **block_out)
{
    rvl_status status = request->unlimited ? RVL_OK : collect_garbage(allocator);
    if (status == RVL_OK)
        status = new_segment(allocator, request, bucket, rounded, block_out);
    if (status == RVL_ERR_DEVICE_OOM)
        status = retry_oversize(allocator, request, bucket, rounded, block_out);
    if (status != RVL_ERR_DEVICE_OOM)
        return status;
    status = rvli_allocator_empty_cache(allocator);
    if (status != RVL_OK)
        return status;
    allocator->retries++;
    return new_segment(allocator, request, bucket, rounded, block_out);
}

/* ---- Following the recording where the model differs ---- */

static rvl_status place(rvli_allocator *allocator, const rvli_request *request, uint32_t bucket,
                        uint64_t rounded, rvli_cached_block **block_out)
{
    uint32_t side = allocator->buckets[bucket].side;
    allocator->misplaced = true;
    allocator->change(allocator->owner, RVLI_CHANGE_CATCH_UP, request->addr, rounded,
                      request->stream);
    rvli_cached_block *block = rvli_allocator_find_free(allocator, request->addr);
    rvl_status status = RVL_OK;
    if (block == NULL || block->addr != request->addr || block->size < rounded)
        status = rvli_allocator_add_segment(allocator, side / 2, side % 2 == 1, request->stream,
                                            request->addr, rounded, &block);
    if (status == RVL_OK) {
        rvli_free_remove(allocator, block);
        *block_out = block;
    }
    return status;
}

/*
 * Asks the device for memory at once, as a retry does. The cache may now have a block that fits,
 * since pending blocks were waited for, but a retry does not search it again.
 */
static rvl_status retry_recorded(rvli_allocator *allocator, const rvli_request *request,
                                 uint32_t bucket, uint64_t rounded, rvli_cached_block **block_out)
{
    rvli_request anyhow = *request;
    anyhow.unlimited = true;
    rvl_status status = new_segment(allocator, &anyhow, bucket, rounded, block_out);
    allocator->retries += status == RVL_OK ? 1 : 0;
    return status;
}

/* ---- Allocation ---- */

/* Splits a block that is in no set. *block_out gets the low addresses, the rest becomes free. */
static rvl_status divide(rvli_allocator *allocator, rvli_cached_block *rest, uint64_t size,
                         rvli_cached_block **block_out)
{
    rvli_cached_block *block = rvli_block_new(allocator, rest->bucket, rest->addr, size);
    if (block == NULL)
        return RVL_ERR_HOST_OOM;
    block->range = rest->range;
    block->segment = rest->segment;
    rvli_block_link(block, rest->prev, rest);
    rest->addr += size;
    rest->size -= size;
    rvli_free_insert(allocator, rest);
    *block_out = block;
    return RVL_OK;
}

static rvl_status take(rvli_allocator *allocator, const rvli_request *request,
                       rvli_cached_block *block, uint64_t rounded, rvli_cached_block **block_out)
{
    const rvli_bucket *bucket = rvli_bucket_of(allocator, block);
    if (should_split(allocator, bucket, block, rounded)) {
        rvl_status status = divide(allocator, block, rounded, &block);
        if (status != RVL_OK)
            return status;
    }
    block->use = RVLI_USE_LIVE;
    block->requested = request->size;
    block->event = request->event;
    allocator->bytes.allocated += block->size;
    allocator->bytes.requested += block->requested;
    *block_out = block;
    return RVL_OK;
}

rvl_status rvli_allocator_malloc(rvli_allocator *allocator, const rvli_request *request,
                                 rvli_cached_block **block_out)
{
    uint64_t rounded = rvli_allocator_round(&allocator->settings, request->size);
    uint32_t number;
    rvl_status status = rvli_bucket_get(allocator, request->pool, rounded <= RVLI_SMALL_SIZE,
                                        request->stream, &number);
    if (status != RVL_OK)
        return status;
    rvli_bucket *bucket = &allocator->buckets[number];
    allocator->misplaced = false;
    if (allocator->settings.gc_threshold > 0)
        allocator->sides[bucket->side].calls++;
    rvli_cached_block *block = find_free(allocator, bucket, rounded);
    if (block != NULL && (request->addr == 0 || request->addr == block->addr)) {
        note_tie(allocator, bucket, block);
        rvli_free_remove(allocator, block);
        return take(allocator, request, block, rounded, block_out);
    }
    status = RVL_ERR_NOT_FOUND;
    if (block == NULL)
        status = find_memory(allocator, request, number, rounded, &block);
    else if (request->retries)
        status = retry_recorded(allocator, request, number, rounded, &block);
    if (status == RVL_OK && request->addr != 0 && request->addr != block->addr) {
        rvli_free_insert(allocator, block);
        status = RVL_ERR_NOT_FOUND;
    }
    if (status == RVL_ERR_NOT_FOUND)
        status = place(allocator, request, number, rounded, &block);
    return status == RVL_OK ? take(allocator, request, block, rounded, block_out) : status;
}

rvl_status rvli_allocator_fail(rvli_allocator *allocator, const rvli_request *request)
{
    uint64_t rounded = rvli_allocator_round(&allocator->settings, request->size);
    uint32_t bucket;
    rvl_status status = rvli_bucket_get(allocator, request->pool, rounded <= RVLI_SMALL_SIZE,
                                        request->stream, &bucket);
    if (status == RVL_OK && allocator->settings.gc_threshold > 0)
        allocator->sides[allocator->buckets[bucket].side].calls++;
    return status;
}

/* Whether a request finds a block. *bucket_out: its bucket; UINT32_MAX: no memory to make one. */
static bool look(rvli_allocator *allocator, const rvli_request *request, uint64_t rounded,
                 uint32_t *bucket_out)
{
    *bucket_out = UINT32_MAX;
    return rvli_bucket_get(allocator, request->pool, rounded <= RVLI_SMALL_SIZE, request->stream,
                           bucket_out) == RVL_OK &&
           find_free(allocator, &allocator->buckets[*bucket_out], rounded) != NULL;
}

bool rvli_allocator_has_block(rvli_allocator *allocator, const rvli_request *request)
{
    uint32_t bucket;
    return look(allocator, request, rvli_allocator_round(&allocator->settings, request->size),
                &bucket);
}

uint64_t rvli_allocator_needs(const rvli_allocator *allocator, const rvli_request *request)
{
    uint64_t rounded = rvli_allocator_round(&allocator->settings, request->size);
    return allocator->bytes.reserved + segment_bytes(&allocator->settings, rounded);
}

bool rvli_allocator_would_release(rvli_allocator *allocator, const rvli_request *request)
{
    uint64_t rounded = rvli_allocator_round(&allocator->settings, request->size);
    uint64_t size = segment_bytes(&allocator->settings, rounded);
    uint32_t bucket;
    if (allocator->capacity_bytes == 0 || request->unlimited ||
        look(allocator, request, rounded, &bucket) || bucket == UINT32_MAX)
        return false;
    if (garbage_target(allocator) > 0 || exceeds(allocator, allocator->allowed_bytes, size))
        return true;
    if (allocator->settings.expandable)
        size = rvli_expand_bytes(allocator, bucket, rounded);
    return exceeds(allocator, allocator->capacity_bytes, size);
}

rvl_status rvli_allocator_carve(rvli_allocator *allocator, rvli_cached_block *room, uint64_t addr,
                                uint64_t size, uint64_t requested, rvli_cached_block **block_out)
{
    rvli_cached_block *block = room;
    rvli_free_remove(allocator, room);
    if (addr > room->addr) {
        rvl_status status = divide(allocator, room, addr - room->addr, &block);
        if (status != RVL_OK)
            return status;
        rvli_free_remove(allocator, room);
        rvli_free_insert(allocator, block);
    }
    block = room;
    if (size < room->size) {
        rvl_status status = divide(allocator, room, size, &block);
        if (status != RVL_OK)
            return status;
    }
    block->use = RVLI_USE_LIVE;
    block->requested = requested;
    allocator->bytes.allocated += block->size;
    allocator->bytes.requested += requested;
    *block_out = block;
    return RVL_OK;
}

/* ---- Freeing ---- */

void rvli_allocator_free(rvli_allocator *allocator, rvli_cached_block *block)
{
    allocator->bytes.allocated -= block->size;
    allocator->bytes.requested -= block->requested;
    allocator->bytes.pending += block->size;
    block->use = RVLI_USE_PENDING;
    block->left = NULL;
    block->right = allocator->pending;
    if (block->right != NULL)
        block->right->left = block;
    allocator->pending = block;
}

void rvli_allocator_complete(rvli_allocator *allocator, rvli_cached_block *block)
{
    if (block->left != NULL)
        block->left->right = block->right;
    else
        allocator->pending = block->right;
    if (block->right != NULL)
        block->right->left = block->left;
    allocator->bytes.pending -= block->size;
    rvli_block_merge(allocator, block, block->prev);
    rvli_block_merge(allocator, block, block->next);
    rvli_free_insert(allocator, block);
}
