/* SPDX-License-Identifier: MIT */
/*
 * A resume in parts: splits the content into pieces, and tracks each.
 *
 * All contents with digests form a row, by item. The row is cut into parts of about equal size, in
 * whole granules, and parts into pieces that are small enough to be restored alone. The cut depends
 * only on sizes and granularity, so processes with the same layout make the same cut. A part is one
 * stretch of the row, and so one stretch of each item that it touches.
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
    uint64_t event;      /* while it is being restored: recorded after its copies; 0: none */
    rvli_disk_mark mark; /* likewise, after its reads */
};

/* Reads the part from the options, and then clears it there. RVL_ERR_INVALID. */
rvl_status rvli_parts_read(rvl_resume_options *options, rvli_parts *parts_out);

/*
 * Cuts the marked items: from now on the prepare only loads the own part of each. Does nothing with
 * one part. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_parts_cut(rvli_transition *transition);

/* Marks an open piece as restored or filled. */
void rvli_piece_close(rvli_parts *parts, rvli_piece *piece, rvl_piece_state state);

/* Completes the error of a failed call on a prepared resume. failed: the piece that failed. */
void rvli_parts_fail(const rvli_transition *transition, size_t failed);

/*
 * Queues the first pieces of the own part, if it is loaded by pieces. On failure *failed_out is the
 * item, and nothing is in flight.
 */
rvl_status rvli_part_load_begin(rvli_transition *transition, size_t *failed_out);

/* Ensures that no piece of the own part is in flight. Pieces that were not waited for stay open. */
void rvli_part_load_stop(rvli_transition *transition);

#endif
