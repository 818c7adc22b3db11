/* SPDX-License-Identifier: MIT */
/*
 * The trace reader: opens the files, reads their headers, and merges their events on one clock.
 *
 * With several files, the reader holds at most one event of each, and returns the earliest. Events
 * of a single file go directly to the caller.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/options.h"
#include "base/text.h"
#include "base/trace_element.h"
#include "reveille/trace.h"
#include "trace/format.h"
#include "trace/lines.h"
#include "trace/parse.h"

#define FILES_MAX 4096u

typedef struct source {
    const char *path; /* valid only while the reader is opened */
    const char *name;
    rvli_lines *lines;
    rvli_trace_file file;
    uint64_t offset_ns; /* from time 0 of the merged trace to time 0 of this file */
    rvl_trace_event event;
    bool has_event; /* `event` waits to be returned */
    bool finished;
    bool cut;
} source;

/* The name of a process over all files. */
typedef struct shown_name {
    UT_hash_handle hh;
    uint32_t next_number; /* to try next if another process has this name */
    char text[];
} shown_name;

struct rvl_trace_reader {
    bool partial;
    uint32_t source_count;
    uint32_t process_count;
    uint64_t events;
    rvli_names tags;
    rvli_names names;
    shown_name *shown_names; /* the names of all processes */
    rvl_status failed;       /* sticky, with its error */
    rvl_error error;
    rvl_trace_device devices[RVL_MAX_DEVICES];
    size_t device_count;
    source sources[];
};

/* ---- Errors ---- */

static rvl_status report(rvl_status status, const char *file, uint32_t line, uint32_t column,
                         const char *message)
{
    rvli_error(status, message);
    rvli_error_place(file, line, column);
    return status;
}

static rvl_status report_source(rvl_status status, const source *s, uint32_t column,
                                const char *message)
{
    return report(status, s->name, s->file.line_number, column, message);
}

/* ---- One file ---- */

/* Puts the next line into the cursor. RVL_ERR_NOT_FOUND: the file has ended, or is cut off here. */
static rvl_status next_line(rvl_trace_reader *reader, source *s, rvli_cursor *cursor)
{
    const char *why = "the file cannot be read";
    const char *line;
    size_t length;
    rvl_status status = rvli_lines_next(s->lines, &line, &length, &why);
    if (status == RVL_OK) {
        s->file.line_number++;
        *cursor = (rvli_cursor){.line = line, .at = line, .end = line + length};
        return RVL_OK;
    }
    if (status == RVL_ERR_NOT_FOUND && s->file.has_end)
        return status;
    bool cut = status == RVL_ERR_NOT_FOUND ||
               (status == RVL_ERR_CORRUPT_TRACE && rvli_lines_cut(s->lines));
    if (cut && reader->partial && s->file.line_number > 0) {
        s->cut = true;
        return RVL_ERR_NOT_FOUND;
    }
    s->file.line_number++;
    if (status == RVL_ERR_NOT_FOUND && s->file.line_number == 1)
        return report_source(RVL_ERR_CORRUPT_TRACE, s, 1, "the file is empty");
    if (status == RVL_ERR_NOT_FOUND)
        return report_source(RVL_ERR_CORRUPT_TRACE, s, 1,
                             "the end record is missing: the trace was cut "
                             "off " RVLI_TRACE_PARTIAL_HINT);
    return report_source(status, s, rvli_lines_column(s->lines), why);
}

static shown_name *find_shown(rvl_trace_reader *reader, const char *text)
{
    shown_name *found = NULL;
    HASH_FIND(hh, reader->shown_names, text, strlen(text), found);
    return found;
}

static rvl_status add_shown(rvl_trace_reader *reader, const char *text, const char **shown_out)
{
    size_t length = strlen(text);
    shown_name *added = calloc(1, sizeof *added + length + 1);
    if (added == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a process");
    memcpy(added->text, text, length);
    added->next_number = 2;
    HASH_ADD_KEYPTR(hh, reader->shown_names, added->text, length, added);
    if (added->hh.tbl == NULL) {
        free(added);
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a process");
    }
    *shown_out = added->text;
    return RVL_OK;
}

/* Finds a name that no other process has: NAME, or the first free one of NAME#2, NAME#3... */
static rvl_status show_name(rvl_trace_reader *reader, const char *name, const char **shown_out)
{
    char unique[RVLI_TRACE_NAME_BYTES_MAX + 16];
    shown_name *taken = find_shown(reader, name);
    if (taken == NULL)
        return add_shown(reader, name, shown_out);
    do {
        rvli_text text = rvli_text_begin(unique, sizeof unique);
        rvli_text_add(&text, name);
        rvli_text_add(&text, "#");
        rvli_text_add_u64(&text, taken->next_number++);
    } while (find_shown(reader, unique) != NULL);
    return add_shown(reader, unique, shown_out);
}

/* Gives a declared process its number over all files. */
static rvl_status number_process(rvl_trace_reader *reader, source *s)
{
    rvli_trace_file *file = &s->file;
    uint32_t index = file->process_names.count - 1;
    const char *shown = NULL;
    if (reader->process_count == RVLI_TRACE_PROCESSES_MAX)
        return report_source(RVL_ERR_CORRUPT_TRACE, s, 1,
                             "more than 4096 processes in all files together");
    rvli_trace_process *processes = realloc(file->processes, (index + 1) * sizeof *file->processes);
    if (processes != NULL)
        file->processes = processes;
    if (processes == NULL || show_name(reader, file->process_names.last->text, &shown) != RVL_OK)
        return report_source(RVL_ERR_HOST_OOM, s, 1, "out of host memory");
    file->processes[index] = (rvli_trace_process){
        .index = reader->process_count++, .name = shown, .flags = file->declared_flags};
    return RVL_OK;
}

/* Reads the next event, with the time as in the file. RVL_ERR_NOT_FOUND: there is none. */
static rvl_status advance(rvl_trace_reader *reader, source *s, rvl_trace_event *event)
{
    rvli_cursor cursor;
    rvli_line_kind kind;
    for (;;) {
        rvl_status status = next_line(reader, s, &cursor);
        if (status != RVL_OK)
            return status;
        if (!rvli_parse_line(&cursor, &s->file, event, &kind))
            return report_source(cursor.status, s, cursor.column, cursor.why);
        if (kind == RVLI_LINE_EVENT)
            return RVL_OK;
        if (kind == RVLI_LINE_PROCESS) {
            status = number_process(reader, s);
            if (status != RVL_OK)
                return status;
        }
    }
}

/* Converts the time of an event to the common clock. */
static rvl_status shift_time(const source *s, rvl_trace_event *event)
{
    if (event->time_ns > UINT64_MAX - s->offset_ns)
        return report_source(RVL_ERR_CORRUPT_TRACE, s, rvli_parse_time_column(event->kind),
                             "the time does not fit into 64 bits on the common clock");
    event->time_ns += s->offset_ns;
    return RVL_OK;
}

/*
 * Reads the next event of a source, on the common clock. RVL_ERR_NOT_FOUND: the source is finished.
 */
static rvl_status read_event(rvl_trace_reader *reader, source *s, rvl_trace_event *event)
{
    rvl_status status = s->finished ? RVL_ERR_NOT_FOUND : advance(reader, s, event);
    s->finished = status == RVL_ERR_NOT_FOUND;
    if (status != RVL_OK)
        return status;
    const rvli_trace_process *process = &s->file.processes[event->process_index];
    event->process_index = process->index;
    event->process = process->name;
    event->line = s->file.line_number;
    event->process_flags = process->flags;
    event->file = (uint32_t)(s - reader->sources);
    return shift_time(s, event);
}

/* Ensures that an unfinished source holds its next event. */
static rvl_status ensure_event(rvl_trace_reader *reader, source *s)
{
    if (s->has_event)
        return RVL_OK;
    rvl_status status = read_event(reader, s, &s->event);
    s->has_event = status == RVL_OK;
    return status == RVL_ERR_NOT_FOUND ? RVL_OK : status;
}

/* ---- Opening ---- */

static rvl_status open_source(rvl_trace_reader *reader, source *s)
{
    rvli_cursor cursor;
    s->file.tags = &reader->tags;
    s->file.names = &reader->names;
    rvl_status status = rvli_lines_open(s->path, &s->lines);
    if (status != RVL_OK) {
        rvli_error_place(s->name, 0, 0);
        return status;
    }
    status = next_line(reader, s, &cursor);
    if (status != RVL_OK)
        return status;
    if (!rvli_parse_first_line(&cursor, &s->file))
        return report_source(cursor.status, s, cursor.column, cursor.why);
    return ensure_event(reader, s);
}

/* Reports a missing record at the end record, or where the file is cut off. */
static rvl_status check_header(const source *s)
{
    if (s->file.has_clock && s->file.device_mask != 0)
        return RVL_OK;
    return report(RVL_ERR_CORRUPT_TRACE, s->name, s->file.line_number + s->cut, 1,
                  s->file.has_clock ? "the file has no device record"
                                    : "the file has no clock record");
}

/* Uses the monotonic clock if all files are of one boot, and the wall clock otherwise. */
static void align_clocks(rvl_trace_reader *reader)
{
    const char *boot_id = reader->sources[0].file.boot_id;
    bool mono = boot_id != NULL;
    for (uint32_t i = 1; i < reader->source_count; i++)
        mono = mono && reader->sources[i].file.boot_id == boot_id;
    uint64_t earliest = UINT64_MAX;
    for (uint32_t i = 0; i < reader->source_count; i++) {
        source *s = &reader->sources[i];
        s->offset_ns = mono ? s->file.mono_ns : s->file.wall_ns;
        if (s->offset_ns < earliest)
            earliest = s->offset_ns;
    }
    for (uint32_t i = 0; i < reader->source_count; i++)
        reader->sources[i].offset_ns -= earliest;
}

static bool same_device(const rvl_trace_device *a, const rvl_trace_device *b)
{
    return a->capacity_bytes == b->capacity_bytes && a->granularity_bytes == b->granularity_bytes &&
           a->profile == b->profile;
}

static rvl_status report_mismatch(uint32_t device, const source *s, const source *before)
{
    char message[sizeof rvli_error_get()->message];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "device ");
    rvli_text_add_u64(&text, device);
    rvli_text_add(&text, " is not declared as in ");
    rvli_text_add(&text, before->name);
    rvli_text_add(&text, ":");
    rvli_text_add_u64(&text, before->file.device_lines[device]);
    return report(RVL_ERR_CORRUPT_TRACE, s->name, s->file.device_lines[device],
                  sizeof RVLI_WORD_DEVICE + 1, message); /* column of its number */
}

static rvl_status merge_devices(rvl_trace_reader *reader)
{
    for (uint32_t index = 0; index < RVL_MAX_DEVICES; index++) {
        const source *first = NULL;
        for (uint32_t i = 0; i < reader->source_count; i++) {
            const source *s = &reader->sources[i];
            if (!(s->file.device_mask >> index & 1))
                continue;
            if (first == NULL)
                first = s;
            else if (!same_device(&first->file.devices[index], &s->file.devices[index]))
                return report_mismatch(index, s, first);
        }
        if (first != NULL)
            reader->devices[reader->device_count++] = first->file.devices[index];
    }
    return RVL_OK;
}

static rvl_status open_all(rvl_trace_reader *reader)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < reader->source_count && status == RVL_OK; i++) {
        status = open_source(reader, &reader->sources[i]);
        if (status == RVL_OK)
            status = check_header(&reader->sources[i]);
    }
    if (status == RVL_OK)
        status = merge_devices(reader);
    if (status != RVL_OK)
        return status;
    align_clocks(reader);
    for (uint32_t i = 0; i < reader->source_count; i++) {
        source *s = &reader->sources[i];
        status = s->has_event ? shift_time(s, &s->event) : RVL_OK;
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

rvl_status rvl_trace_reader_open(const char *const *paths, size_t path_count,
                                 const rvl_trace_reader_options *user_options,
                                 rvl_trace_reader **reader_out)
{
    rvl_trace_reader_options options;
    rvl_status status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = rvli_flags_check(options.flags, RVL_TRACE_PARTIAL, 0);
    if (status != RVL_OK)
        return status;
    if (paths == NULL || path_count == 0 || path_count > FILES_MAX || reader_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "1 to 4096 traces must be named");
    for (size_t i = 0; i < path_count; i++)
        if (paths[i] == NULL || (options.names != NULL && options.names[i] == NULL))
            return rvli_error(RVL_ERR_INVALID, "the path or the name of a trace is NULL");
    rvl_trace_reader *reader = calloc(1, sizeof *reader + path_count * sizeof *reader->sources);
    if (reader == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "out of host memory");
    reader->partial = (options.flags & RVL_TRACE_PARTIAL) != 0;
    reader->source_count = (uint32_t)path_count;
    for (size_t i = 0; i < path_count; i++) {
        reader->sources[i].path = paths[i];
        reader->sources[i].name = options.names != NULL ? options.names[i] : paths[i];
    }
    status = open_all(reader);
    if (status != RVL_OK) {
        rvl_trace_reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return RVL_OK;
}

/* ---- Reading ---- */

/* Finds the source of the next event; NULL if no source has one. */
static rvl_status find_earliest(rvl_trace_reader *reader, source **earliest_out)
{
    *earliest_out = NULL;
    for (uint32_t i = 0; i < reader->source_count; i++) {
        source *s = &reader->sources[i];
        rvl_status status = ensure_event(reader, s);
        if (status != RVL_OK)
            return status;
        if (s->has_event &&
            (*earliest_out == NULL || s->event.time_ns < (*earliest_out)->event.time_ns))
            *earliest_out = s;
    }
    return RVL_OK;
}

/* Returns the earliest event of all sources. RVL_ERR_NOT_FOUND: there is none left. */
static rvl_status merge(rvl_trace_reader *reader, rvl_trace_event *event_out)
{
    source *earliest;
    rvl_status status = find_earliest(reader, &earliest);
    if (status != RVL_OK)
        return status;
    if (earliest == NULL)
        return RVL_ERR_NOT_FOUND;
    *event_out = earliest->event;
    earliest->has_event = false;
    return RVL_OK;
}

static rvl_status next_event(rvl_trace_reader *reader, rvl_trace_event *event_out)
{
    rvl_status status = reader->failed;
    if (status == RVL_OK && reader->source_count == 1 && !reader->sources[0].has_event) {
        /* nothing to merge: read directly into the caller's event */
        status = read_event(reader, &reader->sources[0], event_out);
    } else if (status == RVL_OK) {
        status = merge(reader, event_out);
    }
    if (status == RVL_OK) {
        reader->events++;
        return RVL_OK;
    }
    if (status == RVL_ERR_NOT_FOUND)
        return status;
    /* Every later call returns this error: after it, the rest of a file cannot be trusted. */
    if (reader->failed == RVL_OK)
        reader->error = *rvli_error_get();
    reader->failed = status;
    rvli_error_set(&reader->error);
    return status;
}

rvl_status rvl_trace_reader_next(rvl_trace_reader *reader, rvl_trace_event *event_out,
                                 size_t event_size)
{
    rvl_trace_event known, *event = event_out;
    if (reader == NULL || event_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the reader or event_out is NULL");
    if (event_size != sizeof known) { /* the caller has an older or newer struct */
        if (rvli_element_check(RVLI_TRACE_EVENT, event_size) != RVL_OK)
            return RVL_ERR_INVALID;
        event = &known;
    }
    rvl_status status = next_event(reader, event);
    if (status == RVL_OK && event == &known)
        rvli_element_write(RVLI_TRACE_EVENT, event_out, event_size, &known);
    return status;
}

/* The column of a word, from 1; 0 if there are fewer words. */
static uint32_t column_of(const char *line, size_t length, uint32_t field)
{
    uint32_t at = 1;
    for (size_t i = 0; i < length; i++) {
        if (at == field)
            return (uint32_t)i + 1;
        at += line[i] == ' ';
    }
    return 0;
}

uint32_t rvl_trace_find_column(const char *path, uint32_t line_number, uint32_t field)
{
    rvli_lines *lines;
    const char *why, *line = NULL;
    size_t length = 0;
    if (path == NULL || line_number == 0 || field == 0 || rvli_lines_open(path, &lines) != RVL_OK)
        return 0;
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < line_number && status == RVL_OK; i++)
        status = rvli_lines_next(lines, &line, &length, &why);
    uint32_t column = status == RVL_OK ? column_of(line, length, field) : 0;
    rvli_lines_close(lines);
    return column;
}

rvl_status rvl_trace_reader_get_devices(const rvl_trace_reader *reader,
                                        rvl_trace_device *devices_out, size_t device_size,
                                        size_t capacity, size_t *count_out)
{
    if (reader == NULL)
        return rvli_error(RVL_ERR_INVALID, "the reader is NULL");
    const rvli_elements_out out = {.element = RVLI_TRACE_DEVICE,
                                   .array = devices_out,
                                   .size = device_size,
                                   .capacity = capacity};
    return rvli_elements_fill(&out, reader->devices, reader->device_count, count_out);
}

const char *rvl_trace_reader_path(const rvl_trace_reader *reader, uint32_t file)
{
    return reader != NULL && file < reader->source_count ? reader->sources[file].name : NULL;
}

void rvl_trace_reader_get_progress(const rvl_trace_reader *reader, rvl_trace_progress *progress_out)
{
    rvl_trace_progress progress = {.events = reader != NULL ? reader->events : 0};
    bool known = true;
    for (uint32_t i = 0; reader != NULL && i < reader->source_count; i++) {
        const source *s = &reader->sources[i];
        progress.bytes_read += rvli_lines_bytes_read(s->lines);
        progress.bytes_total += rvli_lines_bytes_total(s->lines);
        known = known && rvli_lines_bytes_total(s->lines) > 0;
        progress.skipped_events += s->file.skipped_events;
        progress.cut_files += s->cut;
    }
    if (!known)
        progress.bytes_total = 0;
    rvli_result_write(progress_out, &progress, sizeof progress);
}

void rvl_trace_reader_close(rvl_trace_reader *reader)
{
    if (reader == NULL)
        return;
    for (uint32_t i = 0; i < reader->source_count; i++) {
        source *s = &reader->sources[i];
        rvli_lines_close(s->lines);
        rvli_names_destroy(&s->file.process_names);
        free(s->file.processes);
    }
    shown_name *shown, *next;
    HASH_ITER (hh, reader->shown_names, shown, next) {
        HASH_DEL(reader->shown_names, shown);
        free(shown);
    }
    rvli_names_destroy(&reader->tags);
    rvli_names_destroy(&reader->names);
    free(reader);
}
