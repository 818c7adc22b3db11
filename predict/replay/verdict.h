/* SPDX-License-Identifier: MIT */
/*
 * Refusals, and what became of the processes that met them (verdict.c).
 *
 * The last refusal of a process is open until its next request decides it. If the retried request
 * is granted, the refusal was cured: allocators release their caches and try again. If the process
 * asks for something else, the refusal was survived. If the process asks for nothing more, the
 * refusal may have ended it. It did if the process then reports that it failed, or if the command
 * failed.
 */
#ifndef RVL_PREDICT_REPLAY_VERDICT_H
#define RVL_PREDICT_REPLAY_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "reveille/replay.h"

/* The memory that must stay free on each device. */
typedef struct rvli_headroom {
    uint64_t bytes; /* valid with percent < 0 */
    double percent;
} rvli_headroom;

/* RVL_OK; RVL_ERR_INVALID: out of range, or two are given. */
rvl_status rvli_headroom_read(const rvl_replay_options *options, rvli_headroom *headroom_out);

typedef struct rvli_refusal {
    uint64_t number; /* of the event, from 1; 0: no refusal */
    const char *process;
    const char *tag;
    const char *where;
    uint64_t requested_bytes;
    uint64_t free_bytes;
    const char *stage;     /* as marked; NULL: none */
    uint32_t stage_number; /* among those of its name */
    uint32_t stage_index;
    const char *how; /* NULL: it did not say */
    int device;      /* the trace's device; RVL_NO_DEVICE: host memory */
    bool by_allocator;
    uint32_t file; /* index of the trace file with its line */
    uint32_t line;
} rvli_refusal;

/* How a process failed. */
typedef struct rvli_failure {
    const char *process; /* NULL: no process failed */
    const char *how;     /* NULL: it did not say */
    const char *stage;   /* as marked; NULL: none */
    uint32_t stage_number;
} rvli_failure;

/* Of one process. */
typedef struct rvli_refusal_open {
    rvli_refusal last;
    bool open;
} rvli_refusal_open;

/* Of the whole run. */
typedef struct rvli_outcome {
    uint64_t events;         /* events noted */
    uint32_t process_count;  /* processes with an event */
    uint32_t successor_from; /* processes from this number on began after another was ended */
    uint64_t refused;        /* survived or deadly */
    uint64_t cured;
    rvli_refusal first;
    rvli_refusal deadly; /* the first one that ended a process */
    bool replaced;       /* a process that began later got memory */
    bool used;           /* any device memory was used */
    bool ran;            /* the trace has a program that ran */
    bool unrecorded;     /* a program that ran did not record refusals */
    bool cut_off;        /* a file is cut off, so the end of its program is not known */
    bool ended;
    bool by_signal;
    bool other_device; /* replayed on other devices than the recorded ones */
    uint32_t exit_status;
    uint64_t missed;      /* processes of the command that are missing in the trace */
    const char *waits;    /* which process waited for something that never came; NULL: none */
    rvli_failure failure; /* the first failure */
    rvli_failure reason;  /* the first failure that says how */
} rvli_outcome;

/* Notes an event of a process. */
void rvli_outcome_note(rvl_replay *replay, rvli_refusal_open *process,
                       const rvl_trace_event *event);

/* Whether a program that was recorded ran out of memory, or its command failed. */
bool rvli_outcome_failed(const rvli_outcome *outcome);

/* Ends the trace for a process. */
void rvli_outcome_end(rvli_outcome *outcome, rvli_refusal_open *process);

#endif
