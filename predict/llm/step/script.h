/* SPDX-License-Identifier: MIT */
/*
 * What a step asked of the tape, line by line, so that the tape can do the same again without the
 * program that asked for it.
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

/* There is one for each block that comes or goes, so it is small. */
typedef struct rvli_script_line {
    uint8_t kind;
    uint8_t stream;
    uint8_t holder;
    uint32_t dropped; /* TAKE: in which line; 0: the step keeps it */
    union {
        uint64_t bytes;              /* TAKE, as asked for */
        rvli_cached_block *block;    /* DROP, from its TAKE on */
        struct rvli_moment *fullest; /* WATCH */
    } of;
} rvli_script_line;

typedef struct rvli_script {
    rvli_script_line *lines;
    size_t count;
    size_t room;
} rvli_script;

void rvli_script_free(rvli_script *script);

/* The next line, for its other fields. NULL: no host memory. */
rvli_script_line *rvli_script_add(rvli_script *script, rvli_script_kind kind);

#endif
