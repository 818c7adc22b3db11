/* SPDX-License-Identifier: MIT */
/*
 * A model of how the driver clears released memory: in the background, one block after another.
 *
 * The driver reclaims a block once all of it is cleared. The next create or release after that pays
 * for the reclaim; an earlier one reclaims nothing. Adjacent blocks of the queue are counted as one
 * while their sum is at most RVLI_CLEARING_JOINED_BYTES. When the ring is full, the last block
 * grows instead.
 */
#ifndef RVL_BASE_CLEARING_H
#define RVL_BASE_CLEARING_H

#include <stdint.h>

#include "reveille/sim.h"

#define RVLI_CLEARING_MAX 128u
#define RVLI_CLEARING_JOINED_BYTES (UINT64_C(512) << 20)

typedef struct rvli_clearing {
    uint64_t end_ns; /* when everything will be cleared */
    uint32_t first;  /* index of the oldest block in the ring */
    uint32_t count;
    struct {
        uint64_t bytes;
        uint64_t end_ns;
    } blocks[RVLI_CLEARING_MAX];
} rvli_clearing;

/* Adds a released block. Its clearing begins when the blocks before it are cleared. */
void rvli_clearing_add(rvli_clearing *it, rvl_cost clear, uint64_t bytes, uint64_t now_ns);

/* Removes the blocks that are cleared by now_ns. Returns their bytes. */
uint64_t rvli_clearing_take(rvli_clearing *it, uint64_t now_ns);

/* Returns when at most this many bytes will remain uncleared. 0: already so. */
uint64_t rvli_clearing_down_to(const rvli_clearing *it, uint64_t bytes);

/* Returns a copy for a clock that starts at now_ns. */
rvli_clearing rvli_clearing_from(const rvli_clearing *it, uint64_t now_ns);

#endif
