/* SPDX-License-Identifier: MIT */
/*
 * Passes changes of a replay to its timeline.
 *
 * Nothing is summed up here. After an event, the context is asked for the bytes of the tags that
 * the event touched. A free does not name its tag, so it is looked up before the free.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/replay/replay_internal.h"
#include "predict/replay/timeline.h"

static rvl_status no_memory(rvl_replay *replay, const rvl_trace_event *event)
{
    return rvli_replay_refuse(replay, event, 0, RVL_ERR_HOST_OOM,
                              "no host memory for the timeline: ask for fewer points");
}

/* ---- Tags ---- */

static bool grow_watched(rvl_replay *replay, rvl_tag tag)
{
    size_t devices = (size_t)replay->device_count;
    uint32_t capacity = replay->watched_tags ? replay->watched_tags : 16;
    while (capacity <= tag)
        capacity *= 2;
    if (capacity == replay->watched_tags)
        return true;
    rvli_replay_watched *watched = realloc(replay->watched, capacity * devices * sizeof *watched);
    if (watched == NULL)
        return false;
    memset(watched + replay->watched_tags * devices, 0,
           (capacity - replay->watched_tags) * devices * sizeof *watched);
    replay->watched = watched;
    replay->watched_tags = capacity;
    return true;
}

/* Sets the bytes of a series, which is made when it first has some. */
static rvl_status note_bytes(rvl_replay *replay, const rvl_trace_event *event, int device,
                             const rvli_replay_watched *watched, uint32_t *series, bool paused,
                             uint64_t bytes)
{
    rvl_timeline *timeline = replay->options.timeline;
    rvl_status status = RVL_OK;
    if (*series == 0 && bytes == 0)
        return RVL_OK;
    if (*series == 0) {
        uint32_t index;
        status = rvli_timeline_series_of(timeline, (size_t)device,
                                         paused ? RVLI_TIMELINE_PAUSED : RVLI_TIMELINE_HELD,
                                         watched->process, watched->tag, &index);
        if (status != RVL_OK)
            return status;
        *series = index + 1;
    }
    return rvli_timeline_set(timeline, event->time_ns, (size_t)device, *series - 1, bytes);
}

static rvl_status note_tag_on(rvl_replay *replay, const rvl_trace_event *event, rvl_tag tag,
                              int device)
{
    rvli_replay_watched *watched =
        &replay->watched[tag * (size_t)replay->device_count + (size_t)device];
    rvl_tag_stats stats = {.struct_size = sizeof stats};
    if (watched->process == NULL) /* nothing was ever allocated on this device */
        return RVL_OK;
    rvl_status status = rvl_tag_get_stats(replay->context, tag, device, &stats);
    if (status == RVL_OK)
        status =
            note_bytes(replay, event, device, watched, &watched->held, false, stats.active_bytes);
    if (status == RVL_OK)
        status =
            note_bytes(replay, event, device, watched, &watched->paused, true, stats.paused_bytes);
    return status == RVL_OK ? RVL_OK : no_memory(replay, event);
}

/* Notes the event's tag, which has memory on a device. */
static rvl_status note_tag_of(rvl_replay *replay, const rvl_trace_event *event, rvl_tag tag,
                              int device)
{
    if (!grow_watched(replay, tag))
        return no_memory(replay, event);
    rvli_replay_watched *watched =
        &replay->watched[tag * (size_t)replay->device_count + (size_t)device];
    watched->process = event->process;
    watched->tag = event->tag;
    return note_tag_on(replay, event, tag, device);
}

rvl_status rvli_replay_note_alloc(rvl_replay *replay, const rvl_trace_event *event, rvl_tag tag,
                                  int device)
{
    return replay->options.timeline != NULL ? note_tag_of(replay, event, tag, device) : RVL_OK;
}

rvl_status rvli_replay_note_part(rvl_replay *replay, const rvl_trace_event *event, rvl_tag own,
                                 rvl_tag part, int device)
{
    if (replay->options.timeline == NULL)
        return RVL_OK;
    rvl_status status = note_tag_of(replay, event, part, device);
    return status == RVL_OK ? rvli_replay_note_tags(replay, event, &own, 1) : status;
}

void rvli_replay_before_free(rvl_replay *replay, rvl_addr addr, rvl_allocation *allocation_out)
{
    *allocation_out = (rvl_allocation){.struct_size = sizeof *allocation_out};
    if (replay->options.timeline != NULL)
        rvl_allocation_find(replay->context, addr, allocation_out);
}

rvl_status rvli_replay_note_free(rvl_replay *replay, const rvl_trace_event *event,
                                 const rvl_allocation *allocation)
{
    if (replay->options.timeline == NULL || allocation->tag >= replay->watched_tags)
        return RVL_OK;
    return note_tag_on(replay, event, allocation->tag, allocation->device);
}

rvl_status rvli_replay_note_tags(rvl_replay *replay, const rvl_trace_event *event,
                                 const rvl_tag *tags, size_t count)
{
    if (replay->options.timeline == NULL)
        return RVL_OK;
    for (size_t i = 0; i < count; i++) {
        for (int device = 0; device < replay->device_count; device++) {
            if (tags[i] >= replay->watched_tags)
                continue;
            rvl_status status = note_tag_on(replay, event, tags[i], device);
            if (status != RVL_OK)
                return status;
        }
    }
    return RVL_OK;
}

/* ---- External bytes, stages ---- */

rvl_status rvli_replay_note_external(rvl_replay *replay, const rvl_trace_event *event, int device,
                                     const char *cause, uint64_t bytes)
{
    rvl_timeline *timeline = replay->options.timeline;
    uint32_t series;
    if (timeline == NULL)
        return RVL_OK;
    rvl_status status = rvli_timeline_series_of(timeline, (size_t)device, RVLI_TIMELINE_EXTERNAL,
                                                "", cause, &series);
    if (status == RVL_OK)
        status = rvli_timeline_set(timeline, event->time_ns, (size_t)device, series, bytes);
    return status == RVL_OK ? RVL_OK : no_memory(replay, event);
}

rvl_status rvli_replay_note_stage(rvl_replay *replay, const rvl_trace_event *event,
                                  const rvli_stage_of_process *stage)
{
    char numbered[256 + sizeof "#4294967295"];
    const char *name = stage->mark;
    if (replay->options.timeline == NULL)
        return RVL_OK;
    if (stage->number > 1) {
        snprintf(numbered, sizeof numbered, "%s#%" PRIu32, stage->mark, stage->number);
        name = numbered;
    }
    rvl_status status =
        rvli_timeline_stage(replay->options.timeline, name, stage->step, event->time_ns);
    return status == RVL_OK ? RVL_OK : no_memory(replay, event);
}

/* ---- The run ---- */

static rvl_status describe(rvl_replay *replay, int device)
{
    rvl_device_stats stats = {.struct_size = sizeof stats};
    const rvli_replay_device *state = &replay->devices[device];
    rvl_status status = rvl_device_get_stats(replay->context, device, &stats);
    if (status == RVL_OK)
        status = rvli_timeline_describe(replay->options.timeline, (size_t)device,
                                        state->trace_index, state->profile, stats.capacity_bytes);
    return status;
}

rvl_status rvli_replay_watch(rvl_replay *replay)
{
    rvl_timeline *timeline = replay->options.timeline;
    if (timeline == NULL)
        return RVL_OK;
    rvl_status status = rvli_timeline_begin(timeline, (size_t)replay->device_count);
    for (int device = 0; device < replay->device_count && status == RVL_OK; device++)
        status = describe(replay, device);
    if (status == RVL_ERR_STATE)
        return rvli_replay_refuse(replay, NULL, 0, status,
                                  "the timeline is of another replay: open one for each");
    return status == RVL_OK ? RVL_OK : no_memory(replay, NULL);
}

/*
 * Whether a change continues with the next event. An allocation and its parts change at one
 * instant. So does a snapshot: its trace moves bytes between allocations by a free and an
 * allocation at one instant, and the low between them never existed. Only lows are skipped: after
 * an allocation that is followed by a free there may be a peak, so the change ends there.
 */
static bool goes_on(const rvl_replay *replay, const rvl_trace_event *event)
{
    const rvl_trace_event *next = rvli_replay_ahead_peek(replay);
    if (next == NULL || next->file != event->file || next->time_ns != event->time_ns)
        return false;
    if (next->kind == RVL_EVENT_PART)
        return event->kind == RVL_EVENT_PART || event->kind == RVL_EVENT_ALLOC;
    if (!rvli_joined_is_snapshot(&replay->joined, event->file))
        return false;
    return next->kind == RVL_EVENT_ALLOC ||
           (next->kind == RVL_EVENT_FREE && event->kind == RVL_EVENT_FREE);
}

void rvli_replay_note_event(rvl_replay *replay, const rvl_trace_event *event)
{
    rvl_timeline *timeline = replay->options.timeline;
    if (timeline == NULL || goes_on(replay, event))
        return;
    for (int device = 0; device < replay->device_count; device++)
        rvli_timeline_parts(timeline, (size_t)device, replay->devices[device].part_bytes);
    rvli_timeline_commit(timeline, event->time_ns);
}

rvl_status rvli_replay_watch_end(rvl_replay *replay)
{
    rvl_status status = RVL_OK;
    if (replay->options.timeline != NULL)
        status = rvli_timeline_end(replay->options.timeline);
    return status == RVL_OK ? RVL_OK : no_memory(replay, NULL);
}
