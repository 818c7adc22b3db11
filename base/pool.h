/* SPDX-License-Identifier: MIT */
/*
 * A pool of equally sized objects: slabs, and a free list threaded through the free objects.
 *
 * No header an object, and an object freed last is handed out first, while it is still in the
 * cache. Slabs are given back when the pool is destroyed. Not thread-safe: the owner locks.
 */
#ifndef RVL_BASE_POOL_H
#define RVL_BASE_POOL_H

#include <stddef.h>

typedef struct rvli_pool {
    size_t object_size; /* at least sizeof(void *), a multiple of it */
    void *free_objects; /* linked through their first word */
    void *slabs;        /* linked through their first word */
    char *fresh;        /* never used yet: [fresh, fresh_end) of the newest slab */
    char *fresh_end;
    size_t slab_bytes; /* size of the next slab */
} rvli_pool;

void rvli_pool_init(rvli_pool *pool, size_t object_size);
void rvli_pool_destroy(rvli_pool *pool);

/* An object with undefined content, NULL if there is no host memory. */
void *rvli_pool_get(rvli_pool *pool);
void rvli_pool_put(rvli_pool *pool, void *object);

/* Host memory of all objects that were ever handed out, with what slabs take beside them. */
size_t rvli_pool_bytes(const rvli_pool *pool);

#endif
