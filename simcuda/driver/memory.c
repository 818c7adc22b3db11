/* SPDX-License-Identifier: MIT */
/*
 * Device memory, and the map of all addresses that the driver has assigned.
 *
 * Physical memory comes in pages of 2 MiB. A request of up to half a page gets part of a shared
 * page, in steps of 512 bytes. A larger request gets its own pages. A shared page is released
 * with its last piece.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/addrmap.h"
#include "simcuda/driver/capture.h"
#include "simcuda/driver/checkpoint.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/contents.h"
#include "simcuda/driver/graph_memory.h"
#include "simcuda/driver/ipc.h"
#include "simcuda/driver/loaded.h"
#include "simcuda/driver/managed.h"
#include "simcuda/driver/owed.h"
#include "simcuda/driver/polled.h"
#include "simcuda/driver/pool.h"
#include "simcuda/driver/share.h"

#define PIECE_BYTES ((size_t)512)
#define PIECES (RVLI_PAGE_BYTES / PIECE_BYTES)
#define SHARED_MAX (RVLI_PAGE_BYTES / 2)

/* A page that small requests share. */
typedef struct chunk {
    struct chunk *next;
    int device;
    uint64_t base;
    uint64_t machine_id;
    unsigned pieces_used;
    unsigned char used[PIECES];
} chunk;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rvli_addrmap ranges;
static bool ranges_begun;
static uint64_t ranges_made;
static chunk *chunks;

CUresult rvli_result(rvl_status status)
{
    switch (status) {
    case RVL_OK:
        return CUDA_SUCCESS;
    case RVL_ERR_DEVICE_OOM:
    case RVL_ERR_HOST_OOM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case RVL_ERR_NO_DEVICE:
        return CUDA_ERROR_INVALID_DEVICE;
    case RVL_ERR_FORKED:
        return CUDA_ERROR_NOT_INITIALIZED;
    case RVL_ERR_NO_DRIVER:
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case RVL_ERR_NOT_SUPPORTED:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- Addresses ---- */

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/*
 * Recently released addresses. An allocator that frees memory and allocates as much again gets
 * the same addresses, without a system call. They fault as if they were unmapped.
 */
#define SPARES_MAX 64
static pthread_mutex_t spares_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t base;
    size_t size_bytes; /* 0: an empty entry */
} spares[SPARES_MAX];
static size_t spares_next; /* the next entry to be replaced */

static uint64_t take_spare(size_t size_bytes)
{
    uint64_t base = 0;
    pthread_mutex_lock(&spares_mutex);
    for (size_t i = 0; i < SPARES_MAX && base == 0; i++)
        if (spares[i].size_bytes == size_bytes) {
            base = spares[i].base;
            spares[i].size_bytes = 0;
        }
    pthread_mutex_unlock(&spares_mutex);
    return base;
}

static uint64_t reserve_at(uint64_t hint, size_t size_bytes, size_t align_bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    if (hint == 0 || hint % align_bytes != 0)
        return 0;
    void *got = mmap((void *)hint, size_bytes, PROT_NONE, flags, -1, 0);
    if (got == MAP_FAILED)
        return 0;
    if (got != (void *)hint) /* a kernel without the flag MAP_FIXED_NOREPLACE */
        munmap(got, size_bytes);
    return got == (void *)hint ? hint : 0;
}

static uint64_t reserve_anywhere(size_t size_bytes, size_t align_bytes)
{
    size_t with_slack = size_bytes + align_bytes;
    if (with_slack < size_bytes)
        return 0;
    void *got =
        mmap(NULL, with_slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED)
        return 0;
    uint64_t first = (uint64_t)got, base = round_up(first, align_bytes);
    if (base > first)
        munmap(got, base - first);
    munmap((void *)(base + size_bytes), first + with_slack - base - size_bytes);
    return base;
}

/* Also drops what contents.c knows of a backup in host memory that was at these addresses. */
uint64_t rvli_addresses_reserve(size_t size_bytes, size_t align_bytes, uint64_t hint)
{
    uint64_t base = hint == 0 && align_bytes == RVLI_PAGE_BYTES
                        ? take_spare(size_bytes)
                        : reserve_at(hint, size_bytes, align_bytes);
    if (base == 0)
        base = reserve_anywhere(size_bytes, align_bytes);
    if (base != 0)
        rvli_contents_forget(base, size_bytes);
    return base;
}

void rvli_addresses_release(uint64_t base, size_t size_bytes)
{
    pthread_mutex_lock(&spares_mutex);
    size_t place = spares_next++ % SPARES_MAX;
    uint64_t old = spares[place].base;
    size_t old_bytes = spares[place].size_bytes;
    spares[place].base = base;
    spares[place].size_bytes = size_bytes;
    pthread_mutex_unlock(&spares_mutex);
    if (old_bytes > 0)
        munmap((void *)old, old_bytes);
}

/* ---- Ranges ---- */

static rvli_range *find_locked(uint64_t addr)
{
    rvli_range *range = ranges_begun ? rvli_addrmap_floor(&ranges, addr, NULL) : NULL;
    return range != NULL && addr - range->base < range->size_bytes ? range : NULL;
}

bool rvli_range_on_device(const rvli_range *range)
{
    return range->kind != RVLI_RANGE_HOST && range->kind != RVLI_RANGE_REGISTERED &&
           range->kind != RVLI_RANGE_MANAGED;
}

bool rvli_range_find(uint64_t addr, rvli_range *range_out)
{
    pthread_mutex_lock(&mutex);
    const rvli_range *range = find_locked(addr);
    if (range != NULL)
        *range_out = *range;
    pthread_mutex_unlock(&mutex);
    return range != NULL;
}

bool rvli_range_any(rvli_range_kind kind)
{
    uint64_t at = 0;
    pthread_mutex_lock(&mutex);
    const rvli_range *each = ranges_begun ? rvli_addrmap_ceil(&ranges, 0, &at) : NULL;
    while (each != NULL && each->kind != kind)
        each = rvli_addrmap_ceil(&ranges, at + 1, &at);
    pthread_mutex_unlock(&mutex);
    return each != NULL;
}

static CUresult add_locked(const rvli_range *range)
{
    rvli_range *copy = malloc(sizeof *copy);
    if (!ranges_begun)
        rvli_addrmap_init(&ranges);
    ranges_begun = true;
    if (copy == NULL || rvli_addrmap_insert(&ranges, range->base, copy) != RVL_OK) {
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *copy = *range;
    copy->number = ++ranges_made;
    copy->context = rvli_current_context();
    return CUDA_SUCCESS;
}

CUresult rvli_range_add(const rvli_range *range)
{
    pthread_mutex_lock(&mutex);
    CUresult result = add_locked(range);
    pthread_mutex_unlock(&mutex);
    return result;
}

static bool take_locked(uint64_t base, rvli_range_kind kind, rvli_range *range_out)
{
    rvli_range *range = find_locked(base);
    if (range == NULL || range->base != base || range->kind != kind)
        return false;
    *range_out = *range;
    rvli_addrmap_remove(&ranges, base);
    free(range);
    return true;
}

bool rvli_range_take(uint64_t base, rvli_range_kind kind, rvli_range *range_out)
{
    pthread_mutex_lock(&mutex);
    bool taken = take_locked(base, kind, range_out);
    pthread_mutex_unlock(&mutex);
    return taken;
}

/* ---- Physical memory ---- */

CUresult rvli_physical_take_once(int device, size_t size_bytes, const char *kind, uint64_t *id_out)
{
    rvli_wire_answer answer;
    rvl_status status =
        rvli_client_ask(RVLI_WIRE_ALLOC, rvli_device_number(device), size_bytes, kind, &answer);
    if (status == RVL_OK)
        *id_out = answer.id;
    return rvli_result(status);
}

CUresult rvli_physical_take(int device, size_t size_bytes, const char *kind, uint64_t *id_out)
{
    CUresult result = rvli_physical_take_once(device, size_bytes, kind, id_out);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && rvli_pools_relieve(device))
        result = rvli_physical_take_once(device, size_bytes, kind, id_out);
    return result;
}

void rvli_physical_give(uint64_t id)
{
    rvli_client_tell(RVLI_WIRE_FREE, 0, id);
}

/* Takes pages and reserves their addresses. */
static CUresult take_pages(int device, size_t size_bytes, uint64_t *base_out, uint64_t *id_out)
{
    uint64_t base = rvli_addresses_reserve(size_bytes, RVLI_PAGE_BYTES, 0);
    if (base == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = rvli_physical_take(device, size_bytes, "cudaMalloc", id_out);
    if (result == CUDA_SUCCESS)
        *base_out = base;
    else
        rvli_addresses_release(base, size_bytes);
    return result;
}

static void give_pages(uint64_t base, size_t size_bytes, uint64_t id)
{
    rvli_contents_unshare(base); /* other processes may still have it */
    rvli_contents_forget(base, size_bytes);
    rvli_physical_give(id);
    rvli_addresses_release(base, size_bytes);
}

/* ---- Shared pages ---- */

/* The first run of so many free pieces. PIECES: there is none. */
static size_t find_place(const chunk *page, size_t pieces)
{
    size_t run = 0;
    for (size_t i = 0; i < PIECES; i++) {
        run = page->used[i] ? 0 : run + 1;
        if (run == pieces)
            return i + 1 - pieces;
    }
    return PIECES;
}

static void mark(chunk *page, size_t place, size_t pieces, bool used)
{
    memset(page->used + place, used, pieces);
    page->pieces_used =
        used ? page->pieces_used + (unsigned)pieces : page->pieces_used - (unsigned)pieces;
}

static CUresult add_chunk(int device)
{
    chunk *page = calloc(1, sizeof *page);
    if (page == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = take_pages(device, RVLI_PAGE_BYTES, &page->base, &page->machine_id);
    if (result != CUDA_SUCCESS) {
        free(page);
        return result;
    }
    page->device = device;
    page->next = chunks;
    chunks = page;
    return CUDA_SUCCESS;
}

static void drop_chunk_if_empty(chunk **link)
{
    chunk *page = *link;
    if (page->pieces_used > 0)
        return;
    *link = page->next;
    give_pages(page->base, RVLI_PAGE_BYTES, page->machine_id);
    free(page);
}

/* Finds the first page with room, or puts a new page at the front. */
static CUresult find_chunk(int device, size_t pieces, chunk ***link_out, size_t *place_out)
{
    for (chunk **link = &chunks; *link != NULL; link = &(*link)->next) {
        *place_out = (*link)->device == device ? find_place(*link, pieces) : PIECES;
        *link_out = link;
        if (*place_out < PIECES)
            return CUDA_SUCCESS;
    }
    *link_out = &chunks;
    *place_out = 0;
    return add_chunk(device);
}

static CUresult alloc_piece(int device, size_t size_bytes, uint64_t *addr_out)
{
    chunk **link;
    size_t place, pieces = round_up(size_bytes, PIECE_BYTES) / PIECE_BYTES;
    CUresult result = find_chunk(device, pieces, &link, &place);
    if (result != CUDA_SUCCESS)
        return result;
    const rvli_range range = {.kind = RVLI_RANGE_DEVICE,
                              .device = device,
                              .base = (*link)->base + place * PIECE_BYTES,
                              .size_bytes = size_bytes};
    result = add_locked(&range);
    if (result == CUDA_SUCCESS) {
        mark(*link, place, pieces, true);
        *addr_out = range.base;
    }
    drop_chunk_if_empty(link);
    return result;
}

static void free_piece(const rvli_range *range)
{
    rvli_contents_forget(range->base, range->size_bytes);
    chunk **link = &chunks;
    while (range->base - (*link)->base >= RVLI_PAGE_BYTES)
        link = &(*link)->next;
    mark(*link, (range->base - (*link)->base) / PIECE_BYTES,
         round_up(range->size_bytes, PIECE_BYTES) / PIECE_BYTES, false);
    drop_chunk_if_empty(link);
}

/* ---- Allocations ---- */

static CUresult alloc_pages(int device, size_t size_bytes, uint64_t *addr_out)
{
    rvli_range range = {.kind = RVLI_RANGE_DEVICE, .device = device, .size_bytes = size_bytes};
    size_t taken = round_up(size_bytes, RVLI_PAGE_BYTES);
    CUresult result = taken < size_bytes
                          ? CUDA_ERROR_OUT_OF_MEMORY
                          : take_pages(device, taken, &range.base, &range.machine_id);
    if (result != CUDA_SUCCESS)
        return result;
    result = rvli_range_add(&range);
    if (result == CUDA_SUCCESS)
        *addr_out = range.base;
    else
        give_pages(range.base, taken, range.machine_id);
    return result;
}

CUresult rvli_alloc(int device, size_t size_bytes, uint64_t *addr_out)
{
    if (size_bytes > SHARED_MAX)
        return alloc_pages(device, size_bytes, addr_out);
    pthread_mutex_lock(&mutex);
    CUresult result = alloc_piece(device, size_bytes, addr_out);
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_free(uint64_t addr)
{
    rvli_range range;
    pthread_mutex_lock(&mutex);
    bool known = take_locked(addr, RVLI_RANGE_DEVICE, &range);
    if (known && range.machine_id == 0)
        free_piece(&range);
    pthread_mutex_unlock(&mutex);
    if (known && range.machine_id != 0)
        give_pages(range.base, round_up(range.size_bytes, RVLI_PAGE_BYTES), range.machine_id);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool rvli_physical_find(const rvli_range *range, rvli_physical *physical_out)
{
    if (range->kind != RVLI_RANGE_DEVICE)
        return false;
    *physical_out = (rvli_physical){range->machine_id, range->base,
                                    round_up(range->size_bytes, RVLI_PAGE_BYTES)};
    if (range->machine_id != 0)
        return true;
    pthread_mutex_lock(&mutex);
    const chunk *page = chunks;
    while (page != NULL && range->base - page->base >= RVLI_PAGE_BYTES)
        page = page->next;
    if (page != NULL)
        *physical_out = (rvli_physical){page->machine_id, page->base, RVLI_PAGE_BYTES};
    pthread_mutex_unlock(&mutex);
    return page != NULL; /* else another thread has freed it */
}

/* ---- A context is destroyed ---- */

static void give_host(const rvli_range *range)
{
    rvli_range taken;
    if (rvli_range_take(range->base, range->kind, &taken))
        rvli_host_free(&taken);
}

static void give_managed(const rvli_range *range)
{
    rvli_range taken;
    if (rvli_range_take(range->base, RVLI_RANGE_MANAGED, &taken))
        rvli_managed_free(&taken);
}

static void give_of_context(const rvli_range *range)
{
    if (range->kind == RVLI_RANGE_DEVICE)
        (void)rvli_free(range->base);
    else if (range->kind == RVLI_RANGE_HOST || range->kind == RVLI_RANGE_REGISTERED)
        give_host(range);
    else if (range->kind == RVLI_RANGE_MANAGED)
        give_managed(range);
    else if (range->kind == RVLI_RANGE_OPENED)
        rvli_ipc_close(range->base);
}

/* The first range of a device at or above an address. */
static bool next_range(uint64_t from, int device, rvli_range *range_out)
{
    uint64_t at = from;
    const rvli_range *each = NULL;
    pthread_mutex_lock(&mutex);
    while (ranges_begun && (each = rvli_addrmap_ceil(&ranges, at, &at)) != NULL &&
           each->device != device)
        at++;
    if (each != NULL)
        *range_out = *each;
    pthread_mutex_unlock(&mutex);
    return each != NULL;
}

void rvli_memory_give_context(int device, unsigned context)
{
    rvli_range each;
    for (uint64_t at = 0; next_range(at, device, &each); at = each.base + 1)
        if (each.context == context)
            give_of_context(&each);
}

/*
 * As on a card, memory of pools, graphs and cuMemCreate stays, and so do managed pages that were
 * never assigned (tests/simcuda/context_facts.c).
 */
void rvli_memory_give_device(int device)
{
    rvli_pools_settle(); /* all work is complete */
    rvli_share_give(device);
    rvli_loaded_lose(device);
}

/* ---- A forked child has none of this memory ---- */

static void forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    pthread_mutex_init(&spares_mutex, NULL);
    if (ranges_begun)
        rvli_addrmap_init(&ranges); /* the parent's entries are not touched */
    chunks = NULL;
    rvli_capture_forget();
    rvli_checkpoint_forget();
    rvli_function_forget();
    rvli_graph_memory_forget();
    rvli_ipc_forget();
    rvli_managed_forget();
    rvli_owed_forget();
    rvli_loaded_forget();
    rvli_polled_forget();
    rvli_pool_forget();
    rvli_registered_forget();
    rvli_share_forget();
    rvli_vmm_forget();
    rvli_contents_forget_all();
    rvli_device_forget();
    rvli_context_forget();
}

__attribute__((constructor)) static void watch_forks(void)
{
    rvli_client_on_fork(forget);
}

/* ---- Entry points ---- */

CUresult cuMemAlloc(CUdeviceptr *addr, size_t size_bytes)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (addr == NULL || size_bytes == 0))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t got = 0;
    if (result == CUDA_SUCCESS)
        result = rvli_capture_unsafe();
    if (result == CUDA_SUCCESS)
        result = rvli_alloc(device, size_bytes, &got);
    if (result == CUDA_SUCCESS)
        *addr = got;
    return result;
}

CUresult cuMemAllocPitch(CUdeviceptr *addr, size_t *pitch, size_t width_bytes, size_t height,
                         unsigned int element_bytes)
{
    if (pitch == NULL || height == 0 || width_bytes == 0 || width_bytes > SIZE_MAX / 2 / height ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    size_t row = round_up(width_bytes, PIECE_BYTES);
    CUresult result = cuMemAlloc(addr, row * height);
    if (result == CUDA_SUCCESS)
        *pitch = row;
    return result;
}

/*
 * A free waits for the device, except for memory of a pool (cuda.h). As on an H200, pool memory
 * that is freed this way stays counted as in use.
 */
static CUresult free_waiting(uint64_t addr)
{
    rvli_range range;
    CUresult result = CUDA_SUCCESS;
    if (rvli_range_find(addr, &range) && range.base == addr && range.kind != RVLI_RANGE_POOL)
        result = rvli_owed_settle_device(range.device);
    if (result != CUDA_SUCCESS)
        return result;
    if (rvli_range_find(addr, &range) && range.kind == RVLI_RANGE_GRAPH && range.base == addr)
        result = rvli_graph_memory_free(&range);
    else if (rvli_range_take(addr, RVLI_RANGE_POOL, &range))
        rvli_pool_free(&range, NULL, false);
    else if (rvli_range_take(addr, RVLI_RANGE_MANAGED, &range))
        rvli_managed_free(&range);
    else
        result = rvli_free(addr);
    if (result == CUDA_SUCCESS)
        rvli_pools_settle();
    return result;
}

CUresult cuMemFree(CUdeviceptr addr)
{
    CUresult result = rvli_current_alive();
    if (result == CUDA_SUCCESS && addr != 0)
        result = rvli_capture_unsafe();
    return result != CUDA_SUCCESS || addr == 0 ? result : free_waiting(addr);
}

CUresult cuMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    int device;
    rvli_wire_answer answer;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (free_bytes == NULL || total_bytes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = rvli_result(
            rvli_client_ask(RVLI_WIRE_MEMORY, rvli_device_number(device), 0, NULL, &answer));
    if (result != CUDA_SUCCESS)
        return result;
    *free_bytes = answer.free_bytes;
    *total_bytes = answer.total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size_bytes, CUdeviceptr addr)
{
    rvli_range range;
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && !rvli_range_find(addr, &range))
        result = CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS && base != NULL)
        *base = range.base;
    if (result == CUDA_SUCCESS && size_bytes != NULL)
        *size_bytes = range.size_bytes;
    return result;
}

/* ---- Attributes of an address ---- */

static bool is_host(const rvli_range *range)
{
    return !rvli_range_on_device(range);
}

static CUresult attribute_of(const rvli_range *range, uint64_t addr, CUpointer_attribute attribute,
                             void *data)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = is_host(range) && range->kind != RVLI_RANGE_MANAGED
                                ? CU_MEMORYTYPE_HOST
                                : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = addr;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = is_host(range) ? (void *)addr : NULL;
        return is_host(range) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = range->device;
        (void)rvli_vmm_device(addr, data);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = range->number;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = range->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = range->size_bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = range->kind == RVLI_RANGE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)data = range->kind == RVLI_RANGE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(void **)data = range->kind == RVLI_RANGE_POOL ? range->of : NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned *)data = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr addr)
{
    rvli_range range;
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (data == NULL || !rvli_range_find(addr, &range))
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(&range, addr, attribute, data);
}

/* As with the driver, all attributes of memory unknown to CUDA are 0. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr addr)
{
    rvli_range range;
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && (attributes == NULL || data == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    bool known = result == CUDA_SUCCESS && rvli_range_find(addr, &range);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) {
        if (known)
            (void)attribute_of(&range, addr, attributes[i], data[i]);
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)data[i] = -2;
        else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)data[i] = 0;
    }
    return result;
}
