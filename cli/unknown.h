/* SPDX-License-Identifier: MIT */
/* What a program on simulated GPUs read back and nobody knows, at the end of `reveille run`. */
#ifndef RVL_CLI_UNKNOWN_H
#define RVL_CLI_UNKNOWN_H

#include "simcuda/machine/machine.h"

/*
 * Says on stderr how many such reads there were, and where most of them were made. Nothing of none.
 * who: before it, "" or "check NAME on DEVICE: ".
 */
void unknown_tell(const rvli_unknown_reads *reads, const char *who);

/* The same of what was assumed where only a kernel would have chosen. */
void assumed_tell(const rvli_unknown_reads *assumed, const char *who);

#endif
