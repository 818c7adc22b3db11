/* SPDX-License-Identifier: MIT */
#include "backends/cuda/arena.h"

static void *as_value(uint64_t size)
{
    return (void *)(uintptr_t)size;
}

static uint64_t as_size(const void *value)
{
    return (uint64_t)(uintptr_t)value;
}

rvl_status rvli_arena_init(rvli_arena *arena, uint64_t begin, uint64_t size)
{
    rvli_addrmap_init(&arena->free);
    arena->free_bytes = size;
    return rvli_addrmap_insert(&arena->free, begin, as_value(size));
}

void rvli_arena_destroy(rvli_arena *arena)
{
    rvli_addrmap_destroy(&arena->free);
    arena->free_bytes = 0;
}

uint64_t rvli_arena_take(rvli_arena *arena, uint64_t size)
{
    uint64_t begin = 0, length = 0;
    do {
        length = as_size(rvli_addrmap_ceil(&arena->free, begin + 1, &begin));
    } while (length != 0 && length < size);
    if (length == 0)
        return 0;
    /* Removing first leaves room in the map, so the insertions cannot fail for lack of memory. */
    rvli_addrmap_remove(&arena->free, begin);
    if (length > size &&
        rvli_addrmap_insert(&arena->free, begin + size, as_value(length - size)) != RVL_OK) {
        rvli_addrmap_insert(&arena->free, begin, as_value(length));
        return 0;
    }
    arena->free_bytes -= size;
    return begin;
}

rvl_status rvli_arena_give(rvli_arena *arena, uint64_t begin, uint64_t size)
{
    uint64_t freed = size, before = 0, after = 0;
    uint64_t length = as_size(rvli_addrmap_floor(&arena->free, begin, &before));
    bool joins_before = length != 0 && before + length == begin;
    uint64_t behind = as_size(rvli_addrmap_ceil(&arena->free, begin, &after));
    if (behind != 0 && begin + size == after) {
        rvli_addrmap_remove(&arena->free, after);
        size += behind;
    }
    if (joins_before) {
        rvli_addrmap_remove(&arena->free, before);
        begin = before;
        size += length;
    }
    rvl_status status = rvli_addrmap_insert(&arena->free, begin, as_value(size));
    if (status == RVL_OK)
        arena->free_bytes += freed;
    return status;
}
