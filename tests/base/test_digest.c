/* SPDX-License-Identifier: MIT */
/* Digests: values by the definition, and what they must see. */
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "tests/support/support.h"

#define BYTES 4096
#define WORDS (BYTES / 8)

static bool same(rvli_digest a, rvli_digest b)
{
    return a.low == b.low && a.high == b.high;
}

/* Either number alone tells the two apart. */
static void check_different(rvli_digest a, rvli_digest b)
{
    assert_int_not_equal(a.low, b.low);
    assert_int_not_equal(a.high, b.high);
}

static void check_digest(const void *bytes, uint64_t size, uint64_t low, uint64_t high)
{
    rvli_digest digest = rvli_digest_of(bytes, size);
    assert_int_equal(digest.low, low);
    assert_int_equal(digest.high, high);
}

/* Words of no pattern (splitmix64). */
static uint64_t *random_words(uint64_t seed)
{
    uint64_t *words = malloc(BYTES);
    assert_non_null(words);
    for (int i = 0; i < WORDS; i++) {
        uint64_t mixed = seed += UINT64_C(0x9E3779B97F4A7C15);
        mixed = (mixed ^ mixed >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94D049BB133111EB);
        words[i] = mixed ^ mixed >> 31;
    }
    return words;
}

/* Computed from the definition in base/digest.h by another program. */
static void values_are_those_of_the_definition(void **state)
{
    (void)state;
    static const unsigned char zeros[BYTES];
    unsigned char ramp[BYTES + 1];
    for (int i = 0; i < BYTES; i++)
        ramp[i + 1] = (unsigned char)(i * 7);
    check_digest(zeros, 0, 0, 0);
    check_digest(zeros, 8, UINT64_C(0x9F30D395D49A3E5D), UINT64_C(0x5F424BEE6FCDB8A2));
    check_digest("\1\0\0\0\0\0\0", 8, UINT64_C(0x0672A3E6823418A8), UINT64_C(0x83CB09CD75A6CC16));
    check_digest("0123456789abcdef", 16, UINT64_C(0xA7CEE04C9D2CFC5E),
                 UINT64_C(0xAAC1326E6886B688));
    check_digest(zeros, BYTES, UINT64_C(0xEEF5C2354EA72442), UINT64_C(0x8349AB88CF3A9E34));
    check_digest(ramp + 1, BYTES, UINT64_C(0xCD90F6540A7F5F75), UINT64_C(0x42F5A496D17DA5AA));
}

static void every_flipped_bit_is_seen(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2; seed++) {
        uint64_t *words = random_words(seed);
        if (seed == 0)
            memset(words, 0, BYTES);
        rvli_digest before = rvli_digest_of(words, BYTES);
        for (int bit = 0; bit < BYTES * 8; bit++) {
            words[bit / 64] ^= UINT64_C(1) << bit % 64;
            check_different(before, rvli_digest_of(words, BYTES));
            words[bit / 64] ^= UINT64_C(1) << bit % 64;
        }
        assert_true(same(before, rvli_digest_of(words, BYTES)));
        free(words);
    }
}

/* The same bit of two words: in a sum of weak numbers they would cancel. */
static void two_flipped_bits_do_not_cancel(void **state)
{
    (void)state;
    uint64_t *words = random_words(3);
    rvli_digest before = rvli_digest_of(words, BYTES);
    for (int bit = 0; bit < 64; bit += 9)
        for (int a = 0; a < WORDS; a += 5)
            for (int b = a + 1; b < WORDS; b += 17) {
                words[a] ^= UINT64_C(1) << bit;
                words[b] ^= UINT64_C(1) << bit;
                check_different(before, rvli_digest_of(words, BYTES));
                words[a] ^= UINT64_C(1) << bit;
                words[b] ^= UINT64_C(1) << bit;
            }
    free(words);
}

static void moved_content_is_seen(void **state)
{
    (void)state;
    uint64_t *words = random_words(5), *moved = random_words(5);
    rvli_digest before = rvli_digest_of(words, BYTES);
    for (int i = 1; i < WORDS; i++) { /* two words change places */
        moved[0] = words[i];
        moved[i] = words[0];
        check_different(before, rvli_digest_of(moved, BYTES));
        moved[i] = words[i];
    }
    memcpy(moved, words + WORDS / 2, BYTES / 2); /* two halves */
    memcpy(moved + WORDS / 2, words, BYTES / 2);
    check_different(before, rvli_digest_of(moved, BYTES));
    for (int shift = 1; shift < WORDS; shift++) { /* all turned round */
        memcpy(moved, words + shift, BYTES - (size_t)shift * 8);
        memcpy(moved + WORDS - shift, words, (size_t)shift * 8);
        check_different(before, rvli_digest_of(moved, BYTES));
    }
    free(words);
    free(moved);
}

/* Even of contents that are made of one byte each, and of their lengths. */
static void uniform_contents_differ(void **state)
{
    (void)state;
    unsigned char bytes[BYTES];
    rvli_digest digests[256];
    for (int value = 0; value < 256; value++) {
        memset(bytes, value, sizeof bytes);
        digests[value] = rvli_digest_of(bytes, sizeof bytes);
        check_different(digests[value], (rvli_digest){0});
        check_different(digests[value], rvli_digest_of(bytes, sizeof bytes - 8));
        for (int other = 0; other < value; other++)
            check_different(digests[value], digests[other]);
    }
}

/* A flipped bit turns about half of the 128 bits over. */
static void a_flipped_bit_spreads(void **state)
{
    (void)state;
    uint64_t *words = random_words(7);
    rvli_digest before = rvli_digest_of(words, BYTES);
    int low_bits = 0, high_bits = 0;
    for (int bit = 0; bit < 64; bit++) {
        words[bit] ^= UINT64_C(1) << bit;
        rvli_digest after = rvli_digest_of(words, BYTES);
        low_bits += __builtin_popcountll(before.low ^ after.low);
        high_bits += __builtin_popcountll(before.high ^ after.high);
        words[bit] ^= UINT64_C(1) << bit;
    }
    assert_in_range(low_bits, 64 * 26, 64 * 36);
    assert_in_range(high_bits, 64 * 29, 64 * 35);
    free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_the_definition),
        cmocka_unit_test(every_flipped_bit_is_seen),
        cmocka_unit_test(two_flipped_bits_do_not_cancel),
        cmocka_unit_test(moved_content_is_seen),
        cmocka_unit_test(uniform_contents_differ),
        cmocka_unit_test(a_flipped_bit_spreads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
