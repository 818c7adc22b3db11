/* SPDX-License-Identifier: MIT */
/*
 * The files that the command writes. A file is complete when it appears under its name
 * (base/output.h). A signal that ends the command leaves no draft. At most one file is open.
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
 * Opens a file for writing. "-" is a file of that name. Returns 0 or, having complained, the exit
 * status. A path that cannot be opened is bad input.
 */
int output_open(const char *path, output_file *output_out);

/* Returns the standard output as an output_file. main() checks that it was written. */
output_file output_to_stdout(void);

/*
 * Closes a file and gives it its name. Removes it instead if whole is false, which means that
 * memory ran out, or if writing failed. Returns 0 or, having complained, the exit status.
 */
int output_finish(output_file *output, bool whole);

/*
 * If stderr is a terminal, prints what was written and the next command to run, such as "reveille
 * replay %s". %s becomes the file name, quoted for a shell. next may be NULL.
 */
void output_tell(const char *path, const char *next);

/* Removes a file that output_open() has opened, without a message. */
void output_abandon(output_file *output);

/* ---- output_check.c ---- */

/* An output of the command line: "-o", "page.html". path NULL: not given. */
typedef struct output_name {
    const char *option;
    const char *path;
} output_name;

/*
 * Refuse outputs that would replace an input or each other. A link, or another spelling of the
 * path, is the same file. input may be NULL. Return 0 or the exit status.
 */
int outputs_check_input(const output_name *outputs, size_t count, const char *input);
int outputs_check_each_other(const output_name *outputs, size_t count);

#endif
