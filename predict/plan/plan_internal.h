/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of planning.
 *
 * Every question about a case is a replay of its events. To find the largest size of a tag, its
 * sizes are scaled. The events of a step are made once. Traces are read again for every replay.
 */
#ifndef RVL_PREDICT_PLAN_PLAN_INTERNAL_H
#define RVL_PREDICT_PLAN_PLAN_INTERNAL_H

#include "reveille/plan.h"

/* ---- subject.c ---- */

/* Traces, which are read again for every question, or the events of a model's step. */
typedef struct rvli_subject {
    char **paths;             /* paths that can be read repeatedly; NULL: a step's events */
    const char *const *names; /* the user's names of them */
    int *files;               /* copies of pipes; -1: not a pipe */
    size_t path_count;
    rvl_replay_options reading; /* options for partial traces and for snapshots */
    rvl_trace_reader *reader;   /* owns the strings of the devices */
    rvl_trace_event *events;
    size_t count;
    rvl_trace_device devices[RVL_MAX_DEVICES];
    size_t device_count;
} rvli_subject;

/* Reads traces and snapshots once, to check that they can be read and have a stage. */
rvl_status rvli_subject_open(const char *const *paths, size_t path_count,
                             const rvl_replay_options *reading, rvli_subject *subject_out);
/* Makes a subject from a step. The step owns the strings and must outlive the subject. */
rvl_status rvli_subject_of_step(const rvl_model_step *step, rvli_subject *subject_out);
void rvli_subject_close(rvli_subject *subject);

/* Returns false to stop. */
typedef bool (*rvli_visit_fn)(void *user, const rvl_trace_event *event);

/* Passes every event to visit, in order. Strings are valid during the visit only. */
rvl_status rvli_subject_walk(const rvli_subject *subject, rvli_visit_fn visit, void *user);

rvl_status rvli_subject_replay(const rvli_subject *subject, const rvl_replay_options *options,
                               rvl_replay **replay_out);

/* ---- scale.c ---- */

/* A tag with sizes to scale. */
typedef struct rvli_scaled_tag {
    const char *name;
    char *process;              /* count only this process; NULL: any */
    uint64_t granularity_bytes; /* of the devices */
    uint64_t peak_granules;     /* the highest peak of a process on a device */
    char *holder;               /* process of the first allocation */
} rvli_scaled_tag;

/*
 * Measures a tag ("kv_cache", or "engine/kv_cache") on devices of this granularity. name must
 * outlive *tag_out. RVL_OK; RVL_ERR_NOT_FOUND (nothing is allocated under it); RVL_ERR_HOST_OOM; or
 * an error of reading. The caller frees *tag_out with rvli_scaled_tag_forget().
 */
rvl_status rvli_scaled_tag_measure(const rvli_subject *subject, const char *name,
                                   uint64_t granularity_bytes, rvli_scaled_tag *tag_out);
void rvli_scaled_tag_forget(rvli_scaled_tag *tag);

/*
 * Returns the memory fraction that gives an engine a KV cache of this size: weights and cache
 * divided by the capacity minus the engine's context, in millionths, rounded down. 0: the tag is
 * not a KV cache.
 */
uint32_t rvli_subject_fraction(const rvli_subject *subject, const rvli_scaled_tag *tag,
                               uint64_t cache_bytes, uint64_t capacity_bytes);

/* Writes the tags of a subject, such as "weights, kv_cache". Cut off at the end of the room. */
void rvli_subject_list_tags(const rvli_subject *subject, char *text, size_t size);

/* Replays with the tag scaled to this many granules; UINT64_MAX: unscaled. */
rvl_status rvli_scaled_tag_replay(const rvli_subject *subject, const rvli_scaled_tag *tag,
                                  uint64_t granules, const rvl_replay_options *options,
                                  rvl_replay **replay_out);

/* ---- largest.c ---- */

/*
 * Asks whether a number fits. If a number does not fit, no larger one may. Returns RVL_OK with
 * *fits_out set, or the reason why it cannot be decided. It may set *guess_out to an estimate of
 * the largest number that fits.
 */
typedef rvl_status (*rvli_fits_fn)(void *user, uint64_t number, bool *fits_out,
                                   uint64_t *guess_out);

/*
 * Finds the largest number from low to high that fits. low is taken to fit, so it is the result if
 * no other number fits. guess is tried first; UINT64_MAX: none.
 */
rvl_status rvli_largest(rvli_fits_fn fits, void *user, uint64_t low, uint64_t high, uint64_t guess,
                        uint64_t *largest_out);

/* ---- case.c ---- */

struct rvl_plan {
    const rvl_model *model; /* NULL: traces */
    rvli_subject traces;
};

/* Refuses a case that cannot begin, with the reason in the error record. */
void rvli_case_refuse(rvl_status status, rvl_plan_result *result);

#endif
