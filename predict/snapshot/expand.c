/* SPDX-License-Identifier: MIT */
/* Expandable segments: ranges of addresses, and mapping and unmapping their pages. */
#include <stdlib.h>

#include "predict/snapshot/allocator_internal.h"

static uint64_t page_bytes(const rvli_allocator *allocator, const rvli_bucket *bucket)
{
    return rvli_is_small(bucket) ? RVLI_SMALL_BUFFER : allocator->settings.large_segment_bytes;
}

static uint64_t round_up(uint64_t bytes, uint64_t page)
{
    return (bytes + page - 1) / page * page;
}

uint64_t rvli_whole_pages(const rvli_cached_block *block, uint64_t *first_out)
{
    const rvli_snapshot_range *range = block->range;
    uint64_t begin = round_up(block->addr - range->base, range->page);
    uint64_t end = (block->addr + block->size - range->base) / range->page * range->page;
    *first_out = range->base + begin;
    return end > begin ? end - begin : 0;
}

/* ---- Ranges ---- */

rvl_status rvli_snapshot_range_add(rvli_allocator *allocator, uint32_t bucket, uint64_t base,
                                   uint64_t size, rvli_cached_block **block_out)
{
    rvli_snapshot_range *range = malloc(sizeof *range);
    rvli_cached_block *block = rvli_block_new(allocator, bucket, base, size);
    if (range == NULL || block == NULL) {
        free(range);
        if (block != NULL)
            rvli_pool_put(&allocator->blocks, block);
        return RVL_ERR_HOST_OOM;
    }
    *range = (rvli_snapshot_range){.next = allocator->ranges,
                                   .base = base,
                                   .size = size,
                                   .page = page_bytes(allocator, &allocator->buckets[bucket])};
    if (range->next != NULL)
        range->next->prev = range;
    allocator->ranges = range;
    block->range = range;
    block->mapped = false;
    rvli_unmapped_insert(allocator, block);
    *block_out = block;
    return RVL_OK;
}

static void drop_range(rvli_allocator *allocator, rvli_snapshot_range *range)
{
    if (range->prev != NULL)
        range->prev->next = range->next;
    else
        allocator->ranges = range->next;
    if (range->next != NULL)
        range->next->prev = range->prev;
    free(range);
}

static rvl_status new_range(rvli_allocator *allocator, uint32_t bucket,
                            rvli_cached_block **block_out)
{
    const rvli_bucket *owner = &allocator->buckets[bucket];
    uint64_t size = round_up(allocator->range_bytes, page_bytes(allocator, owner));
    uint64_t base = allocator->change(allocator->owner, RVLI_CHANGE_RANGE, 0, size, owner->stream);
    return base != 0 ? rvli_snapshot_range_add(allocator, bucket, base, size, block_out)
                     : RVL_ERR_NOT_FOUND;
}

/* ---- Mapping ---- */

rvl_status rvli_map(rvli_allocator *allocator, rvli_cached_block *block, uint64_t size,
                    bool unlimited)
{
    uint64_t mapped = round_up(size, block->range->page);
    uint64_t capacity = unlimited ? 0 : allocator->capacity_bytes;
    if (capacity > 0 && (mapped > capacity || allocator->bytes.reserved > capacity - mapped))
        return RVL_ERR_DEVICE_OOM;
    rvli_cached_block *rest = NULL;
    if (mapped < block->size) {
        rest = rvli_block_new(allocator, block->bucket, block->addr + mapped, block->size - mapped);
        if (rest == NULL)
            return RVL_ERR_HOST_OOM;
    }
    rvli_unmapped_remove(allocator, block);
    block->mapped = true;
    if (rest != NULL) {
        rest->range = block->range;
        rest->mapped = false;
        rvli_block_link(rest, block, block->next);
        rvli_unmapped_insert(allocator, rest);
        block->size = mapped;
    }
    allocator->bytes.reserved += mapped;
    allocator->change(allocator->owner, RVLI_CHANGE_MAP, block->addr, mapped,
                      rvli_bucket_of(allocator, block)->stream);
    rvli_block_merge(allocator, block, block->prev);
    rvli_block_merge(allocator, block, block->next);
    rvli_free_insert(allocator, block);
    return RVL_OK;
}

rvl_status rvli_map_at(rvli_allocator *allocator, rvli_cached_block *block, uint64_t addr,
                       uint64_t size)
{
    if (addr > block->addr) {
        rvli_cached_block *before =
            rvli_block_new(allocator, block->bucket, block->addr, addr - block->addr);
        if (before == NULL)
            return RVL_ERR_HOST_OOM;
        rvli_unmapped_remove(allocator, block);
        before->range = block->range;
        before->mapped = false;
        rvli_block_link(before, block->prev, block);
        block->addr = addr;
        block->size -= before->size;
        rvli_unmapped_insert(allocator, before);
        rvli_unmapped_insert(allocator, block);
    }
    return rvli_map(allocator, block, size, true);
}

static bool has_room(const rvli_cached_block *block, uint64_t size)
{
    uint64_t bytes = 0;
    for (; bytes < size && block != NULL && block->use == RVLI_USE_FREE; block = block->next)
        bytes += block->size;
    return bytes >= size;
}

/* The lowest chain of free and unmapped blocks that is long enough; NULL: none. */
static rvli_cached_block *find_chain(const rvli_bucket *bucket, uint64_t size)
{
    rvli_cached_block *at = rvli_blocks_at_least(bucket->unmapped, 0, 0);
    for (; at != NULL; at = rvli_blocks_after(bucket->unmapped, at)) {
        rvli_cached_block *first =
            at->prev != NULL && at->prev->use == RVLI_USE_FREE ? at->prev : at;
        if (has_room(first, size))
            return first;
    }
    return NULL;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t rvli_expand_bytes(const rvli_allocator *allocator, uint32_t bucket, uint64_t size)
{
    uint64_t page = page_bytes(allocator, &allocator->buckets[bucket]), found = 0, mapped = 0;
    const rvli_cached_block *block = find_chain(&allocator->buckets[bucket], size);
    if (block == NULL)
        return round_up(size, page);
    for (; found < size && block != NULL; block = block->next) {
        uint64_t bytes = block->size;
        if (!block->mapped) {
            bytes = round_up(smaller(size - found, block->size), page);
            mapped += bytes;
        }
        found += bytes;
    }
    return mapped;
}

rvl_status rvli_expand(rvli_allocator *allocator, uint32_t bucket, uint64_t size, bool unlimited,
                       rvli_cached_block **block_out)
{
    rvl_status status = RVL_OK;
    rvli_cached_block *block = find_chain(&allocator->buckets[bucket], size);
    if (block == NULL)
        status = new_range(allocator, bucket, &block);
    if (status == RVL_OK && !block->mapped)
        status = rvli_map(allocator, block, smaller(block->size, size), unlimited);
    while (status == RVL_OK && block->size < size) {
        rvli_cached_block *next = block->next;
        if (next == NULL) /* no more addresses: the request is larger than the range */
            return RVL_ERR_DEVICE_OOM;
        status = rvli_map(allocator, next, smaller(size - block->size, next->size), unlimited);
        if (status == RVL_OK)
            block = next;
    }
    if (status != RVL_OK)
        return status;
    rvli_free_remove(allocator, block);
    *block_out = block;
    return RVL_OK;
}

/* ---- Unmapping ---- */

/*
 * Makes a block for the bytes that stay mapped before or behind the pages. *block_out is NULL if
 * there are none.
 */
static rvl_status keep(rvli_allocator *allocator, const rvli_cached_block *from, uint64_t addr,
                       uint64_t size, rvli_cached_block **block_out)
{
    *block_out = NULL;
    if (size == 0)
        return RVL_OK;
    *block_out = rvli_block_new(allocator, from->bucket, addr, size);
    if (*block_out == NULL)
        return RVL_ERR_HOST_OOM;
    (*block_out)->range = from->range;
    return RVL_OK;
}

rvl_status rvli_unmap(rvli_allocator *allocator, rvli_cached_block *block)
{
    uint64_t first;
    uint64_t size = rvli_whole_pages(block, &first);
    rvli_cached_block *before, *after;
    if (size == 0)
        return RVL_OK;
    rvl_status status = keep(allocator, block, block->addr, first - block->addr, &before);
    if (status != RVL_OK)
        return status;
    status = keep(allocator, block, first + size, block->addr + block->size - first - size, &after);
    if (status != RVL_OK) {
        if (before != NULL)
            rvli_pool_put(&allocator->blocks, before);
        return status;
    }
    rvli_free_remove(allocator, block);
    if (before != NULL) {
        rvli_block_link(before, block->prev, block);
        rvli_free_insert(allocator, before);
    }
    if (after != NULL) {
        rvli_block_link(after, block, block->next);
        rvli_free_insert(allocator, after);
    }
    block->addr = first;
    block->size = size;
    block->mapped = false;
    rvli_block_merge(allocator, block, block->prev);
    rvli_block_merge(allocator, block, block->next);
    allocator->bytes.reserved -= size;
    allocator->change(allocator->owner, RVLI_CHANGE_UNMAP, first, size,
                      rvli_bucket_of(allocator, block)->stream);
    if (block->prev != NULL || block->next != NULL) {
        rvli_unmapped_insert(allocator, block);
        return RVL_OK;
    }
    drop_range(allocator, block->range);
    rvli_pool_put(&allocator->blocks, block);
    return RVL_OK;
}
