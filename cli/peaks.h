/* SPDX-License-Identifier: MIT */
/* A replay's stages as rows. A row can stand for all stages of a name on a device: it has the
 * largest of them, and their number. */
#ifndef RVL_CLI_PEAKS_H
#define RVL_CLI_PEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/replay.h"

typedef struct peak {
    size_t device;  /* index in the replay */
    uint32_t stage; /* index of the stage with the largest peak; of equal ones, the first */
    uint32_t first; /* index of the first stage */
    uint32_t count;
    uint32_t rank;         /* of the process that marks them; RVL_NO_RANK: none, or several */
    bool over_budget;      /* whether any of them is */
    rvl_stage_stats stats; /* of the largest stage */
} peak;

/* Which stages share a row with the other stages of their name. */
typedef enum peaks_shared {
    PEAKS_OF_NONE,
    PEAKS_OF_PROCESSES, /* those on devices where processes mark their own stages, or stages
                           overlap: a name occurs very often there, and does not identify a stage */
    PEAKS_OF_RANKS, /* as PEAKS_OF_PROCESSES, with a row for each rank, so that names stay the same
                       when the order of processes changes */
    PEAKS_OF_ALL,
} peaks_shared;

/* Lists the rows by device, then by rank with PEAKS_OF_RANKS, then by first stage. The caller frees
 * *peaks_out. false: no memory. */
bool peaks_of(const rvl_replay *replay, peaks_shared shared, peak **peaks_out, size_t *count_out);

/* Names the largest of the row's stages: "#37", or the text that its mark added to the name. */
const char *peak_largest(const peak *row);

/* A row and its place in the list. */
typedef struct ranked_peak {
    const peak *row;
    size_t at;
} ranked_peak;

/*
 * Selects the rows for a table of `most` rows. Moves to the front the rows over a budget and then
 * those with the largest peaks, up to `most`, in order of their places. The others follow, the
 * largest first.
 */
void peaks_rank(ranked_peak *rows, size_t count, size_t most);

#endif
