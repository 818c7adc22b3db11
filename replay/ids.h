/* SPDX-License-Identifier: MIT */
/*
 * From the ids of one process to addresses.
 *
 * Open addressing with linear probing, 16 bytes an entry. At most three quarters full, and grown by
 * half: never more than 32 bytes a live allocation once it is past its smallest size. Any capacity
 * will do, because the place is hash * capacity / 2^64 and not a mask. Removing shifts the run
 * back, so the table stays as fast as it was.
 */
#ifndef RVL_REPLAY_IDS_H
#define RVL_REPLAY_IDS_H

#include <stdbool.h>

#include "reveille/memory.h"

typedef struct rvli_replay_id_slot {
    uint64_t id;
    rvl_addr addr; /* 0: empty; no allocation begins there */
} rvli_replay_id_slot;

/* All zeroes is an empty table. */
typedef struct rvli_replay_ids {
    rvli_replay_id_slot *slots;
    size_t capacity;
    size_t count;
} rvli_replay_ids;

/* Makes room for one more entry. false: no host memory. */
bool rvli_replay_ids_reserve(rvli_replay_ids *ids);

/* Adds an entry; the id must not be there, addr must not be 0, and room must have been reserved. */
void rvli_replay_ids_insert(rvli_replay_ids *ids, uint64_t id, rvl_addr addr);

/* Address of an id, 0 if it is not there. */
rvl_addr rvli_replay_ids_get(const rvli_replay_ids *ids, uint64_t id);

/* Brings the slot of an id into the cache, some time before it is looked up. */
void rvli_replay_ids_prefetch(const rvli_replay_ids *ids, uint64_t id);

/* Removes an id and returns its address, 0 if it is not there. */
rvl_addr rvli_replay_ids_remove(rvli_replay_ids *ids, uint64_t id);

void rvli_replay_ids_destroy(rvli_replay_ids *ids);

#endif
