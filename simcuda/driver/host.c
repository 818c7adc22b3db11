/* SPDX-License-Identifier: MIT */
/* Pinned host memory, allocated or registered. It is real memory, which the machine counts. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/driver.h"
#include "simcuda/driver/host_pages.h"

#define CLEAR_PAGES_BYTES ((size_t)1 << 20) /* from this size on, the kernel makes the zeros */

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static CUresult count(const rvli_range *range)
{
    rvli_wire_answer answer;
    CUresult result = rvli_result(
        rvli_client_ask(RVLI_WIRE_HOST_TAKE, 0, whole_pages(range->size_bytes), NULL, &answer));
    if (result != CUDA_SUCCESS)
        return result;
    result = rvli_range_add(range);
    if (result != CUDA_SUCCESS)
        rvli_client_tell(RVLI_WIRE_HOST_GIVE, whole_pages(range->size_bytes), 0);
    return result;
}

static void *map_pages(size_t bytes)
{
    if (rvli_host_pages_shared(bytes))
        return rvli_host_pages_map(bytes);
    void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return got != MAP_FAILED ? got : NULL;
}

static void unmap_pages(void *memory, size_t bytes)
{
    if (rvli_host_pages_has(memory))
        rvli_host_pages_unmap(memory, bytes);
    else
        munmap(memory, bytes);
}

CUresult cuMemHostAlloc(void **memory, size_t size_bytes, unsigned int flags)
{
    rvli_range range = {.kind = RVLI_RANGE_HOST, .size_bytes = size_bytes, .flags = flags};
    CUresult result = rvli_current_device(&range.device);
    if (result == CUDA_SUCCESS)
        result = rvli_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (memory == NULL || size_bytes == 0 || size_bytes > SIZE_MAX / 2)
        return CUDA_ERROR_INVALID_VALUE;
    void *got = map_pages(size_bytes);
    if (got == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range.base = (uintptr_t)got;
    result = count(&range);
    if (result == CUDA_SUCCESS)
        *memory = got;
    else
        unmap_pages(got, size_bytes);
    return result;
}

CUresult cuMemAllocHost(void **memory, size_t size_bytes)
{
    return cuMemHostAlloc(memory, size_bytes, 0);
}

void rvli_host_free(const rvli_range *range)
{
    if (range->kind == RVLI_RANGE_HOST)
        unmap_pages((void *)range->base, range->size_bytes);
    rvli_client_tell(RVLI_WIRE_HOST_GIVE, whole_pages(range->size_bytes), 0);
}

CUresult cuMemFreeHost(void *memory)
{
    rvli_range range;
    CUresult result = rvli_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!rvli_range_take((uintptr_t)memory, RVLI_RANGE_HOST, &range))
        return CUDA_ERROR_INVALID_VALUE;
    rvli_host_free(&range);
    return CUDA_SUCCESS;
}

/*
 * A program that backs up a model's weights or offloads an optimizer copies gigabytes of unknown
 * content. Writing zeros would take as much real memory. So pages are dropped where the kernel
 * replaces them by zeros. MADV_FREE detects that: it fails for pages of a file or of shared
 * memory, which would keep their content, and for locked pages.
 */
void rvli_host_clear(void *memory, size_t size_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)memory;
    if (rvli_host_pages_has(memory))
        return; /* their content does not matter */
    uintptr_t first = (base + page - 1) / page * page, last = (base + size_bytes) / page * page;
    if (size_bytes < CLEAR_PAGES_BYTES || madvise((void *)first, last - first, MADV_FREE) != 0 ||
        madvise((void *)first, last - first, MADV_DONTNEED) != 0) {
        memset(memory, 0, size_bytes);
        return;
    }
    memset(memory, 0, first - base);
    memset((void *)last, 0, base + size_bytes - last);
}

/* Whether all pages of a range are mapped. msync() with MS_ASYNC only checks this. */
static bool is_mapped(uintptr_t base, size_t size_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = base & ~(page - 1);
    return msync((void *)begin, base + size_bytes - begin, MS_ASYNC) == 0 || errno != ENOMEM;
}

CUresult cuMemHostRegister(void *memory, size_t size_bytes, unsigned int flags)
{
    rvli_range range = {.kind = RVLI_RANGE_REGISTERED,
                        .base = (uintptr_t)memory,
                        .size_bytes = size_bytes,
                        .flags = flags};
    rvli_range there;
    CUresult result = rvli_current_device(&range.device);
    if (result == CUDA_SUCCESS)
        result = rvli_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (memory == NULL || size_bytes == 0 || size_bytes > UINTPTR_MAX - range.base)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_mapped(range.base, size_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY; /* as on an H100, for addresses without memory */
    if (rvli_range_find(range.base, &there) || rvli_range_find(range.base + size_bytes - 1, &there))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return count(&range);
}

CUresult cuMemHostUnregister(void *memory)
{
    rvli_range range;
    CUresult result = rvli_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (!rvli_range_take((uintptr_t)memory, RVLI_RANGE_REGISTERED, &range))
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    rvli_host_free(&range);
    return CUDA_SUCCESS;
}

static bool find_pinned(const void *memory, rvli_range *range_out)
{
    return rvli_range_find((uintptr_t)memory, range_out) &&
           (range_out->kind == RVLI_RANGE_HOST || range_out->kind == RVLI_RANGE_REGISTERED);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *addr, void *memory, unsigned int flags)
{
    rvli_range range;
    if (addr == NULL || flags != 0 || !find_pinned(memory, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *addr = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *memory)
{
    rvli_range range;
    if (flags == NULL || !find_pinned(memory, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = range.flags;
    return CUDA_SUCCESS;
}
