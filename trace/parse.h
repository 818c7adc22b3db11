/* SPDX-License-Identifier: MIT */
/*
 * One line of a trace into one event.
 *
 * A cursor walks the line; the first thing that is wrong is noted with its column, and parsing
 * stops.
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
    uint32_t index;   /* over all files */
    const char *name; /* as shown: "engine#2" where two files have an "engine" */
    uint64_t last_id;
    uint32_t flags; /* RVL_PROCESS_* */
} rvli_trace_process;

/* What is said of a first line that is wrong. */
#define RVLI_FIRST_LINE_BYTES 192

/* What the lines of one file so far have declared. */
typedef struct rvli_trace_file {
    uint32_t minor; /* of the file's version */
    bool has_clock;
    bool has_events;
    bool has_end;
    uint32_t line_number; /* of the line that was read last, from 1 */
    const char *boot_id;  /* NULL: unknown. One pointer per distinct boot */
    uint64_t mono_ns;
    uint64_t wall_ns;
    uint64_t device_mask;
    rvl_trace_device devices[RVL_MAX_DEVICES];
    uint32_t device_lines[RVL_MAX_DEVICES];
    rvli_names process_names; /* index: into processes */
    rvli_trace_process *processes;
    uint32_t declared_flags; /* RVL_PROCESS_* of the process that was declared last */
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
    rvl_status status; /* RVL_OK until something is wrong */
    const char *why;
    uint32_t column; /* from 1 */
} rvli_cursor;

typedef enum rvli_line_kind {
    RVLI_LINE_NOTHING,
    RVLI_LINE_EVENT,
    RVLI_LINE_PROCESS
} rvli_line_kind;

/* The first line: magic and version. false: cursor->status and why say what is wrong. */
bool rvli_parse_first_line(rvli_cursor *cursor, rvli_trace_file *file);

/*
 * Any other line. Events are written to *event (times as in the file). A declared process is
 * entered in file->process_names; the caller gives it its number (RVLI_LINE_PROCESS). false as
 * above.
 */
bool rvli_parse_line(rvli_cursor *cursor, rvli_trace_file *file, rvl_trace_event *event,
                     rvli_line_kind *kind_out);

/* Column of the time in the line of an event. */
uint32_t rvli_parse_time_column(rvl_event_kind kind);

#endif
