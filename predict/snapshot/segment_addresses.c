/* SPDX-License-Identifier: MIT */
/* Places of segments, by their first address. */
#include "predict/snapshot/segment_addresses.h"

#include "predict/snapshot/allocator.h"

/* Far above the addresses of a driver, so that made-up addresses never meet recorded ones. */
#define FIRST_ADDRESS (UINT64_C(1) << 62)

void rvli_places_init(rvli_places *places)
{
    *places = (rvli_places){.next = FIRST_ADDRESS};
    rvli_addrmap_init(&places->taken);
}

void rvli_places_destroy(rvli_places *places)
{
    rvli_addrmap_destroy(&places->taken);
}

rvl_status rvli_places_take(rvli_places *places, uint64_t addr, uint64_t size)
{
    rvl_status status = rvli_addrmap_insert(&places->taken, addr, (void *)(uintptr_t)(addr + size));
    return status == RVL_ERR_INVALID ? RVL_OK : status;
}

static bool is_there(const rvli_places *places, uint64_t addr, uint64_t size)
{
    uint64_t behind = 0;
    if (addr == 0 || addr % RVLI_SMALL_BUFFER != 0 || addr >= FIRST_ADDRESS - size)
        return false;
    uintptr_t end = (uintptr_t)rvli_addrmap_floor(&places->taken, addr, NULL);
    return end <= addr &&
           (rvli_addrmap_ceil(&places->taken, addr, &behind) == NULL || behind >= addr + size);
}

uint64_t rvli_places_take_wanted(rvli_places *places, uint64_t size)
{
    uint64_t addr = places->wanted;
    if (!places->ranges && is_there(places, addr, size) &&
        rvli_places_take(places, addr, size) == RVL_OK)
        return addr;
    return rvli_places_make_up(places, size);
}

uint64_t rvli_places_take_range(rvli_places *places, uint64_t size)
{
    uint64_t addr = places->wanted;
    bool is_begin = places->ranges && addr != 0 && addr % RVLI_SMALL_BUFFER == 0;
    return is_begin && addr < FIRST_ADDRESS - size ? addr : rvli_places_make_up(places, size);
}

uint64_t rvli_places_make_up(rvli_places *places, uint64_t size)
{
    places->next -= size;
    return places->next;
}

void rvli_places_leave(rvli_places *places, uint64_t addr)
{
    (void)rvli_addrmap_remove(&places->taken, addr);
}
