/* SPDX-License-Identifier: MIT */
/*
 * The files that the command writes. Each is whole when it appears under its name (base/output.h);
 * a signal that ends the command leaves no draft. One is open at a time.
 */
#ifndef RVL_CLI_OUTPUT_H
#define RVL_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/output.h"

typedef struct output_file {
    FILE *stream;
    rvli_output file; /* unused for the standard output */
} output_file;

/*
 * Begins a file; "-" is one of that name. Returns 0, or says why it cannot be begun and returns the
 * exit status: a path that leads nowhere is bad input.
 */
int output_open(const char *path, output_file *output_out);

/* The standard output, to be written like a file. main() sees to it that all has arrived. */
output_file output_to_stdout(void);

/*
 * Ends a file: it takes its name, or, if the content is not whole, goes. Says what was wrong.
 * Returns 0 or the exit status.
 */
int output_finish(output_file *output, bool whole);

/*
 * On a terminal, a line on stderr: what was written, and what to do with it next, such as "reveille
 * replay %s", in which %s becomes the name as a shell takes it. next NULL: nothing.
 */
void output_tell(const char *path, const char *next);

/* Removes a file that was begun. It has been said why. */
void output_abandon(output_file *output);

/* ---- output_check.c ---- */

/* An output as it was asked for: "-o", "page.html". path NULL: it was not. */
typedef struct output_name {
    const char *option;
    const char *path;
} output_name;

/*
 * Refuses outputs that would replace an input or each other, by whatever names: a link or another
 * spelling is the same file. Inputs may be NULL. Returns 0 or the exit status.
 */
int outputs_check_input(const output_name *outputs, size_t count, const char *input);
int outputs_check_each_other(const output_name *outputs, size_t count);

#endif
