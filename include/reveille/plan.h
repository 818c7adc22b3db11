/* SPDX-License-Identifier: MIT */
/*
 * Planning: the largest size of a tag that fits, and which of many settings fit
 * (libreveille-replay). Every answer is a replay. The rules are in docs/plan.md.
 */
#ifndef REVEILLE_PLAN_H
#define REVEILLE_PLAN_H

#include "reveille/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is planned: traces, or steps of a model. */
typedef struct rvl_plan rvl_plan;

/*
 * Reads traces and PyTorch snapshots once, whether they can be; each case reads them again. What a
 * pipe holds is copied into memory. reading (may be NULL) has the flag RVL_REPLAY_PARTIAL and what
 * snapshots need. Returns as rvl_replay_run(); RVL_ERR_NOT_FOUND (the traces have no stage, and so
 * none that could fit). The strings of paths must outlive the plan. The caller frees *plan_out with
 * rvl_plan_close(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_plan_open(const char *const *paths, size_t path_count,
                                 const rvl_replay_options *reading, rvl_plan **plan_out);

/*
 * Steps of a model, which must outlive the plan. Returns RVL_OK, RVL_ERR_INVALID or
 * RVL_ERR_HOST_OOM. Since 0.1.
 */
RVL_API rvl_status rvl_plan_open_model(const rvl_model *model, rvl_plan **plan_out);

/* Frees a plan. NULL is fine. Since 0.1. */
RVL_API void rvl_plan_close(rvl_plan *plan);

/* ---- One case ---- */

typedef struct rvl_plan_case {
    size_t struct_size;
    const rvl_plan *plan;
    const char *tag;            /* TAG or PROCESS/TAG: its largest size is sought; NULL: of none */
    rvl_model_options *step;    /* of a model, with the device; NULL: as by default */
    rvl_replay_options *replay; /* the headroom; of traces the device, too; NULL: as by default */
} rvl_plan_case;

typedef enum rvl_plan_state {
    RVL_PLAN_LEFT_OUT = 0, /* nothing is known: a sweep has stopped before */
    RVL_PLAN_FITS,         /* and leaves the headroom */
    RVL_PLAN_TIGHT,        /* fits, and leaves less */
    RVL_PLAN_DOES_NOT_FIT,
    RVL_PLAN_REFUSED, /* the case cannot be: why says it */
    RVL_PLAN_FAILED   /* there was no host memory */
} rvl_plan_state;

#define RVL_PLAN_STAGE_BYTES 64
#define RVL_PLAN_WHY_BYTES 384

/* Of rvl_plan_result.flags: why begins with the name of the file that it is about. */
#define RVL_PLAN_WHY_HAS_FILE 1u

typedef struct rvl_plan_result {
    size_t struct_size; /* set by the caller */
    rvl_plan_state state;
    int device; /* the one that binds, as the trace numbers it */
    uint64_t flags;
    uint32_t gpu_count;
    uint32_t mem_fraction_ppm; /* that gives an engine the largest KV cache; 0: not known */
    uint64_t capacity_bytes;   /* of the device that binds */
    uint64_t peak_bytes;       /* there, in the stage that binds */
    uint64_t host_bytes;
    uint64_t transition_ns;
    uint64_t largest_bytes;           /* of the tag; UINT64_MAX: any size fits */
    uint64_t traced_bytes;            /* of the tag as it was; 0: not known */
    uint64_t headroom_bytes;          /* that the device with the least beyond it is to leave */
    uint64_t capacity_doubt_bytes;    /* programs may get so much less of the device that binds */
    uint64_t assumed_bytes;           /* of a step: sizes that other programs had */
    char stage[RVL_PLAN_STAGE_BYTES]; /* that binds; "": none is known */
    char key[64];                     /* of a refusal: "tag", a setting, or of a config; or "" */
    char why[RVL_PLAN_WHY_BYTES];     /* it does not fit, or is refused; "": stage says it */
} rvl_plan_result;

/*
 * Works a case out. replay_out (may be NULL) receives its replay, as the case is at the largest
 * size, or NULL; the caller frees it with rvl_replay_close(). Returns RVL_OK (also for a case that
 * does not fit or is refused); RVL_ERR_INVALID (a struct_size is wrong, or the replay has a
 * filter); RVL_ERR_VERSION; RVL_ERR_HOST_OOM (the state of the result is RVL_PLAN_FAILED then).
 * Many threads may work out cases of one plan. Since 0.1.
 */
RVL_API rvl_status rvl_plan_run(const rvl_plan_case *planned, rvl_plan_result *result_out,
                                rvl_replay **replay_out);

/*
 * Which of two results is to be preferred: below 0: a; above 0: b; 0: neither. One that fits, with
 * the fewest GPUs, then the smallest, then the most of the tag, then the least waiting; else the
 * one that comes nearest to fitting. Thread-safe. Since 0.1.
 */
RVL_API int rvl_plan_result_compare(const rvl_plan_result *a, const rvl_plan_result *b);

/* ---- Many ---- */

/*
 * Cases of a sweep, by number. They are called on several threads at once.
 * begin fills in a case: step and replay point to options that are 0. Not RVL_OK: the case is
 * refused, and rvl_last_error() says why. end receives its result.
 */
typedef rvl_status (*rvl_plan_begin_fn)(void *user, size_t number, rvl_plan_case *planned);
typedef void (*rvl_plan_end_fn)(void *user, size_t number, const rvl_plan_case *planned,
                                const rvl_plan_result *result);

typedef struct rvl_plan_sweep_options {
    size_t struct_size;
    size_t case_count;
    rvl_plan_begin_fn begin;
    rvl_plan_end_fn end;
    bool (*stops)(void *user); /* asked before each case; NULL: never */
    void *user;
    uint32_t thread_count; /* 0: one for each core of the process */
    uint32_t reserved;     /* 0 */
} rvl_plan_sweep_options;

/*
 * Works out cases on threads, in order. What has begun is finished: a sweep that stops has done the
 * first of them. It ends when all threads have. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_VERSION.
 * Results do not depend on the number of threads. Since 0.1.
 */
RVL_API rvl_status rvl_plan_sweep(const rvl_plan_sweep_options *options);

#ifdef __cplusplus
}
#endif
#endif
