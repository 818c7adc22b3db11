/* SPDX-License-Identifier: MIT */
/*
 * A hash map from non-zero 64-bit numbers (addresses, ids) to pointers or numbers.
 *
 * Open addressing with linear probing: a look-up is one multiplication and usually one cache line.
 * Removing an entry shifts the rest of the run back, so there are no tombstones and look-ups do not
 * slow down. The table is at most three quarters full and grows by half. A slot has 16 bytes; past
 * the smallest table, an entry never takes more than 32. Any capacity works, because the position
 * is hash * capacity / 2^64 instead of a mask. Not thread-safe: the owner locks.
 */
#ifndef RVL_BASE_INTMAP_H
#define RVL_BASE_INTMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

typedef struct rvli_intmap_slot {
    uint64_t key; /* 0: empty */
    uint64_t value;
} rvli_intmap_slot;

/* A zeroed struct is an empty map. */
typedef struct rvli_intmap {
    rvli_intmap_slot *slots;
    size_t capacity; /* in slots; 0 before the first insert */
    size_t count;
} rvli_intmap;

void rvli_intmap_destroy(rvli_intmap *map);

/* Makes room for one more entry, so that the next insert cannot fail. RVL_ERR_HOST_OOM. */
rvl_status rvli_intmap_reserve(rvli_intmap *map);

/* Adds an entry. RVL_ERR_HOST_OOM, RVL_ERR_INVALID if the key is 0 or already exists. */
rvl_status rvli_intmap_insert(rvli_intmap *map, uint64_t key, uint64_t value);

/* Returns whether the key exists. Stores its value in *value_out, which may be NULL. */
bool rvli_intmap_get(const rvli_intmap *map, uint64_t key, uint64_t *value_out);

/* Prefetches the slot of a key into the cache, some time before the look-up. */
void rvli_intmap_prefetch(const rvli_intmap *map, uint64_t key);

/* Removes an entry. Returns false if it does not exist. Needs no memory. */
bool rvli_intmap_remove(rvli_intmap *map, uint64_t key, uint64_t *value_out);

#endif
