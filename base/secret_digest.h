/* SPDX-License-Identifier: MIT */
/*
 * Digests of memory under a secret, which show that two contents are equal.
 *
 * Definition: the content is a sequence of n little-endian 64-bit words w[0] to w[n - 1], and the
 * secret is a number r. The digest is the polynomial w[0] r^n + w[1] r^(n - 1) + ... + w[n - 1] r
 * modulo the prime 2^127 - 1. Reasons:
 *
 * Two different contents of one size have equal digests for at most n values of r, because a
 * polynomial of degree n has at most n roots. r is one of 2^126 odd numbers, drawn from random bits
 * of the system. So two contents of 16 MiB are mistaken for each other in at most one of 2^105
 * cases, whatever they are, as long as they were made without knowing r. The sums of base/digest.h
 * promise this only for contents that were not made on purpose.
 *
 * The digest of a content follows from those of its parts: rvli_secret_digest_join().
 *
 * Any number of threads may share the work: each takes words at a fixed stride.
 */
#ifndef RVL_BASE_SECRET_DIGEST_H
#define RVL_BASE_SECRET_DIGEST_H

#include "base/digest.h"

typedef struct rvli_secret {
    uint64_t low, high; /* r: odd, and below 2^127 */
} rvli_secret;

/* Makes r from any 16 random bytes. */
rvli_secret rvli_secret_of(const void *random_bytes);

/* Returns the digest of size bytes, a multiple of 8. 0 bytes have the digest 0. Any alignment. */
rvli_digest rvli_secret_digest_of(const rvli_secret *secret, const void *bytes, uint64_t size);

/* Returns the digest of a content followed by `size` more bytes with the digest `following`. */
rvli_digest rvli_secret_digest_join(const rvli_secret *secret, rvli_digest content,
                                    rvli_digest following, uint64_t size);

#endif
