/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of `reveille plan` share.
 *
 * A case is a point of a sweep: a subject (a model with settings, or traces) on a device. The
 * library evaluates it (reveille/plan.h).
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

/* An option and its values, in the order of the command line. */
typedef struct plan_axis {
    const char *name;
    char **values;
    size_t count;
} plan_axis;

typedef struct plan_arguments {
    const char *const *traces; /* traces and snapshots, merged on one clock; none: models */
    size_t trace_count;
    plan_axis axes[PLAN_AXES_MAX]; /* "model" first, if it is given */
    size_t axis_count;
    rvl_model_given *given;
    size_t given_count;
    const char *tag; /* the tag to find the largest size of; NULL: none */
    const char *conductor;
    const char *snapshot_process; /* NULL: the default */
    uint32_t snapshot_device;
    option_headroom headroom; /* free memory that a recommended case must leave */
    bool per_rank;            /* each trace is a case: they form the axis "trace" */
    bool partial;
    bool sweep;
    option_document json;
    bool csv;
    bool answered;    /* stop: help was printed, or the command line was refused */
    uint32_t threads; /* 0: one for each core */
} plan_arguments;

/* ---- arguments.c ---- */

/* Parses a command line. plan_arguments_free() frees the result, also after a failure. Returns 0 or
 * the exit status. */
int plan_parse(int argc, char **argv, plan_arguments *arguments);
void plan_arguments_free(plan_arguments *arguments);

/* Returns the axis of that name; NULL: the option is not given. */
const plan_axis *plan_find_axis(const plan_arguments *arguments, const char *name);
size_t plan_case_count(const plan_arguments *arguments);

/* Returns an axis's value in a case. The last axis changes fastest. */
const char *plan_value(const plan_arguments *arguments, size_t number, size_t axis);

/* ---- cases.c ---- */

typedef struct plan_subject plan_subject;

/* Opens the models or traces that all cases share. Returns 0 or the exit status. */
int plan_subject_open(const plan_arguments *arguments, plan_subject **subject_out);
void plan_subject_close(plan_subject *subject);

/* Evaluates a case. replay_out receives its replay, for the holders, or NULL. */
void plan_case_run(const plan_subject *subject, size_t number, rvl_plan_result *result_out,
                   rvl_replay **replay_out);

/* Evaluates all cases on threads, in order, until an interrupt. */
void plan_sweep(const plan_subject *subject, rvl_plan_result *results);

/* Returns the index of the cheapest case that fits, or else of the nearest; SIZE_MAX: none. */
size_t plan_best(const rvl_plan_result *results, size_t count);

/* Returns the index of the rank that binds, because it allows least; the first of several. */
size_t plan_binding(const rvl_plan_result *results, size_t count);

/* Returns how many cases have results. These are the first ones. */
size_t plan_done(const rvl_plan_result *results, size_t count);

/* Whether a case fits, with or without the headroom. */
static inline bool plan_is_in_bounds(const rvl_plan_result *result)
{
    return result->state == RVL_PLAN_FITS || result->state == RVL_PLAN_TIGHT;
}

/* ---- print.c ---- */

/* These functions return 0 or, having complained, the exit status. */
int plan_print_sweep(const plan_arguments *arguments, const rvl_plan_result *results, size_t count);
int plan_print_largest(const plan_arguments *arguments, const rvl_plan_result *result,
                       const rvl_replay *replay);
/* Prints the largest size of the rank that binds, and what every rank allows. */
int plan_print_ranks(const plan_arguments *arguments, const rvl_plan_result *results, size_t count,
                     size_t binding, const rvl_replay *replay);

#endif
