/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of replay.
 *
 * Replay has no memory model. Every event becomes one call of libreveille, and every byte of the
 * result is read from there. Replay itself only translates a trace's numbers to the context's, and
 * keeps track of the current file and line.
 */
#ifndef RVL_PREDICT_REPLAY_REPLAY_INTERNAL_H
#define RVL_PREDICT_REPLAY_REPLAY_INTERNAL_H

#include "base/error.h"
#include "base/hash.h"
#include "base/intmap.h"
#include "base/options.h"
#include "base/trace_element.h"
#include "predict/replay/snapshot_input.h"
#include "predict/replay/stages.h"
#include "predict/replay/verdict.h"
#include "reveille/replay.h"
#include "reveille/transition.h"

/* The process that marks stages and steps: the named one, or the first that marks. */
typedef struct rvli_replay_conductor {
    const char *name; /* NULL: the first */
    bool seen;        /* the process is decided; if named, it has occurred */
    uint32_t process_index;
} rvli_replay_conductor;

/* A tag that is resumed within a step. */
typedef struct rvli_replay_pair {
    uint32_t process_index;
    uint32_t tag_slot; /* rvli_replay_tag_slot() */
    uint32_t order;    /* place among the step's resumes */
    bool no_restore;   /* of its first resume within the step */
} rvli_replay_pair;

/* The tags that each step resumes. Filled in before the replay if the wake is together. */
typedef struct rvli_replay_together {
    rvli_replay_pair *pairs;
    size_t pair_count;
    size_t pair_capacity;
    size_t *first; /* index of a step's first pair; one more entry than steps */
    size_t step_count;
    size_t step_capacity;
} rvli_replay_together;

/* An allocation with parts (parts.c). */
typedef struct rvli_replay_parted rvli_replay_parted;

/* What a process releases when it sleeps (asleep.c). */
typedef struct rvli_replay_sleeper rvli_replay_sleeper;

typedef struct rvli_replay_process {
    const char *name; /* NULL: no event yet */
    rvl_process number;
    uint32_t rank; /* RVL_NO_RANK: not known */
    bool any_id;
    uint64_t last_id;  /* the highest so far; valid with any_id */
    rvli_intmap addrs; /* addresses of live allocations, by id */
    rvli_replay_parted *parted;
    rvli_replay_sleeper *sleeper; /* NULL: holds nothing beyond its allocations */
    rvli_stages_of_process stages;
    rvli_refusal_open refusals;
} rvli_replay_process;

typedef struct rvli_replay_device {
    int trace_index;
    const char *profile;   /* NULL: described by its size only */
    rvl_driver_use driver; /* of a simulated device: memory that its driver uses */
    uint64_t granularity_bytes;
    uint64_t capacity_doubt_bytes;
    uint64_t part_bytes;   /* bytes in parts of allocations now */
    uint64_t pinned_bytes; /* the most pinned host memory so far */
    bool sampled;
    uint64_t sample_count; /* samples after the first one */
    int64_t worst_difference_bytes;
    bool overcommitted;
    const char *oom_file;
    uint32_t oom_line;
    uint32_t *oom_stages; /* stages open then, by start; the process's own last */
    uint32_t oom_stage_count;
    /* Filled in at the end: */
    rvl_device_stats stats;
    uint32_t *listed; /* indexes of its listed stages */
    uint32_t stage_count;
    bool within_budgets;
    bool names_processes; /* names of stages are ambiguous without the process */
} rvli_replay_device;

/* Events that have been read but not yet applied, in a ring. */
#define RVLI_REPLAY_AHEAD_EVENTS 16u

typedef struct rvli_replay_ahead_event {
    rvl_trace_event event;
    rvl_addr addr; /* of a free, once it is looked up; 0: unknown */
} rvli_replay_ahead_event;

typedef struct rvli_replay_ahead {
    rvli_replay_ahead_event events[RVLI_REPLAY_AHEAD_EVENTS];
    uint32_t first;
    uint32_t count;
    rvl_status end;  /* what the reader returned after the last event; RVL_OK: nothing yet */
    rvl_error error; /* the error that ended reading, unless the trace ended */
} rvli_replay_ahead;

/* What a real device reports, in bytes above what was used before the first event. */
typedef struct rvli_replay_measured {
    uint64_t free_before; /* 0: a simulated device, which is not queried */
    uint64_t used_bytes;  /* at the last query */
    uint64_t peak_bytes;  /* since the last mark */
} rvli_replay_measured;

/* A tag on a device, for the timeline. */
typedef struct rvli_replay_watched {
    const char *process; /* NULL: nothing was allocated there yet */
    const char *tag;
    uint32_t held; /* number of its series for held bytes, from 1; 0: none yet */
    uint32_t paused;
} rvli_replay_watched;

/* The name of a process, tag, stage or cause of a source, and its number. */
typedef struct rvli_replay_name {
    UT_hash_handle hh;
    uint32_t index;
    char text[];
} rvli_replay_name;

/*
 * What a reader provides and a source does not: tables of names, and profile names that stay valid.
 */
typedef struct rvli_replay_memory {
    rvl_replay_source source; /* next NULL: the events come from a reader */
    char *profiles[RVL_MAX_DEVICES];
    rvli_replay_name *processes;
    rvli_replay_name *tags;
    rvli_replay_name *others; /* stages and causes */
    uint64_t last_ns;
    uint64_t events;
} rvli_replay_memory;

/* Room for the event of a caller that was built with a newer version of it. */
typedef union rvli_replay_newer {
    rvl_trace_event known;
    unsigned char all[RVLI_ELEMENT_BYTES_MAX];
} rvli_replay_newer;

struct rvl_replay {
    rvl_context *context;
    rvl_trace_reader *reader; /* NULL: the events come from a source */
    rvli_replay_memory memory;
    rvli_replay_newer newer;    /* the event to pass to a callback */
    rvli_joined joined;         /* the files that the reader opens */
    rvl_replay_options options; /* its pointers are the caller's, and valid while the replay runs */
    rvl_trace_device traced[RVL_MAX_DEVICES]; /* as the input declares them */
    size_t traced_count;
    char **paths; /* copies: the reader and the result outlive the call */
    size_t path_count;

    int device_of_index[RVL_MAX_DEVICES]; /* the context's device of a trace's index, -1: none */
    rvli_replay_device devices[RVL_MAX_DEVICES];
    rvli_replay_measured measured[RVL_MAX_DEVICES];
    int device_count;

    rvli_replay_process *processes;
    uint32_t process_capacity;
    rvli_intmap tags; /* tag by process and tag slot; missing if nothing was allocated under it */
    uint64_t last_tag_key; /* key of the last lookup; 0: none */
    rvl_tag last_tag;
    rvli_replay_conductor conductor;

    rvli_replay_ahead ahead;
    rvli_replay_together together;
    rvli_stages stages;
    bool ranges;      /* the trace has ranges */
    uint64_t last_ns; /* of the last event */
    size_t step;      /* the conductor's steps so far */
    bool moved;       /* memory may have changed since the last mark of a stage */
    bool woken;       /* wake together: the step's resumes are done */

    rvli_replay_watched *watched; /* by tag, then by device; only with a timeline */
    uint32_t watched_tags;

    rvli_outcome outcome;
    rvli_headroom headroom;
    rvl_trace_progress progress;

    rvl_budget *budgets; /* copies, which live as long as the result */
    size_t budget_count;
};

/* Returns the slot of a tag in a trace, over all processes. Slot 0 is untagged memory. */
static inline uint32_t rvli_replay_tag_slot(const rvl_trace_event *event)
{
    return event->tag_index == RVL_TRACE_NO_TAG ? 0 : event->tag_index + 1;
}

/* Returns the figures of a stage on a device. */
static inline rvli_stage_part *rvli_stage_on(const rvl_replay *replay, uint32_t stage, int device)
{
    return &replay->stages.parts[(size_t)stage * (size_t)replay->device_count + (size_t)device];
}

/*
 * Words of a line, counted from 1: the kind, the time, the process, the thread, and then those of
 * the kind.
 */
#define RVLI_FIELD_ID 5u

/* ---- replay.c ---- */

/*
 * Sets the error that ends the replay: at a field of an event, or, with event NULL, for the replay
 * as a whole. Returns status.
 */
rvl_status rvli_replay_refuse(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                              rvl_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/*
 * Like rvli_replay_refuse(), for a failure `cause` of another part of the library. Keeps its error
 * record, sets the place and the status, and puts `what` in front of its message. what may be NULL.
 * Returns status.
 */
rvl_status rvli_replay_pass_on(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                               rvl_status cause, rvl_status status, const char *what);

/* Whether a stage or step mark counts. Chooses the conductor if needed. */
bool rvli_replay_conducts(rvli_replay_conductor *conductor, const rvl_trace_event *event);

/* ---- input.c: files or a source ---- */

/* Opens the files or the source. The paths have been copied. */
rvl_status rvli_replay_input_open(rvl_replay *replay);
/* Starts the filter, before the first event. */
rvl_status rvli_replay_input_begin(rvl_replay *replay);
/*
 * Reads the next event that the filter keeps. Returns as rvl_trace_reader_next(). reader: to read
 * from instead; NULL: none.
 */
rvl_status rvli_replay_input_next(rvl_replay *replay, rvl_trace_reader *reader,
                                  rvl_trace_event *event_out);
/* Returns the column of a field in a line; 0: the input has no columns. */
uint32_t rvli_replay_input_column(const rvl_replay *replay, const rvl_trace_event *event,
                                  uint32_t field);
void rvli_replay_input_progress(const rvl_replay *replay, rvl_trace_progress *progress_out);
/* Rewinds a source. */
rvl_status rvli_replay_input_rewind(rvl_replay *replay);
void rvli_replay_input_close(rvl_replay *replay);
/* Opens another reader on the files. */
rvl_status rvli_replay_input_reader(rvl_replay *replay, rvl_trace_reader **reader_out);

/* ---- apply.c ---- */

/* Applies an event. */
rvl_status rvli_replay_apply(rvl_replay *replay, const rvl_trace_event *event);

/* ---- parts.c ---- */

/* Assigns bytes of a live allocation to another tag from now on. */
rvl_status rvli_replay_part(rvl_replay *replay, const rvl_trace_event *event,
                            rvli_replay_process *process, rvl_tag tag);
/* Ends the parts of an allocation, before it is freed. */
rvl_status rvli_replay_parts_end(rvl_replay *replay, const rvl_trace_event *event,
                                 rvli_replay_process *process);
/* Refuses a pause of a tag if one of its allocations has parts. */
rvl_status rvli_replay_parts_check_pause(rvl_replay *replay, const rvl_trace_event *event,
                                         rvl_tag tag);
void rvli_replay_parts_destroy(rvli_replay_process *process);

/* ---- lookahead.c ---- */

/*
 * Returns the next event, which is valid until the next call. RVL_OK; RVL_ERR_NOT_FOUND after the
 * last event; or an error of the reader, with the thread's error record filled in.
 */
rvl_status rvli_replay_ahead_next(rvl_replay *replay, const rvl_trace_event **event_out);
/* Returns the event after the last returned one; NULL: none is known. */
const rvl_trace_event *rvli_replay_ahead_peek(const rvl_replay *replay);

/* ---- together.c ---- */

/* Reads the whole trace to find the tags that each step resumes. */
rvl_status rvli_replay_together_collect(rvl_replay *replay);
void rvli_replay_together_destroy(rvli_replay_together *together);

/* Returns the pairs of a step, sorted by process and tag. */
const rvli_replay_pair *rvli_replay_together_step(const rvli_replay_together *together, size_t step,
                                                  size_t *count_out);

/* ---- measure.c ---- */

/* Notes the free memory before the first event. */
void rvli_replay_measure_begin(rvl_replay *replay);
/* Queries real devices, after an event. */
void rvli_replay_measure(rvl_replay *replay);
/*
 * Waits before a resume. On a real device, for the time that the options give the driver; on a
 * simulated one, in simulated time.
 */
void rvli_replay_measure_settle(const rvl_replay *replay);

/* ---- observe.c: no effect without a timeline ---- */

rvl_status rvli_replay_watch(rvl_replay *replay);
rvl_status rvli_replay_watch_end(rvl_replay *replay);
rvl_status rvli_replay_note_alloc(rvl_replay *replay, const rvl_trace_event *event, rvl_tag tag,
                                  int device);
rvl_status rvli_replay_note_part(rvl_replay *replay, const rvl_trace_event *event, rvl_tag own,
                                 rvl_tag part, int device);
void rvli_replay_before_free(rvl_replay *replay, rvl_addr addr, rvl_allocation *allocation_out);
rvl_status rvli_replay_note_free(rvl_replay *replay, const rvl_trace_event *event,
                                 const rvl_allocation *allocation);
rvl_status rvli_replay_note_tags(rvl_replay *replay, const rvl_trace_event *event,
                                 const rvl_tag *tags, size_t count);
rvl_status rvli_replay_note_external(rvl_replay *replay, const rvl_trace_event *event, int device,
                                     const char *cause, uint64_t bytes);
rvl_status rvli_replay_note_stage(rvl_replay *replay, const rvl_trace_event *event,
                                  const rvli_stage_of_process *stage);
/* Ends an event: everything noted becomes one instant. */
void rvli_replay_note_event(rvl_replay *replay, const rvl_trace_event *event);

/* ---- result.c ---- */

/* Copies the budgets, since the result outlives the options. */
rvl_status rvli_replay_copy_budgets(rvl_replay *replay);
/* Reads the result from the context, and compares it with the budgets. */
rvl_status rvli_replay_finish(rvl_replay *replay);
/* Finds the stage that a device lists at an index, or returns why there is none. */
rvl_status rvli_replay_find_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  uint32_t *stage_out);
void rvli_replay_result_destroy(rvl_replay *replay);

#endif
