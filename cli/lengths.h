/* SPDX-License-Identifier: MIT */
/*
 * How many tokens each sequence has that a simulated run generates: the rule, as it is named on the
 * command line and handed to the processes (simcuda/python/_reveille_lengths.py), and what it gave.
 */
#ifndef RVL_CLI_LENGTHS_H
#define RVL_CLI_LENGTHS_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "options.h"
#include "simcuda/machine/machine.h"

typedef struct lengths_rule {
    const char *named;       /* as it was given; NULL: it was not */
    char text[PATH_MAX + 8]; /* "uniform:1..64", "lognormal:512,0.8", "file:/PATH"; "": max */
} lengths_rule;

/* Reads what was named, and sets the text. Returns 0 or, having complained, the exit status. */
int lengths_read(const command_spec *command, lengths_rule *rule);

/* Says on stderr what the rule gave; nothing without one. */
void lengths_tell(const lengths_rule *rule, const rvli_machine_lengths *given);

/* The value of a key "responses" behind a comma; nothing without a rule. false: no memory. */
bool lengths_write_json(FILE *out, const lengths_rule *rule, const rvli_machine_lengths *given);

#endif
