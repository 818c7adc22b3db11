/* SPDX-License-Identifier: MIT */
/*
 * The recording's entries on segments. They are kept until the next allocation, or until anything
 * else shows that they were not part of one.
 *
 * In a verification the model must do what they say, in order, and gets its addresses from them. A
 * prediction reads from them only that memory was given back: empty_cache leaves no entry of its
 * own.
 */
#include <stdlib.h>

#include "snapshot/run.h"

/* Of the cached bytes: a collection that frees so much is taken for empty_cache. */
#define FREED_NEARLY_ALL 0.9

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
    if (run->queue_count == run->queue_capacity) {
        uint32_t capacity = run->queue_capacity > 0 ? run->queue_capacity * 2 : 64;
        uint32_t *queue = realloc(run->queue, capacity * sizeof *queue);
        if (queue == NULL)
            return RVL_ERR_HOST_OOM;
        run->queue = queue;
        run->queue_capacity = capacity;
    }
    run->queue[run->queue_count++] = event;
    return RVL_OK;
}

static bool is_release(const rvli_event_row *event)
{
    return event->action == RVLI_ACTION_SEGMENT_FREE || event->action == RVLI_ACTION_SEGMENT_UNMAP;
}

/* The entry that is next; NULL: none. */
static const rvli_event_row *head(const rvli_run *run)
{
    return run->queue_head < run->queue_count ? rvli_event(run, run->queue[run->queue_head]) : NULL;
}

/* How many entries at the head give something back, and how much. */
static uint32_t releases(const rvli_run *run, uint64_t *bytes_out)
{
    uint32_t count = 0;
    *bytes_out = 0;
    for (uint32_t i = run->queue_head; i < run->queue_count; i++, count++) {
        const rvli_event_row *event = rvli_event(run, run->queue[i]);
        if (!is_release(event))
            break;
        *bytes_out += event->size;
    }
    return count;
}

/* ---- The allocator's changes ---- */

static uint64_t predict_address(rvli_run *run, rvli_change change, uint64_t addr, uint64_t size)
{
    switch (change) {
    case RVLI_CHANGE_ALLOC:
        return rvli_places_take_wanted(&run->places, size);
    case RVLI_CHANGE_RANGE:
        return rvli_places_make_up(&run->places, size);
    case RVLI_CHANGE_FREE:
        rvli_places_leave(&run->places, addr);
        return 0;
    default:
        return 0;
    }
}

static uint64_t recorded_address(rvli_run *run, rvli_change change, uint64_t size, uint32_t stream)
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

static void catch_up(rvli_run *run);

uint64_t rvli_run_change(void *owner, rvli_change change, uint64_t addr, uint64_t size,
                         uint32_t stream)
{
    rvli_run *run = owner;
    if (change == RVLI_CHANGE_COMPLETE) {
        rvli_intmap_remove(&run->live, rvli_event(run, addr)->addr, NULL);
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

/* ---- Doing what the recording says ---- */

/* Gives back the free block that an entry names, if the model has it. */
static rvl_status release_recorded(rvli_run *run, const rvli_event_row *event)
{
    rvli_allocator *allocator = &run->allocator;
    rvli_block *block = rvli_allocator_find_free(allocator, event->addr);
    if (block == NULL)
        return RVL_OK;
    if (block->range == NULL && (block->prev != NULL || block->next != NULL))
        return RVL_OK;
    rvl_status status = rvli_allocator_list_cached(allocator); /* makes room for one */
    allocator->list_count = 0;
    if (status != RVL_OK || allocator->list_capacity == 0)
        return status;
    allocator->list[allocator->list_count++] = block;
    return rvli_allocator_release_list(allocator);
}

static rvl_status add_recorded(rvli_run *run, const rvli_event_row *event)
{
    rvli_block *block;
    return rvli_allocator_add_segment(&run->allocator, rvli_pool_of(run, event),
                                      event->size == RVLI_SMALL_BUFFER, event->stream, event->addr,
                                      event->size, &block);
}

/* Does the entry at the head as it stands. */
static rvl_status force_head(rvli_run *run)
{
    uint32_t at = run->queue_head;
    const rvli_event_row *event = head(run);
    rvl_status status = is_release(event) ? release_recorded(run, event) : add_recorded(run, event);
    if (run->queue_head == at)
        run->queue_head++;
    return status;
}

static void catch_up(rvli_run *run)
{
    while (head(run) != NULL && force_head(run) == RVL_OK)
        continue;
}

rvl_status rvli_queue_finish(rvli_run *run)
{
    rvl_status status = RVL_OK;
    while (status == RVL_OK && head(run) != NULL) {
        rvli_diverge(run, run->queue[run->queue_head],
                     "the recording changes a segment here, the model does not", 0, 0);
        status = force_head(run);
    }
    return status;
}

/* ---- What gave memory back ---- */

/* How many of the releases at the head are those of the allocator's list, in order. */
static uint32_t alike(const rvli_run *run, uint32_t count)
{
    const rvli_allocator *allocator = &run->allocator;
    for (uint32_t i = 0; i < count; i++) {
        const rvli_event_row *event = rvli_event(run, run->queue[run->queue_head + i]);
        if (i >= allocator->list_count)
            return i;
        const rvli_block *block = allocator->list[i];
        uint64_t addr = block->addr, size = block->releasable;
        if (block->range != NULL) {
            uint64_t page = block->range->page;
            addr = block->range->base + (addr - block->range->base + page - 1) / page * page;
        }
        if (event->addr != addr || event->size != size)
            return i;
    }
    return count;
}

static bool is_list(const rvli_run *run, uint32_t count)
{
    return run->allocator.list_count == count && alike(run, count) == count;
}

/* Does what the allocator's list and the recording begin with alike. */
static rvl_status release_alike(rvli_run *run, uint32_t *count)
{
    run->allocator.list_count = alike(run, *count);
    *count -= (uint32_t)run->allocator.list_count;
    return rvli_allocator_release_list(&run->allocator);
}

/*
 * What a request gives back on its way to memory: garbage, then blocks above max_split, then all
 * that is cached, as far as each is needed. *count becomes what that does not explain.
 */
static rvl_status explain_request(rvli_run *run, const rvli_request *request, uint32_t *count)
{
    rvli_allocator *allocator = &run->allocator;
    rvl_status status = RVL_OK;
    bool enough;
    if (allocator->settings.gc_threshold > 0) {
        status = rvli_allocator_list_garbage(allocator, UINT64_MAX);
        if (status == RVL_OK)
            status = release_alike(run, count);
    }
    if (status == RVL_OK && *count > 0 && allocator->settings.max_split_bytes != UINT64_MAX) {
        status = rvli_allocator_list_oversize(allocator, request, &enough);
        if (status == RVL_OK)
            status = release_alike(run, count);
    }
    if (status != RVL_OK || *count == 0)
        return status;
    status = rvli_allocator_list_cached(allocator);
    if (status != RVL_OK || !is_list(run, *count))
        return status;
    allocator->retries++;
    return release_alike(run, count);
}

/*
 * Whether all that is cached went because a request would have failed: less than that would not
 * have been enough for it.
 */
static rvl_status is_retry(rvli_run *run, const rvli_request *request, uint32_t count,
                           bool *retry_out)
{
    rvli_allocator *allocator = &run->allocator;
    rvl_status status = RVL_OK;
    bool enough;
    *retry_out = request != NULL && rvli_allocator_would_release(allocator, request);
    if (*retry_out && allocator->settings.gc_threshold > 0) {
        status = rvli_allocator_list_garbage(allocator, UINT64_MAX);
        *retry_out = status == RVL_OK && !is_list(run, count);
    }
    if (*retry_out && allocator->settings.max_split_bytes != UINT64_MAX) {
        status = rvli_allocator_list_oversize(allocator, request, &enough);
        *retry_out = status == RVL_OK && !(enough && is_list(run, count));
    }
    return status;
}

/* Finds what the allocator did, of what it can do, and does it; *count is what is left. */
static rvl_status explain(rvli_run *run, const rvli_request *request, uint32_t *count)
{
    bool retry;
    rvl_status status = rvli_allocator_list_cached(&run->allocator);
    if (status != RVL_OK || !is_list(run, *count))
        return status == RVL_OK && request != NULL ? explain_request(run, request, count) : status;
    status = is_retry(run, request, *count, &retry);
    if (status == RVL_OK)
        status = rvli_allocator_list_cached(&run->allocator);
    if (status != RVL_OK)
        return status;
    run->allocator.retries += retry ? 1 : 0;
    return release_alike(run, count);
}

static rvl_status settle_verified(rvli_run *run, const rvli_request *request, uint32_t count)
{
    uint32_t end = run->queue_head + count;
    run->just_released = true;
    rvl_status status = explain(run, request, &count);
    if (status == RVL_OK && count > 0)
        status = rvli_allocator_list_cached(&run->allocator);
    if (status != RVL_OK || count == 0)
        return status;
    uint32_t same = alike(run, count);
    bool missing = same == count; /* the model would go on: it differs behind the last of them */
    const rvli_block *block = same < run->allocator.list_count ? run->allocator.list[same] : NULL;
    rvli_diverge(run, run->queue[run->queue_head + (missing ? count - 1 : same)],
                 missing ? "empty_cache would give back more behind this"
                         : "empty_cache would give back something else",
                 block != NULL ? block->addr : 0, block != NULL ? block->size : 0);
    while (status == RVL_OK && run->queue_head < end)
        status = force_head(run);
    return status;
}

/* Whether the recording's collections have to be taken from it: its limit is not known. */
static bool collects_unbounded(const rvli_run *run)
{
    return run->settings.gc_threshold > 0 && run->recording.settings.gc_threshold > 0 &&
           run->allocator.capacity_bytes == 0;
}

static rvl_status settle_predicted(rvli_run *run, const rvli_request *request, uint64_t bytes)
{
    rvli_allocator *allocator = &run->allocator;
    if (request == NULL || !collects_unbounded(run) ||
        rvli_allocator_has_block(allocator, request) ||
        (double)bytes >= FREED_NEARLY_ALL * (double)allocator->bytes.releasable)
        return rvli_allocator_empty_cache(allocator);
    rvl_status status = rvli_allocator_list_garbage(allocator, bytes);
    return status == RVL_OK ? rvli_allocator_release_list(allocator) : status;
}

rvl_status rvli_queue_settle(rvli_run *run, const rvli_request *request)
{
    uint64_t bytes;
    uint32_t count = releases(run, &bytes);
    if (count == 0)
        return RVL_OK;
    if (run->verify)
        return settle_verified(run, request, count);
    run->queue_head = run->queue_count;
    bool by_itself = request != NULL && rvli_allocator_would_release(&run->allocator, request);
    return by_itself ? RVL_OK : settle_predicted(run, request, bytes);
}
