/* SPDX-License-Identifier: MIT */
/*
 * Timelines: against traces small enough to check on paper, against the replay's own peaks, and,
 * for what downsampling keeps, against every change of a long random run.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "predict/replay/timeline.h"
#include "reveille/replay.h"
#include "tests/support/short_memory.h"

/* ---- Host memory that runs out on demand ---- */

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_STRDUP

/* ---- Reading a timeline ---- */

static rvl_timeline *open_timeline(uint32_t points)
{
    rvl_timeline *timeline;
    rvl_timeline_options options = {.struct_size = sizeof options, .points = points};
    assert_int_equal(rvl_timeline_open(&options, &timeline), RVL_OK);
    return timeline;
}

static rvl_timeline_device device_of(const rvl_timeline *timeline, size_t index)
{
    rvl_timeline_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_timeline_get_device(timeline, index, &device), RVL_OK);
    return device;
}

static rvl_timeline_series series_of(const rvl_timeline *timeline, size_t device, uint32_t index)
{
    rvl_timeline_series series = {.struct_size = sizeof series};
    assert_int_equal(rvl_timeline_get_series(timeline, device, index, &series), RVL_OK);
    return series;
}

static rvl_timeline_point point_of(const rvl_timeline *timeline, size_t device, uint32_t index)
{
    rvl_timeline_point point = {.struct_size = sizeof point};
    assert_int_equal(rvl_timeline_get_point(timeline, device, index, &point), RVL_OK);
    return point;
}

#define VALUES_MAX 64

/* What a series did within a point of device 0; NULL: nothing. Good until the next is asked for. */
static const rvl_timeline_value *value_in(const rvl_timeline *timeline, uint32_t point,
                                          uint32_t series)
{
    static rvl_timeline_value values[VALUES_MAX];
    size_t count = 0;
    assert_int_equal(
        rvl_timeline_get_values(timeline, 0, point, values, sizeof *values, VALUES_MAX, &count),
        RVL_OK);
    assert_in_range(count, 0, VALUES_MAX);
    assert_int_equal(point_of(timeline, 0, point).value_count, count);
    for (size_t i = 0; i < count; i++) {
        if (values[i].series == series)
            return &values[i];
    }
    return NULL;
}

/* ---- A replay's timeline ---- */

#define HEAD                                                                                       \
    "reveille-trace 1.0\n"                                                                         \
    "clock boot=- mono_ns=0 wall_ns=0\n"                                                           \
    "device 0 profile=- capacity_bytes=1048576000 granularity_bytes=2097152\n"                     \
    "process e pid=0\n"                                                                            \
    "process t pid=0\n"

static rvl_status run_text(const char *text, rvl_replay_options options, rvl_replay **replay_out)
{
    char path[] = "/tmp/reveille-timeline-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    const char *paths[] = {path};
    options.struct_size = sizeof options;
    rvl_status status = rvl_replay_run(paths, 1, &options, replay_out);
    unlink(path);
    return status;
}

static const char small[] = HEAD "stage 10 e 1 rollout\n"
                                 "alloc 20 e 1 1 0 209715200 weights backup=host\n"
                                 "alloc 30 e 1 2 0 104857600 kv flags=paused\n"
                                 "external 40 e 1 0 1000 nccl\n"
                                 "pause 50 e 1 weights\n"
                                 "stage 60 e 1 train\n"
                                 "alloc 70 t 1 1 0 2097152 -\n"
                                 "resume 80 e 1 kv\n"
                                 "free 90 t 1 1\n"
                                 "external 95 e 1 0 0 nccl\n"
                                 "end 10\n";

static void check_series(const rvl_timeline *timeline, uint32_t index, const char *process,
                         const char *tag, bool paused, uint64_t peak_bytes)
{
    rvl_timeline_series series = series_of(timeline, 0, index);
    assert_string_equal(series.process, process);
    if (tag == NULL)
        assert_null(series.tag);
    else
        assert_string_equal(series.tag, tag);
    assert_int_equal(series.paused, paused);
    assert_int_equal(series.peak_bytes, peak_bytes);
}

static void test_small_trace(void **state)
{
    (void)state;
    rvl_timeline *timeline = open_timeline(0);
    rvl_replay *replay;
    assert_int_equal(run_text(small, (rvl_replay_options){.timeline = timeline}, &replay), RVL_OK);
    rvl_replay_close(replay); /* the timeline outlives it */
    rvl_timeline_device device = device_of(timeline, 0);
    assert_int_equal(device.capacity_bytes, 1048576000);
    assert_int_equal(device.peak_bytes, 209715200 + 1000);
    assert_int_equal(device.peak_ns, 40);
    assert_int_equal(device.changes, 8);
    assert_int_equal(device.point_count, 8);
    assert_int_equal(device.series_count, 6);
    assert_int_equal(rvl_timeline_end_ns(timeline), 95);
    check_series(timeline, 0, "e", "weights", false, 209715200);
    check_series(timeline, 1, "e", "kv", true, 104857600);
    check_series(timeline, 2, "external", "nccl", false, 1000);
    check_series(timeline, 3, "e", "weights", true, 209715200);
    check_series(timeline, 4, "t", NULL, false, 2097152);
    check_series(timeline, 5, "e", "kv", false, 104857600);

    rvl_timeline_point pause = point_of(timeline, 0, 3);
    assert_int_equal(pause.begin_ns, 50);
    assert_int_equal(pause.max_bytes, 1000);
    assert_int_equal(pause.value_count, 2);
    assert_int_equal(value_in(timeline, 3, 0)->last_bytes, 0);
    assert_int_equal(value_in(timeline, 3, 0)->before_bytes, 209715200);
    assert_int_equal(value_in(timeline, 3, 3)->last_bytes, 209715200);

    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    assert_int_equal(rvl_timeline_stage_count(timeline), 3);
    assert_int_equal(rvl_timeline_get_stage(timeline, 2, &stage), RVL_OK);
    assert_string_equal(stage.name, "train");
    assert_int_equal(stage.begin_ns, 60);
    rvl_timeline_close(timeline);
}

static void check_asking_for_what_is_not(rvl_timeline *timeline)
{
    rvl_timeline_device device = {.struct_size = sizeof device};
    rvl_timeline_series series = {.struct_size = sizeof series};
    rvl_timeline_point point = {.struct_size = sizeof point};
    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    assert_int_equal(rvl_timeline_get_device(timeline, 1, &device), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_timeline_get_device(timeline, 0, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_timeline_get_series(timeline, 0, 6, &series), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_timeline_get_series(NULL, 0, 0, &series), RVL_ERR_INVALID);
    assert_int_equal(rvl_timeline_get_point(timeline, 0, 99, &point), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_timeline_get_point(timeline, 0, 0, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_timeline_get_stage(timeline, 3, &stage), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_timeline_get_stage(timeline, 0, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_timeline_device_count(NULL), 0);
    assert_int_equal(rvl_timeline_stage_count(NULL), 0);
    assert_int_equal(rvl_timeline_end_ns(NULL), 0);
    rvl_timeline_close(NULL);
}

static void test_misuse(void **state)
{
    (void)state;
    rvl_timeline *timeline = NULL;
    rvl_timeline_options options = {.struct_size = sizeof options, .points = 15};
    assert_int_equal(rvl_timeline_open(&options, &timeline), RVL_ERR_INVALID);
    options.points = 1000001;
    assert_int_equal(rvl_timeline_open(&options, &timeline), RVL_ERR_INVALID);
    assert_int_equal(rvl_timeline_open(NULL, NULL), RVL_ERR_INVALID);
    options.struct_size = 1;
    assert_int_equal(rvl_timeline_open(&options, &timeline), RVL_ERR_INVALID);
    assert_null(timeline);

    timeline = open_timeline(16);
    rvl_replay *replay;
    rvl_replay_options run = {.timeline = timeline};
    assert_int_equal(run_text(small, run, &replay), RVL_OK);
    rvl_replay_close(replay);
    check_asking_for_what_is_not(timeline);
    assert_int_equal(run_text(small, run, &replay), RVL_ERR_STATE); /* one replay each */
    rvl_timeline_close(timeline);
}

/* The traces that are shipped: the timeline's peak in each stage is the replay's. */
static void check_shipped(const char *name, rvl_wake wake, uint32_t points)
{
    char path[512];
    snprintf(path, sizeof path, "%s/traces/%s.rvt", RVL_SOURCE_DIR, name);
    const char *paths[] = {path};
    rvl_timeline *timeline = open_timeline(points);
    rvl_replay_options options = {
        .struct_size = sizeof options, .wake = wake, .timeline = timeline};
    rvl_replay *replay;
    assert_int_equal(rvl_replay_run(paths, 1, &options, &replay), RVL_OK);
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    rvl_timeline_device seen = device_of(timeline, 0);
    assert_int_equal(seen.peak_bytes, device.peak_bytes);
    assert_true(seen.point_count <= (points ? points : RVL_TIMELINE_POINTS_DEFAULT));

    uint64_t highest = 0;
    uint32_t offset = rvl_timeline_stage_count(timeline) - device.stage_count;
    for (uint32_t i = 0; i < device.stage_count && points == 0; i++) {
        rvl_stage_stats stage = {.struct_size = sizeof stage};
        rvl_timeline_stage mark = {.struct_size = sizeof mark}, next = {.struct_size = sizeof next};
        assert_int_equal(rvl_replay_get_stage(replay, 0, i, &stage, NULL), RVL_OK);
        assert_int_equal(rvl_timeline_get_stage(timeline, i + offset, &mark), RVL_OK);
        assert_string_equal(mark.name, stage.name);
        if (rvl_timeline_get_stage(timeline, i + offset + 1, &next) != RVL_OK)
            next.begin_ns = UINT64_MAX;
        uint64_t peak = 0;
        for (uint32_t p = 0; p < seen.point_count; p++) {
            rvl_timeline_point point = point_of(timeline, 0, p);
            if (point.begin_ns < mark.begin_ns)
                peak = point.last_bytes; /* what the stage begins with */
            else if (point.begin_ns < next.begin_ns && point.max_bytes > peak)
                peak = point.max_bytes;
        }
        assert_int_equal(peak, stage.peak_bytes);
    }
    for (uint32_t p = 0; p < seen.point_count; p++) {
        rvl_timeline_point point = point_of(timeline, 0, p);
        highest = point.max_bytes > highest ? point.max_bytes : highest;
    }
    assert_int_equal(highest, device.peak_bytes);
    rvl_replay_close(replay);
    rvl_timeline_close(timeline);
}

static void test_shipped_traces(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-3.1-8b-tp2-h200", "qwen2.5-32b-tp2-h200",
                                        "qwen2.5-7b-fsdp8-v0", "qwen2.5-7b-fsdp8-v3"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check_shipped(names[i], RVL_WAKE_STAGED, 0);
        check_shipped(names[i], RVL_WAKE_TOGETHER, 0);
        check_shipped(names[i], RVL_WAKE_STAGED, 16);
    }
}

/* ---- Downsampling against every change ---- */

#define SERIES 7u
#define PAUSED_SERIES 6u /* the last one is paused bytes: in no total */

typedef struct change {
    uint64_t time_ns;
    uint64_t bytes[SERIES]; /* after it */
    uint64_t total;
} change;

static uint64_t random_state;

static uint64_t random_below(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

/* Bursts and long silences; now and then a spike of one instant, and two changes at one time. */
static void make_changes(change *changes, size_t count)
{
    random_state = UINT64_C(0x9E3779B97F4A7C15);
    change now = {0};
    for (size_t i = 0; i < count; i++) {
        uint32_t series = (uint32_t)random_below(SERIES);
        now.time_ns += random_below(1000) == 0 ? random_below(1000000000) : random_below(50);
        uint64_t before = now.bytes[series];
        now.bytes[series] = 1 + random_below(random_below(5000) == 0 ? 1000000 : 1000);
        now.bytes[series] += now.bytes[series] == before; /* a change, each time */
        if (random_below(3) == 0)
            now.bytes[(series + 1) % SERIES] = random_below(500);
        now.total = 0;
        for (uint32_t s = 0; s < PAUSED_SERIES; s++)
            now.total += now.bytes[s];
        changes[i] = now;
    }
}

static rvl_timeline *feed(const change *changes, size_t count, uint32_t points, size_t stage_every)
{
    static const char *const tags[SERIES] = {"a", "b", "c", "d", "e", "f", "g"};
    rvl_timeline *timeline = open_timeline(points);
    uint32_t series[SERIES];
    assert_int_equal(rvli_timeline_begin(timeline, 1), RVL_OK);
    for (uint32_t s = 0; s < SERIES; s++)
        assert_int_equal(
            rvli_timeline_series_of(timeline, 0,
                                    s == PAUSED_SERIES ? RVLI_TIMELINE_PAUSED : RVLI_TIMELINE_HELD,
                                    "p", tags[s], &series[s]),
            RVL_OK);
    for (size_t i = 0; i < count; i++) {
        if (stage_every > 0 && i % stage_every == 0)
            assert_int_equal(rvli_timeline_stage(timeline, "s", 0, changes[i].time_ns), RVL_OK);
        for (uint32_t s = 0; s < SERIES; s++)
            assert_int_equal(
                rvli_timeline_set(timeline, changes[i].time_ns, 0, series[s], changes[i].bytes[s]),
                RVL_OK);
        rvli_timeline_commit(timeline, changes[i].time_ns);
    }
    assert_int_equal(rvli_timeline_end(timeline), RVL_OK);
    return timeline;
}

/* What a point ought to be, from the changes it stands for: first to last, both included. */
static void check_point(const rvl_timeline *timeline, uint32_t index, const change *changes,
                        size_t first, size_t last)
{
    static const change nothing;
    const change *before = first > 0 ? &changes[first - 1] : &nothing;
    size_t peak = first;
    uint64_t least = UINT64_MAX;
    for (size_t i = first; i <= last; i++) {
        peak = changes[i].total > changes[peak].total ? i : peak;
        least = changes[i].total < least ? changes[i].total : least;
    }
    const rvl_timeline_point now = point_of(timeline, 0, index), *point = &now;
    assert_int_equal(point->begin_ns, changes[first].time_ns);
    assert_int_equal(point->end_ns, changes[last].time_ns);
    assert_int_equal(point->max_bytes, changes[peak].total);
    assert_int_equal(point->peak_ns, changes[peak].time_ns);
    assert_int_equal(point->min_bytes, least);
    assert_int_equal(point->last_bytes, changes[last].total);
    for (uint32_t s = 0; s < SERIES; s++) {
        const rvl_timeline_value *value = value_in(timeline, index, s);
        uint64_t low = UINT64_MAX, high = 0;
        for (size_t i = first; i <= last; i++) {
            low = changes[i].bytes[s] < low ? changes[i].bytes[s] : low;
            high = changes[i].bytes[s] > high ? changes[i].bytes[s] : high;
        }
        if (value == NULL) { /* it did not change */
            assert_int_equal(low, before->bytes[s]);
            assert_int_equal(high, before->bytes[s]);
            continue;
        }
        assert_int_equal(value->before_bytes, before->bytes[s]);
        assert_int_equal(value->last_bytes, changes[last].bytes[s]);
        assert_int_equal(value->at_peak_bytes, changes[peak].bytes[s]);
        assert_int_equal(value->max_bytes, high);
        assert_int_equal(value->min_bytes, low);
    }
}

static void check_all_points(const change *changes, size_t count, uint32_t points,
                             size_t stage_every)
{
    rvl_timeline *timeline = feed(changes, count, points, stage_every);
    rvl_timeline_device device = device_of(timeline, 0);
    assert_int_equal(device.changes, count);
    assert_true(device.point_count <= points);
    assert_true(count < points ? device.point_count == count : device.point_count >= points / 16);
    size_t first = 0;
    for (uint32_t p = 0; p < device.point_count; p++) {
        rvl_timeline_point point = point_of(timeline, 0, p);
        size_t last = first + (size_t)point.changes - 1;
        assert_true(last < count);
        check_point(timeline, p, changes, first, last);
        first = last + 1;
    }
    assert_int_equal(first, count); /* none is lost */
    uint64_t peak = 0;
    for (size_t i = 0; i < count; i++)
        peak = changes[i].total > peak ? changes[i].total : peak;
    assert_int_equal(device.peak_bytes, peak);
    rvl_timeline_close(timeline);
}

static void test_downsampling_keeps_peaks(void **state)
{
    (void)state;
    size_t count = 60000;
    change *changes = calloc(count, sizeof *changes);
    assert_non_null(changes);
    make_changes(changes, count);
    check_all_points(changes, 100, 4000, 0);
    check_all_points(changes, count, 16, 0);
    check_all_points(changes, count, 100, 0);
    check_all_points(changes, count, 1000, 20000); /* few stages: none is merged over */
    check_all_points(changes, count, 1000, 3);     /* more stages than points */
    free(changes);
}

static void test_stages_stay_apart(void **state)
{
    (void)state;
    size_t count = 5000, every = 1000;
    change *changes = calloc(count, sizeof *changes);
    assert_non_null(changes);
    make_changes(changes, count);
    rvl_timeline *timeline = feed(changes, count, 100, every);
    size_t passed = 0;
    for (uint32_t p = 0; p < device_of(timeline, 0).point_count; p++) {
        size_t change_count = (size_t)point_of(timeline, 0, p).changes;
        assert_int_equal(passed / every, (passed + change_count - 1) / every);
        passed += change_count;
    }
    assert_int_equal(passed, count);
    rvl_timeline_close(timeline);
    free(changes);
}

/* However many are marked, as many are told apart as there may be points, and none is lost. */
static void test_stages_are_bounded(void **state)
{
    (void)state;
    rvl_timeline_options options = {.struct_size = sizeof options, .points = 100};
    rvl_timeline *timeline = NULL;
    uint32_t marked = 100000;
    assert_int_equal(rvl_timeline_open(&options, &timeline), RVL_OK);
    assert_int_equal(rvli_timeline_begin(timeline, 1), RVL_OK);
    for (uint32_t i = 1; i <= marked; i++) {
        char name[32];
        snprintf(name, sizeof name, "s%u", i);
        assert_int_equal(rvli_timeline_stage(timeline, name, i, i * 10ull), RVL_OK);
    }
    uint32_t count = rvl_timeline_stage_count(timeline), next = 0;
    assert_in_range(count, 40, 100);
    for (uint32_t i = 0; i < count; i++) {
        rvl_timeline_stage stage = {.struct_size = sizeof stage};
        char name[32];
        assert_int_equal(rvl_timeline_get_stage(timeline, i, &stage), RVL_OK);
        assert_int_equal(stage.first, next);
        assert_in_range(stage.count, 1, marked / 12 + 2);
        assert_int_equal(stage.begin_ns, stage.first * 10ull);
        assert_int_equal(stage.step, stage.first);
        snprintf(name, sizeof name, "s%u", stage.first);
        assert_string_equal(stage.name, stage.first > 0 ? name : "start");
        next += stage.count;
    }
    assert_int_equal(next, marked + 1);
    rvl_timeline_close(timeline);
}

/* ---- Without memory ---- */

/* Everything a timeline does, until something fails. */
static rvl_status try_all(void)
{
    rvl_timeline_options options = {.struct_size = sizeof options, .points = 16};
    rvl_timeline *timeline = NULL;
    uint32_t series[20];
    rvl_status status = rvl_timeline_open(&options, &timeline);
    if (status == RVL_OK)
        status = rvli_timeline_begin(timeline, 1);
    if (status == RVL_OK)
        status = rvli_timeline_describe(timeline, 0, 0, "h200", 1);
    for (uint32_t i = 0; i < 20 && status == RVL_OK; i++) {
        char tag[8];
        snprintf(tag, sizeof tag, "%u", i);
        status = rvli_timeline_series_of(timeline, 0, RVLI_TIMELINE_HELD, "p", tag, &series[i]);
    }
    for (uint32_t i = 0; i < 300 && status == RVL_OK; i++) {
        for (uint32_t s = 0; s < (i == 100 ? 20 : 1) && status == RVL_OK; s++)
            status = rvli_timeline_set(timeline, i, 0, series[(i + s) % 20], i + 1);
        if (status == RVL_OK)
            rvli_timeline_commit(timeline, i);
        if (status == RVL_OK && i % 10 == 0)
            status = rvli_timeline_stage(timeline, "stage", 0, i);
    }
    if (status == RVL_OK)
        status = rvli_timeline_end(timeline);
    rvl_timeline_close(timeline);
    return status;
}

static void test_no_memory(void **state)
{
    (void)state;
    rvl_status status = RVL_ERR_HOST_OOM;
    long tries = 0;
    for (; status == RVL_ERR_HOST_OOM; tries++) {
        short_memory_requests = 0;
        short_memory_left = tries;
        status = try_all();
        bool ran_out = short_memory_requests > (uint64_t)tries;
        short_memory_left = -1;
        /* A result that only could not be made smaller is whole. */
        assert_true(status == RVL_ERR_HOST_OOM || status == RVL_OK);
        if (ran_out && status == RVL_OK)
            status = RVL_ERR_HOST_OOM;
    }
    assert_true(tries > 100);
}

/* A replay that runs out of memory anywhere says so, and leaves a timeline that can be closed. */
static void test_replay_without_memory(void **state)
{
    (void)state;
    char path[] = "/tmp/reveille-timeline-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, small, strlen(small)), strlen(small));
    close(file);
    const char *paths[] = {path};
    long tries = 0;
    for (bool ran_out = true; ran_out; tries++) {
        rvl_error error = {.struct_size = sizeof error};
        rvl_timeline *timeline = open_timeline(16);
        rvl_replay *replay = NULL;
        rvl_replay_options options = {.struct_size = sizeof options, .timeline = timeline};
        short_memory_requests = 0;
        short_memory_left = tries;
        rvl_status status = rvl_replay_run(paths, 1, &options, &replay);
        rvl_last_error(&error);
        ran_out = short_memory_requests > (uint64_t)tries;
        short_memory_left = -1;
        assert_true(status == RVL_OK || status == RVL_ERR_HOST_OOM);
        assert_int_equal(replay != NULL, status == RVL_OK);
        if (status != RVL_OK)
            assert_string_not_equal(error.message, "");
        rvl_replay_close(replay);
        rvl_timeline_close(timeline);
    }
    assert_true(tries > 30);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_trace),       cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_shipped_traces),    cmocka_unit_test(test_downsampling_keeps_peaks),
        cmocka_unit_test(test_stages_stay_apart), cmocka_unit_test(test_stages_are_bounded),
        cmocka_unit_test(test_no_memory),         cmocka_unit_test(test_replay_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
