/* SPDX-License-Identifier: MIT */
/*
 * Markdown for GitHub, for comments on pull requests.
 *
 * Names of stages and tags are written as code, which has no mentions and no markup. A `|` is
 * escaped even there, because it would end the cell of a table.
 */
#ifndef RVL_CLI_MARKDOWN_H
#define RVL_CLI_MARKDOWN_H

#include <stdbool.h>
#include <stdio.h>

#include "document.h"
#include "reveille/replay.h"

#define MARKDOWN_ROWS_MAX 100u /* of a table: a comment has at most 65,536 characters */

/* Writes text without markup, mentions or links. false: no memory. */
bool markdown_text(FILE *out, const char *text);

/* Writes a name in a cell, as code. false: no memory. */
bool markdown_name(FILE *out, const char *name);

/* Writes a whole replay: the verdict, the devices, the additions of more (may be NULL), and a row
 * for each stage name. false: no memory. */
bool markdown_replay(FILE *out, const rvl_replay *replay, const replay_more *more);

#endif
