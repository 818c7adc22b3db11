/* SPDX-License-Identifier: MIT */
/*
 * The result: what the context has at the end of the trace, compared with the budgets.
 *
 * A device lists the stages of the processes that mark for it (docs/replay.md). It lists `start` if
 * memory was in use then, and `outside` if memory changed.
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

/* Returns the listed figures of a stage on a device. */
static rvl_stage_stats stage_stats(const rvl_replay *replay, int device, uint32_t index)
{
    const rvli_stage_of_process *stage = &replay->stages.list[index];
    const rvli_stage_part *part = rvli_stage_on(replay, index, device);
    uint64_t capacity = replay->devices[device].stats.capacity_bytes;
    return (rvl_stage_stats){
        .struct_size = sizeof(rvl_stage_stats),
        .name = stage->name != NULL ? stage->name : stage->mark,
        .mark = stage->mark,
        .step = stage->step,
        .peak_bytes = part->peak_bytes,
        .end_bytes = part->end_bytes,
        .free_at_peak_bytes = part->peak_bytes < capacity ? capacity - part->peak_bytes : 0,
        .host_bytes = part->host_bytes,
        .transition_ns = part->transition_ns,
    };
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

static void hold_against_budgets(rvl_replay *replay, int device)
{
    rvli_replay_device *state = &replay->devices[device];
    state->within_budgets = true;
    for (uint32_t i = 0; replay->budget_count > 0 && i < state->stage_count; i++) {
        const rvl_stage_stats stats = stage_stats(replay, device, state->listed[i]);
        if (over_budget(replay, &stats))
            state->within_budgets = false;
    }
}

/* ---- Which stages a device lists ---- */

/* Whether a process marks stages and uses the device. */
static bool marks_itself(const rvl_replay *replay, uint32_t process, int device)
{
    const rvli_stages_of_process *stages = &replay->processes[process].stages;
    return stages->marks > 0 && (stages->used_devices >> device & 1) != 0;
}

/*
 * Whether a process marks stages but uses no device. It then marks for devices of processes that do
 * not mark. often: it marks more than once.
 */
static bool marks_for_others(const rvl_replay *replay, uint32_t process, bool often)
{
    const rvli_stages_of_process *stages = &replay->processes[process].stages;
    return stages->marks > (often ? 1 : 0) && stages->used_devices == 0;
}

static bool is_conductor(const rvl_replay *replay, uint32_t process)
{
    const rvli_replay_conductor *conductor = &replay->conductor;
    return replay->processes[process].stages.marks > 0 &&
           (conductor->name != NULL || !conductor->seen || conductor->process_index == process);
}

typedef enum choice {
    ITSELF,     /* processes that use the device, and mark */
    OFTEN,      /* controllers that mark more than once */
    CONTROLLER, /* any controller, such as the machine, which marks one stage for all */
    CONDUCTOR,  /* the named process, or the first that marked */
    WHOLE,      /* no process marked: the whole run is one stage */
} choice;

static bool is_chosen(const rvl_replay *replay, uint32_t process, int device, choice which)
{
    switch (which) {
    case ITSELF:
        return marks_itself(replay, process, device);
    case OFTEN:
        return marks_for_others(replay, process, true);
    case CONTROLLER:
        return marks_for_others(replay, process, false);
    case CONDUCTOR:
        return is_conductor(replay, process);
    case WHOLE:
        break;
    }
    return false;
}

/* Chooses the processes that mark for a device (docs/replay.md has the rule). */
static choice choose(const rvl_replay *replay, int device)
{
    choice which = replay->conductor.name != NULL ? CONDUCTOR : ITSELF;
    for (; which < WHOLE; which++)
        for (uint32_t i = 0; i < replay->process_capacity; i++)
            if (is_chosen(replay, i, device, which))
                return which;
    return WHOLE;
}

/* Whether to list a stage. `start` is listed if memory was in use, `outside` if memory changed. */
static bool is_worth_listing(const rvl_replay *replay, uint32_t index, int device)
{
    const rvli_stage_of_process *stage = &replay->stages.list[index];
    const rvli_stage_part *part = rvli_stage_on(replay, index, device);
    if (!stage->gap)
        return true;
    return part->peak_bytes > part->begin_bytes || part->end_bytes != part->begin_bytes;
}

static bool is_listed(const rvl_replay *replay, uint32_t index, int device, choice which)
{
    const rvli_stage_of_process *stage = &replay->stages.list[index];
    if (index == 0 || stage->count == 0)
        return index == 0 && which == WHOLE && is_worth_listing(replay, index, device);
    return is_chosen(replay, stage->process_index, device, which) &&
           is_worth_listing(replay, index, device);
}

/*
 * Whether names need their process: stages of two processes are listed, or folded ones, or ranges.
 * Names then repeat, or stages overlap.
 */
static bool needs_processes(const rvl_replay *replay, const rvli_replay_device *state)
{
    const rvli_stage_of_process *list = replay->stages.list;
    for (uint32_t i = 1; i < state->stage_count; i++)
        if (list[state->listed[i]].process_index != list[state->listed[0]].process_index ||
            list[state->listed[i]].count > 1)
            return true;
    return replay->ranges && state->stage_count > 0 && state->listed[0] != 0;
}

/*
 * Lists stages in the order in which they began. `start` comes first, although it is only known
 * once it has ended.
 */
static rvl_status list_stages(rvl_replay *replay, int device)
{
    rvli_replay_device *state = &replay->devices[device];
    const rvli_stages *stages = &replay->stages;
    choice which = choose(replay, device);
    state->listed = malloc((stages->count + 1) * sizeof *state->listed);
    if (state->listed == NULL)
        return RVL_ERR_HOST_OOM;
    for (int later = 0; later <= 1; later++)
        for (uint32_t i = 0; i < stages->count; i++)
            if ((stages->list[i].place > 0) == (later > 0) && is_listed(replay, i, device, which))
                state->listed[state->stage_count++] = i;
    state->names_processes = needs_processes(replay, state);
    return RVL_OK;
}

static rvl_status finish_device(rvl_replay *replay, int device)
{
    rvli_replay_device *state = &replay->devices[device];
    state->stats.struct_size = sizeof state->stats;
    rvl_status status = rvl_device_get_stats(replay->context, device, &state->stats);
    if (status == RVL_OK)
        status = list_stages(replay, device);
    if (status == RVL_OK)
        hold_against_budgets(replay, device);
    return status;
}

/* ---- Budgets ---- */

/* Whether any device lists a stage with this mark. */
static bool has_mark(const rvl_replay *replay, const char *mark)
{
    for (int device = 0; device < replay->device_count; device++) {
        const rvli_replay_device *state = &replay->devices[device];
        for (uint32_t i = 0; i < state->stage_count; i++)
            if (strcmp(replay->stages.list[state->listed[i]].mark, mark) == 0)
                return true;
    }
    return false;
}

/* Whether a stage is the first with its mark, over all devices in order. */
static bool is_first_of_mark(const rvl_replay *replay, int device, uint32_t at)
{
    const rvli_stage_of_process *list = replay->stages.list;
    const char *mark = list[replay->devices[device].listed[at]].mark;
    for (int i = 0; i <= device; i++) {
        const rvli_replay_device *state = &replay->devices[i];
        uint32_t end = i < device ? state->stage_count : at;
        for (uint32_t j = 0; j < end; j++)
            if (strcmp(list[state->listed[j]].mark, mark) == 0)
                return false;
    }
    return true;
}

/* Writes "asleep, weights_awake": each mark once, cut off at the end of the room. */
static void list_marks(const rvl_replay *replay, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (int device = 0; device < replay->device_count; device++) {
        const rvli_replay_device *state = &replay->devices[device];
        for (uint32_t i = 0; i < state->stage_count; i++) {
            const char *mark = replay->stages.list[state->listed[i]].mark;
            if (!is_first_of_mark(replay, device, i))
                continue;
            const char *separator = length > 0 ? ", " : "";
            if (length + strlen(separator) + strlen(mark) + sizeof ", ..." > size) {
                snprintf(text + length, size - length, "%s...", separator);
                return;
            }
            length += (size_t)snprintf(text + length, size - length, "%s%s", separator, mark);
        }
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
    for (int device = 0; device < RVL_MAX_DEVICES; device++) {
        free(replay->devices[device].listed);
        free(replay->devices[device].oom_stages);
    }
}

/* ---- Returning the result ---- */

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

/* Returns the index of a stage among those that the device lists; stage_count: it is not listed. */
static uint32_t index_of(const rvli_replay_device *state, uint32_t stage)
{
    uint32_t i = 0;
    while (i < state->stage_count && state->listed[i] != stage)
        i++;
    return i;
}

/*
 * Returns the listed stage in which memory ran out: that of the process, or else the one that began
 * last.
 */
static uint32_t oom_stage(const rvli_replay_device *state)
{
    for (uint32_t i = state->oom_stage_count; i > 0; i--) {
        uint32_t index = index_of(state, state->oom_stages[i - 1]);
        if (index < state->stage_count)
            return index;
    }
    return 0;
}

/*
 * Returns the listed stage with the device's peak. Of several that were open at the peak, it is the
 * one that began last.
 */
static uint32_t peak_stage(const rvl_replay *replay, int device)
{
    const rvli_replay_device *state = &replay->devices[device];
    uint32_t largest = 0, exact = RVLI_NO_STAGE;
    uint64_t most = 0;
    for (uint32_t i = 0; i < state->stage_count; i++) {
        const rvli_stage_part *part = rvli_stage_on(replay, state->listed[i], device);
        if (part->peak_bytes > most) {
            most = part->peak_bytes;
            largest = i;
        }
        if (part->peak_bytes == state->stats.peak_bytes && part->segment == state->stats.peak_stage)
            exact = i;
    }
    return exact != RVLI_NO_STAGE ? exact : largest;
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
    device->oom_stage = oom_stage(state);
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

/* Describes the request that ended a recorded program, if it was for this device. */
static void describe_refusal(const rvl_replay *replay, const rvli_replay_device *state,
                             rvl_replay_device *device)
{
    const rvli_refusal *deadly = &replay->outcome.deadly;
    if (deadly->number == 0 || deadly->device != state->trace_index || replay->outcome.other_device)
        return;
    device->oom_file = replay->paths[deadly->file];
    device->oom_line = deadly->line;
    uint32_t stage = index_of(state, deadly->stage_index);
    device->oom_stage = stage < state->stage_count ? stage : device->peak_stage;
    device->oom_process = deadly->process;
    device->oom_tag = deadly->tag;
    device->oom_requested_bytes = deadly->requested_bytes;
    device->oom_free_bytes = deadly->free_bytes;
}

/* Whether the device is assumed: it is that of a snapshot, and no trace declares it. */
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
        .peak_stage = peak_stage(replay, (int)index),
        .stage_count = state->stage_count,
        .fits = !state->stats.oom.happened && !rvli_outcome_failed(&replay->outcome),
        .within_budgets = state->within_budgets,
        .sample_count = state->sample_count,
        .worst_sample_difference_bytes = state->worst_difference_bytes,
        .flags = is_assumed(replay, state) ? RVL_REPLAY_DEVICE_ASSUMED : 0,
        .capacity_doubt_bytes = state->capacity_doubt_bytes,
    };
    if (device.fits && device.peak_bytes > device.capacity_bytes - device.capacity_doubt_bytes)
        device.flags |= RVL_REPLAY_DEVICE_DOUBTFUL;
    if (state->stats.oom.happened)
        describe_oom(replay, state, &device);
    else
        describe_refusal(replay, state, &device);
    return rvli_result_write(device_out, &device, sizeof device);
}

rvl_status rvli_replay_find_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  uint32_t *stage_out)
{
    if (replay == NULL)
        return rvli_error(RVL_ERR_INVALID, "the replay is NULL");
    if (device_index >= (size_t)replay->device_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no device of this index in the replay");
    if (stage >= replay->devices[device_index].stage_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no stage of this index in the replay");
    *stage_out = replay->devices[device_index].listed[stage];
    return RVL_OK;
}

rvl_status rvl_replay_get_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                rvl_stage_stats *stage_out, bool *over_budget_out)
{
    uint32_t index = 0;
    if (stage_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "stage_out is NULL");
    rvl_status status = rvli_replay_find_stage(replay, device_index, stage, &index);
    if (status != RVL_OK)
        return status;
    const rvl_stage_stats stats = stage_stats(replay, (int)device_index, index);
    status = rvli_result_write(stage_out, &stats, sizeof stats);
    if (status == RVL_OK && over_budget_out != NULL)
        *over_budget_out = over_budget(replay, &stats);
    return status;
}

rvl_status rvl_replay_get_mark(const rvl_replay *replay, size_t device_index, uint32_t stage,
                               rvl_replay_mark *mark_out)
{
    uint32_t index = 0;
    if (mark_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "mark_out is NULL");
    rvl_status status = rvli_replay_find_stage(replay, device_index, stage, &index);
    if (status != RVL_OK)
        return status;
    const rvli_stage_of_process *found = &replay->stages.list[index];
    const rvl_replay_mark mark = {
        .struct_size = sizeof mark,
        .process = index > 0 ? replay->processes[found->process_index].name : NULL,
        .rank = index > 0 ? replay->processes[found->process_index].rank : RVL_NO_RANK,
        .place = found->place,
        .number = rvli_stage_on(replay, index, (int)device_index)->number,
        .count = found->count,
        .begin_ns = found->begin_ns,
        .end_ns = found->end_ns,
        .flags = replay->devices[device_index].names_processes ? RVL_REPLAY_MARK_OF_PROCESS : 0,
    };
    return rvli_result_write(mark_out, &mark, sizeof mark);
}

/* ---- Holders ---- */

rvl_status rvl_replay_get_holders(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  rvl_holder *holders_out, size_t holder_size, size_t capacity,
                                  size_t *count_out)
{
    uint32_t index = 0;
    rvl_status status = rvli_replay_find_stage(replay, device_index, stage, &index);
    if (status == RVL_OK)
        status = rvl_stage_get_holders(
            replay->context, rvli_stage_on(replay, index, (int)device_index)->segment,
            (int)device_index, holders_out, holder_size, capacity, count_out);
    for (size_t i = 0; status == RVL_OK && i < capacity && i < *count_out; i++) {
        rvl_holder *holder = (rvl_holder *)(void *)((char *)holders_out + i * holder_size);
        if (holder->process == NULL)
            holder->process = EXTERNAL;
    }
    return status;
}
