/* SPDX-License-Identifier: MIT */
/*
 * Markdown as GitHub shows it, for comments on pull requests.
 *
 * Names of stages and tags are code, in which nobody is mentioned and nothing is marked up. A `|`
 * is escaped there, too, since it would end the cell of a table.
 */
#ifndef RVL_CLI_MARKDOWN_H
#define RVL_CLI_MARKDOWN_H

#include <stdbool.h>
#include <stdio.h>

#include "document.h"
#include "reveille/replay.h"

#define MARKDOWN_ROWS_MAX 100u /* of a table: a comment may have 65,536 characters */

/* A sentence, in which nothing is markup, a mention or a link. false: no memory. */
bool markdown_text(FILE *out, const char *text);

/* A name in a cell, as code. false: no memory. */
bool markdown_name(FILE *out, const char *name);

/* A whole replay: the verdict, the devices, what more says (it may be NULL), and a row for each
 * name of a stage. */
bool markdown_replay(FILE *out, const rvl_replay *replay, const replay_more *more);

#endif
