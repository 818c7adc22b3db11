/* SPDX-License-Identifier: MIT */
/*
 * Planning: the largest size of a tag that fits, and which of many settings fit
 * (libreveille-replay). Every result comes from a replay. The rules are in docs/plan.md.
 */
#ifndef REVEILLE_PLAN_H
#define REVEILLE_PLAN_H

#include "reveille/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The subject of a plan: traces, or steps of a model. */
typedef struct rvl_plan rvl_plan;

/*
 * Opens a plan for traces and PyTorch snapshots. Reads them once, to check that they can be read;
 * each case reads them again. The content of a pipe is copied into memory. reading (may be NULL)
 * has the flag RVL_REPLAY_PARTIAL and the options of snapshots. Returns as rvl_replay_run();
 * RVL_ERR_NOT_FOUND (the traces have no stage, and so none that could fit). The strings of paths
 * must outlive the plan. The caller frees *plan_out with rvl_plan_close(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_plan_open(const char *const *paths, size_t path_count,
                                 const rvl_replay_options *reading, rvl_plan **plan_out);

/*
 * Opens a plan for steps of a model, which must outlive the plan. Returns RVL_OK, RVL_ERR_INVALID
 * or RVL_ERR_HOST_OOM. Since 0.1.
 */
RVL_API rvl_status rvl_plan_open_model(const rvl_model *model, rvl_plan **plan_out);

/* Frees a plan. NULL is fine. Since 0.1. */
RVL_API void rvl_plan_close(rvl_plan *plan);

/* ---- One case ---- */

typedef struct rvl_plan_case {
    size_t struct_size;
    const rvl_plan *plan;
    const char *tag;            /* TAG or PROCESS/TAG: find its largest size; NULL: find none */
    rvl_model_options *step;    /* for a model, with the device; NULL: the defaults */
    rvl_replay_options *replay; /* the headroom, and for traces the device; NULL: the defaults */
} rvl_plan_case;

typedef enum rvl_plan_state {
    RVL_PLAN_LEFT_OUT = 0, /* unknown: the sweep stopped before this case */
    RVL_PLAN_FITS,         /* and leaves the headroom */
    RVL_PLAN_TIGHT,        /* fits, and leaves less than the headroom */
    RVL_PLAN_DOES_NOT_FIT,
    RVL_PLAN_REFUSED, /* the case is impossible: see why */
    RVL_PLAN_FAILED   /* there was no host memory */
} rvl_plan_state;

#define RVL_PLAN_STAGE_BYTES 64
#define RVL_PLAN_WHY_BYTES 384

/* Flag of rvl_plan_result.flags: `why` begins with the name of the file that it is about. */
#define RVL_PLAN_WHY_HAS_FILE 1u

typedef struct rvl_plan_result {
    size_t struct_size; /* set by the caller */
    rvl_plan_state state;
    int device; /* the binding device, as the trace numbers it */
    uint64_t flags;
    uint32_t gpu_count;
    uint32_t mem_fraction_ppm; /* the one that gives an engine the largest KV cache; 0: unknown */
    uint64_t capacity_bytes;   /* of the binding device */
    uint64_t peak_bytes;       /* of the binding device, in the binding stage */
    uint64_t host_bytes;
    uint64_t transition_ns;
    uint64_t largest_bytes;           /* of the tag; UINT64_MAX: any size fits */
    uint64_t traced_bytes;            /* of the tag, as recorded; 0: unknown */
    uint64_t headroom_bytes;          /* to be left free on the device with the least room beyond
                                         it */
    uint64_t capacity_doubt_bytes;    /* programs may get this much less of the binding device */
    uint64_t assumed_bytes;           /* of a step: sizes measured in other programs */
    char stage[RVL_PLAN_STAGE_BYTES]; /* the binding stage; "": unknown */
    char key[64];                     /* of a refusal: "tag", a setting, or a key of a config; or
                                         "" */
    char why[RVL_PLAN_WHY_BYTES];     /* why it does not fit, or is refused; "": see stage */
} rvl_plan_result;

/*
 * Runs a case. replay_out (may be NULL) receives the replay of the case at the largest size, or
 * NULL; the caller frees it with rvl_replay_close(). Returns RVL_OK (also for a case that does not
 * fit or is refused); RVL_ERR_INVALID (a struct_size is wrong, or the replay has a filter);
 * RVL_ERR_VERSION; RVL_ERR_HOST_OOM (the state of the result is RVL_PLAN_FAILED then). Many threads
 * may run cases of one plan. Since 0.1.
 */
RVL_API rvl_status rvl_plan_run(const rvl_plan_case *planned, rvl_plan_result *result_out,
                                rvl_replay **replay_out);

/*
 * Compares two results. Below 0: a is better; above 0: b is better; 0: neither. A result that fits
 * is better than one that does not. Of two that fit, the better has fewer GPUs, then the smaller
 * device, then more of the tag, then less transition time. Of two that do not fit, the better is
 * nearer to fitting. Thread-safe. Since 0.1.
 */
RVL_API int rvl_plan_result_compare(const rvl_plan_result *a, const rvl_plan_result *b);

/* ---- Many cases ---- */

/*
 * The cases of a sweep, by number. Both functions are called on several threads at once. begin
 * fills in a case: step and replay point to options that are 0. If it does not return RVL_OK, the
 * case is refused, and rvl_last_error() has the reason. end receives the result.
 */
typedef rvl_status (*rvl_plan_begin_fn)(void *user, size_t number, rvl_plan_case *planned);
typedef void (*rvl_plan_end_fn)(void *user, size_t number, const rvl_plan_case *planned,
                                const rvl_plan_result *result);

typedef struct rvl_plan_sweep_options {
    size_t struct_size;
    size_t case_count;
    rvl_plan_begin_fn begin;
    rvl_plan_end_fn end;
    bool (*stops)(void *user); /* called before each case; true: stop; NULL: never stop */
    void *user;
    uint32_t thread_count; /* 0: one for each core of the process */
    uint32_t reserved;     /* 0 */
} rvl_plan_sweep_options;

/*
 * Runs cases on threads, in order. Cases that have begun are finished: a sweep that stops has done
 * the first cases. Returns when all threads have ended. Returns RVL_OK, RVL_ERR_INVALID or
 * RVL_ERR_VERSION. Results do not depend on the number of threads. Since 0.1.
 */
RVL_API rvl_status rvl_plan_sweep(const rvl_plan_sweep_options *options);

#ifdef __cplusplus
}
#endif
#endif
