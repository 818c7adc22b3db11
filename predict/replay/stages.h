/* SPDX-License-Identifier: MIT */
/*
 * Stages of processes, built from the core's segments.
 *
 * A stage has a process, a name and a number: the third `forward` of rank 2. Stages of one process
 * may overlap (ranges), and so do those of several processes. The core knows neither. It has
 * consecutive segments, each with its exact peak on each device. So time is cut wherever any stage
 * begins or ends. At the end of a segment, every open stage is updated from it: the peak of a stage
 * is the largest of its segments' peaks, and its holders are those of that segment. The result of a
 * stage does not depend on where stages of other processes cut it.
 *
 * One stage is always open: the whole run. The stage `start` of a process is a copy of it at the
 * process's first mark. Between its ranges a process is `outside`.
 *
 * A program may mark without end. To bound memory and the result, stages are kept one by one up to
 * RVLI_STAGES_OF_PROCESS and RVLI_STAGES_KEPT. Later ones are folded, when they end, into one stage
 * for each name of a process, which keeps the largest. The core forgets segments that no stage
 * needs.
 */
#ifndef RVL_PREDICT_REPLAY_STAGES_H
#define RVL_PREDICT_REPLAY_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "reveille/replay.h"
#include "reveille/timeline.h"

/* Stages of a process to keep one by one: the number of points that a timeline has for a device. */
#define RVLI_STAGES_OF_PROCESS RVL_TIMELINE_POINTS_DEFAULT
/* Stages of all processes to keep, times devices. */
#define RVLI_STAGES_KEPT 131072u
/*
 * Names under which stages are folded. Stages with further names become RVLI_STAGE_OTHERS, except
 * for names with a budget.
 */
#define RVLI_STAGES_NAMES 4096u
/* Ranges of a process that may be open at a time (docs/trace-format.md). */
#define RVLI_STAGES_OPEN 256u

#define RVLI_STAGE_START "start"
#define RVLI_STAGE_OUTSIDE "outside"
#define RVLI_STAGE_OTHERS "other stages"

#define RVLI_NO_STAGE UINT32_MAX

/* A stage on a device. */
typedef struct rvli_stage_part {
    uint64_t begin_bytes;
    uint64_t peak_bytes;
    uint64_t part_bytes; /* at the peak: bytes in parts */
    uint64_t end_bytes;
    uint64_t host_bytes;
    uint64_t transition_ns;
    uint64_t read_bytes; /* at its last sample; valid with read */
    uint64_t predicted_bytes;
    uint64_t measured_peak_bytes; /* by a real device; valid with measured */
    uint64_t measured_end_bytes;
    uint32_t segment; /* the segment with the peak and its holders; RVLI_NO_STAGE: none yet */
    uint32_t number;  /* among those of its name; if folded, of the largest */
    const char *said; /* RVLI_STAGE_OTHERS: the mark of the largest; NULL: same as its mark */
    bool read;
    bool measured;
} rvli_stage_part;

/* A stage of a process, or several folded ones with one name. */
typedef struct rvli_stage_of_process {
    const char *mark;
    const char *said; /* as in its parts */
    char *name;       /* as listed; NULL: the mark. Made at the end */
    uint32_t process_index;
    uint32_t place; /* in the order in which stages of the run began */
    uint32_t number;
    uint32_t count; /* stages that it stands for; 0: a free place */
    uint32_t step;
    uint32_t folds_into; /* stage to fold it into when it ends; RVLI_NO_STAGE: keep it */
    uint64_t begin_ns;
    uint64_t end_ns;
    bool gap; /* start, or outside */
} rvli_stage_of_process;

/* A name that a process gave to stages. */
typedef struct rvli_stage_mark {
    UT_hash_handle hh;
    uint32_t count;
    uint32_t folded; /* the stage into which others are folded; RVLI_NO_STAGE: none */
    const char *name;
} rvli_stage_mark;

typedef struct rvli_stage_range {
    uint64_t id;
    uint32_t stage;
} rvli_stage_range;

/* The marks of a process. All zeroes: none. */
typedef struct rvli_stages_of_process {
    uint64_t used_devices; /* bit d: it had memory on the context's device d */
    uint64_t marks;
    uint32_t kept; /* stages kept one by one */
    uint32_t flat; /* its flat stage plus 1; 0: none */
    uint32_t outside;
    rvli_stage_range *ranges; /* open ranges */
    uint32_t range_count;
    uint32_t range_capacity;
    rvli_stage_mark *names;
} rvli_stages_of_process;

typedef struct rvli_stages {
    rvli_stage_of_process *list; /* the first is the whole run */
    rvli_stage_part *parts;      /* by stage, then by device */
    uint32_t count;
    uint32_t capacity;
    uint32_t kept;  /* stages kept one by one */
    uint32_t names; /* names under which stages were folded */
    uint32_t begun; /* stages begun, including folded ones */
    uint32_t *open;
    uint32_t open_count;
    uint32_t open_capacity;
    uint32_t *free; /* free places of folded stages */
    uint32_t free_count;
    uint32_t free_capacity;
    uint32_t *closed; /* stages closed by the last mark */
    uint32_t closed_count;
    uint32_t closed_capacity;
    uint64_t now_ns;
} rvli_stages;

/* Begins the whole run. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_replay_stages_begin(rvl_replay *replay);
/* Begin a flat stage of the event's process, or begin or end one of its ranges. */
rvl_status rvli_replay_stages_flat(rvl_replay *replay, const rvl_trace_event *event);
rvl_status rvli_replay_stages_enter(rvl_replay *replay, const rvl_trace_event *event);
rvl_status rvli_replay_stages_leave(rvl_replay *replay, const rvl_trace_event *event);
/* Notes the bytes that were in use on a device according to a sample, beside the predicted ones. */
void rvli_replay_stages_read(rvl_replay *replay, int device, uint64_t read_bytes,
                             uint64_t predicted_bytes);
/* Ends all stages at the end of the trace, and makes their names. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_replay_stages_end(rvl_replay *replay);
/* Returns the stage of an event of a process: the open one that began last. */
uint32_t rvli_replay_stages_current(const rvl_replay *replay, uint32_t process_index);
void rvli_replay_stages_destroy(rvl_replay *replay);
void rvli_replay_stages_forget_process(rvli_stages_of_process *process);

#endif
