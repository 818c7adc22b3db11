/* SPDX-License-Identifier: MIT */
/*
 * How far the work is, on stderr. A thread of its own tells it, so that a call that reports nothing
 * still shows that time goes by, and so that reporting costs a store.
 */
#ifndef RVL_CLI_PROGRESS_H
#define RVL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether --progress asks for it: always, never, or on a terminal. */
bool progress_wanted(bool terminal);

/* what: "replay"; unit: what is counted, "events". Both are kept by reference. */
void progress_begin(const char *what, const char *unit);

/* done of total by which the part is known, and what has been counted; total 0: it is not known. */
void progress_report(uint64_t done, uint64_t total, uint64_t counted);

/* The line goes from a terminal. Nothing of it is written after this. */
void progress_end(void);

#endif
