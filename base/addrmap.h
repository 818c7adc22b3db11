/* SPDX-License-Identifier: MIT */
/*
 * An ordered map from addresses to pointers. One table serves exact, interior and in-order
 * look-ups.
 *
 * A B+ tree with nodes of a few cache lines. Each level costs about one cache miss, where a
 * red-black tree pays one for every doubling of its size. docs/decisions/core.md has the
 * measurements behind this choice. Not thread-safe: the owner locks.
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

/* Frees the nodes. The values belong to the caller. */
void rvli_addrmap_destroy(rvli_addrmap *map);

/* Adds an entry. RVL_ERR_HOST_OOM (nothing changed), RVL_ERR_INVALID if the key already exists. */
rvl_status rvli_addrmap_insert(rvli_addrmap *map, uint64_t key, void *value);

/* Removes an entry and returns its value, or NULL if there is none. Needs no memory. */
void *rvli_addrmap_remove(rvli_addrmap *map, uint64_t key);

/* Returns the value of exactly this key, or NULL. */
void *rvli_addrmap_get(const rvli_addrmap *map, uint64_t key);

/* Returns the value of the greatest key <= key, or NULL. key_out may be NULL. */
void *rvli_addrmap_floor(const rvli_addrmap *map, uint64_t key, uint64_t *key_out);

/* Returns the value of the smallest key >= key, or NULL. key_out may be NULL. */
void *rvli_addrmap_ceil(const rvli_addrmap *map, uint64_t key, uint64_t *key_out);

#endif
