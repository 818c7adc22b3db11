/* SPDX-License-Identifier: MIT */
#include "base/intmap.h"

#include "base/error.h"
#include "base/memory.h"

#define FIRST_SLOTS_LOG2 6u

/* Fibonacci hashing: the high bits of the product mix all bits of the key. */
static size_t home(const rvli_intmap *map, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> map->shift);
}

/* The slot of a key, or the empty one where it would go. */
static rvli_intmap_slot *find(const rvli_intmap *map, uint64_t key)
{
    size_t at = home(map, key);
    while (map->slots[at].key != key && map->slots[at].key != 0)
        at = (at + 1) & map->mask;
    return &map->slots[at];
}

void rvli_intmap_destroy(rvli_intmap *map)
{
    if (map->slots != NULL)
        rvli_memory_free(map->slots, (map->mask + 1) * sizeof *map->slots);
    *map = (rvli_intmap){0};
}

static rvl_status grow(rvli_intmap *map)
{
    unsigned log2 = map->slots == NULL ? FIRST_SLOTS_LOG2 : 64 - map->shift + 1;
    rvli_intmap larger = {
        .slots = rvli_memory_alloc(((size_t)1 << log2) * sizeof *larger.slots),
        .mask = ((size_t)1 << log2) - 1,
        .count = map->count,
        .shift = 64 - log2,
    };
    if (larger.slots == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a table");
    for (size_t i = 0; map->slots != NULL && i <= map->mask; i++)
        if (map->slots[i].key != 0)
            *find(&larger, map->slots[i].key) = map->slots[i];
    rvli_intmap_destroy(map);
    *map = larger;
    return RVL_OK;
}

rvl_status rvli_intmap_insert(rvli_intmap *map, uint64_t key, uint64_t value)
{
    if (key == 0)
        return rvli_error(RVL_ERR_INVALID, "0 is no key");
    if (map->slots == NULL || map->count >= (map->mask + 1) / 4 * 3) {
        rvl_status status = grow(map);
        if (status != RVL_OK)
            return status;
    }
    rvli_intmap_slot *slot = find(map, key);
    if (slot->key == key)
        return rvli_error(RVL_ERR_INVALID, "the key is in the table already");
    *slot = (rvli_intmap_slot){key, value};
    map->count++;
    return RVL_OK;
}

bool rvli_intmap_get(const rvli_intmap *map, uint64_t key, uint64_t *value_out)
{
    if (map->slots == NULL || key == 0)
        return false;
    const rvli_intmap_slot *slot = find(map, key);
    if (slot->key != key)
        return false;
    if (value_out != NULL)
        *value_out = slot->value;
    return true;
}

void rvli_intmap_prefetch(const rvli_intmap *map, uint64_t key)
{
    if (map->slots != NULL)
        __builtin_prefetch(&map->slots[home(map, key)]);
}

/* Moves back what the gap at `gap` would hide from look-ups. */
static void close_gap(rvli_intmap *map, size_t gap)
{
    for (size_t at = (gap + 1) & map->mask; map->slots[at].key != 0; at = (at + 1) & map->mask) {
        size_t distance = (at - home(map, map->slots[at].key)) & map->mask;
        if (distance >= ((at - gap) & map->mask)) {
            map->slots[gap] = map->slots[at];
            gap = at;
        }
    }
    map->slots[gap].key = 0;
}

bool rvli_intmap_remove(rvli_intmap *map, uint64_t key, uint64_t *value_out)
{
    if (!rvli_intmap_get(map, key, value_out))
        return false;
    close_gap(map, (size_t)(find(map, key) - map->slots));
    map->count--;
    return true;
}
