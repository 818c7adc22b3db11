/* SPDX-License-Identifier: MIT */
/*
 * Refusals, and what became of the processes that met them (verdict.c).
 *
 * A process's last refusal is open until its next request says what became of it. The request that
 * is granted at its next try was cured: allocators give back what they cache and try again. One
 * after which the process asks for something else was survived. One after which it asks for nothing
 * more may have ended it: so it has where the process then says that it failed, or the command did.
 */
#ifndef RVL_PREDICT_REPLAY_VERDICT_H
#define RVL_PREDICT_REPLAY_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "reveille/replay.h"

/* What is to be left of each device. */
typedef struct rvli_headroom {
    uint64_t bytes; /* with percent < 0 */
    double percent;
} rvli_headroom;

/* RVL_ERR_INVALID: out of range, or two are given. */
rvl_status rvli_headroom_read(const rvl_replay_options *options, rvli_headroom *headroom_out);

typedef struct rvli_refusal {
    uint64_t number; /* of the event, from 1; 0: there is none */
    const char *process;
    const char *tag;
    const char *where;
    uint64_t requested_bytes;
    uint64_t free_bytes;
    const char *stage;     /* as it was marked; NULL: none */
    uint32_t stage_number; /* among those of its name */
    uint32_t stage_index;
    const char *how; /* how the process failed by it; NULL: it did not say */
    int device;      /* the trace's; RVL_NO_DEVICE: host memory */
    bool by_allocator;
    uint32_t file; /* of the trace, where its line stands */
    uint32_t line;
} rvli_refusal;

/* How a process failed. */
typedef struct rvli_failure {
    const char *process; /* NULL: none did */
    const char *how;     /* NULL: it did not say */
    const char *stage;   /* as it was marked; NULL: none */
    uint32_t stage_number;
} rvli_failure;

/* Of a process. */
typedef struct rvli_refusal_open {
    rvli_refusal last;
    bool open;
} rvli_refusal_open;

/* Of the whole run. */
typedef struct rvli_outcome {
    uint64_t events;         /* that were noted */
    uint32_t process_count;  /* that had one */
    uint32_t successor_from; /* processes from this one on began after one had been ended */
    uint64_t refused;        /* survived, or deadly */
    uint64_t cured;
    rvli_refusal first;
    rvli_refusal deadly; /* the first that ended a process */
    bool replaced;       /* a process that began later got memory */
    bool used;           /* any device memory */
    bool ran;            /* a program that ran is in the trace */
    bool unrecorded;     /* a program that ran did not record refusals */
    bool cut_off;        /* a file breaks off: nobody knows how its program ended */
    bool ended;
    bool by_signal;
    bool other_device; /* replayed on devices that are not the recorded ones */
    uint32_t exit_status;
    uint64_t missed;      /* processes of the command that are not in the trace */
    const char *waits;    /* which process waited for what never came; NULL: none */
    rvli_failure failure; /* the first */
    rvli_failure reason;  /* the first that says how */
} rvli_outcome;

/* Notes an event of a process of a replay. */
void rvli_outcome_note(rvl_replay *replay, rvli_refusal_open *process,
                       const rvl_trace_event *event);

/* Whether a program that was recorded ran out of memory, or its command failed. */
bool rvli_outcome_failed(const rvli_outcome *outcome);

/* The trace has ended for a process. */
void rvli_outcome_end(rvli_outcome *outcome, rvli_refusal_open *process);

#endif
