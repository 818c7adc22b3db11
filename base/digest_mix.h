/* SPDX-License-Identifier: MIT */
/*
 * How one word enters a digest. Shared by the CPU and the GPU: compiled as C and as CUDA.
 *
 * Three rounds multiply by an odd constant and fold the upper half into the lower one. Each step is
 * a bijection of the word, so no change of a single word is ever lost. A fold comes last before
 * each sum, because a multiplication there would only scale the sum by a factor. The position
 * enters twice, by addition and by exclusive or, so that moving words cannot preserve both sums.
 * The cost is nine 32-bit multiplications for each word. The folds by 32 bits and the rotation of
 * the key need no shift on a GPU.
 */
#ifndef RVL_BASE_DIGEST_MIX_H
#define RVL_BASE_DIGEST_MIX_H

#include <stdint.h>

#ifdef __CUDACC__
#define RVLI_DIGEST_INLINE static __device__ __forceinline__
#else
#define RVLI_DIGEST_INLINE static inline
#endif

/* The fractional parts of the golden ratio and of the square roots of 2, 3 and 5, made odd. */
#define RVLI_DIGEST_STEP UINT64_C(0x9E3779B97F4A7C15)
#define RVLI_DIGEST_FIRST UINT64_C(0x6A09E667F3BCC909)
#define RVLI_DIGEST_SECOND UINT64_C(0xBB67AE8584CAA73B)
#define RVLI_DIGEST_THIRD UINT64_C(0x3C6EF372FE94F82B)

/* Returns the key of the word at an index. Each next word's key is RVLI_DIGEST_STEP greater. */
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
