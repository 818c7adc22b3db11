/* SPDX-License-Identifier: MIT */
/*
 * Finds devices of a replay that can share a table because their ranks do the same work. A row of
 * the shared table stands for that row of each device, and shows the largest.
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
    device_rows *members[RVL_MAX_DEVICES]; /* in ascending order */
    size_t count;
} alike_group;

/* Fills all[0..count) with each device's facts and its part of rows, which are sorted by device.
 * false: the replay has fewer than count devices. */
bool alike_read(const rvl_replay *replay, const peak *rows, size_t row_count, device_rows *all,
                size_t count);

/*
 * Gathers device `first` and the later devices that can share its table, and marks them as shown.
 * alone: gathers only `first`. The caller sets found->replay.
 */
void alike_gather(device_rows *all, size_t count, size_t first, bool alone, alike_group *found);

/* Return the member's row with the largest peak, and the device with the largest peak. */
const peak *alike_largest(const alike_group *of, size_t row);
const device_rows *alike_fullest(const alike_group *of);

#endif
