/* SPDX-License-Identifier: MIT */
/*
 * Profiles of cards from what was measured on them (libreveille-replay). `reveille calibrate`
 * measures; docs/calibrate.md says what each act is.
 */
#ifndef REVEILLE_CALIBRATE_H
#define REVEILLE_CALIBRATE_H

#include "reveille/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An act on so many bytes, as a file of a profile has it under `measured`. */
typedef struct rvl_measurement {
    const char *act;      /* "create", "map", "unmap" */
    const char *unit;     /* "ns" or "bytes" */
    uint64_t bytes;       /* what it was done to; 0: it has no size */
    uint64_t least_value; /* of all times that it was measured */
    uint64_t median_value;
    uint64_t most_value;
    uint64_t count;
} rvl_measurement;

/* Bits of *costs_out, in the order of RVL_COST_MAP and then of RVL_COST_WAITS_MAP. */
typedef enum rvl_cost_index {
#define RVL_COST_INDEX(field) RVL_COST_INDEX_##field,
    RVL_COST_MAP(RVL_COST_INDEX) RVL_COST_WAITS_MAP(RVL_COST_INDEX)
#undef RVL_COST_INDEX
        RVL_COST_INDEX_COUNT
} rvl_cost_index;

/*
 * Fills in the costs of a profile, and what the driver takes, by lines through medians. A cost that
 * nothing was measured of stays as it is, and its bit in *costs_out (1 << RVL_COST_INDEX_...) is 0.
 * Acts that are not known are passed over. measurement_size: sizeof(rvl_measurement). Returns
 * RVL_OK, RVL_ERR_INVALID, RVL_ERR_VERSION or RVL_ERR_HOST_OOM. Where it fails the profile is as
 * before. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_profile_fit(rvl_profile *profile, const rvl_measurement *measurements,
                                   size_t measurement_size, size_t measurement_count,
                                   uint64_t *costs_out);

#ifdef __cplusplus
}
#endif
#endif
