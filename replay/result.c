/* SPDX-License-Identifier: MIT */
/*
 * The result: what the context knows when the trace has ended, held against the budgets.
 *
 * A device lists the context's stages from first_stage on: "start" is left out where nothing was in
 * use in it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/model.h"

#define EXTERNAL "external"

/* ---- Reading the context ---- */

static rvl_status refuse(rvl_replay *replay, rvl_status status)
{
    return rvli_replay_refuse(replay, NULL, 0, status, "the result: %s", rvl_status_text(status));
}

static rvl_status read_stage(const rvl_replay *replay, int device, uint32_t context_stage,
                             rvl_stage_stats *stats_out)
{
    *stats_out = (rvl_stage_stats){.struct_size = sizeof *stats_out};
    return rvl_stage_get_stats(replay->context, context_stage, device, stats_out);
}

static rvl_status read_holders(rvl_replay *replay, int device, uint32_t context_stage,
                               rvli_replay_stage *stage)
{
    size_t count = 0;
    rvl_status status =
        rvl_stage_get_holders(replay->context, context_stage, device, NULL, 0, &count);
    if (status != RVL_OK || count == 0)
        return status;
    stage->holders = calloc(count, sizeof *stage->holders);
    if (stage->holders == NULL)
        return RVL_ERR_HOST_OOM;
    stage->holder_count = count;
    status = rvl_stage_get_holders(replay->context, context_stage, device, stage->holders, count,
                                   &count);
    for (size_t i = 0; i < stage->holder_count && status == RVL_OK; i++) {
        if (stage->holders[i].process == NULL)
            stage->holders[i].process = EXTERNAL;
    }
    return status;
}

static bool over_budget(const rvl_replay *replay, const rvl_stage_stats *stats)
{
    for (size_t i = 0; i < replay->options.budget_count; i++) {
        const rvl_budget *budget = &replay->options.budgets[i];
        if (strcmp(budget->stage, stats->mark) == 0 && stats->peak_bytes > budget->bytes)
            return true;
    }
    return false;
}

static rvl_status finish_stage(rvl_replay *replay, int device, uint32_t index)
{
    rvli_replay_device *state = &replay->devices[device];
    rvli_replay_stage *stage = &state->stages[index];
    rvl_stage_stats stats;
    rvl_status status = read_stage(replay, device, state->first_stage + index, &stats);
    if (status == RVL_OK)
        status = read_holders(replay, device, state->first_stage + index, stage);
    if (status != RVL_OK)
        return status;
    stage->over_budget = over_budget(replay, &stats);
    if (stage->over_budget)
        state->within_budgets = false;
    return RVL_OK;
}

static rvl_status finish_device(rvl_replay *replay, int device)
{
    rvli_replay_device *state = &replay->devices[device];
    rvl_stage_stats start;
    state->stats.struct_size = sizeof state->stats;
    rvl_status status = rvl_device_get_stats(replay->context, device, &state->stats);
    if (status == RVL_OK)
        status = read_stage(replay, device, 0, &start);
    if (status != RVL_OK)
        return status;
    uint32_t stage_count = rvl_stage_count(replay->context);
    state->within_budgets = true;
    state->first_stage = start.peak_bytes > 0 ? 0 : 1;
    state->stages = calloc((size_t)stage_count + 1, sizeof *state->stages);
    if (state->stages == NULL)
        return RVL_ERR_HOST_OOM;
    state->stage_count = stage_count - state->first_stage;
    for (uint32_t i = 0; i < state->stage_count && status == RVL_OK; i++)
        status = finish_stage(replay, device, i);
    return status;
}

/* ---- Budgets ---- */

/* Whether any device lists a stage that was marked so. */
static bool has_mark(const rvl_replay *replay, const char *mark)
{
    for (int device = 0; device < replay->device_count; device++) {
        const rvli_replay_device *state = &replay->devices[device];
        for (uint32_t i = 0; i < state->stage_count; i++) {
            rvl_stage_stats stats;
            if (read_stage(replay, device, state->first_stage + i, &stats) == RVL_OK &&
                strcmp(stats.mark, mark) == 0)
                return true;
        }
    }
    return false;
}

/* "asleep, weights_awake", each mark once, cut where the room ends. */
static void list_marks(const rvl_replay *replay, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < rvl_stage_count(replay->context); i++) {
        rvl_stage_stats stats;
        if (read_stage(replay, 0, i, &stats) != RVL_OK || strcmp(stats.name, stats.mark) != 0)
            continue;
        if (i == 0 && !has_mark(replay, stats.mark))
            continue;
        const char *separator = length > 0 ? ", " : "";
        if (length + strlen(separator) + strlen(stats.mark) + sizeof ", ..." > size) {
            snprintf(text + length, size - length, "%s...", separator);
            return;
        }
        length += (size_t)snprintf(text + length, size - length, "%s%s", separator, stats.mark);
    }
}

static rvl_status check_budgets(rvl_replay *replay)
{
    for (size_t i = 0; i < replay->options.budget_count; i++) {
        const char *mark = replay->options.budgets[i].stage;
        if (has_mark(replay, mark))
            continue;
        char marks[160];
        list_marks(replay, marks, sizeof marks);
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "budget for unknown stage \"%.48s\"; the trace has: %s", mark,
                                  marks[0] != '\0' ? marks : "none");
    }
    return RVL_OK;
}

rvl_status rvli_replay_finish(rvl_replay *replay)
{
    for (int device = 0; device < replay->device_count; device++) {
        rvl_status status = finish_device(replay, device);
        if (status != RVL_OK)
            return refuse(replay, status);
    }
    return check_budgets(replay);
}

void rvli_replay_result_destroy(rvl_replay *replay)
{
    for (int device = 0; device < replay->device_count; device++) {
        rvli_replay_device *state = &replay->devices[device];
        for (uint32_t i = 0; i < state->stage_count; i++)
            free(state->stages[i].holders);
        free(state->stages);
    }
}

/* ---- Handing it out ---- */

size_t rvl_replay_device_count(const rvl_replay *replay)
{
    return replay != NULL ? (size_t)replay->device_count : 0;
}

uint64_t rvl_replay_event_count(const rvl_replay *replay, uint64_t *skipped_out)
{
    if (skipped_out != NULL)
        *skipped_out = replay != NULL ? replay->progress.skipped_events : 0;
    return replay != NULL ? replay->progress.events : 0;
}

/* A stage of the context as an index into those that the device lists. */
static uint32_t listed_stage(const rvli_replay_device *state, uint32_t context_stage)
{
    return context_stage > state->first_stage ? context_stage - state->first_stage : 0;
}

static const char *process_name(const rvl_replay *replay, rvl_process number)
{
    for (uint32_t i = 0; i < replay->process_capacity; i++) {
        if (replay->processes[i].name != NULL && replay->processes[i].number == number)
            return replay->processes[i].name;
    }
    return "self";
}

static void describe_oom(const rvl_replay *replay, const rvli_replay_device *state,
                         rvl_replay_device *device)
{
    const rvl_oom *oom = &state->stats.oom;
    device->oom_file = state->oom_file;
    device->oom_line = state->oom_line;
    device->oom_stage = listed_stage(state, oom->stage);
    device->oom_requested_bytes = oom->requested_bytes;
    device->oom_free_bytes = oom->free_bytes;
    if (oom->external) {
        device->oom_process = EXTERNAL;
        device->oom_tag = oom->cause;
        return;
    }
    const char *tag = rvl_tag_name(replay->context, oom->tag);
    device->oom_process = process_name(replay, oom->process);
    device->oom_tag = tag[0] != '\0' ? tag : NULL;
}

rvl_status rvl_replay_get_device(const rvl_replay *replay, size_t index,
                                 rvl_replay_device *device_out)
{
    if (replay == NULL || device_out == NULL)
        return RVL_ERR_INVALID;
    if (index >= (size_t)replay->device_count)
        return RVL_ERR_NOT_FOUND;
    const rvli_replay_device *state = &replay->devices[index];
    rvl_replay_device device = {
        .struct_size = sizeof device,
        .device = state->trace_index,
        .profile = state->profile,
        .capacity_bytes = state->stats.capacity_bytes,
        .peak_bytes = state->stats.peak_bytes,
        .peak_stage = listed_stage(state, state->stats.peak_stage),
        .stage_count = state->stage_count,
        .fits = !state->stats.oom.happened,
        .within_budgets = state->within_budgets,
        .sample_count = state->sample_count,
        .worst_sample_difference_bytes = state->worst_difference_bytes,
    };
    if (!device.fits)
        describe_oom(replay, state, &device);
    return rvli_result_write(device_out, &device, sizeof device);
}

/* The stage of a device, or why there is none. */
static rvl_status find_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                             const rvli_replay_stage **stage_out)
{
    if (replay == NULL)
        return RVL_ERR_INVALID;
    if (device_index >= (size_t)replay->device_count ||
        stage >= replay->devices[device_index].stage_count)
        return RVL_ERR_NOT_FOUND;
    *stage_out = &replay->devices[device_index].stages[stage];
    return RVL_OK;
}

rvl_status rvl_replay_get_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                rvl_stage_stats *stage_out, bool *over_budget_out)
{
    const rvli_replay_stage *found;
    if (stage_out == NULL)
        return RVL_ERR_INVALID;
    rvl_status status = find_stage(replay, device_index, stage, &found);
    if (status == RVL_OK)
        status =
            rvl_stage_get_stats(replay->context, replay->devices[device_index].first_stage + stage,
                                (int)device_index, stage_out);
    if (status == RVL_OK && over_budget_out != NULL)
        *over_budget_out = found->over_budget;
    return status;
}

rvl_status rvl_replay_get_holders(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  const rvl_holder **holders_out, size_t *count_out)
{
    const rvli_replay_stage *found;
    if (holders_out == NULL || count_out == NULL)
        return RVL_ERR_INVALID;
    rvl_status status = find_stage(replay, device_index, stage, &found);
    if (status != RVL_OK)
        return status;
    *holders_out = found->holders;
    *count_out = found->holder_count;
    return RVL_OK;
}
