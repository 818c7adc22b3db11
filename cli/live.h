/* SPDX-License-Identifier: MIT */
/*
 * Shows a line for each device while a command runs: the memory in use, its peak, and the largest
 * holder.
 *
 * The command writes to the same terminal at times that we cannot know. The lines therefore have
 * their own rows at the bottom. The other rows become the terminal's scrolling region (DECSTBM), in
 * which the command's output scrolls as usual. Each redraw is one write() that leaves the cursor,
 * the colours and the region as the command set them.
 */
#ifndef RVL_CLI_LIVE_H
#define RVL_CLI_LIVE_H

#include <stdbool.h>

#include "simcuda/machine/machine.h"

/* Returns whether to show lines, by --progress and the kind of stderr. Sets watch_out to draw them.
 */
bool live_begin(rvli_machine_watch *watch_out);

/* Removes the lines, and lets the whole terminal scroll again. */
void live_end(void);

#endif
