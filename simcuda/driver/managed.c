/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/managed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "simcuda/driver/capture.h"

#define DEVICES_MAX 64

/*
 * The driver takes 64 pages at a time, assigns them one by one, and releases each page
 * separately when the memory on it is freed, as on an H200 (tests/simcuda/facts.c, managed).
 * Pages that were never assigned stay until the process ends, even if its contexts end before,
 * as on an H100 and an H200 (tests/simcuda/context_facts.c).
 */
#define BATCH_PAGES 64

typedef struct pages {
    struct pages *next;
    int device;
    uint64_t *ids; /* for each page of the range; 0: not on the device */
} pages;

/* Data behind a range of RVLI_RANGE_MANAGED. */
typedef struct memory {
    pages *on; /* one for each device that has some of its pages */
} memory;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t spare[DEVICES_MAX][BATCH_PAGES];
static size_t spares[DEVICES_MAX];

void rvli_managed_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset(spares, 0, sizeof spares);
}

static size_t count_pages(size_t bytes)
{
    return bytes / RVLI_PAGE_BYTES + (bytes % RVLI_PAGE_BYTES != 0);
}

/* ---- Pages, with the lock held ---- */

/* Returns 0 if the device is full. */
static uint64_t take_page(int device)
{
    while (spares[device] == 0) {
        size_t count = 0;
        while (count < BATCH_PAGES && rvli_physical_take(device, RVLI_PAGE_BYTES, "managed",
                                                         &spare[device][count]) == CUDA_SUCCESS)
            count++;
        spares[device] = count;
        if (count == 0)
            return 0;
    }
    return spare[device][--spares[device]];
}

static pages *pages_on(memory *of, int device, size_t count)
{
    pages *each = of->on;
    while (each != NULL && each->device != device)
        each = each->next;
    if (each != NULL)
        return each;
    each = calloc(1, sizeof *each);
    uint64_t *ids = calloc(count, sizeof *ids);
    if (each == NULL || ids == NULL) {
        free(each);
        free(ids);
        return NULL;
    }
    *each = (pages){of->on, device, ids};
    of->on = each;
    return each;
}

void rvli_managed_touch(const rvli_range *range, uint64_t addr, size_t bytes, int device)
{
    if (bytes == 0)
        return;
    pthread_mutex_lock(&mutex);
    pages *there = pages_on(range->of, device, count_pages(range->size_bytes));
    size_t first = (size_t)(addr - range->base) / RVLI_PAGE_BYTES;
    size_t last = (size_t)(addr - range->base + bytes - 1) / RVLI_PAGE_BYTES;
    for (size_t i = first; there != NULL && i <= last; i++)
        if (there->ids[i] == 0)
            there->ids[i] = take_page(device);
    pthread_mutex_unlock(&mutex);
}

void rvli_managed_free(const rvli_range *range)
{
    memory *of = range->of;
    while (of->on != NULL) {
        pages *first = of->on;
        of->on = first->next;
        for (size_t i = 0; i < count_pages(range->size_bytes); i++)
            if (first->ids[i] != 0)
                rvli_physical_give(first->ids[i]);
        free(first->ids);
        free(first);
    }
    free(of);
    munmap((void *)range->base, count_pages(range->size_bytes) * RVLI_PAGE_BYTES);
}

/* ---- Entry points ---- */

/* Maps readable and writable memory, aligned to a page. 0: no addresses left. */
static uint64_t map_memory(size_t bytes)
{
    uint64_t base = rvli_addresses_reserve(bytes, RVLI_PAGE_BYTES, 0);
    if (base == 0)
        return 0;
    if (mmap((void *)base, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED)
        return base;
    rvli_addresses_release(base, bytes);
    return 0;
}

static CUresult make(rvli_range *range)
{
    size_t taken = count_pages(range->size_bytes) * RVLI_PAGE_BYTES;
    range->of = calloc(1, sizeof(memory));
    range->base = range->of != NULL ? map_memory(taken) : 0;
    CUresult result = range->base != 0 ? rvli_range_add(range) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        if (range->base != 0)
            munmap((void *)range->base, taken);
        free(range->of);
    }
    return result;
}

CUresult cuMemAllocManaged(CUdeviceptr *addr, size_t size_bytes, unsigned int flags)
{
    rvli_range range = {.kind = RVLI_RANGE_MANAGED, .size_bytes = size_bytes, .flags = flags};
    CUresult result = rvli_current_device(&range.device);
    if (result == CUDA_SUCCESS && (addr == NULL || size_bytes == 0 || size_bytes > SIZE_MAX / 2 ||
                                   (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = rvli_capture_unsafe();
    if (result == CUDA_SUCCESS)
        result = make(&range);
    if (result == CUDA_SUCCESS)
        *addr = range.base;
    return result;
}

static CUresult find_managed(CUdeviceptr addr, size_t bytes, rvli_range *range_out)
{
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    return bytes > 0 && rvli_range_find(addr, range_out) && range_out->kind == RVLI_RANGE_MANAGED &&
                   range_out->size_bytes - (addr - range_out->base) >= bytes
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

/* After a prefetch to the host, the device keeps its page, as on an H200. */
CUresult cuMemPrefetchAsync(CUdeviceptr addr, size_t bytes, CUmemLocation location,
                            unsigned int flags, CUstream stream)
{
    rvli_range range;
    CUresult result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : find_managed(addr, bytes, &range);
    if (result == CUDA_SUCCESS)
        result = rvli_capture_refuse(stream);
    if (result != CUDA_SUCCESS || location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return result;
    if (!rvli_device_exists(location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    rvli_managed_touch(&range, addr, bytes, location.id);
    return CUDA_SUCCESS;
}

/* Advice moves no pages. */
CUresult cuMemAdvise(CUdeviceptr addr, size_t bytes, CUmem_advise advice, CUmemLocation location)
{
    rvli_range range;
    (void)advice;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && !rvli_device_exists(location.id))
        return CUDA_ERROR_INVALID_DEVICE;
    return find_managed(addr, bytes, &range);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr addr, size_t bytes, unsigned int flags)
{
    rvli_range range;
    (void)flags;
    CUresult result = find_managed(addr, bytes == 0 ? 1 : bytes, &range);
    return result == CUDA_SUCCESS ? rvli_capture_refuse(stream) : result;
}
