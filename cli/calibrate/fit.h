/* SPDX-License-Identifier: MIT */
/* A profile from what was measured: lines through medians. */
#ifndef RVL_CLI_CALIBRATE_FIT_H
#define RVL_CLI_CALIBRATE_FIT_H

#include "calibrate/samples.h"
#include "reveille/sim.h"

/*
 * Fills the costs and what the driver takes. A cost that nothing was measured of stays as it is,
 * and its bit in the answer is 0: bit i is the i-th of RVL_COST_MAP, and then of
 * RVL_COST_WAITS_MAP.
 */
uint32_t fit_profile(const samples *all, rvl_profile *profile);

#endif
