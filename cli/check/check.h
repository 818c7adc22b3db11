/* SPDX-License-Identifier: MIT */
/*
 * What the files of `reveille check` share.
 *
 * A file lists checks: traces, a model's step, or a command on simulated GPUs, on devices. Each
 * pair of a check and a device is run or replayed once and becomes a result with a line for each
 * stage, held against three bounds: the device, the budgets of the file, and the baseline, which is
 * what the stage took when it was last agreed to.
 */
#ifndef RVL_CLI_CHECK_CHECK_H
#define RVL_CLI_CHECK_CHECK_H

#include <jansson.h>

#include "command.h"
#include "lengths.h"
#include "model_set.h"
#include "simulate.h"
#include "verdict.h"

#define CHECK_TEXT_BYTES 512

typedef struct check_item {
    const char *name;
    char **traces; /* relative to the file's folder, made whole */
    size_t trace_count;
    char *model;          /* NULL: traces, or a command */
    const char **words;   /* of the command, up to NULL; NULL: there is none */
    char *program;        /* the first word, as this process finds it */
    simulation simulated; /* all of it but the device and the command */
    double timeout_s;     /* 0: none */
    lengths_rule responses;
    uint64_t kv_tokens; /* that the KV cache of each engine has room for; 0: of no matter */
    rvl_model_options options;
    rvl_model_given *given;
    const char **devices;
    size_t device_count;   /* at least 1 */
    const char *conductor; /* NULL: the first that marks */
    rvl_wake wake;
    rvl_budget *budgets;
    size_t budget_count;
    double tolerance_percent;
    option_headroom headroom;
    bool no_refusals;
} check_item;

typedef struct check_file {
    const char *path;
    json_t *root;   /* owns the strings */
    char *baseline; /* path; NULL: none */
    check_item *items;
    size_t item_count;
} check_file;

/* Reads a file, refusing what it does not know. Returns 0 or the exit status. */
int check_read(const char *path, check_file *file_out);
void check_file_free(check_file *file);

typedef enum check_verdict {
    CHECK_OK,
    CHECK_LOWER, /* than the baseline by more than the tolerance: passes, and is told */
    CHECK_UNKNOWN,
    CHECK_GONE, /* the baseline has it, the run has not */
    CHECK_GREW,
    CHECK_OVER_BUDGET,
    CHECK_REFUSED,    /* a request was refused, and the check allows none */
    CHECK_FEW_TOKENS, /* an engine's KV cache has room for fewer than the check asks for */
    CHECK_OOM,
    CHECK_NO_ROOM, /* there is no such step at all: it has no KV cache */
    CHECK_BROKEN   /* nothing was checked: a trace, a config or a setting is wrong */
} check_verdict;

typedef struct check_stage {
    char *name;
    int device; /* index in the trace */
    uint64_t peak_bytes;
    uint64_t capacity_bytes;
    uint64_t budget_bytes; /* 0: none */
    bool has_baseline;
    uint64_t baseline_bytes;
    char *holders; /* "engine/kv_cache 90.0 GiB, ..."; NULL: there was no run */
    char *why;     /* of a check that came to no stages; else NULL */
    char *said;    /* what its command printed last; NULL: nothing */
    check_verdict verdict;
} check_stage;

typedef struct check_result {
    const check_item *item;
    const char *device; /* as the file names it; "own": the trace's */
    check_stage *stages;
    size_t stage_count;
    char *verdict;         /* of the whole run, as every command says it; NULL: it has no stages */
    check_verdict outcome; /* what the verdict comes to beside its stages */
    bool noted;            /* the verdict is none that a review passes over */
    rvli_machine_engines engines;
    bool cut; /* an interrupt has ended its command */
} check_result;

/* Why a check came to no stages. */
typedef struct check_refusal {
    check_verdict verdict; /* CHECK_OK: it did */
    bool cut;
    bool ended; /* its command has run, and its trace has a verdict */
    char text[EXPLANATION_BYTES];
    char *said;
} check_refusal;

typedef struct check_results {
    check_result *results;
    size_t count;
    size_t left_out; /* by an interrupt */
} check_results;

/*
 * Replays every check on every device. What cannot be replayed becomes a result with one stage that
 * says why. Returns 0, or the exit status: no host memory.
 */
int check_run(const check_file *file, check_results *results_out);
void check_results_free(check_results *results);

/*
 * Runs a check's command on a simulated device, into a trace. Returns 0, or the exit status: a lack
 * of memory ends all checks.
 */
int check_simulate(const check_item *item, const char *device, const char *trace,
                   check_refusal *why, rvli_machine_engines *engines_out);

/*
 * Compares with the baseline's file; stages that only this has are added to the results. Returns 0
 * or the exit status.
 */
int check_compare(const check_file *file, check_results *results);
/* Writes the peaks as they are to the baseline's file. */
int check_update(const check_file *file, const check_results *results);

/* Out of bounds, or, with CHECK_BROKEN, not held against them at all. */
static inline bool check_fails(const check_stage *stage)
{
    return stage->verdict >= CHECK_UNKNOWN;
}

/* A whole run can fail although all of its stages are well. */
static inline bool check_run_fails(const check_result *result)
{
    return result->outcome >= CHECK_UNKNOWN;
}

/* Whether a result stands for a check that came to no stages. */
static inline bool check_is_empty(const check_result *result)
{
    return result->stage_count > 0 && result->stages[0].why != NULL;
}

/* "peak 130.0 GiB is above the budget of 120.0 GiB"; text or a string of the stage's. */
const char *check_explain(const check_stage *stage, double tolerance_percent,
                          char text[CHECK_TEXT_BYTES]);

/* false: no memory. */
bool check_print_table(const check_results *results);
/* A line for each stage that fails: by how much, and who held its peak. */
void check_print_failures(const check_results *results);
/* The same as annotations of GitHub, and for stages that are lower than their baseline. */
void check_print_github(const check_file *file, const check_results *results);
/* What a command said, line by line. */
void check_write_said(FILE *output, rvli_shown_as as, const char *said);
/* A table of stages and what failed (document_fn); the user is the check_results. */
bool check_write_markdown(FILE *out, const void *results);
/* Returns 0 or the exit status. */
int check_write_junit(const char *path, const check_results *results);

#endif
