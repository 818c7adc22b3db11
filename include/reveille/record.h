/* SPDX-License-Identifier: MIT */
/*
 * The recorder: writes what a context does as a trace (docs/trace-format.md).
 */
#ifndef REVEILLE_RECORD_H
#define REVEILLE_RECORD_H

#include "reveille/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Starts recording to a new file at path, which replaces an older one. Existing allocations are
 * written first. On failure the older file stays. A free is recorded before the driver call, an
 * allocation after it; for a tag in transition, after the transition. At each stage mark the true
 * use of each device is sampled, unless other threads keep changing memory. Lines are buffered and
 * written when the buffer is full, at each mark, and at stop. A killed process leaves a file that
 * `reveille replay --partial` reads. Returns RVL_OK; RVL_ERR_INVALID (the path is NULL, or ends in
 * .zst. Compress the file afterwards); RVL_ERR_STATE (called from a callback, or a recording is
 * running already); RVL_ERR_IO (the file cannot be made or written); RVL_ERR_HOST_OOM;
 * RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_record_start(rvl_context *context, const char *path);

/*
 * Writes the end record and closes the file. Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_STATE (called
 * from a callback, or nothing is recorded); RVL_ERR_IO (a line could not be written. The file then
 * lacks its end record); RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_record_stop(rvl_context *context);

/* A refused request. Refusals by the context's own calls are recorded without this. */
typedef struct rvl_refusal {
    size_t struct_size;
    uint64_t requested_bytes; /* 1 to 2^63 - 1 */
    uint64_t free_bytes;
    rvl_process process;
    int device;        /* RVL_NO_DEVICE: pinned host memory */
    const char *tag;   /* NULL: none */
    const char *where; /* the program's line, "train.py:23"; NULL: unknown */
    uint32_t flags;    /* RVL_REFUSE_BY_ALLOCATOR */
    uint32_t reserved; /* 0 */
} rvl_refusal;

/*
 * Records a refused request that never reached this context: one that the program's own allocator
 * refused, or one for host memory. Does nothing while nothing is recorded. Returns RVL_OK;
 * RVL_ERR_INVALID (there is no such process, the refusal is of 0 bytes, or a text is empty);
 * RVL_ERR_NO_DEVICE; RVL_ERR_VERSION; RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_record_refuse(rvl_context *context, const rvl_refusal *refusal);

/*
 * Records how the recorded command ended. flags: 0, and exit_status is 0 to 255; or
 * RVL_ENDED_BY_SIGNAL, and exit_status is the signal's number. missed: how many of its processes
 * should be in the recording but are not. waits: a sentence of at most 255 bytes that names a
 * process and the event that it waited for in vain, so that the command would not have ended well
 * on cards; NULL: none did. Does nothing while nothing is recorded. Returns RVL_OK; RVL_ERR_INVALID
 * (the exit status or the signal is out of range, or `waits` is empty or too long); RVL_ERR_VERSION
 * (this version does not know a flag); RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_record_end(rvl_context *context, uint32_t exit_status, uint32_t flags,
                                  uint64_t missed, const char *waits);

/* A mark for one of a context's processes. */
typedef struct rvl_mark {
    size_t struct_size;
    rvl_event_kind kind;   /* RVL_EVENT_STAGE, ENTER, LEAVE, SLEEP, WAKE or FAIL */
    rvl_process process;   /* from rvl_process_define() */
    uint64_t id;           /* of a range, from 1; with RVL_EVENT_LEAVE, 0 ends all ranges of the
                              process */
    const char *name;      /* for RVL_EVENT_STAGE, ENTER and FAIL (or NULL): 1 to 255 bytes */
    uint32_t skip_content; /* 1: RVL_EVENT_SLEEP discards, RVL_EVENT_WAKE leaves tags paused */
    uint32_t reserved;     /* 0 */
} rvl_mark;

/*
 * Records a mark for a process that this context represents, as the machine of simulated devices
 * does. It does not change the context's own stage, which rvl_stage() begins. Does nothing while
 * nothing is recorded. Returns RVL_OK; RVL_ERR_INVALID (there is no such kind or process, or no
 * name, or the id is 0); RVL_ERR_VERSION; RVL_ERR_FORKED. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_record_mark(rvl_context *context, const rvl_mark *mark);

#ifdef __cplusplus
}
#endif
#endif
