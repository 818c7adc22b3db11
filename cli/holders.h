/* SPDX-License-Identifier: MIT */
/* What memory is for at a peak, and the lines of the program that asked for most of it. */
#ifndef RVL_CLI_HOLDERS_H
#define RVL_CLI_HOLDERS_H

#include "reveille/snapshot.h"

#define HOLDERS_LINES 5u /* that are printed for a stage */

/*
 * Prints "at the peak of WHERE: weights 14.2 GiB, ..." and below it the lines that hold most. Where
 * the snapshot knows neither, nothing. false: no memory.
 */
bool holders_print(const rvl_snapshot *snapshot, uint32_t stage, const char *where);

#endif
