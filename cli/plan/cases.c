/* SPDX-License-Identifier: MIT */
/*
 * Makes the cases of a command line, which the library evaluates. A case has one value of each
 * axis, for a model or for traces. With --per-rank, each case has its own trace, which is only open
 * while the case runs.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "plan/plan.h"
#include "progress.h"

struct plan_subject {
    const plan_arguments *arguments;
    rvl_model **models; /* one for each value of the axis "model" */
    rvl_plan **plans;   /* one for each model, or one for all traces; with --per-rank one for each
                           trace, while its case runs */
    size_t count;
};

/* ---- Subjects ---- */

static rvl_status open_traces(const plan_arguments *arguments, const char *const *paths,
                              size_t count, rvl_plan **plan_out)
{
    const rvl_replay_options reading = {.struct_size = sizeof reading,
                                        .flags = arguments->partial ? RVL_REPLAY_PARTIAL : 0,
                                        .snapshot_process = arguments->snapshot_process,
                                        .snapshot_device = arguments->snapshot_device};
    return rvl_plan_open(paths, count, &reading, plan_out);
}

static int open_model(const char *path, rvl_model **model, rvl_plan **plan)
{
    rvl_status status = rvl_model_open(path, model);
    if (status == RVL_OK)
        status = rvl_plan_open_model(*model, plan);
    return status == RVL_OK ? 0 : model_explain(status, path);
}

static int open_plans(plan_subject *subject, const plan_axis *models)
{
    const plan_arguments *arguments = subject->arguments;
    char why[EXPLANATION_BYTES];
    for (size_t i = 0; models != NULL && i < subject->count; i++) {
        int code = open_model(models->values[i], &subject->models[i], &subject->plans[i]);
        if (code != 0)
            return code;
    }
    if (models != NULL || arguments->per_rank)
        return 0;
    rvl_status status =
        open_traces(arguments, arguments->traces, arguments->trace_count, subject->plans);
    if (status == RVL_OK)
        return 0;
    int code = describe_replay(status, why, sizeof why);
    return complain(code, "%s", why);
}

int plan_subject_open(const plan_arguments *arguments, plan_subject **subject_out)
{
    const plan_axis *models = plan_find_axis(arguments, "model");
    plan_subject *subject = calloc(1, sizeof *subject);
    if (subject == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    subject->arguments = arguments;
    subject->count = models != NULL ? models->count : arguments->trace_count;
    subject->models = calloc(subject->count, sizeof(rvl_model *));
    subject->plans = calloc(subject->count, sizeof(rvl_plan *));
    int code = subject->models != NULL && subject->plans != NULL
                   ? open_plans(subject, models)
                   : complain(EXIT_INTERNAL, "out of host memory");
    if (code == 0)
        *subject_out = subject;
    else
        plan_subject_close(subject);
    return code;
}

void plan_subject_close(plan_subject *subject)
{
    if (subject == NULL)
        return;
    for (size_t i = 0; i < subject->count; i++) {
        if (subject->plans != NULL)
            rvl_plan_close(subject->plans[i]);
        if (subject->models != NULL)
            rvl_model_close(subject->models[i]);
    }
    free(subject->models);
    free(subject->plans);
    free(subject);
}

/* ---- Cases ---- */

/* Sets a value, which was checked when it was parsed. */
static void set_axis(const plan_subject *subject, const plan_axis *axis, const char *value,
                     rvl_plan_case *planned)
{
    char why[MODEL_WHY_BYTES];
    if (strcmp(axis->name, "model") != 0) {
        model_set(planned->step, axis->name, value, why);
        return;
    }
    for (size_t i = 0; i < axis->count; i++) {
        if (axis->values[i] == value)
            planned->plan = subject->plans[i];
    }
}

/* Applies the device and the wake of the step's settings to the replay of traces. */
static void ask_of_traces(const plan_arguments *arguments, rvl_plan_case *planned)
{
    planned->replay->device = planned->step->device;
    planned->replay->wake = planned->step->wake;
    planned->replay->conductor = arguments->conductor;
}

static rvl_status begin_case(const plan_subject *subject, size_t number, rvl_plan_case *planned)
{
    const plan_arguments *arguments = subject->arguments;
    planned->tag = arguments->tag;
    planned->plan = subject->plans[0];
    planned->step->given = arguments->given;
    planned->step->given_count = arguments->given_count;
    planned->step->given_size = sizeof *arguments->given;
    verdict_ask(&arguments->headroom, planned->replay);
    for (size_t i = 0; i < arguments->axis_count; i++) {
        if (strcmp(arguments->axes[i].name, "trace") != 0)
            set_axis(subject, &arguments->axes[i], plan_value(arguments, number, i), planned);
    }
    if (arguments->trace_count > 0)
        ask_of_traces(arguments, planned);
    if (!arguments->per_rank)
        return RVL_OK;
    rvl_status status =
        open_traces(arguments, &arguments->traces[number], 1, &subject->plans[number]);
    planned->plan = subject->plans[number];
    return status;
}

/* Rewrites the library's reason for the command line, on which the tag is --max. */
static void end_case(const plan_subject *subject, size_t number, rvl_plan_result *result)
{
    char why[sizeof result->why];
    model_as_options(strcmp(result->key, "tag") == 0 ? "--max" : result->key, result->why, why,
                     sizeof why);
    memcpy(result->why, why, sizeof why);
    if (subject->arguments->per_rank) {
        rvl_plan_close(subject->plans[number]);
        subject->plans[number] = NULL;
    }
}

void plan_case_run(const plan_subject *subject, size_t number, rvl_plan_result *result_out,
                   rvl_replay **replay_out)
{
    rvl_model_options step = {.struct_size = sizeof step};
    rvl_replay_options replay = {.struct_size = sizeof replay};
    rvl_plan_case planned = {.struct_size = sizeof planned, .step = &step, .replay = &replay};
    *result_out = (rvl_plan_result){.struct_size = sizeof *result_out};
    *replay_out = NULL;
    rvl_status status = begin_case(subject, number, &planned);
    if (status == RVL_OK) {
        rvl_plan_run(&planned, result_out, replay_out);
    } else {
        int code = describe_replay(status, result_out->why, sizeof result_out->why);
        result_out->state = code == EXIT_INTERNAL ? RVL_PLAN_FAILED : RVL_PLAN_REFUSED;
        result_out->flags = RVL_PLAN_WHY_HAS_FILE;
    }
    end_case(subject, number, result_out);
}

/* ---- All cases ---- */

typedef struct sweep {
    const plan_subject *subject;
    rvl_plan_result *results;
    size_t count;
    atomic_size_t done;
} sweep;

static rvl_status on_begin(void *user, size_t number, rvl_plan_case *planned)
{
    return begin_case(((sweep *)user)->subject, number, planned);
}

static void on_end(void *user, size_t number, const rvl_plan_case *planned,
                   const rvl_plan_result *result)
{
    (void)planned;
    sweep *of = user;
    of->results[number] = *result;
    end_case(of->subject, number, &of->results[number]);
    size_t done = atomic_fetch_add(&of->done, 1) + 1;
    progress_report(done, of->count, done);
}

static bool on_stop(void *user)
{
    (void)user;
    return interrupt_came();
}

void plan_sweep(const plan_subject *subject, rvl_plan_result *results)
{
    sweep of = {
        .subject = subject, .results = results, .count = plan_case_count(subject->arguments)};
    const rvl_plan_sweep_options options = {.struct_size = sizeof options,
                                            .case_count = of.count,
                                            .begin = on_begin,
                                            .end = on_end,
                                            .stops = on_stop,
                                            .user = &of,
                                            .thread_count = subject->arguments->threads};
    atomic_init(&of.done, 0);
    interrupt_watch();
    progress_begin("plan", "cases");
    rvl_plan_sweep(&options);
    progress_end();
    interrupt_unwatch();
}

/* ---- Choice ---- */

size_t plan_done(const rvl_plan_result *results, size_t count)
{
    size_t done = 0;
    for (size_t i = 0; i < count; i++)
        done += results[i].state != RVL_PLAN_LEFT_OUT;
    return done;
}

size_t plan_best(const rvl_plan_result *results, size_t count)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        if ((plan_is_in_bounds(&results[i]) || results[i].state == RVL_PLAN_DOES_NOT_FIT) &&
            (best == SIZE_MAX || rvl_plan_result_compare(&results[i], &results[best]) < 0))
            best = i;
    }
    return best;
}

/* The first rank that does not fit or is tight, or else the one that allows least. A rank that any
 * size fits has UINT64_MAX. */
size_t plan_binding(const rvl_plan_result *results, size_t count)
{
    size_t binding = 0;
    for (size_t i = 0; i < count; i++) {
        if (results[i].state == RVL_PLAN_DOES_NOT_FIT || results[i].state == RVL_PLAN_TIGHT)
            return i;
        if (results[i].largest_bytes < results[binding].largest_bytes)
            binding = i;
    }
    return binding;
}
