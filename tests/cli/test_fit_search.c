/* SPDX-License-Identifier: MIT */
/* The search of `reveille fit`, against functions that say what fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fit/search.h"

typedef bool (*fits_fn)(uint64_t value, uint64_t bound);

static bool up_to(uint64_t value, uint64_t bound)
{
    return value <= bound;
}

/* Two behind the edge there is room again. */
static bool with_a_gap(uint64_t value, uint64_t bound)
{
    return value <= bound || value == bound + 3;
}

/* Only multiples of four have room beyond the bound: any edge of it will do. */
static bool by_fours(uint64_t value, uint64_t bound)
{
    return value <= bound || (value % 4 == 0 && value <= bound + 12);
}

/* How many rounds it took. */
static size_t run(search *of, uint64_t first, uint64_t last, size_t at_once, fits_fn fits,
                  uint64_t bound)
{
    uint64_t values[SEARCH_AT_ONCE_MAX];
    size_t rounds = 0, count;
    assert_true(search_begin(of, first, last));
    while ((count = search_next(of, values, at_once)) > 0) {
        assert_true(count <= at_once && ++rounds < 200);
        for (size_t i = 0; i < count; i++) {
            assert_in_range(values[i], first, last);
            search_answer(of, values[i], fits(values[i], bound));
        }
    }
    return rounds;
}

static void check(uint64_t first, uint64_t last, size_t at_once, uint64_t bound)
{
    search of;
    uint64_t largest = 0, edge = 0, again;
    run(&of, first, last, at_once, up_to, bound);
    assert_int_equal(search_largest(&of, &largest), bound >= first);
    if (bound >= first)
        assert_int_equal(largest, bound < last ? bound : last);
    assert_int_equal(search_edge(&of, &edge), bound < last);
    if (bound >= first && bound < last)
        assert_int_equal(edge, bound + 1);
    assert_false(search_again(&of, &again));
    search_end(&of);
}

static void every_bound_is_found(void **state)
{
    (void)state;
    for (size_t at_once = 1; at_once <= 5; at_once += 2)
        for (uint64_t bound = 0; bound <= 70; bound++) {
            check(1, 64, at_once, bound);
            check(7, 9, at_once, bound);
            check(5, 5, at_once, bound);
            check(0, 40, at_once, bound);
        }
    check(1, UINT64_MAX, 1, UINT64_MAX - 2);
    check(1, UINT64_MAX, 64, UINT64_C(1) << 40);
}

/* 512 values: nine doublings and eight halvings at most, and half of it with four at once. */
static void few_rounds_are_needed(void **state)
{
    (void)state;
    search of;
    for (uint64_t bound = 1; bound <= 512; bound++) {
        assert_true(run(&of, 1, 512, 1, up_to, bound) <= 23);
        search_end(&of);
        assert_true(run(&of, 1, 512, 4, up_to, bound) <= 9);
        search_end(&of);
    }
}

static void a_larger_value_that_fits_again_is_told(void **state)
{
    (void)state;
    search of;
    uint64_t value = 0;
    run(&of, 1, 512, 1, with_a_gap, 46);
    assert_true(search_largest(&of, &value));
    assert_int_equal(value, 46);
    assert_true(search_edge(&of, &value));
    assert_int_equal(value, 47);
    assert_true(search_again(&of, &value));
    assert_int_equal(value, 49);
    search_end(&of);

    run(&of, 1, 512, 1, by_fours, 46);
    assert_true(search_largest(&of, &value));
    assert_true(by_fours(value, 46) && !by_fours(value + 1, 46));
    search_end(&of);
}

/* A list is searched by its places, so that five values need at most five runs. */
static void a_list_is_searched_by_its_places(void **state)
{
    static const uint64_t list[] = {3, 16, 48, 96, 1000};
    (void)state;
    search of;
    uint64_t values[SEARCH_AT_ONCE_MAX], value = 0;
    for (uint64_t bound = 0; bound <= 1000; bound += 1 + bound / 4) {
        size_t runs = 0, fit = 0;
        while (fit < 5 && list[fit] <= bound)
            fit++;
        assert_true(search_begin_list(&of, list, 5));
        while (search_next(&of, values, 1) == 1 && ++runs <= 5)
            search_answer(&of, values[0], values[0] <= bound);
        assert_true(runs <= 5);
        assert_int_equal(search_largest(&of, &value), fit > 0);
        if (fit > 0)
            assert_int_equal(value, list[fit - 1]);
        assert_int_equal(search_edge(&of, &value), fit < 5);
        if (fit < 5)
            assert_int_equal(value, list[fit]);
        assert_false(search_again(&of, &value));
        search_end(&of);
    }
    assert_true(search_begin_list(&of, list, 1));
    assert_int_equal(search_next(&of, values, 8), 1);
    assert_int_equal(values[0], 3);
    search_end(&of);
}

static void what_was_not_asked_for_is_not_heard(void **state)
{
    (void)state;
    search of;
    uint64_t value;
    assert_true(search_begin(&of, 1, 8));
    search_answer(&of, 3, true);
    assert_false(search_largest(&of, &value));
    search_end(&of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bound_is_found),
        cmocka_unit_test(few_rounds_are_needed),
        cmocka_unit_test(a_larger_value_that_fits_again_is_told),
        cmocka_unit_test(a_list_is_searched_by_its_places),
        cmocka_unit_test(what_was_not_asked_for_is_not_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
