/* SPDX-License-Identifier: MIT */
/*
 * The clock of a context.
 *
 * Real devices read monotonic time. Simulated ones advance a virtual time: a call that blocks adds
 * its cost, waiting for something that ends later moves the clock there. Lock-free.
 */
#ifndef RVL_BASE_CLOCK_H
#define RVL_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct rvli_clock {
    bool virtual_time;           /* set once, by the backend at open */
    _Atomic uint64_t virtual_ns; /* meaningful with virtual_time */
} rvli_clock;

static inline uint64_t rvli_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t rvli_clock_now(rvli_clock *clock)
{
    if (!clock->virtual_time)
        return rvli_monotonic_ns();
    return atomic_load_explicit(&clock->virtual_ns, memory_order_relaxed);
}

/* Lets ns pass on a virtual clock. */
static inline void rvli_clock_add(rvli_clock *clock, uint64_t ns)
{
    atomic_fetch_add_explicit(&clock->virtual_ns, ns, memory_order_relaxed);
}

/* Moves a virtual clock forward to at_ns; never back. */
static inline void rvli_clock_wait_until(rvli_clock *clock, uint64_t at_ns)
{
    uint64_t now = atomic_load_explicit(&clock->virtual_ns, memory_order_relaxed);
    while (now < at_ns &&
           !atomic_compare_exchange_weak_explicit(&clock->virtual_ns, &now, at_ns,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

#endif
