/* SPDX-License-Identifier: MIT */
/*
 * Address ranges, and the blocks mapped in them.
 *
 * The simulator gives addresses and checks overlaps and ranges; here is who may reach what. A range
 * is aligned by reserving more than was asked for.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "backends/sim/sim.h"
#include "base/addrmap.h"
#include "internal.h"

typedef struct fake_range {
    uint64_t addr, size;         /* as the caller sees it */
    uint64_t sim_addr, sim_size; /* as the simulator does */
    uint64_t mappings;
} fake_range;

typedef struct fake_mapping {
    uint64_t addr, size;
    fake_block *block;
    fake_range *range;
    uint64_t readable; /* a bit for each device */
    uint64_t writable;
} fake_mapping;

static rvli_addrmap ranges;
static rvli_addrmap mappings;
static bool ready;

static void make_ready(void)
{
    if (ready)
        return;
    rvli_addrmap_init(&ranges);
    rvli_addrmap_init(&mappings);
    ready = true;
}

static bool whole_granules(uint64_t size)
{
    return size > 0 && size % FAKE_GRANULARITY == 0;
}

/* ---- Ranges ---- */

static CUresult reserve(uint64_t size, uint64_t alignment, uint64_t *addr_out)
{
    fake_range *range = calloc(1, sizeof *range);
    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->size = size;
    range->sim_size = size + alignment;
    CUresult result =
        fake_sim_result(rvli_sim_ops.reserve(fake_sim(), 0, range->sim_size, &range->sim_addr));
    if (result != CUDA_SUCCESS) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->addr = (range->sim_addr + alignment - 1) & ~(alignment - 1);
    if (rvli_addrmap_insert(&ranges, range->addr, range) != RVL_OK) {
        rvli_sim_ops.release_range(fake_sim(), 0, range->sim_addr, range->sim_size);
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *addr_out = range->addr;
    return CUDA_SUCCESS;
}

static CUresult release_range(fake_range *range)
{
    if (range->mappings > 0)
        return CUDA_ERROR_INVALID_VALUE;
    rvli_addrmap_remove(&ranges, range->addr);
    rvli_sim_ops.release_range(fake_sim(), 0, range->sim_addr, range->sim_size);
    free(range);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags)
{
    FAKE_ENTER(cuMemAddressReserve, FAKE_NEEDS_MEMORY);
    (void)addr; /* a wish */
    make_ready();
    uint64_t aligned = alignment > FAKE_GRANULARITY ? alignment : FAKE_GRANULARITY;
    if (ptr == NULL || !whole_granules(size) || (alignment & (alignment - 1)) != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > (uint64_t)INT64_MAX || aligned > (uint64_t)INT64_MAX - size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t reserved;
    CUresult result = reserve(size, aligned, &reserved);
    if (result == CUDA_SUCCESS)
        *ptr = reserved;
    return result;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    FAKE_ENTER(cuMemAddressFree, FAKE_NEEDS_MEMORY);
    make_ready();
    fake_range *range = rvli_addrmap_get(&ranges, ptr);
    if (range == NULL || range->size != size)
        return CUDA_ERROR_INVALID_VALUE;
    return release_range(range);
}

/* ---- Mappings ---- */

/* In place of the simulator's bytes, which nobody else sees, those that processes share. */
static bool map_shared(uint64_t addr, const fake_block *block)
{
    return block->memory < 0 || mmap((void *)(uintptr_t)addr, block->size, PROT_NONE,
                                     MAP_SHARED | MAP_FIXED, block->memory, 0) != MAP_FAILED;
}

static CUresult map(fake_range *range, uint64_t addr, fake_block *block)
{
    fake_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->addr = addr;
    mapping->size = block->size;
    mapping->block = block;
    mapping->range = range;
    CUresult result =
        fake_sim_result(rvli_sim_ops.map(fake_sim(), 0, addr, block->size, block->sim));
    if (result != CUDA_SUCCESS) {
        free(mapping);
        return result;
    }
    if (!map_shared(addr, block) || rvli_addrmap_insert(&mappings, addr, mapping) != RVL_OK) {
        rvli_sim_ops.unmap(fake_sim(), 0, addr, block->size);
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->mappings++;
    range->mappings++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
    FAKE_ENTER(cuMemMap, FAKE_NEEDS_MEMORY);
    make_ready();
    fake_charge(FAKE_CALL_cuMemMap, size);
    fake_block *block = fake_block_of(handle);
    fake_range *range = rvli_addrmap_floor(&ranges, ptr, NULL);
    if (block == NULL || flags != 0 || !whole_granules(size) || ptr % FAKE_GRANULARITY != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (range == NULL || ptr - range->addr > range->size ||
        size > range->size - (ptr - range->addr))
        return CUDA_ERROR_INVALID_VALUE;
    if (size > block->size)
        return CUDA_ERROR_INVALID_VALUE;
    if (offset != 0 || size != block->size)
        return CUDA_ERROR_NOT_SUPPORTED; /* measured with driver 580 */
    return map(range, ptr, block);
}

/* Whether [addr, addr + size) is a row of whole neighbouring mappings. */
static bool whole_mappings(uint64_t addr, uint64_t size)
{
    uint64_t done = 0;
    while (done < size) {
        const fake_mapping *mapping = rvli_addrmap_get(&mappings, addr + done);
        if (mapping == NULL || mapping->size > size - done)
            return false;
        done += mapping->size;
    }
    return size > 0;
}

static void forget_mapping(fake_mapping *mapping)
{
    rvli_addrmap_remove(&mappings, mapping->addr);
    mapping->range->mappings--;
    mapping->block->mappings--;
    fake_block_settle(mapping->block);
    free(mapping);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    FAKE_ENTER(cuMemUnmap, FAKE_NEEDS_MEMORY);
    make_ready();
    fake_charge(FAKE_CALL_cuMemUnmap, size);
    if (!whole_mappings(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fake_sim_result(rvli_sim_ops.unmap(fake_sim(), 0, ptr, size));
    if (result != CUDA_SUCCESS)
        return result;
    for (uint64_t done = 0; done < size;) {
        fake_mapping *mapping = rvli_addrmap_get(&mappings, ptr + done);
        done += mapping->size;
        forget_mapping(mapping);
    }
    return CUDA_SUCCESS;
}

/* ---- Access ---- */

static CUresult check_access(const CUmemAccessDesc *desc)
{
    if (desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED; /* host access: not modelled */
    if (!fake_device_exists(desc->location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    switch ((int)desc->flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Devices that are not named keep what they have. */
static CUresult set_access(fake_mapping *mapping, const CUmemAccessDesc *desc, size_t count)
{
    uint64_t readable = mapping->readable, writable = mapping->writable;
    for (size_t i = 0; i < count; i++) {
        uint64_t bit = UINT64_C(1) << desc[i].location.id;
        readable &= ~bit;
        writable &= ~bit;
        if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
            readable |= bit;
        if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            writable |= bit;
    }
    CUresult result = fake_sim_result(
        rvli_sim_ops.set_access(fake_sim(), 0, mapping->addr, mapping->size, readable != 0));
    if (result != CUDA_SUCCESS)
        return result;
    mapping->readable = readable;
    mapping->writable = writable;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    FAKE_ENTER(cuMemSetAccess, FAKE_NEEDS_MEMORY);
    make_ready();
    fake_charge(FAKE_CALL_cuMemSetAccess, size);
    if (desc == NULL || count == 0 || !whole_mappings(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_access(&desc[i]);
        if (result != CUDA_SUCCESS)
            return result;
    }
    for (uint64_t done = 0; done < size;) {
        fake_mapping *mapping = rvli_addrmap_get(&mappings, ptr + done);
        CUresult result = set_access(mapping, desc, count);
        if (result != CUDA_SUCCESS)
            return result;
        done += mapping->size;
    }
    return CUDA_SUCCESS;
}

bool fake_mapping_allows(uint64_t addr, uint64_t size, int device, bool write)
{
    make_ready();
    for (uint64_t done = 0; done < size;) {
        const fake_mapping *mapping = rvli_addrmap_floor(&mappings, addr + done, NULL);
        if (mapping == NULL || addr + done - mapping->addr >= mapping->size)
            return false;
        uint64_t mask = write ? mapping->writable : mapping->readable;
        if ((mask >> device & 1) == 0)
            return false;
        done = mapping->addr + mapping->size - addr;
    }
    return true;
}

/* ---- Statistics and reset ---- */

void fake_mappings_stats(fake_live *live)
{
    make_ready();
    live->mappings = mappings.count;
    live->ranges = ranges.count;
}

void fake_mappings_reset(void)
{
    uint64_t addr;
    fake_mapping *mapping;
    fake_range *range;
    make_ready();
    while ((mapping = rvli_addrmap_ceil(&mappings, 0, &addr)) != NULL) {
        rvli_sim_ops.unmap(fake_sim(), 0, addr, mapping->size);
        forget_mapping(mapping);
    }
    while ((range = rvli_addrmap_ceil(&ranges, 0, &addr)) != NULL)
        release_range(range);
    rvli_addrmap_destroy(&mappings);
    rvli_addrmap_destroy(&ranges);
    ready = false;
}
