/* SPDX-License-Identifier: MIT */
/*
 * What the files of `reveille plan` share.
 *
 * A case is one point of a sweep: a subject (a model with settings, or traces) on a device. Its
 * events are made or read once and lie in memory; every question about it is a replay of them, with
 * the sizes of one tag scaled where its largest size is sought. What a case comes to is plain data
 * of one size, so that it can be sent from rank to rank as it lies.
 */
#ifndef RVL_TOOLS_PLAN_PLAN_H
#define RVL_TOOLS_PLAN_PLAN_H

#include "command.h"
#include "model_set.h"

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
    const char *tag; /* whose largest size is sought; NULL: none */
    const char *conductor;
    const char *snapshot_process; /* NULL: the default */
    uint32_t snapshot_device;
    bool snapshot_placed; /* snapshot_device was given */
    bool per_rank;        /* each trace by itself: they are an axis "trace" */
    bool partial;
    bool sweep;
    bool json;
    bool csv;
    bool help;
    uint32_t threads; /* 0: one a core */
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

/* ---- events.c: a subject's events in memory, and their sizes scaled ---- */

/* An event that a scaled tag has part in. */
typedef struct plan_share {
    size_t event;
    uint32_t group;
    uint32_t process;
    bool sized;    /* an allocation or its free; else a pause or resume */
    uint64_t from; /* granules of the group's allocations before this one, since none was live */
    uint64_t to;
} plan_share;

typedef struct plan_events {
    const rvl_trace_event *events;
    size_t count;
    const rvl_trace_device *devices;
    size_t device_count;
    rvl_trace_reader *reader; /* owns the strings of a trace; NULL: a model's step does */
    rvl_trace_event *owned;
    uint32_t process_count;
    uint64_t granularity_bytes; /* that shares are counted in */
    plan_share *shares;         /* of the scaled tag, by event */
    size_t share_count;
    uint32_t group_count;   /* processes and devices that the tag is allocated by and on */
    uint64_t peak_granules; /* of the tag in the group that has most */
    const char *process;    /* of the first allocation under the tag */
} plan_events;

/* Reads traces and snapshots into memory. Returns 0, or the exit status, and why. */
int plan_events_read(const plan_arguments *arguments, const char *const *paths, size_t path_count,
                     char *why, size_t why_size, plan_events *events_out);
/* Of a step, which must outlive them. */
void plan_events_of_step(const rvl_model_step *step, plan_events *events_out);
void plan_events_free(plan_events *events);

/*
 * Finds what a tag ("kv_cache", or "engine/kv_cache") has part in, on devices of that granularity.
 * RVL_OK; RVL_ERR_NOT_FOUND (nothing is allocated under it); RVL_ERR_HOST_OOM.
 */
rvl_status plan_events_share(plan_events *events, const char *tag, uint64_t granularity_bytes);

/*
 * The memory fraction that gives an engine a KV cache of that size: weights and cache as a part of
 * what the engine's context leaves, in millionths, rounded down. 0: the tag is no KV cache.
 */
uint32_t plan_events_fraction(const plan_events *events, const char *tag, uint64_t cache_bytes,
                              uint64_t capacity_bytes);

/* "weights, kv_cache": the tags there are, cut where the room ends. */
void plan_events_list_tags(const plan_events *events, char *text, size_t size);

/* Replays with the tag scaled to granules; UINT64_MAX: as it is. */
rvl_status plan_events_replay(const plan_events *events, uint64_t granules,
                              const rvl_replay_options *options, rvl_trace_error *error_out,
                              rvl_replay **replay_out);

/* ---- cases.c ---- */

typedef enum plan_state { PLAN_FITS, PLAN_DOES_NOT_FIT, PLAN_REFUSED, PLAN_FAILED } plan_state;

/* Plain data. */
typedef struct plan_outcome {
    plan_state state;
    uint32_t gpus;
    uint64_t capacity_bytes; /* of the device that binds */
    uint64_t peak_bytes;     /* there, in the stage that binds */
    uint64_t host_bytes;
    uint64_t transition_ns;
    uint64_t largest_bytes; /* of the tag that was asked for; UINT64_MAX: it never binds */
    uint64_t traced_bytes;  /* of that tag as it was */
    uint32_t mem_fraction_ppm;
    int device; /* index in the trace */
    char stage[PLAN_NAME_BYTES];
    char why[PLAN_WHY_BYTES]; /* of a refusal or failure */
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

/* A question that a larger number can only answer no: RVL_OK with fits_out, or why it cannot be. */
typedef rvl_status (*plan_fits_fn)(void *user, uint64_t number, bool *fits_out);

/*
 * The largest number from low to high that fits, by halving; low is taken to fit, and so is
 * returned if no other does.
 */
rvl_status plan_largest(plan_fits_fn fits, void *user, uint64_t low, uint64_t high,
                        uint64_t *largest_out);

/* ---- sweep.c, ranks.c ---- */

/* All cases, in order, on threads and ranks. On other ranks than 0 the outcomes stay empty. */
bool plan_sweep(const plan_subject *subject, const plan_arguments *arguments,
                plan_outcome *outcomes);

/* Index of the cheapest that fits, or of the one that comes nearest; SIZE_MAX: none at all. */
size_t plan_cheapest(const plan_outcome *outcomes, size_t count);
size_t plan_nearest(const plan_outcome *outcomes, size_t count);

/* Of traces a rank, the one that allows least; the first of several. */
size_t plan_binding(const plan_outcome *outcomes, size_t count);

/* Bytes that are missing where a case does not fit. */
uint64_t plan_missing(const plan_outcome *outcome);

/*
 * Joins the other processes that mpirun started. Returns 0, or the exit status, having complained:
 * under mpirun without the module that speaks MPI.
 */
int plan_ranks_join(void);
int plan_rank(void);
int plan_rank_count(void);
/* Whether every rank says yes. */
bool plan_ranks_agree(bool yes);
/* Brings the items of every rank (number r, r + ranks, ... of all) together on rank 0. */
bool plan_ranks_gather(void *items, size_t item_bytes, size_t count);
void plan_ranks_leave(void);

/* ---- print.c ---- */

/* false: no memory. */
bool plan_print_sweep(const plan_arguments *arguments, const plan_outcome *outcomes, size_t count);
bool plan_print_largest(const plan_arguments *arguments, const plan_outcome *outcome,
                        const rvl_replay *replay);
/* The same of the rank that binds, and what every rank allows. */
bool plan_print_ranks(const plan_arguments *arguments, const plan_outcome *outcomes, size_t count,
                      size_t binding, const rvl_replay *replay);

#endif
