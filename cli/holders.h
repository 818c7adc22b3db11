/* SPDX-License-Identifier: MIT */
/* What memory is used for at a peak, and the program's lines that allocated most of it. */
#ifndef RVL_CLI_HOLDERS_H
#define RVL_CLI_HOLDERS_H

#include <stddef.h>

#include "reveille/snapshot.h"

#define HOLDERS_LINES 5u /* lines to print for a peak */

/* From one snapshot, or from those of several processes. The snapshots own the strings. */
typedef struct holding {
    rvl_snapshot_part *parts;
    rvl_snapshot_line *lines;
    size_t part_count, line_count;
} holding;

/* Adds a part, or adds bytes to the part with this tag and module. false: no memory. */
bool holding_add_part(holding *to, const char *tag, const char *module, uint64_t bytes);
/* Adds all parts and lines of a snapshot's stage. false: no memory. */
bool holding_add_stage(holding *to, const rvl_snapshot *snapshot, uint32_t stage);
/* Sorts parts and lines, the largest first. */
void holding_sort(holding *of);
void holding_clear(holding *of);

/* Returns "forward (gpt.py:23), through forward (modeling_llama.py:239)". The caller frees it.
 * NULL: no memory. */
char *holders_place(const rvl_snapshot_line *line);

/*
 * Prints "at the peak of WHERE: weights 14.2 GiB, ..." and below it the lines that hold the most.
 * Prints nothing for a holding without parts. The holding must be sorted. false: no memory.
 */
bool holders_print(const holding *of, const char *where);

#endif
