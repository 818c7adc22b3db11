/* SPDX-License-Identifier: MIT */
/*
 * What the files of `reveille compare` share.
 *
 * A run is its JSON result, whether a file has it already or a trace or snapshot is replayed for
 * it, so that all kinds are compared alike. Stages meet by device and name: of several with one
 * name the largest counts. Holders meet by name, processes without their numbers, which differ from
 * run to run.
 */
#ifndef RVL_CLI_COMPARE_COMPARE_H
#define RVL_CLI_COMPARE_COMPARE_H

#include <jansson.h>

#include "command.h"

/* The run before, and the run after. */
enum { COMPARE_A, COMPARE_B, COMPARE_SIDES };

/* What a holder or a line of the program has at the peak. */
typedef struct compare_part {
    char *name;
    int64_t bytes[COMPARE_SIDES];
} compare_part;

typedef struct compare_parts {
    compare_part *list; /* the largest change first */
    size_t count;
} compare_parts;

typedef struct compare_row {
    int device;
    char *stage;
    bool has[COMPARE_SIDES];
    uint64_t count[COMPARE_SIDES]; /* stages of that name */
    uint64_t peak_bytes[COMPARE_SIDES];
    json_t *stages[COMPARE_SIDES]; /* the largest of that name; borrowed */
    compare_parts holders;         /* of a row that both have */
    compare_parts lines;
} compare_row;

typedef struct comparison {
    const char *names[COMPARE_SIDES];
    json_t *runs[COMPARE_SIDES];
    char *verdicts[COMPARE_SIDES]; /* NULL: the result has none */
    compare_row *rows;             /* in the order of A, and then those of B alone */
    size_t count;
} comparison;

/* ---- read.c ---- */

/*
 * The JSON result of a run: of a .json file, or of a trace or snapshot that is replayed. device
 * (NULL: its own) is of those. Returns 0 or, having complained, the exit status.
 */
int compare_read(const char *path, const char *device, json_t **run_out);

/* ---- difference.c ---- */

/* Fills in rows from both runs, which it takes. Returns 0 or the exit status. */
int compare_make(const char *const names[COMPARE_SIDES], json_t *const runs[COMPARE_SIDES],
                 comparison *made_out);
void compare_free(comparison *made);

int64_t compare_change(const compare_row *row);
/* Growth in percent; 0 where either run has no such stage. */
double compare_percent(const compare_row *row);
bool compare_has_changed(const compare_row *row);
/* The row that grew most, or else that changed most; NULL: none changed. */
const compare_row *compare_most(const comparison *made);

/* ---- print.c ---- */

/* "+1.5 GiB"; "0 B" */
#define COMPARE_SIZE_BYTES (SIZE_TEXT_BYTES + 1)
const char *compare_size(int64_t bytes, char text[COMPARE_SIZE_BYTES]);

bool compare_print(const comparison *made);
/* Both are a document_fn, of a comparison. */
bool compare_write_json(FILE *out, const void *made);
bool compare_write_markdown(FILE *out, const void *made);

#endif
