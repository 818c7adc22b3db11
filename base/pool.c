/* SPDX-License-Identifier: MIT */
/*
 * A pool of equally sized objects.
 *
 * Slabs double from 4 KiB to 2 MiB, so that a small pool costs little and a large one needs only a
 * handful of allocations. Objects of the newest slab are handed out front to back, so memory is
 * first touched when it is used. Each slab reserves its first cache line for the link and its size.
 * So objects that are whole cache lines stay aligned to them.
 */
#include "base/pool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SLAB_ALIGNMENT ((size_t)64)
#define SLAB_HEADER SLAB_ALIGNMENT
#define SLAB_FIRST ((size_t)4 << 10)
#define SLAB_LARGEST ((size_t)2 << 20)

typedef struct slab_header {
    void *next;
    size_t bytes;
} slab_header;

/* Reads the link in the first word of a free object. */
static void *link_of(const void *object)
{
    void *next;
    memcpy(&next, object, sizeof(next));
    return next;
}

static void set_link(void *object, void *next)
{
    memcpy(object, &next, sizeof(next));
}

void rvli_pool_init(rvli_pool *pool, size_t object_size)
{
    *pool = (rvli_pool){.object_size = object_size, .slab_bytes = SLAB_FIRST};
    while (pool->slab_bytes - SLAB_HEADER < object_size)
        pool->slab_bytes *= 2;
}

static void *new_slab(size_t bytes)
{
    return bytes < SLAB_LARGEST ? aligned_alloc(SLAB_ALIGNMENT, bytes) : rvli_memory_alloc(bytes);
}

static void free_slab(slab_header *slab)
{
    if (slab->bytes < SLAB_LARGEST)
        free(slab);
    else
        rvli_memory_free(slab, slab->bytes);
}

void rvli_pool_destroy(rvli_pool *pool)
{
    while (pool->slabs) {
        slab_header *slab = pool->slabs;
        pool->slabs = slab->next;
        free_slab(slab);
    }
    rvli_pool_init(pool, pool->object_size);
}

/* Adds a slab for fresh objects. Returns false if there is no memory. */
static bool add_slab(rvli_pool *pool)
{
    slab_header *slab = new_slab(pool->slab_bytes);
    if (!slab)
        return false;
    *slab = (slab_header){.next = pool->slabs, .bytes = pool->slab_bytes};
    pool->slabs = slab;
    pool->fresh = (char *)slab + SLAB_HEADER;
    pool->fresh_end = (char *)slab + pool->slab_bytes;
    if (pool->slab_bytes < SLAB_LARGEST)
        pool->slab_bytes *= 2;
    return true;
}

void *rvli_pool_get(rvli_pool *pool)
{
    void *object = pool->free_objects;
    if (object) {
        pool->free_objects = link_of(object);
        return object;
    }
    if ((size_t)(pool->fresh_end - pool->fresh) < pool->object_size && !add_slab(pool))
        return NULL;
    object = pool->fresh;
    pool->fresh += pool->object_size;
    return object;
}

void rvli_pool_put(rvli_pool *pool, void *object)
{
    set_link(object, pool->free_objects);
    pool->free_objects = object;
}

size_t rvli_pool_bytes(const rvli_pool *pool)
{
    size_t bytes = 0;
    for (const slab_header *slab = pool->slabs; slab != NULL; slab = slab->next)
        bytes += slab->bytes;
    return bytes - (size_t)(pool->fresh_end - pool->fresh);
}
