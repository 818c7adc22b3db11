/* SPDX-License-Identifier: MIT */
/*
 * Shows the progress of the work on stderr. A separate thread prints it. So the elapsed time
 * advances even during a call that reports nothing, and a report costs only three stores.
 */
#ifndef RVL_CLI_PROGRESS_H
#define RVL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether --progress asks for output: always, never, or if terminal is true. */
bool progress_wanted(bool terminal);

/* Starts the display. what: "replay"; unit: of the count, "events". Keeps both pointers. */
void progress_begin(const char *what, const char *unit);

/* Reports that done of total is complete, and the count to show. total 0: unknown. */
void progress_report(uint64_t done, uint64_t total, uint64_t counted);

/* Ends the display, and erases its line from a terminal. */
void progress_end(void);

#endif
