/* SPDX-License-Identifier: MIT */
/*
 * Memory that the recording gave back, and why.
 *
 * empty_cache leaves no entry of its own, and neither do garbage collection and retries: all that
 * there is are bursts of segments that go. As long as the model does what the recording did, it
 * has the same blocks at the same addresses, and what each cause would give back can be held
 * against the burst, in order. What no cause explains is a divergence in a verification; a
 * prediction follows it as far as it can.
 *
 * A run with other settings or limits has other blocks. What its bursts were is found by a run as
 * recorded, which is made before it, and done by the rules of the changed one.
 */
#include <stdlib.h>

#include "predict/snapshot/run.h"

/* Of the cached bytes: a burst that nothing explains and that is so large is empty_cache. */
#define NEARLY_ALL 0.9

/* ---- Bursts ---- */

/* How many entries at the head give something back, and how much. */
static uint32_t releases(const rvli_run *run, uint64_t *bytes_out)
{
    uint32_t count = 0;
    *bytes_out = 0;
    for (uint32_t i = run->queue_head; i < run->queue_count; i++, count++) {
        const rvli_event_row *event = rvli_event(run, run->queue[i]);
        if (!rvli_is_release(event))
            break;
        *bytes_out += event->size;
    }
    return count;
}

static rvl_status add_burst(rvli_run *run, const rvli_burst *burst)
{
    if (run->burst_count == run->burst_capacity) {
        uint32_t capacity = run->burst_capacity > 0 ? run->burst_capacity * 2 : 64;
        rvli_burst *bursts = realloc(run->bursts, capacity * sizeof *bursts);
        if (bursts == NULL)
            return RVL_ERR_HOST_OOM;
        run->bursts = bursts;
        run->burst_capacity = capacity;
    }
    run->bursts[run->burst_count++] = *burst;
    return RVL_OK;
}

/*
 * With a fraction set, a request fails that would raise what is reserved above it, and nothing was
 * ever reserved above it. A burst before a request for which more would have been reserved than
 * ever was is taken for a retry then.
 */
bool rvli_burst_is_retry(const rvli_run *run, const rvli_burst *burst)
{
    return (burst->kinds & RVLI_BURST_ALL) != 0 && run->recording.settings.memory_fraction > 0 &&
           burst->needs > run->highest;
}

/* ---- Holding lists against a burst ---- */

/* How many of the releases at the head are those of the allocator's list, in order. */
static uint32_t alike(const rvli_run *run, uint32_t count)
{
    const rvli_allocator *allocator = &run->allocator;
    for (uint32_t i = 0; i < count; i++) {
        const rvli_event_row *event = rvli_event(run, run->queue[run->queue_head + i]);
        if (i >= allocator->list_count)
            return i;
        const rvli_cached_block *block = allocator->list[i];
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

/* Does what the allocator's list and the recording begin with alike; *any_out: something. */
static rvl_status release_alike(rvli_run *run, uint32_t *count, bool *any_out)
{
    uint32_t same = alike(run, *count), end = run->queue_head + same;
    run->allocator.list_count = same;
    *count -= same;
    *any_out = same > 0;
    rvl_status status = rvli_allocator_release_list(&run->allocator);
    run->queue_head = end;
    return status;
}

/* ---- Causes ---- */

/* All that is cached has gone, and the request finds no block among it. */
static rvl_status explain_all(rvli_run *run, const rvli_request *request, uint32_t count,
                              rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    rvl_status status = RVL_OK;
    bool enough = false;
    if (allocator->settings.gc_threshold > 0) {
        status = rvli_allocator_list_garbage(allocator, UINT64_MAX);
        if (status != RVL_OK || is_list(run, count)) {
            burst->kinds |= RVLI_BURST_GARBAGE;
            return status;
        }
    }
    if (allocator->settings.max_split_bytes != UINT64_MAX) {
        status = rvli_allocator_list_oversize(allocator, request, &enough);
        if (status != RVL_OK || (enough && is_list(run, count))) {
            burst->kinds |= RVLI_BURST_OVERSIZE;
            return status;
        }
    }
    burst->kinds |= RVLI_BURST_ALL;
    if (allocator->capacity_bytes == 0)
        burst->needs = rvli_allocator_needs(allocator, request);
    else if (rvli_allocator_would_release(allocator, request))
        allocator->retries++;
    return RVL_OK;
}

/*
 * What a request gives back on its way to memory: garbage, then blocks above max_split, then all
 * that is cached, as far as each is needed. *count becomes what that does not explain.
 */
static rvl_status explain_request(rvli_run *run, const rvli_request *request, uint32_t *count,
                                  rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    rvl_status status = RVL_OK;
    bool enough, any = false;
    if (allocator->settings.gc_threshold > 0) {
        status = rvli_allocator_list_garbage(allocator, UINT64_MAX);
        if (status == RVL_OK)
            status = release_alike(run, count, &any);
        burst->kinds |= any ? RVLI_BURST_GARBAGE : 0;
    }
    if (status == RVL_OK && *count > 0 && allocator->settings.max_split_bytes != UINT64_MAX) {
        status = rvli_allocator_list_oversize(allocator, request, &enough);
        if (status == RVL_OK)
            status = release_alike(run, count, &any);
        burst->kinds |= any ? RVLI_BURST_OVERSIZE : 0;
    }
    if (status != RVL_OK || *count == 0)
        return status;
    status = rvli_allocator_list_cached(allocator, (size_t)*count + 1);
    if (status != RVL_OK || !is_list(run, *count))
        return status;
    burst->kinds |= RVLI_BURST_ALL;
    allocator->retries++;
    return release_alike(run, count, &any);
}

/* Finds what the allocator did, of what it can do, and does it; *count is what is left. */
static rvl_status explain(rvli_run *run, const rvli_request *request, uint32_t *count,
                          rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    bool any, lacks = request != NULL && !rvli_allocator_has_block(allocator, request);
    rvl_status status = rvli_allocator_list_cached(allocator, (size_t)*count + 1);
    if (status != RVL_OK)
        return status;
    if (!is_list(run, *count))
        return request != NULL ? explain_request(run, request, count, burst) : RVL_OK;
    if (lacks)
        status = explain_all(run, request, *count, burst);
    else
        burst->kinds |= RVLI_BURST_EMPTY;
    if (status == RVL_OK)
        status = rvli_allocator_list_cached(allocator, (size_t)*count + 1);
    return status == RVL_OK ? release_alike(run, count, &any) : status;
}

/* ---- Verifying ---- */

static rvl_status diverge(rvli_run *run, uint32_t count)
{
    uint32_t end = run->queue_head + count, same = alike(run, count);
    bool missing = same == count; /* the model would go on: it differs behind the last of them */
    const rvli_cached_block *block =
        same < run->allocator.list_count ? run->allocator.list[same] : NULL;
    rvl_status status = RVL_OK;
    rvli_diverge(run, run->queue[run->queue_head + (missing ? count - 1 : same)],
                 missing ? "empty_cache would give back more behind this"
                         : "empty_cache would give back something else",
                 block != NULL ? block->addr : 0, block != NULL ? block->size : 0);
    while (status == RVL_OK && run->queue_head < end)
        status = rvli_queue_force(run);
    return status;
}

/* ---- Predicting as recorded ---- */

/* The cached block that an entry gives back, NULL if there is none. Entries may have no size. */
static rvli_cached_block *named_block(rvli_allocator *allocator, const rvli_event_row *event)
{
    rvli_cached_block *block = rvli_allocator_find_free(allocator, event->addr);
    if (block == NULL || event->size == 0 || block->releasable != event->size ||
        (block->range == NULL && block->addr != event->addr))
        return NULL;
    return block;
}

/* Gives back the blocks that the burst names; false in *all_out, and nothing is done: some are not
 * there. One that is named twice is given back once. */
static rvl_status follow(rvli_run *run, uint32_t count, bool *all_out)
{
    rvli_allocator *allocator = &run->allocator;
    uint32_t head = run->queue_head;
    *all_out = false;
    for (uint32_t i = 0; i < count; i++) {
        if (named_block(allocator, rvli_event(run, run->queue[head + i])) == NULL)
            return RVL_OK;
    }
    *all_out = true;
    for (uint32_t i = 0; i < count; i++) {
        rvli_cached_block *block = named_block(allocator, rvli_event(run, run->queue[head + i]));
        rvl_status status = block != NULL ? rvli_allocator_release(allocator, block) : RVL_OK;
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

/* The model has other blocks than the recording: what it would give back by the likeliest cause. */
static rvl_status guess(rvli_run *run, const rvli_request *request, uint64_t bytes,
                        rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    bool enough = false, lacks = request != NULL && !rvli_allocator_has_block(allocator, request);
    bool most = (double)bytes >= NEARLY_ALL * (double)allocator->bytes.releasable;
    rvl_status status = RVL_OK;
    if (lacks && !most && allocator->settings.gc_threshold > 0) {
        burst->kinds |= RVLI_BURST_GARBAGE;
        status = rvli_allocator_list_garbage(allocator, bytes);
        return status == RVL_OK ? rvli_allocator_release_list(allocator) : status;
    }
    if (lacks && !most && allocator->settings.max_split_bytes != UINT64_MAX)
        status = rvli_allocator_list_oversize(allocator, request, &enough);
    if (status == RVL_OK && enough) {
        burst->kinds |= RVLI_BURST_OVERSIZE;
        return rvli_allocator_release_list(allocator);
    }
    burst->kinds |= RVLI_BURST_EMPTY;
    return status == RVL_OK ? rvli_allocator_empty_cache(allocator) : status;
}

static uint64_t bytes_of(const rvli_run *run, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += rvli_event(run, run->queue[run->queue_head + i])->size;
    return bytes;
}

/* How old blocks are that were there before the trace is not known, and garbage goes by age. */
static bool may_be_garbage(const rvli_run *run)
{
    return !run->may_lack_begin && run->allocator.settings.gc_threshold > 0;
}

static rvl_status settle_recorded(rvli_run *run, const rvli_request *request, uint32_t count,
                                  rvli_burst *burst)
{
    bool all = true;
    uint32_t end = run->queue_head + count;
    run->just_released = true;
    rvl_status status = explain(run, request, &count, burst);
    if (status == RVL_OK && count > 0 && run->verify && may_be_garbage(run)) {
        status = follow(run, count, &all);
        run->result->notes[RVLI_NOTE_GUESSED] |= all;
        count = all ? 0 : count;
    }
    if (status == RVL_OK && count > 0 && run->verify) {
        status = rvli_allocator_list_cached(&run->allocator, (size_t)count + 1);
        return status == RVL_OK ? diverge(run, count) : status;
    }
    if (status == RVL_OK && count > 0)
        status = follow(run, count, &all);
    if (status == RVL_OK && !all)
        status = guess(run, request, bytes_of(run, count), burst);
    else if (count > 0 && burst->kinds == 0)
        burst->kinds = request == NULL ? RVLI_BURST_EMPTY : RVLI_BURST_ALL;
    run->queue_head = end;
    return status;
}

/* ---- Predicting something else ---- */

/* Garbage is collected by a fraction: where that is not known, as much as the recording did. */
static rvl_status settle_garbage(rvli_run *run, const rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    if (allocator->settings.gc_threshold <= 0 || allocator->allowed_bytes > 0)
        return RVL_OK;
    rvl_status status = rvli_allocator_list_garbage(allocator, burst->bytes);
    return status == RVL_OK ? rvli_allocator_release_list(allocator) : status;
}

/* The recording's device had no room. With the size of another one, the model finds that out. */
static rvl_status settle_full(rvli_run *run, const rvli_request *request, const rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    bool enough = false;
    rvl_status status = RVL_OK;
    if (allocator->capacity_bytes > 0)
        return RVL_OK;
    if (allocator->settings.max_split_bytes != UINT64_MAX)
        status = rvli_allocator_list_oversize(allocator, request, &enough);
    if (status == RVL_OK && enough && (burst->kinds & RVLI_BURST_ALL) == 0)
        return rvli_allocator_release_list(allocator);
    if (status != RVL_OK)
        return status;
    allocator->retries++;
    return rvli_allocator_empty_cache(allocator);
}

/*
 * The model finds out by itself that it has no room, as the recording did. But less than all that
 * is cached may do for it, now that what the retry waited for is free.
 */
static rvl_status settle_retry(rvli_run *run)
{
    rvli_allocator *allocator = &run->allocator;
    if (allocator->settings.max_split_bytes == UINT64_MAX && allocator->settings.gc_threshold <= 0)
        return RVL_OK;
    allocator->retries++;
    return rvli_allocator_empty_cache(allocator);
}

static rvl_status settle_changed(rvli_run *run, const rvli_request *request,
                                 const rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    bool needs = request != NULL && !rvli_allocator_has_block(allocator, request);
    bool by_itself = request != NULL && rvli_allocator_would_release(allocator, request);
    if ((burst->kinds & RVLI_BURST_EMPTY) != 0)
        return rvli_allocator_empty_cache(allocator);
    if (burst->kinds == RVLI_BURST_ALL && by_itself)
        return settle_retry(run);
    if (burst->kinds == RVLI_BURST_ALL && !rvli_burst_is_retry(run, burst))
        return rvli_allocator_empty_cache(allocator);
    rvl_status status = RVL_OK;
    if (needs && (burst->kinds & RVLI_BURST_GARBAGE) != 0)
        status = settle_garbage(run, burst);
    if (status == RVL_OK && needs && (burst->kinds & (RVLI_BURST_OVERSIZE | RVLI_BURST_ALL)) != 0)
        status = settle_full(run, request, burst);
    return status;
}

/* ---- All of them ---- */

rvl_status rvli_queue_settle(rvli_run *run, const rvli_request *request)
{
    rvli_burst burst = {0};
    uint32_t count = releases(run, &burst.bytes);
    if (count == 0)
        return RVL_OK;
    if (run->changed && run->next_burst < run->burst_count) {
        run->queue_head = run->queue_count;
        return settle_changed(run, request, &run->bursts[run->next_burst++]);
    }
    rvl_status status = settle_recorded(run, request, count, &burst);
    return status == RVL_OK ? add_burst(run, &burst) : status;
}
