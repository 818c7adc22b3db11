/* SPDX-License-Identifier: MIT */
/*
 * The entries of a recording as they would have been if the program had done something else.
 *
 * Recomputing a call, as torch.utils.checkpoint does: the tensors that the call keeps for the
 * backward pass are freed when it returns, except for the one that it returns. The backward pass
 * makes the call again before the first of these tensors is freed, and only as far as the last
 * tensor that backward needs. The lines within a call show where it begins and ends. A call returns
 * the tensor that it makes last.
 *
 * Meeting a refused request: the request gets its memory, and frees it at once. The peak is then
 * what would have been needed.
 */
#ifndef RVL_PREDICT_SNAPSHOT_REWRITE_H
#define RVL_PREDICT_SNAPSHOT_REWRITE_H

#include "predict/snapshot/recording.h"

/* Whether a text has the form "FILE:LINE". The file may lack its first folders. */
bool rvli_rewrite_knows(const char *place);

/*
 * Replaces the entries. again: the line with the calls to recompute; NULL: none. RVL_OK,
 * RVL_ERR_NOT_FOUND (no call of that line keeps anything for a backward pass) or RVL_ERR_HOST_OOM.
 * A call that fails changes nothing.
 */
rvl_status rvli_rewrite(rvli_recording *recording, const char *again, bool meet_refused);

#endif
