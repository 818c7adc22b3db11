/* SPDX-License-Identifier: MIT */
/*
 * Profiles from measurements, from C: what is known, what is refused. That lines are right is held
 * by tests/cli/test_calibrate_fit.c, by the values that `reveille calibrate` keeps.
 */
#include "tests/support/support.h"

#include <string.h>

#include "reveille/calibrate.h"
#include "tests/support/short_memory.h"

SHORT_CALLOC

/* 10 us a call and 6 fs a byte. */
static const rvl_measurement measured[] = {
    {.act = "create", .unit = "ns", .bytes = 2 * MIB, .median_value = 10013, .count = 5},
    {.act = "create", .unit = "ns", .bytes = GIB, .median_value = 16442, .count = 5},
    {.act = "context_takes", .unit = "bytes", .median_value = 500 * MIB, .count = 1},
    {.act = "of another version", .unit = "ns", .bytes = 1, .median_value = 1, .count = 1},
};

#define COUNT (sizeof measured / sizeof measured[0])

static rvl_status fit(rvl_profile *profile, uint64_t *costs)
{
    return rvl_profile_fit(profile, measured, sizeof *measured, COUNT, costs);
}

static void fills_in_what_was_measured(void **state)
{
    (void)state;
    rvl_profile profile = {.struct_size = sizeof profile,
                           .name = "x",
                           .cost.map = {7, 8},
                           .waits = {.clear = {0, 9}, .unmap_clearing = {5, 0}}};
    uint64_t costs = 0;
    assert_int_equal(fit(&profile, &costs), RVL_OK);
    assert_int_equal(costs, 1u << RVL_COST_INDEX_create);
    assert_in_range(profile.cost.create.call_ns, 9990, 10010);
    assert_int_equal(profile.cost.create.fs_per_byte, 6);
    assert_int_equal(profile.driver.context_bytes, 500 * MIB);
    assert_int_equal(profile.cost.map.call_ns, 7);
    assert_int_equal(profile.waits.clear.fs_per_byte, 9);
    assert_int_equal(profile.waits.unmap_clearing.call_ns, 5);
    assert_string_equal(profile.name, "x");
    assert_int_equal(rvl_profile_fit(&profile, NULL, 0, 0, &costs), RVL_OK);
    assert_int_equal(costs, 0);
    assert_int_equal(profile.driver.context_bytes, 0);
}

/* An older program has a shorter profile, which gets as much as it has room for. */
static void profiles_are_as_long_as_the_caller_says(void **state)
{
    (void)state;
    rvl_profile profile = {.struct_size = offsetof(rvl_profile, driver), .driver.context_bytes = 3};
    uint64_t costs = 0;
    assert_int_equal(fit(&profile, &costs), RVL_OK);
    assert_int_equal(profile.cost.create.fs_per_byte, 6);
    assert_int_equal(profile.driver.context_bytes, 3);
}

/* A newer program's measurements are longer: what is beyond has to be 0. */
static void measurements_may_be_longer(void **state)
{
    (void)state;
    struct {
        rvl_measurement known;
        uint64_t beyond;
    } longer[2] = {{.known = measured[0]}, {.known = measured[1]}};
    rvl_profile profile = {.struct_size = sizeof profile};
    uint64_t costs = 0;
    assert_int_equal(rvl_profile_fit(&profile, &longer[0].known, sizeof *longer, 2, &costs),
                     RVL_OK);
    assert_int_equal(profile.cost.create.fs_per_byte, 6);
    longer[1].beyond = 1;
    assert_int_equal(rvl_profile_fit(&profile, &longer[0].known, sizeof *longer, 2, &costs),
                     RVL_ERR_VERSION);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    rvl_profile profile = {.struct_size = sizeof profile};
    const rvl_profile before = profile;
    rvl_measurement nameless = {.unit = "ns"};
    uint64_t costs = 9;
    assert_int_equal(rvl_profile_fit(NULL, measured, sizeof *measured, COUNT, &costs),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_profile_fit(&profile, NULL, sizeof *measured, COUNT, &costs),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_profile_fit(&profile, measured, sizeof *measured, COUNT, NULL),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_profile_fit(&profile, measured, 8, COUNT, &costs), RVL_ERR_INVALID);
    assert_int_equal(rvl_profile_fit(&profile, &nameless, sizeof nameless, 1, &costs),
                     RVL_ERR_INVALID);
    profile.struct_size = 0;
    assert_int_equal(fit(&profile, &costs), RVL_ERR_INVALID);
    profile = before;
    short_memory_left = 0;
    rvl_status status = fit(&profile, &costs);
    short_memory_left = -1;
    assert_int_equal(status, RVL_ERR_HOST_OOM);
    assert_memory_equal(&profile, &before, sizeof profile);
    assert_int_equal(costs, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_what_was_measured),
        cmocka_unit_test(profiles_are_as_long_as_the_caller_says),
        cmocka_unit_test(measurements_may_be_longer),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
