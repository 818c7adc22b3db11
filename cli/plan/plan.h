/* SPDX-License-Identifier: MIT */
/*
 * What the files of `reveille plan` share.
 *
 * A case is one point of a sweep: a subject (a model with settings, or traces) on a device. Every
 * question about it is a replay of its events, with the sizes of one tag scaled where its largest
 * size is sought. A model's events are made once; traces are read again for every replay. What a
 * case comes to is plain data of one size, so that it can be sent from rank to rank as it lies.
 */
#ifndef RVL_CLI_PLAN_PLAN_H
#define RVL_CLI_PLAN_PLAN_H

#include "command.h"
#include "document.h"
#include "model_set.h"
#include "verdict.h"

#define PLAN_NAME_BYTES 64
#define PLAN_WHY_BYTES 384
#define PLAN_AXES_MAX 24
#define PLAN_CASES_MAX 10000000

/* One option and the values it takes, in the order of the command line. */
typedef struct plan_axis {
    const char *name;
    char **values;
    size_t count;
} plan_axis;

typedef struct plan_arguments {
    const char *const *traces; /* and snapshots, merged on one clock; none: models */
    size_t trace_count;
    plan_axis axes[PLAN_AXES_MAX]; /* "model" first, if there is any */
    size_t axis_count;
    rvl_model_given *given;
    size_t given_count;
    const char *tag; /* the largest size of it is sought; NULL: none */
    const char *conductor;
    const char *snapshot_process; /* NULL: the default */
    uint32_t snapshot_device;
    option_headroom headroom; /* what a case must leave to be recommended */
    bool per_rank;            /* each trace by itself: they are an axis "trace" */
    bool partial;
    bool sweep;
    option_document json;
    bool csv;
    bool answered;    /* help was asked for and printed: that is all */
    uint32_t threads; /* 0: one for each core */
} plan_arguments;

/* ---- arguments.c ---- */

/* Fills *arguments, which plan_arguments_free() empties. Returns 0 or the exit status. */
int plan_parse(int argc, char **argv, plan_arguments *arguments);
void plan_arguments_free(plan_arguments *arguments);

/* The values of an axis; NULL: it is not among the options. */
const plan_axis *plan_find_axis(const plan_arguments *arguments, const char *name);
size_t plan_case_count(const plan_arguments *arguments);

/* The value that an axis has in a case: the last axis changes fastest. */
const char *plan_value(const plan_arguments *arguments, size_t number, size_t axis);

/* ---- events.c: a subject's events, and their sizes scaled ---- */

/* Traces, which are read again for every question, or the events of a model's step. */
typedef struct plan_events {
    char **paths;             /* that can be read again and again; NULL: a step's events */
    const char *const *names; /* what the user calls them */
    int *files;               /* copies of pipes, -1: none */
    size_t path_count;
    rvl_replay_options reading; /* partial, and what snapshots need */
    rvl_trace_reader *reader;   /* has the strings of the devices */
    rvl_trace_event *events;
    size_t count;
    rvl_trace_device devices[RVL_MAX_DEVICES];
    size_t device_count;
} plan_events;

/* Reads traces and snapshots once, whether they can be. Returns 0, or the exit status, and why. */
int plan_events_open(const plan_arguments *arguments, const char *const *paths, size_t path_count,
                     char *why, size_t why_size, plan_events *events_out);
/* Of a step, which must outlive them: it has the strings. */
rvl_status plan_events_of_step(const rvl_model_step *step, plan_events *events_out);
void plan_events_close(plan_events *events);

/* A tag of some events. */
typedef struct plan_tag {
    const char *name;
    char *process;              /* the only one that counts; NULL: any */
    uint64_t granularity_bytes; /* of the devices */
    uint64_t peak_granules;     /* where a process on a device has most under it */
    char *holder;               /* process of the first allocation */
} plan_tag;

/*
 * Measures a tag ("kv_cache", or "engine/kv_cache"; name must outlive it) on devices of that
 * granularity. RVL_OK; RVL_ERR_NOT_FOUND (nothing is allocated under it); RVL_ERR_HOST_OOM; what
 * reading answers. plan_tag_forget() frees what it has.
 */
rvl_status plan_tag_measure(const plan_events *events, const char *name, uint64_t granularity_bytes,
                            plan_tag *tag_out);
void plan_tag_forget(plan_tag *tag);

/*
 * The memory fraction that gives an engine a KV cache of that size: weights and cache as a part of
 * what the engine's context leaves, in millionths, rounded down. 0: the tag is no KV cache.
 */
uint32_t plan_events_fraction(const plan_events *events, const plan_tag *tag, uint64_t cache_bytes,
                              uint64_t capacity_bytes);

/* "weights, kv_cache": the tags there are, cut where the room ends. */
void plan_events_list_tags(const plan_events *events, char *text, size_t size);

/* Replays with the tag scaled to granules; UINT64_MAX: as it is. */
rvl_status plan_events_replay(const plan_events *events, const plan_tag *tag, uint64_t granules,
                              const rvl_replay_options *options, rvl_replay **replay_out);

/* ---- cases.c ---- */

/* Nothing is known of a case that an interrupted sweep has left out. */
typedef enum plan_state {
    PLAN_LEFT_OUT,
    PLAN_FITS,  /* and leaves the headroom */
    PLAN_TIGHT, /* fits, and leaves less */
    PLAN_DOES_NOT_FIT,
    PLAN_REFUSED,
    PLAN_FAILED
} plan_state;

/* Plain data. */
typedef struct plan_outcome {
    plan_state state;
    uint32_t gpus;
    uint64_t capacity_bytes; /* of the device that binds */
    uint64_t peak_bytes;     /* there, in the stage that binds */
    uint64_t host_bytes;
    uint64_t transition_ns;
    uint64_t largest_bytes;  /* of the tag that was asked for; UINT64_MAX: it never binds */
    uint64_t traced_bytes;   /* of that tag as it was */
    uint64_t headroom_bytes; /* that the device with the least beyond it is to leave */
    uint64_t doubt_bytes;    /* programs may get so much less of the device that binds */
    uint64_t assumed_bytes;  /* of the step: sizes that other programs had */
    uint32_t mem_fraction_ppm;
    int device; /* index in the trace */
    char stage[PLAN_NAME_BYTES];
    char why[PLAN_WHY_BYTES]; /* of a refusal or failure */
    bool why_is_placed;       /* it names its file */
} plan_outcome;

typedef struct plan_subject plan_subject;

/* Reads what all cases need: models, or traces. Returns 0 or the exit status. */
int plan_subject_open(const plan_arguments *arguments, plan_subject **subject_out);
void plan_subject_close(plan_subject *subject);

/*
 * Works a case out. replay_out (may be NULL) takes its replay, for the holders, or NULL. Several
 * threads may do so at once.
 */
void plan_case_run(const plan_subject *subject, size_t number, plan_outcome *outcome_out,
                   rvl_replay **replay_out);

/* ---- largest.c ---- */

/*
 * A question that a larger number can only answer no: RVL_OK with fits_out, or why it cannot be.
 * guess_out: the answer may set it to where the largest that fits seems to be.
 */
typedef rvl_status (*plan_fits_fn)(void *user, uint64_t number, bool *fits_out,
                                   uint64_t *guess_out);

/*
 * The largest number from low to high that fits; low is taken to fit, and so is returned if no
 * other does. guess is asked about first; UINT64_MAX: there is none.
 */
rvl_status plan_largest(plan_fits_fn fits, void *user, uint64_t low, uint64_t high, uint64_t guess,
                        uint64_t *largest_out);

/* ---- sweep.c ---- */

/* All cases, in order, on threads, up to an interrupt. */
void plan_sweep(const plan_subject *subject, const plan_arguments *arguments,
                plan_outcome *outcomes);

/* Index of the cheapest that fits, or of the one that comes nearest; SIZE_MAX: none at all. */
size_t plan_cheapest(const plan_outcome *outcomes, size_t count);
size_t plan_nearest(const plan_outcome *outcomes, size_t count);

/* Of traces a rank, the one that allows least; the first of several. */
size_t plan_binding(const plan_outcome *outcomes, size_t count);

/* How many cases there are outcomes of: the first ones. */
size_t plan_done(const plan_outcome *outcomes, size_t count);

/* Whether it fits, with the headroom or without. */
static inline bool plan_is_in_bounds(const plan_outcome *outcome)
{
    return outcome->state == PLAN_FITS || outcome->state == PLAN_TIGHT;
}

/* Bytes that are missing where a case does not fit. */
uint64_t plan_missing(const plan_outcome *outcome);

/* ---- print.c ---- */

/* All return 0 or, having complained, the exit status. */
int plan_print_sweep(const plan_arguments *arguments, const plan_outcome *outcomes, size_t count);
int plan_print_largest(const plan_arguments *arguments, const plan_outcome *outcome,
                       const rvl_replay *replay);
/* The same of the rank that binds, and what every rank allows. */
int plan_print_ranks(const plan_arguments *arguments, const plan_outcome *outcomes, size_t count,
                     size_t binding, const rvl_replay *replay);

#endif
