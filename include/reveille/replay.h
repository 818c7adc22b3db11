/* SPDX-License-Identifier: MIT */
/*
 * Replay: drives the core with a trace and reports the memory peak of every stage
 * (libreveille-replay).
 */
#ifndef REVEILLE_REPLAY_H
#define REVEILLE_REPLAY_H

#include "reveille/sim.h"
#include "reveille/stats.h"
#include "reveille/timeline.h"
#include "reveille/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Finds a profile by text: a file that `reveille calibrate` has written (a text that contains a '/'
 * or ends in ".json"; docs/calibrate.md has the format), a built-in name or a size
 * (rvl_profile_find()). Strings of a file's profile live until the process ends. Returns RVL_OK;
 * RVL_ERR_INVALID (a value of a file is missing, of the wrong type or out of range. `key` of
 * rvl_last_error() says which); RVL_ERR_VERSION (the file has the format of another version);
 * RVL_ERR_IO (the file cannot be read); RVL_ERR_HOST_OOM; RVL_ERR_NOT_FOUND (there is no profile of
 * that name). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_profile_load(const char *text, rvl_profile *profile_out);

typedef struct rvl_replay rvl_replay;

typedef enum rvl_wake {
    RVL_WAKE_STAGED = 0, /* resumes happen where the trace has them */
    RVL_WAKE_TOGETHER    /* within a step, every resume happens at the step's first one */
} rvl_wake;

/* An upper bound on the peak of every stage marked with this name. */
typedef struct rvl_budget {
    const char *stage;
    uint64_t bytes;
} rvl_budget;

/* Called now and then while a replay runs. */
typedef void (*rvl_replay_progress_fn)(void *user, const rvl_trace_progress *progress);

/*
 * Called for every event before it is replayed, on the thread that replays. It may change the
 * event's bytes. *keep_out is true at the call; set it to false to leave out the event. A call with
 * event NULL comes before the first event, and again if the events are read in advance
 * (RVL_WAKE_TOGETHER). Any status except RVL_OK ends the replay, which returns it.
 */
typedef rvl_status (*rvl_replay_filter_fn)(void *user, rvl_trace_event *event, bool *keep_out);

/* Flags of a replay. */
#define RVL_REPLAY_PARTIAL 1u        /* read a truncated trace up to its last whole line */
#define RVL_REPLAY_SNAPSHOT_PARTS 2u /* show the segments of a snapshot by part */
/*
 * Set at most one of the next two. Without either: RVL_HEADROOM_USUAL_PERCENT of each device's
 * capacity.
 */
#define RVL_REPLAY_HEADROOM_BYTES 4u   /* the headroom of each device is headroom_bytes */
#define RVL_REPLAY_HEADROOM_PERCENT 8u /* the headroom is headroom_percent of each device */

/*
 * The share of a device that a run should leave free: more than the known error of predictions
 * (docs/decisions/replay.md has the sum).
 */
#define RVL_HEADROOM_USUAL_PERCENT 3.0

typedef struct rvl_replay_options {
    size_t struct_size;
    uint64_t flags;        /* RVL_REPLAY_* */
    const char *backend;   /* the backend to replay on; NULL: "sim" */
    const char *device;    /* a profile, its file or a size, for all devices; NULL: the trace's */
    const char *conductor; /* process that marks stages and steps; NULL: each process marks its own
                              stages, and the first to mark a step marks the steps */
    rvl_wake wake;         /* RVL_WAKE_TOGETHER resumes everything at the first resume of a step */
    uint32_t settle_ms;    /* on a real device: how long to wait before each resume, so that the
                              driver has cleared memory that was just released */
    const rvl_budget *budgets; /* upper bounds on the peaks of stages, by their names */
    size_t budget_count;
    size_t budget_size;              /* sizeof(rvl_budget) */
    rvl_replay_progress_fn progress; /* called now and then; NULL: not called */
    void *progress_user;
    rvl_timeline *timeline; /* receives the timeline; must be new, and is undefined after a failure;
                               NULL: none */
    const char *snapshot_process; /* the process that the segments of a snapshot belong to; NULL:
                                     "trainer" */
    uint32_t snapshot_device;     /* the device index of those segments */
    uint32_t reserved;            /* 0 */
    rvl_replay_filter_fn filter;  /* may change or drop each event; NULL: events are unchanged */
    void *filter_user;
    size_t event_size;       /* sizeof(rvl_trace_event), for the filter's events */
    uint64_t headroom_bytes; /* how much a run should leave free for a verdict
                                (reveille/verdict.h) */
    double headroom_percent; /* likewise, as a share of each device, 0 to 100 */
} rvl_replay_options;

/*
 * Replays a trace, or several merged on one clock. A path that ends in .pickle or .pickle.gz is a
 * PyTorch snapshot, which joins by the wall clock (docs/replay.md). options may be NULL. Returns
 * RVL_OK (also if it does not fit: ask the result); RVL_ERR_INVALID (an option is wrong, or a
 * budget is for a stage that the trace does not have); RVL_ERR_CORRUPT_TRACE; RVL_ERR_VERSION (a
 * trace has a newer major version, or a struct sets a field that this library does not know);
 * RVL_ERR_IO (a file cannot be read); RVL_ERR_NOT_FOUND (`device` names no profile);
 * RVL_ERR_HOST_OOM; or the driver's error. rvl_last_error() says where. The caller frees
 * *replay_out with rvl_replay_close(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_run(const char *const *paths, size_t path_count,
                                  const rvl_replay_options *options, rvl_replay **replay_out);

/*
 * Opens the files of a replay for reading. A snapshot among them yields the events that it would be
 * replayed with. Only these options apply: those of snapshots, device (for a snapshot if no trace
 * declares a device) and RVL_REPLAY_PARTIAL. paths must outlive the reader; options may be NULL.
 * Returns as rvl_trace_reader_open() and rvl_snapshot_run(). The caller closes *reader_out with
 * rvl_trace_reader_close(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_open_reader(const char *const *paths, size_t path_count,
                                          const rvl_replay_options *options,
                                          rvl_trace_reader **reader_out);

/* ---- Events from memory ---- */

/*
 * A source of events, instead of files. The replay reads the fields of an event's kind
 * (RVL_EVENT_MAP), and ignores process_index, tag_index, file and line. Its strings must be valid
 * until the next call of `next`. Times must not fall. Messages name the source and, as the line,
 * the number of the event, from 1.
 */
typedef struct rvl_replay_source {
    size_t struct_size;
    const char *name;                /* NULL: "events" */
    const rvl_trace_device *devices; /* at least one; indexes are unique */
    size_t device_count;
    size_t device_size; /* sizeof(rvl_trace_device) */
    size_t event_size;  /* sizeof(rvl_trace_event): the room that next has */
    /* Stores the next event. Returns RVL_OK, RVL_ERR_NOT_FOUND after the last event, or another
       error. */
    rvl_status (*next)(void *user, rvl_trace_event *event_out);
    /* Starts again at the first event. Needed for RVL_WAKE_TOGETHER, otherwise may be NULL. */
    rvl_status (*rewind)(void *user);
    void *user;
} rvl_replay_source;

/*
 * Replays the events of a source, as rvl_replay_run() does with files. The file of rvl_last_error()
 * is source->name. The source is not needed after the call returns. RVL_REPLAY_PARTIAL has no
 * effect. Returns as rvl_replay_run(); RVL_ERR_INVALID (the source is incomplete);
 * RVL_ERR_CORRUPT_TRACE (no trace could hold the event); or what next and rewind return. Any number
 * of threads, each with a separate source. Since 0.1.
 */
RVL_API rvl_status rvl_replay_run_source(const rvl_replay_source *source,
                                         const rvl_replay_options *options,
                                         rvl_replay **replay_out);

/* Events in memory, in order. */
typedef struct rvl_replay_events {
    size_t struct_size;
    const char *name;                /* NULL: "events" */
    const rvl_trace_device *devices; /* at least one; indexes are unique */
    size_t device_count;
    size_t device_size; /* sizeof(rvl_trace_device) */
    const rvl_trace_event *events;
    size_t event_count;
    size_t event_size; /* sizeof(rvl_trace_event) */
} rvl_replay_events;

/*
 * Replays events in memory, as rvl_replay_run_source() does with those of a source. Returns as
 * rvl_replay_run_source(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_run_events(const rvl_replay_events *events,
                                         const rvl_replay_options *options,
                                         rvl_replay **replay_out);

/* ---- The result ---- */

/* Flags of a device. */
/*
 * No trace declares the device, as with a snapshot: profile, capacity_bytes and fits are assumed.
 */
#define RVL_REPLAY_DEVICE_ASSUMED 1u
/*
 * It fits if programs get all of capacity_bytes, and may not fit if they get only what is certain.
 */
#define RVL_REPLAY_DEVICE_DOUBTFUL 2u

/* The cause of external bytes for the driver's records of pinned host memory. */
#define RVL_REPLAY_PINNED_CAUSE "pinned host memory"

typedef struct rvl_replay_device {
    size_t struct_size;
    int device; /* index in the trace */
    bool fits;  /* at every instant within capacity, and no recorded program failed */
    bool within_budgets;
    uint8_t reserved[2];
    const char *profile; /* NULL: given by its size */
    uint64_t capacity_bytes;
    uint64_t peak_bytes;
    uint32_t peak_stage; /* index into this device's stages */
    uint32_t stage_count;
    const char *oom_file; /* the first event that does not fit; NULL: there is none */
    uint32_t oom_line;
    uint32_t oom_stage;      /* index into this device's stages */
    const char *oom_process; /* "external": external bytes */
    const char *oom_tag;     /* NULL: untagged; for external bytes, their cause */
    uint64_t oom_requested_bytes;
    uint64_t oom_free_bytes;
    uint64_t sample_count;                 /* true-use samples after the first */
    int64_t worst_sample_difference_bytes; /* predicted minus sampled, for the sample with the
                                              largest difference in magnitude */
    uint64_t flags;                        /* RVL_REPLAY_DEVICE_* */
    uint64_t capacity_doubt_bytes;         /* programs may get this much less; 0: capacity_bytes is
                                              certain */
} rvl_replay_device;

/* Number of devices in the result. Since 0.1. */
RVL_API size_t rvl_replay_device_count(const rvl_replay *replay);

/* Number of events replayed; skipped_out (may be NULL): events of unknown kinds. Since 0.1. */
RVL_API uint64_t rvl_replay_event_count(const rvl_replay *replay, uint64_t *skipped_out);

/*
 * One device of the result. Strings live as long as the result. Returns RVL_OK, RVL_ERR_INVALID or
 * RVL_ERR_NOT_FOUND (there is no such device or stage). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_device(const rvl_replay *replay, size_t index,
                                         rvl_replay_device *device_out);

/*
 * One stage of a device of the result. over_budget_out (may be NULL): whether a budget is exceeded.
 * Returns as rvl_replay_get_device(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_stage(const rvl_replay *replay, size_t device_index,
                                        uint32_t stage, rvl_stage_stats *stage_out,
                                        bool *over_budget_out);

/* The process does not state its rank. */
#define RVL_NO_RANK UINT32_MAX

/* Flags of a mark. */
/* Several processes mark stages on the device, or stages overlap: the name alone is ambiguous. */
#define RVL_REPLAY_MARK_OF_PROCESS 1u

/* Identifies a stage of a process. */
typedef struct rvl_replay_mark {
    size_t struct_size;
    const char *process; /* the process that marked it; NULL: nothing was marked */
    uint32_t rank;       /* of that process; RVL_NO_RANK: unknown */
    uint32_t place;      /* its place in the order in which the run's stages began; 0: before any
                            mark. Stages of the timeline have the same numbers */
    uint32_t number;     /* among the process's stages of this name, from 1 */
    uint32_t count;      /* above 1: stands for this many stages of the name, and is the largest of
                            them */
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t flags; /* RVL_REPLAY_MARK_* */
} rvl_replay_mark;

/*
 * Identifies the process and the mark of a device's stage. Strings live as long as the result.
 * Returns as rvl_replay_get_device(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_mark(const rvl_replay *replay, size_t device_index,
                                       uint32_t stage, rvl_replay_mark *mark_out);

/*
 * Writes up to capacity holders at the peak of a stage to holders_out, the largest first, and their
 * full number to *count_out. holder_size: sizeof(rvl_holder). External bytes have process
 * "external". Needs no memory. Going through the stages of a device in order costs only the changes
 * between them and the output. Strings live as long as the result. Returns as
 * rvl_replay_get_device(); RVL_ERR_INVALID (holder_size is not a size of rvl_holder). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_holders(const rvl_replay *replay, size_t device_index,
                                          uint32_t stage, rvl_holder *holders_out,
                                          size_t holder_size, size_t capacity, size_t *count_out);

/*
 * Bytes in use on a real device while the trace was replayed on it: the highest and the last of a
 * stage, less what was in use before the first event (the CUDA context and other processes, for
 * which the trace has external bytes). Returns as rvl_replay_get_device(); RVL_ERR_NOT_FOUND (the
 * device is simulated, and not measured). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_measured(const rvl_replay *replay, size_t device_index,
                                           uint32_t stage, uint64_t *peak_bytes_out,
                                           uint64_t *end_bytes_out);

/*
 * Bytes truly in use on the device at a stage's last sample in the trace, and the prediction for
 * that instant. A sample right after the mark of the next stage counts for both stages. The first
 * sample of a device is an input of the prediction and does not count. Returns as
 * rvl_replay_get_device(); RVL_ERR_NOT_FOUND (the stage has no sample). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_reading(const rvl_replay *replay, size_t device_index,
                                          uint32_t stage, uint64_t *read_bytes_out,
                                          uint64_t *predicted_bytes_out);

/* The JSON lists at most this many holders of a stage, the largest, and the sum of the rest. */
#define RVL_REPLAY_LISTED_HOLDERS 64u

/*
 * The result as JSON (schema 1, docs/replay.md), one line, without a newline. The caller frees
 * *json_out with rvl_string_free(). Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_HOST_OOM.
 * Since 0.1.
 */
RVL_API rvl_status rvl_replay_to_json(const rvl_replay *replay, char **json_out);

/* Receives a piece of text, which is not NUL-terminated. Return false to stop. */
typedef bool (*rvl_replay_write_fn)(void *user, const char *text, size_t size);

/*
 * Writes the JSON of rvl_replay_to_json() in pieces, a stage at a time, so that it is never in
 * memory as a whole. Returns as rvl_replay_to_json(); RVL_ERR_IO (`write` has returned false).
 * Since 0.1.
 */
RVL_API rvl_status rvl_replay_write_json(const rvl_replay *replay, rvl_replay_write_fn write,
                                         void *user);

/* Frees a result. NULL is fine. Since 0.1. */
RVL_API void rvl_replay_close(rvl_replay *replay);

#ifdef __cplusplus
}
#endif
#endif
