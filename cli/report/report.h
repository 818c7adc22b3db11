/* SPDX-License-Identifier: MIT */
/* Declarations that the files of `reveille report` share. */
#ifndef RVL_CLI_REPORT_REPORT_H
#define RVL_CLI_REPORT_REPORT_H

#include <stdio.h>

#include "reveille/replay.h"
#include "reveille/verdict.h"
#include "cli/command.h"

/* Most layers of a chart: a holder each, and the last one for all others if there are more. */
#define LAYERS_MAX 11u

typedef struct palette palette;

/* What lies along the charts: the words of --axis. */
typedef enum chart_axis { AXIS_TIME, AXIS_EVENT } chart_axis;

#define NO_COLUMN UINT32_MAX

/* ---- samples.c ---- */

/* A sample of the true use of a device, read while the trace was recorded. */
typedef struct sample {
    uint64_t time_ns;
    uint64_t bytes;
    int device; /* index in the trace */
} sample;

typedef struct samples {
    sample *list; /* the owner frees it */
    size_t count;
    size_t capacity;
    size_t most;    /* samples to keep, at most */
    uint64_t every; /* keep one of this many samples */
    uint64_t passed;
    bool simulated; /* the machine of `reveille run` wrote the trace, so its times are those of
                       simulated calls */
} samples;

/* The legend for the mark of a sample. */
#define SAMPLES_LABEL "true use, read while it was recorded"

/* A filter of a replay, which collects samples and does not change events. */
rvl_status samples_note(void *seen, rvl_trace_event *event, bool *keep_out);
/* Returns a device's next sample after last; last NULL: the first. NULL: there is none. */
const sample *samples_next(const samples *seen, int device, const sample *last);
uint64_t samples_most_bytes(const samples *seen, int device);

/* ---- tensors.c ---- */

/* The tensors of snapshots. Empty unless all inputs of a run are snapshots. */
typedef struct report_tensors {
    char **list; /* from rvl_snapshot_get_tensors(), for each snapshot; NULL: too large */
    const char *const *paths;
    size_t count;
} report_tensors;

/* Reads the tensors of all snapshots. Returns 0 or, having complained, the exit status. */
int tensors_read(const char *const *paths, size_t path_count, report_tensors *tensors_out);
void tensors_free(report_tensors *tensors);
/* Names a snapshot's process as a replay does: "trainer", "trainer2". base NULL: the default. */
#define TENSORS_PROCESS_BYTES 96
void tensors_process(const char *base, size_t index, char name[TENSORS_PROCESS_BYTES]);

/* A replay and its timeline. */
typedef struct report_run {
    const char *label; /* tells it from the other run */
    rvl_replay *replay;
    rvl_timeline *timeline;
    samples samples;
    report_tensors tensors;
    const char *snapshot_process; /* NULL: the replay's default */
    char *remedy;                 /* how it could fit; NULL: no suggestion */
    const palette *palette;       /* shared by all runs of the report */
    chart_axis axis;
    uint64_t end_ns;         /* end of charts by time: the later end of both runs */
    uint32_t *stage_columns; /* by stage of the timeline; NO_COLUMN: it has no width */
    uint32_t column_count;
} report_run;

/* ---- devices.c ---- */

/* A device of a run. If no device was named, of.capacity_bytes is 0 and of.profile is NULL. */
typedef struct report_device {
    rvl_timeline_device of; /* from the timeline */
    uint64_t most_sampled_bytes;
    bool named;
    bool fits;            /* the peak is within the capacity */
    uint64_t doubt_bytes; /* programs may get this much less than the capacity */
} report_device;

bool report_device_get(const report_run *run, size_t index, report_device *device_out);

/* Returns "h200, 139.8 GiB" or "given by size, 80.0 GiB". The caller frees it. NULL: no memory. */
char *device_text(const report_device *device);

/* Returns "7.5 GiB to spare" or "52.9 GiB too much". The caller frees it. NULL: no memory. */
char *room_text(const report_device *device);

/* Gets the verdict of the run. false: its device was not named. */
bool run_has_verdict(const report_run *run, rvl_verdict *verdict_out);

/* Returns the least value for the upper edge of a chart: the peak of prediction and samples, or the
 * capacity if it is not far above. */
uint64_t chart_top_bytes(const report_device *device);

/* ---- stages.c ---- */

/* A stage of the timeline that the replay lists, or several that the timeline has merged. */
typedef struct listed_stage {
    rvl_stage_stats stats; /* of the first stage, but peak, end, host and transitions of all */
    uint64_t begin_ns;
    uint32_t step;
    uint32_t peak_stage; /* index of the stage with the peak, among the device's stages */
    uint32_t count;
} listed_stage;

bool stage_is_listed(const report_run *run, size_t device, uint32_t index);
/* Reads a listed stage. false: not found. */
bool stage_get(const report_run *run, size_t device, uint32_t index, listed_stage *stage_out);

/* ---- text.c: names, with unsafe characters escaped (base/shown.h). false: no memory ---- */

/* Writes a JSON string that is safe in a <script> of a page, with its quotes. */
bool write_json_text(FILE *out, const char *text);
/* Writes text or an attribute's value for XML. */
bool write_xml_text(FILE *out, const char *text);

/* ---- instants.c ---- */

/*
 * An instant of a device: the bytes of every series from time_ns on. A point of the timeline gives
 * one instant at its peak and one at its end. Both are exact.
 */
typedef struct instant {
    uint64_t time_ns;
    uint64_t until_ns;     /* the next instant, or the end of the run */
    const uint64_t *bytes; /* by series */
    uint64_t used_bytes;
    uint64_t paused_bytes;
    const rvl_timeline_value *values; /* the series that may have changed since the last instant */
    uint32_t value_count;
} instant;

/* Receives an instant. false: stop. */
typedef bool (*instant_fn)(void *user, const instant *now);

/* Calls back for every instant, in order of time. false: no memory, or the callback returned false.
 */
bool walk_instants(const rvl_timeline *timeline, size_t device, instant_fn callback, void *user);

/* Reads a point of a device and its values, at most one for each series. */
bool read_point(const rvl_timeline *timeline, size_t device, uint32_t index,
                rvl_timeline_point *point_out, rvl_timeline_value *values_out, size_t capacity);

/*
 * Returns the end of a chart: the last event, or a little later if the last stage would be too
 * narrow to see. The memory in use at the last event is drawn until then.
 */
uint64_t chart_end_ns(const rvl_timeline *timeline);

/*
 * The order of a chart's layers, from the bottom up: external bytes first, then by process. Within
 * a process, the tensors of a snapshot come first, then the largest series. If there are more than
 * `most` series, the smallest ones form one layer on top.
 */
typedef struct stack {
    uint32_t *order; /* indices of series */
    uint32_t count;
    uint32_t alone;  /* number of series at the start of order that have their own layers */
    uint32_t layers; /* alone, plus one if other series are left */
} stack;

/* Stacks the series that hold memory, or those that are paused. The caller frees stack_out->order.
 * false: no memory. */
bool stack_make(const rvl_timeline *timeline, size_t device, bool paused, uint32_t most,
                stack *stack_out);

/* Returns the number of series up to and including a layer. */
uint32_t stack_reach(const stack *stacked, uint32_t layer);

/* Returns "engine/kv_cache, at most 94.2 GiB" or "12 others". The caller frees it. NULL: no memory.
 */
char *stack_label(const rvl_timeline *timeline, size_t device, const stack *stacked,
                  uint32_t layer);

/* ---- palette.c ---- */

typedef struct colour {
    const char *css;
    unsigned char ansi; /* of the 256 colours of terminals */
} colour;

/* Chooses the colours of all holders of these runs. The caller frees it by palette_free(). NULL: no
 * memory. */
palette *palette_make(const report_run *runs, size_t run_count);
/* Returns the colour of a holder, which is the same for its paused memory. */
colour palette_colour(const palette *made, const rvl_timeline_series *series);
/* Returns the colour of the layer for all other holders. */
colour palette_rest(void);
void palette_free(palette *made);

/* Returns the colour of a layer. */
colour stack_colour(const report_run *run, size_t device, const stack *stacked, uint32_t layer);

/* ---- remedy.c ---- */

/* The inputs and options of a run. */
typedef struct remedy_question {
    const char *const *paths;
    size_t path_count;
    const rvl_replay_options *options;
    rvl_wake wake;
    const char *headroom; /* as typed; NULL: not given */
} remedy_question;

/*
 * Returns "it would fit with engine/kv_cache of 41.9 GiB instead of 94.8 GiB", with the size that
 * `reveille plan` finds. The caller frees it. NULL: the run fits, no size is known, or no memory.
 */
char *remedy_text(const remedy_question *asked, const report_run *run);

/* ---- axis.c: places of times ---- */

/* A time and its place. Between two knots, places are interpolated linearly. */
typedef struct knot {
    uint64_t time_ns;
    double place; /* 0 to 1 */
} knot;

typedef struct axis {
    knot *knots;
    size_t count;
} axis;

/*
 * Gives every stage of the runs a column. Stages that both runs have, in the same order, share a
 * column. false: no memory. The caller frees the stage_columns of every run.
 */
bool columns_make(report_run *runs, size_t run_count);

/* Makes the axis of a run. The caller frees axis_out->knots. false: no memory. */
bool axis_make(const report_run *run, size_t device, axis *axis_out);
/* Returns the place of a time, from 0 to 1. */
double axis_place(const axis *along, uint64_t time_ns);

/*
 * labels.c: places names of stages side by side, in few lanes. Sizes are pixels or columns, from
 * the left edge on.
 */
#define LABEL_LANES_MAX 6u
#define LABEL_NO_LANE UINT32_MAX

typedef struct label_lanes {
    double width;   /* of the chart: labels end before it */
    double gap;     /* between two labels */
    uint32_t most;  /* most lanes: LABEL_LANES_MAX, or one if there are very many stages */
    uint32_t count; /* lanes with labels */
    double ends[LABEL_LANES_MAX];
} label_lanes;

label_lanes label_lanes_of(const rvl_timeline *timeline, double width, double gap);

/*
 * Returns the first lane with room for the next label. Call it in ascending order of left. Moves
 * *left if the label would pass the right edge. LABEL_NO_LANE: all lanes are full.
 */
uint32_t label_place(label_lanes *lanes, double *left, double width);

/* Finds the largest number of bytes that are paused at one instant. false: no memory. */
bool most_paused(const rvl_timeline *timeline, size_t device, uint64_t *bytes_out);

/* ---- difference.c: one run minus another, along a chart ---- */

#define DIFFERENCE_PLACES ((size_t)2048)

typedef struct difference_curves {
    rvl_timeline_series
        keys[2 * LAYERS_MAX]; /* holders; the last layer, for all others, has none */
    uint32_t layers;
    double *bytes;      /* by layer, then by place, from the left edge to the right */
    double most, least; /* largest sum of the positive differences; lowest of the negative ones */
} difference_curves;

/* Makes the curves of run minus against. The caller frees made_out->bytes. false: no memory. */
bool difference_make(const report_run *run, const report_run *against, size_t device,
                     difference_curves *made_out);

/* ---- Outputs. false: no memory (the stream records write errors) ---- */

bool html_available(void);
bool write_html(FILE *out, const report_run *runs, size_t run_count);
bool write_svg(FILE *out, const report_run *run, const report_run *against, size_t device);
bool write_chrome(FILE *out, const report_run *runs, size_t run_count);
/* Prints a table on the standard output: the peaks of both runs, stage by stage, and the holders
 * that differ. */
bool print_differences(const report_run *run, const report_run *against, size_t device);
/* Draws a chart for a terminal. Without utf8, it is ASCII. */
bool write_terminal(FILE *out, const report_run *run, size_t device, unsigned columns, bool colours,
                    bool utf8);

#endif
