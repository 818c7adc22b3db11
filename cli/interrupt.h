/* SPDX-License-Identifier: MIT */
/* Ctrl-C during work that is done in parts: the first one stops after the current part, the second
 * one at once. */
#ifndef RVL_CLI_INTERRUPT_H
#define RVL_CLI_INTERRUPT_H

#include <stdbool.h>

/* Notes SIGINT and SIGTERM from now on. */
void interrupt_watch(void);

/* Whether one of them has arrived. */
bool interrupt_came(void);

/* Restores the previous handlers. */
void interrupt_unwatch(void);

/* Ends the process with the signal that arrived, if any, so that a shell stops its loop, too. */
void interrupt_finish(void);

#endif
