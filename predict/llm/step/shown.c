/* SPDX-License-Identifier: MIT */
#include "predict/llm/step/shown.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

/* With more events, contents between layers are left out, so that a trace stays below 2 MB. */
#define EVENTS_BETWEEN_MAX 20000u

/* ---- Events ---- */

static bool grow_events(rvli_shown *shown)
{
    if (!RVLI_ROOM(shown->events, shown->event_count, shown->event_room, 1024)) {
        shown->failed = true;
        return false;
    }
    return true;
}

static void add(rvli_shown *shown, rvli_shown_event event)
{
    if (grow_events(shown))
        shown->events[shown->event_count++] = event;
}

/* Writes a term's bytes in a segment if they have changed in this direction. */
static void write_part(rvli_shown *shown, uint32_t index, rvl_model_term term, bool rises,
                       bool *joins)
{
    rvli_shown_segment *segment = &shown->segments[index];
    uint64_t before = segment->written[term], bytes = segment->held[term];
    if (before == bytes || (bytes > before) != rises)
        return;
    add(shown, (rvli_shown_event){.kind = RVLI_SHOWN_PART,
                                  .joins = *joins,
                                  .term = term,
                                  .segment = index,
                                  .bytes = bytes});
    segment->written[term] = bytes;
    *joins = true;
}

static void write_parts(rvli_shown *shown, uint32_t index, bool rises, bool *joins)
{
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++)
        write_part(shown, index, (rvl_model_term)term, rises, joins);
}

static int by_index(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static void forget_changed(rvli_shown *shown)
{
    for (size_t i = 0; i < shown->changed_count; i++)
        shown->segments[shown->changed[i]].changed = false;
    shown->changed_count = 0;
}

static void note_changed(rvli_shown *shown, uint32_t index)
{
    if (shown->segments[index].changed)
        return;
    shown->segments[index].changed = true;
    shown->changed[shown->changed_count++] = index;
}

/* Writes decreases before increases, so that no intermediate sum exceeds those of both instants. */
void rvli_shown_now(rvli_shown *shown)
{
    bool joins = false;
    if (shown->waits || shown->changed_count == 0)
        return;
    qsort(shown->changed, shown->changed_count, sizeof *shown->changed, by_index);
    for (int rises = 0; rises <= 1; rises++) {
        for (size_t i = 0; i < shown->changed_count; i++) {
            if (shown->segments[shown->changed[i]].live)
                write_parts(shown, shown->changed[i], rises != 0, &joins);
        }
    }
    forget_changed(shown);
}

void rvli_shown_between(rvli_shown *shown)
{
    if (shown->event_count < EVENTS_BETWEEN_MAX)
        rvli_shown_now(shown);
}

void rvli_shown_begin(rvli_shown *shown)
{
    shown->event_count = 0;
    shown->waits = false;
    forget_changed(shown);
    for (size_t i = 0; i < shown->segment_count; i++) {
        rvli_shown_segment *segment = &shown->segments[i];
        bool joins = true;
        memset(segment->written, 0, sizeof segment->written);
        if (!segment->live)
            continue;
        add(shown, (rvli_shown_event){
                       .kind = RVLI_SHOWN_ALLOC, .segment = (uint32_t)i, .bytes = segment->size});
        write_parts(shown, (uint32_t)i, true, &joins);
    }
    shown->begin_count = shown->event_count;
}

/* ---- Segments ---- */

static bool grow_segments(rvli_shown *shown)
{
    if (shown->segment_count < shown->segment_room)
        return true;
    size_t room = shown->segment_room > 0 ? 2 * shown->segment_room : 64;
    rvli_shown_segment *segments = realloc(shown->segments, room * sizeof *segments);
    if (segments != NULL)
        shown->segments = segments;
    uint32_t *changed = realloc(shown->changed, room * sizeof *changed);
    if (changed != NULL)
        shown->changed = changed;
    shown->failed = shown->failed || segments == NULL || changed == NULL;
    if (shown->failed)
        return false;
    shown->segment_room = room;
    return true;
}

/* Index of the segment with this address. */
static uint32_t segment_of(const rvli_shown *shown, uint64_t addr)
{
    size_t low = 0, high = shown->segment_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (shown->segments[middle].addr > addr)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

void rvli_shown_segment_alloc(rvli_shown *shown, uint64_t addr, uint64_t size)
{
    rvli_shown_now(shown);
    if (!grow_segments(shown))
        return;
    uint32_t index = (uint32_t)shown->segment_count++;
    shown->segments[index] = (rvli_shown_segment){.addr = addr, .size = size, .live = true};
    add(shown, (rvli_shown_event){.kind = RVLI_SHOWN_ALLOC, .segment = index, .bytes = size});
}

void rvli_shown_segment_free(rvli_shown *shown, uint64_t addr)
{
    uint32_t index = segment_of(shown, addr);
    if (index == shown->segment_count) /* out of host memory when it came */
        return;
    shown->segments[index].live = false;
    add(shown, (rvli_shown_event){.kind = RVLI_SHOWN_FREE, .segment = index});
}

void rvli_shown_take(rvli_shown *shown, uint32_t segment, rvl_model_term term, uint64_t bytes)
{
    if (segment >= shown->segment_count) /* out of host memory when it came */
        return;
    shown->segments[segment].held[term] += bytes;
    note_changed(shown, segment);
}

void rvli_shown_drop(rvli_shown *shown, uint32_t segment, rvl_model_term term, uint64_t bytes)
{
    if (segment >= shown->segment_count)
        return;
    shown->segments[segment].held[term] -= bytes;
    note_changed(shown, segment);
}

/* ---- Leaving out states ---- */

typedef struct room {
    uint64_t passing_bytes; /* now in the segment, except states */
    uint64_t most_bytes;    /* peak of passing_bytes */
    uint64_t state_bytes;
    bool stays; /* live during the whole step */
} room;

/* Finds from the events what each segment needs. */
static void measure_rooms(const rvli_shown *shown, room *rooms, uint64_t *current)
{
    for (size_t i = 0; i < shown->event_count; i++) {
        const rvli_shown_event *event = &shown->events[i];
        room *of = &rooms[event->segment];
        uint64_t *now = &current[(size_t)event->segment * RVL_MODEL_TERM_COUNT + event->term];
        if (event->kind == RVLI_SHOWN_ALLOC)
            of->stays = i < shown->begin_count;
        if (event->kind == RVLI_SHOWN_FREE)
            of->stays = false;
        if (event->kind != RVLI_SHOWN_PART)
            continue;
        if (rvli_shown_is_state(event->term))
            of->state_bytes = of->state_bytes + event->bytes - *now;
        else
            of->passing_bytes = of->passing_bytes + event->bytes - *now;
        *now = event->bytes;
        if (of->passing_bytes > of->most_bytes)
            of->most_bytes = of->passing_bytes;
    }
}

/* Takes up to `most` more bytes from a segment. Returns their number. */
static uint64_t take_away(rvli_shown_segment *segment, const room *of, uint64_t most,
                          uint64_t granule_bytes, bool states_alone)
{
    uint64_t taken = segment->size - segment->shown_bytes;
    uint64_t spare = segment->size - of->most_bytes;
    uint64_t limit = states_alone && of->state_bytes < spare ? of->state_bytes : spare;
    limit -= limit % granule_bytes;
    if (!of->stays || limit <= taken)
        return 0;
    uint64_t more = limit - taken < most ? limit - taken : most;
    segment->shown_bytes -= more;
    return more;
}

/* Takes the states themselves first, then free space from all segments. */
static bool shrink_segments(rvli_shown *shown, const room *rooms, uint64_t bytes,
                            uint64_t granule_bytes)
{
    for (size_t i = 0; i < shown->segment_count; i++)
        shown->segments[i].shown_bytes = shown->segments[i].size;
    for (int states_alone = 1; states_alone >= 0; states_alone--) {
        for (size_t i = 0; i < shown->segment_count && bytes > 0; i++)
            bytes -=
                take_away(&shown->segments[i], &rooms[i], bytes, granule_bytes, states_alone != 0);
    }
    return bytes == 0;
}

/* Drops the events of states, and of segments with nothing left. */
static void filter_events(rvli_shown *shown)
{
    size_t kept = 0, begin_kept = 0;
    bool joins = false; /* the first event of an instant may be dropped */
    for (size_t i = 0; i < shown->event_count; i++) {
        rvli_shown_event event = shown->events[i];
        const rvli_shown_segment *segment = &shown->segments[event.segment];
        if (i == shown->begin_count)
            begin_kept = kept;
        joins = joins && event.joins;
        if (segment->shown_bytes == 0 ||
            (event.kind == RVLI_SHOWN_PART && rvli_shown_is_state(event.term)))
            continue;
        if (event.kind == RVLI_SHOWN_ALLOC)
            event.bytes = segment->shown_bytes;
        event.joins = joins;
        joins = true;
        shown->events[kept++] = event;
    }
    shown->begin_count = shown->begin_count < shown->event_count ? begin_kept : kept;
    shown->event_count = kept;
}

bool rvli_shown_leave_out_states(rvli_shown *shown, uint64_t state_bytes, uint64_t granule_bytes)
{
    room *rooms = calloc(shown->segment_count + 1, sizeof *rooms);
    uint64_t *current = calloc((shown->segment_count + 1) * RVL_MODEL_TERM_COUNT, sizeof *current);
    bool fits = false;
    shown->failed = shown->failed || rooms == NULL || current == NULL;
    if (!shown->failed) {
        measure_rooms(shown, rooms, current);
        fits = shrink_segments(shown, rooms, state_bytes, granule_bytes);
    }
    if (fits)
        filter_events(shown);
    free(rooms);
    free(current);
    return fits;
}

void rvli_shown_destroy(rvli_shown *shown)
{
    if (shown == NULL)
        return;
    free(shown->segments);
    free(shown->changed);
    free(shown->events);
    free(shown);
}
