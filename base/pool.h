/* SPDX-License-Identifier: MIT */
/*
 * A pool of equally sized objects: slabs, and a free list threaded through the free objects.
 *
 * Objects have no header. The object freed last is handed out first, while it is still in the
 * cache. Slabs are freed when the pool is destroyed. Not thread-safe: the owner locks.
 */
#ifndef RVL_BASE_POOL_H
#define RVL_BASE_POOL_H

#include <stddef.h>

typedef struct rvli_pool {
    size_t object_size; /* a multiple of sizeof(void *), and not 0 */
    void *free_objects; /* linked through their first word */
    void *slabs;        /* linked through their first word */
    char *fresh;        /* the unused rest of the newest slab: [fresh, fresh_end) */
    char *fresh_end;
    size_t slab_bytes; /* of the next slab */
} rvli_pool;

void rvli_pool_init(rvli_pool *pool, size_t object_size);
void rvli_pool_destroy(rvli_pool *pool);

/* Returns an object with undefined content, or NULL if there is no host memory. */
void *rvli_pool_get(rvli_pool *pool);
void rvli_pool_put(rvli_pool *pool, void *object);

/* Returns the host memory of all objects ever handed out, including the overhead of slabs. */
size_t rvli_pool_bytes(const rvli_pool *pool);

#endif
