/* SPDX-License-Identifier: MIT */
/*
 * Applies each event by one call.
 *
 * This file also finds faults that only a replay can see, such as a free of an allocation that is
 * not live. Columns in messages are those of the field at fault, counted in words as
 * docs/trace-format.md lists them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "predict/replay/asleep.h"

#define FIRST_SAMPLE "first_sample" /* bytes in use on a device that no event explains */

/* Words of a line, counted as for RVLI_FIELD_ID. */
#define FIELD_PROCESS 3u
#define FIELD_ID RVLI_FIELD_ID
#define FIELD_TAG 5u
#define FIELD_NAME 5u
#define FIELD_DEVICE 5u
#define FIELD_BYTES 6u
#define FIELD_ALLOC_DEVICE 6u
#define FIELD_ALLOC_BYTES 7u
#define FIELD_ALLOC_TAG 8u
#define FIELD_PART_TAG 7u
#define FIELD_ALLOC_OPTION 9u

static const char *name_of(const char *tag)
{
    return tag != NULL ? tag : "-";
}

/* Passes on the core's error, with its own message. */
static rvl_status refuse_as_core(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                                 rvl_status status)
{
    return rvli_replay_pass_on(replay, event, field, status, status, NULL);
}

/* Passes on the core's error. If a value is invalid, the trace is at fault. */
static rvl_status refuse_value(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                               rvl_status status)
{
    rvl_status fault = status == RVL_ERR_INVALID ? RVL_ERR_CORRUPT_TRACE : status;
    return rvli_replay_pass_on(replay, event, field, status, fault, NULL);
}

static rvl_status no_memory(rvl_replay *replay, const rvl_trace_event *event)
{
    return rvli_replay_refuse(replay, event, 0, RVL_ERR_HOST_OOM, "no host memory for the replay");
}

/* ---- Numbers of the trace to numbers of the context ---- */

static bool grow_processes(rvl_replay *replay, uint32_t index)
{
    uint32_t capacity = replay->process_capacity ? replay->process_capacity : 8;
    while (capacity <= index)
        capacity *= 2;
    if (capacity == replay->process_capacity)
        return true;
    rvli_replay_process *processes = realloc(replay->processes, capacity * sizeof *processes);
    if (processes == NULL)
        return false;
    memset(processes + replay->process_capacity, 0,
           (capacity - replay->process_capacity) * sizeof *processes);
    replay->processes = processes;
    replay->process_capacity = capacity;
    return true;
}

/*
 * Returns the rank in the name of a job's process: "python[rank 3]", or "python[rank 3]#2" if it
 * was started again.
 */
static uint32_t rank_of(const char *process)
{
    static const char before[] = "[rank ";
    const char *at = strstr(process, before);
    char *end = NULL;
    if (at == NULL || at[strlen(before)] < '0' || at[strlen(before)] > '9')
        return RVL_NO_RANK;
    unsigned long rank = strtoul(at + strlen(before), &end, 10);
    bool is_end = end[0] == ']' && (end[1] == '\0' || end[1] == '#');
    return is_end && rank < RVL_NO_RANK ? (uint32_t)rank : RVL_NO_RANK;
}

static rvl_status define_process(rvl_replay *replay, const rvl_trace_event *event)
{
    if (!grow_processes(replay, event->process_index))
        return no_memory(replay, event);
    rvli_replay_process *process = &replay->processes[event->process_index];
    rvl_status status = rvl_process_define(replay->context, event->process, &process->number);
    if (status != RVL_OK)
        return refuse_value(replay, event, FIELD_PROCESS, status);
    process->name = event->process;
    process->rank = rank_of(event->process);
    rvli_replay_conductor *conductor = &replay->conductor;
    if (conductor->name != NULL && strcmp(conductor->name, event->process) == 0)
        conductor->seen = true;
    return RVL_OK;
}

static rvl_status process_of(rvl_replay *replay, const rvl_trace_event *event,
                             rvli_replay_process **process_out)
{
    uint32_t index = event->process_index;
    if (index >= replay->process_capacity || replay->processes[index].name == NULL) {
        rvl_status status = define_process(replay, event);
        if (status != RVL_OK)
            return status;
    }
    *process_out = &replay->processes[index];
    return RVL_OK;
}

/* Never 0, which is not a valid key. */
static uint64_t tag_key(uint32_t process_index, uint32_t slot)
{
    return ((uint64_t)process_index + 1) << 32 | slot;
}

static rvl_status define_tag(rvl_replay *replay, const rvl_trace_event *event,
                             const rvli_replay_process *process, uint64_t key, rvl_tag *tag_out)
{
    rvl_tag_options options = {.struct_size = sizeof options, .process = process->number};
    rvl_status status =
        rvl_tag_define(replay->context, event->tag ? event->tag : "", &options, tag_out);
    if (status != RVL_OK)
        return refuse_value(replay, event,
                            event->kind == RVL_EVENT_PART ? FIELD_PART_TAG : FIELD_ALLOC_TAG,
                            status);
    status = rvli_intmap_insert(&replay->tags, key, *tag_out);
    return status == RVL_OK ? RVL_OK : no_memory(replay, event);
}

/* Finds the tag of an allocation, and defines it when it first appears. */
static rvl_status tag_of(rvl_replay *replay, const rvl_trace_event *event,
                         const rvli_replay_process *process, rvl_tag *tag_out)
{
    uint64_t key = tag_key(event->process_index, rvli_replay_tag_slot(event)), tag;
    if (key == replay->last_tag_key) {
        *tag_out = replay->last_tag;
        return RVL_OK;
    }
    if (!rvli_intmap_get(&replay->tags, key, &tag))
        return define_tag(replay, event, process, key, tag_out);
    *tag_out = (rvl_tag)tag;
    replay->last_tag_key = key;
    replay->last_tag = *tag_out;
    return RVL_OK;
}

/* Returns the tag in a slot; 0: nothing was allocated under it yet. */
static rvl_tag tag_in_slot(const rvl_replay *replay, uint32_t process_index, uint32_t slot)
{
    uint64_t tag = 0;
    rvli_intmap_get(&replay->tags, tag_key(process_index, slot), &tag);
    return (rvl_tag)tag;
}

/* Finds the tag of a pause or resume. An allocation under it must have come first. */
static rvl_status known_tag_of(rvl_replay *replay, const rvl_trace_event *event, rvl_tag *tag_out)
{
    *tag_out = tag_in_slot(replay, event->process_index, rvli_replay_tag_slot(event));
    if (*tag_out != 0)
        return RVL_OK;
    return rvli_replay_refuse(replay, event, FIELD_TAG, RVL_ERR_CORRUPT_TRACE,
                              "unknown tag %s: process %s has allocated nothing under it",
                              name_of(event->tag), event->process);
}

static rvl_status device_of(rvl_replay *replay, const rvl_trace_event *event, uint32_t index,
                            uint32_t field, int *device_out)
{
    *device_out = index < RVL_MAX_DEVICES ? replay->device_of_index[index] : -1;
    if (*device_out >= 0)
        return RVL_OK;
    return rvli_replay_refuse(replay, event, field, RVL_ERR_CORRUPT_TRACE,
                              "no device %" PRIu32 ": the header does not declare it", index);
}

/* ---- The first instant that does not fit ---- */

/*
 * Notes the open stages, since the stages that the device lists are only known at the end. Without
 * memory for this, the first listed stage is named.
 */
static void note_open_stages(const rvl_replay *replay, const rvl_trace_event *event,
                             rvli_replay_device *state)
{
    const rvli_stages *stages = &replay->stages;
    state->oom_stages = malloc((stages->open_count + 1) * sizeof *state->oom_stages);
    if (state->oom_stages == NULL)
        return;
    memcpy(state->oom_stages, stages->open, stages->open_count * sizeof *stages->open);
    state->oom_stages[stages->open_count] =
        rvli_replay_stages_current(replay, event->process_index);
    state->oom_stage_count = stages->open_count + 1;
}

static void note_overcommit(rvl_replay *replay, const rvl_trace_event *event, int device)
{
    rvli_replay_device *state = &replay->devices[device];
    if (state->overcommitted || !rvl_device_overcommitted(replay->context, device))
        return;
    state->overcommitted = true;
    state->oom_file = replay->paths[event->file];
    state->oom_line = event->line;
    note_open_stages(replay, event, state);
}

static void note_overcommits(rvl_replay *replay, const rvl_trace_event *event)
{
    for (int device = 0; device < replay->device_count; device++)
        note_overcommit(replay, event, device);
}

/* ---- Allocations ---- */

static rvl_status access_of(rvl_replay *replay, const rvl_trace_event *event,
                            int access[RVL_MAX_DEVICES], size_t *count_out)
{
    uint32_t field = FIELD_ALLOC_OPTION + (event->backup != RVL_BACKUP_NONE);
    *count_out = 0;
    for (uint64_t mask = event->access_mask; mask != 0; mask &= mask - 1) {
        uint32_t index = (uint32_t)__builtin_ctzll(mask);
        rvl_status status = device_of(replay, event, index, field, &access[*count_out]);
        if (status != RVL_OK)
            return status;
        ++*count_out;
    }
    return RVL_OK;
}

static rvl_status refuse_alloc(rvl_replay *replay, const rvl_trace_event *event, rvl_status status)
{
    if (status == RVL_ERR_NOT_SUPPORTED)
        return refuse_as_core(replay, event, FIELD_ALLOC_OPTION, status);
    return refuse_value(replay, event, FIELD_ALLOC_BYTES, status);
}

static rvl_status check_id_rises(rvl_replay *replay, const rvl_trace_event *event,
                                 const rvli_replay_process *process)
{
    if (!process->any_id || event->id > process->last_id)
        return RVL_OK;
    /* The reader ensures this within one file, but a process may have several. */
    return rvli_replay_refuse(replay, event, FIELD_ID, RVL_ERR_CORRUPT_TRACE,
                              "id %" PRIu64 " after %" PRIu64 ": ids of process %s must rise",
                              event->id, process->last_id, event->process);
}

static rvl_status apply_alloc(rvl_replay *replay, const rvl_trace_event *event,
                              rvli_replay_process *process)
{
    int access[RVL_MAX_DEVICES];
    rvl_alloc_options options = {
        .struct_size = sizeof options,
        .process = process->number,
        .backup = event->backup,
        .flags = event->flags,
        .access = access,
    };
    rvl_status status = check_id_rises(replay, event, process);
    if (status == RVL_OK)
        status = device_of(replay, event, event->device, FIELD_ALLOC_DEVICE, &options.device);
    if (status == RVL_OK)
        status = access_of(replay, event, access, &options.access_count);
    if (status == RVL_OK)
        status = tag_of(replay, event, process, &options.tag_id);
    if (status != RVL_OK)
        return status;
    if (rvli_intmap_reserve(&process->addrs) != RVL_OK)
        return no_memory(replay, event);

    rvl_addr addr;
    status = rvl_alloc(replay->context, event->bytes, &options, &addr);
    if (status != RVL_OK)
        return refuse_alloc(replay, event, status);
    (void)rvli_intmap_insert(&process->addrs, event->id, addr); /* room is reserved, and ids rise */
    process->any_id = true;
    process->last_id = event->id;
    process->stages.used_devices |= UINT64_C(1) << options.device;
    note_overcommit(replay, event, options.device);
    return rvli_replay_note_alloc(replay, event, options.tag_id, options.device);
}

static rvl_status apply_free(rvl_replay *replay, const rvl_trace_event *event,
                             rvli_replay_process *process)
{
    rvl_addr addr;
    if (!rvli_intmap_remove(&process->addrs, event->id, &addr)) {
        bool past = process->any_id && event->id <= process->last_id;
        return rvli_replay_refuse(
            replay, event, FIELD_ID, RVL_ERR_CORRUPT_TRACE,
            past ? "double free: allocation %" PRIu64 " of process %s is not live any more"
                 : "free of an unknown id: no allocation %" PRIu64 " of process %s so far",
            event->id, event->process);
    }
    rvl_allocation freed;
    rvl_status status = rvli_replay_parts_end(replay, event, process);
    if (status != RVL_OK)
        return status;
    rvli_replay_before_free(replay, addr, &freed);
    status = rvl_free(replay->context, addr);
    if (status != RVL_OK)
        return refuse_as_core(replay, event, FIELD_ID, status);
    return rvli_replay_note_free(replay, event, &freed);
}

static rvl_status apply_part(rvl_replay *replay, const rvl_trace_event *event,
                             rvli_replay_process *process)
{
    rvl_tag tag;
    rvl_status status = tag_of(replay, event, process, &tag);
    return status == RVL_OK ? rvli_replay_part(replay, event, process, tag) : status;
}

/* ---- Transitions ---- */

static rvl_status apply_pause(rvl_replay *replay, const rvl_trace_event *event)
{
    rvl_tag tag;
    rvl_status status = known_tag_of(replay, event, &tag);
    if (status == RVL_OK)
        status = rvli_replay_parts_check_pause(replay, event, tag);
    if (status != RVL_OK)
        return status;
    rvl_pause_options options = {.struct_size = sizeof options,
                                 .flags = event->skip_content ? RVL_PAUSE_DISCARD : 0};
    status = rvl_pause(replay->context, &tag, 1, &options);
    if (status != RVL_OK)
        return refuse_as_core(replay, event, FIELD_TAG, status);
    return rvli_replay_note_tags(replay, event, &tag, 1);
}

rvl_status rvli_replay_resume(rvl_replay *replay, const rvl_trace_event *event, const rvl_tag *tags,
                              size_t count, bool no_restore)
{
    if (count == 0)
        return RVL_OK;
    rvl_resume_options options = {.struct_size = sizeof options,
                                  .flags = no_restore ? RVL_RESUME_NO_RESTORE : 0};
    rvli_replay_measure_settle(replay);
    rvl_status status = rvl_resume(replay->context, tags, count, &options);
    if (status != RVL_OK)
        return refuse_as_core(replay, event, FIELD_TAG, status);
    note_overcommits(replay, event);
    return rvli_replay_note_tags(replay, event, tags, count);
}

/* Picks the step's tags that exist by now and are to be resumed in the given way. */
static size_t pick_tags(const rvl_replay *replay, const rvli_replay_pair *pairs, size_t count,
                        bool no_restore, rvl_tag *tags)
{
    size_t picked = 0;
    for (size_t i = 0; i < count; i++) {
        rvl_tag tag = tag_in_slot(replay, pairs[i].process_index, pairs[i].tag_slot);
        if (tag != 0 && pairs[i].no_restore == no_restore)
            tags[picked++] = tag;
    }
    return picked;
}

/* Wake together, at the first resume of a step: resumes all tags of the step. */
static rvl_status wake_step(rvl_replay *replay, const rvl_trace_event *event)
{
    size_t count;
    const rvli_replay_pair *pairs =
        rvli_replay_together_step(&replay->together, replay->step, &count);
    rvl_tag *tags = malloc((count + 1) * sizeof *tags);
    if (tags == NULL)
        return no_memory(replay, event);
    rvl_status status = RVL_OK;
    for (int no_restore = 0; no_restore <= 1 && status == RVL_OK; no_restore++) {
        size_t picked = pick_tags(replay, pairs, count, no_restore != 0, tags);
        status = rvli_replay_resume(replay, event, tags, picked, no_restore != 0);
    }
    free(tags);
    replay->woken = true;
    return status;
}

static rvl_status apply_resume(rvl_replay *replay, const rvl_trace_event *event)
{
    rvl_tag tag;
    rvl_status status = known_tag_of(replay, event, &tag);
    if (status == RVL_OK && replay->options.wake == RVL_WAKE_TOGETHER && !replay->woken)
        return wake_step(replay, event);
    /* Later resumes change nothing, unless the tag was paused or allocated again in between. */
    return status == RVL_OK ? rvli_replay_resume(replay, event, &tag, 1, event->skip_content)
                            : status;
}

/* ---- Marks, external bytes, samples ---- */

/*
 * Whether a mark counts. Without a named conductor, marks of every process do. The first process
 * that marks becomes the conductor.
 */
static bool counts(rvl_replay *replay, const rvl_trace_event *event)
{
    return rvli_replay_conducts(&replay->conductor, event) || replay->conductor.name == NULL;
}

static rvl_status apply_stage(rvl_replay *replay, const rvl_trace_event *event)
{
    return counts(replay, event) ? rvli_replay_stages_flat(replay, event) : RVL_OK;
}

static rvl_status apply_range(rvl_replay *replay, const rvl_trace_event *event)
{
    if (!counts(replay, event))
        return RVL_OK;
    replay->ranges = true;
    return event->kind == RVL_EVENT_ENTER ? rvli_replay_stages_enter(replay, event)
                                          : rvli_replay_stages_leave(replay, event);
}

static rvl_status apply_step(rvl_replay *replay, const rvl_trace_event *event)
{
    if (!rvli_replay_conducts(&replay->conductor, event))
        return RVL_OK;
    rvl_status status = rvl_step(replay->context);
    if (status != RVL_OK)
        return refuse_as_core(replay, event, 0, status);
    replay->step++;
    replay->woken = false;
    return RVL_OK;
}

rvl_status rvli_replay_set_external(rvl_replay *replay, const rvl_trace_event *event, int device,
                                    const char *cause, uint64_t bytes)
{
    rvl_status status = rvl_external_set(replay->context, device, cause, bytes);
    if (status != RVL_OK)
        return refuse_value(replay, event, FIELD_BYTES, status);
    note_overcommit(replay, event, device);
    return rvli_replay_note_external(replay, event, device, cause, bytes);
}

/*
 * Pinned host memory costs device memory, since the driver keeps records of it there, in whole
 * granules. Pinned memory is kept when a backup is dropped, so the most so far counts.
 */
static rvl_status note_pinned(rvl_replay *replay, const rvl_trace_event *event)
{
    const uint64_t gib = UINT64_C(1) << 30;
    for (int i = 0; i < replay->device_count; i++) {
        rvli_replay_device *device = &replay->devices[i];
        const rvl_driver_use *use = &device->driver;
        rvl_device_stats stats = {.struct_size = sizeof stats};
        if (use->first_backup_bytes == 0 && use->per_pinned_gib_bytes == 0)
            continue;
        rvl_status status = rvl_device_get_stats(replay->context, i, &stats);
        if (status != RVL_OK)
            return refuse_as_core(replay, event, 0, status);
        if (stats.host_peak_bytes <= device->pinned_bytes)
            continue;
        device->pinned_bytes = stats.host_peak_bytes;
        uint64_t records = stats.host_peak_bytes / gib * use->per_pinned_gib_bytes +
                           stats.host_peak_bytes % gib * use->per_pinned_gib_bytes / gib;
        records -= records % device->granularity_bytes;
        status = rvli_replay_set_external(replay, event, i, RVL_REPLAY_PINNED_CAUSE,
                                          use->first_backup_bytes + records);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static rvl_status apply_external(rvl_replay *replay, const rvl_trace_event *event,
                                 rvli_replay_process *process)
{
    int device;
    rvl_status status = device_of(replay, event, event->device, FIELD_DEVICE, &device);
    if (status == RVL_OK)
        status =
            rvli_replay_sleeper_holds(replay, event, process, device, event->name, event->bytes);
    if (status != RVL_OK || rvli_replay_sleeps(process))
        return status;
    return rvli_replay_set_external(replay, event, device, event->name, event->bytes);
}

static uint64_t magnitude(int64_t difference)
{
    return difference < 0 ? (uint64_t)0 - (uint64_t)difference : (uint64_t)difference;
}

/* predicted - sampled, limited to 63 bits. */
static int64_t difference_of(uint64_t predicted, uint64_t sampled)
{
    uint64_t size = predicted > sampled ? predicted - sampled : sampled - predicted;
    int64_t limited = size > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)size;
    return predicted > sampled ? limited : -limited;
}

/*
 * The first sample of a device shows the bytes that the trace does not explain. Later samples are
 * compared with the prediction.
 */
static rvl_status apply_sample(rvl_replay *replay, const rvl_trace_event *event,
                               rvli_replay_process *process)
{
    int device;
    rvl_device_stats stats = {.struct_size = sizeof stats};
    rvl_status status = device_of(replay, event, event->device, FIELD_DEVICE, &device);
    if (status != RVL_OK)
        return status;
    status = rvl_device_get_stats(replay->context, device, &stats);
    if (status != RVL_OK)
        return refuse_as_core(replay, event, 0, status);

    rvli_replay_device *state = &replay->devices[device];
    if (!state->sampled) {
        state->sampled = true;
        uint64_t used = stats.used_bytes;
        uint64_t unexplained = event->bytes > used ? event->bytes - used : 0;
        status =
            rvli_replay_sleeper_holds(replay, event, process, device, FIRST_SAMPLE, unexplained);
        return status == RVL_OK
                   ? rvli_replay_set_external(replay, event, device, FIRST_SAMPLE, unexplained)
                   : status;
    }
    int64_t difference = difference_of(stats.used_bytes, event->bytes);
    if (magnitude(difference) > magnitude(state->worst_difference_bytes))
        state->worst_difference_bytes = difference;
    state->sample_count++;
    rvli_replay_stages_read(replay, device, event->bytes, stats.used_bytes);
    return RVL_OK;
}

static bool moves_memory(rvl_event_kind kind)
{
    return kind != RVL_EVENT_STAGE && kind != RVL_EVENT_STEP && kind != RVL_EVENT_SAMPLE &&
           kind != RVL_EVENT_PART && kind != RVL_EVENT_ENTER && kind != RVL_EVENT_LEAVE &&
           kind != RVL_EVENT_REFUSE && kind != RVL_EVENT_ENDED && kind != RVL_EVENT_FAIL;
}

static rvl_status refuse_asleep(rvl_replay *replay, const rvl_trace_event *event)
{
    return rvli_replay_refuse(replay, event, FIELD_PROCESS, RVL_ERR_CORRUPT_TRACE,
                              "process %s sleeps: it allocates nothing before its wake",
                              event->process);
}

rvl_status rvli_replay_apply(rvl_replay *replay, const rvl_trace_event *event)
{
    rvli_replay_process *process;
    rvl_status status = process_of(replay, event, &process);
    if (status != RVL_OK)
        return status;
    rvli_outcome_note(replay, &process->refusals, event);
    replay->moved = replay->moved || moves_memory(event->kind);
    bool sleeps = rvli_replay_sleeps(process);
    switch (event->kind) {
    case RVL_EVENT_ALLOC:
        return sleeps ? refuse_asleep(replay, event) : apply_alloc(replay, event, process);
    case RVL_EVENT_FREE:
        return apply_free(replay, event, process);
    case RVL_EVENT_PAUSE:
        status = sleeps ? RVL_OK : apply_pause(replay, event);
        return status == RVL_OK ? note_pinned(replay, event) : status;
    case RVL_EVENT_RESUME:
        return sleeps ? RVL_OK : apply_resume(replay, event);
    case RVL_EVENT_STAGE:
        return apply_stage(replay, event);
    case RVL_EVENT_STEP:
        return apply_step(replay, event);
    case RVL_EVENT_EXTERNAL:
        return apply_external(replay, event, process);
    case RVL_EVENT_SAMPLE:
        return apply_sample(replay, event, process);
    case RVL_EVENT_PART:
        return apply_part(replay, event, process);
    case RVL_EVENT_ENTER:
    case RVL_EVENT_LEAVE:
        return apply_range(replay, event);
    case RVL_EVENT_SLEEP:
        status = rvli_replay_sleep(replay, event, process);
        return status == RVL_OK ? note_pinned(replay, event) : status;
    case RVL_EVENT_WAKE:
        return rvli_replay_wake(replay, event, process);
    case RVL_EVENT_REFUSE:
    case RVL_EVENT_ENDED:
    case RVL_EVENT_FAIL:
    case RVL_EVENT_KIND_COUNT:
        break;
    }
    return RVL_OK; /* the reader skips kinds that it does not know */
}
