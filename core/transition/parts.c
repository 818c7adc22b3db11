/* SPDX-License-Identifier: MIT */
#include "core/transition/parts.h"

#include <stdlib.h>

#include "base/element.h"
#include "base/error.h"
#include "core/backup/backup_disk.h"
#include "core/backup/content.h"
#include "core/copies.h"
#include "core/fail.h"
#include "core/transition/prepare.h"

/* Large enough for any link, and small enough that one wrong piece costs little. */
#define PIECE_BYTES (UINT64_C(64) << 20)

/* ---- Cutting ---- */

rvl_status rvli_parts_read(rvl_resume_options *options, rvli_parts *parts_out)
{
    if (options->part_index != 0 && options->part_index >= options->part_count)
        return rvli_error(RVL_ERR_INVALID, "part_index must be below part_count");
    if (options->part_count > RVL_PARTS_MAX)
        return rvli_error(RVL_ERR_INVALID, "part_count is above RVL_PARTS_MAX");
    *parts_out = (rvli_parts){.index = options->part_index,
                              .count = options->part_count,
                              .by_pieces = options->flags & RVL_RESUME_BY_PIECES};
    options->part_index = options->part_count = 0;
    options->flags &= ~(uint64_t)RVL_RESUME_BY_PIECES;
    return RVL_OK;
}

/* The row of all content that is cut. */
typedef struct row {
    uint64_t bytes;
    uint64_t pieces_most; /* upper bound of the number of pieces */
} row;

static row measure(const rvli_transition *transition)
{
    row all = {.pieces_most = transition->parts.count};
    for (size_t i = 0; i < transition->item_count; i++) {
        uint64_t size = transition->items[i].allocation->size;
        if (!rvli_content_is_known(&transition->items[i]))
            continue;
        all.bytes += size;
        all.pieces_most += size / PIECE_BYTES + 1;
    }
    return all;
}

/* Returns the part of the granule at a position in the row. */
static uint32_t part_at(const rvli_parts *parts, const row *all, uint64_t place)
{
    uint64_t whole = all->bytes / parts->count, rest = all->bytes % parts->count;
    uint64_t long_bytes = rest * (whole + 1); /* this many bytes belong to parts that are one byte
                                                 longer */
    return (uint32_t)(place < long_bytes ? place / (whole + 1)
                                         : rest + (place - long_bytes) / whole);
}

/* Adds a granule to the last piece, or begins a new piece with it. */
static void add_granule(rvli_parts *parts, rvli_move_item *item, rvli_stretch granule,
                        uint32_t part)
{
    rvli_piece *last = parts->piece_count > 0 ? &parts->pieces[parts->piece_count - 1] : NULL;
    if (last != NULL && last->item == item && last->part == part && last->at.size < PIECE_BYTES) {
        last->at.size += granule.size;
        return;
    }
    bool restored = part == parts->index && !parts->by_pieces;
    parts->pieces[parts->piece_count++] = (rvli_piece){
        .item = item,
        .at = granule,
        .part = part,
        .state = restored ? RVL_PIECE_RESTORED : RVL_PIECE_OPEN,
    };
    parts->open_count += !restored;
}

/* begin: the item's position in the row. */
static void cut_item(rvli_transition *transition, const row *all, rvli_move_item *item,
                     uint64_t begin)
{
    const rvli_allocation *allocation = item->allocation;
    rvli_parts *parts = &transition->parts;
    rvli_stretch granule = {
        .size = transition->context->devices[allocation->device].facts.granularity_bytes};
    item->load = (rvli_stretch){0};
    for (; granule.offset < allocation->size; granule.offset += granule.size) {
        uint32_t part = part_at(parts, all, begin + granule.offset);
        add_granule(parts, item, granule, part);
        if (part != parts->index || parts->by_pieces)
            continue;
        if (item->load.size == 0)
            item->load.offset = granule.offset;
        item->load.size += granule.size;
    }
}

/* The pieces of a part are neighbours in the list. */
static void find_own(rvli_parts *parts)
{
    for (size_t i = parts->piece_count; i > 0 && parts->by_pieces; i--) {
        if (parts->pieces[i - 1].part != parts->index)
            continue;
        parts->due = parts->queued = i - 1;
        if (parts->own_end == 0)
            parts->own_end = i;
    }
}

rvl_status rvli_parts_cut(rvli_transition *transition)
{
    rvli_parts *parts = &transition->parts;
    if (parts->count <= 1 || transition->skip_content)
        return RVL_OK;
    const row all = measure(transition);
    parts->pieces = malloc(all.pieces_most * sizeof *parts->pieces);
    if (parts->pieces == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the pieces of a resume");
    uint64_t begin = 0;
    for (size_t i = 0; i < transition->item_count; i++) {
        rvli_move_item *item = &transition->items[i];
        if (!rvli_content_is_known(item))
            continue;
        cut_item(transition, &all, item, begin);
        begin += item->allocation->size;
    }
    find_own(parts);
    return RVL_OK;
}

/* ---- Listing ---- */

static rvl_piece describe(const rvli_transition *transition, const rvli_piece *piece)
{
    rvli_digest digest = rvli_content_digest(transition, piece->item, piece->at);
    return (rvl_piece){
        .addr = piece->item->allocation->addr + piece->at.offset,
        .size_bytes = piece->at.size,
        .digest = {digest.low, digest.high},
        .part = piece->part,
        .device = piece->item->allocation->device,
        .state = piece->state,
    };
}

rvl_status rvl_transition_copy_pieces(rvl_transition *transition, rvl_piece *pieces_out,
                                      size_t piece_size, size_t capacity, size_t *count_out)
{
    const rvli_elements_out out = {.element = RVLI_ELEMENT(rvl_piece, reserved),
                                   .array = pieces_out,
                                   .size = piece_size,
                                   .capacity = capacity};
    rvl_status status = rvli_prepared_check(transition);
    if (status == RVL_OK)
        status = rvli_elements_check(&out, count_out);
    if (status != RVL_OK)
        return status;
    const rvli_parts *parts = &transition->parts;
    for (size_t i = 0; i < parts->piece_count && i < capacity; i++) {
        const rvl_piece piece = describe(transition, &parts->pieces[i]);
        rvli_elements_put(&out, i, &piece);
    }
    *count_out = parts->piece_count;
    return RVL_OK;
}

/* ---- Filling ---- */

/* The open pieces for a step: those that the caller has filled, or all. */
typedef struct chosen {
    rvli_transition *transition;
    const bool *filled; /* NULL: all */
} chosen;

static bool is_chosen(const chosen *of, size_t i)
{
    return of->transition->parts.pieces[i].state == RVL_PIECE_OPEN &&
           (of->filled == NULL || of->filled[i]);
}

/* Stops at the first failure. */
static rvl_status each_chosen(const chosen *of,
                              rvl_status (*step)(const chosen *of, const rvli_piece *piece),
                              size_t *failed_out)
{
    const rvli_parts *parts = &of->transition->parts;
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < parts->piece_count && status == RVL_OK; i++) {
        if (!is_chosen(of, i))
            continue;
        *failed_out = i;
        status = step(of, &parts->pieces[i]);
    }
    return status;
}

static rvl_status learn_piece(const chosen *of, const rvli_piece *piece)
{
    bool arriving = of->filled == NULL;
    return rvli_content_learn(of->transition, piece->item, piece->at, arriving);
}

static rvl_status learn(const chosen *of, size_t *failed_out)
{
    rvl_status status = each_chosen(of, learn_piece, failed_out);
    if (status == RVL_OK)
        status = rvli_copies_wait(of->transition->context, of->transition->device_mask);
    return status;
}

void rvli_piece_close(rvli_parts *parts, rvli_piece *piece, rvl_piece_state state)
{
    piece->state = state;
    parts->open_count--;
    if (state == RVL_PIECE_FILLED)
        piece->item->filled_bytes += piece->at.size;
}

/* Closes pieces that the caller has filled correctly. */
static rvl_status take_filled(const chosen *of, size_t *failed_out)
{
    rvli_parts *parts = &of->transition->parts;
    rvl_status status = learn(of, failed_out);
    for (size_t i = 0; i < parts->piece_count && status == RVL_OK; i++) {
        rvli_piece *piece = &parts->pieces[i];
        if (is_chosen(of, i) && rvli_content_is_right(of->transition, piece->item, piece->at))
            rvli_piece_close(parts, piece, RVL_PIECE_FILLED);
    }
    return status;
}

static rvl_status load_piece(const chosen *of, const rvli_piece *piece)
{
    const rvli_allocation *allocation = piece->item->allocation;
    return rvli_content_load(of->transition, allocation, allocation->backup, piece->at);
}

static rvl_status load_open(const chosen *of, size_t *failed_out)
{
    rvl_status status = each_chosen(of, load_piece, failed_out);
    return status == RVL_OK ? rvli_disk_settle(of->transition) : status;
}

static rvl_status check_restored(const chosen *of, size_t *failed_out)
{
    const rvli_parts *parts = &of->transition->parts;
    for (size_t i = 0; i < parts->piece_count; i++) {
        const rvli_piece *piece = &parts->pieces[i];
        *failed_out = i;
        if (is_chosen(of, i) && !rvli_content_is_right(of->transition, piece->item, piece->at))
            return rvli_content_differs();
    }
    return RVL_OK;
}

/* Restores the other pieces from the backup. */
static rvl_status restore_open(const chosen *of, size_t *failed_out)
{
    rvli_parts *parts = &of->transition->parts;
    rvl_status status = load_open(of, failed_out);
    if (status == RVL_OK)
        status = learn(of, failed_out);
    if (status == RVL_OK)
        status = check_restored(of, failed_out);
    for (size_t i = 0; i < parts->piece_count && status == RVL_OK; i++)
        if (is_chosen(of, i))
            rvli_piece_close(parts, &parts->pieces[i], RVL_PIECE_RESTORED);
    return status;
}

void rvli_parts_fail(const rvli_transition *transition, size_t failed)
{
    const rvli_piece *piece = &transition->parts.pieces[failed];
    rvli_fail(transition->context, "resume in parts", piece->item->allocation->tag,
              piece->item->allocation->device, piece->at.size);
}

static rvl_status fill(rvli_transition *transition, const bool *filled)
{
    size_t failed = 0;
    rvl_status status = RVL_OK;
    rvli_part_load_stop(transition);
    if (filled != NULL)
        status = take_filled(&(const chosen){transition, filled}, &failed);
    if (status == RVL_OK && transition->parts.open_count > 0)
        status = restore_open(&(const chosen){transition, NULL}, &failed);
    if (status != RVL_OK) {
        rvli_content_quiesce(transition);
        rvli_parts_fail(transition, failed);
    }
    rvli_disk_end(transition);
    return status;
}

rvl_status rvl_transition_fill(rvl_transition *transition, const bool *filled, size_t piece_count)
{
    rvl_status status = rvli_prepared_check(transition);
    if (status != RVL_OK)
        return status;
    if (filled == NULL ? piece_count != 0 : piece_count != transition->parts.piece_count)
        return rvli_error(RVL_ERR_INVALID,
                          "piece_count must be that of rvl_transition_copy_pieces() "
                          "with filled, and 0 without it");
    if (transition->parts.open_count == 0)
        return RVL_OK;
    const rvli_clock *clock = &transition->context->clock;
    uint64_t start_ns = rvli_clock_now(clock);
    status = fill(transition, filled);
    transition->spent_ns += rvli_clock_now(clock) - start_ns;
    return status;
}
