/* SPDX-License-Identifier: MIT */
/* A replay's stages as rows: by name the largest of each on each device, and how many there are. */
#ifndef RVL_CLI_PEAKS_H
#define RVL_CLI_PEAKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/replay.h"

typedef struct peak {
    size_t device;  /* index in the replay */
    uint32_t stage; /* the one with the largest peak, the first of several */
    uint32_t first; /* of that name */
    uint32_t count;
    uint32_t rank;         /* of the process that marks them; RVL_NO_RANK: none, or of several */
    bool over_budget;      /* any of them */
    rvl_stage_stats stats; /* of the largest */
} peak;

/* Which stages share a row with those of their name. */
typedef enum peaks_shared {
    PEAKS_OF_NONE,
    PEAKS_OF_PROCESSES, /* of devices where several processes mark, or stages overlap: a name comes
                           very often there, and does not say which stage it is */
    PEAKS_OF_RANKS,     /* the same, by rank: what comes in another order each time has one name */
    PEAKS_OF_ALL,
} peaks_shared;

/* In order of devices, then of ranks if these are asked for, then of first stages. The caller frees
 * *peaks_out. false: no memory. */
bool peaks_of(const rvl_replay *replay, peaks_shared shared, peak **peaks_out, size_t *count_out);

/* Which of the row's stages is the largest: "#37", or what one of others was marked with. */
const char *peak_largest(const peak *row);

/* One of many rows, and its place among them. */
typedef struct ranked_peak {
    const peak *row;
    size_t at;
} ranked_peak;

/*
 * For a table of `most` rows: puts those over a budget and those with the largest peaks first, in
 * order of their places, and behind them the others, the largest first.
 */
void peaks_rank(ranked_peak *rows, size_t count, size_t most);

#endif
