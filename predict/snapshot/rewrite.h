/* SPDX-License-Identifier: MIT */
/*
 * The entries of a recording as they would have been, had the program done something else.
 *
 * A call that is done again, as by torch.utils.checkpoint: what it keeps for the pass of backward
 * goes when it returns, except for what it returns. In the pass of backward the call is there once
 * more, as far as the last tensor that backward needs, before the first of these goes. Where calls
 * begin and end follows from the lines within them; a call returns the tensor that it makes last.
 *
 * A request that was refused: it is met, and its memory goes at once. The peak is then what would
 * have been needed.
 */
#ifndef RVL_PREDICT_SNAPSHOT_REWRITE_H
#define RVL_PREDICT_SNAPSHOT_REWRITE_H

#include "predict/snapshot/recording.h"

/* Whether "FILE:LINE" is in the form of a place; the file may lack its first folders. */
bool rvli_rewrite_knows(const char *place);

/*
 * Replaces the entries. again: the line with the calls that are done again; NULL: none. RVL_OK,
 * RVL_ERR_NOT_FOUND (no call of that line keeps anything for a pass of backward) or
 * RVL_ERR_HOST_OOM; only after RVL_OK anything has changed.
 */
rvl_status rvli_rewrite(rvli_recording *recording, const char *again, bool meet_refused);

#endif
