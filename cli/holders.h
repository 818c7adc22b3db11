/* SPDX-License-Identifier: MIT */
/* What memory is for at a peak, and the lines of the program that asked for most of it. */
#ifndef RVL_CLI_HOLDERS_H
#define RVL_CLI_HOLDERS_H

#include <stddef.h>

#include "reveille/snapshot.h"

#define HOLDERS_LINES 5u /* that are printed for a peak */

/* Of one snapshot, or of several processes together. Strings are those of their snapshots. */
typedef struct holding {
    rvl_snapshot_part *parts;
    rvl_snapshot_line *lines;
    size_t part_count, line_count;
} holding;

/* Adds a part; one of the same tag and module grows. false: no memory. */
bool holding_add_part(holding *to, const char *tag, const char *module, uint64_t bytes);
/* Adds all that a snapshot knows of a stage. */
bool holding_add_stage(holding *to, const rvl_snapshot *snapshot, uint32_t stage);
/* Puts parts and lines in order, the largest first. */
void holding_sort(holding *of);
void holding_clear(holding *of);

/* "forward (gpt.py:23), through forward (modeling_llama.py:239)"; the caller frees it. NULL: no
 * memory. */
char *holders_place(const rvl_snapshot_line *line);

/*
 * Prints "at the peak of WHERE: weights 14.2 GiB, ..." and below it the lines that hold most. Where
 * nothing is known, nothing. The holding is in order. false: no memory.
 */
bool holders_print(const holding *of, const char *where);

#endif
