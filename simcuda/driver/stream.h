/* SPDX-License-Identifier: MIT */
/* Streams and events, for files that add to what a stream does. */
#ifndef RVL_SIMCUDA_STREAM_H
#define RVL_SIMCUDA_STREAM_H

#include <stdatomic.h>

#include "simcuda/driver/driver.h"
#include "simcuda/driver/owed.h"

/* The nodes of a captured graph on which the next work depends. */
typedef struct rvli_frontier {
    uint64_t capture; /* the capture's id; 0: none */
    CUgraphNode *nodes;
    size_t count;
} rvli_frontier;

struct CUstream_st {
    unsigned flags;
    int priority;
    int device;
    unsigned context; /* rvli_current_context() at creation */
    uint64_t number;
    rvli_frontier after; /* valid while it is captured */
    rvli_debts owed;
    bool collective; /* the next event marks the end of a collective (polled.h) */
};

struct CUevent_st {
    unsigned flags;
    int device;
    unsigned context;
    bool recorded;
    uint64_t when_ns;    /* in device time */
    rvli_frontier at;    /* if last recorded in a capture */
    uint64_t machine_id; /* 0: not shared with other processes */
    bool opened;         /* belongs to another process */
    rvli_debts owed;
    struct {
        atomic_uint_fast64_t number; /* among events hidden from a watchdog; 0: not hidden */
        uint64_t since_s;
    } polled; /* polled.h */
};

/* Advances device time by the launch of so many kernels. */
void rvli_time_pass(size_t kernels);

/* Records an event on a stream, regardless of their contexts. */
CUresult rvli_event_record(CUevent event, CUstream stream);

/* The stream of a handle. Two predefined handles need no creation. */
CUstream rvli_stream_of(CUstream handle);
bool rvli_stream_is_legacy(CUstream handle);

#endif
