/* SPDX-License-Identifier: MIT */
/*
 * The stages of a timeline, with what the replay says of them.
 *
 * The timeline counts "start", which the replay lists only if memory was in use in it. Where there
 * are more stages than points, one of the timeline is several of the replay.
 */
#include "cli/report/report.h"

/* How many stages of the run come before those that the replay lists. */
static uint32_t unlisted(const report_run *run, size_t device)
{
    rvl_timeline_stage last = {.struct_size = sizeof last};
    rvl_replay_device replayed = {.struct_size = sizeof replayed};
    uint32_t count = rvl_timeline_stage_count(run->timeline);
    if (count == 0 || rvl_timeline_get_stage(run->timeline, count - 1, &last) != RVL_OK ||
        rvl_replay_get_device(run->replay, device, &replayed) != RVL_OK)
        return 0;
    return last.first + last.count - replayed.stage_count;
}

bool stage_is_listed(const report_run *run, size_t device, uint32_t index)
{
    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    return rvl_timeline_get_stage(run->timeline, index, &stage) == RVL_OK &&
           stage.first + stage.count > unlisted(run, device);
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
    uint32_t offset = unlisted(run, device);
    uint32_t first = stage.first > offset ? stage.first - offset : 0;
    uint32_t end = stage.first + stage.count - offset;
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
