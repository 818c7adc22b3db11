/* SPDX-License-Identifier: MIT */
/*
 * A sleeping process holds nothing on its devices.
 *
 * Its tags are paused. What it holds beyond them (its context, communicators) moves to host memory.
 * This is modelled as a paused allocation with a host backup, so that the ledger counts it. The
 * wake reverses this. Between the two, the process's events for pauses, resumes and external bytes
 * describe how its recorder did it, for readers that do not know the verb. They are ignored here.
 *
 * The time is that of the pause and of the driver's calls, as in rvl_sleep_forecast().
 */
#include "predict/replay/asleep.h"

#include <stdlib.h>
#include <string.h>

#include "base/cost.h"
#include "base/grow.h"
#include "base/process_cost.h"
#include "core/prefetch.h"

#define DRIVER_TAG "asleep" /* tag of what the driver keeps in host memory */

/* Something that a process holds beyond its allocations. */
typedef struct held {
    int device;
    const char *cause; /* valid as long as the input */
    uint64_t bytes;
} held;

/* What the driver keeps in host memory for a device. */
typedef struct kept {
    rvl_addr addr; /* 0: nothing */
    uint64_t bytes;
} kept;

struct rvli_replay_sleeper {
    held *held;
    size_t held_count, held_capacity;
    bool asleep;
    rvl_tag *tags; /* tags paused by the sleep */
    size_t tag_count;
    kept kept[RVL_MAX_DEVICES];
};

static rvl_status no_memory(rvl_replay *replay, const rvl_trace_event *event)
{
    return rvli_replay_refuse(replay, event, 0, RVL_ERR_HOST_OOM, "no host memory for the replay");
}

static rvli_replay_sleeper *sleeper_of(rvli_replay_process *process)
{
    if (process->sleeper == NULL)
        process->sleeper = calloc(1, sizeof *process->sleeper);
    return process->sleeper;
}

void rvli_replay_sleeper_destroy(rvli_replay_process *process)
{
    if (process->sleeper == NULL)
        return;
    free(process->sleeper->held);
    free(process->sleeper->tags);
    free(process->sleeper);
    process->sleeper = NULL;
}

bool rvli_replay_sleeps(const rvli_replay_process *process)
{
    return process->sleeper != NULL && process->sleeper->asleep;
}

/* ---- What a process holds beyond its allocations ---- */

static held *find_held(rvli_replay_sleeper *sleeper, int device, const char *cause)
{
    for (size_t i = 0; i < sleeper->held_count; i++)
        if (sleeper->held[i].device == device && strcmp(sleeper->held[i].cause, cause) == 0)
            return &sleeper->held[i];
    return NULL;
}

static held *add_held(rvli_replay_sleeper *sleeper, int device, const char *cause)
{
    if (!RVLI_ROOM(sleeper->held, sleeper->held_count, sleeper->held_capacity, 4))
        return NULL;
    held *added = &sleeper->held[sleeper->held_count++];
    *added = (held){.device = device, .cause = cause};
    return added;
}

rvl_status rvli_replay_sleeper_holds(rvl_replay *replay, const rvl_trace_event *event,
                                     rvli_replay_process *process, int device, const char *cause,
                                     uint64_t bytes)
{
    rvli_replay_sleeper *sleeper = sleeper_of(process);
    held *found = sleeper != NULL ? find_held(sleeper, device, cause) : NULL;
    if (found == NULL && sleeper != NULL)
        found = add_held(sleeper, device, cause);
    if (found == NULL)
        return no_memory(replay, event);
    if (bytes > 0 || !sleeper->asleep) /* 0: it sleeps; the wake restores it */
        found->bytes = bytes;
    return RVL_OK;
}

/* ---- Its tags ---- */

/* Finds the tags of the process that have memory. */
static rvl_status find_tags(rvl_replay *replay, const rvl_trace_event *event,
                            rvli_replay_sleeper *sleeper)
{
    sleeper->tag_count = 0;
    rvl_tag *tags = realloc(sleeper->tags, (replay->tags.capacity + 1) * sizeof *tags);
    if (tags == NULL)
        return no_memory(replay, event);
    sleeper->tags = tags;
    for (size_t i = 0; i < replay->tags.capacity; i++) {
        const rvli_intmap_slot *slot = &replay->tags.slots[i];
        rvl_tag_stats stats = {.struct_size = sizeof stats};
        if (slot->key >> 32 != (uint64_t)event->process_index + 1)
            continue;
        rvl_tag tag = (rvl_tag)slot->value;
        rvl_status status = rvl_tag_get_stats(replay->context, tag, -1, &stats);
        if (status != RVL_OK)
            return rvli_replay_pass_on(replay, event, 0, status, status, NULL);
        if (stats.active_bytes > 0)
            tags[sleeper->tag_count++] = tag;
    }
    return RVL_OK;
}

static rvl_status pause_tags(rvl_replay *replay, const rvl_trace_event *event,
                             rvli_replay_sleeper *sleeper)
{
    const rvl_pause_options options = {.struct_size = sizeof options,
                                       .flags = event->skip_content ? RVL_PAUSE_DISCARD : 0};
    rvl_status status = find_tags(replay, event, sleeper);
    for (size_t i = 0; i < sleeper->tag_count && status == RVL_OK; i++)
        status = rvli_replay_parts_check_pause(replay, event, sleeper->tags[i]);
    if (status != RVL_OK || sleeper->tag_count == 0)
        return status;
    status = rvl_pause(replay->context, sleeper->tags, sleeper->tag_count, &options);
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, event, 0, status, status, NULL);
    return rvli_replay_note_tags(replay, event, sleeper->tags, sleeper->tag_count);
}

/* ---- Memory of the driver ---- */

/* The start of a step of the driver, and the time that transitions had taken until then. */
typedef struct stopwatch {
    uint64_t begin_ns;
    uint64_t transitions_ns[RVL_MAX_DEVICES];
} stopwatch;

static uint64_t transitions_ns(const rvl_replay *replay, int device)
{
    rvl_device_stats stats = {.struct_size = sizeof stats};
    return rvl_device_get_stats(replay->context, device, &stats) == RVL_OK ? stats.transition_ns
                                                                           : 0;
}

static stopwatch start(const rvl_replay *replay)
{
    stopwatch watch = {.begin_ns = rvl_clock_ns(replay->context)};
    for (int device = 0; device < replay->device_count; device++)
        watch.transitions_ns[device] = transitions_ns(replay, device);
    return watch;
}

/*
 * Adds the part of the time that has not passed by itself, and on each used device the part that
 * was not counted.
 */
static void stop(rvl_replay *replay, const rvli_replay_process *process, const stopwatch *watch,
                 uint64_t takes_ns)
{
    uint64_t passed_ns = rvl_clock_ns(replay->context) - watch->begin_ns;
    if (takes_ns > passed_ns)
        (void)rvl_private_let_pass(replay->context, takes_ns - passed_ns);
    for (int device = 0; device < replay->device_count; device++) {
        uint64_t counted_ns = transitions_ns(replay, device) - watch->transitions_ns[device];
        if ((process->stages.used_devices >> device & 1) && takes_ns > counted_ns)
            (void)rvl_private_spend(replay->context, device, takes_ns - counted_ns);
    }
}

static rvl_status set_held(rvl_replay *replay, const rvl_trace_event *event,
                           const rvli_replay_sleeper *sleeper, bool there)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < sleeper->held_count && status == RVL_OK; i++) {
        const held *each = &sleeper->held[i];
        if (each->bytes > 0)
            status = rvli_replay_set_external(replay, event, each->device, each->cause,
                                              there ? each->bytes : 0);
    }
    return status;
}

/*
 * Keeps what the driver holds for a device as a paused allocation. Its backup is the host memory.
 */
static rvl_status keep(rvl_replay *replay, const rvl_trace_event *event,
                       const rvli_replay_process *process, int device, kept *on)
{
    const rvl_tag_options named = {.struct_size = sizeof named, .process = process->number};
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .process = process->number,
                                 .device = device,
                                 .backup = RVL_BACKUP_HOST};
    rvl_status status = rvl_tag_define(replay->context, DRIVER_TAG, &named, &options.tag_id);
    if (status == RVL_OK)
        status = rvl_alloc(replay->context, on->bytes, &options, &on->addr);
    if (status == RVL_OK)
        status = rvl_pause(replay->context, &options.tag_id, 1, NULL);
    return status == RVL_OK ? RVL_OK : rvli_replay_pass_on(replay, event, 0, status, status, NULL);
}

static rvl_status take_off(rvl_replay *replay, const rvl_trace_event *event,
                           const rvli_replay_process *process, rvli_replay_sleeper *sleeper)
{
    const stopwatch watch = start(replay);
    uint64_t bytes = 0;
    for (size_t i = 0; i < sleeper->held_count; i++) {
        sleeper->kept[sleeper->held[i].device].bytes += sleeper->held[i].bytes;
        bytes += sleeper->held[i].bytes;
    }
    rvl_status status = set_held(replay, event, sleeper, false);
    for (int device = 0; device < replay->device_count && status == RVL_OK; device++)
        if (sleeper->kept[device].bytes > 0)
            status = keep(replay, event, process, device, &sleeper->kept[device]);
    stop(replay, process, &watch,
         rvli_cost_ns(RVLI_PROCESS_LOCK, 0) + rvli_cost_ns(RVLI_PROCESS_CHECKPOINT, bytes));
    return status;
}

static rvl_status bring_back(rvl_replay *replay, const rvl_trace_event *event,
                             const rvli_replay_process *process, rvli_replay_sleeper *sleeper)
{
    const stopwatch watch = start(replay);
    uint64_t bytes = 0;
    rvl_status status = RVL_OK;
    for (int device = 0; device < replay->device_count && status == RVL_OK; device++) {
        kept *on = &sleeper->kept[device];
        bytes += on->bytes;
        if (on->addr != 0)
            status = rvl_free(replay->context, on->addr);
        *on = (kept){0};
    }
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, event, 0, status, status, NULL);
    status = set_held(replay, event, sleeper, true);
    stop(replay, process, &watch,
         rvli_cost_ns(RVLI_PROCESS_RESTORE, bytes) + rvli_cost_ns(RVLI_PROCESS_UNLOCK, 0));
    return status;
}

/* ---- The verbs ---- */

rvl_status rvli_replay_sleep(rvl_replay *replay, const rvl_trace_event *event,
                             rvli_replay_process *process)
{
    rvli_replay_sleeper *sleeper = sleeper_of(process);
    if (sleeper == NULL)
        return no_memory(replay, event);
    if (sleeper->asleep) /* a process may have several recorders */
        return RVL_OK;
    rvl_status status = pause_tags(replay, event, sleeper);
    if (status == RVL_OK)
        status = take_off(replay, event, process, sleeper);
    sleeper->asleep = status == RVL_OK;
    return status;
}

rvl_status rvli_replay_wake(rvl_replay *replay, const rvl_trace_event *event,
                            rvli_replay_process *process)
{
    if (!rvli_replay_sleeps(process))
        return RVL_OK;
    rvli_replay_sleeper *sleeper = process->sleeper;
    sleeper->asleep = false;
    rvl_status status = bring_back(replay, event, process, sleeper);
    if (status == RVL_OK && !event->skip_content)
        status = rvli_replay_resume(replay, event, sleeper->tags, sleeper->tag_count, false);
    return status;
}
