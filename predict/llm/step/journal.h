/* SPDX-License-Identifier: MIT */
/*
 * What a step of a tape does to segments, line by line, until it is known when the step is fullest.
 *
 * Only then can it be shown, since what lies in segments is written down at those moments. So one
 * run of a training gives both the moments and the segments.
 */
#ifndef RVL_PREDICT_LLM_STEP_JOURNAL_H
#define RVL_PREDICT_LLM_STEP_JOURNAL_H

#include "predict/llm/step/shown.h"

typedef enum rvli_journal_kind {
    RVLI_JOURNAL_ALLOC, /* a segment */
    RVLI_JOURNAL_FREE,
    RVLI_JOURNAL_TAKE, /* a block in a segment */
    RVLI_JOURNAL_DROP,
    RVLI_JOURNAL_BETWEEN, /* layers */
    RVLI_JOURNAL_WATCH    /* a part of the step begins, or ends */
} rvli_journal_kind;

typedef struct rvli_journal_line {
    uint8_t kind;
    uint8_t term;
    uint32_t segment; /* TAKE and DROP: which */
    uint64_t addr;    /* ALLOC and FREE */
    uint64_t bytes;
} rvli_journal_line;

typedef struct rvli_journal {
    rvli_shown *shown; /* NULL: nobody wants segments, and nothing is kept */
    rvli_journal_line *lines;
    size_t count;
    size_t room;
} rvli_journal;

void rvli_journal_free(rvli_journal *journal);

/* The next line, for its other fields. NULL: nobody wants it, or no host memory (shown->failed). */
rvli_journal_line *rvli_journal_add(rvli_journal *journal, rvli_journal_kind kind);

/* A step begins: what was before it is in the segments, and not shown. */
void rvli_journal_begin_step(rvli_journal *journal);

/* The step that began last is shown, fullest behind these calls that took or dropped a block. */
void rvli_journal_show(rvli_journal *journal, const uint64_t instants[2]);

#endif
