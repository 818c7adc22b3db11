/* SPDX-License-Identifier: MIT */
/*
 * Which devices of a replay can share a table: those of ranks that do the same. A row of the table
 * stands for the row of each of them, and the largest is shown.
 */
#ifndef RVL_CLI_ALIKE_H
#define RVL_CLI_ALIKE_H

#include "peaks.h"

typedef struct device_rows {
    size_t index; /* in the replay */
    rvl_replay_device facts;
    const peak *rows;
    size_t row_count;
    bool is_shown;
} device_rows;

typedef struct alike_group {
    const rvl_replay *replay;
    device_rows *members[RVL_MAX_DEVICES]; /* by number */
    size_t count;
} alike_group;

/* Deals the rows out to their devices. false: no device of that index. */
bool alike_read(const rvl_replay *replay, const peak *rows, size_t row_count, device_rows *all,
                size_t count);

/* A device and those after it that can share its table, which are shown then; alone: none does. */
void alike_gather(device_rows *all, size_t count, size_t first, bool alone, alike_group *found);

/* Of a row the one with the largest peak, and the device with the largest of all. */
const peak *alike_largest(const alike_group *of, size_t row);
const device_rows *alike_fullest(const alike_group *of);

#endif
