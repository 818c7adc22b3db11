/* SPDX-License-Identifier: MIT */
/*
 * Released memory that the driver clears, beside everything, one block behind the other.
 *
 * It takes a block back once the whole of it is cleared: a create or release that comes then pays
 * for it, and what comes sooner finds nothing. Blocks that follow each other count as one until
 * they are RVLI_CLEARING_JOINED_BYTES together, and where there are too many, the last grows.
 */
#ifndef RVL_BASE_CLEARING_H
#define RVL_BASE_CLEARING_H

#include <stdint.h>

#include "reveille/sim.h"

#define RVLI_CLEARING_MAX 128u
#define RVLI_CLEARING_JOINED_BYTES (UINT64_C(512) << 20)

typedef struct rvli_clearing {
    uint64_t end_ns; /* when all will have been cleared */
    uint32_t first;  /* of a ring */
    uint32_t count;
    struct {
        uint64_t bytes;
        uint64_t end_ns;
    } blocks[RVLI_CLEARING_MAX];
} rvli_clearing;

/* A block was released. Clearing it begins when those before are cleared. */
void rvli_clearing_add(rvli_clearing *it, rvl_cost clear, uint64_t bytes, uint64_t now_ns);

/* Takes blocks back that have been cleared by now. Returns their bytes. */
uint64_t rvli_clearing_take(rvli_clearing *it, uint64_t now_ns);

/* When the blocks that are not cleared will have no more than so many bytes. 0: they have now. */
uint64_t rvli_clearing_down_to(const rvli_clearing *it, uint64_t bytes);

/* The same, for a clock that begins now. */
rvli_clearing rvli_clearing_from(const rvli_clearing *it, uint64_t now_ns);

#endif
