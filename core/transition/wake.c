/* SPDX-License-Identifier: MIT */
/*
 * A wake in order: a resume in batches.
 *
 * The caller's thread creates and maps everything, so lack of device memory is returned at once and
 * changes nothing. It does so before the first copy, because between copies such calls took a
 * millisecond each on one card (docs/decisions/core.md). A thread of the library then queues the
 * contents batch by batch, some ahead of the batch that it waits for, compares digests, and sets
 * the final states. To wait for an allocation is to wait for its state.
 *
 * Memory that was handed over is in use and is never taken back. If a later batch fails, only the
 * rest is undone, and a second resume continues with it.
 *
 * In two phases, the first does everything except restoring contents. The second only starts the
 * thread.
 */
#include "reveille/wake.h"

#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/options.h"
#include "base/workers.h"
#include "core/backup/backup.h"
#include "core/backup/backup_disk.h"
#include "core/backup/content.h"
#include "core/transition/order.h"
#include "core/transition/prepare.h"
#include "core/transition/resume.h"

/* Approximate size of a batch: a third of a millisecond on a link of 55 GB/s. */
#define BATCH_BYTES (UINT64_C(16) << 20)
/* More than two milliseconds on that link. */
#define AHEAD_BYTES (UINT64_C(128) << 20)

/* Neighbours in the order, on one device and in one kind of store, that arrive together. */
typedef struct batch {
    size_t begin, end;
    int device;
    bool on_disk;
    uint64_t end_bytes;  /* sum over all batches up to and including this one */
    bool queued;         /* event is recorded, and not waited for */
    uint64_t event;      /* recorded after its copies */
    rvli_disk_mark mark; /* taken after its reads */
} batch;

struct rvl_resuming {
    rvli_transition transition;
    rvl_context *context;
    rvl_arrived_fn arrived;
    void *arrived_user;
    rvl_arrival *arrivals; /* in order; NULL if there is no callback */
    batch *batches;        /* capacity: the number of items */
    size_t batch_count;
    size_t load_count; /* batches with queued contents */
    rvli_workers *worker;
    rvli_job job;
    bool prepared; /* the thread has not been started on the job yet */
    rvl_status status;
    rvl_error error;
};

static size_t number_of(const rvl_resuming *wake, const rvli_move_item *item)
{
    return (size_t)(item - wake->transition.items);
}

static rvli_move_item *item_at(const rvl_resuming *wake, size_t place)
{
    return rvli_order_item(&wake->transition, place);
}

/* ---- Batches ---- */

static bool is_on_disk(const rvl_resuming *wake, const rvli_allocation *allocation)
{
    return !wake->transition.skip_content && allocation->backup != NULL &&
           allocation->backup->store == &rvli_disk_store;
}

/* Returns the batch that begins at a place. */
static batch cut_batch(const rvl_resuming *wake, size_t begin)
{
    const rvli_allocation *first = item_at(wake, begin)->allocation;
    batch b = {
        .begin = begin, .end = begin, .device = first->device, .on_disk = is_on_disk(wake, first)};
    for (uint64_t bytes = 0; b.end < wake->transition.item_count && bytes < BATCH_BYTES; b.end++) {
        const rvli_allocation *next = item_at(wake, b.end)->allocation;
        if (next->device != b.device || is_on_disk(wake, next) != b.on_disk)
            break;
        bytes += next->size;
    }
    return b;
}

static rvl_status cut(rvl_resuming *wake)
{
    size_t count = wake->transition.item_count;
    uint64_t bytes = 0;
    if (count == 0)
        return RVL_OK;
    wake->batches = calloc(count, sizeof *wake->batches);
    if (wake->arrived != NULL)
        wake->arrivals = calloc(count, sizeof *wake->arrivals);
    if (wake->batches == NULL || (wake->arrived != NULL && wake->arrivals == NULL))
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a resume in order");
    for (size_t begin = 0; begin < count; begin = wake->batches[wake->batch_count++].end) {
        batch *b = &wake->batches[wake->batch_count];
        *b = cut_batch(wake, begin);
        for (size_t i = begin; i < b->end; i++)
            bytes += item_at(wake, i)->allocation->size;
        b->end_bytes = bytes;
    }
    return RVL_OK;
}

/* ---- Queueing ---- */

/* Queues the check of a batch's contents, and records an event after it. */
static rvl_status close_batch(rvl_resuming *wake, batch *b)
{
    rvl_context *context = wake->context;
    rvl_status status = RVL_OK;
    for (size_t i = b->begin; i < b->end && status == RVL_OK && !wake->transition.skip_content; i++)
        status = rvli_content_queue_check(&wake->transition, item_at(wake, i));
    if (status != RVL_OK)
        return status;
    status = context->ops.record_event(context->self, b->device, &b->event);
    if (status != RVL_OK)
        rvli_error_op("record_event");
    b->queued = status == RVL_OK;
    return status;
}

/*
 * Queues the contents of a batch. The check of a batch on disk is queued later, once it has been
 * read.
 */
static rvl_status load_batch(rvl_resuming *wake, batch *b, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    for (size_t i = b->begin; i < b->end && status == RVL_OK; i++) {
        *failed_out = number_of(wake, item_at(wake, i));
        status = rvli_resume_load_item(&wake->transition, item_at(wake, i));
    }
    b->mark = rvli_disk_mark_now(&wake->transition);
    return status == RVL_OK && !b->on_disk ? close_batch(wake, b) : status;
}

/*
 * Returns whether enough is queued after a batch to keep link and disk busy while it is handed
 * over.
 */
static bool is_far_ahead(const rvl_resuming *wake, size_t number)
{
    const batch *wanted = &wake->batches[number];
    if (wake->load_count <= number)
        return false;
    if (wanted->on_disk)
        return rvli_disk_is_past(&wake->transition, &wanted->mark);
    return wake->batches[wake->load_count].on_disk || /* it would delay batches that are ready
                                                         sooner */
           wake->batches[wake->load_count - 1].end_bytes >= wanted->end_bytes + AHEAD_BYTES;
}

static rvl_status load_ahead(rvl_resuming *wake, size_t number, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    while (wake->load_count < wake->batch_count && status == RVL_OK && !is_far_ahead(wake, number))
        status = load_batch(wake, &wake->batches[wake->load_count++], failed_out);
    return status;
}

/* ---- Arriving ---- */

/* Waiting frees the event, whatever the result. */
static rvl_status wait_event(rvl_resuming *wake, batch *b)
{
    rvl_context *context = wake->context;
    b->queued = false;
    rvl_status status = context->ops.wait_event(context->self, b->device, b->event);
    if (status != RVL_OK)
        rvli_error_op("wait_event");
    return status;
}

static rvl_status await(rvl_resuming *wake, batch *b, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    *failed_out = number_of(wake, item_at(wake, b->begin));
    if (b->on_disk)
        status = rvli_disk_settle_to(&wake->transition, &b->mark);
    if (status == RVL_OK && b->on_disk)
        status = close_batch(wake, b);
    if (status == RVL_OK)
        status = wait_event(wake, b);
    for (size_t i = b->begin; i < b->end && status == RVL_OK && !wake->transition.skip_content;
         i++) {
        *failed_out = number_of(wake, item_at(wake, i));
        status = rvli_content_check(&wake->transition, item_at(wake, i));
    }
    return status;
}

/* Must run before the allocations are handed over. */
static void note_arrivals(rvl_resuming *wake, const batch *b)
{
    uint64_t now_ns = rvli_clock_now(&wake->context->clock);
    for (size_t i = b->begin; i < b->end; i++) {
        const rvli_allocation *allocation = item_at(wake, i)->allocation;
        wake->arrivals[i] = (rvl_arrival){
            .struct_size = sizeof(rvl_arrival),
            .addr = allocation->addr,
            .size_bytes = allocation->size,
            .time_ns = now_ns,
            .tag = allocation->tag->number,
            .device = allocation->device,
        };
    }
}

static void hand_over(rvl_resuming *wake, const batch *b)
{
    if (wake->arrived != NULL)
        note_arrivals(wake, b);
    rvli_resume_hand_over(&wake->transition, b->begin, b->end);
    rvli_callback_enter();
    for (size_t i = b->begin; i < b->end && wake->arrived != NULL; i++)
        wake->arrived(wake->arrived_user, &wake->arrivals[i]);
    rvli_callback_leave();
}

static rvl_status arrive_all(rvl_resuming *wake, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < wake->batch_count && status == RVL_OK; i++) {
        status = load_ahead(wake, i, failed_out);
        if (status == RVL_OK)
            status = await(wake, &wake->batches[i], failed_out);
        if (status == RVL_OK)
            hand_over(wake, &wake->batches[i]);
    }
    return status;
}

/* ---- Ending ---- */

/* Ensures that nothing is in flight, and no event is left. */
static void quiesce(rvl_resuming *wake)
{
    rvl_error cause = *rvli_error_get();
    for (size_t i = 0; i < wake->batch_count; i++)
        if (wake->batches[i].queued)
            (void)wait_event(wake, &wake->batches[i]);
    rvli_error_set(&cause);
    rvli_content_quiesce(&wake->transition);
}

static void run(rvli_job *job)
{
    rvl_resuming *wake = (rvl_resuming *)((char *)job - offsetof(rvl_resuming, job));
    size_t failed = 0;
    wake->status = arrive_all(wake, &failed);
    if (wake->status != RVL_OK) {
        quiesce(wake);
        rvli_resume_fail(&wake->transition, failed);
        wake->error = *rvli_error_get();
    } else if (wake->transition.item_count > 0) {
        rvli_resume_end(&wake->transition);
    }
    rvli_transition_end(&wake->transition);
}

static void forget(rvl_resuming *wake)
{
    free(wake->arrivals);
    free(wake->batches);
    free(wake);
}

/* ---- The calls ---- */

static rvl_status map_all(rvl_resuming *wake, size_t *failed_out)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < wake->transition.item_count && status == RVL_OK; i++) {
        *failed_out = number_of(wake, item_at(wake, i));
        status = rvli_resume_map_item(&wake->transition, item_at(wake, i));
    }
    return status;
}

/*
 * Creates and maps the memory, and starts a thread for the content. On failure everything is
 * unchanged.
 */
static rvl_status begin(rvl_resuming *wake, const rvl_resume_options *options)
{
    size_t failed = 0;
    rvl_status status = rvli_resume_mark(&wake->transition, options);
    if (status != RVL_OK)
        return status;
    status = rvli_resume_create(&wake->transition, options->timeout_ns, &failed);
    if (status == RVL_OK)
        status = map_all(wake, &failed);
    if (status == RVL_OK)
        status = cut(wake);
    if (status == RVL_OK && wake->prepared) /* waits for the filling of handed-over blocks */
        status = rvli_content_settle(&wake->transition, false, &failed);
    if (status == RVL_OK)
        status = rvli_workers_start(1, NULL, NULL, &wake->worker);
    if (status != RVL_OK && wake->transition.item_count > 0) {
        quiesce(wake);
        rvli_resume_fail(&wake->transition, failed);
    }
    return status;
}

static rvl_status new_wake(rvl_context *context, const rvl_resume_options *options, bool prepared,
                           rvl_resuming **wake_out)
{
    rvl_resuming *wake = calloc(1, sizeof *wake);
    if (wake == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a resume in order");
    wake->context = context;
    wake->arrived = options->arrived;
    wake->arrived_user = options->arrived_user;
    wake->prepared = prepared;
    wake->job.run = run;
    *wake_out = wake;
    return RVL_OK;
}

/* Does everything that can fail before restoring starts. */
static rvl_status make_wake(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                            const rvl_resume_options *user_options, bool prepared,
                            rvl_resuming **resuming_out)
{
    rvl_resume_options told, options;
    rvl_resuming *wake = NULL;
    rvl_status status = rvli_options_read(&told, sizeof told, user_options);
    if (status == RVL_OK && resuming_out == NULL)
        status = rvli_error(RVL_ERR_INVALID, "resuming_out is NULL");
    if (status == RVL_OK)
        status = new_wake(context, &told, prepared, &wake);
    if (status != RVL_OK)
        return status;
    told.arrived = NULL; /* the common part of every resume follows */
    status = rvli_resume_begin(context, tags, tag_count, &told, &options, &wake->transition);
    if (status != RVL_OK) {
        forget(wake);
        return status;
    }
    status = begin(wake, &options);
    if (status != RVL_OK) {
        rvli_transition_end(&wake->transition);
        forget(wake);
        return status;
    }
    *resuming_out = wake;
    return RVL_OK;
}

static void count_wake(rvl_context *context)
{
    rvli_lock(context);
    context->wakes++;
    rvli_unlock(context);
}

rvl_status rvl_resume_start(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                            const rvl_resume_options *options, rvl_resuming **resuming_out)
{
    rvl_status status = make_wake(context, tags, tag_count, options, false, resuming_out);
    if (status != RVL_OK)
        return status;
    count_wake(context);
    rvli_workers_queue((*resuming_out)->worker, &(*resuming_out)->job);
    return RVL_OK;
}

rvl_status rvl_resume_finish(rvl_resuming *wake)
{
    if (wake == NULL)
        return rvli_error(RVL_ERR_INVALID, "the handle is NULL");
    rvl_context *context = wake->context;
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK && wake->prepared)
        status = rvli_error(RVL_ERR_STATE, "the resume is only prepared: rvl_resume_start_commit() "
                                           "or rvl_resume_start_abort() first");
    if (status != RVL_OK)
        return status;
    rvli_workers_stop(wake->worker);
    status = wake->status;
    if (status != RVL_OK)
        rvli_error_set(&wake->error);
    rvli_lock(context);
    context->wakes--;
    rvli_unlock(context);
    forget(wake);
    return status;
}

/* ---- In two phases ---- */

rvl_status rvl_resume_start_prepare(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                                    const rvl_resume_options *options, rvl_resuming **resuming_out)
{
    rvl_status status = make_wake(context, tags, tag_count, options, true, resuming_out);
    if (status != RVL_OK)
        return status;
    rvli_prepare_hold(&(*resuming_out)->transition);
    return RVL_OK;
}

static rvl_status check_prepared(const rvl_resuming *wake)
{
    if (wake == NULL)
        return rvli_error(RVL_ERR_INVALID, "the handle is NULL");
    rvl_status status = rvli_context_check_change(wake->context);
    if (status == RVL_OK && !wake->prepared)
        status = rvli_error(RVL_ERR_STATE,
                            "the resume has been started already: rvl_resume_finish() ends it");
    return status;
}

rvl_status rvl_resume_start_commit(rvl_resuming *wake)
{
    rvl_status status = check_prepared(wake);
    if (status != RVL_OK)
        return status;
    wake->prepared = false;
    count_wake(wake->context);
    rvli_prepare_take_up(&wake->transition);
    rvli_workers_queue(wake->worker, &wake->job);
    return RVL_OK;
}

rvl_status rvl_resume_start_abort(rvl_resuming *wake)
{
    rvl_status status = check_prepared(wake);
    if (status != RVL_OK)
        return status;
    rvli_workers_stop(wake->worker);
    rvli_prepare_take_up(&wake->transition);
    status = rvli_resume_abort(&wake->transition);
    rvli_transition_end(&wake->transition);
    forget(wake);
    return status;
}

/* ---- Waiting for one allocation ---- */

static struct timespec end_of(uint64_t timeout_ns)
{
    uint64_t now_ns = rvli_monotonic_ns();
    uint64_t end_ns = timeout_ns < INT64_MAX - now_ns ? now_ns + timeout_ns : INT64_MAX;
    return (struct timespec){.tv_sec = (time_t)(end_ns / 1000000000u),
                             .tv_nsec = (long)(end_ns % 1000000000u)};
}

/*
 * Returns RVL_OK if the allocation has arrived, or RVL_ERR_TIMEOUT if it is on its way. With the
 * lock held.
 */
static rvl_status look(rvl_context *context, rvl_addr addr)
{
    rvli_allocation *found = NULL;
    rvl_status status = rvli_index_containing(&context->by_addr, addr, &found);
    if (status != RVL_OK)
        return status;
    if (found == NULL || found->freeing)
        return rvli_error(RVL_ERR_NOT_FOUND, "no allocation contains this address");
    const rvli_allocation *mover = rvli_mover(found);
    if (mover->state == RVL_STATE_ACTIVE)
        return RVL_OK;
    if (mover->state != RVL_STATE_RESUMING)
        status = rvli_error(RVL_ERR_STATE, "the allocation is paused or lost, and no resume is "
                                           "bringing it: resume its tag (again)");
    else if (mover->tag->prepared)
        status = rvli_error(RVL_ERR_BUSY, "the allocation is prepared for a move: commit or abort "
                                          "that first");
    else
        status = rvli_error(RVL_ERR_TIMEOUT, "the allocation has not arrived yet");
    rvli_error_tag(mover->tag->key->name);
    return status;
}

rvl_status rvl_allocation_wait(rvl_context *context, rvl_addr addr, uint64_t timeout_ns)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && timeout_ns > 0)
        status = rvli_context_check_change(context);
    if (status != RVL_OK)
        return status;
    struct timespec end = end_of(timeout_ns);
    rvli_error_before before;
    rvli_error_keep(&before);
    bool in_time = timeout_ns > 0;
    rvli_lock(context);
    status = look(context, addr);
    while (status == RVL_ERR_TIMEOUT && in_time) {
        in_time = pthread_cond_timedwait(&context->moved, &context->lock, &end) == 0;
        status = look(context, addr);
    }
    rvli_unlock(context);
    if (status == RVL_OK)
        rvli_error_put_back(&before);
    return status;
}
