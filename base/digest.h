/* SPDX-License-Identifier: MIT */
/*
 * 128-bit digests of memory.
 *
 * A digest tells that content has changed or was corrupted. It is not cryptographic: who knows
 * it can make other content of the same digest.
 *
 * Definition: the content is a row of little-endian 64-bit words. Word w at index i gives two
 * numbers, m1 and m2, by the rounds of base/digest_mix.h; the digest is their sums over all words
 * modulo 2^64. Reasons:
 *  - A sum is the same in whatever order it is made: any number of threads may share the work.
 *  - i takes part in both numbers: words that are swapped, moved or shifted are seen.
 *  - Both numbers are bijections of the word: a change within one word always shows in both sums.
 *    Changes of several words cancel by chance alone, in about one of 2^128 cases.
 *  - Zeros do not give 0, and the index is counted from the start of the content: equal granules
 *    have equal digests wherever they lie.
 */
#ifndef RVL_BASE_DIGEST_H
#define RVL_BASE_DIGEST_H

#include <stdint.h>

typedef struct rvli_digest {
    uint64_t low, high; /* the sums of m1 and of m2 */
} rvli_digest;

/* The digest of size bytes, a multiple of 8; 0 bytes have the digest 0. Any alignment. */
rvli_digest rvli_digest_of(const void *bytes, uint64_t size);

#endif
