/* SPDX-License-Identifier: MIT */
/*
 * Prices of the cost model.
 */
#ifndef RVL_BASE_COST_H
#define RVL_BASE_COST_H

#include "reveille/sim.h"

/* Returns the cost of a call over this many bytes. Split so that terabytes do not overflow. */
static inline uint64_t rvli_cost_ns(rvl_cost cost, uint64_t bytes)
{
    const uint64_t fs_per_ns = 1000000;
    return cost.call_ns + bytes / fs_per_ns * cost.fs_per_byte +
           bytes % fs_per_ns * cost.fs_per_byte / fs_per_ns;
}

#endif
