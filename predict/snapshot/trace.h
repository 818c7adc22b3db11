/* SPDX-License-Identifier: MIT */
/*
 * A run as the events of a trace: the reserved bytes of its process, and its stages.
 *
 * A device only counts the sum of segments. So a rise of the sum is one allocation. A fall frees
 * the last allocations, and if they were larger than the fall, a new one holds the rest. A run may
 * start again, so nothing is written before it has ended.
 *
 * Reserved memory is recorded as a whole or by part. A device allocates in granules, so the parts
 * are laid end to end, and each border between them is moved to the nearest granule. A part is
 * accurate to a granule, and the parts add up to the reserved bytes.
 */
#ifndef RVL_PREDICT_SNAPSHOT_TRACE_H
#define RVL_PREDICT_SNAPSHOT_TRACE_H

#include "reveille/snapshot.h"
#include "predict/snapshot/allocator.h"

/* X(NAME, tag): the parts, from the bottom up. */
#define RVLI_PART_MAP(X)                                                                           \
    X(TENSORS, "tensors")                                                                          \
    X(ROUNDING, "rounding")                                                                        \
    X(PENDING, "pending")                                                                          \
    X(SPLIT, "split")                                                                              \
    X(CACHED, "cached")

typedef enum rvli_part {
#define RVLI_PART_ENUM(name, tag) RVLI_PART_##name,
    RVLI_PART_MAP(RVLI_PART_ENUM)
#undef RVLI_PART_ENUM
        RVLI_PART_COUNT
} rvli_part;

typedef struct rvli_tracer_event {
    int64_t time_us;
    uint64_t bytes; /* of an allocation */
    uint64_t id;
    uint32_t stage;      /* of a mark; UINT32_MAX: between stages */
    uint32_t part;       /* of an allocation */
    rvl_event_kind kind; /* ALLOC, FREE or STAGE */
} rvli_tracer_event;

typedef struct rvli_tracer_piece {
    uint64_t id;
    uint64_t bytes;
} rvli_tracer_piece;

/* The live pieces of a part, the last on top. */
typedef struct rvli_tracer_stack {
    rvli_tracer_piece *pieces;
    size_t count;
    size_t room;
    uint64_t bytes; /* of all of them */
} rvli_tracer_stack;

typedef struct rvli_tracer {
    bool by_part;           /* else all reserved memory is the first part */
    uint64_t granule_bytes; /* granule of the device; 0 means 1 */
    rvli_tracer_event *events;
    size_t event_count;
    size_t event_room;
    rvli_tracer_stack parts[RVLI_PART_COUNT];
    uint64_t last_id;
    int64_t first_us; /* the earliest time that was passed; 0: none */
} rvli_tracer;

/* Clears the events, so that the run can start again. */
void rvli_tracer_clear(rvli_tracer *tracer);
void rvli_tracer_destroy(rvli_tracer *tracer);

/* Sets the bytes that the process holds from now on. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_tracer_hold(rvli_tracer *tracer, int64_t time_us, const rvli_bytes *bytes);

/* Begins a stage; UINT32_MAX: all stages have ended. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_tracer_stage(rvli_tracer *tracer, int64_t time_us, uint32_t stage);

/* Writes the trace. The names of stages are those of the snapshot. */
rvl_status rvli_tracer_write(const rvli_tracer *tracer, const rvl_snapshot *snapshot,
                             const rvl_snapshot_trace *how, const char *path);

#endif
