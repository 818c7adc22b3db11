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
 * The profile that a text names: a file that `reveille calibrate` has written (a text that holds a
 * '/' or ends in ".json"; docs/calibrate.md has the format), a built-in name or a size
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

/* An upper bound on the peak of every stage that was marked with this name. */
typedef struct rvl_budget {
    const char *stage;
    uint64_t bytes;
} rvl_budget;

/* Called now and then while a replay runs. */
typedef void (*rvl_replay_progress_fn)(void *user, const rvl_trace_progress *progress);

/*
 * Called for every event before it is replayed, on the thread that replays. It may change the
 * event's bytes; with *keep_out, which is true when it is called, false the event is left out. A
 * call with event NULL comes before the first event, and again if the events are read in advance
 * (RVL_WAKE_TOGETHER). Any status except RVL_OK ends the replay, which returns it.
 */
typedef rvl_status (*rvl_replay_filter_fn)(void *user, rvl_trace_event *event, bool *keep_out);

/* Flags of a replay. */
#define RVL_REPLAY_PARTIAL 1u        /* read a trace that is cut off up to its last whole line */
#define RVL_REPLAY_SNAPSHOT_PARTS 2u /* show the segments of a snapshot by part */
/* One of these at most; none: RVL_HEADROOM_USUAL_PERCENT of each device's capacity. */
#define RVL_REPLAY_HEADROOM_BYTES 4u   /* the headroom of each device is headroom_bytes */
#define RVL_REPLAY_HEADROOM_PERCENT 8u /* the headroom is headroom_percent of each device */

/*
 * The part of a device that a run is to leave free: more than what predictions are known to miss
 * (docs/decisions/replay.md has the sum).
 */
#define RVL_HEADROOM_USUAL_PERCENT 3.0

typedef struct rvl_replay_options {
    size_t struct_size;
    uint64_t flags;        /* RVL_REPLAY_* */
    const char *backend;   /* the one that replays; NULL: "sim" */
    const char *device;    /* a profile, its file or a size, for all devices; NULL: the trace's */
    const char *conductor; /* process that marks stages and steps; NULL: each marks its own
                              stages, and the first that marks the steps */
    rvl_wake wake;         /* RVL_WAKE_TOGETHER resumes everything at the first resume of a step */
    uint32_t settle_ms;    /* on a real device: how long to wait before each resume, so that the
                              driver has cleared what was just released */
    const rvl_budget *budgets; /* upper bounds on the peaks of stages, by their names */
    size_t budget_count;
    size_t budget_size;              /* sizeof(rvl_budget) */
    rvl_replay_progress_fn progress; /* called now and then; NULL: nobody is told */
    void *progress_user;
    rvl_timeline *timeline; /* receives who held how much when; must be new, and is undefined after
                               a failure; NULL: none */
    const char *snapshot_process; /* the process that the segments of a snapshot belong to; NULL:
                                     "trainer" */
    uint32_t snapshot_device;     /* the index of the device that they are on */
    uint32_t reserved;            /* 0 */
    rvl_replay_filter_fn filter;  /* may change or drop each event; NULL: all stay as they are */
    void *filter_user;
    size_t event_size;       /* sizeof(rvl_trace_event), for the filter's events */
    uint64_t headroom_bytes; /* what a verdict wants to be left (reveille/verdict.h) */
    double headroom_percent; /* the same as a share of each device, 0 to 100 */
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
 * Opens the files of a replay for reading: snapshots among them give the events that they would be
 * replayed with. Of the options those of snapshots count, device (for a snapshot beside which no
 * trace declares one) and RVL_REPLAY_PARTIAL. paths must outlive the reader; options may be NULL.
 * Returns as rvl_trace_reader_open() and rvl_snapshot_run(). The caller closes *reader_out with
 * rvl_trace_reader_close(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_open_reader(const char *const *paths, size_t path_count,
                                          const rvl_replay_options *options,
                                          rvl_trace_reader **reader_out);

/* ---- Events that lie in no file ---- */

/*
 * Where a replay takes its events from, instead of files. Of an event the replay reads what its
 * kind has (RVL_EVENT_MAP), and ignores process_index, tag_index, file and line; its strings may go
 * when the next event is asked for. Times must not fall. Messages name the source and, as the line,
 * the number of the event, from 1.
 */
typedef struct rvl_replay_source {
    size_t struct_size;
    const char *name;                /* NULL: "events" */
    const rvl_trace_device *devices; /* at least one; indexes are unique */
    size_t device_count;
    size_t device_size; /* sizeof(rvl_trace_device) */
    size_t event_size;  /* sizeof(rvl_trace_event): what next has room for */
    /* The next event: RVL_OK, RVL_ERR_NOT_FOUND after the last, or why there is none. */
    rvl_status (*next)(void *user, rvl_trace_event *event_out);
    /* Begins again with the first event; needed for RVL_WAKE_TOGETHER, else may be NULL. */
    rvl_status (*rewind)(void *user);
    void *user;
} rvl_replay_source;

/*
 * Replays what a source gives, as rvl_replay_run() does with files; the file of rvl_last_error() is
 * source->name. The source is not needed any more when the call returns. RVL_REPLAY_PARTIAL means
 * nothing here. Returns as rvl_replay_run(); RVL_ERR_INVALID (the source is not whole);
 * RVL_ERR_CORRUPT_TRACE (no trace could hold the event); or what next and rewind return. Any number
 * of threads, each with a source of its own. Since 0.1.
 */
RVL_API rvl_status rvl_replay_run_source(const rvl_replay_source *source,
                                         const rvl_replay_options *options,
                                         rvl_replay **replay_out);

/* Events that lie in memory, in order. */
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
 * Replays them, as rvl_replay_run_source() does with those of a source. Returns as
 * rvl_replay_run_source(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_run_events(const rvl_replay_events *events,
                                         const rvl_replay_options *options,
                                         rvl_replay **replay_out);

/* ---- The result ---- */

/* Flags of a device. */
/* No trace names it, as with a snapshot: profile, capacity_bytes and fits are those of a guess. */
#define RVL_REPLAY_DEVICE_ASSUMED 1u
/* It fits if programs get all of capacity_bytes, and may not if they get what is sure. */
#define RVL_REPLAY_DEVICE_DOUBTFUL 2u

/* The cause of external bytes that stand for the driver's records of pinned host memory. */
#define RVL_REPLAY_PINNED_CAUSE "pinned host memory"

typedef struct rvl_replay_device {
    size_t struct_size;
    int device; /* index in the trace */
    bool fits;  /* at every instant within capacity, and no program that was recorded failed */
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
    const char *oom_process; /* "external" for external bytes */
    const char *oom_tag;     /* NULL: untagged; for external bytes their cause */
    uint64_t oom_requested_bytes;
    uint64_t oom_free_bytes;
    uint64_t sample_count;                 /* true-use samples after the first */
    int64_t worst_sample_difference_bytes; /* predicted minus sampled, the largest in size */
    uint64_t flags;                        /* RVL_REPLAY_DEVICE_* */
    uint64_t capacity_doubt_bytes; /* programs may get so much less; 0: capacity_bytes is sure */
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

/* Of a process that does not say which rank it is. */
#define RVL_NO_RANK UINT32_MAX

/* Flags of a mark. */
/* Several processes mark for the device, or stages overlap: the name alone does not say which. */
#define RVL_REPLAY_MARK_OF_PROCESS 1u

/* Which stage of which process one is. */
typedef struct rvl_replay_mark {
    size_t struct_size;
    const char *process; /* that has marked it; NULL: nobody has marked anything */
    uint32_t rank;       /* of that process; RVL_NO_RANK: not known */
    uint32_t place;      /* in the order in which the run's stages began; 0: before any mark. Stages
                            of the timeline have the same numbers */
    uint32_t number;     /* among the process's stages of this name, from 1 */
    uint32_t count;      /* above 1: stands for so many of the name, of which it is the largest */
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t flags; /* RVL_REPLAY_MARK_* */
} rvl_replay_mark;

/*
 * Which stage of which process a stage of a device is. Strings live as long as the result. Returns
 * as rvl_replay_get_device(). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_mark(const rvl_replay *replay, size_t device_index,
                                       uint32_t stage, rvl_replay_mark *mark_out);

/*
 * Who held what at the peak of a stage: writes up to capacity holders to holders_out, the largest
 * first, and how many there are to *count_out. holder_size: sizeof(rvl_holder). External bytes have
 * process "external". Needs no memory. Asking for the stages of a device in order costs what has
 * changed between them, and what is written. Strings live as long as the result. Returns as
 * rvl_replay_get_device(); RVL_ERR_INVALID (no rvl_holder is as large as holder_size says). Since
 * 0.1.
 */
RVL_API rvl_status rvl_replay_get_holders(const rvl_replay *replay, size_t device_index,
                                          uint32_t stage, rvl_holder *holders_out,
                                          size_t holder_size, size_t capacity, size_t *count_out);

/*
 * What a real device said while the trace was replayed on it: the most and the last bytes in use in
 * a stage, above what was in use before the first event (the CUDA context and other processes,
 * which the trace's external bytes stand for). Returns as rvl_replay_get_device();
 * RVL_ERR_NOT_FOUND (the device is simulated, and not measured). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_measured(const rvl_replay *replay, size_t device_index,
                                           uint32_t stage, uint64_t *peak_bytes_out,
                                           uint64_t *end_bytes_out);

/*
 * What was truly in use on the device at the last sample that the trace has of a stage, and what is
 * predicted for that instant. A sample right after the mark of the next stage counts for both. The
 * first sample of a device enters the prediction and does not count. Returns as
 * rvl_replay_get_device(); RVL_ERR_NOT_FOUND (the stage has no sample). Since 0.1.
 */
RVL_API rvl_status rvl_replay_get_reading(const rvl_replay *replay, size_t device_index,
                                          uint32_t stage, uint64_t *read_bytes_out,
                                          uint64_t *predicted_bytes_out);

/* The most holders that the JSON lists for a stage: the largest. Of the rest it gives the sum. */
#define RVL_REPLAY_LISTED_HOLDERS 64u

/*
 * The result as JSON (schema 1, docs/replay.md), one line, without a newline. The caller frees
 * *json_out with rvl_string_free(). Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_HOST_OOM.
 * Since 0.1.
 */
RVL_API rvl_status rvl_replay_to_json(const rvl_replay *replay, char **json_out);

/* Takes a piece of text, which is not terminated. false: no more is wanted. */
typedef bool (*rvl_replay_write_fn)(void *user, const char *text, size_t size);

/*
 * The same in pieces, a stage at a time, so that it need not be in memory as a whole. Returns as
 * rvl_replay_to_json(); RVL_ERR_IO (`write` has returned false). Since 0.1.
 */
RVL_API rvl_status rvl_replay_write_json(const rvl_replay *replay, rvl_replay_write_fn write,
                                         void *user);

/* Frees a result. NULL is fine. Since 0.1. */
RVL_API void rvl_replay_close(rvl_replay *replay);

#ifdef __cplusplus
}
#endif
#endif
