/* SPDX-License-Identifier: MIT */
/*
 * A program of tensors: what a training step allocates and frees, played on the model of PyTorch's
 * caching allocator while the step runs.
 *
 * A tensor is a block. Its holder, a term of the step, is stored in the field that has the number
 * of an entry in a recording. The tape knows the bytes of each holder at any time, and keeps them
 * for the fullest moment of each part of a step.
 */
#ifndef RVL_PREDICT_LLM_STEP_TAPE_H
#define RVL_PREDICT_LLM_STEP_TAPE_H

#include "predict/llm/step/journal.h"
#include "predict/llm/step/script.h"
#include "predict/snapshot/allocator.h"
#include "reveille/model.h"

/* Streams with separate blocks. */
typedef enum rvli_stream {
    RVLI_STREAM_COMPUTE,
    RVLI_STREAM_GATHER, /* FSDP2 gathers ahead of the computation */
    RVLI_STREAM_REDUCE, /* and reduces gradients after it */
    RVLI_STREAM_OFFLOAD,
    RVLI_STREAM_RING, /* every second step of context parallelism */
    RVLI_STREAM_COUNT
} rvli_stream;

typedef rvli_cached_block *rvli_block; /* NULL: no tensor */

/* What was live at a moment, in whole blocks. */
typedef struct rvli_moment {
    uint64_t allocated_bytes;
    uint64_t call; /* takes and drops since the step began, up to this moment */
    uint64_t held[RVL_MODEL_TERM_COUNT];
} rvli_moment;

/* Called for each allocation (bytes as requested) and each free (the same bytes, negative). */
typedef void (*rvli_tape_fn)(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder);

/* The listener to a run. */
typedef struct rvli_tape_listener {
    rvli_tape_fn told; /* NULL: not called */
    void *user;
    rvli_shown *shown; /* NULL: segments are not wanted */
} rvli_tape_listener;

/* How a step changes what it found. */
typedef struct rvli_step_changes {
    uint64_t live_before; /* tensors at its beginning */
    bool dropped_older;   /* it dropped a tensor of an earlier step */
    bool segments;        /* it allocated or freed a segment */
} rvli_step_changes;

typedef struct rvli_tape {
    rvli_allocator allocator;
    uint64_t streams[RVLI_STREAM_COUNT];
    uint64_t next_addr; /* end of the next segment */
    uint64_t held[RVL_MODEL_TERM_COUNT];
    uint64_t reserved_bytes;  /* peak since the step began */
    uint64_t requested_bytes; /* peak of live bytes since the step began, as requested */
    uint64_t reserved_before; /* peak of the step before */
    uint64_t calls;           /* takes and drops since the step began */
    uint64_t steps;           /* number of steps begun */
    uint64_t live_count;      /* number of tensors */
    rvli_moment *fullest;     /* receives the fullest moment of the current part; NULL: none */
    rvli_tape_listener listener;
    rvli_journal journal;
    rvli_script script; /* of the last step that ran the program */
    bool repeats;       /* a step is being repeated from the script */
    rvli_step_changes changes;
    bool failed; /* out of host memory */
} rvli_tape;

/* A request beyond limit_bytes empties the cache, as PyTorch does before it fails. It is then
 * served. */
void rvli_tape_begin(rvli_tape *tape, uint64_t limit_bytes);
void rvli_tape_end(rvli_tape *tape);

rvli_block rvli_take_on(rvli_tape *tape, rvli_stream stream, rvl_model_term holder, uint64_t bytes);
rvli_block rvli_take(rvli_tape *tape, rvl_model_term holder, uint64_t bytes);

/* block: may be NULL. */
void rvli_drop(rvli_tape *tape, rvli_block block);

/* listener: may be NULL, for none. */
void rvli_tape_listen(rvli_tape *tape, const rvli_tape_listener *listener);

/* Whether host memory has run out, for the run or for what is shown. */
bool rvli_tape_failed(const rvli_tape *tape);

/* Returns the allocator's cached memory to the device. */
void rvli_tape_empty_cache(rvli_tape *tape);

/* Begins a step. */
void rvli_tape_begin_step(rvli_tape *tape);

/*
 * Runs the next step without the program: repeats the takes and drops of the last step. This is
 * exact if the last step dropped no older tensor, and kept nothing except optimizer states and
 * workspaces, which are taken once. Otherwise it does nothing and returns false. It also does so if
 * the listener is told of each call, so that tests can compare the program's own steps.
 */
bool rvli_tape_repeat_step(rvli_tape *tape);

/*
 * Whether all later steps will reserve what the step that has ended reserved: that was no more than
 * in the step before, or the step left everything as it found it.
 */
bool rvli_tape_is_settled(const rvli_tape *tape);

/* Shows the segments of the last step, if they are wanted. passes, update: its fullest moments. */
void rvli_tape_show(rvli_tape *tape, const rvli_moment *passes, const rvli_moment *update);

/* A layer or a similar part has ended. What it left may be shown. */
void rvli_tape_between(rvli_tape *tape);

/* Records the fullest moment in *fullest from now on. NULL: stops. */
void rvli_tape_watch(rvli_tape *tape, rvli_moment *fullest);

#endif
