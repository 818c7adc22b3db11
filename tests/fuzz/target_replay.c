/* SPDX-License-Identifier: MIT */
/*
 * The replay of a trace: staged or with all that wakes at once, on its own devices or on small
 * ones, as the input's bytes decide. No stage needs more than its device's peak, what holds a peak
 * makes it up, and the result and the timeline agree.
 */
#include <string.h>

#include "fuzz.h"
#include "reveille/replay.h"
#include "reveille/verdict.h"

#define HOLDERS_MAX 256

static void check_stage(const rvl_replay *replay, size_t device, uint32_t index, uint64_t peak)
{
    static rvl_holder holders[HOLDERS_MAX];
    rvl_stage_stats stage = {.struct_size = sizeof stage};
    size_t count = 0;
    uint64_t held = 0;
    require(rvl_replay_get_stage(replay, device, index, &stage, NULL) == RVL_OK);
    require(stage.name != NULL && stage.peak_bytes <= peak);
    require(rvl_replay_get_holders(replay, device, index, holders, sizeof *holders, HOLDERS_MAX,
                                   &count) == RVL_OK);
    for (size_t i = 0; i < count && i < HOLDERS_MAX; i++) {
        require(i == 0 || holders[i].bytes <= holders[i - 1].bytes);
        held += holders[i].bytes;
    }
    require(count > HOLDERS_MAX || held == stage.peak_bytes);
}

/* A device does not fit by a request that is named, or because what was recorded has failed. */
static void check_device(const rvl_replay *replay, size_t index, rvl_verdict_kind kind)
{
    bool failed = kind == RVL_VERDICT_FAILED || kind == RVL_VERDICT_OUT_OF_MEMORY;
    rvl_replay_device device = {.struct_size = sizeof device};
    require(rvl_replay_get_device(replay, index, &device) == RVL_OK);
    require(!device.fits || device.peak_bytes <= device.capacity_bytes);
    require(device.oom_file == NULL || !device.fits);
    require(device.fits || device.oom_file != NULL || failed);
    require(device.stage_count > 0 ? device.peak_stage < device.stage_count
                                   : device.peak_bytes == 0);
    for (uint32_t i = 0; i < device.stage_count; i++)
        check_stage(replay, index, i, device.peak_bytes);
}

/* The values of a point are those of different series, by number. */
static void check_values(const rvl_timeline *timeline, size_t index, uint32_t point,
                         uint32_t value_count)
{
    static rvl_timeline_value values[HOLDERS_MAX];
    size_t count = 0;
    require(rvl_timeline_get_values(timeline, index, point, values, sizeof *values, HOLDERS_MAX,
                                    &count) == RVL_OK);
    require(count == value_count);
    for (size_t i = 0; i < count && i < HOLDERS_MAX; i++) {
        require(i == 0 || values[i].series > values[i - 1].series);
        require(values[i].min_bytes <= values[i].max_bytes);
    }
}

/* Points follow each other, and one of them has the device's peak. */
static void check_points(const rvl_timeline *timeline, size_t index)
{
    rvl_timeline_device device = {.struct_size = sizeof device};
    require(rvl_timeline_get_device(timeline, index, &device) == RVL_OK);
    uint64_t end_ns = 0, most_bytes = 0;
    for (uint32_t i = 0; i < device.point_count; i++) {
        rvl_timeline_point point = {.struct_size = sizeof point};
        require(rvl_timeline_get_point(timeline, index, i, &point) == RVL_OK);
        require(point.begin_ns >= end_ns && point.end_ns >= point.begin_ns);
        check_values(timeline, index, i, point.value_count);
        require(point.min_bytes <= point.max_bytes && point.last_bytes <= point.max_bytes);
        most_bytes = point.max_bytes > most_bytes ? point.max_bytes : most_bytes;
        end_ns = point.end_ns;
    }
    require(most_bytes == device.peak_bytes && end_ns <= rvl_timeline_end_ns(timeline));
}

static void check_timeline(const rvl_timeline *timeline, const rvl_replay *replay)
{
    size_t count = rvl_timeline_device_count(timeline);
    require(count == rvl_replay_device_count(replay));
    for (size_t i = 0; i < count; i++)
        check_points(timeline, i);
}

static bool count_text(void *user, const char *text, size_t size)
{
    (void)text;
    *(size_t *)user += size;
    return true;
}

static void check(const rvl_replay *replay, const rvl_timeline *timeline)
{
    size_t written = 0;
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    require(rvl_replay_get_verdict(replay, &verdict) == RVL_OK);
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++)
        check_device(replay, i, verdict.kind);
    if (timeline != NULL)
        check_timeline(timeline, replay);
    require(rvl_replay_write_json(replay, count_text, &written) == RVL_OK && written > 0);
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    static const rvl_budget budget = {.stage = "train", .bytes = UINT64_C(1) << 30};
    const uint32_t choice = fuzz_hash(data, size);
    const char *path = fuzz_file(data, size);
    rvl_timeline_options how = {.struct_size = sizeof how, .points = 16};
    rvl_timeline *timeline = NULL;
    rvl_replay *replay = NULL;
    rvl_error error = {.struct_size = sizeof error};
    if (choice & 1)
        require(rvl_timeline_open(&how, &timeline) == RVL_OK);
    const rvl_replay_options options = {.struct_size = sizeof options,
                                        .device = choice & 2 ? "1GiB" : NULL,
                                        .wake = choice & 4 ? RVL_WAKE_TOGETHER : RVL_WAKE_STAGED,
                                        .conductor = choice & 8 ? "trainer" : NULL,
                                        .flags = choice & 16 ? RVL_REPLAY_PARTIAL : 0,
                                        .budgets = &budget,
                                        .budget_count = choice & 32 ? 1 : 0,
                                        .budget_size = sizeof budget,
                                        .timeline = timeline};
    rvl_status status = rvl_replay_run(&path, 1, &options, &replay);
    rvl_last_error(&error);
    require((status == RVL_OK) == (replay != NULL));
    require(status == RVL_OK || status == RVL_ERR_INVALID || error.message[0] != '\0');
    if (replay != NULL)
        check(replay, timeline);
    rvl_replay_close(replay);
    rvl_timeline_close(timeline);
    return status == RVL_OK;
}
