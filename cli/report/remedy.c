/* SPDX-License-Identifier: MIT */
/*
 * Suggests how a run could fit: with a smaller size of its largest holder. The size is found as by
 * `reveille plan`.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/report/report.h"
#include "reveille/plan.h"
#include "verdict.h"

/* A plan replays the trace a few times. With more events, the user decides whether to run one. */
#define EVENTS_MAX 200000u

/* Finds the first named device that is too small. false: there is none. */
static bool find_device(const report_run *run, rvl_replay_device *device_out, size_t *index_out)
{
    for (size_t i = 0; i < rvl_replay_device_count(run->replay); i++) {
        *device_out = (rvl_replay_device){.struct_size = sizeof *device_out};
        if (rvl_replay_get_device(run->replay, i, device_out) == RVL_OK &&
            device_out->peak_bytes > device_out->capacity_bytes &&
            !(device_out->flags & RVL_REPLAY_DEVICE_ASSUMED)) {
            *index_out = i;
            return true;
        }
    }
    return false;
}

/* Returns the largest holder at the peak, as "engine/kv_cache". Skips external bytes, which cannot
 * shrink, and untagged ones, which --max cannot name. The caller frees it. NULL: none, or no
 * memory.
 */
static char *largest_holder(const report_run *run)
{
    rvl_replay_device device;
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    size_t index, count = 0;
    char *name = NULL;
    if (!find_device(run, &device, &index) ||
        rvl_replay_get_holders(run->replay, index, device.peak_stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, &count) != RVL_OK)
        return NULL;
    for (size_t i = 0; i < count && i < RVL_REPLAY_LISTED_HOLDERS; i++) {
        if (holders[i].tag != NULL && strcmp(holders[i].process, "external") != 0)
            return asprintf(&name, "%s/%s", holders[i].process, holders[i].tag) >= 0 ? name : NULL;
    }
    return NULL;
}

/* Whether to run a plan: not for a pipe, which cannot be read again, not for a long trace, and not
 * for snapshots on another device than 0, which the plan here does not support. */
static bool can_plan(const remedy_question *asked, const report_run *run)
{
    for (size_t i = 0; i < asked->path_count; i++) {
        struct stat found;
        if (stat(asked->paths[i], &found) != 0 || !S_ISREG(found.st_mode))
            return false;
    }
    return asked->options->snapshot_device == 0 &&
           rvl_replay_event_count(run->replay, NULL) <= EVENTS_MAX;
}

/* Finds the largest size of the tag that fits. false: not known. */
static bool find_largest(const remedy_question *asked, const char *tag, rvl_plan_result *result_out)
{
    rvl_plan *plan = NULL;
    option_headroom headroom = {0};
    const rvl_replay_options *run = asked->options;
    rvl_replay_options replay = {.struct_size = sizeof replay,
                                 .device = run->device,
                                 .wake = asked->wake,
                                 .conductor = run->conductor};
    const rvl_replay_options reading = {.struct_size = sizeof reading,
                                        .flags = run->flags & RVL_REPLAY_PARTIAL,
                                        .snapshot_process = run->snapshot_process};
    *result_out = (rvl_plan_result){.struct_size = sizeof *result_out};
    if (asked->headroom != NULL && verdict_read_headroom(asked->headroom, &headroom))
        verdict_ask(&headroom, &replay);
    if (rvl_plan_open(asked->paths, asked->path_count, &reading, &plan) == RVL_OK) {
        const rvl_plan_case planned = {
            .struct_size = sizeof planned, .plan = plan, .tag = tag, .replay = &replay};
        rvl_plan_run(&planned, result_out, NULL);
    }
    rvl_plan_close(plan);
    return result_out->state == RVL_PLAN_DOES_NOT_FIT || result_out->state == RVL_PLAN_TIGHT ||
           (result_out->state == RVL_PLAN_FITS && result_out->largest_bytes != UINT64_MAX);
}

char *remedy_text(const remedy_question *asked, const report_run *run)
{
    char largest[SIZE_TEXT_BYTES], traced[SIZE_TEXT_BYTES], *text = NULL;
    rvl_plan_result result;
    int made = -1;
    char *tag = largest_holder(run);
    if (tag == NULL)
        return NULL;
    if (!can_plan(asked, run))
        made = asprintf(&text, "`reveille plan --max %s` says how much of it would fit", tag);
    else if (!find_largest(asked, tag, &result))
        text = NULL;
    else if (result.state == RVL_PLAN_FITS)
        made = asprintf(&text, "it would fit with %s of %s instead of %s", tag,
                        format_size(result.largest_bytes, largest),
                        format_size(result.traced_bytes, traced));
    else
        made = asprintf(&text, "the largest holder is %s; it would not fit without it either", tag);
    free(tag);
    return made >= 0 ? text : NULL;
}
