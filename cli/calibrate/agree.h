/* SPDX-License-Identifier: MIT */
/* Compares the new profile with the card, by replaying a built-in trace on both. */
#ifndef RVL_CLI_CALIBRATE_AGREE_H
#define RVL_CLI_CALIBRATE_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/status.h"

#define AGREE_STAGES_MAX 32
#define AGREE_NAME_BYTES 48

/* A stage, with one transition or a few of the same kind. */
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
 * Replays the trace on the profile and on the card. room_bytes, host_bytes: the memory of the card
 * and of the host that it may use. device: the path of the new profile. Returns the replay's
 * status.
 */
rvl_status agree_replay(uint64_t room_bytes, uint64_t host_bytes, uint64_t granularity_bytes,
                        const char *device, agreement *agreement_out);

/* Return the largest difference of a peak, and of a time of at least 5 ms, as a fraction. */
double agree_worst_peak(const agreement *it);
double agree_worst_time(const agreement *it);

/* Returns the difference as a fraction of the measured value; 0 if that is 0. */
double agree_share(uint64_t predicted, uint64_t measured);

#endif
