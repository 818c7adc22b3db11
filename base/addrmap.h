/* SPDX-License-Identifier: MIT */
/*
 * An ordered map from addresses to pointers: exact, interior and in-order look-ups in one table.
 *
 * A B+ tree with nodes of a few cache lines: a level costs about one cache miss, where a
 * red-black tree pays one for every doubling of its size. Measured against both before it was
 * chosen: docs/decisions/core.md. Not thread-safe: the owner locks.
 */
#ifndef RVL_BASE_ADDRMAP_H
#define RVL_BASE_ADDRMAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "reveille/status.h"

typedef struct rvli_addrmap rvli_addrmap;

struct rvli_addrmap_node;

struct rvli_addrmap {
    struct rvli_addrmap_node *root;
    uint32_t height; /* levels above the leaves */
    size_t count;    /* entries */
    rvli_pool nodes;
};

void rvli_addrmap_init(rvli_addrmap *map);

/* Frees the nodes; values are the caller's. */
void rvli_addrmap_destroy(rvli_addrmap *map);

/* Adds an entry. RVL_ERR_HOST_OOM (nothing changed), RVL_ERR_INVALID if key is there already. */
rvl_status rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value);

/* Removes an entry and returns its value, NULL if there is none. Never fails for lack of memory. */
void *rvli_addrmap_remove(rvli_addrmap *map, uint64_t key);

/* Value of exactly key, NULL if none. */
void *rvli_addrmap_get(const rvli_addrmap *map, uint64_t key);

/* Value of the greatest key <= key, NULL if none. key_out may be NULL. */
void *rvli_addrmap_floor(const rvli_addrmap *map, uint64_t key, uint64_t *key_out);

/* Value of the smallest key >= key, NULL if none. key_out may be NULL. */
void *rvli_addrmap_ceil(const rvli_addrmap *map, uint64_t key, uint64_t *key_out);

#endif
