/* SPDX-License-Identifier: MIT */
/*
 * Records line by line what a step asked of the tape, so that the tape can repeat it without the
 * program.
 */
#ifndef RVL_PREDICT_LLM_STEP_SCRIPT_H
#define RVL_PREDICT_LLM_STEP_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "predict/snapshot/block.h"

typedef enum rvli_script_kind {
    RVLI_SCRIPT_TAKE,
    RVLI_SCRIPT_DROP,
    RVLI_SCRIPT_EMPTY_CACHE,
    RVLI_SCRIPT_BETWEEN,
    RVLI_SCRIPT_WATCH
} rvli_script_kind;

/* Small, since each take and each drop of a block has one. */
typedef struct rvli_script_line {
    uint8_t kind;
    uint8_t stream;
    uint8_t holder;
    uint32_t dropped; /* TAKE: line of the drop; 0: the step keeps the block */
    union {
        uint64_t bytes;              /* TAKE, as requested */
        rvli_cached_block *block;    /* DROP, set by its TAKE */
        struct rvli_moment *fullest; /* WATCH */
    } of;
} rvli_script_line;

typedef struct rvli_script {
    rvli_script_line *lines;
    size_t count;
    size_t room;
} rvli_script;

void rvli_script_free(rvli_script *script);

/* Adds a line. The caller sets its other fields. NULL: out of host memory. */
rvli_script_line *rvli_script_add(rvli_script *script, rvli_script_kind kind);

#endif
