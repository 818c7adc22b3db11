/* SPDX-License-Identifier: MIT */
/*
 * Steps with segments: what a trace of a step says of the caching allocator, held against the same
 * step without them, against the printed terms, and against the rules of a trace.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/llm/step/shown.h"
#include "reveille/model.h"
#include "reveille/replay.h"
#include "tests/predict/model_configs.h"
#include "tests/predict/step_memory.h"

#define SEGMENT_STEP (2 * MIB)
#define GIB (UINT64_C(1) << 30)

typedef struct shape {
    const char *config;
    rvl_model_options options;
} shape;

#define FSDP(ranks) .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = (ranks)
#define TRAINS(...)                                                                                \
    {                                                                                              \
        .struct_size = sizeof(rvl_model_options), __VA_ARGS__                                      \
    }

static const shape shapes[] = {
    {"qwen2.5-0.5b", TRAINS(FSDP(2))},
    {"qwen2.5-0.5b", TRAINS(FSDP(2), .strategy = RVL_MODEL_V0, .mem_fraction_ppm = 200000)},
    {"qwen2.5-0.5b", TRAINS(FSDP(4), .strategy = RVL_MODEL_V1)},
    {"qwen2.5-0.5b", TRAINS(FSDP(4), .strategy = RVL_MODEL_V2, .accumulate = 2)},
    {"qwen2.5-0.5b", TRAINS(.train = RVL_MODEL_TRAIN_DDP, .micro_batch = 4, .seq_len = 2048)},
    {"qwen2.5-0.5b", TRAINS(.train = RVL_MODEL_TRAIN_DDP, .lora_rank = 8)},
    {"qwen3-0.6b", TRAINS(FSDP(8), .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_RESHARD)},
    {"qwen2.5-7b", TRAINS(FSDP(8), .micro_batch = 2)},
    {"qwen2.5-7b", TRAINS(FSDP(8), .flags = RVL_MODEL_MIXED, .device = "h100-80g")},
    /* What is reserved without a bound does not fit here: the allocator gives back what it has. */
    {"qwen2.5-7b", TRAINS(FSDP(4), .micro_batch = 2, .seq_len = 3584, .device = "h100-80g")},
    {"qwen2.5-7b", TRAINS(.train = RVL_MODEL_TRAIN_MEGATRON, .train_ranks = 8, .train_tp = 2,
                          .train_pp = 2, .accumulate = 4)},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static rvl_model_step *make(const rvl_model *model, rvl_model_options options, bool segments)
{
    rvl_model_step *step;
    if (segments)
        options.flags |= RVL_MODEL_SEGMENTS;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
    return step;
}

static rvl_replay *replay(const rvl_model_step *step)
{
    rvl_replay *result;
    rvl_replay_options options = {.struct_size = sizeof options};
    assert_int_equal(rvl_model_step_replay(step, &options, &result), RVL_OK);
    return result;
}

static rvl_stage_stats stage_of(const rvl_replay *of, uint32_t stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_replay_get_stage(of, 0, stage, &stats, NULL), RVL_OK);
    return stats;
}

static uint32_t stage_count(const rvl_replay *of)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(of, 0, &device), RVL_OK);
    return device.stage_count;
}

/* What the trainer has in a stage's peak under a tag. */
static uint64_t holds(const rvl_replay *of, uint32_t stage, const char *tag)
{
    rvl_holder holders[64];
    size_t count = 0;
    assert_int_equal(rvl_replay_get_holders(of, 0, stage, holders, sizeof *holders, 64, &count),
                     RVL_OK);
    for (size_t i = 0; i < count && i < 64; i++) {
        if (strcmp(holders[i].process, "trainer") == 0 && strcmp(holders[i].tag, tag) == 0)
            return holders[i].bytes;
    }
    return 0;
}

/* Stages are the same to the byte, whichever way the step is told. */
static void peaks_are_those_without_segments(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        rvl_model *model = open_model(shapes[i].config);
        rvl_model_step *plain = make(model, shapes[i].options, false);
        rvl_model_step *shown = make(model, shapes[i].options, true);
        rvl_replay *without = replay(plain), *with = replay(shown);
        assert_int_equal(stage_count(with), stage_count(without));
        for (uint32_t stage = 0; stage < stage_count(with); stage++) {
            rvl_stage_stats a = stage_of(with, stage), b = stage_of(without, stage);
            assert_string_equal(a.name, b.name);
            assert_int_equal(a.peak_bytes, b.peak_bytes);
            assert_int_equal(a.end_bytes, b.end_bytes);
            assert_int_equal(a.host_bytes, b.host_bytes);
        }
        for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++)
            assert_int_equal(rvl_model_step_bytes(shown, (rvl_model_term)term),
                             rvl_model_step_bytes(plain, (rvl_model_term)term));
        rvl_replay_close(without);
        rvl_replay_close(with);
        rvl_model_step_close(plain);
        rvl_model_step_close(shown);
        rvl_model_close(model);
    }
}

static rvl_trace_event *events_of(const rvl_model_step *step, size_t *count_out)
{
    assert_int_equal(rvl_model_step_get_events(step, NULL, 0, 0, count_out), RVL_OK);
    rvl_trace_event *events = calloc(*count_out, sizeof *events);
    assert_non_null(events);
    assert_int_equal(rvl_model_step_get_events(step, events, sizeof *events, *count_out, count_out),
                     RVL_OK);
    return events;
}

typedef struct counts {
    uint64_t segments;
    uint64_t parts;
    bool whole; /* every segment is a multiple of what segments are made of */
} counts;

static counts count(const rvl_model_step *step)
{
    size_t event_count;
    counts found = {.whole = true};
    rvl_trace_event *events = events_of(step, &event_count);
    for (size_t i = 0; i < event_count; i++) {
        found.parts += events[i].kind == RVL_EVENT_PART;
        if (events[i].kind != RVL_EVENT_ALLOC || strcmp(events[i].tag, "cached") != 0)
            continue;
        found.segments++;
        found.whole = found.whole && events[i].bytes % SEGMENT_STEP == 0;
    }
    free(events);
    return found;
}

/*
 * The trainer has what the printed terms say: the sum is the peak, and each term has its size to
 * the granule at the fullest moment, of the pass or of the update.
 */
static void segments_have_the_terms_in_them(void **state)
{
    (void)state;
    static const rvl_model_term passing[] = {RVL_MODEL_GRADIENTS, RVL_MODEL_ALL_GATHER,
                                             RVL_MODEL_ACTIVATIONS, RVL_MODEL_LOGITS};
    const shape *of = &shapes[7];
    rvl_model *model = open_model(of->config);
    rvl_model_step *step = make(model, of->options, true);
    rvl_replay *with = replay(step);
    const uint32_t train = 2;
    assert_string_equal(stage_of(with, train).name, "train");
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        uint64_t said = rvl_model_step_bytes(step, passing[i]);
        uint64_t held = holds(with, train, rvl_model_step_tag(step, passing[i]));
        if (passing[i] == RVL_MODEL_GRADIENTS)
            continue; /* of the update, which is not the fullest here */
        assert_in_range(held, said - SEGMENT_STEP, said + SEGMENT_STEP);
    }
    uint64_t bytes = 0;
    rvl_model_term terms[] = {RVL_MODEL_SHARDED_WEIGHTS, RVL_MODEL_MASTER_WEIGHTS,
                              RVL_MODEL_OPTIMIZER,       RVL_MODEL_ALL_GATHER,
                              RVL_MODEL_ACTIVATIONS,     RVL_MODEL_LOGITS,
                              RVL_MODEL_BLAS_WORKSPACES, RVL_MODEL_CACHED,
                              RVL_MODEL_ENGINE_CONTEXT,  RVL_MODEL_TRAINER_CONTEXT};
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++)
        bytes += rvl_model_step_bytes(step, terms[i]);
    assert_int_equal(stage_of(with, train).peak_bytes, bytes);
    rvl_replay_close(with);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void segments_are_what_the_allocator_asks_for(void **state)
{
    (void)state;
    uint64_t shown_in = 0;
    for (size_t i = 0; i < SHAPES; i++) {
        rvl_model *model = open_model(shapes[i].config);
        rvl_model_step *step = make(model, shapes[i].options, true);
        counts found = count(step);
        assert_true(found.whole);
        assert_in_range(found.parts, 1, 20000);
        shown_in += found.segments > 10;
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
    assert_in_range(shown_in, SHAPES - 1, SHAPES); /* the tight one may have the moments alone */
}

/* Very many passes: between layers nothing more is written, and the peaks stay. */
static void a_long_step_stays_small(void **state)
{
    (void)state;
    rvl_model_options options = TRAINS(FSDP(64), .tp = 8, .accumulate = 64);
    rvl_model *model = open_model("qwen2.5-72b");
    rvl_model_step *plain = make(model, options, false), *shown = make(model, options, true);
    rvl_replay *without = replay(plain), *with = replay(shown);
    assert_in_range(count(shown).parts, 5000, 25000);
    for (uint32_t stage = 0; stage < stage_count(with); stage++)
        assert_int_equal(stage_of(with, stage).peak_bytes, stage_of(without, stage).peak_bytes);
    rvl_replay_close(without);
    rvl_replay_close(with);
    rvl_model_step_close(plain);
    rvl_model_step_close(shown);
    rvl_model_close(model);
}

/* ---- States leave their room to what passes ---- */

#define SEGMENT(n) (UINT64_C(100) * GIB - (n)*GIB)

static rvli_shown two_segments(void)
{
    rvli_shown shown = {0};
    rvli_shown_segment_alloc(&shown, SEGMENT(0), 20 * MIB);
    rvli_shown_take(&shown, 0, RVL_MODEL_OPTIMIZER, 7 * MIB);
    rvli_shown_segment_alloc(&shown, SEGMENT(1), 20 * MIB);
    rvli_shown_begin(&shown);
    rvli_shown_take(&shown, 0, RVL_MODEL_ACTIVATIONS, 9 * MIB);
    rvli_shown_now(&shown);
    rvli_shown_drop(&shown, 0, RVL_MODEL_ACTIVATIONS, 9 * MIB);
    rvli_shown_take(&shown, 1, RVL_MODEL_LOGITS, 15 * MIB);
    rvli_shown_now(&shown);
    assert_int_equal(shown.event_count, 6);
    return shown;
}

static void clear(rvli_shown *shown)
{
    free(shown->segments);
    free(shown->changed);
    free(shown->events);
}

static void states_leave_their_room(void **state)
{
    (void)state;
    /* Bytes of states, and what is left of each segment; 0: there is no such room. */
    static const uint64_t cases[][3] = {{6, 14, 20}, {8, 12, 20}, {10, 10, 20}, {14, 10, 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rvli_shown shown = two_segments();
        assert_true(rvli_shown_leave_out_states(&shown, cases[i][0] * MIB, 2 * MIB));
        assert_int_equal(shown.begin_count, 2);
        assert_int_equal(shown.event_count, 5); /* without the state's part */
        assert_int_equal(shown.events[0].bytes, cases[i][1] * MIB);
        assert_int_equal(shown.events[1].bytes, cases[i][2] * MIB);
        clear(&shown);
    }
    rvli_shown shown = two_segments();
    assert_false(rvli_shown_leave_out_states(&shown, 16 * MIB, 2 * MIB));
    assert_int_equal(shown.event_count, 6);
    clear(&shown);
}

static void what_lies_between_instants_leaves_no_event(void **state)
{
    (void)state;
    rvli_shown shown = {0};
    rvli_shown_segment_alloc(&shown, SEGMENT(0), 20 * MIB);
    rvli_shown_begin(&shown);
    rvli_shown_take(&shown, 0, RVL_MODEL_LOGITS, MIB);
    rvli_shown_drop(&shown, 0, RVL_MODEL_LOGITS, MIB);
    rvli_shown_between(&shown);
    assert_int_equal(shown.event_count, 1);
    rvli_shown_take(&shown, 0, RVL_MODEL_LOGITS, MIB);
    rvli_shown_take(&shown, 0, RVL_MODEL_GRADIENTS, MIB);
    rvli_shown_between(&shown);
    assert_int_equal(shown.event_count, 3);
    assert_false(shown.events[1].joins);
    assert_true(shown.events[2].joins);
    rvli_shown_segment_free(&shown, SEGMENT(0));
    assert_int_equal(shown.events[3].kind, RVLI_SHOWN_FREE);
    clear(&shown);
}

static void no_memory_is_told(void **state)
{
    (void)state;
    rvl_model_options options = TRAINS(FSDP(2), .flags = RVL_MODEL_SEGMENTS);
    rvl_model *model = open_model("qwen2.5-0.5b");
    check_step_without_memory(model, &options);
    rvl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_those_without_segments),
        cmocka_unit_test(segments_have_the_terms_in_them),
        cmocka_unit_test(segments_are_what_the_allocator_asks_for),
        cmocka_unit_test(a_long_step_stays_small),
        cmocka_unit_test(states_leave_their_room),
        cmocka_unit_test(no_memory_is_told),
        cmocka_unit_test(what_lies_between_instants_leaves_no_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
