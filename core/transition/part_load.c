/* SPDX-License-Identifier: MIT */
/*
 * Restores the own part of a resume in parts piece by piece, so that other processes get the first
 * pieces while the last ones are still on the link.
 *
 * The prepare queues the first pieces, and each call that waits for a piece queues some more. So
 * the link stays busy while the caller uses a piece. Pieces on a disk are only read as far ahead as
 * the ring of buffers allows. The prepare queues none of them, because it frees the ring.
 */
#include "base/error.h"
#include "core/backup/backup.h"
#include "core/backup/content.h"
#include "core/transition/parts.h"
#include "core/transition/prepare.h"

/* Ten milliseconds of a link of 55 GB/s: longer than a caller needs for a piece. */
#define AHEAD_BYTES (UINT64_C(512) << 20)

static bool is_on_disk(const rvli_piece *piece)
{
    return piece->item->allocation->backup->store == &rvli_disk_store;
}

/* ---- Queueing ---- */

/* Queues the check of a piece's content, and records an event after it. */
static rvl_status close_queue(rvli_transition *transition, rvli_piece *piece)
{
    rvl_context *context = transition->context;
    rvl_status status = RVL_OK;
    if (context->verify)
        status = rvli_content_learn(transition, piece->item, piece->at, true);
    if (status != RVL_OK)
        return status;
    status =
        context->ops.record_event(context->self, piece->item->allocation->device, &piece->event);
    if (status != RVL_OK)
        rvli_error_op("record_event");
    return status;
}

/* Queues a piece. The check of a piece on disk is queued later, once it has been read. */
static rvl_status queue_piece(rvli_transition *transition, rvli_piece *piece)
{
    const rvli_allocation *allocation = piece->item->allocation;
    rvl_status status = rvli_content_load(transition, allocation, allocation->backup, piece->at);
    piece->mark = rvli_disk_mark_now(transition);
    return status == RVL_OK && !is_on_disk(piece) ? close_queue(transition, piece) : status;
}

/* Returns whether enough is queued to keep link and disk busy until the next call. */
static bool is_far_ahead(const rvli_transition *transition)
{
    const rvli_parts *parts = &transition->parts;
    const rvli_piece *due = &parts->pieces[parts->due];
    uint64_t ahead_bytes = 0;
    if (parts->queued == parts->due)
        return false;
    if (is_on_disk(due))
        return rvli_disk_is_past(transition, &due->mark);
    for (size_t i = parts->due + 1; i < parts->queued; i++)
        ahead_bytes += parts->pieces[i].at.size;
    return is_on_disk(&parts->pieces[parts->queued]) || ahead_bytes >= AHEAD_BYTES;
}

static rvl_status queue_ahead(rvli_transition *transition, size_t *failed_out)
{
    rvli_parts *parts = &transition->parts;
    rvl_status status = RVL_OK;
    while (parts->queued < parts->own_end && status == RVL_OK && !is_far_ahead(transition)) {
        *failed_out = parts->queued;
        status = queue_piece(transition, &parts->pieces[parts->queued++]);
    }
    return status;
}

rvl_status rvli_part_load_begin(rvli_transition *transition, size_t *failed_out)
{
    rvli_parts *parts = &transition->parts;
    size_t failed = 0;
    if (parts->due == parts->own_end || is_on_disk(&parts->pieces[parts->due]))
        return RVL_OK;
    rvl_status status = queue_ahead(transition, &failed);
    if (status != RVL_OK) {
        rvli_part_load_stop(transition);
        *failed_out = (size_t)(parts->pieces[failed].item - transition->items);
    }
    return status;
}

/* ---- Waiting ---- */

/* Waiting frees the event, whatever the result. */
static rvl_status wait_event(rvl_context *context, rvli_piece *piece)
{
    uint64_t event = piece->event;
    piece->event = 0;
    rvl_status status =
        context->ops.wait_event(context->self, piece->item->allocation->device, event);
    if (status != RVL_OK)
        rvli_error_op("wait_event");
    return status;
}

static rvl_status await(rvli_transition *transition, rvli_piece *piece)
{
    rvl_status status = RVL_OK;
    if (is_on_disk(piece)) {
        status = rvli_disk_settle_to(transition, &piece->mark);
        if (status == RVL_OK)
            status = close_queue(transition, piece);
    }
    if (status == RVL_OK)
        status = wait_event(transition->context, piece);
    if (status == RVL_OK && transition->context->verify &&
        !rvli_content_is_right(transition, piece->item, piece->at))
        status = rvli_content_differs();
    return status;
}

void rvli_part_load_stop(rvli_transition *transition)
{
    rvli_parts *parts = &transition->parts;
    if (parts->queued == parts->due)
        return;
    rvl_error cause = *rvli_error_get();
    for (size_t i = parts->due; i < parts->queued; i++)
        if (parts->pieces[i].event != 0)
            (void)wait_event(transition->context, &parts->pieces[i]);
    rvli_content_quiesce(transition);
    rvli_error_set(&cause);
    parts->queued = parts->due;
}

/* ---- The call ---- */

/* Skips pieces that were filled in the meantime. */
static void pass_closed(rvli_parts *parts)
{
    while (parts->due < parts->own_end && parts->pieces[parts->due].state != RVL_PIECE_OPEN)
        parts->due++;
    if (parts->queued < parts->due)
        parts->queued = parts->due;
}

static rvl_status load_next(rvli_transition *transition)
{
    rvli_parts *parts = &transition->parts;
    size_t failed = parts->due;
    rvl_status status = queue_ahead(transition, &failed);
    if (status == RVL_OK) {
        failed = parts->due;
        status = await(transition, &parts->pieces[parts->due]);
    }
    if (status == RVL_OK) {
        rvli_piece_close(parts, &parts->pieces[parts->due++], RVL_PIECE_RESTORED);
        return RVL_OK;
    }
    rvli_part_load_stop(transition);
    rvli_parts_fail(transition, failed);
    return status;
}

rvl_status rvl_transition_load_next(rvl_transition *transition, size_t *piece_out)
{
    rvl_status status = rvli_prepared_check(transition);
    if (status == RVL_OK && piece_out == NULL)
        status = rvli_error(RVL_ERR_INVALID, "piece_out is NULL");
    if (status != RVL_OK)
        return status;
    rvli_parts *parts = &transition->parts;
    pass_closed(parts);
    if (parts->due == parts->own_end) {
        *piece_out = parts->piece_count;
        return RVL_OK;
    }
    size_t piece = parts->due;
    const rvli_clock *clock = &transition->context->clock;
    uint64_t start_ns = rvli_clock_now(clock);
    status = load_next(transition);
    transition->spent_ns += rvli_clock_now(clock) - start_ns;
    if (status == RVL_OK)
        *piece_out = piece;
    return status;
}
