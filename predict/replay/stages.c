/* SPDX-License-Identifier: MIT */
#include "predict/replay/stages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "core/prefetch.h"
#include "predict/replay/replay_internal.h"

#define WHOLE_RUN 0u

static rvl_status no_memory(rvl_replay *replay, const rvl_trace_event *event)
{
    return rvli_replay_refuse(replay, event, 0, RVL_ERR_HOST_OOM, "no host memory for a stage");
}

/* Room for one more item of a list. false: no memory, and the list is unchanged. */
#define HAS_ROOM(list, count, capacity) RVLI_ROOM(list, count, capacity, 16)

/* ---- Folding ---- */

static bool is_above(uint64_t bytes, uint64_t part_bytes, const rvli_stage_part *part)
{
    return part->segment == RVLI_NO_STAGE || bytes > part->peak_bytes ||
           (bytes == part->peak_bytes && part_bytes > part->part_bytes);
}

/* Adds what a real device reported during the segment. */
static void add_measured(const rvl_replay *replay, int device, rvli_stage_part *part)
{
    const rvli_replay_measured *measured = &replay->measured[device];
    if (measured->free_before == 0)
        return;
    if (!part->measured || measured->peak_bytes > part->measured_peak_bytes)
        part->measured_peak_bytes = measured->peak_bytes;
    part->measured_end_bytes = measured->used_bytes;
    part->measured = true;
}

/*
 * Adds a segment to a stage. Returns whether the stage needs the segment for the holders of its
 * peak.
 */
static bool add_segment(const rvl_replay *replay, uint32_t index, int device, uint32_t segment,
                        const rvl_private_segment *now)
{
    uint32_t into = replay->stages.list[index].folds_into;
    rvli_stage_part *part = rvli_stage_on(replay, index, device);
    bool above = is_above(now->peak_bytes, now->part_bytes, part);
    if (above) {
        part->peak_bytes = now->peak_bytes;
        part->part_bytes = now->part_bytes;
        part->segment = segment;
    }
    if (now->host_bytes > part->host_bytes)
        part->host_bytes = now->host_bytes;
    part->end_bytes = now->end_bytes;
    part->transition_ns += now->transition_ns;
    add_measured(replay, device, part);
    return above && (into == RVLI_NO_STAGE || is_above(now->peak_bytes, now->part_bytes,
                                                       rvli_stage_on(replay, into, device)));
}

/* Adds the current segment to all open stages. *needed_out: at least one of them needs it. */
static rvl_status give_out(rvl_replay *replay, bool *needed_out)
{
    const rvli_stages *stages = &replay->stages;
    uint32_t segment = rvl_stage_count(replay->context) - 1;
    *needed_out = false;
    for (int device = 0; device < replay->device_count; device++) {
        rvl_private_segment now;
        rvl_status status = rvl_private_segment_now(replay->context, device, &now);
        if (status != RVL_OK)
            return status;
        for (uint32_t i = 0; i < stages->open_count; i++)
            *needed_out |= add_segment(replay, stages->open[i], device, segment, &now);
    }
    return RVL_OK;
}

/* Ends the current segment, since a stage begins or ends here. */
static rvl_status cut(rvl_replay *replay, const rvl_trace_event *event)
{
    bool needed;
    rvl_status status = give_out(replay, &needed);
    if (status == RVL_OK)
        status = rvl_private_segment_next(replay->context, !needed);
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, event, 0, status, status, NULL);
    for (int device = 0; device < replay->device_count; device++)
        replay->measured[device].peak_bytes = replay->measured[device].used_bytes;
    replay->stages.closed_count = 0;
    replay->stages.now_ns = event->time_ns;
    replay->moved = false;
    return RVL_OK;
}

/* Keeps the larger of two stages on a device. */
static void keep_larger(rvli_stage_part *kept, const rvli_stage_part *part)
{
    uint64_t host_bytes = part->host_bytes > kept->host_bytes ? part->host_bytes : kept->host_bytes;
    uint64_t transition_ns = kept->transition_ns + part->transition_ns;
    if (is_above(part->peak_bytes, part->part_bytes, kept))
        *kept = *part;
    kept->host_bytes = host_bytes;
    kept->transition_ns = transition_ns;
}

static void fold(rvl_replay *replay, uint32_t index)
{
    rvli_stages *stages = &replay->stages;
    rvli_stage_of_process *stage = &stages->list[index];
    rvli_stage_of_process *into = &stages->list[stage->folds_into];
    for (int device = 0; device < replay->device_count; device++)
        keep_larger(rvli_stage_on(replay, stage->folds_into, device),
                    rvli_stage_on(replay, index, device));
    into->count++;
    into->end_ns = stages->now_ns;
    stage->count = 0;
    stages->free[stages->free_count++] = index; /* room was made when it was opened */
}

/* ---- Opening and closing ---- */

/* Takes a place in the list, and makes the room that closing the stage needs. */
static bool add_place(rvl_replay *replay, uint32_t *index_out)
{
    rvli_stages *stages = &replay->stages;
    size_t devices = (size_t)replay->device_count;
    if (!HAS_ROOM(stages->open, stages->open_count, stages->open_capacity) ||
        !HAS_ROOM(stages->closed, stages->open_count, stages->closed_capacity))
        return false;
    if (stages->free_count > 0) {
        *index_out = stages->free[--stages->free_count];
        return true;
    }
    if (stages->count == stages->capacity) {
        uint32_t capacity = stages->capacity > 0 ? stages->capacity * 2 : 16;
        rvli_stage_part *parts = realloc(stages->parts, capacity * devices * sizeof *stages->parts);
        if (parts != NULL)
            stages->parts = parts;
        rvli_stage_of_process *list =
            parts != NULL ? realloc(stages->list, capacity * sizeof *stages->list) : NULL;
        if (list == NULL)
            return false;
        stages->list = list;
        stages->capacity = capacity;
    }
    *index_out = stages->count++;
    return true;
}

/* Finds the name among those of the process, or adds it. NULL: no memory. */
static rvli_stage_mark *mark_of(rvli_stages_of_process *process, const char *name)
{
    rvli_stage_mark *mark = NULL;
    size_t length = strlen(name);
    HASH_FIND(hh, process->names, name, length, mark);
    if (mark != NULL)
        return mark;
    mark = calloc(1, sizeof *mark);
    if (mark == NULL)
        return NULL;
    mark->name = name;
    mark->folded = RVLI_NO_STAGE;
    HASH_ADD_KEYPTR(hh, process->names, mark->name, length, mark);
    if (mark->hh.tbl == NULL) { /* uthash found no memory and took it out again */
        free(mark);
        return NULL;
    }
    return mark;
}

static void put_in(rvl_replay *replay, uint32_t index, const rvli_stage_of_process *stage)
{
    rvli_stages *stages = &replay->stages;
    stages->list[index] = *stage;
    for (int device = 0; device < replay->device_count; device++) {
        uint64_t begin_bytes =
            stages->open_count > 0 ? rvli_stage_on(replay, WHOLE_RUN, device)->end_bytes : 0;
        *rvli_stage_on(replay, index, device) = (rvli_stage_part){.begin_bytes = begin_bytes,
                                                                  .segment = RVLI_NO_STAGE,
                                                                  .number = stage->number,
                                                                  .said = stage->said};
    }
}

/*
 * Makes the stage into which further stages of a name are folded, with the first of them. false: no
 * memory.
 */
static bool folded_under(rvl_replay *replay, rvli_stage_mark *mark,
                         const rvli_stage_of_process *first)
{
    rvli_stages *stages = &replay->stages;
    uint32_t index;
    if (mark->folded != RVLI_NO_STAGE)
        return true;
    if (!HAS_ROOM(stages->free, stages->open_count + stages->free_count + 1,
                  stages->free_capacity) ||
        !add_place(replay, &index))
        return false;
    rvli_stage_of_process folded = *first;
    folded.count = 0;
    put_in(replay, index, &folded);
    mark->folded = index;
    stages->names++;
    return true;
}

/* Whether to keep a stage by itself. */
static bool is_kept(const rvl_replay *replay, const rvli_stages_of_process *process)
{
    return process->kept < RVLI_STAGES_OF_PROCESS &&
           (uint64_t)replay->stages.kept * (uint64_t)replay->device_count < RVLI_STAGES_KEPT;
}

/* Whether folded stages of a name have, or get, a place of their own. */
static bool has_place(const rvl_replay *replay, const rvli_stages_of_process *process,
                      const char *name)
{
    rvli_stage_mark *known = NULL;
    if (replay->stages.names < RVLI_STAGES_NAMES)
        return true;
    HASH_FIND(hh, process->names, name, strlen(name), known);
    if (known != NULL && known->folded != RVLI_NO_STAGE)
        return true;
    for (size_t i = 0; i < replay->budget_count; i++)
        if (strcmp(replay->budgets[i].stage, name) == 0)
            return true;
    return false;
}

/* Begins a stage of a process. */
static rvl_status open_stage(rvl_replay *replay, const rvl_trace_event *event, const char *name,
                             bool gap, uint32_t *index_out)
{
    rvli_stages *stages = &replay->stages;
    rvli_stages_of_process *process = &replay->processes[event->process_index].stages;
    bool kept = is_kept(replay, process), placed = kept || has_place(replay, process, name);
    rvli_stage_mark *mark = mark_of(process, placed ? name : RVLI_STAGE_OTHERS);
    if (mark == NULL)
        return no_memory(replay, event);
    rvli_stage_of_process stage = {
        .mark = mark->name,
        .said = placed ? NULL : name,
        .process_index = event->process_index,
        .place = stages->begun + 1,
        .number = mark->count + 1,
        .count = 1,
        .step = (uint32_t)replay->step,
        .folds_into = RVLI_NO_STAGE,
        .begin_ns = event->time_ns,
        .end_ns = event->time_ns,
        .gap = gap,
    };
    if (!kept && !folded_under(replay, mark, &stage))
        return no_memory(replay, event);
    if (!HAS_ROOM(stages->free, stages->open_count + stages->free_count + 1,
                  stages->free_capacity) ||
        !add_place(replay, index_out))
        return no_memory(replay, event);
    stage.folds_into = kept ? RVLI_NO_STAGE : mark->folded;
    put_in(replay, *index_out, &stage);
    stages->open[stages->open_count++] = *index_out;
    stages->kept += kept;
    process->kept += kept;
    stages->begun++;
    mark->count++;
    if (!gap)
        rvl_private_segment_tell(replay->context, stage.mark);
    return rvli_replay_note_stage(replay, event, &stage);
}

/* Ends an open stage, with the segment before the cut. */
static void close_stage(rvl_replay *replay, uint32_t index)
{
    rvli_stages *stages = &replay->stages;
    uint32_t at = 0;
    while (stages->open[at] != index)
        at++;
    memmove(stages->open + at, stages->open + at + 1,
            (stages->open_count - at - 1) * sizeof *stages->open);
    stages->open_count--;
    stages->list[index].end_ns = stages->now_ns;
    if (stages->list[index].folds_into != RVLI_NO_STAGE)
        fold(replay, index);
    else
        stages->closed[stages->closed_count++] = index;
}

/*
 * Makes the stage `start`, which ends at the first mark of a process: a copy of the whole run until
 * then.
 */
static rvl_status end_start(rvl_replay *replay, const rvl_trace_event *event)
{
    rvli_stages *stages = &replay->stages;
    uint32_t index;
    if (!add_place(replay, &index))
        return no_memory(replay, event);
    stages->list[index] = (rvli_stage_of_process){
        .mark = RVLI_STAGE_START,
        .process_index = event->process_index,
        .number = 1,
        .count = 1,
        .folds_into = RVLI_NO_STAGE,
        .end_ns = event->time_ns,
        .gap = true,
    };
    for (int device = 0; device < replay->device_count; device++) {
        *rvli_stage_on(replay, index, device) = *rvli_stage_on(replay, WHOLE_RUN, device);
        rvli_stage_on(replay, index, device)->number = 1;
    }
    stages->kept++;
    stages->closed[stages->closed_count++] = index;
    return RVL_OK;
}

/* ---- Marks ---- */

/* Cuts time at a mark of a process. Before its first mark, ends its `start`. */
static rvl_status begin_mark(rvl_replay *replay, const rvl_trace_event *event,
                             rvli_stages_of_process **process_out)
{
    rvli_stages_of_process *process = &replay->processes[event->process_index].stages;
    rvl_status status = cut(replay, event);
    if (status == RVL_OK && process->marks == 0)
        status = end_start(replay, event);
    process->marks++;
    *process_out = process;
    return status;
}

static void end_one(rvl_replay *replay, uint32_t *stage_plus_1)
{
    if (*stage_plus_1 > 0)
        close_stage(replay, *stage_plus_1 - 1);
    *stage_plus_1 = 0;
}

rvl_status rvli_replay_stages_flat(rvl_replay *replay, const rvl_trace_event *event)
{
    rvli_stages_of_process *process;
    uint32_t index;
    rvl_status status = begin_mark(replay, event, &process);
    if (status != RVL_OK)
        return status;
    end_one(replay, &process->flat);
    end_one(replay, &process->outside);
    status = open_stage(replay, event, event->name, false, &index);
    if (status == RVL_OK)
        process->flat = index + 1;
    return status;
}

static rvli_stage_range *find_range(const rvli_stages_of_process *process, uint64_t id)
{
    for (uint32_t i = process->range_count; i > 0; i--)
        if (process->ranges[i - 1].id == id)
            return &process->ranges[i - 1];
    return NULL;
}

rvl_status rvli_replay_stages_enter(rvl_replay *replay, const rvl_trace_event *event)
{
    rvli_stages_of_process *process = &replay->processes[event->process_index].stages;
    uint32_t index;
    if (find_range(process, event->id) != NULL)
        return rvli_replay_refuse(replay, event, RVLI_FIELD_ID, RVL_ERR_CORRUPT_TRACE,
                                  "range %" PRIu64 " of process %s is open already", event->id,
                                  event->process);
    if (process->range_count == RVLI_STAGES_OPEN)
        return rvli_replay_refuse(replay, event, RVLI_FIELD_ID, RVL_ERR_CORRUPT_TRACE,
                                  "more than %u ranges of process %s are open at a time",
                                  RVLI_STAGES_OPEN, event->process);
    if (!HAS_ROOM(process->ranges, process->range_count, process->range_capacity))
        return no_memory(replay, event);
    rvl_status status = begin_mark(replay, event, &process);
    if (status != RVL_OK)
        return status;
    end_one(replay, &process->outside);
    status = open_stage(replay, event, event->name, false, &index);
    if (status == RVL_OK)
        process->ranges[process->range_count++] = (rvli_stage_range){event->id, index};
    return status;
}

/* Ends all stages of a process that ended, or marks no more. */
static void end_all(rvl_replay *replay, rvli_stages_of_process *process)
{
    while (process->range_count > 0)
        close_stage(replay, process->ranges[--process->range_count].stage);
    end_one(replay, &process->flat);
    end_one(replay, &process->outside);
}

rvl_status rvli_replay_stages_leave(rvl_replay *replay, const rvl_trace_event *event)
{
    rvli_stages_of_process *process = &replay->processes[event->process_index].stages;
    const rvli_stage_range *found = find_range(process, event->id);
    uint32_t index;
    if (event->id != 0 && found == NULL)
        return rvli_replay_refuse(replay, event, RVLI_FIELD_ID, RVL_ERR_CORRUPT_TRACE,
                                  "no range %" PRIu64 " of process %s is open", event->id,
                                  event->process);
    rvl_status status = begin_mark(replay, event, &process);
    if (status != RVL_OK)
        return status;
    if (event->id == 0) {
        end_all(replay, process);
        return RVL_OK;
    }
    uint32_t at = (uint32_t)(found - process->ranges);
    close_stage(replay, found->stage);
    memmove(process->ranges + at, process->ranges + at + 1,
            (process->range_count - at - 1) * sizeof *process->ranges);
    process->range_count--;
    if (process->range_count > 0 || process->flat > 0)
        return RVL_OK;
    status = open_stage(replay, event, RVLI_STAGE_OUTSIDE, true, &index);
    if (status == RVL_OK)
        process->outside = index + 1;
    return status;
}

uint32_t rvli_replay_stages_current(const rvl_replay *replay, uint32_t process_index)
{
    const rvli_stages *stages = &replay->stages;
    for (uint32_t i = stages->open_count; i > 0; i--)
        if (stages->open[i - 1] != WHOLE_RUN &&
            stages->list[stages->open[i - 1]].process_index == process_index)
            return stages->open[i - 1];
    return WHOLE_RUN;
}

/* ---- Samples ---- */

static void note_read(rvli_stage_part *part, uint64_t read_bytes, uint64_t predicted_bytes)
{
    part->read = true;
    part->read_bytes = read_bytes;
    part->predicted_bytes = predicted_bytes;
}

/*
 * A sample right after a mark, before memory has changed, is also the end of the stage before the
 * mark.
 */
void rvli_replay_stages_read(rvl_replay *replay, int device, uint64_t read_bytes,
                             uint64_t predicted_bytes)
{
    const rvli_stages *stages = &replay->stages;
    for (uint32_t i = 0; i < stages->open_count; i++)
        note_read(rvli_stage_on(replay, stages->open[i], device), read_bytes, predicted_bytes);
    for (uint32_t i = 0; !replay->moved && i < stages->closed_count; i++)
        note_read(rvli_stage_on(replay, stages->closed[i], device), read_bytes, predicted_bytes);
}

/* ---- The whole run ---- */

rvl_status rvli_replay_stages_begin(rvl_replay *replay)
{
    rvli_stages *stages = &replay->stages;
    const rvli_stage_of_process run = {.mark = RVLI_STAGE_START,
                                       .number = 1,
                                       .count = 1,
                                       .folds_into = RVLI_NO_STAGE,
                                       .gap = true};
    uint32_t index;
    if (!add_place(replay, &index))
        return no_memory(replay, NULL);
    put_in(replay, index, &run);
    stages->open[stages->open_count++] = index;
    return RVL_OK;
}

/*
 * Makes a name such as "forward#3" or "other stages: step-7". For a folded stage, it is that of the
 * largest on any device.
 */
static bool make_name(const rvl_replay *replay, uint32_t index)
{
    rvli_stage_of_process *stage = &replay->stages.list[index];
    const rvli_stage_part *largest = rvli_stage_on(replay, index, 0);
    for (int device = 1; device < replay->device_count; device++) {
        const rvli_stage_part *part = rvli_stage_on(replay, index, device);
        if (part->peak_bytes > largest->peak_bytes)
            largest = part;
    }
    stage->number = largest->number;
    if (largest->said != NULL)
        return asprintf(&stage->name, "%s: %s", stage->mark, largest->said) >= 0;
    return stage->number <= 1 || asprintf(&stage->name, "%s#%u", stage->mark, stage->number) >= 0;
}

rvl_status rvli_replay_stages_end(rvl_replay *replay)
{
    rvli_stages *stages = &replay->stages;
    bool needed;
    rvl_status status = give_out(replay, &needed);
    stages->now_ns = replay->last_ns;
    for (uint32_t i = 0; i < stages->open_count; i++)
        stages->list[stages->open[i]].end_ns = replay->last_ns;
    for (uint32_t i = 0; i < stages->open_count; i++)
        if (stages->list[stages->open[i]].folds_into != RVLI_NO_STAGE)
            fold(replay, stages->open[i]);
    stages->open_count = 0;
    for (uint32_t i = 0; status == RVL_OK && i < stages->count; i++)
        if (stages->list[i].count > 0 && !make_name(replay, i))
            status = no_memory(replay, NULL);
    return status;
}

void rvli_replay_stages_forget_process(rvli_stages_of_process *process)
{
    rvli_stage_mark *mark, *next;
    HASH_ITER (hh, process->names, mark, next) {
        HASH_DEL(process->names, mark);
        free(mark);
    }
    free(process->ranges);
    process->ranges = NULL;
}

void rvli_replay_stages_destroy(rvl_replay *replay)
{
    rvli_stages *stages = &replay->stages;
    for (uint32_t i = 0; i < stages->count; i++)
        free(stages->list[i].name);
    free(stages->list);
    free(stages->parts);
    free(stages->open);
    free(stages->free);
    free(stages->closed);
}
