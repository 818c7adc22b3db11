/* SPDX-License-Identifier: MIT */
/*
 * reveille report: replays traces and snapshots, and shows memory over time: as a page, a picture,
 * a trace for Chrome and Perfetto, or a chart in the terminal. A file is complete when it appears
 * under its name.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/report/report.h"
#include "cli/verdict.h"

typedef struct arguments {
    rvl_replay_options options;
    rvl_timeline_options timeline;
    const char *const *paths;
    size_t path_count;
    const char **against; /* with room for each word of the command line */
    size_t against_count;
    rvl_wake against_wake;
    bool against_woken; /* against_wake was given */
    const char *html;
    const char *svg;
    const char *chrome;
    uint32_t index;
    chart_axis axis;
    bool has_axis; /* --axis was given */
    option_headroom headroom;
} arguments;

static int add_against(const command_spec *command, const option_spec *option, char *value,
                       void *user);

#define FIELD(name) offsetof(arguments, name)

const command_spec report_spec = {
    .name = "report",
    .summary = "show memory over time: as a page, a picture or a chart",
    .usage = "[OPTION]... TRACE|SNAPSHOT...\n"
             "[OPTION]... TRACE|SNAPSHOT... --against TRACE|SNAPSHOT",
    .description =
        "Replays traces, merged on one clock, on a simulated device, and shows its memory over "
        "time by process and tag. Without `-o`, `--svg` and `--chrome`, draws a chart in the "
        "terminal. A PyTorch snapshot (.pickle, .pickle.gz) is run with its recorded settings, and "
        "shows the memory of tensors, and the memory that its allocator holds beyond that "
        "(docs/report.md in the sources).\n\n"
        "FILE can be - for the standard output.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_FILE,
             .letter = 'o',
             .name = "html",
             .value = "FILE",
             .help = "write a page that opens in a browser, without a network",
             .usual = "none",
             .files = "html",
             .field = FIELD(html)},
            {.kind = OPTION_FILE,
             .name = "svg",
             .value = "FILE",
             .help = "write a picture",
             .usual = "none",
             .files = "svg",
             .field = FIELD(svg)},
            {.kind = OPTION_FILE,
             .name = "chrome",
             .value = "FILE",
             .help = "write a trace for Chrome and Perfetto",
             .usual = "none",
             .files = "json",
             .field = FIELD(chrome)},
            {.kind = OPTION_CALL,
             .name = "against",
             .value = "TRACE",
             .help = "a trace or snapshot of a second run, shown over the first",
             .usual = "none",
             .expected = "the name of a trace or snapshot",
             .set = add_against,
             .repeated = true},
            {.kind = OPTION_WORD,
             .name = "against-wake",
             .value = "staged|together",
             .help = "how the second run wakes; without `--against` it has the same traces",
             .usual = "as `--wake`",
             .field = FIELD(against_wake)},
            {.kind = OPTION_WORD,
             .name = "axis",
             .value = "time|event",
             .help = "the horizontal axis: time, or every stage and every event with the same "
                     "width; a page has both",
             .usual = "time; event for a trace of `reveille run`",
             .field = FIELD(axis)},
            OPTION_OF_DEVICE(FIELD(options.device), "the trace's own"),
            OPTION_OF_WAKE(FIELD(options.wake)),
            OPTION_OF_HEADROOM(FIELD(headroom)),
            OPTION_OF_CONDUCTOR(FIELD(options.conductor)),
            OPTION_OF_SNAPSHOT_PROCESS(FIELD(options.snapshot_process)),
            OPTION_OF_SNAPSHOT_DEVICE(FIELD(options.snapshot_device)),
            {.kind = OPTION_NUMBER,
             .name = "index",
             .value = "N",
             .help = "which device of the trace `--svg` shows, counted from 0",
             .usual = "0",
             .expected = "the number of a device, from 0",
             .most = RVL_MAX_DEVICES - 1,
             .field = FIELD(index)},
            {.kind = OPTION_NUMBER,
             .name = "points",
             .value = "N",
             .help = "maximum of points for each device, 16 to 1000000: a trace with more changes "
                     "keeps all its peaks",
             .usual = "4000",
             .expected = "a number from 16 to 1000000",
             .least = RVL_TIMELINE_POINTS_MIN,
             .most = RVL_TIMELINE_POINTS_MAX,
             .field = FIELD(timeline.points)},
            OPTION_OF_PARTIAL(FIELD(options.flags), RVL_REPLAY_PARTIAL),
            OPTION_OF_COLOR,
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits =
        (const text_entry[]){{"0", "written"},
                             {"2", "bad usage, a bad trace, a FILE that cannot be written, or a "
                                   "build without the page"},
                             {"1", "an internal failure"},
                             {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille report traces/qwen2.5-32b-tp2-h200.rvt", "A chart in the terminal."},
            {"reveille report run.rvt -o run.html --svg run.svg", "A page and a picture."},
            {"reveille report run.rvt --against-wake together -o wake.html",
             "Compare the run with one that wakes as a whole."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-replay(1), reveille-snapshot(1); docs/report.md in the "
                "sources",
    .operands = OPTION_TRACE_FILES,
};

/* ---- Arguments ---- */

static int add_against(const command_spec *command, const option_spec *option, char *value,
                       void *user)
{
    (void)command, (void)option;
    arguments *parsed = user;
    parsed->against[parsed->against_count++] = value;
    return 0;
}

static int check_files(const arguments *parsed)
{
    int to_stdout = 0;
    const char *const files[] = {parsed->html, parsed->svg, parsed->chrome};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        to_stdout += files[i] != NULL && strcmp(files[i], "-") == 0;
    if (to_stdout > 1)
        return options_refuse(&report_spec, "-: only one file can be the standard output");
    int status = options_check_ending(&report_spec, "-o", parsed->html, "html htm");
    if (status == 0)
        status = options_check_ending(&report_spec, "--svg", parsed->svg, "svg");
    if (status == 0)
        status = options_check_ending(&report_spec, "--chrome", parsed->chrome, "json");
    if (status == 0 && parsed->html != NULL && !html_available())
        return options_refuse(
            &report_spec,
            "-o %s: built without the page, since its chart library could not "
            "be had from npm: build again where npm reaches its registry; --svg and --chrome "
            "work",
            parsed->html);
    return status;
}

static int check_arguments(const arguments *parsed, const option_line *line)
{
    int status = check_files(parsed);
    if (status != 0)
        return status;
    if (parsed->path_count == 0)
        return options_refuse(&report_spec, "report: name at least one trace or snapshot");
    if (options_given(&report_spec, line, "index") && parsed->svg == NULL)
        return options_refuse(&report_spec, "--index: only with --svg: other outputs show every "
                                            "device");
    if (parsed->against_woken && parsed->against_count == 0 &&
        parsed->against_wake == parsed->options.wake)
        return options_refuse(&report_spec, "--against-wake: as --wake has it, so that both runs "
                                            "are the same: name the other one, or --against");
    size_t count = parsed->path_count + parsed->against_count;
    const char **all = calloc(count, sizeof *all);
    if (all == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    memcpy(all, parsed->paths, parsed->path_count * sizeof *all);
    memcpy(all + parsed->path_count, parsed->against, parsed->against_count * sizeof *all);
    status = options_check_snapshots(&report_spec, line, all, count);
    free(all);
    return status;
}

static bool parse(int argc, char **argv, arguments *parsed, int *status_out)
{
    option_line line;
    if (!options_parse(&report_spec, argc, argv, parsed, &line)) {
        *status_out = line.status;
        return false;
    }
    parsed->paths = (const char *const *)(argv + line.first);
    parsed->path_count = (size_t)(argc - line.first);
    verdict_ask(&parsed->headroom, &parsed->options);
    parsed->has_axis = options_given(&report_spec, &line, "axis");
    parsed->against_woken = options_given(&report_spec, &line, "against-wake");
    *status_out = check_arguments(parsed, &line);
    return *status_out == 0;
}

/* ---- Runs ---- */

static void close_run(report_run *run)
{
    rvl_replay_close(run->replay);
    rvl_timeline_close(run->timeline);
    free(run->samples.list);
    tensors_free(&run->tensors);
    free(run->remedy);
}

static void on_progress(void *unused, const rvl_trace_progress *progress)
{
    (void)unused;
    progress_report(progress->bytes_read, progress->bytes_total, progress->events);
}

static int open_run(const arguments *parsed, const char *const *paths, size_t path_count,
                    rvl_wake wake, report_run *run)
{
    rvl_replay_options options = parsed->options;
    if (rvl_timeline_open(&parsed->timeline, &run->timeline) != RVL_OK)
        return complain(EXIT_INTERNAL, "out of host memory");
    options.timeline = run->timeline;
    options.wake = wake;
    options.progress = on_progress;
    options.filter = samples_note;
    options.event_size = sizeof(rvl_trace_event);
    options.filter_user = &run->samples;
    run->samples.most =
        parsed->timeline.points > 0 ? parsed->timeline.points : RVL_TIMELINE_POINTS_DEFAULT;
    progress_begin("report", "events");
    rvl_status status = rvl_replay_run(paths, path_count, &options, &run->replay);
    progress_end();
    if (status == RVL_OK) {
        const remedy_question asked = {paths, path_count, &parsed->options, wake,
                                       parsed->headroom.text};
        run->remedy = remedy_text(&asked, run);
        run->snapshot_process = options.snapshot_process;
        return parsed->html != NULL ? tensors_read(paths, path_count, &run->tensors) : 0;
    }
    int code = explain_replay(status);
    /* A report does not check what fits. */
    return code == EXIT_DOES_NOT_FIT ? EXIT_BAD_INPUT : code;
}

/* Returns "step.rvt and 1 more, woken together". The caller frees it. NULL: no memory. */
static char *label_of(const char *const *paths, size_t path_count, rvl_wake wake, const char *role)
{
    const char *slash = strrchr(paths[0], '/');
    char more[40] = "", *label = NULL;
    if (path_count > 1)
        snprintf(more, sizeof more, " and %zu more", path_count - 1);
    if (asprintf(&label, "%s%s%s%s", slash != NULL && slash[1] != '\0' ? slash + 1 : paths[0], more,
                 wake == RVL_WAKE_TOGETHER ? ", woken together" : "", role) < 0)
        return NULL;
    return label;
}

/* ---- Files ---- */

enum { HTML_FILE, SVG_FILE, CHROME_FILE, FILE_KINDS };

static bool write_kind(int kind, FILE *out, const arguments *parsed, const report_run *runs,
                       size_t count)
{
    switch (kind) {
    case HTML_FILE:
        return write_html(out, runs, count);
    case SVG_FILE:
        return write_svg(out, &runs[0], count > 1 ? &runs[1] : NULL, parsed->index);
    default:
        return write_chrome(out, runs, count);
    }
}

/* How to open each kind of file. */
static const char *const next_of[FILE_KINDS] = {
    [HTML_FILE] = "xdg-open %s",
    [SVG_FILE] = "xdg-open %s",
    [CHROME_FILE] = "open it in https://ui.perfetto.dev",
};

static int write_file(int kind, const char *path, const arguments *parsed, const report_run *runs,
                      size_t count)
{
    output_file file = output_to_stdout();
    int status = strcmp(path, "-") != 0 ? output_open(path, &file) : 0;
    if (status != 0)
        return status;
    status = output_finish(&file, write_kind(kind, file.stream, parsed, runs, count));
    if (status == 0 && strcmp(path, "-") != 0)
        output_tell(path, next_of[kind]);
    return status;
}

/* ---- Terminal ---- */

static bool has_device(const report_run runs[2], size_t device)
{
    return device < rvl_timeline_device_count(runs[0].timeline) &&
           device < rvl_timeline_device_count(runs[1].timeline);
}

static int show(const report_run *runs, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; ok && d < rvl_timeline_device_count(runs[i].timeline); d++) {
            if (i + d > 0)
                putchar('\n');
            if (count > 1)
                say("%s\n", runs[i].label);
            ok = write_terminal(stdout, &runs[i], d, terminal_columns(), wants_colour(),
                                knows_utf8());
        }
        rvl_verdict verdict;
        if (ok && run_has_verdict(&runs[i], &verdict))
            ok = verdict_print(runs[i].replay);
    }
    for (size_t d = 0; ok && count > 1 && has_device(runs, d); d++)
        ok = print_differences(&runs[0], &runs[1], d);
    return ok ? 0 : complain(EXIT_INTERNAL, "out of host memory");
}

/* ---- Running ---- */

static int write_all(const arguments *parsed, const report_run *runs, size_t count)
{
    const char *const files[FILE_KINDS] = {parsed->html, parsed->svg, parsed->chrome};
    bool any = false;
    if (parsed->index >= rvl_timeline_device_count(runs[0].timeline))
        return options_refuse(&report_spec, "--index: the trace has fewer devices");
    for (int kind = 0; kind < FILE_KINDS; kind++) {
        int status = files[kind] != NULL ? write_file(kind, files[kind], parsed, runs, count) : 0;
        any = any || files[kind] != NULL;
        if (status != 0)
            return status;
    }
    return any ? 0 : show(runs, count);
}

/* Makes what the runs of a report share, and writes the report. */
static int join_and_write(const arguments *parsed, report_run *runs, size_t count)
{
    uint64_t end_ns = 0;
    palette *made = palette_make(runs, count);
    for (size_t i = 0; i < count; i++)
        end_ns = chart_end_ns(runs[i].timeline) > end_ns ? chart_end_ns(runs[i].timeline) : end_ns;
    for (size_t i = 0; i < count; i++) {
        runs[i].palette = made;
        runs[i].axis = runs[0].samples.simulated && !parsed->has_axis ? AXIS_EVENT : parsed->axis;
        runs[i].end_ns = end_ns;
    }
    int status = made != NULL && columns_make(runs, count)
                     ? write_all(parsed, runs, count)
                     : complain(EXIT_INTERNAL, "out of host memory");
    for (size_t i = 0; i < count; i++)
        free(runs[i].stage_columns);
    palette_free(made);
    return status;
}

static int run(const arguments *parsed)
{
    report_run runs[2] = {0};
    char *labels[2] = {NULL, NULL};
    bool two = parsed->against_count > 0 || parsed->against_woken;
    const char *const *second = parsed->against_count > 0 ? parsed->against : parsed->paths;
    size_t second_count = parsed->against_count > 0 ? parsed->against_count : parsed->path_count;
    rvl_wake second_wake = parsed->against_woken ? parsed->against_wake : parsed->options.wake;

    labels[0] = label_of(parsed->paths, parsed->path_count, parsed->options.wake, "");
    labels[1] = label_of(second, second_count, second_wake, "");
    if (labels[0] != NULL && labels[1] != NULL && strcmp(labels[0], labels[1]) == 0) {
        free(labels[1]);
        labels[1] = label_of(second, second_count, second_wake, " (against)");
    }
    int status = 0;
    if (labels[0] == NULL || labels[1] == NULL)
        status = complain(EXIT_INTERNAL, "out of host memory");
    if (status == 0)
        status =
            open_run(parsed, parsed->paths, parsed->path_count, parsed->options.wake, &runs[0]);
    if (status == 0 && two)
        status = open_run(parsed, second, second_count, second_wake, &runs[1]);
    runs[0].label = labels[0];
    runs[1].label = labels[1];
    if (status == 0)
        status = join_and_write(parsed, runs, two ? 2 : 1);
    for (int i = 0; i < 2; i++) {
        close_run(&runs[i]);
        free(labels[i]);
    }
    return status;
}

static const char *name_of(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0 ? "/dev/stdout" : path;
}

/* Refuses outputs that would replace an input. */
static int check_outputs(const arguments *parsed)
{
    const output_name outputs[] = {{"-o", name_of(parsed->html)},
                                   {"--svg", name_of(parsed->svg)},
                                   {"--chrome", name_of(parsed->chrome)}};
    int status = outputs_check_each_other(outputs, FILE_KINDS);
    for (size_t i = 0; status == 0 && i < parsed->path_count; i++)
        status = outputs_check_input(outputs, FILE_KINDS, parsed->paths[i]);
    for (size_t i = 0; status == 0 && i < parsed->against_count; i++)
        status = outputs_check_input(outputs, FILE_KINDS, parsed->against[i]);
    return status;
}

int command_report(int argc, char **argv)
{
    int status;
    arguments parsed = {
        .options = {.struct_size = sizeof parsed.options, .flags = RVL_REPLAY_SNAPSHOT_PARTS},
        .timeline = {.struct_size = sizeof parsed.timeline}};
    parsed.against = calloc((size_t)argc, sizeof *parsed.against);
    if (parsed.against == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    bool goes_on = parse(argc, argv, &parsed, &status);
    if (goes_on)
        status = check_outputs(&parsed);
    if (goes_on && status == 0)
        status = run(&parsed);
    free(parsed.against);
    return status;
}
