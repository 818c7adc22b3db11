/* SPDX-License-Identifier: MIT */
/* reveille check: checks memory peaks in continuous integration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "document.h"
#include "options.h"
#include "output.h"

typedef struct arguments {
    const char *path;
    const char *junit;
    option_document markdown;
    bool update;
    bool github;
} arguments;

#define FIELD(name) offsetof(arguments, name)

const command_spec check_spec = {
    .name = "check",
    .summary = "hold stages against budgets and a baseline, in CI",
    .usage = "[OPTION]... FILE.toml|FILE.json",
    .description =
        "Replays the traces and model steps that the file lists on the devices that it lists, "
        "runs its commands on simulated GPUs, and compares the peak of every stage with the "
        "device's capacity, the file's budgets, and a baseline under version control. "
        "docs/check.md in the sources has the file's schema.\n\n"
        "Ctrl-C ends it after the running check, and a running command at once. It then shows the "
        "finished checks, and writes neither the baseline nor the JUnit file.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_FLAG,
             .name = "update-baseline",
             .help = "write the current peaks to the baseline",
             .usual = "compare",
             .field = FIELD(update)},
            {.kind = OPTION_FILE,
             .name = "junit",
             .value = "FILE",
             .help = "also write the results as JUnit",
             .usual = "none",
             .files = "xml",
             .field = FIELD(junit)},
            OPTION_OF_MARKDOWN(FIELD(markdown)),
            {.kind = OPTION_FLAG,
             .name = "github",
             .help = "also print annotations for GitHub",
             .usual = "if GITHUB_ACTIONS is true",
             .field = FIELD(github)},
            OPTION_OF_COLOR,
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits =
        (const text_entry[]){
            {"0", "all checks pass"},
            {"3",
             "a stage does not fit, is over budget, above its baseline or not in it, or missing; a "
             "command ran out of memory; or a request was refused and `no_refusals` is true"},
            {"2", "bad usage, a FILE that cannot be written, a bad file, trace, config or setting, "
                  "or a command that fails for another reason than memory (the other checks still "
                  "run)"},
            {"1", "an internal failure"},
            {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille check memory.toml", "Run all checks of a file."},
            {"reveille check memory.toml --update-baseline", "Accept the current peaks."},
            {"reveille check memory.toml --junit results.xml", "In CI, with a JUnit file."},
            {NULL, NULL}},
    .environment =
        (const text_entry[]){{"GITHUB_ACTIONS", "If it is true, annotations are printed."},
                             {NULL, NULL}},
    .see_also = "reveille(1), reveille-replay(1), reveille-model(1), reveille-run(1); "
                "docs/check.md in the sources",
    .operands = "toml json",
};

static bool parse(int argc, char **argv, arguments *parsed, int *status_out)
{
    const char *actions = getenv("GITHUB_ACTIONS");
    option_line line;
    parsed->github = actions != NULL && strcmp(actions, "true") == 0;
    if (!options_parse(&check_spec, argc, argv, parsed, &line)) {
        *status_out = line.status;
        return false;
    }
    parsed->path = argv[line.first];
    *status_out = argc - line.first == 1
                      ? options_check_ending(&check_spec, "--junit", parsed->junit, "xml")
                      : options_refuse(&check_spec, "check: name one file of checks");
    if (*status_out == 0)
        *status_out = documents_check(&check_spec, &(option_document){0}, &parsed->markdown);
    return *status_out == 0;
}

static check_verdict worst_of(const check_results *results)
{
    check_verdict worst = CHECK_OK;
    for (size_t i = 0; i < results->count; i++) {
        check_verdict outcome = results->results[i].outcome;
        worst = outcome > worst ? outcome : worst;
        for (size_t k = 0; k < results->results[i].stage_count; k++) {
            check_verdict verdict = results->results[i].stages[k].verdict;
            worst = verdict > worst ? verdict : worst;
        }
    }
    return worst;
}

/* Whether a run failed. The peaks up to a failure must not become a baseline. */
static bool has_failed_run(const check_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        if (check_is_empty(&results->results[i]) || check_run_fails(&results->results[i]))
            return true;
    }
    return false;
}

static int code_of(const check_results *results)
{
    check_verdict worst = worst_of(results);
    if (worst == CHECK_BROKEN)
        return EXIT_BAD_INPUT;
    return worst >= CHECK_UNKNOWN ? EXIT_DOES_NOT_FIT : EXIT_FITS;
}

static int hold_against_baseline(const arguments *parsed, const check_file *file,
                                 check_results *results)
{
    if (parsed->update && file->baseline == NULL)
        return complain(EXIT_BAD_INPUT, "%s: --update-baseline: the file has no \"baseline\"",
                        file->path);
    if (parsed->update && has_failed_run(results))
        return complain(0, "%s: stays as it is, since a check failed as a whole", file->baseline);
    int code = parsed->update ? check_update(file, results) : 0;
    if (code == 0 && file->baseline != NULL)
        code = check_compare(file, results);
    return code;
}

static void tell_broken(const check_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        const check_result *result = &results->results[i];
        const check_stage *stage = &result->stages[0];
        if (stage->verdict == CHECK_BROKEN)
            complain(EXIT_BAD_INPUT, "check %s on %s: %s", result->item->name, result->device,
                     stage->why);
        else if (result->outcome == CHECK_BROKEN)
            complain(EXIT_BAD_INPUT, "check %s on %s: %s", result->item->name, result->device,
                     result->verdict);
        if (stage->said != NULL) {
            complain(0, "check %s on %s: the command said at its end:", result->item->name,
                     result->device);
            check_write_said(stderr, RVLI_SHOWN_PLAIN, stage->said);
        }
    }
}

static int tell(const arguments *parsed, const check_file *file, const check_results *results)
{
    if (parsed->junit != NULL) {
        int code = check_write_junit(parsed->junit, results);
        if (code != 0)
            return code;
    }
    bool printed = document_is_printed(&parsed->markdown);
    if (!printed && !check_print_table(results))
        return complain(EXIT_INTERNAL, "out of host memory");
    int code = document_write(&parsed->markdown, check_write_markdown, results);
    if (code != 0)
        return code;
    if (parsed->github && !printed)
        check_print_github(file, results);
    else if (!printed)
        check_print_failures(results);
    tell_broken(results);
    return code_of(results);
}

/* Refuses outputs that would replace an input. */
static int check_outputs(const arguments *parsed, const check_file *file)
{
    const output_name outputs[] = {
        {"--junit", parsed->junit},
        {"--markdown", parsed->markdown.path},
        {"--update-baseline", parsed->update ? file->baseline : NULL},
    };
    int code = outputs_check_each_other(outputs, 3);
    if (code == 0)
        code = outputs_check_input(outputs, 3, file->path);
    if (code == 0)
        code = outputs_check_input(outputs, 2, file->baseline);
    for (size_t i = 0; code == 0 && i < file->item_count; i++) {
        const check_item *item = &file->items[i];
        code = outputs_check_input(outputs, 3, item->model);
        for (size_t k = 0; code == 0 && k < item->trace_count; k++)
            code = outputs_check_input(outputs, 3, item->traces[k]);
        if (code == 0)
            code = outputs_check_input(outputs, 3, item->program);
        for (size_t k = 1; code == 0 && item->words != NULL && item->words[k] != NULL; k++)
            code = outputs_check_input(outputs, 3, item->words[k]);
    }
    return code;
}

/* Prints the finished checks. Writes no files: they must have all checks. */
static int tell_interrupted(const check_file *file, check_results *results)
{
    int code = file->baseline != NULL ? check_compare(file, results) : 0;
    if (code == 0 && results->count > 0 && !check_print_table(results))
        code = complain(EXIT_INTERNAL, "out of host memory");
    if (code != 0)
        return code;
    tell_broken(results);
    return complain(EXIT_INTERRUPTED,
                    "interrupted: done with %zu of %zu checks; no file is written", results->count,
                    results->count + results->left_out);
}

static int run(const arguments *parsed)
{
    check_file file = {0};
    check_results results = {0};
    int code = check_read(parsed->path, &file);
    if (code != 0)
        return code;
    code = check_outputs(parsed, &file);
    if (code == 0)
        code = check_run(&file, &results);
    if (code == 0 && results.left_out > 0)
        code = tell_interrupted(&file, &results);
    else if (code == 0)
        code = hold_against_baseline(parsed, &file, &results);
    if (code == 0)
        code = tell(parsed, &file, &results);
    check_results_free(&results);
    check_file_free(&file);
    return code;
}

int command_check(int argc, char **argv)
{
    arguments parsed = {0};
    int status;
    return parse(argc, argv, &parsed, &status) ? run(&parsed) : status;
}
