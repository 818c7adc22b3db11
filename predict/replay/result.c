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

#include "base/error.h"
#include "predict/replay/replay_internal.h"

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

static bool over_budget(const rvl_replay *replay, const rvl_stage_stats *stats)
{
    for (size_t i = 0; i < replay->budget_count; i++) {
        const rvl_budget *budget = &replay->budgets[i];
        if (strcmp(budget->stage, stats->mark) == 0 && stats->peak_bytes > budget->bytes)
            return true;
    }
    return false;
}

static rvl_status hold_against_budgets(rvl_replay *replay, int device)
{
    rvli_replay_device *state = &replay->devices[device];
    rvl_status status = RVL_OK;
    state->within_budgets = true;
    for (uint32_t i = 0; replay->budget_count > 0 && i < state->stage_count; i++) {
        rvl_stage_stats stats;
        status = read_stage(replay, device, state->first_stage + i, &stats);
        if (status != RVL_OK)
            break;
        if (over_budget(replay, &stats))
            state->within_budgets = false;
    }
    return status;
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
    state->first_stage = start.peak_bytes > 0 ? 0 : 1;
    state->stage_count = rvl_stage_count(replay->context) - state->first_stage;
    return hold_against_budgets(replay, device);
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

static rvl_status copy_budget(rvl_replay *replay, const rvli_element *element, size_t index)
{
    const rvl_replay_options *options = &replay->options;
    rvl_budget budget;
    rvl_status status =
        rvli_element_read_at(element, &budget, options->budgets, options->budget_size, index);
    if (status != RVL_OK)
        return status;
    if (budget.stage == NULL)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID, "a budget without a stage");
    budget.stage = strdup(budget.stage);
    if (budget.stage == NULL)
        return refuse(replay, RVL_ERR_HOST_OOM);
    replay->budgets[replay->budget_count++] = budget;
    return RVL_OK;
}

rvl_status rvli_replay_copy_budgets(rvl_replay *replay)
{
    const rvli_element *element = RVLI_ELEMENT(rvl_budget, bytes);
    const rvl_replay_options *options = &replay->options;
    if (options->budget_count == 0)
        return RVL_OK;
    if (options->budgets == NULL)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID, "budget_count without budgets");
    rvl_status status = rvli_element_check(element, options->budget_size);
    if (status != RVL_OK)
        return status;
    replay->budgets = calloc(options->budget_count, sizeof *replay->budgets);
    if (replay->budgets == NULL)
        return refuse(replay, RVL_ERR_HOST_OOM);
    for (size_t i = 0; i < options->budget_count && status == RVL_OK; i++)
        status = copy_budget(replay, element, i);
    return status;
}

static rvl_status check_budgets(rvl_replay *replay)
{
    for (size_t i = 0; i < replay->budget_count; i++) {
        const char *mark = replay->budgets[i].stage;
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
    rvl_status status = RVL_OK;
    for (int device = 0; device < replay->device_count && status == RVL_OK; device++)
        status = finish_device(replay, device);
    return status == RVL_OK ? check_budgets(replay) : refuse(replay, status);
}

void rvli_replay_result_destroy(rvl_replay *replay)
{
    for (size_t i = 0; i < replay->budget_count; i++)
        free((void *)(uintptr_t)replay->budgets[i].stage);
    free(replay->budgets);
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

/* Of a snapshot beside which no trace declares its device. */
static bool is_assumed(const rvl_replay *replay, const rvli_replay_device *state)
{
    return replay->joined.device_assumed &&
           (uint32_t)state->trace_index == replay->options.snapshot_device;
}

rvl_status rvl_replay_get_device(const rvl_replay *replay, size_t index,
                                 rvl_replay_device *device_out)
{
    if (replay == NULL || device_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay or device_out is NULL");
    if (index >= (size_t)replay->device_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no device of this index in the replay");
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
        .flags = is_assumed(replay, state) ? RVL_REPLAY_DEVICE_ASSUMED : 0,
        .capacity_doubt_bytes = state->capacity_doubt_bytes,
    };
    if (device.fits && device.peak_bytes > device.capacity_bytes - device.capacity_doubt_bytes)
        device.flags |= RVL_REPLAY_DEVICE_DOUBTFUL;
    if (!device.fits)
        describe_oom(replay, state, &device);
    return rvli_result_write(device_out, &device, sizeof device);
}

/* The context's stage that a device lists at an index, or why there is none. */
static rvl_status find_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                             uint32_t *context_stage_out)
{
    if (replay == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay is NULL");
    if (device_index >= (size_t)replay->device_count ||
        stage >= replay->devices[device_index].stage_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no stage of this index in the replay");
    *context_stage_out = replay->devices[device_index].first_stage + stage;
    return RVL_OK;
}

rvl_status rvl_replay_get_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                rvl_stage_stats *stage_out, bool *over_budget_out)
{
    uint32_t context_stage = 0;
    rvl_stage_stats stats;
    if (stage_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "stage_out is NULL");
    rvl_status status = find_stage(replay, device_index, stage, &context_stage);
    if (status == RVL_OK)
        status = read_stage(replay, (int)device_index, context_stage, &stats);
    if (status == RVL_OK)
        status = rvli_result_write(stage_out, &stats, sizeof stats);
    if (status == RVL_OK && over_budget_out != NULL)
        *over_budget_out = over_budget(replay, &stats);
    return status;
}

/* ---- Holders ---- */

rvl_status rvl_replay_get_holders(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  rvl_holder *holders_out, size_t holder_size, size_t capacity,
                                  size_t *count_out)
{
    uint32_t context_stage = 0;
    rvl_status status = find_stage(replay, device_index, stage, &context_stage);
    if (status == RVL_OK)
        status = rvl_stage_get_holders(replay->context, context_stage, (int)device_index,
                                       holders_out, holder_size, capacity, count_out);
    for (size_t i = 0; status == RVL_OK && i < capacity && i < *count_out; i++) {
        rvl_holder *holder = (rvl_holder *)(void *)((char *)holders_out + i * holder_size);
        if (holder->process == NULL)
            holder->process = EXTERNAL;
    }
    return status;
}
