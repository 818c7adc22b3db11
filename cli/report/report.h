/* SPDX-License-Identifier: MIT */
/* What the files of `reveille report` share. */
#ifndef RVL_CLI_REPORT_REPORT_H
#define RVL_CLI_REPORT_REPORT_H

#include <stdio.h>

#include "reveille/replay.h"
#include "reveille/verdict.h"
#include "cli/command.h"

/* Charts draw as many holders as there are colours, and all others as one. */
#define LAYERS_MAX 11u

typedef struct palette palette;

/* What lies along the charts. Words of --axis. */
typedef enum chart_axis { AXIS_TIME, AXIS_EVENT } chart_axis;

#define NO_COLUMN UINT32_MAX

/* ---- samples.c ---- */

/* True use of a device, read while the trace was recorded. */
typedef struct sample {
    uint64_t time_ns;
    uint64_t bytes;
    int device; /* index in the trace */
} sample;

typedef struct samples {
    sample *list; /* the owner frees it */
    size_t count;
    size_t capacity;
    size_t most;    /* that are kept */
    uint64_t every; /* which of those that pass is kept */
    uint64_t passed;
    bool simulated; /* the machine of `reveille run` has written the trace: its times are of
                       simulated calls */
} samples;

/* What stands beside the mark of a sample. */
#define SAMPLES_LABEL "true use, read while it was recorded"

/* A filter of a replay, which leaves events as they are. */
rvl_status samples_note(void *seen, rvl_trace_event *event, bool *keep_out);
/* The next one of a device, after last or the first. NULL: there is none. */
const sample *samples_next(const samples *seen, int device, const sample *last);
uint64_t samples_most_bytes(const samples *seen, int device);

/* ---- tensors.c ---- */

/* What snapshots recorded, tensor by tensor, where all inputs of a run are snapshots. */
typedef struct report_tensors {
    char **list; /* as rvl_snapshot_get_tensors() has it, one a snapshot; NULL: it is too large */
    const char *const *paths;
    size_t count;
} report_tensors;

/* Returns 0, or the exit status after saying what is wrong. */
int tensors_read(const char *const *paths, size_t path_count, report_tensors *tensors_out);
void tensors_free(report_tensors *tensors);
/* The process of a snapshot, as a replay names it: "trainer", "trainer2". */
#define TENSORS_PROCESS_BYTES 96
void tensors_process(const char *base, size_t index, char name[TENSORS_PROCESS_BYTES]);

/* One replay, and who held how much when. */
typedef struct report_run {
    const char *label; /* as it is told from the other one */
    rvl_replay *replay;
    rvl_timeline *timeline;
    samples samples;
    report_tensors tensors;
    const char *snapshot_process; /* NULL: as a replay names it */
    char *remedy;                 /* what would make it fit; NULL: nothing is said */
    const palette *palette;       /* of all runs of the report */
    chart_axis axis;
    uint64_t end_ns;         /* where charts by time end: the later end of both runs */
    uint32_t *stage_columns; /* by stage of the timeline, NO_COLUMN: it has no width */
    uint32_t column_count;
} report_run;

/* ---- devices.c ---- */

/* A device of a run. capacity_bytes and profile are 0 and NULL where nobody named it. */
typedef struct report_device {
    rvl_timeline_device of; /* what the timeline says */
    uint64_t most_sampled_bytes;
    bool named;
    bool fits;            /* its peak does */
    uint64_t doubt_bytes; /* programs may get so much less than the capacity */
} report_device;

bool report_device_get(const report_run *run, size_t index, report_device *device_out);

/* "h200, 139.8 GiB", "given by size, 80.0 GiB"; the caller frees it. NULL: no memory. */
char *device_text(const report_device *device);

/* "7.5 GiB to spare", "52.9 GiB too much"; the caller frees it. NULL: no memory. */
char *room_text(const report_device *device);

/* What the run comes to. false: nobody has named its devices. */
bool run_has_verdict(const report_run *run, rvl_verdict *verdict_out);

/* What the upper edge of a chart stands for at least: the peak, and the capacity if that is not
 * far. */
uint64_t chart_top_bytes(const report_device *device);

/* ---- stages.c ---- */

/* A stage of the timeline that the replay lists, or several that the timeline shows as one. */
typedef struct listed_stage {
    rvl_stage_stats stats; /* of the first; peak, end, host and transitions of all */
    uint64_t begin_ns;
    uint32_t step;
    uint32_t peak_stage; /* index into the device's stages: which of them has the peak */
    uint32_t count;
} listed_stage;

bool stage_is_listed(const report_run *run, size_t device, uint32_t index);
/* Of one that is listed. */
bool stage_get(const report_run *run, size_t device, uint32_t index, listed_stage *stage_out);

/* ---- text.c: names as base/shown.h makes them harmless; false: no memory ---- */

/* A JSON string that may stand in a <script> of a page, quotes included. */
bool write_json_text(FILE *out, const char *text);
/* Text or an attribute of XML. */
bool write_xml_text(FILE *out, const char *text);

/* ---- instants.c ---- */

/*
 * A moment of a device: what every series had from time_ns on. A point of the timeline gives one at
 * its peak and one at its end, both exact.
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

/* false ends the walk. */
typedef bool (*instant_fn)(void *user, const instant *now);

/* Calls back for every instant in order of time. false: no memory, or the callback said so. */
bool walk_instants(const rvl_timeline *timeline, size_t device, instant_fn callback, void *user);

/* A point of a device and its values, of which there are at most as many as series. */
bool read_point(const rvl_timeline *timeline, size_t device, uint32_t index,
                rvl_timeline_point *point_out, rvl_timeline_value *values_out, size_t capacity);

/*
 * Where a chart ends: at the last event, and a little later if the last stage would be too narrow
 * to be seen: what was in use then still is.
 */
uint64_t chart_end_ns(const rvl_timeline *timeline);

/*
 * What is stacked, from the bottom up: external bytes, then by process, then what tensors of a
 * snapshot have, then the largest first. Of more than `most` series the smallest are one layer, on
 * top.
 */
typedef struct stack {
    uint32_t *order; /* series */
    uint32_t count;
    uint32_t alone;  /* the first of them: each is a layer */
    uint32_t layers; /* alone, and one more if any are left */
} stack;

/* Of the series that hold, or of those that are paused. The caller frees stack_out->order. false:
 * no memory. */
bool stack_make(const rvl_timeline *timeline, size_t device, bool paused, uint32_t most,
                stack *stack_out);

/* How many of the series lie up to and within a layer. */
uint32_t stack_reach(const stack *stacked, uint32_t layer);

/* "engine/kv_cache, at most 94.2 GiB", "12 others"; the caller frees it. NULL: no memory. */
char *stack_label(const rvl_timeline *timeline, size_t device, const stack *stacked,
                  uint32_t layer);

/* ---- palette.c ---- */

typedef struct colour {
    const char *css;
    unsigned char ansi; /* of 256 */
} colour;

/* The colours of every holder of these runs; the caller frees it. NULL: no memory. */
palette *palette_make(const report_run *runs, size_t run_count);
/* What a holder has paused has the colour of what it holds. */
colour palette_colour(const palette *made, const rvl_timeline_series *series);
/* Of the layer that is many holders. */
colour palette_rest(void);
void palette_free(palette *made);

/* Of a layer. */
colour stack_colour(const report_run *run, size_t device, const stack *stacked, uint32_t layer);

/* ---- remedy.c ---- */

/* What a run was made of. */
typedef struct remedy_question {
    const char *const *paths;
    size_t path_count;
    const rvl_replay_options *options;
    rvl_wake wake;
    const char *headroom; /* as it was given; NULL: it was not */
} remedy_question;

/*
 * "it would fit with engine/kv_cache of 41.9 GiB instead of 94.8 GiB", as `reveille plan` finds.
 * The caller frees it. NULL: it fits, nobody can tell, or no memory.
 */
char *remedy_text(const remedy_question *asked, const report_run *run);

/* ---- axis.c: where a time lies ---- */

/* Between two knots places are in proportion. */
typedef struct knot {
    uint64_t time_ns;
    double place; /* 0 to 1 */
} knot;

typedef struct axis {
    knot *knots;
    size_t count;
} axis;

/*
 * Gives every stage of the runs a column. Stages that both have, in one order, are in the same one.
 * false: no memory. The caller frees the stage_columns of every run.
 */
bool columns_make(report_run *runs, size_t run_count);

/* The caller frees axis_out->knots. false: no memory. */
bool axis_make(const report_run *run, size_t device, axis *axis_out);
double axis_place(const axis *along, uint64_t time_ns);

/*
 * labels.c: names of stages, beside each other in as few lanes as there is room in. Sizes are
 * pixels or columns, from the left edge on.
 */
#define LABEL_LANES_MAX 6u
#define LABEL_NO_LANE UINT32_MAX

typedef struct label_lanes {
    double width;   /* of all: a label ends before it */
    double gap;     /* between two labels */
    uint32_t most;  /* lanes: LABEL_LANES_MAX, and one where there are very many stages */
    uint32_t count; /* lanes that have a label */
    double ends[LABEL_LANES_MAX];
} label_lanes;

label_lanes label_lanes_of(const rvl_timeline *timeline, double width, double gap);

/*
 * The lane of the next label, in order of left: the first in which it has room. Where it would pass
 * the right edge *left is moved. LABEL_NO_LANE: all are full.
 */
uint32_t label_place(label_lanes *lanes, double *left, double width);

/* Most bytes that are paused at one instant. */
bool most_paused(const rvl_timeline *timeline, size_t device, uint64_t *bytes_out);

/* ---- difference.c: one run less another, along a chart ---- */

#define DIFFERENCE_PLACES ((size_t)2048)

typedef struct difference_curves {
    rvl_timeline_series keys[2 * LAYERS_MAX]; /* holders; the last layer has none: all others */
    uint32_t layers;
    double *bytes;      /* by layer, then by place, from the left edge to the right */
    double most, least; /* of the sums of what is more, and of what is less */
} difference_curves;

/* The caller frees made_out->bytes. false: no memory. */
bool difference_make(const report_run *run, const report_run *against, size_t device,
                     difference_curves *made_out);

/* ---- What is written; false: no memory (what did not arrive shows at the stream) ---- */

bool html_available(void);
bool write_html(FILE *out, const report_run *runs, size_t run_count);
bool write_svg(FILE *out, const report_run *run, const report_run *against, size_t device);
bool write_chrome(FILE *out, const report_run *runs, size_t run_count);
/* A table on the standard output: the peaks of both runs, stage by stage, and who makes the
 * difference. */
bool print_differences(const report_run *run, const report_run *against, size_t device);
/* Without utf8, the chart is ASCII. */
bool write_terminal(FILE *out, const report_run *run, size_t device, unsigned columns, bool colours,
                    bool utf8);

#endif
