/* SPDX-License-Identifier: MIT */
/*
 * What streams owe: NCCL operations that are complete only once other ranks have called them,
 * too. Only calls that wait for a stream, an event or a device wait for that, so a barrier
 * works. Queries report that the work is not complete. A stream owes the operations called on
 * it, and those owed by an event that it waits for. An event owes what its stream owed when it
 * was recorded. As CUDA documents, the legacy stream and blocking streams wait for each other.
 *
 * Ranks call the operations of a communicator in one order, so a rank that has come to an
 * operation has come to all earlier ones. So only the last operation of each kind is kept.
 *
 * Exported, for the simulated NCCL.
 */
#ifndef RVL_SIMCUDA_OWED_H
#define RVL_SIMCUDA_OWED_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rvli_owed rvli_owed;

typedef enum rvli_owed_end {
    RVLI_OWED_COME,
    RVLI_OWED_NOT_YET,
    RVLI_OWED_NEVER, /* the limit for waiting was reached */
} rvli_owed_end;

struct rvli_owed {
    uint64_t meeting; /* the communicator's meeting */
    uint64_t sequence;
    uint32_t from, to; /* sender and receiver, or RVLI_WIRE_ALL */
    uint32_t giver;    /* the rank to wait for; RVLI_WIRE_ALL: every rank */
    uint32_t rank, ranks;
    int device;
    const char *name; /* the function's name */
    /* Whether these ranks have come. With wait, returns once they have, or never will. */
    rvli_owed_end (*have_come)(const rvli_owed *of, bool wait);
};

typedef struct rvli_debts {
    rvli_owed *each;
    size_t count, room;
} rvli_debts;

/* A stream owes an operation from now on. Without host memory, the debt is dropped. */
void rvli_owed_add(CUstream stream, const rvli_owed *what);

/*
 * The stream on which this thread launches a graph, for the graph's host functions: each launch
 * owes the captured operations.
 */
CUstream rvli_owed_launched_on(void);
void rvli_owed_set_launched_on(CUstream stream);

/* record: the event owes what the stream owes. depend: the stream owes what the event owes, in
 * addition to its own debts. */
void rvli_owed_record(CUevent event, CUstream stream);
void rvli_owed_depend(CUstream stream, CUevent event);

/* Waits until nothing is owed, without a lock. CUDA_ERROR_LAUNCH_TIMEOUT: an operation will
 * never complete, and stays owed. */
CUresult rvli_owed_settle_stream(CUstream stream);
CUresult rvli_owed_settle_event(CUevent event);
CUresult rvli_owed_settle_device(int device);

/* Whether nothing is owed any more. Never waits. */
bool rvli_owed_stream_is_done(CUstream stream);
bool rvli_owed_event_is_done(CUevent event);

/* drop: a stream or an event is destroyed. forget: a forked child owes nothing. */
void rvli_owed_drop(rvli_debts *of);
void rvli_owed_forget(void);

#endif
