/* SPDX-License-Identifier: MIT */
/* All subcommands, in the order of `reveille --help`. */
#ifndef RVL_CLI_COMMANDS_H
#define RVL_CLI_COMMANDS_H

#include "options.h"

typedef struct subcommand {
    const command_spec *spec;
    int (*run)(int argc, char **argv); /* argv[0] is its name. Returns the exit status. */
} subcommand;

extern const subcommand commands[]; /* ends with a spec of NULL */

/* The command itself, as a table: `reveille [OPTION] COMMAND`. */
extern const command_spec reveille_spec;

/* Returns the subcommand of that name. NULL: none; has complained and suggested a similar name. */
const subcommand *commands_find(const char *name);

#endif
