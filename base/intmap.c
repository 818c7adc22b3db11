/* SPDX-License-Identifier: MIT */
#include "base/intmap.h"

#include "base/error.h"
#include "base/memory.h"

#define FIRST_SLOTS ((size_t)64)

__extension__ typedef unsigned __int128 wide;

/* The high bits of the first product mix all bits of the key. */
static size_t home(const rvli_intmap *map, uint64_t key)
{
    uint64_t hash = key * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(((wide)hash * map->capacity) >> 64);
}

static size_t after(const rvli_intmap *map, size_t at)
{
    return at + 1 < map->capacity ? at + 1 : 0;
}

/* Returns how far `to` lies after `from`, wrapping around the end. */
static size_t distance(const rvli_intmap *map, size_t from, size_t to)
{
    return to >= from ? to - from : to + map->capacity - from;
}

/* Returns the slot of a key, or the empty slot where it would be inserted. */
static rvli_intmap_slot *find(const rvli_intmap *map, uint64_t key)
{
    size_t at = home(map, key);
    while (map->slots[at].key != key && map->slots[at].key != 0)
        at = after(map, at);
    return &map->slots[at];
}

void rvli_intmap_destroy(rvli_intmap *map)
{
    if (map->slots != NULL)
        rvli_memory_free(map->slots, map->capacity * sizeof *map->slots);
    *map = (rvli_intmap){0};
}

static rvl_status grow(rvli_intmap *map)
{
    size_t capacity = map->slots == NULL ? FIRST_SLOTS : map->capacity + map->capacity / 2;
    rvli_intmap larger = {
        .slots = rvli_memory_alloc(capacity * sizeof *larger.slots),
        .capacity = capacity,
        .count = map->count,
    };
    if (larger.slots == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a table");
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key != 0)
            *find(&larger, map->slots[i].key) = map->slots[i];
    rvli_intmap_destroy(map);
    *map = larger;
    return RVL_OK;
}

rvl_status rvli_intmap_reserve(rvli_intmap *map)
{
    bool has_room = map->slots != NULL && map->count < map->capacity / 4 * 3;
    return has_room ? RVL_OK : grow(map);
}

rvl_status rvli_intmap_insert(rvli_intmap *map, uint64_t key, uint64_t value)
{
    if (key == 0)
        return rvli_error(RVL_ERR_INVALID, "0 is not a key");
    rvl_status status = rvli_intmap_reserve(map);
    if (status != RVL_OK)
        return status;
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

/* Moves entries back that look-ups could no longer reach across the gap at `gap`. */
static void close_gap(rvli_intmap *map, size_t gap)
{
    for (size_t at = after(map, gap); map->slots[at].key != 0; at = after(map, at)) {
        size_t from_home = distance(map, home(map, map->slots[at].key), at);
        if (from_home >= distance(map, gap, at)) {
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
