/* SPDX-License-Identifier: MIT */
/*
 * What `reveille run` saw while a program ran, in addition to PyTorch's own history.
 *
 * The file stores it as annotations with names that begin with "reveille:". The run is cut into
 * phases, numbered from 1: a backward pass, a step of an optimizer, and the time between them. Each
 * trace entry names its phase ("rvl:7", as user_metadata). The annotations' names are
 *
 *   reveille:phase NUMBER KIND LINE NAME FILE     KIND: backward, optimizer, between
 *   reveille:seen NUMBER TAG ADDRESS...           at the start of that phase; addresses are
 *                                                 hexadecimal, with commas between them
 *   reveille:module FIRST LAST NAME FILE          the lines of a class of modules
 *   reveille:mark NUMBER TIME                     a stage begins or ends where that phase begins
 *   reveille:graphs FIRST SECOND                  a private pool with a CUDA graph
 *   reveille:graphs                               all pools with graphs are listed
 *
 * A blank ends a word, and FILE is the rest. TIME is in hexadecimal microseconds of the mark's own
 * clock. LINE, NAME and FILE name the program's line that called backward or the step; 0, - and -
 * if there is none. Annotations in any other form are ignored.
 */
#ifndef RVL_PREDICT_SNAPSHOT_OBSERVED_H
#define RVL_PREDICT_SNAPSHOT_OBSERVED_H

#include "predict/snapshot/recording.h"

typedef enum rvli_phase_kind {
    RVLI_PHASE_BETWEEN,
    RVLI_PHASE_BACKWARD,
    RVLI_PHASE_OPTIMIZER
} rvli_phase_kind;

/* A piece of the file. It does not end with a NUL. */
typedef struct rvli_snapshot_piece {
    const char *text;
    uint32_t length;
} rvli_snapshot_piece;

typedef struct rvli_phase {
    uint32_t number;
    uint32_t begin; /* the instant at which it begins */
    rvli_phase_kind kind;
    uint32_t line;
    rvli_snapshot_piece name, file; /* length 0: not known */
} rvli_phase;

/* A tensor at an address that had a purpose at an instant. */
typedef struct rvli_snapshot_seen {
    uint64_t addr;
    uint32_t instant;
    rvli_snapshot_piece tag;
} rvli_snapshot_seen;

typedef struct rvli_module {
    rvli_snapshot_piece name, file;
    uint32_t first, last;
} rvli_module;

/* Where a stage begins or ends. */
typedef struct rvli_snapshot_mark {
    int64_t us;
    uint32_t instant;
} rvli_snapshot_mark;

typedef struct rvli_observed {
    rvli_phase *phases;       /* by number */
    rvli_snapshot_seen *seen; /* by address, then instant */
    rvli_module *modules;
    rvli_snapshot_mark *marks; /* by time */
    rvli_pool_id *graphs;      /* pools into which CUDA graphs were captured */
    bool graphs_told;          /* the list of pools is complete */
    size_t phase_count, seen_count, module_count, mark_count, graph_count;
} rvli_observed;

/* RVL_OK or RVL_ERR_HOST_OOM. After RVL_OK the caller clears *observed_out. */
rvl_status rvli_observed_read(const rvli_recording *recording, rvli_observed *observed_out);
void rvli_observed_clear(rvli_observed *observed);

/*
 * Returns the instant of the mark at that time, or of the last of several; UINT32_MAX: there is
 * none.
 */
uint32_t rvli_observed_mark(const rvli_observed *observed, int64_t us);

/*
 * Whether a pool has CUDA graphs. torch.cuda.MemPool makes private pools for any purpose. If the
 * file does not list the pools with graphs, this is true for every pool.
 */
bool rvli_observed_graphs(const rvli_observed *observed, rvli_pool_id pool);

/* Returns the phase that contains an instant; NULL: none is known. */
const rvli_phase *rvli_observed_phase(const rvli_observed *observed, uint32_t instant);

#endif
