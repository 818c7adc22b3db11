/* SPDX-License-Identifier: MIT */
/* Reports reads of unknown content by a program on simulated GPUs, at the end of `reveille run`. */
#ifndef RVL_CLI_UNKNOWN_H
#define RVL_CLI_UNKNOWN_H

#include "simcuda/machine/machine.h"

/*
 * Prints on stderr how many such reads there were, and where most of them happened; nothing if
 * there were none. who: a prefix, "" or "check NAME on DEVICE: ".
 */
void unknown_tell(const rvli_unknown_reads *reads, const char *who);

/* Reports in this way the results that were assumed where only a kernel could have chosen. */
void assumed_tell(const rvli_unknown_reads *assumed, const char *who);

#endif
