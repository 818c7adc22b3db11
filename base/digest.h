/* SPDX-License-Identifier: MIT */
/*
 * 128-bit digests of memory.
 *
 * A digest shows whether content has changed or was corrupted. It is not cryptographic: it is
 * possible to construct other content with a known digest.
 *
 * Definition: the content is a sequence of little-endian 64-bit words. Word w at index i yields two
 * numbers, m1 and m2, by the rounds of base/digest_mix.h. The digest is the sums of m1 and of m2
 * over all words, modulo 2^64. Reasons:
 *  - A sum does not depend on the order of its terms, so any number of threads may share the work.
 *  - Both numbers depend on i, so words that are swapped, moved or shifted are detected.
 *  - Both numbers are bijections of the word: a change within one word always shows in both sums.
 *    Changes of several words cancel only by chance, in about one of 2^128 cases.
 *  - Zeros do not give 0, and the index counts from the start of the content: equal granules have
 *    equal digests wherever they lie.
 */
#ifndef RVL_BASE_DIGEST_H
#define RVL_BASE_DIGEST_H

#include <stdint.h>

typedef struct rvli_digest {
    uint64_t low, high; /* the sums of m1 and of m2 */
} rvli_digest;

/* Returns the digest of size bytes, a multiple of 8. 0 bytes have the digest 0. Any alignment. */
rvli_digest rvli_digest_of(const void *bytes, uint64_t size);

#endif
