/* SPDX-License-Identifier: MIT */
#include "core/backup/shared_transfer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "base/workers.h"
#include "core/backup/host_buffer.h"
#include "core/backup/segments.h"
#include "core/enter.h"

/*
 * Segments on their way at once, each with a thread that writes or compares it. With 12 two
 * processes on 32 cores took a third less time than with 8 (docs/performance.md).
 */
#define LANES 12
#define COPIES_AHEAD 3 /* of them, on the link */

/* One segment on its way into a backup: from the device to the buffer, from there to the store. */
typedef struct lane {
    rvli_job job;
    rvli_shared_transfer *transfer;
    rvli_move_item *item;
    uint64_t number; /* of the segment */
    uint64_t bytes;
    void *buffer;
    uint64_t buffer_bytes;
    int device;     /* of the buffer */
    uint64_t event; /* the copy has ended */
    rvli_digest digest;
    rvli_store_place place; /* of what the store has found, behind found_fd */
    int found_fd;           /* -1: nothing */
    rvli_draft draft;
    bool at_work;           /* with the transfer's lock: a job has it */
    bool another_was_first; /* room was given back */
    rvl_status status;      /* of the job */
    bool full;
    rvl_error error;
} lane;

struct rvli_shared_transfer {
    rvl_context *context;
    uint64_t number; /* of the transfer, in this process */
    bool full;
    const rvli_move_item *failed; /* NULL: none yet */
    rvli_workers *workers;        /* NULL: the calling thread does it */
    pthread_mutex_t lock;         /* guards at_work */
    pthread_cond_t done;
    lane lanes[LANES];
    uint64_t queued;  /* segments of which the copy was queued: lanes take turns */
    uint64_t arrived; /* and of those, segments of which it has ended */
};

static _Atomic uint64_t transfers;

/* ---- From a buffer to the store ---- */

static rvli_store_client *store_of(const lane *l)
{
    return l->transfer->context->store;
}

/*
 * Takes what the store answered with, if it is equal. *taken_out: the segment is in its place. The
 * descriptor is closed.
 */
static rvl_status take_found(const lane *l, int fd, rvli_store_place place, bool *taken_out)
{
    bool equal = false;
    rvl_status status = rvli_segment_compare(l->buffer, l->bytes, fd, &equal);
    if (status == RVL_OK && equal) {
        status = rvli_segment_map(store_of(l), l->item->backup, l->number, fd, place, true);
        *taken_out = status == RVL_OK;
    } else {
        rvli_store_drop(store_of(l), place);
    }
    close(fd);
    return status;
}

/* Hands the draft over. Another may have been first: then that one's is taken, if it is equal. */
static rvl_status add_draft(lane *l, bool apart)
{
    rvli_store_place place = {0};
    int first = -1;
    bool taken = false;
    rvl_status status =
        rvli_store_add(store_of(l), l->digest, l->bytes, l->draft.fd, apart, &place, &first);
    if (status != RVL_OK)
        return status;
    if (first >= 0) {
        status = take_found(l, first, place, &taken);
        l->another_was_first = taken;
        return status != RVL_OK || taken ? status : add_draft(l, true);
    }
    status = rvli_segment_map(store_of(l), l->item->backup, l->number, l->draft.fd, place, false);
    rvli_draft_taken(&l->draft); /* its room is the segment's now */
    return status;
}

static rvl_status write_draft(lane *l)
{
    rvl_status status = rvli_draft_write(&l->draft, l->buffer);
    l->full = status == RVL_ERR_HOST_OOM;
    return status;
}

/* Content of this digest that is not equal is kept beside it. */
static rvl_status settle_segment(lane *l)
{
    bool taken = false, apart = l->found_fd >= 0;
    rvl_status status = RVL_OK;
    if (apart) {
        status = take_found(l, l->found_fd, l->place, &taken);
        l->found_fd = -1;
        if (status != RVL_OK || taken)
            return status;
        status = rvli_draft_reserve(store_of(l), &l->draft, l->bytes);
        l->full = status == RVL_ERR_HOST_OOM;
    }
    if (status == RVL_OK)
        status = write_draft(l);
    if (status == RVL_OK)
        status = add_draft(l, apart);
    return status;
}

static void run_lane(rvli_job *job)
{
    lane *l = (lane *)(void *)job;
    l->status = settle_segment(l);
    if (l->status != RVL_OK)
        l->error = *rvli_error_get();
    rvli_draft_discard(store_of(l), &l->draft);
    pthread_mutex_lock(&l->transfer->lock);
    l->at_work = false;
    pthread_cond_signal(&l->transfer->done);
    pthread_mutex_unlock(&l->transfer->lock);
}

static void begin_work(lane *l)
{
    l->at_work = true; /* nobody looks at it yet */
    if (l->transfer->workers != NULL)
        rvli_workers_queue(l->transfer->workers, &l->job);
    else
        run_lane(&l->job);
}

static void await_work(lane *l)
{
    pthread_mutex_lock(&l->transfer->lock);
    while (l->at_work)
        pthread_cond_wait(&l->transfer->done, &l->transfer->lock);
    pthread_mutex_unlock(&l->transfer->lock);
}

/* Its job's answer, once: the lane is free. */
static rvl_status end_work(lane *l)
{
    await_work(l);
    rvl_status status = l->status;
    if (status != RVL_OK) {
        rvli_error_set(&l->error);
        l->transfer->failed = l->item;
        l->transfer->full = l->full;
    }
    l->status = RVL_OK;
    return status;
}

/* ---- From the device to a buffer ---- */

static rvl_status wait_copied(const lane *l)
{
    rvl_context *context = l->transfer->context;
    rvl_status status =
        context->ops.wait_event(context->self, l->item->allocation->device, l->event);
    if (status != RVL_OK)
        rvli_error_op("wait_event");
    return status;
}

/* From those of its granules, which the device has computed, or else from its bytes. */
static rvli_digest digest_of(const lane *l)
{
    const rvli_allocation *allocation = l->item->allocation;
    uint64_t granule = l->transfer->context->devices[allocation->device].facts.granularity_bytes;
    uint64_t first = rvli_segment_offset(l->item->backup, l->number) / granule;
    if (l->item->digests == NULL)
        return rvli_digest_of(l->buffer, l->bytes);
    return rvli_digest_of(&l->item->digests[first], l->bytes / granule * sizeof *l->item->digests);
}

/* Waits until all jobs have ended; whether one of them gave room back. */
static bool await_room(rvli_shared_transfer *t)
{
    bool any = false;
    for (int i = 0; i < LANES; i++) {
        await_work(&t->lanes[i]);
        any = any || t->lanes[i].another_was_first;
        t->lanes[i].another_was_first = false;
    }
    return any;
}

/* In the order of the segments, so that it is the same ones that find no room. */
static rvl_status reserve(lane *l)
{
    rvl_status status = rvli_draft_reserve(store_of(l), &l->draft, l->bytes);
    if (status == RVL_ERR_HOST_OOM && await_room(l->transfer))
        status = rvli_draft_reserve(store_of(l), &l->draft, l->bytes);
    l->transfer->full = status == RVL_ERR_HOST_OOM;
    return status;
}

/* Waits for the oldest copy, and gives its segment to a thread. */
static rvl_status arrive(rvli_shared_transfer *t)
{
    lane *l = &t->lanes[t->arrived++ % LANES];
    rvl_status status = wait_copied(l);
    if (status == RVL_OK) {
        l->digest = digest_of(l);
        status = rvli_store_find(store_of(l), l->digest, l->bytes, &l->place, &l->found_fd);
    }
    if (status == RVL_OK && l->found_fd < 0)
        status = reserve(l);
    if (status == RVL_OK)
        begin_work(l);
    else
        t->failed = l->item;
    return status;
}

static void free_buffer(lane *l)
{
    rvl_context *context = l->transfer->context;
    if (l->buffer == NULL)
        return;
    if (rvli_host_buffer_give_back(context, l->device, l->buffer, l->buffer_bytes) != RVL_OK &&
        rvli_host_buffer_give_back(context, l->device, l->buffer, l->buffer_bytes) != RVL_OK)
        rvli_log(context, RVL_LOG_WARN, "a buffer for the store could not be given back");
    l->buffer = NULL;
}

static rvl_status need_buffer(lane *l, int device, uint64_t bytes)
{
    if (l->buffer != NULL && l->buffer_bytes >= bytes)
        return RVL_OK;
    free_buffer(l);
    rvl_status status = rvli_host_buffer_make(l->transfer->context, device, bytes, &l->buffer);
    if (status != RVL_OK)
        return status;
    l->buffer_bytes = bytes;
    l->device = device;
    return RVL_OK;
}

/* Digests of the item that were queued before are there as well when its event has passed. */
static rvl_status queue_copy(lane *l)
{
    rvl_context *context = l->transfer->context;
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

static rvl_status save_segment(rvli_shared_transfer *t, rvli_move_item *item, uint64_t number)
{
    lane *l = &t->lanes[t->queued % LANES];
    uint64_t bytes = rvli_segment_bytes(item->backup, number);
    rvl_status status = end_work(l);
    if (status == RVL_OK)
        status = need_buffer(l, item->allocation->device, bytes);
    if (status != RVL_OK)
        return status;
    l->item = item;
    l->number = number;
    l->bytes = bytes;
    status = queue_copy(l);
    if (status != RVL_OK)
        return status;
    t->queued++;
    return t->queued - t->arrived > COPIES_AHEAD ? arrive(t) : RVL_OK;
}

/* ---- The store ---- */

static rvl_status open_transfer(rvli_transition *transition)
{
    if (transition->shared != NULL)
        return RVL_OK;
    rvl_status status = rvli_store_client_renew(transition->context->store);
    if (status != RVL_OK)
        return status;
    rvli_shared_transfer *transfer = calloc(1, sizeof *transfer);
    if (transfer == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup");
    transfer->context = transition->context;
    transfer->number = atomic_fetch_add(&transfers, 1) + 1;
    pthread_mutex_init(&transfer->lock, NULL);
    pthread_cond_init(&transfer->done, NULL);
    for (int i = 0; i < LANES; i++)
        transfer->lanes[i] = (lane){.job.run = run_lane,
                                    .transfer = transfer,
                                    .found_fd = -1,
                                    .draft.fd = -1,
                                    .status = RVL_OK};
    transition->shared = transfer;
    rvli_error_before before; /* without threads it works as well, more slowly */
    rvli_error_keep(&before);
    if (rvli_workers_start(LANES, NULL, NULL, &transfer->workers) != RVL_OK)
        rvli_error_put_back(&before);
    return RVL_OK;
}

/* Waits for what is still on the link, for nobody. */
static void give_up_copies(rvli_shared_transfer *t)
{
    rvl_error cause = *rvli_error_get();
    for (; t->arrived < t->queued; t->arrived++)
        (void)wait_copied(&t->lanes[t->arrived % LANES]);
    rvli_error_set(&cause);
}

/* The first failure of jobs, in the order of their segments; later ones are forgotten. */
static rvl_status end_all(rvli_shared_transfer *t, rvl_status status)
{
    for (uint64_t i = 0; i < LANES; i++) {
        lane *l = &t->lanes[(t->queued + i) % LANES];
        await_work(l);
        if (status == RVL_OK)
            status = end_work(l);
        l->status = RVL_OK;
    }
    return status;
}

static rvl_status settle(rvli_shared_transfer *t, rvl_status status)
{
    while (status == RVL_OK && t->arrived < t->queued)
        status = arrive(t);
    give_up_copies(t);
    return end_all(t, status);
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
    for (uint64_t i = first; i < end && status == RVL_OK; i++) {
        if (backup->segments->at[i].saved_by == t->number)
            continue;
        backup->segments->at[i].saved_by = t->number;
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
    if (t->workers != NULL)
        rvli_workers_stop(t->workers);
    rvli_error_before before;
    rvli_error_keep(&before);
    for (int i = 0; i < LANES; i++)
        free_buffer(&t->lanes[i]);
    rvli_error_put_back(&before);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    free(t);
    transition->shared = NULL;
}

bool rvli_shared_was_full(const rvli_transition *transition)
{
    return transition->shared != NULL && transition->shared->full;
}
