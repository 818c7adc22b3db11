/* SPDX-License-Identifier: MIT */
#include "base/digest.h"

#include <endian.h>
#include <string.h>

#include "base/digest_mix.h"

#define LANES 4u /* independent sums, so that the CPU can overlap them */
#define LANES_BYTES (LANES * sizeof(uint64_t))

static uint64_t word_at(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return le64toh(word);
}

rvli_digest rvli_digest_of(const void *bytes, uint64_t size)
{
    const char *at = bytes;
    uint64_t key = rvli_digest_key(0);
    uint64_t low[LANES] = {0}, high[LANES] = {0};
    for (; size >= LANES_BYTES;
         size -= LANES_BYTES, at += LANES_BYTES, key += LANES * RVLI_DIGEST_STEP)
        for (unsigned i = 0; i < LANES; i++)
            rvli_digest_add(word_at(at + i * sizeof(uint64_t)), key + i * RVLI_DIGEST_STEP, &low[i],
                            &high[i]);
    for (; size >= 8; size -= 8, at += 8, key += RVLI_DIGEST_STEP)
        rvli_digest_add(word_at(at), key, &low[0], &high[0]);
    return (rvli_digest){.low = low[0] + low[1] + low[2] + low[3],
                         .high = high[0] + high[1] + high[2] + high[3]};
}
