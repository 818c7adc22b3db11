/* SPDX-License-Identifier: MIT */
/*
 * The rule for how many tokens each generated sequence of a simulated run has. The command line
 * names it, the processes apply it (simcuda/python/_reveille_lengths.py), and the command reports
 * the lengths that it gave.
 */
#ifndef RVL_CLI_LENGTHS_H
#define RVL_CLI_LENGTHS_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "simcuda/machine/machine.h"

#define LENGTHS_WHY_BYTES (PATH_MAX + 256)

typedef struct lengths_rule {
    const char *named;       /* as on the command line; NULL: not given */
    char text[PATH_MAX + 8]; /* "uniform:1..64", "lognormal:512,0.8", "file:/PATH"; "": max */
} lengths_rule;

/* Whether a rule names a file. */
bool lengths_are_of_file(const char *named);

/* Checks rule->named and sets rule->text. false: stores in why what is wrong, after the name. */
bool lengths_read(lengths_rule *rule, char why[LENGTHS_WHY_BYTES]);

/* Prints on stderr which lengths the rule gave, after the prefix who. Nothing without a rule. */
void lengths_tell(const lengths_rule *rule, const rvli_machine_lengths *given, const char *who);

/* Writes a comma and the key "responses" with its value; nothing without a rule. false: no memory.
 */
bool lengths_write_json(FILE *out, const lengths_rule *rule, const rvli_machine_lengths *given);

#endif
