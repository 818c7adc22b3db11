/* SPDX-License-Identifier: MIT */
/*
 * A run as the events of a trace: what its process had reserved, and its stages.
 *
 * Only the sum of segments counts to a device, so what it grew by is one allocation, and what it
 * fell by is taken from the last ones, the last of them split if need be. A run may be begun anew,
 * and so nothing is written before it has ended.
 */
#ifndef RVL_SNAPSHOT_TRACE_H
#define RVL_SNAPSHOT_TRACE_H

#include "reveille/snapshot.h"

typedef struct rvli_tracer_event {
    int64_t time_us;
    uint64_t bytes; /* of an allocation */
    uint64_t id;
    uint32_t stage;      /* of a mark; UINT32_MAX: between stages */
    rvl_event_kind kind; /* ALLOC, FREE or STAGE */
} rvli_tracer_event;

typedef struct rvli_tracer_piece {
    uint64_t id;
    uint64_t bytes;
} rvli_tracer_piece;

typedef struct rvli_tracer {
    rvli_tracer_event *events;
    size_t event_count;
    size_t event_room;
    rvli_tracer_piece *pieces; /* live, the last on top */
    size_t piece_count;
    size_t piece_room;
    uint64_t last_id;
    uint64_t bytes; /* of all pieces */
} rvli_tracer;

/* Begins anew. */
void rvli_tracer_clear(rvli_tracer *tracer);
void rvli_tracer_destroy(rvli_tracer *tracer);

/* The process has this much reserved. RVL_ERR_HOST_OOM. */
rvl_status rvli_tracer_reserved(rvli_tracer *tracer, int64_t time_us, uint64_t bytes);

/* A stage begins; UINT32_MAX: all have ended. RVL_ERR_HOST_OOM. */
rvl_status rvli_tracer_stage(rvli_tracer *tracer, int64_t time_us, uint32_t stage);

/* stages: their names. Writes the trace. */
rvl_status rvli_tracer_write(const rvli_tracer *tracer, const rvl_snapshot *snapshot,
                             const rvl_snapshot_trace *how, const char *path);

#endif
