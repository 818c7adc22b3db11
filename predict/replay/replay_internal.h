/* SPDX-License-Identifier: MIT */
/*
 * What the files of replay share.
 *
 * Replay holds no memory model of its own: every event becomes one call of libreveille, and every
 * byte of the result is read from there. What is kept here is translation (a trace's numbers to the
 * context's) and which line of which file was at work.
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
    bool seen;        /* the process has been decided, or, if named, has occurred */
    uint32_t process_index;
} rvli_replay_conductor;

/* A tag that is resumed within a step. */
typedef struct rvli_replay_pair {
    uint32_t process_index;
    uint32_t tag_slot; /* rvli_replay_tag_slot() */
    uint32_t order;    /* place among the step's resumes */
    bool no_restore;   /* of its first resume within the step */
} rvli_replay_pair;

/* What is resumed in each step; filled before the replay if the wake is together. */
typedef struct rvli_replay_together {
    rvli_replay_pair *pairs;
    size_t pair_count;
    size_t pair_capacity;
    size_t *first; /* index of a step's first pair; one entry more than there are steps */
    size_t step_count;
    size_t step_capacity;
} rvli_replay_together;

/* An allocation with parts: parts.c. */
typedef struct rvli_replay_parted rvli_replay_parted;

/* What a process gives up when it sleeps: asleep.c. */
typedef struct rvli_replay_sleeper rvli_replay_sleeper;

typedef struct rvli_replay_process {
    const char *name; /* NULL: it has had no event yet */
    rvl_process number;
    uint32_t rank; /* RVL_NO_RANK: not known */
    bool any_id;
    uint64_t last_id;  /* the highest so far, with any_id */
    rvli_intmap addrs; /* of what is live, by id */
    rvli_replay_parted *parted;
    rvli_replay_sleeper *sleeper; /* NULL: it has held nothing beyond its allocations */
    rvli_stages_of_process stages;
    rvli_refusal_open refusals;
} rvli_replay_process;

typedef struct rvli_replay_device {
    int trace_index;
    const char *profile;   /* NULL: given by its size */
    rvl_driver_use driver; /* of a simulated device: what its driver takes */
    uint64_t granularity_bytes;
    uint64_t capacity_doubt_bytes;
    uint64_t part_bytes;   /* of allocations, now */
    uint64_t pinned_bytes; /* the most host memory so far, which the driver has records of */
    bool sampled;
    uint64_t sample_count; /* after the first */
    int64_t worst_difference_bytes;
    bool overcommitted;
    const char *oom_file;
    uint32_t oom_line;
    uint32_t *oom_stages; /* those that were open then, the one begun last at the end */
    uint32_t oom_stage_count;
    /* Filled in at the end: */
    rvl_device_stats stats;
    uint32_t *listed; /* its stages */
    uint32_t stage_count;
    bool within_budgets;
    bool names_processes; /* a stage's name alone does not say which one it is */
} rvli_replay_device;

/* Events that have been read and not yet applied, in a ring. */
#define RVLI_REPLAY_AHEAD_EVENTS 16u

typedef struct rvli_replay_ahead_event {
    rvl_trace_event event;
    rvl_addr addr; /* of a free, once it has been looked up; 0: unknown */
} rvli_replay_ahead_event;

typedef struct rvli_replay_ahead {
    rvli_replay_ahead_event events[RVLI_REPLAY_AHEAD_EVENTS];
    uint32_t first;
    uint32_t count;
    rvl_status end;  /* what the reader answered after the last of them, RVL_OK: nothing yet */
    rvl_error error; /* that reading ended with, if it is not the end */
} rvli_replay_ahead;

/* What a real device said, in bytes above what was used before the first event. */
typedef struct rvli_replay_measured {
    uint64_t free_before; /* 0: a simulated device, which is not asked */
    uint64_t used_bytes;  /* as last answered */
    uint64_t peak_bytes;  /* since the last mark */
} rvli_replay_measured;

/* A tag on a device, as the timeline knows it. */
typedef struct rvli_replay_watched {
    const char *process; /* NULL: nothing was allocated there yet */
    const char *tag;
    uint32_t held; /* number of its series, from 1; 0: none yet */
    uint32_t paused;
} rvli_replay_watched;

/* A process or tag of a source, by its name. */
typedef struct rvli_replay_name {
    UT_hash_handle hh;
    uint32_t index;
    char text[];
} rvli_replay_name;

/* What a source lacks and a reader has: tables of names, and profiles that stay. */
typedef struct rvli_replay_memory {
    rvl_replay_source source; /* next NULL: the events come from a reader */
    char *profiles[RVL_MAX_DEVICES];
    rvli_replay_name *processes;
    rvli_replay_name *tags;
    rvli_replay_name *others; /* stages and causes */
    uint64_t last_ns;
    uint64_t events;
} rvli_replay_memory;

/* An event of a caller that knows a newer one. */
typedef union rvli_replay_newer {
    rvl_trace_event known;
    unsigned char all[RVLI_ELEMENT_BYTES_MAX];
} rvli_replay_newer;

struct rvl_replay {
    rvl_context *context;
    rvl_trace_reader *reader; /* NULL: the events come from a source */
    rvli_replay_memory memory;
    rvli_replay_newer newer;    /* the one that a callback is shown */
    rvli_joined joined;         /* what the reader opens */
    rvl_replay_options options; /* its pointers are the caller's: valid while the replay runs */
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
    rvli_intmap tags; /* by process and tag slot; nothing was allocated under what is not there */
    uint64_t last_tag_key; /* that was looked up last; 0: none */
    rvl_tag last_tag;
    rvli_replay_conductor conductor;

    rvli_replay_ahead ahead;
    rvli_replay_together together;
    rvli_stages stages;
    bool ranges;      /* the trace has some */
    uint64_t last_ns; /* of the last event */
    size_t step;      /* the conductor's steps so far */
    bool moved;       /* since the last mark of a stage something was taken or given back */
    bool woken;       /* the step's resumes have been made, wake together */

    rvli_replay_watched *watched; /* by tag, then by device; only with a timeline */
    uint32_t watched_tags;

    rvli_outcome outcome;
    rvli_headroom headroom;
    rvl_trace_progress progress;

    rvl_budget *budgets; /* copies, for as long as the result is asked */
    size_t budget_count;
};

/* A tag's number in a trace, over all processes; the untagged are first. */
static inline uint32_t rvli_replay_tag_slot(const rvl_trace_event *event)
{
    return event->tag_index == RVL_TRACE_NO_TAG ? 0 : event->tag_index + 1;
}

/* What a stage came to on a device. */
static inline rvli_stage_part *rvli_stage_on(const rvl_replay *replay, uint32_t stage, int device)
{
    return &replay->stages.parts[(size_t)stage * (size_t)replay->device_count + (size_t)device];
}

/* Words of a line, from 1: the kind, the time, the process, the thread, and what the kind has. */
#define RVLI_FIELD_ID 5u

/* ---- replay.c ---- */

/* Writes down why the replay ends: at a field of an event, or, with event NULL, as a whole. */
rvl_status rvli_replay_refuse(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                              rvl_status status, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/*
 * The same for what another part of the library has failed at with `cause`. Its record stays: it
 * gets the place and the status, and `what` in front of its message. what: may be NULL.
 */
rvl_status rvli_replay_pass_on(rvl_replay *replay, const rvl_trace_event *event, uint32_t field,
                               rvl_status cause, rvl_status status, const char *what);

/* Whether a stage or step mark counts. Decides who the conductor is, if needed. */
bool rvli_replay_conducts(rvli_replay_conductor *conductor, const rvl_trace_event *event);

/* ---- input.c: files or a source ---- */

/* Opens what the events come from; copies of the paths are there. */
rvl_status rvli_replay_input_open(rvl_replay *replay);
/* Before the first event: the filter begins. */
rvl_status rvli_replay_input_begin(rvl_replay *replay);
/* The next event that the filter keeps; as rvl_trace_reader_next(). reader: to read from instead,
 * NULL: none. */
rvl_status rvli_replay_input_next(rvl_replay *replay, rvl_trace_reader *reader,
                                  rvl_trace_event *event_out);
/* Column of a field in a line; 0: the input has none. */
uint32_t rvli_replay_input_column(const rvl_replay *replay, const rvl_trace_event *event,
                                  uint32_t field);
void rvli_replay_input_progress(const rvl_replay *replay, rvl_trace_progress *progress_out);
/* Begins a source again. */
rvl_status rvli_replay_input_rewind(rvl_replay *replay);
void rvli_replay_input_close(rvl_replay *replay);
/* Opens a reader on the files, once more. */
rvl_status rvli_replay_input_reader(rvl_replay *replay, rvl_trace_reader **reader_out);

/* ---- apply.c ---- */

/* Does what an event says. */
rvl_status rvli_replay_apply(rvl_replay *replay, const rvl_trace_event *event);

/* ---- parts.c ---- */

/* Bytes of a live allocation are for a tag from now on. */
rvl_status rvli_replay_part(rvl_replay *replay, const rvl_trace_event *event,
                            rvli_replay_process *process, rvl_tag tag);
/* Before an allocation is freed: its parts end. */
rvl_status rvli_replay_parts_end(rvl_replay *replay, const rvl_trace_event *event,
                                 rvli_replay_process *process);
/* Refuses a pause of what has parts. */
rvl_status rvli_replay_parts_check_pause(rvl_replay *replay, const rvl_trace_event *event,
                                         rvl_tag tag);
void rvli_replay_parts_destroy(rvli_replay_process *process);

/* ---- ahead.c ---- */

/*
 * The next event, good until the one after it is asked for. RVL_ERR_NOT_FOUND after the last; an
 * error of the reader, with the thread's error record filled.
 */
rvl_status rvli_replay_ahead_next(rvl_replay *replay, const rvl_trace_event **event_out);
/* The event behind the one that was answered last; NULL: none is known. */
const rvl_trace_event *rvli_replay_ahead_peek(const rvl_replay *replay);

/* ---- together.c ---- */

/* Reads the whole trace for what is resumed in which step. */
rvl_status rvli_replay_together_collect(rvl_replay *replay);
void rvli_replay_together_destroy(rvli_replay_together *together);

/* The pairs of a step, ordered by process and tag. */
const rvli_replay_pair *rvli_replay_together_step(const rvli_replay_together *together, size_t step,
                                                  size_t *count_out);

/* ---- measure.c ---- */

/* Notes what is free before the first event. */
void rvli_replay_measure_begin(rvl_replay *replay);
/* Asks real devices, after an event. */
void rvli_replay_measure(rvl_replay *replay);
/* On a real device: gives the driver the time that was asked for. */
void rvli_replay_measure_settle(const rvl_replay *replay);

/* ---- observe.c: nothing happens without a timeline ---- */

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
/* The event is over: what was noted becomes one instant. */
void rvli_replay_note_event(rvl_replay *replay, const rvl_trace_event *event);

/* ---- result.c ---- */

/* Takes the budgets over: the result is asked after the options are gone. */
rvl_status rvli_replay_copy_budgets(rvl_replay *replay);
/* Reads the result from the context, and holds it against the budgets. */
rvl_status rvli_replay_finish(rvl_replay *replay);
/* The stage that a device lists at an index, or why there is none. */
rvl_status rvli_replay_find_stage(const rvl_replay *replay, size_t device_index, uint32_t stage,
                                  uint32_t *stage_out);
void rvli_replay_result_destroy(rvl_replay *replay);

#endif
