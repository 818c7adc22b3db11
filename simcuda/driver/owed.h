/* SPDX-License-Identifier: MIT */
/*
 * What streams owe: operations of NCCL that are complete only when other ranks have called them,
 * too. No call waits for that but those by which a program waits for a stream, an event or a
 * device: so a barrier is one. Queries say that it is not so far. A stream owes what was called on
 * it, and what an event that it waits for owes; an event owes what its stream did when it was
 * recorded. The legacy stream and the streams that block wait for each other, as CUDA documents it.
 *
 * Ranks call the operations of a communicator in one order, so who has come to a later one has come
 * to all before: of each kind the last is kept.
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
    RVLI_OWED_NEVER, /* and it has been waited for long enough */
} rvli_owed_end;

struct rvli_owed {
    uint64_t meeting; /* of the communicator */
    uint64_t sequence;
    uint32_t from, to; /* of a send and its receive; RVLI_WIRE_ALL */
    uint32_t giver;    /* the rank that is waited for; RVLI_WIRE_ALL: each */
    uint32_t rank, ranks;
    int device;
    const char *name; /* of the function */
    /* Whether those ranks have come. With wait, once they have, or never will. */
    rvli_owed_end (*have_come)(const rvli_owed *of, bool wait);
};

typedef struct rvli_debts {
    rvli_owed *each;
    size_t count, room;
} rvli_debts;

/* A stream owes an operation from now on. Without host memory for it nobody waits for it. */
void rvli_owed_add(CUstream stream, const rvli_owed *what);

/*
 * The stream that this thread launches a graph on, for its host functions: what a captured
 * operation needs is owed by each launch.
 */
CUstream rvli_owed_launched_on(void);
void rvli_owed_set_launched_on(CUstream stream);

/* The event owes what the stream does; and the other way, besides what the stream owes already. */
void rvli_owed_record(CUevent event, CUstream stream);
void rvli_owed_depend(CUstream stream, CUevent event);

/* Waits until nothing of it is owed, without a lock. CUDA_ERROR_LAUNCH_TIMEOUT: something never
 * will come, and stays owed. */
CUresult rvli_owed_settle_stream(CUstream stream);
CUresult rvli_owed_settle_event(CUevent event);
CUresult rvli_owed_settle_device(int device);

/* Whether nothing of it is owed any more. Nobody waits. */
bool rvli_owed_stream_is_done(CUstream stream);
bool rvli_owed_event_is_done(CUevent event);

/* A stream or an event is no more; in a forked child nothing is owed. */
void rvli_owed_drop(rvli_debts *of);
void rvli_owed_forget(void);

#endif
