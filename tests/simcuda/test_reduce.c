/* SPDX-License-Identifier: MIT */
/* NCCL's reductions: every small float, and integers at the limits of their range. */
#include <setjmp.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "simcuda/nccl/reduce.h"

/* The value of a code by IEEE 754 and the fp8 formats, from a table of their fields. */
static float meaning(rvli_nccl_type type, unsigned code)
{
    const int bits[RVLI_NCCL_TYPES][2] = {[RVLI_NCCL_FLOAT16] = {5, 10},
                                          [RVLI_NCCL_BFLOAT16] = {8, 7},
                                          [RVLI_NCCL_FLOAT8_E4M3] = {4, 3},
                                          [RVLI_NCCL_FLOAT8_E5M2] = {5, 2}};
    int e = bits[type][0], m = bits[type][1], bias = (1 << (e - 1)) - 1;
    unsigned exponent = code >> m & ((1u << e) - 1), mantissa = code & ((1u << m) - 1);
    float sign = code >> (e + m) ? -1.0f : 1.0f;
    bool last = exponent == (1u << e) - 1;
    if (type == RVLI_NCCL_FLOAT8_E4M3 ? last && mantissa == 7 : last && mantissa != 0)
        return NAN;
    if (last && type != RVLI_NCCL_FLOAT8_E4M3)
        return sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)mantissa, 1 - bias - m);
    return sign * ldexpf((float)(mantissa + (1u << m)), (int)exponent - bias - m);
}

static const rvli_nccl_type small[] = {RVLI_NCCL_FLOAT16, RVLI_NCCL_BFLOAT16, RVLI_NCCL_FLOAT8_E4M3,
                                       RVLI_NCCL_FLOAT8_E5M2};

static unsigned add(rvli_nccl_type type, rvli_reduction how, unsigned a, unsigned b)
{
    uint16_t into = (uint16_t)a, with = (uint16_t)b;
    rvli_reduce_into(type, how, &into, &with, 1);
    return into;
}

/* A number plus zero is itself, and so is the maximum of it and itself. */
static void every_small_float_stays_what_it_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        for (unsigned code = 0; code < 1u << 8 * rvli_type_bytes(small[i]); code++) {
            unsigned sum = add(small[i], RVLI_REDUCE_SUM, code, 0);
            unsigned most = add(small[i], RVLI_REDUCE_MAX, code, code);
            float value = meaning(small[i], code);
            if (isnan(value)) {
                assert_true(isnan(meaning(small[i], sum)));
                assert_true(isnan(meaning(small[i], most)));
            } else if (isinf(value) && small[i] == RVLI_NCCL_FLOAT8_E5M2) {
                assert_int_equal(sum & 0x7f, 0x7b); /* fp8 saturates at its largest number */
            } else {
                assert_true(meaning(small[i], sum) == value);
                assert_true(value == 0 || sum == code);
                assert_true(meaning(small[i], most) == value);
            }
        }
}

/* The sum is at least as near to the exact sum as its neighbours are. */
static void sums_are_rounded_to_the_nearest(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        unsigned codes = 1u << 8 * rvli_type_bytes(small[i]), step = codes > 256 ? 331 : 1;
        for (unsigned a = 0; a < codes; a += step)
            for (unsigned b = 0; b < codes; b += step) {
                double exact = (double)meaning(small[i], a) + (double)meaning(small[i], b);
                unsigned sum = add(small[i], RVLI_REDUCE_SUM, a, b);
                double got = meaning(small[i], sum);
                if (!isfinite(exact) || !isfinite(got) || got == exact)
                    continue;
                double up = meaning(small[i], sum + 1);
                double down = (sum & (codes / 2 - 1)) > 0 ? meaning(small[i], sum - 1) : NAN;
                assert_false(fabs(up - exact) < fabs(got - exact));
                assert_false(fabs(down - exact) < fabs(got - exact));
                if (fabs(up - exact) == fabs(got - exact))
                    assert_int_equal(sum & 1, 0); /* ties go to even */
            }
    }
}

static void known_sums(void **state)
{
    (void)state;
    assert_int_equal(add(RVLI_NCCL_FLOAT16, RVLI_REDUCE_SUM, 0x3c00, 0x4000), 0x4200); /* 1 + 2 */
    assert_int_equal(add(RVLI_NCCL_FLOAT16, RVLI_REDUCE_SUM, 0x7bff, 0x7bff), 0x7c00); /* inf */
    assert_int_equal(add(RVLI_NCCL_FLOAT16, RVLI_REDUCE_SUM, 0x6800, 0x3c00),
                     0x6800); /* 2048 + 1 */
    assert_int_equal(add(RVLI_NCCL_FLOAT16, RVLI_REDUCE_PRODUCT, 0x4200, 0xc000), 0xc600); /* -6 */
    assert_int_equal(add(RVLI_NCCL_BFLOAT16, RVLI_REDUCE_SUM, 0x3f80, 0x4000), 0x4040);
    assert_int_equal(add(RVLI_NCCL_BFLOAT16, RVLI_REDUCE_SUM, 0x4380, 0x3f80),
                     0x4380); /* 256 + 1 */
    assert_int_equal(add(RVLI_NCCL_BFLOAT16, RVLI_REDUCE_MIN, 0xbf80, 0x3f80), 0xbf80);
    assert_int_equal(add(RVLI_NCCL_FLOAT8_E4M3, RVLI_REDUCE_SUM, 0x38, 0x40), 0x44);
    assert_int_equal(add(RVLI_NCCL_FLOAT8_E4M3, RVLI_REDUCE_SUM, 0x7e, 0x7e), 0x7e); /* 448 */
    assert_int_equal(add(RVLI_NCCL_FLOAT8_E5M2, RVLI_REDUCE_MAX, 0x3c, 0xbc), 0x3c);
}

static void a_number_beats_what_is_none(void **state)
{
    float into = NAN, with = 3;
    (void)state;
    rvli_reduce_into(RVLI_NCCL_FLOAT32, RVLI_REDUCE_MAX, &into, &with, 1);
    assert_true(into == 3);
    into = NAN;
    rvli_reduce_into(RVLI_NCCL_FLOAT32, RVLI_REDUCE_SUM, &into, &with, 1);
    assert_true(isnan(into));
}

static void integers_wrap_and_compare_by_their_sign(void **state)
{
    int8_t small_into[] = {127, -128, -1, 5}, small_with[] = {1, -1, 1, -7};
    uint8_t bytes_into[] = {255, 200}, bytes_with[] = {1, 100};
    int64_t into = INT64_MIN, with = -1;
    uint64_t whole_into = UINT64_MAX, whole_with = 1;
    (void)state;
    rvli_reduce_into(RVLI_NCCL_INT8, RVLI_REDUCE_SUM, small_into, small_with, 4);
    assert_int_equal(small_into[0], -128);
    assert_int_equal(small_into[1], 127);
    assert_int_equal(small_into[2], 0);
    assert_int_equal(small_into[3], -2);
    rvli_reduce_into(RVLI_NCCL_INT8, RVLI_REDUCE_MIN, small_into, small_with, 4);
    assert_int_equal(small_into[3], -7);
    rvli_reduce_into(RVLI_NCCL_UINT8, RVLI_REDUCE_MAX, bytes_into, bytes_with, 2);
    assert_int_equal(bytes_into[0], 255);
    rvli_reduce_into(RVLI_NCCL_INT64, RVLI_REDUCE_MAX, &into, &with, 1);
    assert_true(into == -1);
    rvli_reduce_into(RVLI_NCCL_UINT64, RVLI_REDUCE_MIN, &whole_into, &whole_with, 1);
    assert_true(whole_into == 1);
}

static void averages(void **state)
{
    int32_t whole = -7;
    uint32_t natural = 0xfffffffe;
    float single = 1;
    double wide = 1;
    uint16_t half = 0x4200; /* 3 */
    (void)state;
    rvli_reduce_before_average(RVLI_NCCL_INT32, &whole, 1, 3);
    assert_int_equal(whole, -7);
    rvli_reduce_after_average(RVLI_NCCL_INT32, &whole, 1, 3);
    assert_int_equal(whole, -2);
    rvli_reduce_after_average(RVLI_NCCL_UINT32, &natural, 1, 2);
    assert_true(natural == 0x7fffffff);
    rvli_reduce_before_average(RVLI_NCCL_FLOAT32, &single, 1, 3);
    assert_true(single == 1.0f / 3);
    rvli_reduce_after_average(RVLI_NCCL_FLOAT32, &single, 1, 3);
    assert_true(single == 1.0f / 3);
    rvli_reduce_before_average(RVLI_NCCL_FLOAT64, &wide, 1, 3);
    assert_true(wide == 1.0 / 3);
    rvli_reduce_before_average(RVLI_NCCL_FLOAT16, &half, 1, 2);
    assert_int_equal(half, 0x3e00); /* 1.5 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_float_stays_what_it_is),
        cmocka_unit_test(sums_are_rounded_to_the_nearest),
        cmocka_unit_test(known_sums),
        cmocka_unit_test(a_number_beats_what_is_none),
        cmocka_unit_test(integers_wrap_and_compare_by_their_sign),
        cmocka_unit_test(averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
