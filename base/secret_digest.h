/* SPDX-License-Identifier: MIT */
/*
 * Digests of memory by a secret, which tell that two contents are equal.
 *
 * Definition: the content is a row of n little-endian 64-bit words w[0] to w[n - 1], and the secret
 * a number r. The digest is the polynomial w[0] r^n + w[1] r^(n - 1) + ... + w[n - 1] r modulo the
 * prime 2^127 - 1. Reasons:
 *
 * Two contents of one size that differ have equal digests for at most n values of r, as a
 * polynomial of degree n has no more roots. r is one of 2^126 odd numbers, drawn from random bits
 * of the system. So two contents of 16 MiB are mistaken for each other in at most one of 2^105
 * cases, whatever they are, as long as they were made without knowing r. The sums of base/digest.h
 * promise this only of contents that nobody has made on purpose.
 *
 * The digest of a content follows from those of its parts: rvli_secret_digest_join().
 *
 * Any number of threads may share the work: each takes every so many words.
 */
#ifndef RVL_BASE_SECRET_DIGEST_H
#define RVL_BASE_SECRET_DIGEST_H

#include "base/digest.h"

typedef struct rvli_secret {
    uint64_t low, high; /* of r: odd, and below 2^127 */
} rvli_secret;

/* r from 16 random bytes, whatever they are. */
rvli_secret rvli_secret_of(const void *random_bytes);

/* The digest of size bytes, a multiple of 8; 0 bytes have the digest 0. Any alignment. */
rvli_digest rvli_secret_digest_of(const rvli_secret *secret, const void *bytes, uint64_t size);

/* The digest of a content and of what follows it, `size` bytes. */
rvli_digest rvli_secret_digest_join(const rvli_secret *secret, rvli_digest content,
                                    rvli_digest following, uint64_t size);

#endif
