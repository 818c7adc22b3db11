/* SPDX-License-Identifier: MIT */
/*
 * Combines the stages of a timeline with their results from the replay.
 *
 * Both number the stages of a run in the order in which they began. A device lists those of the
 * processes that mark for it. If there are more stages than points, a stage of the timeline stands
 * for several of the replay.
 */
#include "cli/report/report.h"

static uint32_t place_of(const report_run *run, size_t device, uint32_t stage)
{
    rvl_replay_mark mark = {.struct_size = sizeof mark};
    return rvl_replay_get_mark(run->replay, device, stage, &mark) == RVL_OK ? mark.place
                                                                            : UINT32_MAX;
}

static uint32_t count_listed(const report_run *run, size_t device)
{
    rvl_replay_device replayed = {.struct_size = sizeof replayed};
    return rvl_replay_get_device(run->replay, device, &replayed) == RVL_OK ? replayed.stage_count
                                                                           : 0;
}

/* Returns the first stage that the device lists from a place on. Places are in ascending order. */
static uint32_t first_from(const report_run *run, size_t device, uint32_t place)
{
    uint32_t low = 0, high = count_listed(run, device);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (place_of(run, device, middle) < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool stage_is_listed(const report_run *run, size_t device, uint32_t index)
{
    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    return rvl_timeline_get_stage(run->timeline, index, &stage) == RVL_OK &&
           first_from(run, device, stage.first) <
               first_from(run, device, stage.first + stage.count);
}

static void add_stats(listed_stage *sum, const rvl_stage_stats *stats, uint32_t index)
{
    if (stats->peak_bytes > sum->stats.peak_bytes) {
        sum->stats.peak_bytes = stats->peak_bytes;
        sum->stats.free_at_peak_bytes = stats->free_at_peak_bytes;
        sum->peak_stage = index;
    }
    if (stats->host_bytes > sum->stats.host_bytes)
        sum->stats.host_bytes = stats->host_bytes;
    sum->stats.end_bytes = stats->end_bytes;
    sum->stats.transition_ns += stats->transition_ns;
}

bool stage_get(const report_run *run, size_t device, uint32_t index, listed_stage *stage_out)
{
    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    if (rvl_timeline_get_stage(run->timeline, index, &stage) != RVL_OK)
        return false;
    uint32_t first = first_from(run, device, stage.first);
    uint32_t end = first_from(run, device, stage.first + stage.count);
    *stage_out = (listed_stage){.stats = {.struct_size = sizeof stage_out->stats},
                                .begin_ns = stage.begin_ns,
                                .step = stage.step,
                                .peak_stage = first,
                                .count = end - first};
    if (rvl_replay_get_stage(run->replay, device, first, &stage_out->stats, NULL) != RVL_OK)
        return false;
    for (uint32_t i = first + 1; i < end; i++) {
        rvl_stage_stats stats = {.struct_size = sizeof stats};
        if (rvl_replay_get_stage(run->replay, device, i, &stats, NULL) != RVL_OK)
            return false;
        add_stats(stage_out, &stats, i);
    }
    return true;
}
