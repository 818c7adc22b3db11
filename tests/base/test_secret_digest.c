/* SPDX-License-Identifier: MIT */
/* Digests by a secret: values by the definition, what they must see, and how they are joined. */
#include <stdlib.h>
#include <string.h>

#include "base/secret_digest.h"
#include "tests/support/support.h"

#define BYTES 4096
#define WORDS (BYTES / 8)

static bool same(rvli_digest a, rvli_digest b)
{
    return a.low == b.low && a.high == b.high;
}

/* Without a pattern that the definition knows. */
static rvli_secret make_secret(void)
{
    unsigned char random_bytes[16];
    for (int i = 0; i < 16; i++)
        random_bytes[i] = (unsigned char)(i * 37 + 11);
    return rvli_secret_of(random_bytes);
}

static void check_digest(const void *bytes, uint64_t size, uint64_t low, uint64_t high)
{
    const rvli_secret secret = make_secret();
    rvli_digest digest = rvli_secret_digest_of(&secret, bytes, size);
    assert_int_equal(digest.low, low);
    assert_int_equal(digest.high, high);
}

static void secrets_are_odd_and_below_the_prime(void **state)
{
    (void)state;
    unsigned char all_bits[16];
    memset(all_bits, 0xFF, sizeof all_bits);
    const rvli_secret most = rvli_secret_of(all_bits),
                      least = rvli_secret_of("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_int_equal(most.low, UINT64_MAX);
    assert_int_equal(most.high, UINT64_MAX >> 1);
    assert_int_equal(least.low, 1);
    assert_int_equal(least.high, 0);
    assert_int_equal(make_secret().low, UINT64_C(0x0EE9C49F7A55300B));
    assert_int_equal(make_secret().high, UINT64_C(0x3611ECC7A27D5833));
}

/* Computed from the definition by Python's integers. */
static void values_are_those_of_the_definition(void **state)
{
    (void)state;
    static const unsigned char zeros[BYTES];
    unsigned char ramp[BYTES + 1], ones[BYTES];
    for (int i = 0; i < BYTES; i++)
        ramp[i + 1] = (unsigned char)(i * 7);
    memset(ones, 0xFF, sizeof ones);
    check_digest(zeros, 0, 0, 0);
    check_digest(zeros, BYTES, 0, 0);
    check_digest("0123456789abcdef", 16, UINT64_C(0x1C7976B65C0536D6),
                 UINT64_C(0x78F55A770E8EAF4C));
    check_digest(ramp + 1, BYTES, UINT64_C(0x4F13449E2E4BF5F2), UINT64_C(0x6ECFA066BD9C6B26));
    check_digest(ones, BYTES, UINT64_C(0x63501637EECD99E1), UINT64_C(0x6733CF33BB64F50C));
}

/* At r = 2, where products are shifts: 2^127 is 1, and the prime is 0. */
static void the_least_number_stands_for_all(void **state)
{
    (void)state;
    const rvli_secret two = {2, 0};
    uint64_t words[64] = {UINT64_C(1) << 62}; /* 2^126 */
    rvli_digest digest = rvli_secret_digest_of(&two, words, sizeof words);
    assert_int_equal(digest.low, 0);
    assert_int_equal(digest.high, UINT64_C(1) << 62);
    words[0] = UINT64_C(1) << 63; /* 2^127 */
    digest = rvli_secret_digest_of(&two, words, sizeof words);
    assert_int_equal(digest.low, 1);
    assert_int_equal(digest.high, 0);
    words[1] = UINT64_MAX;               /* 2^127 - 2^63 */
    words[63] = (UINT64_C(1) << 62) - 1; /* 2^63 - 2: together 2^127 - 1 */
    digest = rvli_secret_digest_of(&two, words, sizeof words);
    assert_int_equal(digest.low, 0);
    assert_int_equal(digest.high, 0);
}

static void changes_are_seen(void **state)
{
    (void)state;
    const rvli_secret secret = make_secret();
    uint64_t words[WORDS], moved[WORDS];
    for (uint64_t i = 0; i < WORDS; i++)
        words[i] = moved[i] = i * UINT64_C(0x9E3779B97F4A7C15);
    rvli_digest before = rvli_secret_digest_of(&secret, words, BYTES);
    for (int bit = 0; bit < BYTES * 8; bit += 3) {
        words[bit / 64] ^= UINT64_C(1) << bit % 64;
        assert_false(same(before, rvli_secret_digest_of(&secret, words, BYTES)));
        words[bit / 64] ^= UINT64_C(1) << bit % 64;
    }
    for (int i = 1; i < WORDS; i++) { /* two words change places */
        moved[0] = words[i];
        moved[i] = words[0];
        assert_false(same(before, rvli_secret_digest_of(&secret, moved, BYTES)));
        moved[i] = words[i];
    }
    assert_true(same(before, rvli_secret_digest_of(&secret, words, BYTES)));
}

/*
 * base/digest.h takes a word and its position together: with the right step added, two words change
 * places in its first sum. So such contents can be made; by a secret they differ.
 */
static void made_collisions_are_seen(void **state)
{
    (void)state;
    const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);
    const uint64_t one[2] = {5, 7}, other[2] = {7 + step, 5 - step};
    const rvli_secret secret = make_secret();
    assert_int_equal(rvli_digest_of(one, sizeof one).low, rvli_digest_of(other, sizeof other).low);
    assert_false(same(rvli_secret_digest_of(&secret, one, sizeof one),
                      rvli_secret_digest_of(&secret, other, sizeof other)));
}

static void digests_are_joined(void **state)
{
    (void)state;
    const rvli_secret secret = make_secret();
    unsigned char ramp[BYTES];
    for (int i = 0; i < BYTES; i++)
        ramp[i] = (unsigned char)(i * i >> 3);
    rvli_digest whole = rvli_secret_digest_of(&secret, ramp, BYTES);
    for (uint64_t first = 0; first <= BYTES; first += 8) {
        rvli_digest joined = rvli_secret_digest_join(
            &secret, rvli_secret_digest_of(&secret, ramp, first),
            rvli_secret_digest_of(&secret, ramp + first, BYTES - first), BYTES - first);
        assert_true(same(joined, whole));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_odd_and_below_the_prime),
        cmocka_unit_test(values_are_those_of_the_definition),
        cmocka_unit_test(the_least_number_stands_for_all),
        cmocka_unit_test(changes_are_seen),
        cmocka_unit_test(made_collisions_are_seen),
        cmocka_unit_test(digests_are_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
