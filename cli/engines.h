/* SPDX-License-Identifier: MIT */
/* KV caches that engines have sized in a simulated run. */
#ifndef RVL_CLI_ENGINES_H
#define RVL_CLI_ENGINES_H

#include <stdbool.h>
#include <stdio.h>

#include "simcuda/machine/machine.h"

#define ENGINES_LINE_BYTES (2 * (size_t)RVLI_WIRE_TEXT_BYTES)

/* "KV cache of vLLM: 7088 tokens in 443 blocks of 16, ..." */
void engines_describe(const rvli_machine_engine *engine, char text[ENGINES_LINE_BYTES]);

/* The room of the smallest; 0 of none. */
uint64_t engines_least_tokens(const rvli_machine_engines *of);

/* A line for each, for people and in Markdown; nothing of none. */
void engines_print(const rvli_machine_engines *of);
void engines_write_markdown(FILE *out, const rvli_machine_engines *of);

/* The value of a key "engines" behind a comma; nothing of none. false: no memory. */
bool engines_write_json(FILE *out, const rvli_machine_engines *of);

#endif
