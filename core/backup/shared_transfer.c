/* SPDX-License-Identifier: MIT */
#include "core/backup/shared_transfer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "core/backup/backup.h"
#include "core/backup/host_buffer.h"
#include "core/backup/shared_lane.h"
#include "core/backup/shared_lookup.h"
#include "core/memory/enter.h"

/*
 * Number of segments in flight, each with a thread that writes or compares it. With 12, two
 * processes on 32 cores took a third less time than with 8 (docs/performance.md).
 */
#define LANES 12
#define COPIES_AHEAD 3 /* of those, on the link */

/*
 * How long to wait for content that another user has claimed before copying it here. A segment
 * takes 10 to 200 ms; the other user may have been stopped.
 */
#define PATIENCE_NS UINT64_C(1000000000)
#define RETRY_NS 1000000

struct rvli_shared_transfer {
    rvl_context *context;
    rvli_transition *transition;
    uint64_t number; /* of the transfer, in this process */
    bool full;
    bool delayed;                 /* some segments may have to be returned to */
    bool impatient;               /* a wait for another user has timed out */
    const rvli_move_item *failed; /* NULL: no item has failed yet */
    rvli_lanes all;
    rvli_lane lanes[LANES];
    uint64_t queued;  /* segments with a queued copy; lanes are used in turn */
    uint64_t arrived; /* segments with a finished copy */
};

static _Atomic uint64_t transfers;

static void delay(rvli_shared_transfer *t, const rvli_move_item *item, uint64_t number,
                  rvli_segment_delay why)
{
    item->backup->segments->at[number].delay = why;
    t->delayed = true;
}

/* Collects the result of a lane's job, once. The lane is then free. */
static rvl_status end_work(rvli_shared_transfer *t, rvli_lane *l)
{
    rvli_lane_await(l);
    rvl_status status = l->status;
    if (status != RVL_OK) {
        rvli_error_set(&l->error);
        t->failed = l->item;
        t->full = l->full;
    }
    if (l->wrong)
        delay(t, l->item, l->number, RVLI_SEGMENT_IS_WRONG);
    l->status = RVL_OK;
    l->wrong = false;
    return status;
}

/* ---- From the device to a buffer ---- */

static rvl_status wait_copied(const rvli_shared_transfer *t, const rvli_lane *l)
{
    rvl_context *context = t->context;
    rvl_status status =
        context->ops.wait_event(context->self, l->item->allocation->device, l->event);
    if (status != RVL_OK)
        rvli_error_op("wait_event");
    return status;
}

/* Waits until all jobs have ended. Returns whether one of them returned room. */
static bool await_room(rvli_shared_transfer *t)
{
    bool any = false;
    for (int i = 0; i < LANES; i++) {
        rvli_lane_await(&t->lanes[i]);
        any = any || t->lanes[i].another_was_first;
        t->lanes[i].another_was_first = false;
    }
    return any;
}

/*
 * Reserves in the order of the segments, so that it is always the same segments that find no room.
 */
static rvl_status reserve(rvli_shared_transfer *t, rvli_lane *l)
{
    rvl_status status = rvli_draft_reserve(t->all.store, &l->draft, l->bytes);
    if (status == RVL_ERR_HOST_OOM && await_room(t))
        status = rvli_draft_reserve(t->all.store, &l->draft, l->bytes);
    t->full = status == RVL_ERR_HOST_OOM;
    return status;
}

/* For devices without digests: searches the store once the bytes are in the buffer. */
static rvl_status find_copied(const rvli_shared_transfer *t, rvli_lane *l)
{
    rvli_store_found found = {.fd = -1};
    l->digest = rvli_secret_digest_of(&t->all.secret, l->buffer, l->bytes);
    rvl_status status = rvli_store_find(t->all.store, l->digest, l->bytes, false, &found);
    l->place = found.place;
    l->found_fd = found.fd;
    return status;
}

/* Waits for the oldest copy, and hands its segment to a thread. */
static rvl_status arrive(rvli_shared_transfer *t)
{
    rvli_lane *l = &t->lanes[t->arrived++ % LANES];
    if (!l->copied)
        return RVL_OK; /* a thread has had it from the start */
    rvl_status status = wait_copied(t, l);
    if (status == RVL_OK && !l->named)
        status = find_copied(t, l);
    if (status == RVL_OK && l->found_fd < 0)
        status = reserve(t, l);
    if (status == RVL_OK) {
        rvli_lane_begin(l);
        return RVL_OK;
    }
    t->failed = l->item;
    rvli_lane_give_up_claim(l);
    return status;
}

static void free_buffer(const rvli_shared_transfer *t, rvli_lane *l)
{
    rvl_context *context = t->context;
    if (l->buffer == NULL)
        return;
    if (rvli_host_buffer_give_back(context, l->device, l->buffer, l->buffer_bytes) != RVL_OK &&
        rvli_host_buffer_give_back(context, l->device, l->buffer, l->buffer_bytes) != RVL_OK)
        rvli_log(context, RVL_LOG_WARN, "a buffer for the store could not be given back");
    l->buffer = NULL;
}

static rvl_status need_buffer(const rvli_shared_transfer *t, rvli_lane *l, int device,
                              uint64_t bytes)
{
    if (l->buffer != NULL && l->buffer_bytes >= bytes)
        return RVL_OK;
    free_buffer(t, l);
    rvl_status status = rvli_host_buffer_make(t->context, device, bytes, &l->buffer);
    if (status != RVL_OK)
        return status;
    l->buffer_bytes = bytes;
    l->device = device;
    return RVL_OK;
}

/* When its event has passed, digests of the item that were queued before are also complete. */
static rvl_status queue_copy(const rvli_shared_transfer *t, rvli_lane *l)
{
    rvl_context *context = t->context;
    const rvli_allocation *allocation = l->item->allocation;
    uint64_t from = allocation->addr + rvli_segment_offset(l->item->backup, l->number);
    rvl_status status =
        context->ops.copy_to_host(context->self, allocation->device, l->buffer, from, l->bytes);
    if (status != RVL_OK) {
        rvli_error_op("copy_to_host");
        return status;
    }
    status = context->ops.record_event(context->self, allocation->device, &l->event);
    if (status != RVL_OK)
        rvli_error_op("record_event");
    return status;
}

/* ---- Searching before copying ---- */

/* Waits until the next lane is free, and assigns it to a segment. */
static rvl_status begin_segment(rvli_shared_transfer *t, rvli_move_item *item, uint64_t number,
                                rvli_lane **lane_out)
{
    rvli_lane *l = &t->lanes[t->queued % LANES];
    rvl_status status = end_work(t, l);
    if (status != RVL_OK)
        return status;
    l->item = item;
    l->number = number;
    l->bytes = rvli_segment_bytes(item->backup, number);
    l->copied = l->named = l->apart = l->checked = false;
    *lane_out = l;
    return RVL_OK;
}

static rvl_status queue_segment(rvli_shared_transfer *t)
{
    t->queued++;
    return t->queued - t->arrived > COPIES_AHEAD ? arrive(t) : RVL_OK;
}

static rvl_status copy_segment(rvli_shared_transfer *t, rvli_lane *l)
{
    rvl_status status = need_buffer(t, l, l->item->allocation->device, l->bytes);
    if (status == RVL_OK)
        status = queue_copy(t, l);
    if (status != RVL_OK)
        return status;
    l->copied = true;
    l->item->copied_bytes += l->bytes;
    return queue_segment(t);
}

/* A thread checks the segment that was found, unless a user has already verified it. */
static rvl_status take_uncopied(rvli_shared_transfer *t, rvli_lane *l,
                                const rvli_store_found *found)
{
    l->place = found->place;
    l->found_fd = found->fd;
    l->checked = found->checked;
    rvli_lane_begin(l);
    return queue_segment(t);
}

/*
 * Uses the store's segment without a copy if there is one. Otherwise copies, once no other user is
 * copying the same content.
 */
static rvl_status ask_for_segment(rvli_shared_transfer *t, rvli_lane *l, bool wait)
{
    rvli_store_found found = {.fd = -1};
    l->digest = rvli_shared_name_of(t->context, l->item, l->number, &t->all.secret);
    l->named = true;
    rvl_status status = rvli_store_find(t->all.store, l->digest, l->bytes, true, &found);
    if (status != RVL_OK)
        return status;
    if (found.fd >= 0)
        return take_uncopied(t, l, &found);
    if (found.busy && wait) {
        delay(t, l->item, l->number, RVLI_SEGMENT_IS_BUSY);
        return RVL_OK;
    }
    l->place = found.place;
    l->claimed = !found.busy;
    status = copy_segment(t, l);
    if (status != RVL_OK)
        rvli_lane_give_up_claim(l);
    return status;
}

/* Saves a segment the first time that the transfer visits it. */
static rvl_status save_segment(rvli_shared_transfer *t, rvli_move_item *item, uint64_t number)
{
    rvli_lane *l = NULL;
    rvl_status status = begin_segment(t, item, number, &l);
    if (status != RVL_OK)
        return status;
    return item->names != NULL ? ask_for_segment(t, l, true) : copy_segment(t, l);
}

/* ---- Returning to delayed segments ---- */

static rvl_status arrive_all(rvli_shared_transfer *t)
{
    rvl_status status = RVL_OK;
    while (status == RVL_OK && t->arrived < t->queued)
        status = arrive(t);
    return status;
}

/* Saves a segment although the store has other content with its digest. */
static rvl_status save_apart(rvli_shared_transfer *t, rvli_move_item *item, uint64_t number)
{
    rvli_lane *l = NULL;
    rvl_status status = begin_segment(t, item, number, &l);
    if (status != RVL_OK)
        return status;
    l->digest = rvli_shared_name_of(t->context, item, number, &t->all.secret);
    l->named = l->apart = true;
    return copy_segment(t, l);
}

/* This transfer itself may be adding that content, so all its copies are finished first. */
static rvl_status await_segment(rvli_shared_transfer *t, rvli_move_item *item, uint64_t number)
{
    rvli_segment *s = &item->backup->segments->at[number];
    const uint64_t end_ns = rvli_monotonic_ns() + PATIENCE_NS;
    rvl_status status = arrive_all(t);
    while (status == RVL_OK) {
        rvli_lane *l = NULL;
        status = begin_segment(t, item, number, &l);
        t->impatient = t->impatient || rvli_monotonic_ns() > end_ns;
        if (status == RVL_OK)
            status = ask_for_segment(t, l, !t->impatient);
        if (s->delay != RVLI_SEGMENT_IS_BUSY)
            return status;
        s->delay = RVLI_SEGMENT_GOES_ON;
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
    return status;
}

static rvl_status return_to(rvli_shared_transfer *t, rvli_move_item *item, uint64_t number)
{
    rvli_segment *s = &item->backup->segments->at[number];
    rvli_segment_delay why = s->delay;
    s->delay = RVLI_SEGMENT_GOES_ON;
    if (s->saved_by != t->number || why == RVLI_SEGMENT_GOES_ON)
        return RVL_OK;
    return why == RVLI_SEGMENT_IS_WRONG ? save_apart(t, item, number)
                                        : await_segment(t, item, number);
}

static rvl_status return_to_delayed(rvli_shared_transfer *t)
{
    rvl_status status = RVL_OK;
    t->delayed = false;
    for (size_t i = 0; i < t->transition->item_count && status == RVL_OK; i++) {
        rvli_move_item *item = &t->transition->items[i];
        if (item->backup == NULL || !rvli_backup_is_in_store(item->backup))
            continue;
        for (uint64_t n = 0; n < rvli_segment_count(item->backup) && status == RVL_OK; n++)
            status = return_to(t, item, n);
        if (status != RVL_OK && t->failed == NULL)
            t->failed = item;
    }
    return status;
}

/* ---- The store ---- */

static rvl_status open_transfer(rvli_transition *transition)
{
    rvli_secret secret = {0};
    if (transition->shared != NULL)
        return RVL_OK;
    rvl_status status = rvli_store_client_renew(transition->context->store);
    if (status == RVL_OK)
        status = rvli_store_secret(transition->context->store, &secret);
    if (status != RVL_OK)
        return status;
    rvli_shared_transfer *transfer = calloc(1, sizeof *transfer);
    if (transfer == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup");
    transfer->context = transition->context;
    transfer->transition = transition;
    transfer->all = (rvli_lanes){.store = transition->context->store, .secret = secret};
    transfer->number = atomic_fetch_add(&transfers, 1) + 1;
    pthread_mutex_init(&transfer->all.lock, NULL);
    pthread_cond_init(&transfer->all.done, NULL);
    for (int i = 0; i < LANES; i++)
        transfer->lanes[i] = rvli_lane_of(&transfer->all);
    transition->shared = transfer;
    rvli_error_before before; /* without threads, the calling thread runs the jobs, more slowly */
    rvli_error_keep(&before);
    if (rvli_workers_start(LANES, NULL, NULL, &transfer->all.workers) != RVL_OK)
        rvli_error_put_back(&before);
    return RVL_OK;
}

/* Drains copies that nobody needs. */
static void give_up_copies(rvli_shared_transfer *t)
{
    rvl_error cause = *rvli_error_get();
    for (; t->arrived < t->queued; t->arrived++) {
        rvli_lane *l = &t->lanes[t->arrived % LANES];
        if (l->copied) {
            (void)wait_copied(t, l);
            rvli_lane_give_up_claim(l);
        }
    }
    rvli_error_set(&cause);
}

/*
 * Returns the first failure of the jobs, in the order of their segments. Later failures are
 * discarded.
 */
static rvl_status end_all(rvli_shared_transfer *t, rvl_status status)
{
    for (uint64_t i = 0; i < LANES; i++) {
        rvli_lane *l = &t->lanes[(t->queued + i) % LANES];
        rvli_lane_await(l);
        if (status == RVL_OK)
            status = end_work(t, l);
        l->status = RVL_OK;
        l->wrong = false;
    }
    return status;
}

static rvl_status settle(rvli_shared_transfer *t, rvl_status status)
{
    for (;;) {
        if (status == RVL_OK)
            status = arrive_all(t);
        give_up_copies(t);
        status = end_all(t, status);
        if (status != RVL_OK || !t->delayed)
            return status;
        status = return_to_delayed(t);
    }
}

rvl_status rvli_shared_begin(rvli_transition *transition, const rvli_secret **secret_out)
{
    rvl_status status = open_transfer(transition);
    if (status == RVL_OK)
        *secret_out = &transition->shared->all.secret;
    return status;
}

rvl_status rvli_shared_save(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup *backup, uint64_t first, uint64_t end)
{
    rvl_status status = open_transfer(transition);
    if (status != RVL_OK)
        return status;
    rvli_shared_transfer *t = transition->shared;
    rvli_move_item *item = rvli_transition_item(transition, allocation->id);
    t->full = false;
    t->failed = NULL;
    for (uint64_t i = first; i < end && status == RVL_OK; i++) {
        if (backup->segments->at[i].saved_by == t->number)
            continue;
        backup->segments->at[i].saved_by = t->number;
        backup->segments->at[i].delay = RVLI_SEGMENT_GOES_ON;
        status = save_segment(t, item, i);
    }
    return t->context->store_overflow ? settle(t, status) : status;
}

rvl_status rvli_shared_settle(rvli_transition *transition, rvl_status status, size_t *failed_out)
{
    rvli_shared_transfer *t = transition->shared;
    if (t == NULL)
        return status;
    status = settle(t, status);
    if (status != RVL_OK && t->failed != NULL)
        *failed_out = (size_t)(t->failed - transition->items);
    return status;
}

void rvli_shared_end(rvli_transition *transition)
{
    rvli_shared_transfer *t = transition->shared;
    if (t == NULL)
        return;
    if (t->all.workers != NULL)
        rvli_workers_stop(t->all.workers);
    rvli_error_before before;
    rvli_error_keep(&before);
    for (int i = 0; i < LANES; i++)
        free_buffer(t, &t->lanes[i]);
    rvli_error_put_back(&before);
    pthread_cond_destroy(&t->all.done);
    pthread_mutex_destroy(&t->all.lock);
    free(t);
    transition->shared = NULL;
}

bool rvli_shared_was_full(const rvli_transition *transition)
{
    return transition->shared != NULL && transition->shared->full;
}
