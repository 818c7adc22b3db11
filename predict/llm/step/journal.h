/* SPDX-License-Identifier: MIT */
/*
 * Records line by line what a step of a tape does to segments, until it is known when the step is
 * fullest.
 *
 * The step can be shown only then, since the contents of segments are written at those moments. So
 * one run of a training gives both the moments and the segments.
 */
#ifndef RVL_PREDICT_LLM_STEP_JOURNAL_H
#define RVL_PREDICT_LLM_STEP_JOURNAL_H

#include "predict/llm/step/shown.h"

typedef enum rvli_journal_kind {
    RVLI_JOURNAL_ALLOC, /* of a segment */
    RVLI_JOURNAL_FREE,
    RVLI_JOURNAL_TAKE, /* of a block in a segment */
    RVLI_JOURNAL_DROP,
    RVLI_JOURNAL_BETWEEN, /* between layers */
    RVLI_JOURNAL_WATCH    /* a part of the step begins or ends */
} rvli_journal_kind;

typedef struct rvli_journal_line {
    uint8_t kind;
    uint8_t term;
    uint32_t segment; /* TAKE and DROP: index */
    uint64_t addr;    /* ALLOC and FREE */
    uint64_t bytes;
} rvli_journal_line;

typedef struct rvli_journal {
    rvli_shown *shown; /* NULL: segments are not wanted, and nothing is recorded */
    rvli_journal_line *lines;
    size_t count;
    size_t room;
} rvli_journal;

void rvli_journal_free(rvli_journal *journal);

/* Adds a line. The caller sets its other fields. NULL: not wanted, or out of host memory
 * (shown->failed). */
rvli_journal_line *rvli_journal_add(rvli_journal *journal, rvli_journal_kind kind);

/* Begins a step. Earlier lines only change the segments, and are not shown. */
void rvli_journal_begin_step(rvli_journal *journal);

/* Shows the step that began last. It is fullest after these numbers of takes and drops. */
void rvli_journal_show(rvli_journal *journal, const uint64_t instants[2]);

#endif
