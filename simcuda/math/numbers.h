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

/* How many parts of a size something has, the last of them not whole. */
static inline uint64_t rvli_parts(uint64_t size, uint64_t part)
{
    return size / part + (size % part != 0);
}

static inline uint64_t rvli_up(uint64_t size, uint64_t part)
{
    return rvli_parts(size, part) * part;
}

/* The next one from a size on. */
static inline uint64_t rvli_power_of_two(uint64_t size)
{
    uint64_t power = 1;
    while (power < size && power <= UINT64_MAX / 2)
        power *= 2;
    return power;
}

#endif
