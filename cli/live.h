/* SPDX-License-Identifier: MIT */
/*
 * A line for each device while a command runs: what is in use, its peak, and who has the most.
 *
 * The command writes to the same terminal, and nobody tells when. So the lines have rows of their
 * own at the bottom: the rest becomes the terminal's scrolling region (DECSTBM), in which the
 * command's output scrolls as always. Each redraw is one write() that leaves cursor, colours and
 * region as the command had them.
 */
#ifndef RVL_CLI_LIVE_H
#define RVL_CLI_LIVE_H

#include <stdbool.h>

#include "simcuda/machine/machine.h"

/* Whether there are to be lines, as --progress and stderr say. Then watch_out is what draws them.
 */
bool live_begin(rvli_machine_watch *watch_out);

/* The lines go, and the terminal scrolls as a whole again. */
void live_end(void);

#endif
