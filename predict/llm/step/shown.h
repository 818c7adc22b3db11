/* SPDX-License-Identifier: MIT */
/*
 * The segments of a step and their contents: what a trace shows of the caching allocator.
 *
 * A segment is allocated and freed when the allocator does so. The contents are written at certain
 * instants: after a layer, at a new segment, and at the fullest moments. So what a layer takes and
 * frees again leaves no event, and a step of any model has few events. Only the last step that
 * begins is kept.
 */
#ifndef RVL_PREDICT_LLM_STEP_SHOWN_H
#define RVL_PREDICT_LLM_STEP_SHOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/model.h"

typedef enum rvli_shown_kind {
    RVLI_SHOWN_ALLOC,
    RVLI_SHOWN_FREE,
    RVLI_SHOWN_PART, /* sets the bytes of a term in the segment */
} rvli_shown_kind;

typedef struct rvli_shown_event {
    rvli_shown_kind kind;
    bool joins; /* at the same instant as the previous event */
    rvl_model_term term;
    uint32_t segment; /* index */
    uint64_t bytes;   /* ALLOC and PART */
} rvli_shown_event;

typedef struct rvli_shown_segment {
    uint64_t addr;
    uint64_t size;
    uint64_t held[RVL_MODEL_TERM_COUNT];
    uint64_t written[RVL_MODEL_TERM_COUNT]; /* bytes in the events so far */
    uint64_t shown_bytes;                   /* its size without states */
    bool live;
    bool changed;
} rvli_shown_segment;

/* Whether the term is paused separately, and so has separate allocations in a trace. */
static inline bool rvli_shown_is_state(rvl_model_term term)
{
    return term == RVL_MODEL_SHARDED_WEIGHTS || term == RVL_MODEL_MASTER_WEIGHTS ||
           term == RVL_MODEL_OPTIMIZER;
}

typedef struct rvli_shown {
    rvli_shown_segment *segments; /* by descending address, in the order in which they are made */
    size_t segment_count;
    size_t segment_room;
    uint32_t *changed; /* indices of changed segments; room as for segments */
    size_t changed_count;
    rvli_shown_event *events;
    size_t event_count;
    size_t event_room;
    size_t begin_count; /* events with the state at the beginning of the step */
    bool waits;         /* the shown step has not begun: nothing is written */
    bool failed;        /* out of host memory */
} rvli_shown;

void rvli_shown_destroy(rvli_shown *shown);

/* The allocator allocates a segment, below all others, or frees one. */
void rvli_shown_segment_alloc(rvli_shown *shown, uint64_t addr, uint64_t size);
void rvli_shown_segment_free(rvli_shown *shown, uint64_t addr);

/* A block of a segment is taken for a term, or dropped. Segments are numbered in the order of their
 * allocation. */
void rvli_shown_take(rvli_shown *shown, uint32_t segment, rvl_model_term term, uint64_t bytes);
void rvli_shown_drop(rvli_shown *shown, uint32_t segment, rvl_model_term term, uint64_t bytes);

/*
 * Takes state_bytes out of the segments in whole granules. What is left of a segment has room for
 * everything else in it. false: the segments cannot give that much.
 */
bool rvli_shown_leave_out_states(rvli_shown *shown, uint64_t state_bytes, uint64_t granule_bytes);

/* Begins a step with the existing segments. */
void rvli_shown_begin(rvli_shown *shown);
/* Writes the contents of the segments now. */
void rvli_shown_now(rvli_shown *shown);
/* Writes them between layers, unless the step already has very many events. */
void rvli_shown_between(rvli_shown *shown);

#endif
