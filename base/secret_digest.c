/* SPDX-License-Identifier: MIT */
#include "base/secret_digest.h"

#include <endian.h>
#include <string.h>

#include "base/secret_digest_mix.h"

#define BLOCK 32u /* words; their products are added before the sum is folded */

#define BLOCK_BYTES (BLOCK * sizeof(uint64_t))

/* A sum of up to 2^64 numbers of 128 bits each. */
typedef struct wide_sum {
    rvli_mod low;
    uint64_t carries;
} wide_sum;

static rvli_mod number_of(rvli_digest digest)
{
    return rvli_mod_of(digest.low, digest.high);
}

static rvli_digest digest_of(rvli_mod number)
{
    number = rvli_mod_least(number);
    return (rvli_digest){(uint64_t)number, (uint64_t)(number >> 64)};
}

static rvli_mod root_of(const rvli_secret *secret)
{
    return rvli_mod_of(secret->low, secret->high);
}

rvli_secret rvli_secret_of(const void *random_bytes)
{
    uint64_t words[2];
    memcpy(words, random_bytes, sizeof words);
    return (rvli_secret){words[0] | 1, words[1] & (UINT64_MAX >> 1)};
}

static uint64_t word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return le64toh(word);
}

static inline void add_wide(wide_sum *sum, rvli_mod number)
{
    sum->carries += __builtin_add_overflow(sum->low, number, &sum->low);
}

/* 2^128 is congruent to 2. */
static inline rvli_mod fold_wide(wide_sum sum)
{
    return rvli_mod_add(rvli_mod_fold(sum.low), (rvli_mod)sum.carries << 1);
}

/* Returns the sum of a block. The halves of the powers are summed separately. */
static inline rvli_mod sum_of_block(const char *at, const rvli_mod *power)
{
    wide_sum low = {0}, high = {0};
    for (unsigned i = 0; i < BLOCK; i++) {
        uint64_t word = word_at(at + i * sizeof word);
        add_wide(&low, (rvli_mod)word * (uint64_t)power[BLOCK - i]);
        add_wide(&high, (rvli_mod)word * (uint64_t)(power[BLOCK - i] >> 64));
    }
    return rvli_mod_add(fold_wide(low), rvli_mod_multiply(fold_wide(high), (rvli_mod)1 << 64));
}

rvli_digest rvli_secret_digest_of(const rvli_secret *secret, const void *bytes, uint64_t size)
{
    const char *at = bytes;
    const rvli_mod root = root_of(secret);
    rvli_mod power[BLOCK + 1] = {1}, sum = 0;
    for (unsigned i = 1; i <= BLOCK; i++)
        power[i] = rvli_mod_multiply(power[i - 1], root);
    for (; size >= BLOCK_BYTES; size -= BLOCK_BYTES, at += BLOCK_BYTES)
        sum = rvli_mod_add(rvli_mod_multiply(sum, power[BLOCK]), sum_of_block(at, power));
    for (; size >= sizeof(uint64_t); size -= sizeof(uint64_t), at += sizeof(uint64_t))
        sum = rvli_mod_multiply(rvli_mod_add(sum, word_at(at)), root);
    return digest_of(sum);
}

rvli_digest rvli_secret_digest_join(const rvli_secret *secret, rvli_digest content,
                                    rvli_digest following, uint64_t size)
{
    rvli_mod shift = rvli_mod_power(root_of(secret), size / sizeof(uint64_t));
    return digest_of(
        rvli_mod_add(rvli_mod_multiply(number_of(content), shift), number_of(following)));
}
