/* SPDX-License-Identifier: MIT */
/* reveille plan: the largest size of a tag that fits, and sweeps over settings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interrupt.h"
#include "plan/plan.h"
#include "progress.h"

/* A refusal or failure; one that does not say where is told of the subject. */
static int refuse(const plan_outcome *outcome, const char *place)
{
    int code = outcome->state == PLAN_FAILED ? EXIT_INTERNAL : EXIT_BAD_INPUT;
    if (outcome->why_is_placed)
        return complain(code, "%s", outcome->why);
    return complain(code, "%s: %s", place, outcome->why);
}

static int code_of(const plan_arguments *arguments, const plan_outcome *outcome)
{
    const plan_axis *models = plan_find_axis(arguments, "model");
    const char *place = models != NULL ? models->values[0] : arguments->traces[0];
    switch (outcome->state) {
    case PLAN_FITS:
        return EXIT_FITS;
    case PLAN_TIGHT:
    case PLAN_DOES_NOT_FIT:
        return EXIT_DOES_NOT_FIT;
    default:
        return refuse(outcome, place);
    }
}

static int run_largest(const plan_arguments *arguments, const plan_subject *subject)
{
    plan_outcome outcome;
    rvl_replay *replay;
    progress_begin("plan", NULL);
    plan_case_run(subject, 0, &outcome, &replay);
    progress_end();
    int code = code_of(arguments, &outcome);
    int printed = code == EXIT_FITS || code == EXIT_DOES_NOT_FIT
                      ? plan_print_largest(arguments, &outcome, replay)
                      : 0;
    rvl_replay_close(replay);
    return printed != 0 ? printed : code;
}

/* The case that says most about a sweep: it failed, it fits, it nearly does, it was refused. */
static const plan_outcome *telling(const plan_outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].state == PLAN_FAILED)
            return &outcomes[i];
    }
    size_t best = plan_cheapest(outcomes, count);
    if (best == SIZE_MAX)
        best = plan_nearest(outcomes, count);
    return &outcomes[best != SIZE_MAX ? best : 0];
}

/* Who holds what is asked of the rank that binds alone, and again: outcomes are plain data. */
static int tell_ranks(const plan_arguments *arguments, const plan_subject *subject,
                      const plan_outcome *outcomes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].state == PLAN_FAILED || outcomes[i].state == PLAN_REFUSED)
            return refuse(&outcomes[i], arguments->traces[i]);
    }
    plan_outcome again;
    rvl_replay *replay;
    size_t binding = plan_binding(outcomes, count);
    plan_case_run(subject, binding, &again, &replay);
    int code = outcomes[binding].state == PLAN_FITS ? EXIT_FITS : EXIT_DOES_NOT_FIT, printed = 0;
    if (again.state == PLAN_FAILED || again.state == PLAN_REFUSED)
        code = refuse(&again, arguments->traces[binding]);
    else
        printed = plan_print_ranks(arguments, outcomes, count, binding, replay);
    rvl_replay_close(replay);
    return printed != 0 ? printed : code;
}

static int tell_interrupted(const plan_arguments *arguments, const plan_outcome *outcomes,
                            size_t done, size_t count)
{
    bool shown = arguments->sweep && done > 0;
    int printed = shown ? plan_print_sweep(arguments, outcomes, done) : 0;
    if (printed != 0)
        return printed;
    return complain(EXIT_INTERRUPTED, "interrupted: done with %zu of %zu cases%s", done, count,
                    shown ? ", and what is shown is of these" : "");
}

static int run_sweep(const plan_arguments *arguments, const plan_subject *subject)
{
    size_t count = plan_case_count(arguments);
    plan_outcome *outcomes = calloc(count, sizeof *outcomes);
    if (outcomes == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    plan_sweep(subject, arguments, outcomes);
    size_t done = plan_done(outcomes, count);
    int code = EXIT_FITS;
    if (interrupt_came() && done < count)
        code = tell_interrupted(arguments, outcomes, done, count);
    else if (arguments->per_rank)
        code = tell_ranks(arguments, subject, outcomes, count);
    else
        code = code_of(arguments, telling(outcomes, count));
    int printed = arguments->sweep && (code == EXIT_FITS || code == EXIT_DOES_NOT_FIT)
                      ? plan_print_sweep(arguments, outcomes, count)
                      : 0;
    free(outcomes);
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
