/* SPDX-License-Identifier: MIT */
/*
 * A resume in parts: the split of the content into pieces, and what becomes of each.
 *
 * All contents that have digests stand in a row, by item. The row is cut into as many parts of
 * about equal size, in whole granules, and parts into pieces that are not too large to be restored
 * alone. The cut depends on sizes and granularity only, so that processes with the same layout cut
 * alike. A part is one stretch of the row, and so one stretch of each item that it touches.
 */
#ifndef RVL_CORE_TRANSITION_PARTS_H
#define RVL_CORE_TRANSITION_PARTS_H

#include "core/backup/backup_disk.h"
#include "core/transition/transition.h"
#include "reveille/parts.h"

struct rvli_piece {
    rvli_move_item *item;
    rvli_stretch at;
    uint32_t part;
    rvl_piece_state state;
    uint64_t event;      /* while it is on its way: behind its copies, 0 for none; */
    rvli_disk_mark mark; /* and behind its reads */
};

/* Takes the part out of the options, for which all else is a resume like any. RVL_ERR_INVALID. */
rvl_status rvli_parts_read(rvl_resume_options *options, rvli_parts *parts_out);

/*
 * Cuts the marked items: what the prepare loads of each is its own part from here on. Nothing to do
 * with one part. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_parts_cut(rvli_transition *transition);

/* An open piece has its content. */
void rvli_piece_close(rvli_parts *parts, rvli_piece *piece, rvl_piece_state state);

/* Tells of a failed call on a prepared resume: the piece that it failed at. */
void rvli_parts_fail(const rvli_transition *transition, size_t failed);

/*
 * Queues the first pieces of the own part, if it is loaded by pieces. *failed_out: the item it
 * failed at; nothing is under way then.
 */
rvl_status rvli_part_load_begin(rvli_transition *transition, size_t *failed_out);

/* Nothing of the own part is under way any more. What was not waited for is open. */
void rvli_part_load_stop(rvli_transition *transition);

#endif
