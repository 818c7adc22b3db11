/* SPDX-License-Identifier: MIT */
/*
 * The segments of a step, and what lies in them: what a trace shows of the caching allocator.
 *
 * A segment comes and goes when the allocator asks for it and gives it back. What lies in it is
 * written down at instants: when a layer is over, when a segment comes, and at the fullest moments.
 * So what a layer takes and frees again leaves no event, and a step of any model has few. Only the
 * last step that begins is kept.
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
    RVLI_SHOWN_PART, /* bytes of the segment are a term's from now on */
} rvli_shown_kind;

typedef struct rvli_shown_event {
    rvli_shown_kind kind;
    bool joins; /* at the same instant as the event before it */
    rvl_model_term term;
    uint32_t segment; /* index */
    uint64_t bytes;   /* ALLOC and PART */
} rvli_shown_event;

typedef struct rvli_shown_segment {
    uint64_t addr;
    uint64_t size;
    uint64_t held[RVL_MODEL_TERM_COUNT];
    uint64_t written[RVL_MODEL_TERM_COUNT]; /* what the events say so far */
    uint64_t shown_bytes;                   /* of its size, without states */
    bool live;
    bool changed;
} rvli_shown_segment;

/* What is paused by itself, and so has allocations of its own in a trace. */
static inline bool rvli_shown_is_state(rvl_model_term term)
{
    return term == RVL_MODEL_SHARDED_WEIGHTS || term == RVL_MODEL_MASTER_WEIGHTS ||
           term == RVL_MODEL_OPTIMIZER;
}

typedef struct rvli_shown {
    rvli_shown_segment *segments; /* by falling address, as they are made */
    size_t segment_count;
    size_t segment_room;
    uint32_t *changed; /* indices of those that have changed; room as for segments */
    size_t changed_count;
    rvli_shown_event *events;
    size_t event_count;
    size_t event_room;
    size_t begin_count; /* events that say what is there as the step begins */
    bool waits;         /* nothing is written down before the step that is shown */
    bool failed;        /* no host memory */
} rvli_shown;

void rvli_shown_destroy(rvli_shown *shown);

/* The allocator asks for a segment, below all others, or gives one back. */
void rvli_shown_segment_alloc(rvli_shown *shown, uint64_t addr, uint64_t size);
void rvli_shown_segment_free(rvli_shown *shown, uint64_t addr);

/* A block of a segment, counted as they came, is a term's, or no longer. */
void rvli_shown_take(rvli_shown *shown, uint32_t segment, rvl_model_term term, uint64_t bytes);
void rvli_shown_drop(rvli_shown *shown, uint32_t segment, rvl_model_term term, uint64_t bytes);

/*
 * Takes what lives on out of the segments, state_bytes in all, in whole granules: what is left of
 * a segment has room for all else that lies in it. false: there are none that leave as much.
 */
bool rvli_shown_leave_out_states(rvli_shown *shown, uint64_t state_bytes, uint64_t granule_bytes);

/* A step begins with the segments that are there. */
void rvli_shown_begin(rvli_shown *shown);
/* Writes down what lies in the segments now. */
void rvli_shown_now(rvli_shown *shown);
/* The same between layers: a step of very many leaves it out in the end. */
void rvli_shown_between(rvli_shown *shown);

#endif
