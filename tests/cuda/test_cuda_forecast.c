/* SPDX-License-Identifier: MIT */
/*
 * Forecasts of a real context on the fake driver. Its calls cost what the test says: at first
 * what a profile says, then what this card's own transitions took.
 *
 * The library's clock is the test's: only what a call or a copy costs moves it. So forecasts are
 * exact, however busy the machine is.
 */
#include "fake.h"
#include "gpu.h"

#include <stdatomic.h>
#include <time.h>

#define MS UINT64_C(1000000)

static const rvl_cost create = {20 * MS, 0}, release = {5 * MS, 500000}, map = {3 * MS, 0},
                      access_to = {2 * MS, 0}, unmap = {10 * MS, 0};
static const rvl_cost out = {0, 5000000}, in = {0, 2500000};

static _Atomic uint64_t clock_ns = 1000 * MS;

/* The name is the linker's. Seen from outside: sanitizers' libraries ask for the time, too. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock,
                                                                struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    uint64_t ns = atomic_load(&clock_ns);
    (void)clock;
    *now = (struct timespec){.tv_sec = (time_t)(ns / (1000 * MS)),
                             .tv_nsec = (long)(ns % (1000 * MS))};
    return 0;
}

static void let_pass(uint64_t ns)
{
    atomic_fetch_add(&clock_ns, ns);
}

static int open_context(void **state)
{
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    fake_set_sleep(let_pass);
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

/*
 * To 3 %. Where a line through what was measured would fall, a profile's line is kept and made
 * longer or shorter: so calls that cost the same at every size are off by a hundredth or two.
 */
static void check_learned(uint64_t foretold_ns, uint64_t cost_ns)
{
    assert_in_range(foretold_ns, cost_ns - cost_ns * 3 / 100, cost_ns + cost_ns * 3 / 100);
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

/* What a card took long ago counts less and less. */
static void a_card_that_becomes_slower_is_followed(void **state)
{
    rvl_context *context = *state;
    set_call_costs();
    rvl_tag tag = add_blocks(context, "small", 4, 2 * MIB, RVL_BACKUP_NONE);
    rvl_tag content = add_blocks(context, "state", 1, 4 * MIB, RVL_BACKUP_HOST);
    assert_true(fake_cost("cuMemcpyDtoHAsync", in));
    for (int i = 0; i < 4; i++) {
        move_once(context, tag);
        move_once(context, content);
    }
    check_learned(foretold(context, tag, true), 4 * (10 * MS + 5 * MS + 1 * MS));
    check_learned(foretold(context, content, true), 10 * MS + 5 * MS + 2 * MS + 4 * MIB * 5 / 2);
    assert_true(fake_cost("cuMemUnmap", create)); /* twice as long */
    assert_true(fake_cost("cuMemcpyDtoHAsync", out));
    for (int i = 0; i < 40; i++) {
        move_once(context, tag);
        move_once(context, content);
    }
    check_learned(foretold(context, tag, true), 4 * (20 * MS + 5 * MS + 1 * MS));
    check_learned(foretold(context, content, true), 20 * MS + 5 * MS + 2 * MS + 4 * MIB * 5);
}

/* Of two cards in a process each has its own costs. */
static void each_device_has_its_own(void **state)
{
    rvl_context *context = *state;
    set_call_costs();
    for (int i = 0; i < 2; i++)
        support_alloc(context, "here", 0, 8 * MIB, RVL_BACKUP_NONE);
    rvl_tag here = support_tag(context, "here");
    move_once(context, here);
    assert_true(fake_cost("cuMemUnmap", access_to)); /* 2 ms, not 10 */
    for (int i = 0; i < 2; i++)
        support_alloc(context, "there", 1, 8 * MIB, RVL_BACKUP_NONE);
    rvl_tag there = support_tag(context, "there");
    move_once(context, there);
    check_learned(foretold(context, here, true), 2 * (10 * MS + 5 * MS + 4 * MS));
    check_learned(foretold(context, there, true), 2 * (2 * MS + 5 * MS + 4 * MS));
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
        cmocka_unit_test_setup_teardown(a_card_that_becomes_slower_is_followed, open_context,
                                        close_context),
        cmocka_unit_test_setup_teardown(each_device_has_its_own, open_context, close_context),
        cmocka_unit_test_setup_teardown(failures_are_not_learned, open_context, close_context),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
