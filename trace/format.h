/* SPDX-License-Identifier: MIT */
/* The words of the trace format that reader and writer share. docs/trace-format.md specifies it. */
#ifndef RVL_TRACE_FORMAT_H
#define RVL_TRACE_FORMAT_H

#include "base/output.h"
#include "reveille/trace.h"

#define RVLI_TRACE_MAGIC "reveille-trace "
#define RVLI_TRACE_NONE "-" /* no tag, no profile, no boot id */

/* Names: 1 to 255 bytes. */
#define RVLI_TRACE_NAME_BYTES_MAX 255u
/* The longest line, without its newline. Longer lines are refused. */
#define RVLI_TRACE_LINE_BYTES_MAX 65536u
/*
 * Maximum number of processes in a trace, and in all files of a reader together. A reader can have
 * this many files, too.
 */
#define RVLI_TRACE_PROCESSES_MAX 4096u
#define RVLI_TRACE_GRANULARITY_MIN 4096u

/* The advice for a file that was cut off. */
#define RVLI_TRACE_PARTIAL_HINT "(--partial replays it as far as it is whole)"

/* The first minor version with parts. */
#define RVLI_TRACE_MINOR_PARTS 1u
/* The first minor version with ranges. */
#define RVLI_TRACE_MINOR_RANGES 2u
/* The first minor version with refusals, and with the end of a command. */
#define RVLI_TRACE_MINOR_REFUSALS 2u
/* The first minor version with sleep. */
#define RVLI_TRACE_MINOR_SLEEP 3u
/* The first minor version with processes that fail. */
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

/* X(flag, word): flags of an allocation, in the order of writing. */
#define RVLI_TRACE_FLAG_MAP(X)                                                                     \
    X(RVL_ALLOC_EXPORTABLE, "exportable")                                                          \
    X(RVL_ALLOC_RDMA, "rdma")                                                                      \
    X(RVL_ALLOC_PAUSED, "paused")

/* Whether a byte of a name is written as %XX. So is a name that is exactly "-". */
static inline bool rvli_trace_must_escape(unsigned char byte)
{
    return byte <= 0x20 || byte == 0x7f || byte == '%';
}

/* As rvl_trace_writer_open(), for a path that was chosen or can be guessed. */
rvl_status rvli_trace_writer_open(const char *path, rvli_output_name name,
                                  const rvl_trace_header *header, rvl_trace_writer **writer_out);

/*
 * Writes a draft to its file, and gives the file its name before the trace is complete. RVL_ERR_IO:
 * it has not got its name.
 */
rvl_status rvli_trace_writer_publish(rvl_trace_writer *writer);

#endif
