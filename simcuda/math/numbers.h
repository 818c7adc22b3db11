/* SPDX-License-Identifier: MIT */
/* Arithmetic of sizes. */
#ifndef RVL_SIMCUDA_MATH_NUMBERS_H
#define RVL_SIMCUDA_MATH_NUMBERS_H

#include <stdint.h>

static inline uint64_t rvli_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t rvli_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The number of parts, including a last incomplete part. */
static inline uint64_t rvli_parts(uint64_t size, uint64_t part)
{
    return size / part + (size % part != 0);
}

static inline uint64_t rvli_up(uint64_t size, uint64_t part)
{
    return rvli_parts(size, part) * part;
}

/* The smallest power of two that is not below size. */
static inline uint64_t rvli_power_of_two(uint64_t size)
{
    uint64_t power = 1;
    while (power < size && power <= UINT64_MAX / 2)
        power *= 2;
    return power;
}

#endif
