/* SPDX-License-Identifier: MIT */
/*
 * What would make a run fit: its largest holder, smaller. How much smaller `reveille plan` works
 * out, with the arguments that a user would give it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/report/report.h"
#include "plan/plan.h"

/* A plan replays the trace a few times. Of more events the user decides whether that is worth it.
 */
#define EVENTS_MAX 200000u
#define WORDS_MAX 16u

/* The first device that is too small; false: there is none, or nobody has named it. */
static bool find_device(const report_run *run, rvl_replay_device *device_out, size_t *index_out)
{
    for (size_t i = 0; i < rvl_replay_device_count(run->replay); i++) {
        *device_out = (rvl_replay_device){.struct_size = sizeof *device_out};
        if (rvl_replay_get_device(run->replay, i, device_out) == RVL_OK &&
            device_out->peak_bytes > device_out->capacity_bytes &&
            !(device_out->flags & RVL_REPLAY_DEVICE_ASSUMED)) {
            *index_out = i;
            return true;
        }
    }
    return false;
}

/* "engine/kv_cache", which has most at the peak; external bytes cannot be shrunk, and what has no
 * tag cannot be named. The caller frees it. NULL: nobody, or no memory. */
static char *largest_holder(const report_run *run)
{
    rvl_replay_device device;
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    size_t index, count = 0;
    char *name = NULL;
    if (!find_device(run, &device, &index) ||
        rvl_replay_get_holders(run->replay, index, device.peak_stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, &count) != RVL_OK)
        return NULL;
    for (size_t i = 0; i < count && i < RVL_REPLAY_LISTED_HOLDERS; i++) {
        if (holders[i].tag != NULL && strcmp(holders[i].process, "external") != 0)
            return asprintf(&name, "%s/%s", holders[i].process, holders[i].tag) >= 0 ? name : NULL;
    }
    return NULL;
}

/* A pipe has been read already, and a long trace takes long; a plan knows snapshots on device 0
 * alone here. */
static bool can_plan(const remedy_question *asked, const report_run *run)
{
    for (size_t i = 0; i < asked->path_count; i++) {
        struct stat found;
        if (stat(asked->paths[i], &found) != 0 || !S_ISREG(found.st_mode))
            return false;
    }
    return asked->options->snapshot_device == 0 &&
           rvl_replay_event_count(run->replay, NULL) <= EVENTS_MAX;
}

/* The words of a command line. */
static char **plan_words(const remedy_question *asked, const char *tag, int *count_out)
{
    const rvl_replay_options *options = asked->options;
    char **words = calloc(asked->path_count + WORDS_MAX, sizeof *words);
    size_t count = 0;
    if (words == NULL)
        return NULL;
    const char *const given[][2] = {
        {"--max", tag},
        {"--device", options->device},
        {"--wake", asked->wake == RVL_WAKE_TOGETHER ? "together" : "staged"},
        {"--conductor", options->conductor},
        {"--headroom", asked->headroom},
        {"--snapshot-process", options->snapshot_process},
        {options->flags & RVL_REPLAY_PARTIAL ? "--partial" : NULL, ""},
    };
    words[count++] = (char *)(uintptr_t) "plan";
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (given[i][0] == NULL || given[i][1] == NULL)
            continue;
        words[count++] = (char *)(uintptr_t)given[i][0];
        if (given[i][1][0] != '\0')
            words[count++] = (char *)(uintptr_t)given[i][1];
    }
    words[count++] = (char *)(uintptr_t) "--";
    for (size_t i = 0; i < asked->path_count; i++)
        words[count++] = (char *)(uintptr_t)asked->paths[i];
    *count_out = (int)count;
    return words;
}

static bool plan(const remedy_question *asked, const char *tag, plan_outcome *outcome_out)
{
    plan_arguments arguments;
    plan_subject *subject = NULL;
    int count = 0;
    *outcome_out = (plan_outcome){.state = PLAN_FAILED};
    char **words = plan_words(asked, tag, &count);
    if (words != NULL && plan_parse(count, words, &arguments) == 0) {
        if (plan_subject_open(&arguments, &subject) == 0)
            plan_case_run(subject, 0, outcome_out, NULL);
        plan_subject_close(subject);
        plan_arguments_free(&arguments);
    }
    free(words);
    return outcome_out->state == PLAN_DOES_NOT_FIT || outcome_out->state == PLAN_TIGHT ||
           (outcome_out->state == PLAN_FITS && outcome_out->largest_bytes != UINT64_MAX);
}

char *remedy_text(const remedy_question *asked, const report_run *run)
{
    char largest[SIZE_TEXT_BYTES], traced[SIZE_TEXT_BYTES], *text = NULL;
    plan_outcome outcome;
    int made = -1;
    char *tag = largest_holder(run);
    if (tag == NULL)
        return NULL;
    if (!can_plan(asked, run))
        made = asprintf(&text, "`reveille plan --max %s` says how much of it would fit", tag);
    else if (!plan(asked, tag, &outcome))
        text = NULL;
    else if (outcome.state == PLAN_FITS)
        made = asprintf(&text, "it would fit with %s of %s instead of %s", tag,
                        format_size(outcome.largest_bytes, largest),
                        format_size(outcome.traced_bytes, traced));
    else
        made = asprintf(&text, "the largest holder is %s; it would not fit without it either", tag);
    free(tag);
    return made >= 0 ? text : NULL;
}
