/* SPDX-License-Identifier: MIT */
/*
 * A hash map from non-zero 64-bit numbers (addresses, ids) to pointers or numbers.
 *
 * Open addressing with linear probing: a look-up is one multiplication and usually one cache
 * line. Removing shifts the rest of the run back, so there are no tombstones and the table stays as
 * fast as it was. At most three quarters full, and grown by half: 16 bytes a slot, and never more
 * than 32 an entry once the table is past its smallest size. Any capacity will do, because the
 * place is hash * capacity / 2^64 and not a mask. Not thread-safe: the owner locks.
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

/* All zeroes is an empty map. */
typedef struct rvli_intmap {
    rvli_intmap_slot *slots;
    size_t capacity; /* slots; 0 while there are none */
    size_t count;
} rvli_intmap;

void rvli_intmap_destroy(rvli_intmap *map);

/* Makes room for one more entry, which the next insert then finds. RVL_ERR_HOST_OOM. */
rvl_status rvli_intmap_reserve(rvli_intmap *map);

/* Adds an entry; the key must not be 0. RVL_ERR_HOST_OOM, RVL_ERR_INVALID if it is there already.
 */
rvl_status rvli_intmap_insert(rvli_intmap *map, uint64_t key, uint64_t value);

/* Whether the key is there; value_out (may be NULL) gets its value. */
bool rvli_intmap_get(const rvli_intmap *map, uint64_t key, uint64_t *value_out);

/* Brings the slot of a key into the cache, some time before it is looked up. */
void rvli_intmap_prefetch(const rvli_intmap *map, uint64_t key);

/* Removes an entry; false if it was not there. Never needs memory. */
bool rvli_intmap_remove(rvli_intmap *map, uint64_t key, uint64_t *value_out);

#endif
