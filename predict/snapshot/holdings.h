/* SPDX-License-Identifier: MIT */
/*
 * What reserved memory is for at one instant, and which lines of the program requested it.
 *
 * A tensor has a tag and a place. The tag comes from the first of these sources: what the program
 * or PyTorch wrote on the tensor; in a recording of `reveille run`, what was seen while the program
 * ran (the tensor at this address is a parameter, a gradient, or the optimizer's); the times at
 * which the tensor was made and freed (docs/snapshot.md has the rules). All other reserved memory
 * is rounding, pending or cached. The parts add up to the reserved bytes exactly.
 */
#ifndef RVL_PREDICT_SNAPSHOT_HOLDINGS_H
#define RVL_PREDICT_SNAPSHOT_HOLDINGS_H

#include "predict/snapshot/frames.h"
#include "predict/snapshot/run.h"
#include "predict/snapshot/tensors.h"

/* The number of lines to keep for each stage: the largest ones. */
#define RVLI_HOLDING_LINES 64u

/*
 * Fills in the parts and lines of every stage of a run. If the options have windows, these replace
 * the stages. RVL_OK or RVL_ERR_HOST_OOM.
 */
rvl_status rvli_holdings_find(rvli_run *run, const rvl_snapshot_options *options);
void rvli_holdings_clear(rvli_holdings *holdings);

#endif
