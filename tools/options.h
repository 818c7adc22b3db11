/* SPDX-License-Identifier: MIT */
/* Reading a command line: what all subcommands do alike. */
#ifndef RVL_TOOLS_OPTIONS_H
#define RVL_TOOLS_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

#include "reveille/replay.h"

/* Before the first options_next() of a command line. */
void options_begin(void);

/*
 * The next option, as getopt_long() answers it; -1: only other words are left, from optind on.
 * letters begin with ':'. *index_out (may be NULL): the option's place in options. *word_out: the
 * word at fault where the answer is ':' or '?', else NULL.
 */
int options_next(int argc, char **argv, const char *letters, const struct option *options,
                 int *index_out, char **word_out);

/* The value of --snapshot-device. Returns 0 or, having complained, EXIT_BAD_INPUT. */
int options_snapshot_device(const char *subcommand, const char *text, uint32_t *device_out);

/* "staged" or "together", also as a setting of a step or of a check. false: it is neither. */
bool options_wake(const char *text, rvl_wake *wake_out);

/* Complains about one thing, names the help of a subcommand, and returns EXIT_BAD_INPUT. */
int options_bad_usage(const char *subcommand, const char *format, const char *what);

/* The same about what options_next() has answered: a value is missing, or nobody knows the word. */
int options_bad_option(const char *subcommand, int option, const char *word);

#endif
