/* SPDX-License-Identifier: MIT */
/*
 * A resume in parts: the split of the content into pieces, and what becomes of each.
 *
 * All contents that have digests stand in a row, by item. The row is cut into as many parts of
 * about equal size, in whole granules, and parts into pieces that are not too large to be restored
 * alone. The cut depends on sizes and granularity only, so that processes with the same layout cut
 * alike. A part is one stretch of the row, and so one stretch of each item that it touches.
 */
#ifndef RVL_CORE_PARTS_H
#define RVL_CORE_PARTS_H

#include "core/transition.h"
#include "reveille/parts.h"

struct rvli_piece {
    rvli_move_item *item;
    rvli_stretch at;
    uint32_t part;
    rvl_piece_state state;
};

/* Takes the part out of the options, for which all else is a resume like any. RVL_ERR_INVALID. */
rvl_status rvli_parts_read(rvl_resume_options *options, rvli_parts *parts_out);

/*
 * Cuts the marked items: what the prepare loads of each is its own part from here on. Nothing to do
 * with one part. RVL_ERR_HOST_OOM.
 */
rvl_status rvli_parts_cut(rvli_transition *transition);

#endif
