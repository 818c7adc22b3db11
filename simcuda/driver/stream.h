/* SPDX-License-Identifier: MIT */
/* Streams and events as the files see them that add to what a stream does. */
#ifndef RVL_SIMCUDA_STREAM_H
#define RVL_SIMCUDA_STREAM_H

#include <stdatomic.h>

#include "simcuda/driver/driver.h"
#include "simcuda/driver/owed.h"

/* What work of a capture comes after: nodes of its graph. */
typedef struct rvli_frontier {
    uint64_t capture; /* which; 0: none */
    CUgraphNode *nodes;
    size_t count;
} rvli_frontier;

struct CUstream_st {
    unsigned flags;
    int priority;
    int device;
    unsigned context; /* rvli_current_context(), when it was made */
    uint64_t number;
    rvli_frontier after; /* while it is captured */
    rvli_debts owed;
    bool collective; /* the next event is the end of one (polled.h) */
};

struct CUevent_st {
    unsigned flags;
    int device;
    unsigned context;
    bool recorded;
    uint64_t when_ns;    /* of the device's time */
    rvli_frontier at;    /* if it was last recorded in a capture */
    uint64_t machine_id; /* 0: other processes do not have it */
    bool opened;         /* it is another process's */
    rvli_debts owed;
    struct {
        atomic_uint_fast64_t number; /* among those that are hidden from a watchdog; 0: it is not */
        uint64_t since_s;
    } polled; /* polled.h */
};

/* So many kernels were launched: the device's time goes on. */
void rvli_time_pass(size_t kernels);

/* Records an event on a stream, of whichever contexts they are. */
CUresult rvli_event_record(CUevent event, CUstream stream);

/* The stream that a handle means: there are two that need not be made. */
CUstream rvli_stream_of(CUstream handle);
bool rvli_stream_is_legacy(CUstream handle);

#endif
