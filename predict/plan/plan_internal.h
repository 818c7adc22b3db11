/* SPDX-License-Identifier: MIT */
/*
 * What the files of planning share.
 *
 * Every question about a case is a replay of its events, with the sizes of one tag scaled where its
 * largest size is sought. A step's events are made once; traces are read again for every replay.
 */
#ifndef RVL_PREDICT_PLAN_PLAN_INTERNAL_H
#define RVL_PREDICT_PLAN_PLAN_INTERNAL_H

#include "reveille/plan.h"

/* ---- subject.c ---- */

/* Traces, which are read again for every question, or the events of a model's step. */
typedef struct rvli_subject {
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
} rvli_subject;

/* Reads traces and snapshots once, whether they can be, and have a stage. */
rvl_status rvli_subject_open(const char *const *paths, size_t path_count,
                             const rvl_replay_options *reading, rvli_subject *subject_out);
/* Of a step, which must outlive it: it has the strings. */
rvl_status rvli_subject_of_step(const rvl_model_step *step, rvli_subject *subject_out);
void rvli_subject_close(rvli_subject *subject);

/* false: no more is wanted. */
typedef bool (*rvli_visit_fn)(void *user, const rvl_trace_event *event);

/* Shows every event, in order. Strings live as long as the visit. */
rvl_status rvli_subject_walk(const rvli_subject *subject, rvli_visit_fn visit, void *user);

rvl_status rvli_subject_replay(const rvli_subject *subject, const rvl_replay_options *options,
                               rvl_replay **replay_out);

/* ---- scale.c ---- */

/* A tag of some events. */
typedef struct rvli_scaled_tag {
    const char *name;
    char *process;              /* the only one that counts; NULL: any */
    uint64_t granularity_bytes; /* of the devices */
    uint64_t peak_granules;     /* where a process on a device has most under it */
    char *holder;               /* process of the first allocation */
} rvli_scaled_tag;

/*
 * Measures a tag ("kv_cache", or "engine/kv_cache"; name must outlive it) on devices of that
 * granularity. RVL_OK; RVL_ERR_NOT_FOUND (nothing is allocated under it); RVL_ERR_HOST_OOM; what
 * reading returns. rvli_scaled_tag_forget() frees what it has.
 */
rvl_status rvli_scaled_tag_measure(const rvli_subject *subject, const char *name,
                                   uint64_t granularity_bytes, rvli_scaled_tag *tag_out);
void rvli_scaled_tag_forget(rvli_scaled_tag *tag);

/*
 * The memory fraction that gives an engine a KV cache of that size: weights and cache as a part of
 * what the engine's context leaves, in millionths, rounded down. 0: the tag is no KV cache.
 */
uint32_t rvli_subject_fraction(const rvli_subject *subject, const rvli_scaled_tag *tag,
                               uint64_t cache_bytes, uint64_t capacity_bytes);

/* "weights, kv_cache": the tags there are, cut where the room ends. */
void rvli_subject_list_tags(const rvli_subject *subject, char *text, size_t size);

/* Replays with the tag scaled to granules; UINT64_MAX: as it is. */
rvl_status rvli_scaled_tag_replay(const rvli_subject *subject, const rvli_scaled_tag *tag,
                                  uint64_t granules, const rvl_replay_options *options,
                                  rvl_replay **replay_out);

/* ---- largest.c ---- */

/*
 * A question that a larger number can only answer no: RVL_OK with fits_out, or why it cannot be.
 * guess_out: the answer may set it to where the largest that fits seems to be.
 */
typedef rvl_status (*rvli_fits_fn)(void *user, uint64_t number, bool *fits_out,
                                   uint64_t *guess_out);

/*
 * The largest number from low to high that fits; low is taken to fit, and so is returned if no
 * other does. guess is asked about first; UINT64_MAX: there is none.
 */
rvl_status rvli_largest(rvli_fits_fn fits, void *user, uint64_t low, uint64_t high, uint64_t guess,
                        uint64_t *largest_out);

/* ---- case.c ---- */

struct rvl_plan {
    const rvl_model *model; /* NULL: traces */
    rvli_subject traces;
};

/* A case that cannot begin, for what the error record says. */
void rvli_case_refuse(rvl_status status, rvl_plan_result *result);

#endif
