/* SPDX-License-Identifier: MIT */
/* Predictions: steps of models from their configs, and PyTorch's snapshots. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actions.h"
#include "random.h"
#include "reveille/model.h"
#include "reveille/plan.h"
#include "reveille/snapshot.h"

#define FOLDER RVL_SOURCE_DIR "/tests/data/configs/"

static uint64_t peak_of(owner *o, rvl_replay *replay)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    ANSWER(&o->by, MAY_OK, rvl_replay_get_device, replay, 0, &device);
    CALL(&o->by, rvl_replay_close, replay);
    return device.peak_bytes;
}

static uint64_t peak_of_file(owner *o, const char *path)
{
    rvl_replay *replay = NULL;
    ANSWER(&o->by, MAY_OK, rvl_replay_run, &path, 1, NULL, &replay);
    return peak_of(o, replay);
}

/* ---- Models ---- */

static void add_parameters(void *user, const rvl_model_tensor *tensor)
{
    *(uint64_t *)user += tensor->rows * tensor->columns;
}

static char *read_text(const char *path, size_t *length_out)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(1 << 20);
    if (file == NULL || text == NULL)
        calls_give_up(path);
    *length_out = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

static rvl_model *open_model(owner *o, const char *path)
{
    caller *by = &o->by;
    rvl_model *model = NULL, *same = NULL;
    ANSWER(by, MAY_OK, rvl_model_open, path, &model);
    size_t length = 0;
    char *text = read_text(path, &length);
    ANSWER(by, MAY_OK, rvl_model_parse, text, length, &same);
    uint64_t parameters = CALL(by, rvl_model_parameter_count, model), sum = 0;
    EXPECT(by, CALL(by, rvl_model_parameter_count, same), parameters);
    EXPECT(by, strcmp(CALL(by, rvl_model_type, model), CALL(by, rvl_model_type, same)), 0);
    CALL(by, rvl_model_visit_tensors, model, add_parameters, &sum);
    EXPECT(by, sum, parameters);
    CALL(by, rvl_model_close, same);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_model_parse, text, length / 2, &same);
    free(text);
    EXPECT(by, CALL(by, rvl_model_family, 0) != NULL, true);
    EXPECT(by, CALL(by, rvl_model_family, 1000) == NULL, true);
    return model;
}

/* As it is, a trace has the peak of its replay. */
static void compare_plan(owner *o, const char *path, uint64_t peak_bytes)
{
    caller *by = &o->by;
    rvl_plan *plan = NULL;
    rvl_replay *replay = NULL;
    rvl_plan_result result = {.struct_size = sizeof result};
    ANSWER(by, MAY_OK, rvl_plan_open, &path, 1, NULL, &plan);
    const rvl_plan_case planned = {.struct_size = sizeof planned, .plan = plan};
    ANSWER(by, MAY_OK, rvl_plan_run, &planned, &result, &replay);
    EXPECT(by, result.peak_bytes, peak_bytes);
    EXPECT(by, peak_of(o, replay), peak_bytes);
    CALL(by, rvl_plan_close, plan);
}

static void compare_step(owner *o, rvl_model_step *step)
{
    caller *by = &o->by;
    char path[300];
    rvl_trace_device device;
    size_t count = 0, allocations = 0, listed = 0;
    ANSWER(by, MAY_OK, rvl_model_step_get_events, step, NULL, 0, 0, &count);
    rvl_trace_event *events = calloc(count + 1, sizeof *events);
    if (events == NULL)
        calls_give_up("no memory for events");
    ANSWER(by, MAY_OK, rvl_model_step_get_events, step, events, sizeof *events, count, &count);
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++) {
        uint64_t bytes = CALL(by, rvl_model_step_bytes, step, (rvl_model_term)term);
        size_t pieces = CALL(by, rvl_model_step_allocation_count, step, (rvl_model_term)term);
        EXPECT(by, bytes > 0 || pieces == 0, true);
        EXPECT(by, CALL(by, rvl_model_step_tag, step, (rvl_model_term)term) != NULL, true);
        rvl_model_doubt doubt = CALL(by, rvl_model_step_doubt, step, (rvl_model_term)term);
        EXPECT(by, doubt != RVL_MODEL_DOUBT_ASSUMED || pieces > 0, true);
        EXPECT(by, doubt != RVL_MODEL_DOUBT_LEFT_OUT || bytes == 0, true);
        allocations += pieces;
    }
    for (size_t i = 0; i < count; i++)
        listed += events[i].kind == RVL_EVENT_ALLOC;
    free(events);
    EXPECT_WITHIN(by, listed, 1, SIZE_MAX);
    EXPECT_WITHIN(by, allocations, 1, SIZE_MAX);
    EXPECT(by, CALL(by, rvl_model_step_token_count, step) > 0, true);
    ANSWER(by, MAY_OK, rvl_model_step_get_device, step, &device, sizeof device);
    EXPECT(by, device.capacity_bytes > 0, true);
    stress_path(o, "step", path, sizeof path);
    ANSWER(by, MAY_OK, rvl_model_step_write, step, path);
    uint64_t peak = peak_of_file(o, path);
    rvl_replay *replay = NULL;
    ANSWER(by, MAY_OK, rvl_model_step_replay, step, NULL, &replay);
    EXPECT(by, peak_of(o, replay), peak);
    compare_plan(o, path, peak);
    unlink(path);
}

/* ---- Settings by name, and sweeps ---- */

static void set_by_names(owner *o)
{
    caller *by = &o->by;
    rvl_model_options options = {.struct_size = sizeof options};
    rvl_model_setting setting = {.struct_size = sizeof setting};
    size_t count = 0;
    while (CALL(by, rvl_model_setting_get, count, &setting) == RVL_OK) {
        ANSWER(by, MAY_OK | MAY(RVL_ERR_INVALID), rvl_model_options_check, &options, setting.name);
        count++;
    }
    EXPECT_WITHIN(by, count, 10, 100);
    ANSWER(by, MAY_OK, rvl_model_options_set, &options, "micro-batch", "7");
    EXPECT(by, options.micro_batch, 7);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_model_options_set, &options, "micro-batch", "many");
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_model_options_set, &options, "no-such", "7");
    EXPECT(by, options.micro_batch, 7);
}

enum { SWEPT = 3 };

typedef struct sweep {
    const rvl_plan *plan;
    rvl_model_options step;
    rvl_plan_result results[SWEPT];
} sweep;

static rvl_status begin_case(void *user, size_t number, rvl_plan_case *planned)
{
    const sweep *s = user;
    planned->plan = s->plan;
    *planned->step = s->step;
    planned->step->micro_batch = (uint32_t)number + 1;
    return RVL_OK;
}

static void end_case(void *user, size_t number, const rvl_plan_case *planned,
                     const rvl_plan_result *result)
{
    (void)planned;
    ((sweep *)user)->results[number] = *result;
}

/* Of two results one is preferred, or neither. */
static void plan_steps(owner *o, const rvl_model *model, const rvl_model_options *step)
{
    caller *by = &o->by;
    rvl_plan *plan = NULL;
    ANSWER(by, MAY_OK, rvl_plan_open_model, model, &plan);
    sweep s = {.plan = plan, .step = *step};
    const rvl_plan_sweep_options options = {.struct_size = sizeof options,
                                            .case_count = SWEPT,
                                            .begin = begin_case,
                                            .end = end_case,
                                            .user = &s,
                                            .thread_count = 2};
    ANSWER(by, MAY_OK, rvl_plan_sweep, &options);
    for (int i = 0; i < SWEPT; i++) {
        const rvl_plan_result *one = &s.results[i], *other = &s.results[(i + 1) % SWEPT];
        EXPECT(by, one->state != RVL_PLAN_LEFT_OUT && one->state != RVL_PLAN_FAILED, true);
        int better = CALL(by, rvl_plan_result_compare, one, other);
        int worse = CALL(by, rvl_plan_result_compare, other, one);
        EXPECT(by, (better > 0) - (better < 0), (worse < 0) - (worse > 0));
    }
    CALL(by, rvl_plan_close, plan);
}

void action_model(owner *o)
{
    static const char *const configs[] = {FOLDER "qwen2.5-0.5b.json", FOLDER "llama-3.2-1b.json",
                                          FOLDER "gemma-3-1b.json", FOLDER "deepseek-v2-lite.json"};
    caller *by = &o->by;
    rvl_model *model = open_model(o, configs[random_below(&by->random, 4)]);
    rvl_model_options options = {
        .struct_size = sizeof options,
        .train = (rvl_model_train)random_below(&by->random, 3),
        .strategy = (rvl_model_strategy)random_below(&by->random, 4),
        .optimizer = (rvl_model_optimizer)random_below(&by->random, RVL_MODEL_OPTIMIZER_COUNT),
        .micro_batch = (uint32_t)random_below(&by->random, 4),
        .flags = random_one_in(&by->random, 2) ? RVL_MODEL_RECOMPUTE : 0,
    };
    rvl_model_step *step = NULL;
    /* Some sizes leave no room for a KV cache. */
    if (ANSWER(by, MAY_OK | MAY(RVL_ERR_INVALID), rvl_model_step_make, model, &options, &step) ==
        RVL_OK)
        compare_step(o, step);
    CALL(by, rvl_model_step_close, step);
    set_by_names(o);
    plan_steps(o, model, &options);
    CALL(by, rvl_model_close, model);
}

/* ---- Snapshots ---- */

#define SNAPSHOTS RVL_SOURCE_DIR "/traces/snapshots/"

/* What memory is for at a stage's peak is all of it. */
static void compare_holders(owner *o, const rvl_snapshot *snapshot, uint32_t index,
                            uint64_t reserved_bytes)
{
    caller *by = &o->by;
    rvl_snapshot_part part = {.struct_size = sizeof part};
    rvl_snapshot_line line = {.struct_size = sizeof line};
    uint64_t sum_bytes = 0;
    for (uint32_t i = 0; CALL(by, rvl_snapshot_get_part, snapshot, index, i, &part) == RVL_OK; i++)
        sum_bytes += part.bytes;
    EXPECT(by, sum_bytes, reserved_bytes);
    for (uint32_t i = 0; CALL(by, rvl_snapshot_get_line, snapshot, index, i, &line) == RVL_OK; i++)
        EXPECT_WITHIN(by, line.bytes, 1, reserved_bytes);
    for (uint32_t i = 0; CALL(by, rvl_snapshot_get_call, snapshot, index, i, &line) == RVL_OK; i++)
        EXPECT_WITHIN(by, line.bytes, 1, reserved_bytes);
}

static void compare_snapshot(owner *o, const rvl_snapshot *snapshot, uint64_t *peak_out)
{
    caller *by = &o->by;
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    ANSWER(by, MAY_OK, rvl_snapshot_get_facts, snapshot, &facts);
    for (uint32_t i = 0; i < facts.stage_count; i++) {
        rvl_snapshot_stage stage = {.struct_size = sizeof stage};
        ANSWER(by, MAY_OK, rvl_snapshot_get_stage, snapshot, i, &stage);
        EXPECT_WITHIN(by, stage.peak_reserved_bytes, stage.peak_allocated_bytes, UINT64_MAX);
        if (stage.peak_reserved_bytes > *peak_out)
            *peak_out = stage.peak_reserved_bytes;
        compare_holders(o, snapshot, i, stage.peak_reserved_bytes);
    }
    EXPECT(by, CALL(by, rvl_snapshot_note, snapshot, facts.note_count) == NULL, true);
    char *json = NULL;
    ANSWER(by, MAY_OK, rvl_snapshot_to_json, snapshot, &json);
    EXPECT(by, strstr(json, "\"stages\"") != NULL, true);
    CALL(by, rvl_string_free, json);
}

void action_snapshot(owner *o)
{
    static const char *const files[] = {SNAPSHOTS "dev-default.pickle.gz",
                                        SNAPSHOTS "dev-expandable.pickle.gz",
                                        SNAPSHOTS "dev-retried.pickle.gz"};
    caller *by = &o->by;
    const char *file = files[random_below(&by->random, 3)];
    const rvl_snapshot_options holders = {.struct_size = sizeof holders,
                                          .flags = RVL_SNAPSHOT_HOLDERS};
    rvl_snapshot *snapshot = NULL;
    uint64_t peak_bytes = 0;
    ANSWER(by, MAY_OK, rvl_snapshot_run, file, &holders, &snapshot);
    compare_snapshot(o, snapshot, &peak_bytes);
    CALL(by, rvl_snapshot_close, snapshot);

    char path[300];
    stress_path(o, "snapshot", path, sizeof path);
    const rvl_trace_device device = {.capacity_bytes = UINT64_C(1) << 40,
                                     .granularity_bytes = UINT64_C(2) << 20};
    const rvl_snapshot_trace trace = {
        .struct_size = sizeof trace, .device = &device, .device_size = sizeof device};
    char *tensors = NULL;
    ANSWER(by, MAY_OK, rvl_snapshot_get_tensors, file, NULL, &tensors);
    EXPECT(by, strstr(tensors, "\"texts\"") != NULL, true);
    CALL(by, rvl_string_free, tensors);
    ANSWER(by, MAY_OK, rvl_snapshot_write_trace, file, NULL, &trace, path);
    EXPECT_WITHIN(by, peak_of_file(o, path), peak_bytes, UINT64_MAX);
    unlink(path);
}
