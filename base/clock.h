/* SPDX-License-Identifier: MIT */
/*
 * The clock of a context.
 *
 * Real devices read monotonic time. Simulated devices advance a virtual time: a blocking call adds
 * its cost, and waiting for a later event moves the clock to that event. Each device adds to its
 * own lane, under its own lock, and the time is the sum of the lanes. So a call needs no locked
 * instruction.
 */
#ifndef RVL_BASE_CLOCK_H
#define RVL_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "reveille/context.h"

typedef struct rvli_clock {
    /* Set by the backend at open: */
    bool virtual_time;
    int lane_count;
    /* The virtual time is the time spent waiting plus the cost of calls on each lane: */
    _Atomic uint64_t waited_ns;
    _Atomic uint64_t lanes_ns[RVL_MAX_DEVICES];
} rvli_clock;

static inline uint64_t rvli_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t rvli_clock_lanes_ns(const rvli_clock *clock)
{
    uint64_t sum_ns = 0;
    for (int lane = 0; lane < clock->lane_count; lane++)
        sum_ns += atomic_load_explicit(&clock->lanes_ns[lane], memory_order_relaxed);
    return sum_ns;
}

static inline uint64_t rvli_clock_now(const rvli_clock *clock)
{
    if (!clock->virtual_time)
        return rvli_monotonic_ns();
    return atomic_load_explicit(&clock->waited_ns, memory_order_relaxed) +
           rvli_clock_lanes_ns(clock);
}

/* Adds ns to a lane of a virtual clock. The caller holds the lock of the lane's device. */
static inline void rvli_clock_add(rvli_clock *clock, int lane, uint64_t ns)
{
    uint64_t before = atomic_load_explicit(&clock->lanes_ns[lane], memory_order_relaxed);
    atomic_store_explicit(&clock->lanes_ns[lane], before + ns, memory_order_relaxed);
}

/* Moves a virtual clock forward to at_ns. Never moves it back. */
static inline void rvli_clock_wait_until(rvli_clock *clock, uint64_t at_ns)
{
    uint64_t waited = atomic_load_explicit(&clock->waited_ns, memory_order_relaxed);
    uint64_t now = waited + rvli_clock_lanes_ns(clock);
    while (now < at_ns && !atomic_compare_exchange_weak_explicit(
                              &clock->waited_ns, &waited, waited + (at_ns - now),
                              memory_order_relaxed, memory_order_relaxed))
        now = waited + rvli_clock_lanes_ns(clock);
}

#endif
