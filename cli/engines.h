/* SPDX-License-Identifier: MIT */
/* KV caches that engines have sized in a simulated run. */
#ifndef RVL_CLI_ENGINES_H
#define RVL_CLI_ENGINES_H

#include <stdbool.h>
#include <stdio.h>

#include "simcuda/machine/machine.h"

/* A line for each, for people and in Markdown; nothing of none. */
void engines_print(const rvli_machine_engines *of);
void engines_write_markdown(FILE *out, const rvli_machine_engines *of);

/* The value of a key "engines" behind a comma; nothing of none. false: no memory. */
bool engines_write_json(FILE *out, const rvli_machine_engines *of);

#endif
