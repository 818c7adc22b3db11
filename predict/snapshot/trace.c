/* SPDX-License-Identifier: MIT */
/* A run as the events of a trace. */
#include "predict/snapshot/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/grow.h"
#include "predict/snapshot/run.h"

#define BETWEEN_STAGES "outside"
#define PROCESS "trainer"
#define TAG "segments"

/* ---- Recording ---- */

void rvli_tracer_clear(rvli_tracer *tracer)
{
    tracer->event_count = 0;
    tracer->last_id = 0;
    tracer->first_us = 0;
    for (int i = 0; i < RVLI_PART_COUNT; i++) {
        tracer->parts[i].count = 0;
        tracer->parts[i].bytes = 0;
    }
}

void rvli_tracer_destroy(rvli_tracer *tracer)
{
    free(tracer->events);
    for (int i = 0; i < RVLI_PART_COUNT; i++)
        free(tracer->parts[i].pieces);
    *tracer = (rvli_tracer){0};
}

static rvl_status add(rvli_tracer *tracer, rvli_tracer_event event)
{
    if (!RVLI_ROOM(tracer->events, tracer->event_count, tracer->event_room, 256))
        return RVL_ERR_HOST_OOM;
    tracer->events[tracer->event_count++] = event;
    return RVL_OK;
}

static rvl_status grow(rvli_tracer *tracer, uint32_t part, int64_t time_us, uint64_t bytes)
{
    rvli_tracer_stack *stack = &tracer->parts[part];
    if (!RVLI_ROOM(stack->pieces, stack->count, stack->room, 256))
        return RVL_ERR_HOST_OOM;
    uint64_t id = ++tracer->last_id;
    stack->pieces[stack->count++] = (rvli_tracer_piece){.id = id, .bytes = bytes};
    stack->bytes += bytes;
    return add(
        tracer,
        (rvli_tracer_event){
            .time_us = time_us, .bytes = bytes, .id = id, .part = part, .kind = RVL_EVENT_ALLOC});
}

/* Removes pieces until a part has at most this many bytes. */
static rvl_status shrink(rvli_tracer *tracer, uint32_t part, int64_t time_us, uint64_t bytes)
{
    rvli_tracer_stack *stack = &tracer->parts[part];
    rvl_status status = RVL_OK;
    while (stack->bytes > bytes && status == RVL_OK) {
        const rvli_tracer_piece *last = &stack->pieces[--stack->count];
        stack->bytes -= last->bytes;
        status =
            add(tracer,
                (rvli_tracer_event){.time_us = time_us, .id = last->id, .kind = RVL_EVENT_FREE});
    }
    return status;
}

static uint64_t nearest_granule(const rvli_tracer *tracer, uint64_t bytes)
{
    uint64_t granule = tracer->granule_bytes;
    return granule > 1 ? (bytes + granule / 2) / granule * granule : bytes;
}

/*
 * Computes the bytes of each part. A snapshot may claim that more bytes were requested than
 * allocated.
 */
static void divide(const rvli_tracer *tracer, const rvli_bytes *bytes,
                   uint64_t parts[RVLI_PART_COUNT])
{
    uint64_t requested = bytes->requested < bytes->allocated ? bytes->requested : bytes->allocated;
    const uint64_t ends[RVLI_PART_COUNT] = {
        [RVLI_PART_TENSORS] = requested,
        [RVLI_PART_ROUNDING] = bytes->allocated,
        [RVLI_PART_PENDING] = bytes->allocated + bytes->pending,
        [RVLI_PART_SPLIT] = bytes->reserved - bytes->releasable,
        [RVLI_PART_CACHED] = bytes->reserved,
    };
    uint64_t laid = 0;
    for (int i = 0; i < RVLI_PART_COUNT; i++) {
        uint64_t end = i + 1 < RVLI_PART_COUNT ? nearest_granule(tracer, ends[i]) : ends[i];
        if (end > bytes->reserved)
            end = bytes->reserved;
        parts[i] = end - laid;
        laid = end;
    }
}

/*
 * Notes the earliest time. Times up to 0 stand for none, as does the start of the stage of a whole
 * trace.
 */
static void note_time(rvli_tracer *tracer, int64_t time_us)
{
    if (time_us > 0 && (tracer->first_us == 0 || time_us < tracer->first_us))
        tracer->first_us = time_us;
}

/*
 * Shrinks parts before it grows others, so that the sum never exceeds both the old and the new
 * value.
 */
rvl_status rvli_tracer_hold(rvli_tracer *tracer, int64_t time_us, const rvli_bytes *bytes)
{
    uint64_t parts[RVLI_PART_COUNT] = {bytes->reserved};
    rvl_status status = RVL_OK;
    note_time(tracer, time_us);
    if (tracer->by_part)
        divide(tracer, bytes, parts);
    for (uint32_t i = 0; i < RVLI_PART_COUNT && status == RVL_OK; i++)
        status = shrink(tracer, i, time_us, parts[i]);
    for (uint32_t i = 0; i < RVLI_PART_COUNT && status == RVL_OK; i++) {
        if (tracer->parts[i].bytes < parts[i])
            status = grow(tracer, i, time_us, parts[i] - tracer->parts[i].bytes);
    }
    return status;
}

rvl_status rvli_tracer_stage(rvli_tracer *tracer, int64_t time_us, uint32_t stage)
{
    note_time(tracer, time_us);
    return add(tracer,
               (rvli_tracer_event){.time_us = time_us, .stage = stage, .kind = RVL_EVENT_STAGE});
}

/* ---- Writing ---- */

/*
 * Writes the name with which a stage was marked: "train" for "train#2" if there was a "train"
 * before.
 */
static void write_mark(const rvl_snapshot *snapshot, uint32_t stage, char *mark, size_t size)
{
    const char *name = stage != UINT32_MAX ? snapshot->stages[stage].name : BETWEEN_STAGES;
    const char *number = strrchr(name, '#');
    size_t length = strlen(name);
    for (uint32_t i = 0; number != NULL && stage != UINT32_MAX && i < stage; i++) {
        const char *other = snapshot->stages[i].name;
        if (strlen(other) == (size_t)(number - name) &&
            memcmp(other, name, (size_t)(number - name)) == 0)
            length = (size_t)(number - name);
    }
    snprintf(mark, size, "%.*s", (int)length, name);
}

static rvl_status write_event(rvl_trace_writer *writer, const rvl_snapshot *snapshot,
                              const rvl_snapshot_trace *how, const rvli_tracer_event *from,
                              uint64_t time_ns)
{
    static const char *const parts[RVLI_PART_COUNT] = {
#define PART_TAG(name, tag) tag,
        RVLI_PART_MAP(PART_TAG)
#undef PART_TAG
    };
    char mark[256];
    rvl_trace_event event = {.kind = from->kind,
                             .time_ns = time_ns,
                             .id = from->id,
                             .bytes = from->bytes,
                             .process = how->process};
    if (from->kind == RVL_EVENT_ALLOC) {
        event.device = how->device->index;
        event.tag = (how->flags & RVL_SNAPSHOT_BY_PART) ? parts[from->part] : TAG;
    } else if (from->kind == RVL_EVENT_STAGE) {
        write_mark(snapshot, from->stage, mark, sizeof mark);
        event.name = mark;
    }
    return rvl_trace_writer_add_event(writer, &event, sizeof event);
}

/* Whether an "outside" mark can be left out, since nothing changes before the next stage. */
static bool is_empty_mark(const rvli_tracer *tracer, size_t index)
{
    const rvli_tracer_event *event = &tracer->events[index];
    if (event->kind != RVL_EVENT_STAGE || event->stage != UINT32_MAX)
        return false;
    return index + 1 == tracer->event_count || tracer->events[index + 1].kind == RVL_EVENT_STAGE;
}

static rvl_status write_events(const rvli_tracer *tracer, const rvl_snapshot *snapshot,
                               const rvl_snapshot_trace *how, int64_t first_us,
                               rvl_trace_writer *writer)
{
    int64_t last_us = first_us;
    rvl_status status = rvl_trace_writer_add_process(writer, how->process, 0);
    for (size_t i = 0; i < tracer->event_count && status == RVL_OK; i++) {
        const rvli_tracer_event *event = &tracer->events[i];
        if (event->time_us > last_us)
            last_us = event->time_us;
        if (is_empty_mark(tracer, i))
            continue;
        uint64_t time_ns = (uint64_t)(last_us - first_us) * 1000;
        status = write_event(writer, snapshot, how, event, time_ns);
    }
    return status;
}

rvl_status rvli_tracer_write(const rvli_tracer *tracer, const rvl_snapshot *snapshot,
                             const rvl_snapshot_trace *how, const char *path)
{
    rvl_snapshot_trace known = *how;
    if (known.process == NULL)
        known.process = PROCESS;
    int64_t first_us = tracer->first_us;
    rvl_trace_header header = {.struct_size = sizeof header,
                               .wall_ns = (uint64_t)first_us * 1000,
                               .devices = known.device,
                               .device_count = 1,
                               .device_size = sizeof *known.device};
    rvl_trace_writer *writer;
    rvl_status status = rvl_trace_writer_open_draft(path, &header, &writer);
    if (status != RVL_OK)
        return status;
    status = write_events(tracer, snapshot, &known, first_us, writer);
    if (status == RVL_OK)
        return rvl_trace_writer_close(writer);
    rvl_trace_writer_discard(writer);
    return status;
}
