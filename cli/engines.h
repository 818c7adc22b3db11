/* SPDX-License-Identifier: MIT */
/* The KV caches that engines made in a simulated run, at sizes of their choice. */
#ifndef RVL_CLI_ENGINES_H
#define RVL_CLI_ENGINES_H

#include <stdbool.h>
#include <stdio.h>

#include "simcuda/machine/machine.h"

#define ENGINES_LINE_BYTES (2 * (size_t)RVLI_WIRE_TEXT_BYTES)

/* Formats "KV cache of vLLM: 7088 tokens in 443 blocks of 16, ...". */
void engines_describe(const rvli_machine_engine *engine, char text[ENGINES_LINE_BYTES]);

/* Returns the tokens of the smallest KV cache; 0: there are no engines. */
uint64_t engines_least_tokens(const rvli_machine_engines *of);

/* Print a line for each engine, as text and in Markdown. */
void engines_print(const rvli_machine_engines *of);
void engines_write_markdown(FILE *out, const rvli_machine_engines *of);

/* Writes a comma and the key "engines" with its value; nothing without engines. false: no memory.
 */
bool engines_write_json(FILE *out, const rvli_machine_engines *of);

#endif
