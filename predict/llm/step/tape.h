/* SPDX-License-Identifier: MIT */
/*
 * A program of tensors: what a training step allocates and frees, run through the model of
 * PyTorch's caching allocator as it is told.
 *
 * A tensor is its block. Its holder, a term of the step, is kept where a recording keeps the number
 * of an entry. The tape knows at any time what each holder has, and keeps that for the fullest
 * moment of each part of a step.
 */
#ifndef RVL_PREDICT_LLM_STEP_TAPE_H
#define RVL_PREDICT_LLM_STEP_TAPE_H

#include "predict/llm/step/journal.h"
#include "predict/llm/step/script.h"
#include "predict/snapshot/allocator.h"
#include "reveille/model.h"

/* Streams that have blocks of their own. */
typedef enum rvli_stream {
    RVLI_STREAM_COMPUTE,
    RVLI_STREAM_GATHER, /* FSDP2 fetches ahead of the computation */
    RVLI_STREAM_REDUCE, /* and sums gradients behind it */
    RVLI_STREAM_OFFLOAD,
    RVLI_STREAM_RING, /* every other step of context parallelism */
    RVLI_STREAM_COUNT
} rvli_stream;

typedef rvli_cached_block *rvli_block; /* NULL: no tensor */

/* What was live at a moment, in whole blocks. */
typedef struct rvli_moment {
    uint64_t allocated_bytes;
    uint64_t call; /* the tape's, since the step began, behind which it was */
    uint64_t held[RVL_MODEL_TERM_COUNT];
} rvli_moment;

/* Told of each allocation (bytes as asked for) and each free (of the same, negative). */
typedef void (*rvli_tape_fn)(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder);

/* Who wants to know of a run. */
typedef struct rvli_tape_listener {
    rvli_tape_fn told; /* NULL: nobody */
    void *user;
    rvli_shown *shown; /* NULL: nobody wants segments */
} rvli_tape_listener;

/* What a step leaves otherwise than it was. */
typedef struct rvli_step_changes {
    uint64_t live_before; /* tensors, as it began */
    bool dropped_older;   /* a tensor of an earlier step */
    bool segments;        /* one came, or went */
} rvli_step_changes;

typedef struct rvli_tape {
    rvli_allocator allocator;
    uint64_t streams[RVLI_STREAM_COUNT];
    uint64_t next_addr; /* the next segment ends there */
    uint64_t held[RVL_MODEL_TERM_COUNT];
    uint64_t reserved_bytes;  /* the most since the step began */
    uint64_t requested_bytes; /* the same of what was asked for and is live */
    uint64_t reserved_before; /* the most of the step before */
    uint64_t calls;           /* that took or dropped something since the step began */
    uint64_t steps;           /* that have begun */
    uint64_t live_count;      /* tensors */
    rvli_moment *fullest;     /* of the current part; NULL: not kept */
    rvli_tape_listener listener;
    rvli_journal journal;
    rvli_script script; /* of the last step that was no repetition */
    bool repeats;       /* a step that was written down before */
    rvli_step_changes changes;
    bool failed; /* no host memory */
} rvli_tape;

/* A request beyond limit_bytes makes the cache go, as PyTorch does before it fails, and is then
 * served. */
void rvli_tape_begin(rvli_tape *tape, uint64_t limit_bytes);
void rvli_tape_end(rvli_tape *tape);

rvli_block rvli_take_on(rvli_tape *tape, rvli_stream stream, rvl_model_term holder, uint64_t bytes);
rvli_block rvli_take(rvli_tape *tape, rvl_model_term holder, uint64_t bytes);

/* NULL is fine. */
void rvli_drop(rvli_tape *tape, rvli_block block);

/* NULL: nobody listens. */
void rvli_tape_listen(rvli_tape *tape, const rvli_tape_listener *listener);

/* Whether host memory has run out, for the run or for what is shown of it. */
bool rvli_tape_failed(const rvli_tape *tape);

/* What the caching allocator keeps goes back to the device. */
void rvli_tape_empty_cache(rvli_tape *tape);

/* A step begins. */
void rvli_tape_begin_step(rvli_tape *tape);

/*
 * The next step, without the program: all that came and went in the last one comes and goes again.
 * That is so where the last one dropped nothing older, and kept nothing but states of the optimizer
 * and workspaces, which are taken once. Returns false, and does nothing, where it is not so, and
 * where somebody is told of each call: tests have the program's own steps to compare with.
 */
bool rvli_tape_repeat_step(rvli_tape *tape);

/*
 * Whether the step that is over is what all later ones are, as far as what they reserve goes: it
 * reserved no more than the one before it, or it left all as it found it.
 */
bool rvli_tape_is_settled(const rvli_tape *tape);

/* The last step's segments are shown, where somebody wants them; it is fullest at these moments. */
void rvli_tape_show(rvli_tape *tape, const rvli_moment *passes, const rvli_moment *update);

/* A layer, or what is like one, is over: what it left may be shown. */
void rvli_tape_between(rvli_tape *tape);

/* From now on the fullest moment goes there. */
void rvli_tape_watch(rvli_tape *tape, rvli_moment *fullest);

#endif
