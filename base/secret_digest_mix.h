/* SPDX-License-Identifier: MIT */
/*
 * Arithmetic modulo the prime 2^127 - 1. Shared by the CPU and the GPU: compiled as C and as CUDA.
 *
 * All numbers are below 2^127. The prime itself may stand for 0 until rvli_mod_least(), so that
 * folding the bits from 127 up onto the bits below needs no comparison.
 */
#ifndef RVL_BASE_SECRET_DIGEST_MIX_H
#define RVL_BASE_SECRET_DIGEST_MIX_H

#include <stdint.h>

#ifdef __CUDACC__
#define RVLI_MOD_INLINE static __device__ __forceinline__
#else
#define RVLI_MOD_INLINE static inline
#endif

__extension__ typedef unsigned __int128 rvli_mod;

#define RVLI_MOD_PRIME (((rvli_mod)1 << 127) - 1)

RVLI_MOD_INLINE rvli_mod rvli_mod_of(uint64_t low, uint64_t high)
{
    return (rvli_mod)high << 64 | low;
}

/* Reduces the sum of two numbers. */
RVLI_MOD_INLINE rvli_mod rvli_mod_fold(rvli_mod sum)
{
    return (sum & RVLI_MOD_PRIME) + (sum >> 127);
}

RVLI_MOD_INLINE rvli_mod rvli_mod_add(rvli_mod a, rvli_mod b)
{
    return rvli_mod_fold(a + b);
}

/* Multiplies in halves of 64 and 63 bits, so that no sum of products exceeds 128 bits. */
RVLI_MOD_INLINE rvli_mod rvli_mod_multiply(rvli_mod a, rvli_mod b)
{
    uint64_t a0 = (uint64_t)a, a1 = (uint64_t)(a >> 64);
    uint64_t b0 = (uint64_t)b, b1 = (uint64_t)(b >> 64);
    rvli_mod bottom = (rvli_mod)a0 * b0;
    rvli_mod middle = (rvli_mod)a0 * b1 + (rvli_mod)a1 * b0 + (uint64_t)(bottom >> 64);
    rvli_mod top = (rvli_mod)a1 * b1 + (uint64_t)(middle >> 64);
    rvli_mod below = rvli_mod_of((uint64_t)bottom, (uint64_t)middle & (UINT64_MAX >> 1));
    return rvli_mod_add(below, top << 1 | (uint64_t)middle >> 63);
}

RVLI_MOD_INLINE rvli_mod rvli_mod_power(rvli_mod base, uint64_t exponent)
{
    rvli_mod power = 1;
    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            power = rvli_mod_multiply(power, base);
        base = rvli_mod_multiply(base, base);
    }
    return power;
}

/* Returns the unique representative: 0 for the prime. */
RVLI_MOD_INLINE rvli_mod rvli_mod_least(rvli_mod a)
{
    return a == RVLI_MOD_PRIME ? 0 : a;
}

#endif
