/* SPDX-License-Identifier: MIT */
/*
 * What one word adds to a digest, for the CPU and the GPU alike: compiled as C and as CUDA.
 *
 * Three rounds of multiplying by an odd constant and folding the upper half into the lower one.
 * Each step is a bijection of the word, so that no change of a single word is ever lost. Folding
 * comes last before each sum: a multiplication there would leave the sum as it is except for a
 * factor. The position goes in twice, by addition and by exclusive or, so that moving words about
 * cannot keep both sums. Nine 32-bit multiplications a word; the folds by 32 bits and the turn of
 * the key cost a GPU no shift.
 */
#ifndef RVL_BASE_DIGEST_MIX_H
#define RVL_BASE_DIGEST_MIX_H

#include <stdint.h>

#ifdef __CUDACC__
#define RVLI_DIGEST_INLINE static __device__ __forceinline__
#else
#define RVLI_DIGEST_INLINE static inline
#endif

/* The golden ratio's fraction, and those of the square roots of 2, 3 and 5, made odd. */
#define RVLI_DIGEST_STEP UINT64_C(0x9E3779B97F4A7C15)
#define RVLI_DIGEST_FIRST UINT64_C(0x6A09E667F3BCC909)
#define RVLI_DIGEST_SECOND UINT64_C(0xBB67AE8584CAA73B)
#define RVLI_DIGEST_THIRD UINT64_C(0x3C6EF372FE94F82B)

/* The key of the word of an index; the next word's is RVLI_DIGEST_STEP more. */
RVLI_DIGEST_INLINE uint64_t rvli_digest_key(uint64_t index)
{
    return (index + 1) * RVLI_DIGEST_STEP;
}

RVLI_DIGEST_INLINE void rvli_digest_add(uint64_t word, uint64_t key, uint64_t *low, uint64_t *high)
{
    uint64_t mixed = (word + key) * RVLI_DIGEST_FIRST;
    mixed = (mixed ^ mixed >> 32) * RVLI_DIGEST_SECOND;
    mixed ^= mixed >> 32;
    *low += mixed;
    mixed = (mixed ^ (key << 32 | key >> 32)) * RVLI_DIGEST_THIRD;
    *high += mixed ^ mixed >> 32;
}

#endif
