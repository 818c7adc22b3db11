/* SPDX-License-Identifier: MIT */
/*
 * Profiles of cards, fitted from measurements (libreveille-replay). `reveille calibrate` measures;
 * docs/calibrate.md defines each act.
 */
#ifndef REVEILLE_CALIBRATE_H
#define REVEILLE_CALIBRATE_H

#include "reveille/sim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An act on a number of bytes, as a profile's file lists it under `measured`. */
typedef struct rvl_measurement {
    const char *act;      /* "create", "map", "unmap" */
    const char *unit;     /* "ns" or "bytes" */
    uint64_t bytes;       /* the size that it was done to; 0: it has no size */
    uint64_t least_value; /* over all repetitions */
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
 * Fits the costs of a profile, and the driver's own memory, by lines through medians. A cost
 * without measurements stays as it is, and its bit in *costs_out (1 << RVL_COST_INDEX_...) is 0.
 * Unknown acts are ignored. measurement_size: sizeof(rvl_measurement). Returns RVL_OK,
 * RVL_ERR_INVALID, RVL_ERR_VERSION or RVL_ERR_HOST_OOM. On failure the profile is unchanged.
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_profile_fit(rvl_profile *profile, const rvl_measurement *measurements,
                                   size_t measurement_size, size_t measurement_count,
                                   uint64_t *costs_out);

#ifdef __cplusplus
}
#endif
#endif
