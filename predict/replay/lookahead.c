/* SPDX-License-Identifier: MIT */
/*
 * Reads some events ahead.
 *
 * With many live allocations, every free is a chain of cache misses: the slot of the id, that of
 * the address, the allocation, its block. Since the next few events are known, each link is
 * prefetched while the events before it are applied. This changes neither the events nor their
 * order. An error of the reader is returned when its turn comes.
 */
#include "core/prefetch.h"
#include "predict/replay/replay_internal.h"

#define EVENTS RVLI_REPLAY_AHEAD_EVENTS

/* How many events ahead of its turn each link of an event is prefetched. */
enum { SLOT_EVENTS = 10, RECORD_EVENTS = 6, PARTS_EVENTS = 3 };

static rvli_replay_ahead_event *event_at(rvli_replay_ahead *ahead, uint32_t distance)
{
    return &ahead->events[(ahead->first + distance) % EVENTS];
}

/* Returns the addresses of the event's process, by id; NULL: it has had no event yet. */
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

/*
 * Looks up the address of a free. It is known by now, unless its allocation is among the events
 * ahead.
 */
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
        ahead->error = *rvli_error_get(); /* returned when its turn comes */
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
    if (ahead->count > 0) { /* the last returned event is done */
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
