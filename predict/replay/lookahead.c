/* SPDX-License-Identifier: MIT */
/*
 * Reading some events ahead.
 *
 * With many allocations live, every free is a chain of cache misses: the id's slot, the address's,
 * the allocation, its block. Knowing the next few events, each link is fetched while the events
 * before are applied. What is applied, and in which order, does not change: an error of the reader
 * is answered when its turn comes.
 */
#include "core/prefetch.h"
#include "predict/replay/replay_internal.h"

#define EVENTS RVLI_REPLAY_AHEAD_EVENTS

/* How many events before its turn each link of an event is fetched. */
enum { SLOT_EVENTS = 10, RECORD_EVENTS = 6, PARTS_EVENTS = 3 };

static rvli_replay_ahead_event *event_at(rvli_replay_ahead *ahead, uint32_t distance)
{
    return &ahead->events[(ahead->first + distance) % EVENTS];
}

/* The addresses of the event's process, by id, NULL if it has had no event yet. */
static const rvli_intmap *addrs_of(const rvl_replay *replay, const rvl_trace_event *event)
{
    uint32_t index = event->process_index;
    return index < replay->process_capacity ? &replay->processes[index].addrs : NULL;
}

static void fetch_id(const rvl_replay *replay, const rvl_trace_event *event)
{
    const rvli_intmap *addrs = addrs_of(replay, event);
    if (addrs != NULL && event->id != 0)
        rvli_intmap_prefetch(addrs, event->id);
}

/* The address is known by now, unless its allocation is among the events ahead. */
static void fetch_slot(rvl_replay *replay, rvli_replay_ahead_event *next)
{
    const rvli_intmap *addrs = addrs_of(replay, &next->event);
    next->addr = 0;
    if (next->event.kind == RVL_EVENT_FREE && addrs != NULL)
        (void)rvli_intmap_get(addrs, next->event.id, &next->addr);
    if (next->addr != 0)
        rvl_private_prefetch(replay->context, next->addr, 0);
}

static void fetch_further(rvl_replay *replay, const rvli_replay_ahead_event *next, int depth)
{
    if (next->addr != 0)
        rvl_private_prefetch(replay->context, next->addr, depth);
}

static void read_one(rvl_replay *replay, rvli_replay_ahead *ahead)
{
    rvli_replay_ahead_event *last = event_at(ahead, ahead->count);
    if (ahead->end != RVL_OK)
        return;
    ahead->end = rvli_replay_input_next(replay, NULL, &last->event);
    if (ahead->end != RVL_OK) {
        ahead->error = *rvli_error_get(); /* it is told in its turn */
        return;
    }
    ahead->count++;
    last->addr = 0;
    fetch_id(replay, &last->event);
}

const rvl_trace_event *rvli_replay_ahead_peek(const rvl_replay *replay)
{
    const rvli_replay_ahead *ahead = &replay->ahead;
    return ahead->count > 1 ? &ahead->events[(ahead->first + 1) % EVENTS].event : NULL;
}

rvl_status rvli_replay_ahead_next(rvl_replay *replay, const rvl_trace_event **event_out)
{
    rvli_replay_ahead *ahead = &replay->ahead;
    if (ahead->count > 0) { /* the one that was returned last is done */
        ahead->first = (ahead->first + 1) % EVENTS;
        ahead->count--;
    }
    do
        read_one(replay, ahead);
    while (ahead->count < EVENTS && ahead->end == RVL_OK);
    if (ahead->count == 0) {
        if (ahead->end != RVL_ERR_NOT_FOUND)
            rvli_error_set(&ahead->error);
        return ahead->end;
    }
    if (ahead->count > SLOT_EVENTS)
        fetch_slot(replay, event_at(ahead, SLOT_EVENTS));
    if (ahead->count > RECORD_EVENTS)
        fetch_further(replay, event_at(ahead, RECORD_EVENTS), 1);
    if (ahead->count > PARTS_EVENTS)
        fetch_further(replay, event_at(ahead, PARTS_EVENTS), 2);
    *event_out = &event_at(ahead, 0)->event;
    return RVL_OK;
}
