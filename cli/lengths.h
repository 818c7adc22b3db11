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

#include "simcuda/machine/machine.h"

#define LENGTHS_WHY_BYTES (PATH_MAX + 256)

typedef struct lengths_rule {
    const char *named;       /* as it was given; NULL: it was not */
    char text[PATH_MAX + 8]; /* "uniform:1..64", "lognormal:512,0.8", "file:/PATH"; "": max */
} lengths_rule;

/* Whether a rule is the name of a file. */
bool lengths_are_of_file(const char *named);

/* Reads what was named, and sets the text. false: why says what is wrong with it, by its name. */
bool lengths_read(lengths_rule *rule, char why[LENGTHS_WHY_BYTES]);

/* Says on stderr what the rule gave, behind a prefix; nothing without a rule. */
void lengths_tell(const lengths_rule *rule, const rvli_machine_lengths *given, const char *who);

/* The value of a key "responses" behind a comma; nothing without a rule. false: no memory. */
bool lengths_write_json(FILE *out, const lengths_rule *rule, const rvli_machine_lengths *given);

#endif
