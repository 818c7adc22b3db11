/* SPDX-License-Identifier: MIT */
#include "backends/sim/ranges.h"

#include <stdlib.h>
#include <string.h>

#include "backends/sim/sim.h"
#include "base/error.h"
#include "base/memory.h"

/* Bits of an accounted address: 6 of the device, 6 of the class, 52 of range and offset. */
#define DEVICE_SHIFT 58u
#define CLASS_SHIFT 52u

typedef struct backed_range {
    uint64_t addr;
    rvli_sim_range range;
} backed_range;

void rvli_sim_ranges_init(rvli_sim_ranges *ranges, bool backed, int device, uint64_t alignment)
{
    memset(ranges, 0, sizeof *ranges);
    ranges->alignment = alignment;
    ranges->backed = backed;
    ranges->device = (uint64_t)device;
    rvli_addrmap_init(&ranges->by_addr);
    rvli_pool_init(&ranges->pool, sizeof(backed_range));
}

void rvli_sim_ranges_destroy(rvli_sim_ranges *ranges)
{
    uint64_t addr = 0;
    for (uint32_t class = 0; class < RVLI_SIM_CLASSES; class ++) {
        for (uint32_t i = 0; i < ranges->classes[class].count; i++)
            free(ranges->classes[class].ranges[i].many);
        rvli_memory_free(ranges->classes[class].ranges,
                         ranges->classes[class].capacity * sizeof(rvli_sim_range));
    }
    for (backed_range *each = rvli_addrmap_ceil(&ranges->by_addr, 0, &addr); each != NULL;
         each = rvli_addrmap_ceil(&ranges->by_addr, addr + 1, &addr)) {
        rvli_sim_backed_release_range(each->addr, each->range.size);
        free(each->range.many);
    }
    rvli_addrmap_destroy(&ranges->by_addr);
    rvli_pool_destroy(&ranges->pool);
}

/* ---- Accounted: an address contains its range ---- */

static uint32_t class_of(uint64_t size)
{
    return size <= 1 ? 0 : 64u - (uint32_t)__builtin_clzll(size - 1);
}

static bool grow_class(rvli_sim_class *class)
{
    if (class->count < class->capacity)
        return true;
    uint32_t capacity = class->capacity ? class->capacity * 2 : 64;
    rvli_sim_range *ranges = rvli_memory_grow(class->ranges, class->capacity * sizeof *ranges,
                                              capacity * sizeof *ranges);
    if (ranges == NULL)
        return false;
    class->ranges = ranges;
    class->capacity = capacity;
    return true;
}

static rvl_status reserve_accounted(rvli_sim_ranges *ranges, uint64_t size, uint64_t *addr_out)
{
    uint32_t number = class_of(size);
    rvli_sim_class *class = &ranges->classes[number];
    uint32_t slot;
    if (class->free != 0) {
        slot = class->free - 1;
        class->free = class->ranges[slot].one_block;
    } else {
        if (number >= CLASS_SHIFT || class->count >= UINT64_C(1) << (CLASS_SHIFT - number))
            return rvli_error(RVL_ERR_DEVICE_OOM, "the simulated address space has no such range");
        if (!grow_class(class))
            return rvli_error(RVL_ERR_HOST_OOM, "no host memory for an address range");
        slot = class->count++;
    }
    class->ranges[slot] = (rvli_sim_range){.size = size};
    *addr_out =
        ranges->device << DEVICE_SHIFT | (uint64_t)number << CLASS_SHIFT | (uint64_t)slot << number;
    return RVL_OK;
}

int rvli_sim_ranges_device(uint64_t addr)
{
    return (int)(addr >> DEVICE_SHIFT);
}

rvli_sim_range *rvli_sim_ranges_slot(const rvli_sim_ranges *ranges, uint64_t addr,
                                     uint64_t *base_out)
{
    uint32_t number = addr >> CLASS_SHIFT & (RVLI_SIM_CLASSES - 1);
    if (addr >> DEVICE_SHIFT != ranges->device)
        return NULL;
    uint64_t slot = (addr & ((UINT64_C(1) << CLASS_SHIFT) - 1)) >> number;
    if (slot >= ranges->classes[number].count)
        return NULL;
    *base_out = addr >> number << number;
    return &ranges->classes[number].ranges[slot];
}

static void release_accounted(rvli_sim_ranges *ranges, uint64_t addr, rvli_sim_range *range)
{
    rvli_sim_class *class = &ranges->classes[addr >> CLASS_SHIFT & (RVLI_SIM_CLASSES - 1)];
    range->size = 0;
    range->one_block = class->free;
    class->free = (uint32_t)(range - class->ranges) + 1;
}

/* ---- Backed: the kernel chooses the addresses ---- */

static rvl_status reserve_backed(rvli_sim_ranges *ranges, uint64_t size, uint64_t *addr_out)
{
    backed_range *backed = rvli_pool_get(&ranges->pool);
    if (backed == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for an address range");
    *backed = (backed_range){.range = {.size = size}};
    rvl_status status = rvli_sim_backed_reserve(size, ranges->alignment, &backed->addr);
    if (status == RVL_OK) {
        status = rvli_addrmap_insert(&ranges->by_addr, backed->addr, backed);
        if (status != RVL_OK)
            rvli_sim_backed_release_range(backed->addr, size);
    }
    if (status != RVL_OK)
        rvli_pool_put(&ranges->pool, backed);
    else
        *addr_out = backed->addr;
    return status;
}

static rvli_sim_range *find_backed(const rvli_sim_ranges *ranges, uint64_t addr, uint64_t *base_out)
{
    backed_range *backed = rvli_addrmap_floor(&ranges->by_addr, addr, base_out);
    return backed != NULL ? &backed->range : NULL;
}

static void release_backed(rvli_sim_ranges *ranges, uint64_t addr)
{
    backed_range *backed = rvli_addrmap_remove(&ranges->by_addr, addr);
    rvli_sim_backed_release_range(addr, backed->range.size);
    rvli_pool_put(&ranges->pool, backed);
}

/* ---- Both ---- */

rvl_status rvli_sim_ranges_reserve(rvli_sim_ranges *ranges, uint64_t size, uint64_t *addr_out)
{
    return ranges->backed ? reserve_backed(ranges, size, addr_out)
                          : reserve_accounted(ranges, size, addr_out);
}

rvli_sim_range *rvli_sim_ranges_find(const rvli_sim_ranges *ranges, uint64_t addr,
                                     uint64_t *base_out)
{
    rvli_sim_range *range = ranges->backed ? find_backed(ranges, addr, base_out)
                                           : rvli_sim_ranges_slot(ranges, addr, base_out);
    if (range == NULL || range->size == 0 || addr - *base_out >= range->size)
        return NULL;
    return range;
}

rvl_status rvli_sim_ranges_release(rvli_sim_ranges *ranges, uint64_t addr, uint64_t size)
{
    uint64_t base = 0;
    rvli_sim_range *range = rvli_sim_ranges_find(ranges, addr, &base);
    if (range == NULL || base != addr || range->size != size)
        return rvli_error(RVL_ERR_INVALID, "not a whole reserved address range");
    if (range->count > 0)
        return rvli_error(RVL_ERR_INVALID, "something is still mapped in the address range");
    free(range->many);
    range->many = NULL;
    if (ranges->backed)
        release_backed(ranges, addr);
    else
        release_accounted(ranges, addr, range);
    return RVL_OK;
}

/* ---- Mappings of a range ---- */

rvli_sim_mapping rvli_sim_range_mapping(const rvli_sim_range *range, uint32_t i)
{
    if (range->many != NULL)
        return range->many->items[i];
    return (rvli_sim_mapping){
        .size = range->one_size, .block = range->one_block, .accessible = range->one_accessible};
}

/* Index of the first mapping that ends after offset. */
static uint32_t first_after(const rvli_sim_range *range, uint64_t offset)
{
    uint32_t low = 0, high = range->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        rvli_sim_mapping mapping = rvli_sim_range_mapping(range, middle);
        if (mapping.offset + mapping.size <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Makes room for one more mapping in the array, and moves the mapping in place into a new array. */
static bool make_many(rvli_sim_range *range)
{
    uint32_t capacity = range->many != NULL ? range->many->capacity : 0;
    if (capacity > range->count)
        return true;
    capacity = capacity ? capacity * 2 : 4;
    rvli_sim_mappings *many = realloc(range->many, sizeof *many + capacity * sizeof *many->items);
    if (many == NULL)
        return false;
    if (range->many == NULL && range->count == 1)
        many->items[0] = (rvli_sim_mapping){.size = range->one_size,
                                            .block = range->one_block,
                                            .accessible = range->one_accessible};
    many->capacity = capacity;
    range->many = many;
    return true;
}

rvl_status rvli_sim_range_map(rvli_sim_range *range, uint64_t offset, uint64_t size, uint32_t block)
{
    if (size > range->size - offset)
        return rvli_error(RVL_ERR_INVALID, "the block does not fit into the address range");
    if (offset == 0 && range->count == 0 && range->many == NULL) {
        range->one_size = size;
        range->one_block = block;
        range->one_accessible = 0;
        range->count = 1;
        return RVL_OK;
    }
    uint32_t at = first_after(range, offset);
    if (at < range->count && rvli_sim_range_mapping(range, at).offset < offset + size)
        return rvli_error(RVL_ERR_INVALID, "something is mapped at this address already");
    if (!make_many(range))
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a mapping");
    rvli_sim_mapping *items = range->many->items;
    memmove(&items[at + 1], &items[at], (range->count - at) * sizeof *items);
    items[at] = (rvli_sim_mapping){.offset = offset, .size = size, .block = block};
    range->count++;
    return RVL_OK;
}

uint32_t rvli_sim_range_whole(const rvli_sim_range *range, uint64_t offset, uint64_t size,
                              uint32_t *first_out)
{
    if (range->many == NULL) {
        *first_out = 0;
        return range->count == 1 && offset == 0 && size == range->one_size;
    }
    uint32_t first = first_after(range, offset);
    uint64_t end = offset + size, at = offset;
    uint32_t count = 0;
    while (at < end && first + count < range->count) {
        rvli_sim_mapping mapping = rvli_sim_range_mapping(range, first + count);
        if (mapping.offset != at || mapping.size > end - at)
            return 0;
        at += mapping.size;
        count++;
    }
    *first_out = first;
    return at == end ? count : 0;
}

bool rvli_sim_range_accessible(const rvli_sim_range *range, uint64_t offset, uint64_t size)
{
    uint64_t end = offset + size;
    if (size > range->size - offset)
        return false;
    for (uint32_t i = first_after(range, offset); offset < end; i++) {
        if (i >= range->count)
            return false;
        rvli_sim_mapping mapping = rvli_sim_range_mapping(range, i);
        if (mapping.offset > offset || !mapping.accessible)
            return false;
        offset = mapping.offset + mapping.size;
    }
    return true;
}

void rvli_sim_range_set_accessible(rvli_sim_range *range, uint32_t i, bool accessible)
{
    if (range->many != NULL)
        range->many->items[i].accessible = accessible;
    else
        range->one_accessible = accessible;
}

void rvli_sim_range_unmap(rvli_sim_range *range, uint32_t i, uint32_t count)
{
    if (range->many != NULL) {
        rvli_sim_mapping *items = range->many->items;
        memmove(&items[i], &items[i + count], (range->count - i - count) * sizeof *items);
    }
    range->count = (range->count - count) & 0x7FFFFFFFu;
}
