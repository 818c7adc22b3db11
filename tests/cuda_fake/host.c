/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory: what was registered, and what was allocated.
 *
 * Regions never overlap. Each has a number that is never used again, by which a queued copy knows
 * whether the region that it was queued for is still there.
 */
#include <stdlib.h>

#include "base/addrmap.h"
#include "internal.h"

#define PAGE 4096u
#define REGISTER_FLAGS                                                                             \
    (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |    \
     CU_MEMHOSTREGISTER_READ_ONLY)
#define ALLOC_FLAGS                                                                                \
    (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED)

typedef struct fake_region {
    uint64_t number;
    uint64_t addr, size;
    bool allocated;
} fake_region;

static rvli_addrmap regions;
static bool ready;
static uint64_t last_number;
static uint64_t pinned_bytes;
static uint64_t allocated_count;

static void make_ready(void)
{
    if (!ready)
        rvli_addrmap_init(&regions);
    ready = true;
}

/* The last region that begins at or below an address. */
static fake_region *region_below(uint64_t addr)
{
    return rvli_addrmap_floor(&regions, addr, NULL);
}

uint64_t fake_host_region(const void *host, uint64_t size)
{
    make_ready();
    uint64_t addr = (uintptr_t)host;
    const fake_region *region = region_below(addr);
    if (region == NULL || addr - region->addr > region->size ||
        size > region->size - (addr - region->addr))
        return 0;
    return region->number;
}

static bool overlaps(uint64_t addr, uint64_t size)
{
    const fake_region *region = region_below(addr + size - 1);
    return region != NULL && region->addr + region->size > addr;
}

static CUresult check_room(uint64_t size)
{
    uint64_t limit = fake_settings_get()->registered_limit_bytes;
    if (limit == 0 || (pinned_bytes <= limit && size <= limit - pinned_bytes))
        return CUDA_SUCCESS;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add(uint64_t addr, uint64_t size, bool allocated)
{
    fake_region *region = calloc(1, sizeof *region);
    if (region == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    region->number = last_number + 1;
    region->addr = addr;
    region->size = size;
    region->allocated = allocated;
    if (rvli_addrmap_insert(&regions, addr, region) != RVL_OK) {
        free(region);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    last_number++;
    pinned_bytes += size;
    allocated_count += allocated;
    return CUDA_SUCCESS;
}

static void drop(fake_region *region)
{
    rvli_addrmap_remove(&regions, region->addr);
    pinned_bytes -= region->size;
    allocated_count -= region->allocated;
    if (region->allocated)
        free((void *)(uintptr_t)region->addr);
    free(region);
}

/* ---- Registered ---- */

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    FAKE_ENTER(cuMemHostRegister, FAKE_NEEDS_CONTEXT);
    make_ready();
    uint64_t addr = (uintptr_t)p;
    if (p == NULL || bytesize == 0 || bytesize > UINT64_MAX - addr ||
        (Flags & ~(unsigned)REGISTER_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (overlaps(addr, bytesize))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    CUresult result = check_room(bytesize);
    return result == CUDA_SUCCESS ? add(addr, bytesize, false) : result;
}

CUresult cuMemHostUnregister(void *p)
{
    FAKE_ENTER(cuMemHostUnregister, FAKE_NEEDS_CONTEXT);
    make_ready();
    if (p == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    fake_region *region = rvli_addrmap_get(&regions, (uintptr_t)p);
    if (region == NULL || region->allocated)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    drop(region);
    return CUDA_SUCCESS;
}

/* ---- Allocated ---- */

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    FAKE_ENTER(cuMemHostAlloc, FAKE_NEEDS_CONTEXT);
    make_ready();
    if (pp == NULL || bytesize == 0 || (Flags & ~(unsigned)ALLOC_FLAGS) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_room(bytesize);
    if (result != CUDA_SUCCESS)
        return result;
    void *host = NULL;
    if (posix_memalign(&host, PAGE, bytesize) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* The C library may hand out what was registered and freed without a word to us. */
    result = overlaps((uintptr_t)host, bytesize) ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                 : add((uintptr_t)host, bytesize, true);
    if (result != CUDA_SUCCESS)
        free(host);
    else
        *pp = host;
    return result;
}

CUresult cuMemFreeHost(void *p)
{
    FAKE_ENTER(cuMemFreeHost, FAKE_NEEDS_CONTEXT);
    make_ready();
    fake_region *region = rvli_addrmap_get(&regions, (uintptr_t)p);
    if (region == NULL || !region->allocated)
        return CUDA_ERROR_INVALID_VALUE;
    drop(region);
    return CUDA_SUCCESS;
}

/* ---- Statistics and reset ---- */

void fake_host_stats(fake_stats *stats)
{
    make_ready();
    stats->pinned_bytes = pinned_bytes;
    stats->live.host_allocations = allocated_count;
    stats->live.registrations = regions.count - allocated_count;
}

void fake_host_reset(void)
{
    fake_region *region;
    make_ready();
    while ((region = rvli_addrmap_ceil(&regions, 0, NULL)) != NULL)
        drop(region);
    rvli_addrmap_destroy(&regions);
    ready = false;
}
