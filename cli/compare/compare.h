/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of `reveille compare` share.
 *
 * A run is a JSON result, from a file, or from replaying a trace or a snapshot, so that all kinds
 * of run are compared in the same way. Stages are matched by device and name. Of several stages
 * with one name, the largest counts. Holders are matched by name, without the numbers of processes,
 * which differ between runs.
 */
#ifndef RVL_CLI_COMPARE_COMPARE_H
#define RVL_CLI_COMPARE_COMPARE_H

#include <jansson.h>

#include "command.h"

/* A: the run before; B: the run after. */
enum { COMPARE_A, COMPARE_B, COMPARE_SIDES };

/* The bytes of a holder, or of a line of the program, at the peak. */
typedef struct compare_part {
    char *name;
    int64_t bytes[COMPARE_SIDES];
} compare_part;

typedef struct compare_parts {
    compare_part *list; /* largest change first */
    size_t count;
} compare_parts;

typedef struct compare_row {
    int device;
    char *stage;
    bool has[COMPARE_SIDES];
    uint64_t count[COMPARE_SIDES]; /* number of stages of this name */
    uint64_t peak_bytes[COMPARE_SIDES];
    json_t *stages[COMPARE_SIDES]; /* the largest stage of this name; borrowed */
    compare_parts holders;         /* only if both runs have the stage */
    compare_parts lines;
} compare_row;

typedef struct comparison {
    const char *names[COMPARE_SIDES];
    json_t *runs[COMPARE_SIDES];
    char *verdicts[COMPARE_SIDES]; /* NULL: the result has none */
    compare_row *rows;             /* in the order of A, then those that only B has */
    size_t count;
} comparison;

/* ---- read.c ---- */

/*
 * Reads the JSON result of a run from a .json file, or replays a trace or a snapshot. device is for
 * traces (NULL: the trace's own). Returns 0 or, having complained, the exit status.
 */
int compare_read(const char *path, const char *device, json_t **run_out);

/* ---- difference.c ---- */

/* Compares both runs. Takes ownership of them; compare_free() frees all, also after a failure.
 * Returns 0 or the exit status. */
int compare_make(const char *const names[COMPARE_SIDES], json_t *const runs[COMPARE_SIDES],
                 comparison *made_out);
void compare_free(comparison *made);

int64_t compare_change(const compare_row *row);
/* Returns the growth in percent; 0 if one of the runs lacks the stage. */
double compare_percent(const compare_row *row);
bool compare_has_changed(const compare_row *row);
/* Returns the row that grew most, or, if none grew, that shrank most. Only rows of both runs count.
 * NULL: none of them changed. */
const compare_row *compare_most(const comparison *made);

/* ---- print.c ---- */

/* Formats a change as "+1.5 GiB" or "0 B". Returns a part of text. */
#define COMPARE_SIZE_BYTES (SIZE_TEXT_BYTES + 1)
const char *compare_size(int64_t bytes, char text[COMPARE_SIZE_BYTES]);

bool compare_print(const comparison *made);
/* These two are a document_fn for a comparison. */
bool compare_write_json(FILE *out, const void *made);
bool compare_write_markdown(FILE *out, const void *made);

#endif
