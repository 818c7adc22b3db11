/* SPDX-License-Identifier: MIT */
/*
 * Stages of processes, made of the core's segments.
 *
 * A stage has a process, a name and a number: the third `forward` of rank 2. Stages of a process
 * may overlap (ranges), and those of several processes do. The core knows neither: it has segments,
 * one after the other, each with its exact peak on each device. So time is cut wherever any stage
 * begins or ends, and a stage that is open takes from each segment what is more than it has: its
 * peak is the largest of its segments', and who held it is asked of that segment. What a stage
 * comes to does not depend on where the stages of others cut it.
 *
 * There is one stage that is always open, the whole run. The stage `start` of a process is what
 * that one has come to when the process marks for the first time. Between its ranges a process is
 * `outside`.
 *
 * So that a program that marks without end stays within bounds, and its result too, stages are kept
 * one by one up to RVLI_STAGES_OF_PROCESS and RVLI_STAGES_KEPT. Later ones are folded, when they
 * end, into one for each name of a process, which keeps the largest of them. A segment that no
 * stage needs is forgotten by the core.
 */
#ifndef RVL_PREDICT_REPLAY_STAGES_H
#define RVL_PREDICT_REPLAY_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "reveille/replay.h"
#include "reveille/timeline.h"

/* Stages of a process that are kept one by one: as many as a timeline has points of a device. */
#define RVLI_STAGES_OF_PROCESS RVL_TIMELINE_POINTS_DEFAULT
/* Of all processes, times devices. */
#define RVLI_STAGES_KEPT 131072u
/*
 * Names that stages are folded under. What has no name by then is RVLI_STAGE_OTHERS, except for
 * names with a budget.
 */
#define RVLI_STAGES_NAMES 4096u
/* Ranges of a process that are open at a time: docs/trace-format.md. */
#define RVLI_STAGES_OPEN 256u

#define RVLI_STAGE_START "start"
#define RVLI_STAGE_OUTSIDE "outside"
#define RVLI_STAGE_OTHERS "other stages"

#define RVLI_NO_STAGE UINT32_MAX

/* A stage on a device. */
typedef struct rvli_stage_part {
    uint64_t begin_bytes;
    uint64_t peak_bytes;
    uint64_t part_bytes; /* of the peak: what lies in parts */
    uint64_t end_bytes;
    uint64_t host_bytes;
    uint64_t transition_ns;
    uint64_t read_bytes; /* at its last sample, with read */
    uint64_t predicted_bytes;
    uint64_t measured_peak_bytes; /* by a real device, with measured */
    uint64_t measured_end_bytes;
    uint32_t segment; /* that has the peak and its holders; RVLI_NO_STAGE: none so far */
    uint32_t number;  /* among those of its name: of those that were folded the largest's */
    const char *said; /* what the largest of RVLI_STAGE_OTHERS was marked with; NULL: its mark */
    bool read;
    bool measured;
} rvli_stage_part;

/* A stage of a process, or, folded, several of one name. */
typedef struct rvli_stage_of_process {
    const char *mark;
    const char *said; /* as in its parts */
    char *name;       /* as it is listed where that is not the mark; made at the end */
    uint32_t process_index;
    uint32_t place; /* in the order in which stages of the run began; "start" has 0 */
    uint32_t number;
    uint32_t count; /* that it stands for; 0: a place that is free */
    uint32_t step;
    uint32_t folds_into; /* once it ends; RVLI_NO_STAGE: it is kept */
    uint64_t begin_ns;
    uint64_t end_ns;
    bool gap; /* start, or outside */
} rvli_stage_of_process;

/* A name that a process has given to stages. */
typedef struct rvli_stage_mark {
    UT_hash_handle hh;
    uint32_t count;
    uint32_t folded; /* the stage that those beyond the bound are in; RVLI_NO_STAGE: none */
    const char *name;
} rvli_stage_mark;

typedef struct rvli_stage_range {
    uint64_t id;
    uint32_t stage;
} rvli_stage_range;

/* What a process has marked. All zeroes: nothing. */
typedef struct rvli_stages_of_process {
    uint64_t used_devices; /* bit d: it has had memory on the context's device d */
    uint64_t marks;
    uint32_t kept; /* stages, one by one */
    uint32_t flat; /* its flat stage plus 1; 0: none */
    uint32_t outside;
    rvli_stage_range *ranges; /* those that are open */
    uint32_t range_count;
    uint32_t range_capacity;
    rvli_stage_mark *names;
} rvli_stages_of_process;

typedef struct rvli_stages {
    rvli_stage_of_process *list; /* the first is the whole run */
    rvli_stage_part *parts;      /* by stage, then by device */
    uint32_t count;
    uint32_t capacity;
    uint32_t kept;  /* one by one */
    uint32_t names; /* that stages were folded under */
    uint32_t begun; /* of all, also those that were folded */
    uint32_t *open;
    uint32_t open_count;
    uint32_t open_capacity;
    uint32_t *free; /* places of stages that were folded */
    uint32_t free_count;
    uint32_t free_capacity;
    uint32_t *closed; /* by the last mark, which nothing has followed so far */
    uint32_t closed_count;
    uint32_t closed_capacity;
    uint64_t now_ns;
} rvli_stages;

/* The whole run begins. RVL_ERR_HOST_OOM. */
rvl_status rvli_replay_stages_begin(rvl_replay *replay);
/* A flat stage of the event's process begins; a range of it begins or ends. */
rvl_status rvli_replay_stages_flat(rvl_replay *replay, const rvl_trace_event *event);
rvl_status rvli_replay_stages_enter(rvl_replay *replay, const rvl_trace_event *event);
rvl_status rvli_replay_stages_leave(rvl_replay *replay, const rvl_trace_event *event);
/* What was truly in use on a device, beside what is predicted. */
void rvli_replay_stages_read(rvl_replay *replay, int device, uint64_t read_bytes,
                             uint64_t predicted_bytes);
/* The trace has ended, and with it all stages. Names are made. RVL_ERR_HOST_OOM. */
rvl_status rvli_replay_stages_end(rvl_replay *replay);
/* The stage that an event of a process falls in: the one begun last of those that are open. */
uint32_t rvli_replay_stages_current(const rvl_replay *replay, uint32_t process_index);
void rvli_replay_stages_destroy(rvl_replay *replay);
void rvli_replay_stages_forget_process(rvli_stages_of_process *process);

#endif
