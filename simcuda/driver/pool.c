/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/contents.h"
#include "simcuda/driver/pool.h"

#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/graph_memory.h"

#define DEVICES_MAX 64
#define CHUNK_BYTES ((size_t)32 << 20) /* of physical memory */
#define UNIT_BYTES ((size_t)512)

/* A part of a pool's addresses, used or free. Free neighbours are merged, unless they wait for
 * different streams. */
typedef struct block {
    struct block *next, *before;
    struct block *late; /* if used: its counterpart in the late pool */
    uint64_t base;
    size_t size_bytes;
    bool used;
    uint64_t freed_on; /* the stream's number; 0: available to all streams */
} block;

/*
 * A free block is merged with its neighbours at once, as if the GPU had reached the free when
 * the program called it. On a card, the GPU may be behind. Then the pieces stay separate, and a
 * larger request needs new memory. How far the GPU is behind is unknown, so each pool has a
 * second pool for the other extreme, the late pool, in which free neighbours are merged only
 * where the program waits. It gets the same calls, and counts without taking memory. A card lies
 * between the two: in the one program that was compared (docs/fidelity/programs.md), about in
 * the middle.
 */
struct CUmemPoolHandle_st {
    CUmemoryPool next;
    CUmemoryPool late; /* NULL: this is a late pool, or its late pool was dropped */
    bool is_late;
    cuuint64_t most, told; /* peak of reserved bytes, and the peak last sent to the machine */
    int device;
    bool usual;  /* the device's default pool, which stays */
    bool closed; /* freed with its last memory */
    size_t max_bytes;
    uint64_t base;
    size_t span_bytes;
    uint64_t *chunks; /* the machine's ids; 0: no memory */
    size_t chunk_count;
    size_t chunks_end; /* 1 + the last chunk with memory */
    block *blocks;
    size_t live;
    CUmemAccess_flags access[DEVICES_MAX];
    cuuint64_t threshold;
    cuuint64_t reserved, reserved_high;
    cuuint64_t used, used_high;
    int follow, opportunistic, internal;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static CUmemoryPool pools;
static CUmemoryPool usual[DEVICES_MAX], current[DEVICES_MAX];

void rvli_pool_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    pools = NULL;
    memset(usual, 0, sizeof usual);
    memset(current, 0, sizeof current);
}

/* ---- Physical memory, with the lock held ---- */

static size_t chunk_at(const struct CUmemPoolHandle_st *of, uint64_t addr)
{
    return (size_t)(addr - of->base) / CHUNK_BYTES;
}

static size_t chunks_to(const struct CUmemPoolHandle_st *of, uint64_t end)
{
    return (size_t)(end - of->base + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

static void give_chunk(CUmemoryPool of, size_t chunk)
{
    if (!of->is_late)
        rvli_physical_give(of->chunks[chunk]);
    of->chunks[chunk] = 0;
    of->reserved -= CHUNK_BYTES;
    while (of->chunks_end > 0 && of->chunks[of->chunks_end - 1] == 0)
        of->chunks_end--;
}

static size_t count_missing(const struct CUmemPoolHandle_st *of, uint64_t from, uint64_t to)
{
    size_t missing = 0, end = chunks_to(of, to);
    for (size_t i = chunk_at(of, from); i < end; i++)
        missing += of->chunks[i] == 0;
    return missing;
}

/* Releases chunks inside free blocks, the last first, while more than keep_bytes is reserved. */
static bool shrink(CUmemoryPool of, size_t keep_bytes)
{
    cuuint64_t before = of->reserved;
    block *last = of->blocks;
    while (last != NULL && last->next != NULL)
        last = last->next;
    for (block *each = last; each != NULL && of->reserved > keep_bytes; each = each->before) {
        size_t first = chunks_to(of, each->base);
        size_t end = chunk_at(of, each->base + each->size_bytes);
        end = end < of->chunks_end ? end : of->chunks_end;
        for (size_t i = end; !each->used && i > first && of->reserved > keep_bytes; i--)
            if (of->chunks[i - 1] != 0)
                give_chunk(of, i - 1);
    }
    return of->reserved < before;
}

static bool relieve_locked(int device)
{
    bool freed = false;
    for (CUmemoryPool each = pools; each != NULL; each = each->next)
        if (each->device == device)
            freed = shrink(each, 0) || freed;
    return freed;
}

/* Takes memory for a range. On failure, the pool is unchanged. */
static CUresult fill(CUmemoryPool of, uint64_t from, uint64_t to)
{
    CUresult result = CUDA_SUCCESS;
    size_t first = chunk_at(of, from), end = chunks_to(of, to), missing = 0;
    uint64_t *got = calloc(end - first, sizeof *got);
    if (got == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = first; result == CUDA_SUCCESS && i < end; i++)
        if (of->chunks[i] == 0) {
            got[i - first] = of->is_late;
            if (!of->is_late)
                result = rvli_physical_take_once(of->device, CHUNK_BYTES, "cudaMallocAsync",
                                                 &got[i - first]);
            missing++;
        }
    for (size_t i = first; i < end; i++) {
        if (got[i - first] == 0)
            continue;
        if (result == CUDA_SUCCESS)
            of->chunks[i] = got[i - first];
        else
            rvli_physical_give(got[i - first]);
    }
    free(got);
    if (result != CUDA_SUCCESS)
        return result;
    of->reserved += missing * CHUNK_BYTES;
    of->reserved_high = of->reserved > of->reserved_high ? of->reserved : of->reserved_high;
    of->most = of->reserved > of->most ? of->reserved : of->most;
    of->chunks_end = end > of->chunks_end ? end : of->chunks_end;
    return CUDA_SUCCESS;
}

/* ---- Places, with the lock held ---- */

static bool may_have(const block *of, uint64_t stream)
{
    return !of->used && (of->freed_on == 0 || of->freed_on == stream);
}

/* All work is complete at once, so the driver may give the block to any stream, if it may check
 * for completion (opportunistic) or make streams wait (internal). Dependencies by events are not
 * checked. */
static uint64_t owner_of(const struct CUmemPoolHandle_st *of, CUstream stream)
{
    return of->opportunistic || of->internal ? 0 : rvli_stream_of(stream)->number;
}

typedef struct place {
    block *in;
    uint64_t base;
    size_t missing; /* chunks without memory */
    size_t room_bytes;
} place;

/* Prefers the fewest new chunks, then the tightest room, then the lowest address. */
static void consider(const struct CUmemPoolHandle_st *of, block *in, uint64_t from,
                     size_t room_bytes, size_t bytes, place *best)
{
    if (in->base + in->size_bytes - from < bytes)
        return;
    place here = {in, from, count_missing(of, from, from + bytes), room_bytes};
    if (best->in == NULL || here.missing < best->missing ||
        (here.missing == best->missing && here.room_bytes < best->room_bytes))
        *best = here;
}

/* Parts of a free block may have memory. Each such part is a candidate, and so is each part
 * between them. */
static void consider_block(const struct CUmemPoolHandle_st *of, block *in, size_t bytes,
                           place *best)
{
    uint64_t at = in->base, end = in->base + in->size_bytes;
    uint64_t known_end = of->base + of->chunks_end * CHUNK_BYTES;
    while (at < end) {
        size_t chunk = chunk_at(of, at);
        bool there = of->chunks[chunk] != 0;
        while (chunk < of->chunk_count && (of->chunks[chunk] != 0) == there &&
               chunk < of->chunks_end)
            chunk++;
        uint64_t to = of->base + chunk * CHUNK_BYTES;
        to = at >= known_end || to > end ? end : to;
        consider(of, in, at, there ? (size_t)(to - at) : SIZE_MAX, bytes, best);
        at = to;
    }
}

static block *new_block(uint64_t base, size_t size_bytes)
{
    block *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->base = base;
        made->size_bytes = size_bytes;
    }
    return made;
}

static void link_after(block *at, block *made)
{
    made->before = at;
    made->next = at->next;
    if (at->next != NULL)
        at->next->before = made;
    at->next = made;
}

/* Splits a free block, and returns the block at base. NULL: out of memory. */
static block *cut(block *in, uint64_t base)
{
    if (base == in->base)
        return in;
    block *made = new_block(base, (size_t)(in->base + in->size_bytes - base));
    if (made == NULL)
        return NULL;
    made->freed_on = in->freed_on;
    in->size_bytes = (size_t)(base - in->base);
    link_after(in, made);
    return made;
}

static void merge_with_next(block *at)
{
    block *gone = at->next;
    if (gone == NULL || gone->used || at->used || gone->freed_on != at->freed_on)
        return;
    at->size_bytes += gone->size_bytes;
    at->next = gone->next;
    if (gone->next != NULL)
        gone->next->before = at;
    free(gone);
}

static void join_free(const struct CUmemPoolHandle_st *of, block *at)
{
    if (of->is_late)
        return;
    merge_with_next(at);
    if (at->before != NULL)
        merge_with_next(at->before);
}

static CUresult take_at(CUmemoryPool of, const place *best, size_t bytes, block **taken_out)
{
    block *at = cut(best->in, best->base);
    bool cut_out = at != NULL && (at->size_bytes == bytes || cut(at, at->base + bytes) != NULL);
    CUresult result = cut_out ? fill(of, at->base, at->base + bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        if (at != NULL)
            join_free(of, at);
        return result;
    }
    at->used = true;
    *taken_out = at;
    return CUDA_SUCCESS;
}

static CUresult take_locked(CUmemoryPool of, size_t bytes, uint64_t stream, block **taken_out)
{
    place best = {0};
    size_t taken = (bytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
    if (taken < bytes || taken > of->span_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (block *each = of->blocks; each != NULL; each = each->next)
        if (may_have(each, stream))
            consider_block(of, each, taken, &best);
    if (best.in == NULL || best.missing * CHUNK_BYTES > of->max_bytes - of->reserved)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = take_at(of, &best, taken, taken_out);
    if (result == CUDA_SUCCESS) {
        of->live++;
        of->used += bytes;
        of->used_high = of->used > of->used_high ? of->used : of->used_high;
    }
    return result;
}

/* Deletes what make_empty() has made. */
static void delete_empty(CUmemoryPool of)
{
    while (of->blocks != NULL) {
        block *first = of->blocks;
        of->blocks = first->next;
        free(first);
    }
    free(of->chunks);
    free(of);
}

static void delete_pool(CUmemoryPool of)
{
    CUmemoryPool *link = &pools;
    while (*link != of)
        link = &(*link)->next;
    *link = of->next;
    shrink(of, 0);
    rvli_addresses_release(of->base, of->span_bytes);
    if (of->late != NULL)
        delete_empty(of->late);
    delete_empty(of);
}

static void free_block(CUmemoryPool of, block *at, uint64_t owner)
{
    at->used = false;
    at->freed_on = owner;
    join_free(of, at);
}

void rvli_pool_free(const rvli_range *range, CUstream stream, bool counted)
{
    CUmemoryPool of = range->of;
    uint64_t owner = owner_of(of, stream);
    rvli_contents_forget(range->base, range->size_bytes);
    pthread_mutex_lock(&mutex);
    block *at = of->blocks;
    while (at->base != range->base)
        at = at->next;
    if (at->late != NULL && of->late != NULL)
        free_block(of->late, at->late, owner);
    at->late = NULL;
    free_block(of, at, owner);
    of->live--;
    if (counted)
        of->used -= range->size_bytes;
    if (of->closed && of->live == 0)
        delete_pool(of);
    pthread_mutex_unlock(&mutex);
}

/* Goes backwards, so that each block is merged with its successors. */
static void settle_blocks(CUmemoryPool of)
{
    block *last = of->blocks;
    while (last != NULL && last->next != NULL)
        last = last->next;
    for (block *at = last; at != NULL; at = at->before) {
        at->freed_on = 0;
        merge_with_next(at);
    }
}

static void settle(CUmemoryPool of, cuuint64_t threshold)
{
    settle_blocks(of);
    if (of->reserved > threshold)
        shrink(of, threshold);
}

void rvli_pools_settle(void)
{
    pthread_mutex_lock(&mutex);
    for (CUmemoryPool each = pools; each != NULL; each = each->next) {
        settle(each, each->threshold);
        if (each->late != NULL)
            settle(each->late, each->threshold);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- The late pool, with the lock held ---- */

/* If there is no room left, the driver would wait for the GPU, so the late pool is dropped. */
static void take_late(CUmemoryPool of, block *taken, size_t bytes, uint64_t stream)
{
    CUmemoryPool late = of->late;
    if (late == NULL)
        return;
    CUresult result = take_locked(late, bytes, stream, &taken->late);
    if (result != CUDA_SUCCESS) {
        settle_blocks(late);
        result = take_locked(late, bytes, stream, &taken->late);
    }
    if (result == CUDA_SUCCESS)
        return;
    taken->late = NULL;
    of->late = NULL;
    delete_empty(late);
}

static void tell(CUmemoryPool of)
{
    cuuint64_t most = of->late != NULL && of->late->most > of->most ? of->late->most : of->most;
    if (most + of->most == of->told)
        return;
    of->told = most + of->most;
    const rvli_wire_request note = {.kind = RVLI_WIRE_POOL,
                                    .device = rvli_device_number(of->device),
                                    .id = of->most,
                                    .bytes = most};
    rvli_client_post(&note);
}

bool rvli_pools_relieve(int device)
{
    pthread_mutex_lock(&mutex);
    bool freed = relieve_locked(device);
    pthread_mutex_unlock(&mutex);
    return freed;
}

/* ---- Creation ---- */

/* Reserves twice the device's size, so that fragmentation does not exhaust the addresses. The
 * limit is rounded up to a chunk; without a limit, it is the device's size and one chunk. */
static CUmemoryPool make_empty(int device, size_t max_bytes)
{
    CUmemoryPool made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    size_t total = (size_t)rvli_device_bytes(device) / CHUNK_BYTES * CHUNK_BYTES + CHUNK_BYTES;
    made->device = device;
    made->span_bytes = 2 * total;
    made->chunk_count = made->span_bytes / CHUNK_BYTES;
    made->max_bytes = max_bytes == 0 || max_bytes > total
                          ? total
                          : (max_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    made->chunks = calloc(made->chunk_count, sizeof *made->chunks);
    made->blocks = new_block(0, made->span_bytes);
    if (made->chunks != NULL && made->blocks != NULL)
        return made;
    free(made->chunks);
    free(made->blocks);
    free(made);
    return NULL;
}

static CUresult make(int device, size_t max_bytes, CUmemoryPool *pool_out)
{
    CUmemoryPool made = make_empty(device, max_bytes);
    uint64_t base = made != NULL ? rvli_addresses_reserve(made->span_bytes, CHUNK_BYTES, 0) : 0;
    if (base == 0) {
        if (made != NULL)
            delete_empty(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->base = made->blocks->base = base;
    made->late = make_empty(device, max_bytes); /* not reserved: its addresses are never used */
    if (made->late != NULL)
        made->late->is_late = true;
    made->follow = made->opportunistic = made->internal = 1;
    made->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    made->next = pools;
    pools = made;
    *pool_out = made;
    return CUDA_SUCCESS;
}

static CUresult usual_of(int device, CUmemoryPool *pool_out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (usual[device] == NULL) {
        result = make(device, 0, &usual[device]);
        if (result == CUDA_SUCCESS)
            usual[device]->usual = true;
    }
    *pool_out = usual[device];
    pthread_mutex_unlock(&mutex);
    return result;
}

static CUresult current_of(int device, CUmemoryPool *pool_out)
{
    pthread_mutex_lock(&mutex);
    *pool_out = current[device];
    pthread_mutex_unlock(&mutex);
    return *pool_out != NULL ? CUDA_SUCCESS : usual_of(device, pool_out);
}

static CUresult check_device(CUdevice device)
{
    CUresult result = rvli_driver_ready();
    return result == CUDA_SUCCESS && !rvli_device_exists(device) ? CUDA_ERROR_INVALID_DEVICE
                                                                 : result;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *kind)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS &&
        (pool == NULL || kind == NULL || kind->allocType != CU_MEM_ALLOCATION_TYPE_PINNED))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (kind->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
                                   kind->handleTypes != CU_MEM_HANDLE_TYPE_NONE))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS)
        result = check_device(kind->location.id);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    result = make(kind->location.id, kind->maxSize, pool);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Memory in use stays until it is freed. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (pool == NULL || pool->usual)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    if (current[pool->device] == pool)
        current[pool->device] = NULL;
    pool->closed = true;
    if (pool->live == 0)
        delete_pool(pool);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = pool == NULL ? CUDA_ERROR_INVALID_VALUE : check_device(device);
    return result == CUDA_SUCCESS ? usual_of(device, pool) : result;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = pool == NULL ? CUDA_ERROR_INVALID_VALUE : check_device(device);
    return result == CUDA_SUCCESS ? current_of(device, pool) : result;
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult result = pool == NULL ? CUDA_ERROR_INVALID_VALUE : check_device(device);
    if (result == CUDA_SUCCESS && pool->device != device)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    current[device] = pool;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

/* ---- Settings and figures ---- */

static int *setting(CUmemoryPool of, CUmemPool_attribute attribute)
{
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return &of->follow;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return &of->opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return &of->internal;
    default:
        return NULL;
    }
}

static cuuint64_t *figure(CUmemoryPool of, CUmemPool_attribute attribute)
{
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &of->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &of->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &of->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &of->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &of->used_high;
    default:
        return NULL;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    if (pool == NULL || value == NULL ||
        (setting(pool, attribute) == NULL && figure(pool, attribute) == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    if (setting(pool, attribute) != NULL)
        *(int *)value = *setting(pool, attribute);
    else
        *(cuuint64_t *)value = *figure(pool, attribute);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

/* The peaks can only be reset, by setting them to 0. */
static CUresult set_figure(CUmemoryPool of, CUmemPool_attribute attribute, cuuint64_t value)
{
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        of->threshold = value;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && value == 0)
        of->reserved_high = of->reserved;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && value == 0)
        of->used_high = of->used;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult result = CUDA_SUCCESS;
    if (pool == NULL || value == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    if (setting(pool, attribute) != NULL)
        *setting(pool, attribute) = *(int *)value != 0;
    else
        result = set_figure(pool, attribute, *(cuuint64_t *)value);
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    if (pool == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    size_t least = keep_bytes <= SIZE_MAX - CHUNK_BYTES
                       ? (keep_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES
                       : SIZE_MAX;
    shrink(pool, least);
    if (pool->late != NULL)
        shrink(pool->late, least);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    if (pool == NULL || (access == NULL && count > 0))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
            !rvli_device_exists(access[i].location.id))
            return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < count; i++)
        pool->access[access[i].location.id] = access[i].flags;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    if (flags == NULL || pool == NULL || location == NULL ||
        location->type != CU_MEM_LOCATION_TYPE_DEVICE || !rvli_device_exists(location->id))
        return CUDA_ERROR_INVALID_VALUE;
    *flags = pool->access[location->id];
    return CUDA_SUCCESS;
}

/* ---- Memory ---- */

static CUresult take(CUmemoryPool of, size_t bytes, CUstream stream, CUdeviceptr *addr)
{
    rvli_range range = {
        .kind = RVLI_RANGE_POOL, .device = of->device, .size_bytes = bytes, .of = of};
    uint64_t number = rvli_stream_of(stream)->number;
    block *taken = NULL;
    pthread_mutex_lock(&mutex);
    CUresult result = take_locked(of, bytes, number, &taken);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && relieve_locked(of->device))
        result = take_locked(of, bytes, number, &taken);
    if (result == CUDA_SUCCESS) {
        range.base = taken->base;
        take_late(of, taken, bytes, number);
        tell(of);
    }
    pthread_mutex_unlock(&mutex);
    if (result != CUDA_SUCCESS)
        return result;
    result = rvli_range_add(&range);
    if (result == CUDA_SUCCESS)
        *addr = range.base;
    else
        rvli_pool_free(&range, stream, true);
    return result;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *addr, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (addr == NULL || pool == NULL || pool->closed || bytes == 0))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (rvli_capture_graph(stream) != NULL)
        return rvli_graph_memory_capture(stream, pool->device, bytes, addr);
    result = rvli_capture_unsafe();
    return result == CUDA_SUCCESS ? take(pool, bytes, stream, addr) : result;
}

CUresult cuMemAllocAsync(CUdeviceptr *addr, size_t bytes, CUstream stream)
{
    int device;
    CUmemoryPool pool = NULL;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && !rvli_stream_is_legacy(stream))
        device = rvli_stream_of(stream)->device;
    if (result == CUDA_SUCCESS)
        result = current_of(device, &pool);
    return result == CUDA_SUCCESS ? cuMemAllocFromPoolAsync(addr, bytes, pool, stream) : result;
}

/* Also frees memory from cuMemAlloc(). */
CUresult cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
    int device;
    rvli_range range;
    CUresult result = rvli_current_device(&device);
    if (result != CUDA_SUCCESS || addr == 0)
        return result;
    if (rvli_capture_graph(stream) != NULL)
        return rvli_graph_memory_capture_free(stream, addr);
    result = rvli_capture_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    if (rvli_range_find(addr, &range) && range.kind == RVLI_RANGE_GRAPH && range.base == addr)
        result = rvli_graph_memory_free(&range);
    else if (rvli_range_take(addr, RVLI_RANGE_POOL, &range))
        rvli_pool_free(&range, stream, true);
    else
        result = rvli_free(addr);
    return result;
}
