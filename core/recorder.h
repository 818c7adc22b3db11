/* SPDX-License-Identifier: MIT */
/*
 * The recorder: writes what a context does as trace events (include/reveille/record.h).
 *
 * All functions require the context's lock, which orders the lines. A failed write is remembered
 * and reported when recording stops. It never fails the recorded call.
 */
#ifndef RVL_CORE_RECORDER_H
#define RVL_CORE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/intmap.h"
#include "reveille/trace.h"

typedef struct rvli_recorder {
    rvl_trace_writer *writer;    /* NULL: off */
    uint64_t start_ns;           /* context clock at time 0 of the trace */
    uint32_t declared_processes; /* processes 0 to n-1 are declared in the file */
    rvl_status failed;           /* status of the first missing line */
    rvli_intmap late;            /* address -> id in the file, or 0: its line is not written yet */
    size_t owed;                 /* lines that are not written yet */
} rvli_recorder;

#define RVLI_USE_UNKNOWN UINT64_MAX

struct rvli_allocation;
struct rvli_tag;

static inline bool rvli_recording(const rvli_recorder *recorder)
{
    return recorder->writer != NULL;
}

/*
 * The line of a transition is written at its end, and covers all of its tag. So an allocation made
 * in a tag during its transition is recorded after that line, by rvli_record_late(). It then has
 * another id in the file than in the context, because ids rise in a file. all: also while the tag
 * is still in transition.
 */
void rvli_record_alloc(rvl_context *context, const struct rvli_allocation *allocation);
void rvli_record_late(rvl_context *context, bool all);
void rvli_record_free(rvl_context *context, const struct rvli_allocation *allocation);
void rvli_record_transition(rvl_context *context, const struct rvli_tag *tag, rvl_event_kind kind,
                            bool skip_content);
/* used_bytes: true use of each device. RVLI_USE_UNKNOWN if it could not be read. */
void rvli_record_stage(rvl_context *context, const char *name, const uint64_t *used_bytes);
void rvli_record_step(rvl_context *context);
void rvli_record_external(rvl_context *context, int device, const char *cause, uint64_t bytes);
/* Records a request for which a device had no room. */
void rvli_record_refusal(rvl_context *context, const struct rvli_tag *tag, int device,
                         uint64_t requested_bytes, uint64_t free_bytes);

#endif
