/* SPDX-License-Identifier: MIT */
/*
 * Traces: written at random, read again, and replayed in every way there is. The same events must
 * give the same peaks from a file, from memory and from a source, and those of a small ledger here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actions.h"
#include "random.h"
#include "reveille/replay.h"

#define EVENTS_MAX 48
#define IDS_MAX 16
#define CAPACITY_BYTES (UINT64_C(8) << 30)
#define GRANULARITY_BYTES (UINT64_C(2) << 20)

static const rvl_trace_device devices[] = {{.index = 0,
                                            .profile = NULL,
                                            .capacity_bytes = CAPACITY_BYTES,
                                            .granularity_bytes = GRANULARITY_BYTES}};

/* A trace, and what must come of it. */
typedef struct story {
    rvl_trace_event events[EVENTS_MAX];
    size_t count;
    uint64_t sizes[IDS_MAX]; /* rounded; 0: not allocated */
    uint64_t used_bytes;
    uint64_t peak_bytes;
    uint32_t stages;
    uint64_t taken; /* by the source that replays it */
} story;

/* ---- Making one ---- */

static void add(story *s, uint64_t *time_ns, caller *by, rvl_trace_event event)
{
    *time_ns += random_below(&by->random, 1000);
    event.time_ns = *time_ns;
    event.process = "trainer";
    event.tag_index = RVL_TRACE_NO_TAG;
    s->events[s->count++] = event;
    if (s->used_bytes > s->peak_bytes)
        s->peak_bytes = s->used_bytes;
}

static void add_any(story *s, uint64_t *time_ns, caller *by)
{
    uint64_t id = s->count + 1, which = random_below(&by->random, 8);
    uint64_t freed = random_below(&by->random, IDS_MAX);
    if (which == 0) {
        s->stages++;
        add(s, time_ns, by, (rvl_trace_event){.kind = RVL_EVENT_STAGE, .name = "rollout"});
    } else if (which == 1) {
        add(s, time_ns, by, (rvl_trace_event){.kind = RVL_EVENT_STEP});
    } else if (which < 4 && s->sizes[freed] != 0) {
        s->used_bytes -= s->sizes[freed];
        s->sizes[freed] = 0;
        for (size_t i = s->count; i-- > 0;)
            if (s->events[i].kind == RVL_EVENT_ALLOC && s->events[i].id % IDS_MAX == freed) {
                add(s, time_ns, by,
                    (rvl_trace_event){.kind = RVL_EVENT_FREE, .id = s->events[i].id});
                break;
            }
    } else if (s->sizes[id % IDS_MAX] == 0) {
        uint64_t bytes = random_below(&by->random, 64 * GRANULARITY_BYTES) + 1;
        s->sizes[id % IDS_MAX] =
            (bytes + GRANULARITY_BYTES - 1) / GRANULARITY_BYTES * GRANULARITY_BYTES;
        s->used_bytes += s->sizes[id % IDS_MAX];
        add(s, time_ns, by,
            (rvl_trace_event){.kind = RVL_EVENT_ALLOC, .id = id, .bytes = bytes, .tag = "weights"});
    }
}

static void make(story *s, caller *by)
{
    uint64_t time_ns = 0;
    memset(s, 0, sizeof *s);
    add(s, &time_ns, by, (rvl_trace_event){.kind = RVL_EVENT_STAGE, .name = "begin"});
    s->stages = 1;
    for (int i = 0; i < EVENTS_MAX - 1; i++)
        add_any(s, &time_ns, by);
}

/* ---- Writing ---- */

static void write_trace(owner *o, const story *s, const char *path)
{
    caller *by = &o->by;
    rvl_trace_writer *writer = NULL;
    const rvl_trace_header header = {.struct_size = sizeof header,
                                     .devices = devices,
                                     .device_count = 1,
                                     .device_size = sizeof devices[0],
                                     .comment = "stress"};
    if (random_one_in(&by->random, 2))
        ANSWER(by, MAY_OK, rvl_trace_writer_open, path, &header, &writer);
    else
        ANSWER(by, MAY_OK, rvl_trace_writer_open_draft, path, &header, &writer);
    ANSWER(by, MAY_OK, rvl_trace_writer_add_process, writer, "trainer", 1);
    ANSWER(by, MAY_OK, rvl_trace_writer_add_comment, writer, "a comment\nof two lines");
    for (size_t i = 0; i < s->count; i++)
        ANSWER(by, MAY_OK, rvl_trace_writer_add_event, writer, &s->events[i], sizeof s->events[i]);
    rvl_trace_event unknown = s->events[0];
    unknown.process = "nobody";
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_trace_writer_add_event, writer, &unknown, sizeof unknown);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_trace_writer_add_event, writer, &s->events[0], 0);
    ANSWER(by, MAY_OK, rvl_trace_writer_flush, writer);
    ANSWER(by, MAY_OK, rvl_trace_writer_close, writer);
}

/* A draft that is given up leaves nothing. */
static void discard_trace(owner *o, const char *path)
{
    caller *by = &o->by;
    rvl_trace_writer *writer = NULL;
    const rvl_trace_header header = {.struct_size = sizeof header,
                                     .devices = devices,
                                     .device_count = 1,
                                     .device_size = sizeof devices[0]};
    ANSWER(by, MAY_OK, rvl_trace_writer_open_draft, path, &header, &writer);
    ANSWER(by, MAY_OK, rvl_trace_writer_add_process, writer, "trainer", 1);
    CALL(by, rvl_trace_writer_discard, writer);
    EXPECT(by, access(path, F_OK), -1);
}

/* ---- Reading ---- */

static void compare_events(owner *o, const story *s, rvl_trace_reader *reader)
{
    caller *by = &o->by;
    rvl_trace_event event;
    for (size_t i = 0; i < s->count; i++) {
        EXPECT(by, calls_next_event(by, reader, &event), true);
        EXPECT(by, event.kind, s->events[i].kind);
        EXPECT(by, event.time_ns, s->events[i].time_ns);
        EXPECT(by, event.id, s->events[i].id);
        EXPECT(by, event.bytes, s->events[i].bytes);
    }
    EXPECT(by, calls_next_event(by, reader, &event), false);
    rvl_trace_progress progress = {.struct_size = sizeof progress};
    CALL(by, rvl_trace_reader_get_progress, reader, &progress);
    EXPECT(by, progress.events, s->count);
    EXPECT(by, progress.bytes_read, progress.bytes_total);
}

static void read_trace(owner *o, const story *s, const char *path, bool by_replay)
{
    caller *by = &o->by;
    rvl_trace_reader *reader = NULL;
    if (by_replay)
        ANSWER(by, MAY_OK, rvl_replay_open_reader, &path, 1, NULL, &reader);
    else
        ANSWER(by, MAY_OK, rvl_trace_reader_open, &path, 1, NULL, &reader);
    compare_events(o, s, reader);
    rvl_trace_device found;
    size_t count = 0;
    ANSWER(by, MAY_OK, rvl_trace_reader_get_devices, reader, &found, sizeof found, 1, &count);
    EXPECT(by, count, 1);
    EXPECT(by, found.capacity_bytes, CAPACITY_BYTES);
    EXPECT(by, strcmp(CALL(by, rvl_trace_reader_path, reader, 0), path), 0);
    CALL(by, rvl_trace_reader_close, reader);
    EXPECT(by, CALL(by, rvl_trace_find_column, path, 1, 1), 1);
}

/* ---- Replaying ---- */

static rvl_status next_event(void *user, rvl_trace_event *event_out)
{
    story *s = user;
    if (s->taken == s->count)
        return RVL_ERR_NOT_FOUND;
    *event_out = s->events[s->taken++];
    return RVL_OK;
}

static rvl_status rewind_events(void *user)
{
    ((story *)user)->taken = 0;
    return RVL_OK;
}

static bool append(void *user, const char *text, size_t size)
{
    return fwrite(text, 1, size, user) == size;
}

static void compare_json(owner *o, const rvl_replay *replay)
{
    caller *by = &o->by;
    char *whole = NULL, *pieces = NULL;
    size_t size = 0;
    ANSWER(by, MAY_OK, rvl_replay_to_json, replay, &whole);
    FILE *file = open_memstream(&pieces, &size);
    if (file == NULL)
        calls_give_up("no memory for a stream");
    ANSWER(by, MAY_OK, rvl_replay_write_json, replay, append, file);
    fclose(file);
    EXPECT(by, strcmp(whole, pieces), 0);
    free(pieces);
    CALL(by, rvl_string_free, whole);
}

static void compare_stage(owner *o, const rvl_replay *replay, uint32_t stage, uint64_t peak_max)
{
    caller *by = &o->by;
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    bool over = true;
    ANSWER(by, MAY_OK, rvl_replay_get_stage, replay, 0, stage, &stats, &over);
    EXPECT(by, over, false);
    EXPECT_WITHIN(by, stats.peak_bytes, stats.end_bytes, peak_max);
    rvl_holder holders[4] = {{0}};
    size_t count = 0;
    ANSWER(by, MAY_OK, rvl_replay_get_holders, replay, 0, stage, holders, sizeof *holders, 4,
           &count);
    EXPECT(by, count > 0 ? holders[0].bytes : 0, stats.peak_bytes);
    rvl_replay_mark mark = {.struct_size = sizeof mark};
    ANSWER(by, MAY_OK, rvl_replay_get_mark, replay, 0, stage, &mark);
    EXPECT_WITHIN(by, mark.end_ns, mark.begin_ns, UINT64_MAX);
    uint64_t one = 0, other = 0;
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_replay_get_measured, replay, 0, stage, &one, &other);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_replay_get_reading, replay, 0, stage, &one, &other);
}

static void compare_replay(owner *o, const story *s, rvl_replay *replay)
{
    caller *by = &o->by;
    uint64_t skipped = 1;
    EXPECT(by, CALL(by, rvl_replay_device_count, replay), 1);
    EXPECT(by, CALL(by, rvl_replay_event_count, replay, &skipped), s->count);
    EXPECT(by, skipped, 0);
    rvl_replay_device device = {.struct_size = sizeof device};
    ANSWER(by, MAY_OK, rvl_replay_get_device, replay, 0, &device);
    EXPECT(by, device.peak_bytes, s->peak_bytes);
    EXPECT(by, device.stage_count, s->stages);
    EXPECT(by, device.fits, s->peak_bytes <= CAPACITY_BYTES);
    for (uint32_t stage = 0; stage < device.stage_count; stage++)
        compare_stage(o, replay, stage, s->peak_bytes);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_replay_get_device, replay, 1, &device);
    compare_json(o, replay);
    CALL(by, rvl_replay_close, replay);
}

static void compare_timeline(owner *o, const story *s, rvl_timeline *timeline)
{
    caller *by = &o->by;
    rvl_timeline_device device = {.struct_size = sizeof device};
    EXPECT(by, CALL(by, rvl_timeline_device_count, timeline), 1);
    ANSWER(by, MAY_OK, rvl_timeline_get_device, timeline, 0, &device);
    EXPECT(by, device.peak_bytes, s->peak_bytes);
    EXPECT_WITHIN(by, device.peak_ns, 0, CALL(by, rvl_timeline_end_ns, timeline));
    uint64_t highest = 0;
    for (uint32_t i = 0; i < device.point_count; i++) {
        rvl_timeline_point point = {.struct_size = sizeof point};
        ANSWER(by, MAY_OK, rvl_timeline_get_point, timeline, 0, i, &point);
        highest = point.max_bytes > highest ? point.max_bytes : highest;
    }
    EXPECT(by, highest, s->peak_bytes);
    rvl_timeline_value first = {0};
    size_t value_count = 0;
    ANSWER(by, MAY_OK, rvl_timeline_get_values, timeline, 0, 0, &first, sizeof first, 1,
           &value_count);
    EXPECT_WITHIN(by, value_count, 1, device.series_count);
    EXPECT_WITHIN(by, first.last_bytes, first.min_bytes, first.max_bytes);
    for (uint32_t i = 0; i < device.series_count; i++) {
        rvl_timeline_series series = {.struct_size = sizeof series};
        ANSWER(by, MAY_OK, rvl_timeline_get_series, timeline, 0, i, &series);
        EXPECT_WITHIN(by, series.peak_bytes, 0, s->peak_bytes);
    }
    uint32_t stages = CALL(by, rvl_timeline_stage_count, timeline);
    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    ANSWER(by, MAY_OK, rvl_timeline_get_stage, timeline, stages - 1, &stage);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_timeline_get_stage, timeline, stages, &stage);
    CALL(by, rvl_timeline_close, timeline);
}

static void replay_trace(owner *o, story *s, const char *path)
{
    caller *by = &o->by;
    rvl_replay *replay = NULL;
    rvl_timeline *timeline = NULL;
    const rvl_timeline_options few = {.struct_size = sizeof few, .points = RVL_TIMELINE_POINTS_MIN};
    ANSWER(by, MAY_OK, rvl_timeline_open, random_one_in(&by->random, 2) ? &few : NULL, &timeline);
    const rvl_budget budget = {"begin", CAPACITY_BYTES};
    rvl_replay_options options = {.struct_size = sizeof options,
                                  .timeline = timeline,
                                  .budgets = &budget,
                                  .budget_count = 1,
                                  .budget_size = sizeof budget,
                                  .wake = random_one_in(&by->random, 2) ? RVL_WAKE_TOGETHER
                                                                        : RVL_WAKE_STAGED};
    ANSWER(by, MAY_OK, rvl_replay_run, &path, 1, &options, &replay);
    compare_replay(o, s, replay);
    compare_timeline(o, s, timeline);
    const rvl_replay_events events = {.struct_size = sizeof events,
                                      .name = "memory",
                                      .devices = devices,
                                      .device_count = 1,
                                      .device_size = sizeof devices[0],
                                      .events = s->events,
                                      .event_count = s->count,
                                      .event_size = sizeof s->events[0]};
    ANSWER(by, MAY_OK, rvl_replay_run_events, &events, NULL, &replay);
    compare_replay(o, s, replay);
    const rvl_replay_source source = {.struct_size = sizeof source,
                                      .devices = devices,
                                      .device_count = 1,
                                      .device_size = sizeof devices[0],
                                      .event_size = sizeof s->events[0],
                                      .next = next_event,
                                      .rewind = rewind_events,
                                      .user = s};
    ANSWER(by, MAY_OK, rvl_replay_run_source, &source, NULL, &replay);
    compare_replay(o, s, replay);
}

/* ---- The action ---- */

void stress_path(const owner *o, const char *what, char *path_out, size_t size)
{
    snprintf(path_out, size, "%s/%s-%d", stress_folder, what, o->by.thread);
}

void action_trace(owner *o)
{
    story s;
    char path[300];
    make(&s, &o->by);
    stress_path(o, "story", path, sizeof path);
    discard_trace(o, path);
    write_trace(o, &s, path);
    read_trace(o, &s, path, false);
    read_trace(o, &s, path, true);
    replay_trace(o, &s, path);
    unlink(path);
}
