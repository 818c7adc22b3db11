/* SPDX-License-Identifier: MIT */
/*
 * Where segments come to lie in a prediction.
 *
 * The best block for a request is the smallest, and of several of one size the one at the lowest
 * address: which it is depends on where the driver put segments. An allocation for which a segment
 * is made begins with it, so where the allocation was recorded is where the driver would put the
 * segment. As long as the model does what the recording did, segments come to lie there, and every
 * choice is as it was. A place that is taken, or that no segment can begin at, is made up: each
 * below the one before it, which is how the driver gives addresses out as long as it can.
 */
#ifndef RVL_PREDICT_SNAPSHOT_SEGMENT_ADDRESSES_H
#define RVL_PREDICT_SNAPSHOT_SEGMENT_ADDRESSES_H

#include <stdbool.h>

#include "base/addrmap.h"

typedef struct rvli_places {
    rvli_addrmap taken; /* recorded addresses, each to where its segment ends */
    uint64_t wanted;    /* where the allocation that is looked at was recorded; 0: unknown */
    bool ranges;        /* it was recorded in a range: those begin there, not segments */
    uint64_t next;      /* the next one that is made up ends there */
} rvli_places;

void rvli_places_init(rvli_places *places);
void rvli_places_destroy(rvli_places *places);

/* Takes a place, whether or not it is taken already. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_places_take(rvli_places *places, uint64_t addr, uint64_t size);

/*
 * Takes the wanted place if it is there to be had, else one that is made up. Ranges are longer than
 * what is ever used of them, and taken as having no end.
 */
uint64_t rvli_places_take_wanted(rvli_places *places, uint64_t size);
uint64_t rvli_places_take_range(rvli_places *places, uint64_t size);
uint64_t rvli_places_make_up(rvli_places *places, uint64_t size);

/* The segment that began there is gone. */
void rvli_places_leave(rvli_places *places, uint64_t addr);

#endif
