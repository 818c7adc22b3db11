/* SPDX-License-Identifier: MIT */
/* Random numbers that depend on a seed alone (splitmix64). */
#ifndef RVL_STRESS_RANDOM_H
#define RVL_STRESS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

static inline uint64_t stress_mix(uint64_t word)
{
    word = (word ^ word >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ word >> 27) * UINT64_C(0x94D049BB133111EB);
    return word ^ word >> 31;
}

static inline uint64_t random_next(uint64_t *state)
{
    return stress_mix(*state += UINT64_C(0x9E3779B97F4A7C15));
}

/* 0 to count - 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t count)
{
    return random_next(state) % count;
}

static inline bool random_one_in(uint64_t *state, uint64_t count)
{
    return random_below(state, count) == 0;
}

#endif
