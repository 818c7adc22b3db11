/* SPDX-License-Identifier: MIT */
/*
 * The recording's entries on segments. They are queued until the next allocation, or until
 * something else shows that they were not part of one.
 *
 * In a verification the model must do what they record, in order, and takes its addresses from
 * them. A prediction only learns from them that memory was released (bursts.c).
 */
#include <stdlib.h>

#include "base/grow.h"
#include "predict/snapshot/allocator_internal.h"
#include "predict/snapshot/run.h"

void rvli_diverge(rvli_run *run, uint64_t event, const char *why, uint64_t expected_addr,
                  uint64_t expected_bytes)
{
    rvl_snapshot_facts *facts = &run->result->facts;
    run->result->notes[RVLI_NOTE_DIVERGED] = true;
    if (facts->diverged)
        return;
    facts->diverged = true;
    facts->diverged_at = event;
    facts->diverged_why = why;
    facts->diverged_expected_addr = expected_addr;
    facts->diverged_expected_bytes = expected_bytes;
}

/* ---- The queue ---- */

rvl_status rvli_queue_push(rvli_run *run, uint32_t event)
{
    if (run->queue_head == run->queue_count)
        run->queue_head = run->queue_count = 0;
    if (!RVLI_ROOM(run->queue, run->queue_count, run->queue_capacity, 64))
        return RVL_ERR_HOST_OOM;
    run->queue[run->queue_count++] = event;
    return RVL_OK;
}

bool rvli_is_release(const rvli_event_row *event)
{
    return event->action == RVLI_ACTION_SEGMENT_FREE || event->action == RVLI_ACTION_SEGMENT_UNMAP;
}

/* Returns the next entry; NULL: none. */
static const rvli_event_row *head(const rvli_run *run)
{
    return run->queue_head < run->queue_count ? rvli_event(run, run->queue[run->queue_head]) : NULL;
}

/* ---- The allocator's changes ---- */

static uint64_t predict_address(rvli_run *run, rvli_snapshot_change change, uint64_t addr,
                                uint64_t size)
{
    switch (change) {
    case RVLI_CHANGE_ALLOC:
        return rvli_places_take_wanted(&run->places, size);
    case RVLI_CHANGE_RANGE:
        return rvli_places_take_range(&run->places, size);
    case RVLI_CHANGE_FREE:
        rvli_places_leave(&run->places, addr);
        return 0;
    default:
        return 0;
    }
}

static uint64_t recorded_address(rvli_run *run, rvli_snapshot_change change, uint64_t size,
                                 uint32_t stream)
{
    const rvli_event_row *event = head(run);
    uint8_t action =
        change == RVLI_CHANGE_ALLOC ? RVLI_ACTION_SEGMENT_ALLOC : RVLI_ACTION_SEGMENT_MAP;
    if (event == NULL || event->action != action)
        return 0;
    if (change == RVLI_CHANGE_RANGE)
        return event->addr;
    if (event->size != size || event->stream != stream) {
        rvli_diverge(run, run->queue[run->queue_head],
                     event->size != size ? "the segment has another size"
                                         : "the segment is for another stream",
                     0, size);
        return 0;
    }
    run->queue_head++;
    return event->addr;
}

static void compare(rvli_run *run, uint8_t action, uint64_t addr, uint64_t size)
{
    const rvli_event_row *event = head(run);
    if (event == NULL) {
        rvli_diverge(run, run->result->facts.event_count,
                     "the model maps or gives back memory here, the recording does not", addr,
                     size);
        return;
    }
    if (event->action != action || event->addr != addr || event->size != size)
        rvli_diverge(run, run->queue[run->queue_head], "the model maps or gives back other memory",
                     addr, size);
    run->queue_head++;
}

/* A block was waited for. Its own entry may come later, and then changes nothing. */
static void complete_early(rvli_run *run, uint64_t event)
{
    if (event >= run->recording.event_count)
        return;
    uint64_t addr = rvli_event(run, event)->addr;
    rvli_intmap_remove(&run->live, addr, NULL);
    if (rvli_intmap_insert(&run->early, addr, 1) == RVL_ERR_HOST_OOM)
        run->out_of_memory = true;
}

static void catch_up(rvli_run *run);

uint64_t rvli_run_change(void *owner, rvli_snapshot_change change, uint64_t addr, uint64_t size,
                         uint32_t stream)
{
    rvli_run *run = owner;
    if (change == RVLI_CHANGE_COMPLETE) {
        complete_early(run, addr);
        return 0;
    }
    if (!run->verify)
        return predict_address(run, change, addr, size);
    switch (change) {
    case RVLI_CHANGE_FREE:
        compare(run, RVLI_ACTION_SEGMENT_FREE, addr, size);
        return 0;
    case RVLI_CHANGE_MAP:
        compare(run, RVLI_ACTION_SEGMENT_MAP, addr, size);
        return 0;
    case RVLI_CHANGE_UNMAP:
        compare(run, RVLI_ACTION_SEGMENT_UNMAP, addr, size);
        return 0;
    case RVLI_CHANGE_CATCH_UP:
        catch_up(run);
        return 0;
    default:
        return recorded_address(run, change, size, stream);
    }
}

/* ---- Applying recorded entries ---- */

/* Releases the free block that an entry names, if the model has it. */
static rvl_status release_recorded(rvli_run *run, const rvli_event_row *event)
{
    rvli_cached_block *block = rvli_allocator_find_free(&run->allocator, event->addr);
    if (block == NULL)
        return RVL_OK;
    if (block->range == NULL && (block->prev != NULL || block->next != NULL))
        return RVL_OK;
    return rvli_allocator_release(&run->allocator, block);
}

/* Finds the unmapped block of the pool and stream that contains the mapped bytes; NULL: none. */
static rvli_cached_block *find_unmapped(rvli_run *run, const rvli_event_row *event)
{
    rvli_allocator *allocator = &run->allocator;
    for (int small = 0; small < 2; small++) {
        uint32_t bucket;
        if (rvli_bucket_get(allocator, rvli_pool_of(run, event), small == 1, event->stream,
                            &bucket) != RVL_OK)
            return NULL;
        rvli_cached_block *block =
            rvli_blocks_below(allocator->buckets[bucket].unmapped, 0, event->addr + 1);
        if (block != NULL && event->addr - block->addr < block->size &&
            event->size <= block->size - (event->addr - block->addr))
            return block;
    }
    return NULL;
}

static rvl_status add_recorded(rvli_run *run, const rvli_event_row *event)
{
    rvli_cached_block *block = NULL;
    if (event->size == 0)
        return RVL_OK;
    if (event->action == RVLI_ACTION_SEGMENT_MAP)
        block = find_unmapped(run, event);
    if (block != NULL && (event->addr - block->range->base) % block->range->page == 0)
        return rvli_map_at(&run->allocator, block, event->addr, event->size);
    return rvli_allocator_add_segment(&run->allocator, rvli_pool_of(run, event),
                                      event->size == RVLI_SMALL_BUFFER, event->stream, event->addr,
                                      event->size, &block);
}

rvl_status rvli_queue_force(rvli_run *run)
{
    uint32_t at = run->queue_head;
    const rvli_event_row *event = head(run);
    rvl_status status =
        rvli_is_release(event) ? release_recorded(run, event) : add_recorded(run, event);
    if (run->queue_head == at)
        run->queue_head++;
    return status;
}

static void catch_up(rvli_run *run)
{
    while (head(run) != NULL && rvli_queue_force(run) == RVL_OK)
        continue;
}

rvl_status rvli_queue_finish(rvli_run *run)
{
    rvl_status status = RVL_OK;
    while (status == RVL_OK && head(run) != NULL) {
        rvli_diverge(run, run->queue[run->queue_head],
                     "the recording changes a segment here, the model does not", 0, 0);
        status = rvli_queue_force(run);
    }
    return status;
}
