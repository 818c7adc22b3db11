/* SPDX-License-Identifier: MIT */
/*
 * Traces: the memory requests of a run, one event on each line (docs/trace-format.md).
 *
 * The writer is in libreveille, the reader in libreveille-replay.
 */
#ifndef REVEILLE_TRACE_H
#define REVEILLE_TRACE_H

#include <stdbool.h>

#include "reveille/memory.h"

#ifdef __cplusplus
extern "C" {
#endif

#define RVL_TRACE_MAJOR 1
#define RVL_TRACE_MINOR 4

/* X(NAME, keyword): the kinds of event. */
#define RVL_EVENT_MAP(X)                                                                           \
    X(ALLOC, "alloc")       /* process, thread, id, device, bytes, tag, backup, flags, access */   \
    X(FREE, "free")         /* process, thread, id */                                              \
    X(PAUSE, "pause")       /* process, thread, tag, skip_content (discard) */                     \
    X(RESUME, "resume")     /* process, thread, tag, skip_content (no_restore) */                  \
    X(STAGE, "stage")       /* process, thread, name */                                            \
    X(STEP, "step")         /* process, thread */                                                  \
    X(EXTERNAL, "external") /* process, thread, device, bytes (0 allowed), name (cause) */         \
    X(SAMPLE, "sample")     /* process, thread, device, bytes: true use of the whole device */     \
    X(PART, "part") /* process, thread, id, bytes (0 allowed), tag: the tag's share of it; 1.1 */  \
    X(ENTER, "enter") /* process, thread, id, name: a range that is a stage begins; 1.2 */         \
    X(LEAVE, "leave") /* process, thread, id: it ends; 0: all ranges of the process; 1.2 */        \
    X(REFUSE,                                                                                      \
      "refuse")       /* process, thread, device (RVL_TRACE_HOST: host memory), bytes (requested), \
                         free_bytes, tag, flags (RVL_REFUSE_*), name (where; may be NULL); 1.2 */  \
    X(ENDED, "ended") /* process, thread, exit_status or (RVL_ENDED_BY_SIGNAL) signal: how the     \
                         command ended; bytes: how many of its processes the trace misses; name:   \
                         which process waited in vain, and for what (may be NULL); 1.2 */          \
    X(SLEEP,                                                                                       \
      "sleep")      /* process, thread, skip_content (discard): holds nothing from now on; 1.3 */  \
    X(WAKE, "wake") /* process, thread, skip_content (paused: its tags stay so); 1.3 */            \
    X(FAIL, "fail") /* process, thread, name (how; NULL: unknown): the process has not ended       \
                        well; 1.4 */

typedef enum rvl_event_kind {
#define RVL_EVENT_ENUM(name, keyword) RVL_EVENT_##name,
    RVL_EVENT_MAP(RVL_EVENT_ENUM)
#undef RVL_EVENT_ENUM
        RVL_EVENT_KIND_COUNT
} rvl_event_kind;

/* Index of "no tag". */
#define RVL_TRACE_NO_TAG UINT32_MAX

/* The device of a refusal of host memory. */
#define RVL_TRACE_HOST UINT32_MAX

/* Flags of RVL_EVENT_REFUSE and RVL_EVENT_ENDED. */
#define RVL_REFUSE_BY_ALLOCATOR 1u /* the program's own allocator refused, after its last try */
#define RVL_ENDED_BY_SIGNAL 1u     /* exit_status is a signal's number */

/* Facts about an event's process. */
#define RVL_PROCESS_RAN 1u              /* it has a pid: a program that ran, not a prediction */
#define RVL_PROCESS_RECORDS_REFUSALS 2u /* its refused requests are among its events */

/*
 * One event. Fields that its kind does not use are 0, and tag_index is RVL_TRACE_NO_TAG.
 * process_index, tag_index and strings come from the reader's tables and live as long as the
 * reader. The writer uses the strings and ignores the indexes.
 */
typedef struct rvl_trace_event {
    rvl_event_kind kind;
    uint32_t process_index; /* dense, from 0, over all files of a reader */
    uint64_t time_ns;       /* since the start of the first file of the merged trace */
    uint64_t id;            /* increases within a process and is never reused */
    uint64_t bytes;         /* as requested, not rounded */
    uint64_t access_mask;   /* bit d: device d, not including the owner */
    uint32_t thread;
    uint32_t device;
    uint32_t tag_index; /* dense, from 0; one for each distinct tag name */
    uint32_t flags;     /* RVL_ALLOC_*, RVL_REFUSE_* or RVL_ENDED_* */
    rvl_backup backup;
    bool skip_content; /* pause, sleep: discard; resume: no_restore; wake: paused */
    uint8_t reserved[3];
    const char *process;
    const char *tag;        /* NULL: untagged */
    const char *name;       /* of a stage or range, the cause of external bytes, the line of a
                               refusal, or what a process waited for at the end */
    uint32_t file;          /* index of the file it was read from */
    uint32_t line;          /* from 1 */
    uint64_t free_bytes;    /* of a refusal: free at that time */
    uint32_t exit_status;   /* of the end: 0 to 255, or a signal's number */
    uint32_t process_flags; /* RVL_PROCESS_*; the writer ignores them */
} rvl_trace_event;

typedef struct rvl_trace_device {
    uint32_t index;
    uint32_t reserved;   /* 0 */
    const char *profile; /* NULL: none named */
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
} rvl_trace_device;

/* ---- Writer ---- */

typedef struct rvl_trace_writer rvl_trace_writer;

/* Flags of a header. */
#define RVL_TRACE_RECORDS_REFUSALS                                                                 \
    1u /* the records of its processes state that refused requests are among their events; needs   \
          minor 2 */

typedef struct rvl_trace_header {
    size_t struct_size;
    const char *boot_id; /* the kernel's id of this boot; traces of one boot share a clock; NULL:
                            unknown */
    uint64_t mono_ns;    /* the monotonic clock at time 0 of the trace */
    uint64_t wall_ns;    /* the wall clock (since 1970) at time 0 of the trace */
    const rvl_trace_device *devices; /* the devices of the trace, at least one */
    size_t device_count;
    size_t device_size;  /* sizeof(rvl_trace_device) */
    const char *comment; /* lines after the first line, separated by LF; NULL: none */
    uint32_t minor;      /* the minor version to write: 1 allows RVL_EVENT_PART, 2 all kinds except
                            RVL_EVENT_SLEEP, RVL_EVENT_WAKE and RVL_EVENT_FAIL, 3 allows
                            RVL_EVENT_SLEEP and RVL_EVENT_WAKE, 4 RVL_EVENT_FAIL */
    uint32_t flags;      /* RVL_TRACE_RECORDS_REFUSALS */
} rvl_trace_header;

/*
 * Begins a trace that grows under its final name, as a recording does: the file appears with its
 * header and replaces an older one. On failure the older one stays. Takes no memory after that.
 * Processes are declared when they first appear. Symbolic links of this user and of root are
 * followed. A file that is not regular is written directly. Returns RVL_OK, RVL_ERR_INVALID,
 * RVL_ERR_VERSION, RVL_ERR_IO (the file cannot be made) or RVL_ERR_HOST_OOM. The caller ends
 * *writer_out with rvl_trace_writer_close(). Since 0.1.
 */
RVL_API rvl_status rvl_trace_writer_open(const char *path, const rvl_trace_header *header,
                                         rvl_trace_writer **writer_out);

/*
 * Begins a trace that gets its name when it is complete: rvl_trace_writer_close() replaces an older
 * one. Until then, and after any failure, the older one stays. Otherwise like
 * rvl_trace_writer_open(). Returns as rvl_trace_writer_open(). The caller ends *writer_out with
 * rvl_trace_writer_close() or rvl_trace_writer_discard(). Since 0.1.
 */
RVL_API rvl_status rvl_trace_writer_open_draft(const char *path, const rvl_trace_header *header,
                                               rvl_trace_writer **writer_out);

/*
 * Declares a process and its operating system id (0: unknown). Events of an undeclared process are
 * refused. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_HOST_OOM or RVL_ERR_IO (a line could not be
 * written, now or before). One thread at a time may use a writer. Since 0.1.
 */
RVL_API rvl_status rvl_trace_writer_add_process(rvl_trace_writer *writer, const char *name,
                                                uint64_t pid);

/*
 * Writes one event. event_size: sizeof(rvl_trace_event). Times and, within a process, ids must not
 * fall. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_VERSION or RVL_ERR_IO (a line could not be
 * written, now or before). After the first two errors nothing is written. One thread at a time may
 * use a writer. Since 0.1.
 */
RVL_API rvl_status rvl_trace_writer_add_event(rvl_trace_writer *writer,
                                              const rvl_trace_event *event, size_t event_size);

/*
 * Writes a comment: one line, or several separated by LF. Returns RVL_OK; RVL_ERR_INVALID (the
 * comment is NULL or has a line of more than 4000 bytes. Nothing is written); RVL_ERR_IO (a line
 * could not be written, now or before). One thread at a time may use a writer. Since 0.1.
 */
RVL_API rvl_status rvl_trace_writer_add_comment(rvl_trace_writer *writer, const char *text);

/*
 * Writes out buffered lines. Returns RVL_OK or RVL_ERR_IO (a line could not be written, now or
 * before). Since 0.1.
 */
RVL_API rvl_status rvl_trace_writer_flush(rvl_trace_writer *writer);

/*
 * Writes the end record, closes the file and frees the writer. Returns RVL_OK (also for NULL) or
 * RVL_ERR_IO (a line could not be written, now or before). The writer is freed in either case.
 * Since 0.1.
 */
RVL_API rvl_status rvl_trace_writer_close(rvl_trace_writer *writer);

/*
 * Frees the writer without an end record. A draft is removed. A trace that already has its name
 * keeps the lines that were written. NULL does nothing. Since 0.1.
 */
RVL_API void rvl_trace_writer_discard(rvl_trace_writer *writer);

/* ---- Reader (libreveille-replay) ---- */

typedef struct rvl_trace_reader rvl_trace_reader;

/* Flags of a reader. */
#define RVL_TRACE_PARTIAL                                                                          \
    1u /* a truncated file (no end record, half a last line, half a zstd                           \
          frame) ends at its last whole line instead of being refused */

typedef struct rvl_trace_reader_options {
    size_t struct_size;
    uint64_t flags;           /* RVL_TRACE_PARTIAL */
    const char *const *names; /* the names of the files, one for each path; NULL: their paths */
} rvl_trace_reader_options;

/*
 * Opens one trace, or several to be merged on one clock: the monotonic clock if all name the same
 * boot, else the wall clock. Ties go to the earlier file. Files ending in .zst are decompressed.
 * The names (or the paths, if there are no names) must outlive the reader. options may be NULL.
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_IO (a file cannot be read); RVL_ERR_HOST_OOM;
 * RVL_ERR_CORRUPT_TRACE; RVL_ERR_VERSION (a trace has a newer major version, or the options set a
 * field that this library does not know). rvl_last_error() has the file, line and column. The
 * caller closes *reader_out. Since 0.1.
 */
RVL_API rvl_status rvl_trace_reader_open(const char *const *paths, size_t path_count,
                                         const rvl_trace_reader_options *options,
                                         rvl_trace_reader **reader_out);

/*
 * Reads the next event. event_size: sizeof(rvl_trace_event). Returns RVL_OK; RVL_ERR_INVALID;
 * RVL_ERR_NOT_FOUND (there are no more events. The error record is unchanged);
 * RVL_ERR_CORRUPT_TRACE; RVL_ERR_IO (a file cannot be read); RVL_ERR_HOST_OOM. rvl_last_error() has
 * the place of the last three. They are sticky: every later call returns the same status and error,
 * and *event_out is undefined. One thread at a time may use a reader. Since 0.1.
 */
RVL_API rvl_status rvl_trace_reader_next(rvl_trace_reader *reader, rvl_trace_event *event_out,
                                         size_t event_size);

/*
 * Returns the column of a field in a line of a trace, for errors that are found outside the reader.
 * Reads the file again up to that line. field: 1 for the first word of the line. Returns 0 if there
 * is no such field, or the file cannot be read again (a pipe). Any thread. Since 0.1.
 */
RVL_API uint32_t rvl_trace_find_column(const char *path, uint32_t line, uint32_t field);

/*
 * Writes up to capacity devices of the headers to devices_out, merged over all files and ordered by
 * index, and their full number, at most RVL_MAX_DEVICES, to *count_out. device_size:
 * sizeof(rvl_trace_device). Their strings live as long as the reader. Returns RVL_OK or
 * RVL_ERR_INVALID. Since 0.1.
 */
RVL_API rvl_status rvl_trace_reader_get_devices(const rvl_trace_reader *reader,
                                                rvl_trace_device *devices_out, size_t device_size,
                                                size_t capacity, size_t *count_out);

/* Returns the name of a file of the reader. Since 0.1. */
RVL_API const char *rvl_trace_reader_path(const rvl_trace_reader *reader, uint32_t file);

typedef struct rvl_trace_progress {
    size_t struct_size;
    uint64_t bytes_read;     /* of all files, in their size on disk */
    uint64_t bytes_total;    /* 0: unknown (a pipe) */
    uint64_t events;         /* returned so far */
    uint64_t skipped_events; /* of kinds that a newer minor version added */
    uint64_t cut_files;      /* with RVL_TRACE_PARTIAL: truncated files so far */
} rvl_trace_progress;

/* Stores the progress of the reader. Since 0.1. */
RVL_API void rvl_trace_reader_get_progress(const rvl_trace_reader *reader,
                                           rvl_trace_progress *progress_out);

/* Closes the files and frees the reader with all its strings. NULL is fine. Since 0.1. */
RVL_API void rvl_trace_reader_close(rvl_trace_reader *reader);

#ifdef __cplusplus
}
#endif
#endif
