/* SPDX-License-Identifier: MIT */
/*
 * Words of the trace format that reader and writer share. The specification: docs/trace-format.md.
 */
#ifndef RVL_TRACE_FORMAT_H
#define RVL_TRACE_FORMAT_H

#include "base/output.h"
#include "reveille/trace.h"

#define RVLI_TRACE_MAGIC "reveille-trace "
#define RVLI_TRACE_NONE "-" /* no tag, no profile, no boot id */

/* Names: 1 to 255 bytes. */
#define RVLI_TRACE_NAME_BYTES_MAX 255u
/* A line, without its end. Longer ones are refused. */
#define RVLI_TRACE_LINE_BYTES_MAX 65536u
/* Of one trace, and of a reader over all its files; likewise the files of a reader. */
#define RVLI_TRACE_PROCESSES_MAX 4096u
#define RVLI_TRACE_GRANULARITY_MIN 4096u

/* What to do about a file that was cut off. */
#define RVLI_TRACE_PARTIAL_HINT "(--partial replays it as far as it is whole)"

/* The first minor version that has parts. */
#define RVLI_TRACE_MINOR_PARTS 1u
/* And the first that has ranges. */
#define RVLI_TRACE_MINOR_RANGES 2u
/* And the first that has refusals, and how a command ended. */
#define RVLI_TRACE_MINOR_REFUSALS 2u
/* And the first that has processes asleep. */
#define RVLI_TRACE_MINOR_SLEEP 3u
/* And the first that has processes that fail. */
#define RVLI_TRACE_MINOR_FAIL 4u

#define RVLI_WORD_CLOCK "clock"
#define RVLI_WORD_DEVICE "device"
#define RVLI_WORD_PROCESS "process"
#define RVLI_WORD_END "end"
#define RVLI_WORD_DISCARD "discard"
#define RVLI_WORD_NO_RESTORE "no_restore"
#define RVLI_WORD_PAUSED "paused"
#define RVLI_WORD_HOST "host"
#define RVLI_WORD_REFUSALS "refusals=yes"
#define RVLI_WORD_BY_ALLOCATOR "by=allocator"
#define RVLI_WORD_AT "at="
#define RVLI_WORD_EXIT "exit="
#define RVLI_WORD_SIGNAL "signal="
#define RVLI_WORD_MISSED "missed="
#define RVLI_WORD_WAITS "waits="
#define RVLI_WORD_HOW "how="

#define RVLI_TRACE_EXIT_MAX 255u
#define RVLI_TRACE_SIGNAL_MAX 64u

/* X(flag, word): flags of an allocation, in the order in which they are written. */
#define RVLI_TRACE_FLAG_MAP(X)                                                                     \
    X(RVL_ALLOC_EXPORTABLE, "exportable")                                                          \
    X(RVL_ALLOC_RDMA, "rdma")                                                                      \
    X(RVL_ALLOC_PAUSED, "paused")

/* Bytes of a name that are written as %XX. A name that is exactly "-" is, too. */
static inline bool rvli_trace_must_escape(unsigned char byte)
{
    return byte <= 0x20 || byte == 0x7f || byte == '%';
}

/* As rvl_trace_writer_open(), for a path that was chosen or may be guessed. */
rvl_status rvli_trace_writer_open(const char *path, rvli_output_name name,
                                  const rvl_trace_header *header, rvl_trace_writer **writer_out);

/* Writes a draft out and gives it its name before it is whole. RVL_ERR_IO: it has none. */
rvl_status rvli_trace_writer_publish(rvl_trace_writer *writer);

#endif
