/* SPDX-License-Identifier: MIT */
/* A trace of its own, replayed on the card and on the profile that was made of it. */
#ifndef RVL_CLI_CALIBRATE_AGREE_H
#define RVL_CLI_CALIBRATE_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

#define AGREE_STAGES_MAX 32
#define AGREE_NAME_BYTES 48

/* A stage: one transition, or a few of one kind. */
typedef struct agree_stage {
    char name[AGREE_NAME_BYTES];
    uint64_t predicted_peak_bytes, measured_peak_bytes;
    uint64_t predicted_ns, measured_ns; /* spent in transitions */
} agree_stage;

typedef struct agreement {
    agree_stage stages[AGREE_STAGES_MAX];
    size_t count;
} agreement;

/*
 * room_bytes: what may be used of the card; host_bytes: of the host. device: the path of the new
 * profile. What the replay answers.
 */
rvl_status agree_replay(uint64_t room_bytes, uint64_t host_bytes, uint64_t granularity_bytes,
                        const char *device, agreement *agreement_out);

/* The largest difference of a peak, and of a time of 5 ms and more, as a share. */
double agree_worst_peak(const agreement *it);
double agree_worst_time(const agreement *it);

/* A difference as a share of what was measured; 0 where nothing was. */
double agree_share(uint64_t predicted, uint64_t measured);

#endif
