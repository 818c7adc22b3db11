/* SPDX-License-Identifier: MIT */
/*
 * What reserved memory is for at one instant, and which lines of the program asked for it.
 *
 * A tensor has a tag and a place. The tag is what the program or PyTorch has written on it; else,
 * in a recording of `reveille run`, what was seen of it while the program ran (what lies at its
 * address is a parameter, a gradient, the optimizer's); else what follows from when it was made
 * and from when it went (docs/snapshot.md has the rules). All else that is reserved is rounding,
 * pending or cached. The sum is what is reserved, to the byte.
 */
#ifndef RVL_PREDICT_SNAPSHOT_HOLDINGS_H
#define RVL_PREDICT_SNAPSHOT_HOLDINGS_H

#include "predict/snapshot/frames.h"
#include "predict/snapshot/run.h"
#include "predict/snapshot/tensors.h"

/* Lines that are kept of a stage: the largest. */
#define RVLI_HOLDING_LINES 64u

/*
 * Fills the parts and lines of every stage of a run. If the options have windows, these become its
 * stages. RVL_OK or RVL_ERR_HOST_OOM.
 */
rvl_status rvli_holdings_find(rvli_run *run, const rvl_snapshot_options *options);
void rvli_holdings_clear(rvli_holdings *holdings);

#endif
