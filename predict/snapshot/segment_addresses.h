/* SPDX-License-Identifier: MIT */
/*
 * Addresses of segments in a prediction.
 *
 * The best block for a request is the smallest one, and among blocks of one size the one at the
 * lowest address. So the choice depends on where the driver put segments. An allocation that needs
 * a new segment is placed at its start, so the recorded address of the allocation is where the
 * driver would put the segment. While the model does what the recording did, it puts segments
 * there, and makes the same choices. If that place is taken, or no segment can begin there, an
 * address is made up. Made-up addresses go downwards, as the driver's do while it has room.
 */
#ifndef RVL_PREDICT_SNAPSHOT_SEGMENT_ADDRESSES_H
#define RVL_PREDICT_SNAPSHOT_SEGMENT_ADDRESSES_H

#include <stdbool.h>

#include "base/addrmap.h"

typedef struct rvli_places {
    rvli_addrmap taken; /* recorded addresses: start of a segment to its end */
    uint64_t wanted;    /* recorded address of the current allocation; 0: unknown */
    bool ranges;        /* recorded with ranges: these begin there, not segments */
    uint64_t next;      /* the next made-up segment ends there */
} rvli_places;

void rvli_places_init(rvli_places *places);
void rvli_places_destroy(rvli_places *places);

/* Marks a place as taken. It may be taken already. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_places_take(rvli_places *places, uint64_t addr, uint64_t size);

/*
 * Take the wanted place if it is free, or else a made-up one, and return its address. A range is
 * longer than the part of it that is ever used, so its end is ignored.
 */
uint64_t rvli_places_take_wanted(rvli_places *places, uint64_t size);
uint64_t rvli_places_take_range(rvli_places *places, uint64_t size);
uint64_t rvli_places_make_up(rvli_places *places, uint64_t size);

/* The segment at an address was released. */
void rvli_places_leave(rvli_places *places, uint64_t addr);

#endif
