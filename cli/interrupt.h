/* SPDX-License-Identifier: MIT */
/* Ctrl-C where work is done in parts: the first stops after the part, the second at once. */
#ifndef RVL_CLI_INTERRUPT_H
#define RVL_CLI_INTERRUPT_H

#include <stdbool.h>

/* From here on SIGINT and SIGTERM are noted. */
void interrupt_watch(void);

/* Whether one has come. */
bool interrupt_came(void);

/* They do again what they did. */
void interrupt_unwatch(void);

/* Ends the process by the signal that came, if one did: a shell then stops its loop, too. */
void interrupt_finish(void);

#endif
