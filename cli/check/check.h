/* SPDX-License-Identifier: MIT */
/*
 * Declarations that the files of `reveille check` share.
 *
 * A file lists checks: traces, a model's step, or a command on simulated GPUs, on some devices.
 * Each pair of a check and a device is run or replayed once. Its result has a line for each stage.
 * The stage's peak is compared with three bounds: the device, the budgets of the file, and the
 * baseline, which is the peak that was last accepted.
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
    char **traces; /* paths, resolved from the file's folder */
    size_t trace_count;
    char *model;          /* path of a config; NULL: traces, or a command */
    const char **words;   /* the command, ended by NULL; NULL: no command */
    char *program;        /* the command's first word, as this process finds it */
    simulation simulated; /* without the device and the command's words */
    double timeout_s;     /* 0: none */
    lengths_rule responses;
    uint64_t kv_tokens; /* least room in the KV cache of each engine; 0: not checked */
    rvl_model_options options;
    rvl_model_given *given;
    const char **devices;
    size_t device_count;   /* at least 1 */
    const char *conductor; /* NULL: the first process that marks stages */
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

/* Reads a file, and refuses unknown keys. Returns 0 or the exit status. */
int check_read(const char *path, check_file *file_out);
void check_file_free(check_file *file);

typedef enum check_verdict {
    CHECK_OK,
    CHECK_LOWER,   /* below the baseline by more than the tolerance: passes, with a note */
    CHECK_UNKNOWN, /* not in the baseline */
    CHECK_GONE,    /* in the baseline, but not in the run */
    CHECK_GREW,
    CHECK_OVER_BUDGET,
    CHECK_REFUSED,    /* a request was refused, and the check allows none */
    CHECK_FEW_TOKENS, /* an engine's KV cache has room for fewer tokens than the check requires */
    CHECK_OOM,
    CHECK_NO_ROOM, /* the step cannot be made: it has no room for a KV cache */
    CHECK_BROKEN   /* not checked, or the command failed: a trace, config or setting is wrong */
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
    char *why;     /* the reason why a check has no stages; else NULL */
    char *said;    /* the last lines that its command printed; NULL: none */
    check_verdict verdict;
} check_stage;

typedef struct check_result {
    const check_item *item;
    const char *device; /* as the file names it; "own": the trace's device */
    check_stage *stages;
    size_t stage_count;
    char *verdict;         /* text for the whole run, as in other commands; NULL: no stages */
    check_verdict outcome; /* of the run as a whole, apart from its stages */
    bool noted;            /* annotate the verdict for a review */
    rvli_machine_engines engines;
    bool cut; /* an interrupt ended its command */
} check_result;

/* Why a check has no stages. */
typedef struct check_refusal {
    check_verdict verdict; /* CHECK_OK: it has stages */
    bool cut;
    bool ended; /* its command ran to its end, so its trace has a verdict */
    char text[EXPLANATION_BYTES];
    char *said;
} check_refusal;

typedef struct check_results {
    check_result *results;
    size_t count;
    size_t left_out; /* not run, because of an interrupt */
} check_results;

/*
 * Runs every check on each of its devices. A check that fails to run becomes a result with one
 * stage that has the reason. Returns 0 or, without host memory, the exit status.
 */
int check_run(const check_file *file, check_results *results_out);
void check_results_free(check_results *results);

/*
 * Runs a check's command on a simulated device, and writes a trace. Returns 0, or the exit status
 * after an internal failure, which ends all checks.
 */
int check_simulate(const check_item *item, const char *device, const char *trace,
                   check_refusal *why, rvli_machine_engines *engines_out);

/*
 * Compares the results with the baseline's file, and adds stages that only the file has. Returns 0
 * or the exit status.
 */
int check_compare(const check_file *file, check_results *results);
/* Writes the current peaks to the baseline's file. Returns 0 or the exit status. */
int check_update(const check_file *file, const check_results *results);

/* Whether a stage exceeds a bound, or, with CHECK_BROKEN, was not checked. */
static inline bool check_fails(const check_stage *stage)
{
    return stage->verdict >= CHECK_UNKNOWN;
}

/* Whether the run as a whole fails, which it can even if all stages pass. */
static inline bool check_run_fails(const check_result *result)
{
    return result->outcome >= CHECK_UNKNOWN;
}

/* Whether a result is from a check without stages. */
static inline bool check_is_empty(const check_result *result)
{
    return result->stage_count > 0 && result->stages[0].why != NULL;
}

/* Explains a stage's verdict, as "over budget: the peak of 130.0 GiB is more than 120.0 GiB".
 * Returns text, or a string that the stage owns. */
const char *check_explain(const check_stage *stage, double tolerance_percent,
                          char text[CHECK_TEXT_BYTES]);

/* Prints a table of all stages. false: no memory. */
bool check_print_table(const check_results *results);
/* Prints a line for each failed stage: by how much it fails, and the holders of its peak. */
void check_print_failures(const check_results *results);
/* Prints these lines as GitHub annotations, also for stages below their baseline. */
void check_print_github(const check_file *file, const check_results *results);
/* Writes the output of a command, line by line. */
void check_write_said(FILE *output, rvli_shown_as as, const char *said);
/* Writes a table of the stages, and the failures (document_fn). The user is the check_results. */
bool check_write_markdown(FILE *out, const void *results);
/* Writes a JUnit file. Returns 0 or the exit status. */
int check_write_junit(const char *path, const check_results *results);

#endif
