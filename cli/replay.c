/* SPDX-License-Identifier: MIT */
/* reveille replay: predicts the memory peak of every stage of a trace. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "command.h"
#include "document.h"
#include "markdown.h"
#include "options.h"
#include "progress.h"
#include "verdict.h"

typedef struct arguments {
    rvl_replay_options options;
    option_budgets budgets;
    const char *const *paths;
    size_t path_count;
    option_headroom headroom;
    bool no_refusals;
    replay_view view;
} arguments;

#define FIELD(name) offsetof(arguments, name)

const command_spec replay_spec = {
    .name = "replay",
    .summary = "predict the memory peak of every stage of a trace",
    .usage = "[OPTION]... TRACE...",
    .description =
        "Replays traces, merged on one clock, on a simulated device, and prints for every stage "
        "its memory peak and the holders. A replay continues after the first instant that does "
        "not fit, so that you also see how much memory would be needed.\n\n"
        "A trace is what `reveille record` or `reveille model` writes (.rvt, .rvt.zst), or a "
        "PyTorch memory snapshot (.pickle, .pickle.gz).",
    .options =
        (const option_spec[]){
            OPTION_OF_DEVICE(FIELD(options.device), "the trace's own"),
            OPTION_OF_WAKE(FIELD(options.wake)),
            OPTION_OF_BUDGET(FIELD(budgets)),
            OPTION_OF_HEADROOM(FIELD(headroom)),
            OPTION_OF_NO_REFUSALS(FIELD(no_refusals)),
            OPTION_OF_CONDUCTOR(FIELD(options.conductor)),
            OPTION_OF_SNAPSHOT_PROCESS(FIELD(options.snapshot_process)),
            OPTION_OF_SNAPSHOT_DEVICE(FIELD(options.snapshot_device)),
            {.kind = OPTION_CHOICE,
             .name = "backend",
             .value = "sim|cuda",
             .help = "replay on a simulated GPU, or on a real one",
             .usual = "sim",
             .field = FIELD(options.backend)},
            {.kind = OPTION_NUMBER,
             .name = "settle",
             .value = "MS",
             .help = "with `--backend cuda`, wait before each resume: the driver clears released "
                     "memory before it can be allocated again",
             .usual = "0",
             .expected = "milliseconds, at most 60000",
             .most = 60000,
             .field = FIELD(options.settle_ms)},
            OPTION_OF_PARTIAL(FIELD(options.flags), RVL_REPLAY_PARTIAL),
            OPTION_OF_EACH_STAGE(FIELD(view.each_stage)),
            OPTION_OF_JSON(FIELD(view.json)),
            OPTION_OF_MARKDOWN(FIELD(view.markdown)),
            OPTION_OF_COLOR,
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "everything fits"},
                                  {"3", "a stage does not fit or is over budget, the "
                                        "recorded command failed, or `--no-refusals`"},
                                  {"2", "bad usage or a bad trace"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille replay traces/qwen2.5-32b-tp2-h200.rvt",
             "The peaks of every stage, on the device of the trace."},
            {"reveille replay run.rvt --device h100-80g --budget train=70GiB",
             "The peaks on another device, with a budget for the stage train. The exit status "
             "tells whether both fit."},
            {"reveille replay engine.rvt trainer.rvt --wake together --json",
             "Merge two processes that share a device, and print JSON."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-record(1), reveille-report(1), reveille-devices(1); "
                "docs/replay.md in the sources",
    .operands = OPTION_TRACE_FILES,
};

/* ---- Arguments ---- */

static int check(const arguments *parsed, const option_line *line)
{
    bool real = parsed->options.backend != NULL && strcmp(parsed->options.backend, "cuda") == 0;
    if (parsed->path_count == 0)
        return options_refuse(&replay_spec, "replay: name at least one trace");
    if (options_given(&replay_spec, line, "settle") && !real)
        return options_refuse(&replay_spec,
                              "--settle: only with --backend cuda: a simulated device clears "
                              "nothing");
    if (options_given(&replay_spec, line, "device") && real)
        return options_refuse(
            &replay_spec,
            "--device %s: not with --backend cuda: the card in this machine is the "
            "device, whatever a profile says: leave one of them out",
            parsed->options.device);
    int status = documents_check(&replay_spec, &parsed->view.json, &parsed->view.markdown);
    if (status == 0)
        status = documents_check_inputs(&parsed->view.json, &parsed->view.markdown, parsed->paths,
                                        parsed->path_count);
    return status == 0
               ? options_check_snapshots(&replay_spec, line, parsed->paths, parsed->path_count)
               : status;
}

static bool parse(int argc, char **argv, arguments *parsed, int *status_out)
{
    option_line line;
    *status_out = 0;
    if (!options_parse(&replay_spec, argc, argv, parsed, &line)) {
        *status_out = line.status;
        return false;
    }
    parsed->paths = (const char *const *)(argv + line.first);
    parsed->path_count = (size_t)(argc - line.first);
    parsed->options.budgets = parsed->budgets.list;
    parsed->options.budget_count = parsed->budgets.count;
    parsed->options.budget_size = sizeof *parsed->budgets.list;
    verdict_ask(&parsed->headroom, &parsed->options);
    *status_out = check(parsed, &line);
    return *status_out == 0;
}

/* ---- Progress ---- */

static void on_progress(void *user, const rvl_trace_progress *progress)
{
    *(rvl_trace_progress *)user = *progress;
    progress_report(progress->bytes_read, progress->bytes_total, progress->events);
}

/* ---- Running ---- */

static int exit_status_of(rvl_status status)
{
    switch (status) {
    case RVL_ERR_DEVICE_OOM:
        return EXIT_DOES_NOT_FIT;
    case RVL_ERR_HOST_OOM:
        return EXIT_INTERNAL;
    default:
        return EXIT_BAD_INPUT;
    }
}

int describe_replay(rvl_status status, char *text, size_t size)
{
    const rvl_error *error = rvli_error_get();
    const char *message = error->status == status ? error->message : rvl_status_text(status);
    const char *file = error->file;
    if (error->status != status || file[0] == '\0')
        snprintf(text, size, "%s", message);
    else if (error->line == 0)
        snprintf(text, size, "%s: %s", file, message);
    else if (error->column == 0)
        snprintf(text, size, "%s:%" PRIu32 ": %s", file, error->line, message);
    else
        snprintf(text, size, "%s:%" PRIu32 ":%" PRIu32 ": %s", file, error->line, error->column,
                 message);
    return exit_status_of(status);
}

int explain_replay(rvl_status status)
{
    char text[EXPLANATION_BYTES];
    int code = describe_replay(status, text, sizeof text);
    rvl_error error = *rvli_error_get();
    complain(code, "%s", text);
    /* An error at the first byte suggests a file of another kind. */
    if (error.status == status && status != RVL_ERR_NOT_FOUND && code == EXIT_BAD_INPUT &&
        error.file[0] != '\0' && (error.line == 0 || (error.line == 1 && error.column <= 1)))
        kinds_hint(error.file);
    return code;
}

/* Writes the JSON of a replay, and holds back its last character, so that more keys can precede it.
 */
typedef struct held_text {
    FILE *out;
    char last;
} held_text;

static bool write_text(void *user, const char *text, size_t size)
{
    held_text *held = user;
    if (size == 0)
        return true;
    if (held->last != '\0')
        putc(held->last, held->out);
    held->last = text[size - 1];
    return fwrite(text, 1, size - 1, held->out) == size - 1;
}

/* The result that replay_show() shows. */
typedef struct shown {
    const rvl_replay *replay;
    const replay_more *more;
} shown_replay;

static bool write_json(FILE *out, const void *user)
{
    const shown_replay *of = user;
    held_text held = {.out = out};
    bool ok = rvl_replay_write_json(of->replay, write_text, &held) != RVL_ERR_HOST_OOM;
    if (ok && of->more != NULL)
        ok = of->more->write_json(out, of->more->user, of->replay);
    fprintf(out, "%c\n", held.last);
    return ok;
}

static bool write_markdown(FILE *out, const void *user)
{
    const shown_replay *of = user;
    return markdown_replay(out, of->replay, of->more);
}

static bool print_all(const shown_replay *of, const rvl_trace_progress *progress, bool each_stage)
{
    return report_print_tables(of->replay, progress, each_stage) &&
           (of->more == NULL || of->more->print(of->more->user, of->replay)) &&
           verdict_print(of->replay);
}

int replay_show(const rvl_replay *replay, const rvl_trace_progress *progress,
                const replay_view *view, const replay_more *more)
{
    const shown_replay of = {.replay = replay, .more = more};
    bool printed = document_is_printed(&view->json) || document_is_printed(&view->markdown);
    if (!printed && !print_all(&of, progress, view->each_stage))
        return complain(EXIT_INTERNAL, "out of host memory");
    int status = document_write(&view->json, write_json, &of);
    return status == 0 ? document_write(&view->markdown, write_markdown, &of) : status;
}

bool replay_fits(const rvl_replay *replay)
{
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK || !device.fits ||
            !device.within_budgets)
            return false;
    }
    return true;
}

static int run(arguments *parsed)
{
    rvl_trace_progress progress = {.struct_size = sizeof progress};
    rvl_replay *replay = NULL;
    parsed->options.progress = on_progress;
    parsed->options.progress_user = &progress;
    progress_begin("replay", "events");
    rvl_status status =
        rvl_replay_run(parsed->paths, parsed->path_count, &parsed->options, &replay);
    progress_end();
    if (status != RVL_OK)
        return explain_replay(status);
    int shown = replay_show(replay, &progress, &parsed->view, NULL);
    bool refused = parsed->no_refusals && verdict_has_refusals(replay);
    int code = replay_fits(replay) && !refused ? EXIT_FITS : EXIT_DOES_NOT_FIT;
    rvl_replay_close(replay);
    return shown != 0 ? shown : code;
}

int command_replay(int argc, char **argv)
{
    int status;
    arguments parsed = {.options = {.struct_size = sizeof parsed.options}};
    if (!options_make_budgets(argc, &parsed.budgets))
        return complain(EXIT_INTERNAL, "out of host memory");
    if (parse(argc, argv, &parsed, &status))
        status = run(&parsed);
    free(parsed.budgets.list);
    return status;
}
