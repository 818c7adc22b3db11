/* SPDX-License-Identifier: MIT */
/* From the ids of one process to addresses: see ids.h. */
#include "replay/ids.h"

#include "base/memory.h"

#define CAPACITY_MIN 16u
#define HASH_FACTOR                                                                                \
    UINT64_C(0x9E3779B97F4A7C15) /* 2^64 / golden ratio: spreads rising ids evenly */

__extension__ typedef unsigned __int128 wide;

static size_t home_of(const rvli_replay_ids *ids, uint64_t id)
{
    return (size_t)(((wide)(id * HASH_FACTOR) * ids->capacity) >> 64);
}

static size_t next_of(const rvli_replay_ids *ids, size_t place)
{
    return place + 1 == ids->capacity ? 0 : place + 1;
}

/* Where the id is, or the empty slot that ends its search. There is always one. */
static size_t find(const rvli_replay_ids *ids, uint64_t id)
{
    size_t place = home_of(ids, id);
    while (ids->slots[place].addr != 0 && ids->slots[place].id != id)
        place = next_of(ids, place);
    return place;
}

bool rvli_replay_ids_reserve(rvli_replay_ids *ids)
{
    if (ids->count + 1 <= ids->capacity / 4 * 3)
        return true;
    rvli_replay_ids grown = {.capacity = CAPACITY_MIN};
    if (ids->capacity > 0)
        grown.capacity = ids->capacity + ids->capacity / 2;
    grown.slots = rvli_memory_alloc(grown.capacity * sizeof *grown.slots);
    if (grown.slots == NULL)
        return false;
    for (size_t i = 0; i < ids->capacity; i++) {
        if (ids->slots[i].addr != 0)
            rvli_replay_ids_insert(&grown, ids->slots[i].id, ids->slots[i].addr);
    }
    rvli_replay_ids_destroy(ids);
    *ids = grown;
    return true;
}

void rvli_replay_ids_insert(rvli_replay_ids *ids, uint64_t id, rvl_addr addr)
{
    ids->slots[find(ids, id)] = (rvli_replay_id_slot){.id = id, .addr = addr};
    ids->count++;
}

rvl_addr rvli_replay_ids_get(const rvli_replay_ids *ids, uint64_t id)
{
    return ids->capacity > 0 ? ids->slots[find(ids, id)].addr : 0;
}

void rvli_replay_ids_prefetch(const rvli_replay_ids *ids, uint64_t id)
{
    if (ids->capacity > 0)
        __builtin_prefetch(&ids->slots[home_of(ids, id)]);
}

/* Whether place lies in (from, to], going round the end. */
static bool lies_between(size_t from, size_t place, size_t to)
{
    return from <= to ? from < place && place <= to : from < place || place <= to;
}

/* Moves back what follows a hole and would no longer be found beyond it. */
static void close_hole(rvli_replay_ids *ids, size_t hole)
{
    size_t place = hole;
    for (;;) {
        place = next_of(ids, place);
        if (ids->slots[place].addr == 0)
            break;
        if (lies_between(hole, home_of(ids, ids->slots[place].id), place))
            continue;
        ids->slots[hole] = ids->slots[place];
        hole = place;
    }
    ids->slots[hole].addr = 0;
}

rvl_addr rvli_replay_ids_remove(rvli_replay_ids *ids, uint64_t id)
{
    if (ids->capacity == 0)
        return 0;
    size_t place = find(ids, id);
    rvl_addr addr = ids->slots[place].addr;
    if (addr == 0)
        return 0;
    close_hole(ids, place);
    ids->count--;
    return addr;
}

void rvli_replay_ids_destroy(rvli_replay_ids *ids)
{
    rvli_memory_free(ids->slots, ids->capacity * sizeof *ids->slots);
    *ids = (rvli_replay_ids){0};
}
