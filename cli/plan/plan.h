/* SPDX-License-Identifier: MIT */
/*
 * What the files of `reveille plan` share.
 *
 * A case is one point of a sweep: a subject (a model with settings, or traces) on a device. The
 * library works it out (reveille/plan.h).
 */
#ifndef RVL_CLI_PLAN_PLAN_H
#define RVL_CLI_PLAN_PLAN_H

#include "command.h"
#include "document.h"
#include "model_set.h"
#include "reveille/plan.h"
#include "verdict.h"

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

/* ---- cases.c ---- */

typedef struct plan_subject plan_subject;

/* Reads what all cases need: models, or traces. Returns 0 or the exit status. */
int plan_subject_open(const plan_arguments *arguments, plan_subject **subject_out);
void plan_subject_close(plan_subject *subject);

/* Works a case out. replay_out receives its replay, for the holders, or NULL. */
void plan_case_run(const plan_subject *subject, size_t number, rvl_plan_result *result_out,
                   rvl_replay **replay_out);

/* All cases, in order, on threads, up to an interrupt. */
void plan_sweep(const plan_subject *subject, rvl_plan_result *results);

/* Index of the one that fits and is cheapest, or comes nearest; SIZE_MAX: none at all. */
size_t plan_best(const rvl_plan_result *results, size_t count);

/* Of traces a rank, the one that allows least; the first of several. */
size_t plan_binding(const rvl_plan_result *results, size_t count);

/* How many cases there are results of: the first ones. */
size_t plan_done(const rvl_plan_result *results, size_t count);

/* Whether it fits, with the headroom or without. */
static inline bool plan_is_in_bounds(const rvl_plan_result *result)
{
    return result->state == RVL_PLAN_FITS || result->state == RVL_PLAN_TIGHT;
}

/* ---- print.c ---- */

/* All return 0 or, having complained, the exit status. */
int plan_print_sweep(const plan_arguments *arguments, const rvl_plan_result *results, size_t count);
int plan_print_largest(const plan_arguments *arguments, const rvl_plan_result *result,
                       const rvl_replay *replay);
/* The same of the rank that binds, and what every rank allows. */
int plan_print_ranks(const plan_arguments *arguments, const rvl_plan_result *results, size_t count,
                     size_t binding, const rvl_replay *replay);

#endif
