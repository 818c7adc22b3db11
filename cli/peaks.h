/* SPDX-License-Identifier: MIT */
/* A replay's stages by name: the largest of each name on each device, and how many there are. */
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
    bool over_budget;      /* any of them */
    rvl_stage_stats stats; /* of the largest */
} peak;

/* In order of devices, then of first stages. The caller frees *peaks_out. false: no memory. */
bool peaks_of(const rvl_replay *replay, peak **peaks_out, size_t *count_out);

#endif
