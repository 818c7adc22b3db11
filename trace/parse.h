/* SPDX-License-Identifier: MIT */
/*
 * Parses one line of a trace into one event.
 *
 * A cursor moves along the line. Parsing stops at the first error and stores its column.
 */
#ifndef RVL_TRACE_PARSE_H
#define RVL_TRACE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/trace.h"
#include "trace/names.h"

/* A process of one file. */
typedef struct rvli_trace_process {
    uint32_t index;   /* number over all files */
    const char *name; /* name for users: "engine#2" if two files have an "engine" */
    uint64_t last_id;
    uint32_t flags; /* RVL_PROCESS_* */
} rvli_trace_process;

/* Size of the message about a wrong first line. */
#define RVLI_FIRST_LINE_BYTES 192

/* The declarations of one file so far. */
typedef struct rvli_trace_file {
    uint32_t minor; /* of the file's version */
    bool has_clock;
    bool has_events;
    bool has_end;
    uint32_t line_number; /* number of the last line read, from 1 */
    const char *boot_id;  /* NULL: unknown. One pointer per distinct boot */
    uint64_t mono_ns;
    uint64_t wall_ns;
    uint64_t device_mask;
    rvl_trace_device devices[RVL_MAX_DEVICES];
    uint32_t device_lines[RVL_MAX_DEVICES];
    rvli_names process_names; /* index: into processes */
    rvli_trace_process *processes;
    uint32_t declared_flags; /* RVL_PROCESS_* of the last declared process */
    uint64_t last_ns;
    uint64_t event_lines;
    uint64_t skipped_events;
    rvli_names *tags;  /* the reader's, over all files */
    rvli_names *names; /* likewise: stages, causes, profiles, boots */
    char first_line[RVLI_FIRST_LINE_BYTES];
} rvli_trace_file;

typedef struct rvli_cursor {
    const char *line;
    const char *at;
    const char *end;
    rvl_status status; /* RVL_OK until an error */
    const char *why;
    uint32_t column; /* from 1 */
} rvli_cursor;

typedef enum rvli_line_kind {
    RVLI_LINE_NOTHING,
    RVLI_LINE_EVENT,
    RVLI_LINE_PROCESS
} rvli_line_kind;

/*
 * Parses the first line: magic and version. On failure returns false, with cursor->status and why
 * set.
 */
bool rvli_parse_first_line(rvli_cursor *cursor, rvli_trace_file *file);

/*
 * Parses any other line. Stores an event in *event, with the time as in the file. Adds a declared
 * process to file->process_names; for RVLI_LINE_PROCESS, the caller must then add its number.
 * Returns false as above.
 */
bool rvli_parse_line(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event,
                     rvli_line_kind *kind_out);

/* The column of the time in an event's line. */
uint32_t rvli_parse_time_column(rvl_event_kind kind);

#endif
