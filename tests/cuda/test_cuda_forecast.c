/* SPDX-License-Identifier: MIT */
/*
 * Forecasts of a real context on the fake driver. Its calls cost what the test says: at first
 * what a profile says, then what this card's own transitions took.
 *
 * Calls sleep, so they never take less than they cost. On a busy machine they take more, and so do
 * forecasts that learned from it: the upper bounds are wide.
 */
#include "fake.h"
#include "gpu.h"

#define MS UINT64_C(1000000)

static const rvl_cost create = {20 * MS, 0}, release = {5 * MS, 500000}, map = {3 * MS, 0},
                      access_to = {2 * MS, 0}, unmap = {10 * MS, 0};
static const rvl_cost out = {0, 5000000}, in = {0, 2500000};

static int open_context(void **state)
{
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    *state = gpu_open(NULL, NULL);
    return 0;
}

static int close_context(void **state)
{
    assert_int_equal(rvl_context_close(*state, NULL), RVL_OK);
    fake_reset();
    return 0;
}

static rvl_tag add_blocks(rvl_context *context, const char *name, int count, uint64_t bytes,
                          rvl_backup backup)
{
    for (int i = 0; i < count; i++)
        support_alloc(context, name, 0, bytes, backup);
    return support_tag(context, name);
}

static uint64_t foretold(rvl_context *context, rvl_tag tag, bool pausing)
{
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(pausing ? rvl_pause_forecast(context, &tag, 1, NULL, &forecast)
                             : rvl_resume_forecast(context, &tag, 1, NULL, &forecast),
                     RVL_OK);
    return forecast.time_ns;
}

static void move_once(rvl_context *context, rvl_tag tag)
{
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
}

static void set_call_costs(void)
{
    assert_true(fake_cost("cuMemCreate", create));
    assert_true(fake_cost("cuMemRelease", release));
    assert_true(fake_cost("cuMemMap", map));
    assert_true(fake_cost("cuMemSetAccess", access_to));
    assert_true(fake_cost("cuMemUnmap", unmap));
    assert_false(fake_cost("cuNothing", unmap));
}

/* What calls took is learned, and on a busy machine, with a sanitizer, they take far longer than
 * they are made to. */
static void check_learned(uint64_t foretold_ns, uint64_t cost_ns)
{
    assert_in_range(foretold_ns, cost_ns * 9 / 10, cost_ns * 50);
}

/* Two sizes tell a call's part from a byte's: so the forecast holds for a third. */
static void calls_are_learned(void **state)
{
    rvl_context *context = *state;
    set_call_costs();
    rvl_tag small = add_blocks(context, "small", 4, 2 * MIB, RVL_BACKUP_NONE);
    rvl_tag large = add_blocks(context, "large", 2, 32 * MIB, RVL_BACKUP_NONE);
    rvl_tag between = add_blocks(context, "between", 3, 8 * MIB, RVL_BACKUP_NONE);
    /* From allocating nothing is known of pauses: those are a profile's. */
    assert_in_range(foretold(context, small, true), 1, 5 * MS);
    move_once(context, small);
    move_once(context, large);
    check_learned(foretold(context, small, true), 4 * (10 * MS + 5 * MS + 1 * MS));
    check_learned(foretold(context, large, true), 2 * (10 * MS + 5 * MS + 16 * MS));
    check_learned(foretold(context, between, true), 3 * (10 * MS + 5 * MS + 4 * MS));
    assert_int_equal(rvl_pause(context, &between, 1, NULL), RVL_OK);
    check_learned(foretold(context, between, false), 3 * (20 * MS + 3 * MS + 2 * MS));
    assert_int_equal(rvl_resume(context, &between, 1, NULL), RVL_OK);
}

/* Copies, each way. Host memory that has to be made is another cost than the copy. */
static void copies_are_learned(void **state)
{
    rvl_context *context = *state;
    rvl_tag tag = add_blocks(context, "state", 2, 16 * MIB, RVL_BACKUP_HOST);
    assert_in_range(foretold(context, tag, true), 1, 60 * MS);
    assert_true(fake_cost("cuMemcpyDtoHAsync", out));
    assert_true(fake_cost("cuMemcpyHtoDAsync", in));
    move_once(context, tag); /* makes host memory */
    move_once(context, tag);
    check_learned(foretold(context, tag, true), 32 * MIB * 5);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    check_learned(foretold(context, tag, false), 32 * MIB * 5 / 2);
    assert_int_equal(rvl_resume(context, &tag, 1, NULL), RVL_OK);
}

/* A call that fails says nothing of what calls take. */
static void failures_are_not_learned(void **state)
{
    rvl_context *context = *state;
    rvl_tag tag = add_blocks(context, "state", 1, 2 * MIB, RVL_BACKUP_NONE);
    uint64_t before_ns = foretold(context, tag, true);
    assert_true(fake_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, false));
    assert_int_not_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    assert_int_equal(foretold(context, tag, true), before_ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_are_learned, open_context, close_context),
        cmocka_unit_test_setup_teardown(copies_are_learned, open_context, close_context),
        cmocka_unit_test_setup_teardown(failures_are_not_learned, open_context, close_context),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
