/* SPDX-License-Identifier: MIT */
/*
 * A result as a document: JSON for programs, Markdown for comments on pull requests.
 *
 * `--json` prints only the document on the standard output. `--json=FILE` writes the document to a
 * file and still prints the text, so that JSON does not mix with the output of a program.
 */
#ifndef RVL_CLI_DOCUMENT_H
#define RVL_CLI_DOCUMENT_H

#include <stdio.h>

#include "options.h"

/* Whether and where a document is wanted. The field of an OPTION_DOCUMENT. */
typedef struct option_document {
    bool wanted;
    const char *path; /* NULL: the standard output */
} option_document;

#define OPTION_OF_JSON(offset)                                                                     \
    {                                                                                              \
        .kind = OPTION_DOCUMENT, .name = "json", .value = "FILE", .optional = true,                \
        .field = (offset), .usual = "text", .files = "json",                                       \
        .help = "print JSON, schema 1; with =FILE, write it there and also print the text",        \
    }

#define OPTION_OF_MARKDOWN(offset)                                                                 \
    {                                                                                              \
        .kind = OPTION_DOCUMENT, .name = "markdown", .value = "FILE", .optional = true,            \
        .field = (offset), .usual = "text", .files = "md",                                         \
        .help = "print Markdown, for a comment on a pull request; with =FILE, write it there "     \
                "and also print the text",                                                         \
    }

/*
 * Checks the documents before the work begins. Refuses two documents on the standard output, the
 * ending of another format, and a file that cannot be opened for writing. markdown may be NULL.
 * Returns 0 or the exit status.
 */
int documents_check(const command_spec *command, const option_document *json,
                    const option_document *markdown);

/* Refuses documents that would replace an input file. Returns 0 or the exit status. */
int documents_check_inputs(const option_document *json, const option_document *markdown,
                           const char *const *paths, size_t path_count);

/* Whether a document goes to the standard output, so that no text is printed. */
bool document_is_printed(const option_document *asked);

/* Writes a document. false: no memory. The stream itself records write errors. */
typedef bool (*document_fn)(FILE *out, const void *user);

/* Writes the document, if one is wanted. Returns 0 or, having complained, the exit status. */
int document_write(const option_document *asked, document_fn write, const void *user);

/* ---- replay.c ---- */

/* How to show a replay. */
typedef struct replay_view {
    bool each_stage;
    option_document json;
    option_document markdown;
} replay_view;

#define OPTION_OF_EACH_STAGE(offset)                                                               \
    {                                                                                              \
        .kind = OPTION_FLAG, .name = "each-stage", .field = (offset),                              \
        .help = "a table for each device, and in it a row for each stage",                         \
        .usual = "if processes mark stages, those with the same name share a row, and devices "    \
                 "with similar rows share a table",                                                \
    }

/* What a command adds to the result of a replay. */
typedef struct replay_more {
    bool (*print)(const void *user, const rvl_replay *replay); /* prints above the verdict */
    /* Writes keys at the end of the JSON object, each after a comma. */
    bool (*write_json)(FILE *out, const void *user, const rvl_replay *replay);
    void (*write_markdown)(FILE *out, const void *user); /* adds to the list of devices */
    const void *user;
} replay_more;

/*
 * Prints the result of a replay as text, unless a document is printed instead, and writes the
 * documents. more may be NULL. Returns 0 or the exit status.
 */
int replay_show(const rvl_replay *replay, const rvl_trace_progress *progress,
                const replay_view *view, const replay_more *more);

/* Whether all devices fit and stay within all budgets. */
bool replay_fits(const rvl_replay *replay);

/* ---- document.c ---- */

/* Writes text and a line break as the document. text NULL: complains of no memory. */
int document_write_text(const option_document *asked, const char *text);

#endif
