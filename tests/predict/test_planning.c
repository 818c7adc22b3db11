/* SPDX-License-Identifier: MIT */
/*
 * Planning from C: what a case comes to, what is refused, and sweeps. That the answers are right is
 * held by tests/cli/test_plan.c, by the command.
 */
#include "tests/support/support.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reveille/plan.h"
#include "tests/support/folder.h"

#define CONFIG RVL_SOURCE_DIR "/tests/data/configs/qwen2.5-7b.json"
#define HEAD                                                                                       \
    "reveille-trace 1.0\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process engine pid=0\n"

/* 100 MiB of weights beside 300 of cache, of 1000. */
static const char trace[] = HEAD "stage 1 engine 0 rollout\n"
                                 "alloc 2 engine 0 1 0 104857600 weights\n"
                                 "alloc 3 engine 0 2 0 314572800 kv_cache\n"
                                 "end 3\n";

static char path[256];
static const char *const paths[] = {path};

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_last_error(&error);
    return error;
}

static rvl_plan *open_trace(const char *text)
{
    rvl_plan *plan = NULL;
    snprintf(path, sizeof path, "%s/x.rvt", folder);
    folder_write("x.rvt", text);
    assert_int_equal(rvl_plan_open(paths, 1, NULL, &plan), RVL_OK);
    return plan;
}

static rvl_plan *open_model(rvl_model **model_out)
{
    rvl_plan *plan = NULL;
    assert_int_equal(rvl_model_open(CONFIG, model_out), RVL_OK);
    assert_int_equal(rvl_plan_open_model(*model_out, &plan), RVL_OK);
    return plan;
}

static void finds_the_largest_size_of_a_tag(void **state)
{
    (void)state;
    rvl_replay_options options = {.struct_size = sizeof options,
                                  .flags = RVL_REPLAY_HEADROOM_BYTES};
    rvl_plan_result result = {.struct_size = sizeof result};
    rvl_replay *replay = NULL;
    const rvl_plan_case planned = {.struct_size = sizeof planned,
                                   .plan = open_trace(trace),
                                   .tag = "kv_cache",
                                   .replay = &options};
    assert_int_equal(rvl_plan_run(&planned, &result, &replay), RVL_OK);
    assert_int_equal(result.state, RVL_PLAN_FITS);
    assert_int_equal(result.largest_bytes, 900 * MIB);
    assert_int_equal(result.traced_bytes, 300 * MIB);
    assert_int_equal(result.peak_bytes, 1000 * MIB);
    assert_int_equal(result.mem_fraction_ppm, 1000000);
    assert_string_equal(result.stage, "rollout");
    assert_int_equal(rvl_replay_device_count(replay), 1);
    rvl_replay_close(replay);
    /* By default 3 % are left, and the replay is not kept. */
    const rvl_plan_case usual = {
        .struct_size = sizeof usual, .plan = planned.plan, .tag = "kv_cache"};
    assert_int_equal(rvl_plan_run(&usual, &result, NULL), RVL_OK);
    assert_int_equal(result.largest_bytes, 870 * MIB);
    rvl_plan_close((rvl_plan *)(uintptr_t)planned.plan);
}

static void says_why_a_case_is_refused(void **state)
{
    (void)state;
    rvl_model *model;
    rvl_model_options step = {.struct_size = sizeof step, .tp = 3};
    rvl_plan_result result = {.struct_size = sizeof result};
    rvl_plan *plan = open_trace(trace);
    rvl_plan_case planned = {.struct_size = sizeof planned, .plan = plan, .tag = "cache"};
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_OK);
    assert_int_equal(result.state, RVL_PLAN_REFUSED);
    assert_string_equal(result.key, "tag");
    assert_non_null(strstr(result.why, "there are: weights, kv_cache"));
    rvl_plan_close(plan);
    plan = open_trace(HEAD "stage 1 engine 0 a\nfree 2 engine 0 7\nend 2\n");
    planned = (rvl_plan_case){.struct_size = sizeof planned, .plan = plan};
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_OK);
    assert_int_equal(result.state, RVL_PLAN_REFUSED);
    assert_true(result.flags & RVL_PLAN_WHY_HAS_FILE);
    assert_int_equal(strncmp(result.why, path, strlen(path)), 0);
    assert_non_null(strstr(result.why, ":6:17: free of an unknown id"));
    rvl_plan_close(plan);
    plan = open_model(&model);
    planned = (rvl_plan_case){.struct_size = sizeof planned, .plan = plan, .step = &step};
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_OK);
    assert_int_equal(result.state, RVL_PLAN_REFUSED);
    assert_string_equal(result.key, "num_attention_heads");
    step = (rvl_model_options){.struct_size = sizeof step, .flags = RVL_MODEL_MIXED};
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_OK);
    assert_string_equal(result.key, "mixed-precision");
    assert_true(!(result.flags & RVL_PLAN_WHY_HAS_FILE));
    step = (rvl_model_options){.struct_size = sizeof step, .device = "l4"};
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_OK);
    assert_int_equal(result.state, RVL_PLAN_DOES_NOT_FIT); /* not even the weights */
    rvl_plan_close(plan);
    rvl_model_close(model);
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    rvl_plan *plan = NULL, *other = NULL;
    const char *const nothing[] = {"nothing.rvt"};
    rvl_plan_result result = {.struct_size = sizeof result, .gpu_count = 7};
    rvl_plan_case planned = {.struct_size = sizeof planned};
    assert_int_equal(rvl_plan_open(NULL, 1, NULL, &plan), RVL_ERR_INVALID);
    assert_int_equal(rvl_plan_open(nothing, 0, NULL, &plan), RVL_ERR_INVALID);
    assert_int_equal(rvl_plan_open(nothing, 1, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_plan_open(nothing, 1, NULL, &plan), RVL_ERR_IO);
    assert_string_equal(last_error().file, "nothing.rvt");
    assert_int_equal(rvl_plan_open_model(NULL, &plan), RVL_ERR_INVALID);
    folder_write("y.rvt", HEAD "end 0\n");
    snprintf(path, sizeof path, "%s/y.rvt", folder);
    assert_int_equal(rvl_plan_open(paths, 1, NULL, &plan), RVL_ERR_NOT_FOUND);
    assert_non_null(strstr(last_error().message, "no stage, so there is none to fit"));
    assert_null(plan);
    rvl_plan_close(NULL);
    assert_int_equal(rvl_plan_run(NULL, &result, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_ERR_INVALID);
    planned.plan = other = open_trace(trace);
    assert_int_equal(rvl_plan_run(&planned, NULL, NULL), RVL_ERR_INVALID);
    planned.struct_size = 0;
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_ERR_INVALID);
    rvl_replay_options filtered = {.struct_size = sizeof filtered,
                                   .filter = (rvl_replay_filter_fn)(uintptr_t)1};
    planned = (rvl_plan_case){.struct_size = sizeof planned, .plan = other, .replay = &filtered};
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_ERR_INVALID);
    assert_int_equal(result.gpu_count, 7);
    /* What an older program has room for is all that it gets. */
    planned.replay = NULL;
    result.struct_size = offsetof(rvl_plan_result, gpu_count);
    assert_int_equal(rvl_plan_run(&planned, &result, NULL), RVL_OK);
    assert_int_equal(result.state, RVL_PLAN_FITS);
    assert_int_equal(result.gpu_count, 7);
    rvl_plan_close(other);
}

/* ---- Sweeps ---- */

#define CASES 40

typedef struct swept {
    rvl_plan *plan;
    rvl_plan_result results[CASES];
    atomic_size_t ended;
    size_t stop_at;
} swept;

static rvl_status begin(void *user, size_t number, rvl_plan_case *planned)
{
    char device[32];
    swept *of = user;
    planned->plan = of->plan;
    snprintf(device, sizeof device, "%zuMiB", 20 * (number + 1));
    if (number == 7)
        return rvl_model_options_set(planned->step, "tp", "none");
    planned->replay->device = strdup(device);
    return RVL_OK;
}

static void end(void *user, size_t number, const rvl_plan_case *planned,
                const rvl_plan_result *result)
{
    swept *of = user;
    free((char *)(uintptr_t)planned->replay->device);
    of->results[number] = *result;
    atomic_fetch_add(&of->ended, 1);
}

static bool stops(void *user)
{
    swept *of = user;
    return atomic_load(&of->ended) >= of->stop_at;
}

static void sweep(swept *of, uint32_t threads)
{
    const rvl_plan_sweep_options options = {.struct_size = sizeof options,
                                            .case_count = CASES,
                                            .begin = begin,
                                            .end = end,
                                            .stops = stops,
                                            .user = of,
                                            .thread_count = threads};
    memset(of->results, 0, sizeof of->results);
    atomic_init(&of->ended, 0);
    assert_int_equal(rvl_plan_sweep(&options), RVL_OK);
}

static void sweeps_work_out_all_cases(void **state)
{
    (void)state;
    static swept one, many;
    one.plan = many.plan = open_trace(trace);
    one.stop_at = many.stop_at = CASES + 1;
    sweep(&one, 1);
    sweep(&many, 5);
    assert_int_equal(atomic_load(&many.ended), CASES);
    assert_memory_equal(one.results, many.results, sizeof one.results);
    assert_int_equal(one.results[7].state, RVL_PLAN_REFUSED);
    assert_string_equal(one.results[7].key, "tp");
    assert_non_null(strstr(one.results[7].why, "expected a whole number"));
    assert_int_equal(one.results[18].state, RVL_PLAN_DOES_NOT_FIT); /* 380 of 400 MiB */
    assert_int_equal(one.results[19].state, RVL_PLAN_TIGHT);
    assert_int_equal(one.results[20].state, RVL_PLAN_FITS);
    rvl_plan_close(one.plan);
}

static void a_sweep_that_stops_has_done_the_first(void **state)
{
    (void)state;
    static swept of;
    of.plan = open_trace(trace);
    of.stop_at = 3;
    sweep(&of, 1);
    for (size_t i = 0; i < CASES; i++)
        assert_int_equal(of.results[i].state != RVL_PLAN_LEFT_OUT, i < 3);
    of.stop_at = 0;
    sweep(&of, 0);
    assert_int_equal(atomic_load(&of.ended), 0);
    rvl_plan_close(of.plan);
}

static void sweeps_refuse_what_they_do_not_know(void **state)
{
    (void)state;
    rvl_plan_sweep_options options = {.struct_size = sizeof options, .begin = begin};
    assert_int_equal(rvl_plan_sweep(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_plan_sweep(&options), RVL_ERR_INVALID);
    options.begin = NULL;
    options.end = end;
    assert_int_equal(rvl_plan_sweep(&options), RVL_ERR_INVALID);
    options.begin = begin;
    options.reserved = 1;
    assert_int_equal(rvl_plan_sweep(&options), RVL_ERR_VERSION);
    options.reserved = 0;
    assert_int_equal(rvl_plan_sweep(&options), RVL_OK); /* no case */
}

/* From the best to the worst; those of one rank are equal. */
static void prefers_what_fits_and_is_cheap(void **state)
{
    (void)state;
    static const struct {
        rvl_plan_result result;
        int rank;
    } in_order[] = {
        {{.state = RVL_PLAN_FITS, .gpu_count = 1, .capacity_bytes = 9, .largest_bytes = 5}, 0},
        {{.state = RVL_PLAN_FITS, .gpu_count = 2, .capacity_bytes = 8, .largest_bytes = 5}, 1},
        {{.state = RVL_PLAN_FITS, .gpu_count = 2, .capacity_bytes = 9, .largest_bytes = 5}, 2},
        {{.state = RVL_PLAN_FITS, .gpu_count = 2, .capacity_bytes = 9, .largest_bytes = 4}, 3},
        {{.state = RVL_PLAN_FITS,
          .gpu_count = 2,
          .capacity_bytes = 9,
          .largest_bytes = 4,
          .transition_ns = 1},
         4},
        {{.state = RVL_PLAN_TIGHT, .gpu_count = 1, .stage = "a"}, 5},
        {{.state = RVL_PLAN_TIGHT, .gpu_count = 2, .stage = "a"}, 6},
        {{.state = RVL_PLAN_DOES_NOT_FIT, .gpu_count = 4, .stage = "a", .peak_bytes = 1}, 7},
        {{.state = RVL_PLAN_DOES_NOT_FIT, .gpu_count = 1, .stage = "a", .peak_bytes = 2}, 8},
        {{.state = RVL_PLAN_DOES_NOT_FIT, .gpu_count = 1}, 9},
        {{.state = RVL_PLAN_REFUSED, .gpu_count = 1}, 10},
        {{.state = RVL_PLAN_FAILED, .gpu_count = 2}, 10},
        {{.state = RVL_PLAN_LEFT_OUT}, 10},
    };
    const size_t count = sizeof in_order / sizeof in_order[0];
    for (size_t a = 0; a < count; a++) {
        for (size_t b = 0; b < count; b++) {
            int found = rvl_plan_result_compare(&in_order[a].result, &in_order[b].result);
            int expected = in_order[a].rank - in_order[b].rank;
            if ((found > 0) != (expected > 0) || (found < 0) != (expected < 0))
                fail_msg("%zu and %zu: %d", a, b, found);
        }
    }
    assert_int_equal(rvl_plan_result_compare(NULL, &in_order[0].result), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_largest_size_of_a_tag),
        cmocka_unit_test(says_why_a_case_is_refused),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(sweeps_work_out_all_cases),
        cmocka_unit_test(a_sweep_that_stops_has_done_the_first),
        cmocka_unit_test(sweeps_refuse_what_they_do_not_know),
        cmocka_unit_test(prefers_what_fits_and_is_cheap),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
