/* SPDX-License-Identifier: MIT */
/* reveille plan: finds the largest size of a tag that fits, and sweeps over settings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "plan/plan.h"
#include "progress.h"

/* Complains about a refused or failed case. place: its subject, for a reason without a file. */
static int refuse(const rvl_plan_result *result, const char *place)
{
    int code = result->state == RVL_PLAN_FAILED ? EXIT_INTERNAL : EXIT_BAD_INPUT;
    if (result->flags & RVL_PLAN_WHY_HAS_FILE)
        return complain(code, "%s", result->why);
    return complain(code, "%s: %s", place, result->why);
}

static int code_of(const plan_arguments *arguments, const rvl_plan_result *result)
{
    const plan_axis *models = plan_find_axis(arguments, "model");
    const char *place = models != NULL ? models->values[0] : arguments->traces[0];
    switch (result->state) {
    case RVL_PLAN_FITS:
        return EXIT_FITS;
    case RVL_PLAN_TIGHT:
    case RVL_PLAN_DOES_NOT_FIT:
        return EXIT_DOES_NOT_FIT;
    default:
        return refuse(result, place);
    }
}

static int run_largest(const plan_arguments *arguments, const plan_subject *subject)
{
    rvl_plan_result result;
    rvl_replay *replay;
    progress_begin("plan", NULL);
    plan_case_run(subject, 0, &result, &replay);
    progress_end();
    int code = code_of(arguments, &result);
    int printed = code == EXIT_FITS || code == EXIT_DOES_NOT_FIT
                      ? plan_print_largest(arguments, &result, replay)
                      : 0;
    rvl_replay_close(replay);
    return printed != 0 ? printed : code;
}

/* Returns the case that decides the exit status of a sweep: one that failed, or else the best one,
 * or else, if all were refused, the first. */
static const rvl_plan_result *telling(const rvl_plan_result *results, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (results[i].state == RVL_PLAN_FAILED)
            return &results[i];
    }
    size_t best = plan_best(results, count);
    return &results[best != SIZE_MAX ? best : 0];
}

/* Prints the ranks. Runs the rank that binds again for its holders, because results do not keep the
 * replay. */
static int tell_ranks(const plan_arguments *arguments, const plan_subject *subject,
                      const rvl_plan_result *results, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (results[i].state == RVL_PLAN_FAILED || results[i].state == RVL_PLAN_REFUSED)
            return refuse(&results[i], arguments->traces[i]);
    }
    rvl_plan_result again;
    rvl_replay *replay;
    size_t binding = plan_binding(results, count);
    plan_case_run(subject, binding, &again, &replay);
    int code = results[binding].state == RVL_PLAN_FITS ? EXIT_FITS : EXIT_DOES_NOT_FIT, printed = 0;
    if (again.state == RVL_PLAN_FAILED || again.state == RVL_PLAN_REFUSED)
        code = refuse(&again, arguments->traces[binding]);
    else
        printed = plan_print_ranks(arguments, results, count, binding, replay);
    rvl_replay_close(replay);
    return printed != 0 ? printed : code;
}

static int tell_interrupted(const plan_arguments *arguments, const rvl_plan_result *results,
                            size_t done, size_t count)
{
    bool shown = arguments->sweep && done > 0;
    int printed = shown ? plan_print_sweep(arguments, results, done) : 0;
    if (printed != 0)
        return printed;
    return complain(EXIT_INTERRUPTED, "interrupted: done with %zu of %zu cases%s", done, count,
                    shown ? ", and what is shown is of these" : "");
}

static int run_sweep(const plan_arguments *arguments, const plan_subject *subject)
{
    size_t count = plan_case_count(arguments);
    rvl_plan_result *results = calloc(count, sizeof *results);
    if (results == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    plan_sweep(subject, results);
    size_t done = plan_done(results, count);
    int code = EXIT_FITS;
    if (interrupt_came() && done < count)
        code = tell_interrupted(arguments, results, done, count);
    else if (arguments->per_rank)
        code = tell_ranks(arguments, subject, results, count);
    else
        code = code_of(arguments, telling(results, count));
    int printed = arguments->sweep && (code == EXIT_FITS || code == EXIT_DOES_NOT_FIT)
                      ? plan_print_sweep(arguments, results, count)
                      : 0;
    free(results);
    return printed != 0 ? printed : code;
}

static int run(const plan_arguments *arguments)
{
    plan_subject *subject = NULL;
    progress_begin("plan", NULL);
    int code = plan_subject_open(arguments, &subject);
    progress_end();
    if (code == 0)
        code = arguments->sweep || arguments->per_rank ? run_sweep(arguments, subject)
                                                       : run_largest(arguments, subject);
    plan_subject_close(subject);
    return code;
}

int command_plan(int argc, char **argv)
{
    plan_arguments arguments = {0};
    int status = plan_parse(argc, argv, &arguments);
    if (status == 0 && !arguments.answered)
        status = run(&arguments);
    plan_arguments_free(&arguments);
    return status;
}
