/* SPDX-License-Identifier: MIT */
/* What the files of the command share. */
#ifndef RVL_CLI_COMMAND_H
#define RVL_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/shown.h"
#include "reveille/replay.h"

/* Exit statuses, as docs/replay.md lists them. */
#define EXIT_FITS 0
#define EXIT_INTERNAL 1
#define EXIT_BAD_INPUT 2
#define EXIT_DOES_NOT_FIT 3
#define EXIT_INTERRUPTED 130 /* as shells report SIGINT */

/* A subcommand: argv[0] is its name. Returns the exit status. */
int command_replay(int argc, char **argv);
int command_record(int argc, char **argv);
int command_run(int argc, char **argv);
int command_fit(int argc, char **argv);
int command_report(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_calibrate(int argc, char **argv);
int command_store(int argc, char **argv);
int command_sleep(int argc, char **argv);
int command_weights(int argc, char **argv);
int command_wake(int argc, char **argv);
int command_model(int argc, char **argv);
int command_snapshot(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_check(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_manual(int argc, char **argv);

/* Their option tables. */
extern const struct command_spec replay_spec, record_spec, run_spec, fit_spec, report_spec,
    devices_spec, calibrate_spec, store_spec, sleep_spec, wake_spec, model_spec, snapshot_spec,
    weights_spec, plan_spec, check_spec, compare_spec, completion_spec, manual_spec;

/*
 * Prints "reveille: MESSAGE" on stderr, with unsafe characters escaped (base/shown.h). For
 * EXIT_INTERNAL, a second line names the version and the system. Returns status.
 */
int complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Complains about an output that cannot be written. Your message ends with the remedy. This is not
 * a bug to report, so no version follows. Returns EXIT_INTERNAL.
 */
int complain_of_file(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Appends later complaints to text instead, for a caller that shows them in another way. Cuts at
 * size. NULL: print to stderr again.
 */
void complain_into(char *text, size_t size);

/* Prints why a replay was refused, and where. Returns the exit status. */
int explain_replay(rvl_status status);

#define EXPLANATION_BYTES 8192

/* Stores that as text: "FILE:LINE:COLUMN: why", cut at size. Returns the exit status. */
int describe_replay(rvl_status status, char *text, size_t size);

/* ---- kinds.c ---- */

/* For a file of the wrong kind: names the command that may read it, as a line on stderr. */
void kinds_hint(const char *path);

/* ---- terminal.c ---- */

/* Whether to colour the standard output, by --color, NO_COLOR and whether it is a terminal. */
bool wants_colour(void);

/* Whether the locale uses UTF-8. If not, only ASCII is drawn. */
bool knows_utf8(void);

/* Returns the terminal's width, from COLUMNS or the terminal; 80 if neither has one. */
unsigned terminal_columns(void);

/* Returns the width that tables must fit; 0: any, because the standard output is not a terminal, or
 * its width is not known. */
unsigned table_columns(void);

/* ---- text.c ---- */

/* Formats a size as "94.2 GiB": in B, KiB, MiB or GiB, by its magnitude. Returns text. */
#define SIZE_TEXT_BYTES 32
const char *format_size(uint64_t bytes, char text[SIZE_TEXT_BYTES]);

/* Formats "once" or "2 times". Returns text. */
#define TIMES_TEXT_BYTES 32
const char *format_times(uint64_t count, char text[TIMES_TEXT_BYTES]);

/* Formats "1 stage" or "2 stages". Returns text. */
#define COUNT_TEXT_BYTES 64
const char *format_count(uint64_t count, const char *one, const char *many,
                         char text[COUNT_TEXT_BYTES]);

/* Formats "+1.25 %" or "-0.31 %"; "0.00 %" if two decimals show no difference. Returns text. */
#define CHANGE_TEXT_BYTES 32
const char *format_change(double percent, char text[CHANGE_TEXT_BYTES]);

/*
 * Return a copy of outside text that is safe to show (base/shown.h); printable(): in a line of
 * text. The caller frees it. NULL: no memory.
 */
char *shown(rvli_shown_as as, const char *text);
char *printable(const char *name);

/* Writes such text to a stream. false: no memory. */
bool write_shown(FILE *out, rvli_shown_as as, const char *text);

/* printf() that escapes unsafe characters. Keeps a line break at the end of the format. */
bool say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- table.c ---- */

typedef struct table table;

/* right: for each column, whether it is right-aligned; kept by pointer. NULL: no memory. */
table *table_new(const char *const *titles, const bool *right, size_t columns);

/* Adds a row, with a cell for each column. Copies the cells, with unsafe characters escaped. */
void table_add(table *rows, const char *const *cells);

/*
 * For a table that is too long to store its rows. First call table_widen() for every row, to learn
 * the widths; then table_print() for the titles, and table_put() for every row. table_widen() may
 * get "" for the last column. Cells must be safe to print (printable()).
 */
void table_widen(table *rows, const char *const *cells);
/* Prints a row that is not stored; marked rows in red. */
void table_put(table *rows, const char *const *cells, bool marked, const char *indent);

/* Marks the row added last. */
void table_mark_last(table *rows);

/*
 * Prints the titles and the added rows on stdout, each line after the indent. Marked rows are red,
 * if colours are wanted. false: there was no memory when a row was added.
 */
bool table_print(table *rows, const char *indent);
void table_free(table *rows);

/* ---- stages_table.c ---- */

/*
 * Prints the result as tables, without the verdict. each_stage: with a table for each device and a
 * row for each stage, even if several could share one. false: no memory.
 */
bool report_print_tables(const rvl_replay *replay, const rvl_trace_progress *progress,
                         bool each_stage);

#endif
