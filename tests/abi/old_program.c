/* SPDX-License-Identifier: MIT */
/*
 * A program that was built with version 0.1 runs with today's libraries; and what an older and a
 * newer one would do: hand over shorter structs, and longer ones.
 *
 * It sees no header of today, and links the libraries as users do.
 */
#include "v0_1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define GRANULE (UINT64_C(2) << 20)
#define CANARY 0x5a
#define TAIL_BYTES 256 /* more than structs have grown since */

/* ---- Shorter structs: of an older program ---- */

/* What lies behind the fields that the program knows is not looked at. */
static void shorter_options_mean_defaults(void **state)
{
    (void)state;
    rvl_context_options options;
    memset(&options, CANARY, sizeof options);
    options.struct_size = sizeof options.struct_size;
    rvl_context *context = NULL;
    assert_int_equal(rvl_context_open("sim", &options, &context), RVL_OK);

    rvl_alloc_options of_alloc;
    memset(&of_alloc, CANARY, sizeof of_alloc);
    of_alloc.struct_size = offsetof(rvl_alloc_options, tag_id);
    of_alloc.flags = 0;
    of_alloc.tag = "weights";
    rvl_addr addr = 0;
    assert_int_equal(rvl_alloc(context, GRANULE, &of_alloc, &addr), RVL_OK);
    rvl_allocation found = {.struct_size = sizeof found};
    assert_int_equal(rvl_allocation_find(context, addr, &found), RVL_OK);
    assert_int_equal(found.backup, RVL_BACKUP_NONE);
    assert_int_equal(found.device, 0);

    rvl_pause_options of_pause;
    memset(&of_pause, CANARY, sizeof of_pause);
    of_pause.struct_size = offsetof(rvl_pause_options, process);
    of_pause.flags = RVL_PAUSE_DISCARD;
    assert_int_equal(rvl_pause(context, &found.tag, 1, &of_pause), RVL_OK);
    rvl_resume_options of_resume;
    memset(&of_resume, CANARY, sizeof of_resume);
    of_resume.struct_size = sizeof of_resume.struct_size;
    assert_int_equal(rvl_resume(context, &found.tag, 1, &of_resume), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static void shorter_results_are_not_overrun(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    rvl_addr addr = 0;
    assert_int_equal(rvl_context_open("sim", NULL, &context), RVL_OK);
    assert_int_equal(rvl_alloc(context, GRANULE, NULL, &addr), RVL_OK);
    rvl_device_stats stats;
    memset(&stats, CANARY, sizeof stats);
    stats.struct_size = offsetof(rvl_device_stats, external_bytes);
    assert_int_equal(rvl_device_get_stats(context, 0, &stats), RVL_OK);
    assert_int_equal(stats.struct_size, offsetof(rvl_device_stats, external_bytes));
    assert_int_equal(stats.used_bytes, GRANULE);
    const unsigned char *tail = (const unsigned char *)&stats.external_bytes;
    for (size_t i = 0; i < sizeof stats - stats.struct_size; i++)
        assert_int_equal(tail[i], CANARY);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Longer structs: of a newer program ---- */

/* The struct with bytes behind it, as a newer version has fields there. */
#define LONGER(type)                                                                               \
    struct {                                                                                       \
        type known;                                                                                \
        unsigned char unknown[TAIL_BYTES];                                                         \
    }

/* With zeroes behind it the call does as always; with anything else it is refused. */
#define CHECK_LONGER(type, call, usual, ...)                                                       \
    do {                                                                                           \
        LONGER(type) longer = {.known = {__VA_ARGS__}};                                            \
        type *options = &longer.known;                                                             \
        options->struct_size = sizeof longer;                                                      \
        assert_int_equal((call), (usual));                                                         \
        longer.unknown[TAIL_BYTES - 1] = 1;                                                        \
        assert_int_equal((call), RVL_ERR_VERSION);                                                 \
        rvl_error error = {.struct_size = sizeof error};                                           \
        assert_int_equal(rvl_last_error(&error), RVL_OK);                                          \
        assert_int_equal(error.status, RVL_ERR_VERSION);                                           \
    } while (0)

#define CHECK_FLAGS(type, call)                                                                    \
    do {                                                                                           \
        type value = {.struct_size = sizeof value, .flags = UINT64_C(1) << 31};                    \
        type *options = &value;                                                                    \
        assert_int_equal((call), RVL_ERR_VERSION);                                                 \
    } while (0)

#define CHECK_RESERVED(type, call)                                                                 \
    do {                                                                                           \
        type value = {.struct_size = sizeof value, .reserved = 1};                                 \
        type *options = &value;                                                                    \
        assert_int_equal((call), RVL_ERR_VERSION);                                                 \
    } while (0)

static rvl_status open_sim(const rvl_sim_options *sim)
{
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = sim};
    rvl_context *context = NULL;
    rvl_status status = rvl_context_open("sim", &options, &context);
    rvl_context_close(context, NULL);
    return status;
}

static rvl_status open_profile(const rvl_profile *profile)
{
    const rvl_sim_options sim = {.struct_size = sizeof sim, .devices = &profile, .device_count = 1};
    return open_sim(&sim);
}

static rvl_status open_context(const rvl_context_options *options)
{
    rvl_context *context = NULL;
    rvl_status status = rvl_context_open("sim", options, &context);
    rvl_context_close(context, NULL);
    return status;
}

static rvl_status alloc_and_free(rvl_context *context, const rvl_alloc_options *options)
{
    rvl_addr addr = 0;
    rvl_status status = rvl_alloc(context, GRANULE, options, &addr);
    if (status == RVL_OK)
        assert_int_equal(rvl_free(context, addr), RVL_OK);
    return status;
}

static void longer_options_of_contexts(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    rvl_tag tag = 0;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    assert_int_equal(rvl_context_open("sim", NULL, &context), RVL_OK);
    CHECK_LONGER(rvl_context_options, open_context(options), RVL_OK, 0);
    CHECK_LONGER(rvl_sim_options, open_sim(options), RVL_OK, 0);
    CHECK_LONGER(rvl_profile, open_profile(options), RVL_OK, .capacity_bytes = GRANULE,
                 .granularity_bytes = GRANULE);
    CHECK_LONGER(rvl_tag_options, rvl_tag_define(context, "t", options, &tag), RVL_OK, 0);
    CHECK_LONGER(rvl_alloc_options, alloc_and_free(context, options), RVL_OK, 0);
    CHECK_LONGER(rvl_pause_options, rvl_pause(context, &tag, 1, options), RVL_OK, 0);
    CHECK_LONGER(rvl_resume_options, rvl_resume(context, &tag, 1, options), RVL_OK, 0);
    CHECK_LONGER(rvl_pause_options, rvl_pause_forecast(context, &tag, 1, options, &forecast),
                 RVL_OK, 0);
    CHECK_LONGER(rvl_resume_options, rvl_resume_forecast(context, &tag, 1, options, &forecast),
                 RVL_OK, 0);
    CHECK_FLAGS(rvl_context_options, open_context(options));
    CHECK_FLAGS(rvl_sim_options, open_sim(options));
    CHECK_FLAGS(rvl_tag_options, rvl_tag_define(context, "t", options, &tag));
    CHECK_FLAGS(rvl_alloc_options, alloc_and_free(context, options));
    CHECK_FLAGS(rvl_pause_options, rvl_pause(context, &tag, 1, options));
    CHECK_FLAGS(rvl_resume_options, rvl_resume(context, &tag, 1, options));
    CHECK_FLAGS(rvl_pause_options, rvl_pause_forecast(context, &tag, 1, options, &forecast));
    CHECK_FLAGS(rvl_resume_options, rvl_resume_forecast(context, &tag, 1, options, &forecast));
    CHECK_RESERVED(rvl_tag_options, rvl_tag_define(context, "t", options, &tag));
    CHECK_RESERVED(rvl_pause_options, rvl_pause(context, &tag, 1, options));
    CHECK_RESERVED(rvl_resume_options, rvl_resume(context, &tag, 1, options));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

static rvl_status open_timeline(const rvl_timeline_options *options)
{
    rvl_timeline *timeline = NULL;
    rvl_status status = rvl_timeline_open(options, &timeline);
    rvl_timeline_close(timeline);
    return status;
}

static rvl_status write_trace(const rvl_trace_header *header)
{
    rvl_trace_writer *writer = NULL;
    rvl_status status = rvl_trace_writer_open_draft("/dev/null", header, &writer);
    rvl_trace_writer_discard(writer);
    return status;
}

static rvl_status no_event(void *user, rvl_trace_event *event_out)
{
    (void)user, (void)event_out;
    return RVL_ERR_NOT_FOUND;
}

static rvl_status run_source(const rvl_replay_source *source)
{
    rvl_replay *replay = NULL;
    rvl_status status = rvl_replay_run_source(source, NULL, &replay);
    rvl_replay_close(replay);
    return status;
}

static rvl_status run_events(const rvl_replay_events *events)
{
    rvl_replay *replay = NULL;
    rvl_status status = rvl_replay_run_events(events, NULL, &replay);
    rvl_replay_close(replay);
    return status;
}

static void longer_and_shorter_headers(void **state)
{
    (void)state;
    const rvl_trace_device device = {.capacity_bytes = GRANULE, .granularity_bytes = 4096};
    rvl_trace_header shorter;
    memset(&shorter, 0, sizeof shorter);
    shorter.struct_size = offsetof(rvl_trace_header, comment);
    shorter.devices = &device;
    shorter.device_count = 1;
    shorter.device_size = sizeof device;
    memset(&shorter.comment, CANARY, sizeof shorter.comment);
    assert_int_equal(write_trace(&shorter), RVL_OK);
    assert_int_equal(write_trace(NULL), RVL_ERR_INVALID);
    CHECK_LONGER(rvl_trace_header, write_trace(options), RVL_OK, .devices = &device,
                 .device_count = 1, .device_size = sizeof device);
    CHECK_LONGER(rvl_replay_source, run_source(options), RVL_OK, .devices = &device,
                 .device_count = 1, .device_size = sizeof device,
                 .event_size = sizeof(rvl_trace_event), .next = no_event);
    CHECK_LONGER(rvl_replay_events, run_events(options), RVL_OK, .devices = &device,
                 .device_count = 1, .device_size = sizeof device,
                 .event_size = sizeof(rvl_trace_event));
}

/* No file is needed: options are looked at first. */
static void longer_options_of_replays(void **state)
{
    (void)state;
    const char *const missing = "/nonexistent/run.rvt";
    rvl_replay *replay = NULL;
    rvl_trace_reader *reader = NULL;
    rvl_snapshot *snapshot = NULL;
    CHECK_LONGER(rvl_replay_options, rvl_replay_run(&missing, 1, options, &replay), RVL_ERR_IO, 0);
    CHECK_LONGER(rvl_replay_options, rvl_replay_open_reader(&missing, 1, options, &reader),
                 RVL_ERR_IO, 0);
    CHECK_LONGER(rvl_trace_reader_options, rvl_trace_reader_open(&missing, 1, options, &reader),
                 RVL_ERR_IO, 0);
    CHECK_LONGER(rvl_snapshot_options, rvl_snapshot_run(missing, options, &snapshot), RVL_ERR_IO,
                 0);
    CHECK_LONGER(rvl_timeline_options, open_timeline(options), RVL_OK, 0);
    CHECK_FLAGS(rvl_replay_options, rvl_replay_run(&missing, 1, options, &replay));
    CHECK_FLAGS(rvl_replay_options, rvl_replay_open_reader(&missing, 1, options, &reader));
    CHECK_FLAGS(rvl_trace_reader_options, rvl_trace_reader_open(&missing, 1, options, &reader));
    CHECK_FLAGS(rvl_snapshot_options, rvl_snapshot_run(missing, options, &snapshot));
    CHECK_RESERVED(rvl_replay_options, rvl_replay_run(&missing, 1, options, &replay));
    CHECK_RESERVED(rvl_snapshot_options, rvl_snapshot_run(missing, options, &snapshot));
    CHECK_RESERVED(rvl_timeline_options, open_timeline(options));
}

static rvl_status make_step(const rvl_model *model, const rvl_model_options *options)
{
    rvl_model_step *step = NULL;
    rvl_status status = rvl_model_step_make(model, options, &step);
    rvl_model_step_close(step);
    return status;
}

static void longer_options_of_steps(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"vocab_size\": 256}";
    rvl_model *model = NULL;
    rvl_model_step *step = NULL;
    rvl_model_options shorter;
    memset(&shorter, CANARY, sizeof shorter);
    shorter.struct_size = sizeof shorter.struct_size;
    assert_int_equal(rvl_model_parse(config, sizeof config - 1, &model), RVL_OK);
    assert_int_equal(rvl_model_step_make(model, &shorter, &step), RVL_OK);
    rvl_model_step_close(step);
    step = NULL;
    CHECK_LONGER(rvl_model_options, make_step(model, options), RVL_OK, 0);
    CHECK_FLAGS(rvl_model_options, make_step(model, options));
    rvl_model_close(model);
}

static void longer_results_end_in_zeroes(void **state)
{
    (void)state;
    rvl_context *context = NULL;
    LONGER(rvl_device_info) longer;
    memset(&longer, CANARY, sizeof longer);
    longer.known.struct_size = sizeof longer;
    assert_int_equal(rvl_context_open("sim", NULL, &context), RVL_OK);
    assert_int_equal(rvl_device_get_info(context, 0, &longer.known), RVL_OK);
    assert_int_equal(longer.known.struct_size, sizeof longer);
    assert_string_equal(longer.known.name, "h200");
    for (size_t i = 0; i < TAIL_BYTES; i++)
        assert_int_equal(longer.unknown[i], 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

/* ---- Two libraries, one record ---- */

static void both_libraries_fill_one_record(void **state)
{
    (void)state;
    const char *const missing = "/nonexistent/run.rvt";
    rvl_replay *replay = NULL;
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_replay_run(&missing, 1, NULL, &replay), RVL_ERR_IO);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.status, RVL_ERR_IO);
    assert_string_equal(error.file, missing);
    assert_string_equal(error.native_name, "ENOENT");
    rvl_context *context = NULL;
    assert_int_equal(rvl_context_open("abacus", NULL, &context), RVL_ERR_NO_BACKEND);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.status, RVL_ERR_NO_BACKEND);
    assert_string_equal(error.file, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shorter_options_mean_defaults),
        cmocka_unit_test(shorter_results_are_not_overrun),
        cmocka_unit_test(longer_options_of_contexts),
        cmocka_unit_test(longer_options_of_replays),
        cmocka_unit_test(longer_and_shorter_headers),
        cmocka_unit_test(longer_options_of_steps),
        cmocka_unit_test(longer_results_end_in_zeroes),
        cmocka_unit_test(both_libraries_fill_one_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
