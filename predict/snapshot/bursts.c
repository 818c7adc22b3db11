/* SPDX-License-Identifier: MIT */
/*
 * Memory that the recording released, and why.
 *
 * empty_cache leaves no entry, and neither do garbage collection and retries. The recording only
 * shows bursts of released segments. While the model does what the recording did, it has the same
 * blocks at the same addresses, so a burst can be compared, in order, with what each cause would
 * release. A burst that no cause explains is a divergence in a verification. A prediction follows
 * it as far as possible.
 *
 * A run with other settings or limits has other blocks. A run as recorded is made first and finds
 * the causes of the bursts. The changed run then acts on these causes by its own rules.
 */
#include <stdlib.h>

#include "base/grow.h"

#include "predict/snapshot/run.h"

/*
 * A burst without an explanation that has at least this share of the cached bytes is taken for
 * empty_cache.
 */
#define NEARLY_ALL 0.9

/* ---- Bursts ---- */

/* Counts the entries at the head of the queue that release memory, and their bytes. */
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
    if (!RVLI_ROOM(run->bursts, run->burst_count, run->burst_capacity, 64))
        return RVL_ERR_HOST_OOM;
    run->bursts[run->burst_count++] = *burst;
    return RVL_OK;
}

/*
 * With a memory fraction set, a request fails if it would raise the reserved bytes above it. So
 * they never exceed it. A burst is then taken for a retry if its request would have raised the
 * reserved bytes above all that were ever reserved.
 */
bool rvli_burst_is_retry(const rvli_run *run, const rvli_burst *burst)
{
    return (burst->kinds & RVLI_BURST_ALL) != 0 && run->recording.settings.memory_fraction > 0 &&
           burst->needs > run->highest;
}

/* ---- Comparing lists with a burst ---- */

/* Returns how many releases at the head match the allocator's list, in order. */
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

/*
 * Releases the blocks at the front of the list that match the recording. *count becomes the number
 * of entries left. *any_out: at least one block matched.
 */
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

/* All cached memory was released, and it has no block for the request. Finds the cause. */
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
 * Releases what a request releases on its way to memory: garbage, then blocks above max_split, then
 * all cached memory, each only as needed. *count becomes the number of entries that this does not
 * explain.
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

/*
 * Finds out why the allocator released memory, and does the same. *count becomes the number of
 * entries left.
 */
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
    bool missing = same == count; /* the model would release more, behind the last of them */
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

/*
 * Returns the cached block that an entry releases; NULL: none. An entry without a size names none.
 */
static rvli_cached_block *named_block(rvli_allocator *allocator, const rvli_event_row *event)
{
    rvli_cached_block *block = rvli_allocator_find_free(allocator, event->addr);
    if (block == NULL || event->size == 0 || block->releasable != event->size ||
        (block->range == NULL && block->addr != event->addr))
        return NULL;
    return block;
}

/*
 * Releases the blocks that the burst names. If one of them is missing, sets *all_out to false and
 * releases none. A block that is named twice is released once.
 */
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

/*
 * The model has other blocks than the recording. Releases what the likeliest cause would release.
 */
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

/* Garbage collection depends on ages. The age of blocks from before the trace is not known. */
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

/*
 * Garbage collection depends on the memory fraction. If its limit is not known, collects as many
 * bytes as the recording did.
 */
static rvl_status settle_garbage(rvli_run *run, const rvli_burst *burst)
{
    rvli_allocator *allocator = &run->allocator;
    if (allocator->settings.gc_threshold <= 0 || allocator->allowed_bytes > 0)
        return RVL_OK;
    rvl_status status = rvli_allocator_list_garbage(allocator, burst->bytes);
    return status == RVL_OK ? rvli_allocator_release_list(allocator) : status;
}

/* The recorded device had no room. With a capacity, the model finds that out by itself. */
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
 * The model finds out by itself that it has no room, as the recording did. But the blocks that the
 * retry waited for are free now. With max_split or garbage collection the model might then release
 * less than all cached memory, so this releases all.
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

/* ---- All bursts ---- */

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
