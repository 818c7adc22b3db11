/* SPDX-License-Identifier: MIT */
/*
 * Replays of events that lie in no file: they give what the same events give from a file, and what
 * a source can do wrong is refused with its name and the number of the event.
 *
 * Linked with --wrap for malloc, calloc, realloc and strdup, so that each of them fails in turn.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reveille/model.h"
#include "reveille/replay.h"
#include "tests/support/short_memory.h"

#define TRACES RVL_SOURCE_DIR "/traces/"
#define CONFIGS RVL_SOURCE_DIR "/tests/data/configs/"

/* ---- Host memory that runs out ---- */

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_STRDUP

/* ---- Events ---- */

static const rvl_trace_device small_device = {.capacity_bytes = 1000 * MIB,
                                              .granularity_bytes = GRANULE};

#define EVENT(kind_, ...)                                                                          \
    {                                                                                              \
        .kind = RVL_EVENT_##kind_, .process = "engine", __VA_ARGS__                                \
    }

/* 100 MiB of weights and 400 of cache, asleep, and awake one after the other. */
static const rvl_trace_event wake[] = {
    EVENT(STEP, .time_ns = 1),
    EVENT(STAGE, .time_ns = 2, .name = "asleep"),
    EVENT(ALLOC, .time_ns = 3, .id = 1, .bytes = 100 * MIB, .tag = "weights",
          .flags = RVL_ALLOC_PAUSED),
    EVENT(ALLOC, .time_ns = 4, .id = 2, .bytes = 400 * MIB, .tag = "cache",
          .flags = RVL_ALLOC_PAUSED),
    EVENT(STAGE, .time_ns = 5, .name = "update"),
    EVENT(RESUME, .time_ns = 6, .tag = "weights", .skip_content = true),
    EVENT(ALLOC, .time_ns = 7, .id = 3, .bytes = 3 * MIB),
    EVENT(FREE, .time_ns = 8, .id = 3),
    EVENT(STAGE, .time_ns = 9, .name = "rollout"),
    EVENT(RESUME, .time_ns = 10, .tag = "cache", .skip_content = true),
};

#define WAKE_EVENTS (sizeof wake / sizeof wake[0])

static rvl_status replay_list(const char *name, const rvl_trace_event *events, size_t count,
                              const rvl_replay_options *options, rvl_replay **replay_out)
{
    const rvl_replay_events list = {.struct_size = sizeof list,
                                    .name = name,
                                    .devices = &small_device,
                                    .device_count = 1,
                                    .device_size = sizeof small_device,
                                    .events = events,
                                    .event_count = count,
                                    .event_size = sizeof *events};
    return rvl_replay_run_events(&list, options, replay_out);
}

static rvl_status run_events(const rvl_trace_event *events, size_t count, rvl_wake how,
                             rvl_error *error, rvl_replay **replay_out)
{
    rvl_replay_options options = {.struct_size = sizeof options, .wake = how};
    *error = (rvl_error){.struct_size = sizeof *error};
    rvl_status status = replay_list("a step", events, count, &options, replay_out);
    rvl_last_error(error);
    return status;
}

static uint64_t peak_of(const rvl_replay *replay, uint32_t stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_replay_get_stage(replay, 0, stage, &stats, NULL), RVL_OK);
    return stats.peak_bytes;
}

static void gives_the_peaks_of_events_in_memory(void **state)
{
    (void)state;
    rvl_error error;
    rvl_replay *replay;
    assert_int_equal(run_events(wake, WAKE_EVENTS, RVL_WAKE_STAGED, &error, &replay), RVL_OK);
    assert_int_equal(rvl_replay_event_count(replay, NULL), WAKE_EVENTS);
    assert_int_equal(peak_of(replay, 0), 0);
    assert_int_equal(peak_of(replay, 1), 104 * MIB);
    assert_int_equal(peak_of(replay, 2), 500 * MIB);
    rvl_replay_close(replay);
    assert_int_equal(run_events(wake, WAKE_EVENTS, RVL_WAKE_TOGETHER, &error, &replay), RVL_OK);
    assert_int_equal(peak_of(replay, 1), 504 * MIB);
    rvl_replay_close(replay);
}

/* ---- The same as from a file ---- */

typedef struct copied {
    rvl_trace_reader *reader;
    rvl_trace_event *events;
    size_t count;
    rvl_trace_device devices[RVL_MAX_DEVICES];
    size_t device_count;
} copied;

static copied copy_trace(const char *path)
{
    copied copy = {0};
    size_t room = 0;
    assert_int_equal(rvl_trace_reader_open(&path, 1, NULL, &copy.reader), RVL_OK);
    assert_int_equal(rvl_trace_reader_get_devices(copy.reader, copy.devices, sizeof *copy.devices,
                                                  RVL_MAX_DEVICES, &copy.device_count),
                     RVL_OK);
    rvl_trace_event event;
    while (rvl_trace_reader_next(copy.reader, &event, sizeof event) == RVL_OK) {
        if (copy.count == room) {
            room = room > 0 ? 2 * room : 64;
            copy.events = realloc(copy.events, room * sizeof *copy.events);
            assert_non_null(copy.events);
        }
        event.process_index = 77; /* of no meaning to a source */
        event.tag_index = 77;
        event.file = 77;
        copy.events[copy.count++] = event;
    }
    return copy;
}

static void check_same(const char *path, rvl_wake how)
{
    rvl_replay_options options = {.struct_size = sizeof options, .wake = how, .device = "200GiB"};
    rvl_replay *from_file, *from_memory;
    char *file_json, *memory_json;
    copied copy = copy_trace(path);
    assert_int_equal(rvl_replay_run(&path, 1, &options, &from_file), RVL_OK);
    const rvl_replay_events events = {.struct_size = sizeof events,
                                      .devices = copy.devices,
                                      .device_count = copy.device_count,
                                      .device_size = sizeof *copy.devices,
                                      .events = copy.events,
                                      .event_count = copy.count,
                                      .event_size = sizeof *copy.events};
    assert_int_equal(rvl_replay_run_events(&events, &options, &from_memory), RVL_OK);
    free(copy.events); /* the result keeps what it hands out */
    rvl_trace_reader_close(copy.reader);
    assert_int_equal(rvl_replay_to_json(from_file, &file_json), RVL_OK);
    assert_int_equal(rvl_replay_to_json(from_memory, &memory_json), RVL_OK);
    assert_string_equal(memory_json, file_json);
    rvl_string_free(file_json);
    rvl_string_free(memory_json);
    rvl_replay_close(from_file);
    rvl_replay_close(from_memory);
}

static void is_the_same_as_from_a_file(void **state)
{
    (void)state;
    static const char *const paths[] = {
        TRACES "qwen2.5-32b-tp2-h200.rvt", TRACES "llama-3.1-8b-tp2-h200.rvt",
        TRACES "qwen2.5-7b-fsdp8-v0.rvt",  TRACES "qwen2.5-7b-fsdp8-v1.rvt",
        TRACES "qwen2.5-7b-fsdp8-v2.rvt",  TRACES "qwen2.5-7b-fsdp8-v3.rvt",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        check_same(paths[i], RVL_WAKE_STAGED);
        check_same(paths[i], RVL_WAKE_TOGETHER);
    }
}

static void a_step_of_a_model_needs_no_file(void **state)
{
    (void)state;
    rvl_model *model;
    rvl_model_step *step;
    rvl_model_options options = {.struct_size = sizeof options, .tp = 2};
    rvl_replay *replay;
    char path[] = "/tmp/reveille-source-XXXXXX", *step_json, *file_json;
    const char *paths = path;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_int_equal(rvl_model_open(CONFIGS "qwen2.5-32b.json", &model), RVL_OK);
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
    assert_int_equal(rvl_model_step_replay(step, NULL, &replay), RVL_OK);
    assert_int_equal(rvl_replay_to_json(replay, &step_json), RVL_OK);
    rvl_replay_close(replay);
    assert_int_equal(rvl_model_step_write(step, path), RVL_OK);
    rvl_model_step_close(step);
    rvl_model_close(model);
    assert_int_equal(rvl_replay_run(&paths, 1, NULL, &replay), RVL_OK);
    assert_int_equal(rvl_replay_to_json(replay, &file_json), RVL_OK);
    assert_string_equal(step_json, file_json);
    rvl_replay_close(replay);
    rvl_string_free(step_json);
    rvl_string_free(file_json);
    unlink(path);
    assert_int_equal(rvl_model_step_replay(NULL, NULL, &replay), RVL_ERR_INVALID);
}

/* ---- What goes wrong ---- */

/* Halves the cache, leaves out what is untagged, and fails at an event of a number. */
typedef struct filter_state {
    uint32_t begun;
    uint32_t seen;
    uint32_t fails_at;
} filter_state;

static rvl_status halve_cache(void *user, rvl_trace_event *event, bool *keep_out)
{
    filter_state *filter = user;
    if (event == NULL) {
        filter->begun++;
        filter->seen = 0;
        return RVL_OK;
    }
    assert_true(*keep_out);
    if (++filter->seen == filter->fails_at)
        return RVL_ERR_BUSY;
    if (event->kind == RVL_EVENT_ALLOC && event->tag != NULL && strcmp(event->tag, "cache") == 0)
        event->bytes /= 2;
    *keep_out = event->id != 3;
    return RVL_OK;
}

static void a_filter_changes_and_leaves_out(void **state)
{
    (void)state;
    for (rvl_wake how = RVL_WAKE_STAGED; how <= RVL_WAKE_TOGETHER; how++) {
        filter_state filter = {0};
        rvl_replay_options options = {.struct_size = sizeof options,
                                      .wake = how,
                                      .filter = halve_cache,
                                      .filter_user = &filter,
                                      .event_size = sizeof(rvl_trace_event)};
        rvl_error error = {.struct_size = sizeof error};
        rvl_replay *replay;
        assert_int_equal(replay_list("a step", wake, WAKE_EVENTS, &options, &replay), RVL_OK);
        rvl_last_error(&error);
        assert_int_equal(filter.begun, how == RVL_WAKE_TOGETHER ? 2 : 1);
        assert_int_equal(filter.seen, WAKE_EVENTS);
        assert_int_equal(peak_of(replay, 1), (how == RVL_WAKE_TOGETHER ? 300 : 100) * MIB);
        assert_int_equal(peak_of(replay, 2), 300 * MIB);
        rvl_replay_close(replay);
        filter.fails_at = 4;
        assert_int_equal(replay_list("a step", wake, WAKE_EVENTS, &options, &replay), RVL_ERR_BUSY);
        rvl_last_error(&error);
        assert_non_null(strstr(error.message, "the filter"));
    }
}

static void refuses_events_that_no_trace_holds(void **state)
{
    (void)state;
    static const struct {
        rvl_trace_event event;
        const char *message;
    } cases[] = {
        {{.kind = RVL_EVENT_KIND_COUNT, .process = "engine", .time_ns = 2}, "of a kind that"},
        {{.kind = RVL_EVENT_STEP, .time_ns = 2}, "without a process"},
        {{.kind = RVL_EVENT_STEP, .process = "", .time_ns = 2}, "without a process"},
        {{.kind = RVL_EVENT_STAGE, .process = "engine", .time_ns = 2}, "without a name"},
        {{.kind = RVL_EVENT_EXTERNAL, .process = "engine", .time_ns = 2, .name = ""},
         "without a name"},
        {{.kind = RVL_EVENT_STEP, .process = "engine"}, "times must not fall"},
        {{.kind = RVL_EVENT_ALLOC, .process = "engine", .bytes = MIB, .time_ns = 2}, "begin at 1"},
        {{.kind = RVL_EVENT_FREE, .process = "engine", .time_ns = 2}, "begin at 1"},
        {{.kind = RVL_EVENT_FREE, .process = "engine", .id = 5, .time_ns = 2}, "unknown id"},
        {{.kind = RVL_EVENT_SAMPLE, .process = "engine", .device = 3, .time_ns = 2}, "no device 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_trace_event events[] = {wake[0], cases[i].event};
        for (int how = 0; how < 2; how++) {
            rvl_error error;
            rvl_replay *replay = NULL;
            assert_int_equal(run_events(events, 2, (rvl_wake)how, &error, &replay),
                             RVL_ERR_CORRUPT_TRACE);
            assert_non_null(strstr(error.message, cases[i].message));
            assert_string_equal(error.file, "a step");
            assert_int_equal(error.line, 2);
            assert_int_equal(error.column, 0);
            assert_null(replay);
        }
    }
}

static rvl_status next_status = RVL_ERR_IO;
static rvl_status rewind_status = RVL_ERR_IO;

static rvl_status next_fails(void *user, rvl_trace_event *event_out)
{
    (void)user, (void)event_out;
    return next_status;
}

static rvl_status rewind_fails(void *user)
{
    (void)user;
    return rewind_status;
}

static void check_source(rvl_replay_source source, rvl_wake how, rvl_status status,
                         const char *message)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_replay_options options = {.struct_size = sizeof options, .wake = how};
    rvl_replay *replay = NULL;
    assert_int_equal(rvl_replay_run_source(&source, &options, &replay), status);
    rvl_last_error(&error);
    if (strstr(error.message, message) == NULL)
        print_error("expected \"%s\" in \"%s\"\n", message, error.message);
    assert_non_null(strstr(error.message, message));
    assert_null(replay);
}

static void refuses_sources_that_are_not_whole(void **state)
{
    (void)state;
    rvl_trace_device two[] = {small_device, small_device};
    rvl_trace_device high = small_device;
    high.index = RVL_MAX_DEVICES;
    const rvl_replay_source good = {.struct_size = sizeof good,
                                    .devices = &small_device,
                                    .device_count = 1,
                                    .device_size = sizeof small_device,
                                    .event_size = sizeof(rvl_trace_event),
                                    .next = next_fails,
                                    .rewind = rewind_fails};
    rvl_replay_source bad = good;
    bad.struct_size = 1;
    check_source(bad, RVL_WAKE_STAGED, RVL_ERR_INVALID, "struct_size");
    bad = good, bad.next = NULL;
    check_source(bad, RVL_WAKE_STAGED, RVL_ERR_INVALID, "without devices or next");
    bad = good, bad.device_count = 0;
    check_source(bad, RVL_WAKE_STAGED, RVL_ERR_INVALID, "1 to 64 devices, not 0");
    bad = good, bad.devices = two, bad.device_count = 2;
    check_source(bad, RVL_WAKE_STAGED, RVL_ERR_INVALID, "declares device 0 twice");
    bad = good, bad.devices = &high;
    check_source(bad, RVL_WAKE_STAGED, RVL_ERR_INVALID, "the last possible is 63");
    bad = good, bad.rewind = NULL;
    check_source(bad, RVL_WAKE_TOGETHER, RVL_ERR_INVALID, "give the source rewind");
    check_source(good, RVL_WAKE_STAGED, RVL_ERR_IO, "the source: ");
    check_source(good, RVL_WAKE_TOGETHER, RVL_ERR_IO, "the source: ");
    next_status = RVL_ERR_NOT_FOUND;
    check_source(good, RVL_WAKE_TOGETHER, RVL_ERR_IO, "cannot begin again");

    rvl_replay *replay;
    assert_int_equal(rvl_replay_run_source(NULL, NULL, &replay), RVL_ERR_INVALID);
    assert_int_equal(rvl_replay_run_source(&good, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_replay_run_source(&good, NULL, &replay), RVL_OK); /* no events */
    assert_int_equal(rvl_replay_event_count(replay, NULL), 0);
    rvl_replay_close(replay);
}

static void survives_every_lack_of_memory(void **state)
{
    (void)state;
    rvl_trace_device device = small_device;
    device.profile = "h200";
    const rvl_replay_events list = {.struct_size = sizeof list,
                                    .devices = &device,
                                    .device_count = 1,
                                    .device_size = sizeof device,
                                    .events = wake,
                                    .event_count = WAKE_EVENTS,
                                    .event_size = sizeof *wake};
    rvl_replay_options options = {.struct_size = sizeof options, .wake = RVL_WAKE_TOGETHER};
    rvl_status status = RVL_ERR_HOST_OOM;
    long failures = 0;
    for (; status != RVL_OK && failures < 10000; failures++) {
        rvl_replay *replay = NULL;
        short_memory_left = failures;
        status = rvl_replay_run_events(&list, &options, &replay);
        short_memory_left = -1;
        if (status != RVL_OK) {
            assert_int_equal(status, RVL_ERR_HOST_OOM);
            assert_null(replay);
        } else {
            assert_int_equal(peak_of(replay, 1), 504 * MIB);
            rvl_replay_close(replay);
        }
    }
    assert_int_equal(status, RVL_OK);
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_peaks_of_events_in_memory),
        cmocka_unit_test(is_the_same_as_from_a_file),
        cmocka_unit_test(a_step_of_a_model_needs_no_file),
        cmocka_unit_test(a_filter_changes_and_leaves_out),
        cmocka_unit_test(refuses_events_that_no_trace_holds),
        cmocka_unit_test(refuses_sources_that_are_not_whole),
        cmocka_unit_test(survives_every_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
