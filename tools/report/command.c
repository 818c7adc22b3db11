/* SPDX-License-Identifier: MIT */
/*
 * reveille report: replays traces and snapshots, and shows memory over time: as a page, a picture,
 * a trace for Chrome and Perfetto, or here in the terminal. A file is complete when it appears
 * under its name.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/options.h"
#include "tools/output.h"
#include "tools/report/report.h"

#define COLUMNS_DEFAULT 80u
#define COLUMNS_MAX 1000u

typedef struct arguments {
    rvl_replay_options options;
    rvl_timeline_options timeline;
    const char *const *paths;
    size_t path_count;
    const char **against; /* room for one a word of the command line */
    size_t against_count;
    rvl_wake against_wake;
    bool against_woken; /* against_wake was given */
    const char *html;
    const char *svg;
    const char *chrome;
    size_t index;
    bool help;
} arguments;

void help_report(void)
{
    fputs(
        "usage: reveille report [OPTION]... TRACE|SNAPSHOT... [--against TRACE|SNAPSHOT]...\n"
        "\n"
        "Replays traces, merged on one clock, on a simulated device, and shows its memory over\n"
        "time by process and tag. Without -o, --svg and --chrome: a chart in the terminal.\n"
        "A PyTorch snapshot (.pickle, .pickle.gz) is run with its recorded settings, and shows\n"
        "what tensors have, and what its allocator holds beyond that (docs/report.md).\n"
        "\n"
        "  -o FILE              write a page that opens in a browser, without a network\n"
        "  --svg FILE           write a picture\n"
        "  --chrome FILE        write a trace for Chrome and Perfetto\n"
        "                       (FILE may be - for the standard output)\n"
        "  --against TRACE      a trace or snapshot of a second run, shown over the first; may be\n"
        "                       repeated (default: none)\n"
        "  --against-wake staged|together\n"
        "                       how the second run wakes; without --against it is of the same\n"
        "                       traces (default: as --wake)\n"
        "  --device DEVICE      profile (see `reveille devices`) or size, such as 80GiB\n"
        "                       (default: the trace's own)\n"
        "  --wake staged|together\n"
        "                       together: within a step every resume happens at the first one\n"
        "                       (default: staged)\n"
        "  --conductor PROCESS  whose stage and step marks count (default: the first process\n"
        "                       that marks)\n"
        "  --snapshot-process NAME\n"
        "                       whose memory that of a snapshot is (default: trainer)\n"
        "  --snapshot-device N  the device that it is on (default: 0)\n"
        "  --index N            which device of the trace --svg shows, counted from 0\n"
        "                       (default: 0)\n"
        "  --points N           most points a device, 16 to 1000000: a trace with more changes\n"
        "                       keeps all its peaks (default: 4000)\n"
        "  --partial            replay a trace that breaks off as far as it is whole\n"
        "                       (default: refuse it)\n"
        "  --help               print this\n"
        "\n"
        "Exit status: 0 written; 2 bad usage, bad trace, or built without the page; 1 an internal\n"
        "failure.\n",
        stdout);
}

/* ---- Arguments ---- */

static int usage(const char *format, const char *what)
{
    return options_bad_usage("report", format, what);
}

static int parse_device(const char *text, rvl_replay_options *options)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    if (rvl_profile_find(text, &profile) != RVL_OK)
        return usage("--device %s: neither a size nor a profile that `reveille devices` lists",
                     text);
    options->device = text;
    return 0;
}

/* A number of decimal digits up to a bound. */
static bool parse_number(const char *text, uint64_t most, uint64_t *number_out)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number > most)
        return false;
    *number_out = number;
    return true;
}

static int parse_points(const char *text, arguments *parsed)
{
    uint64_t points;
    if (!parse_number(text, RVL_TIMELINE_POINTS_MAX, &points) || points < RVL_TIMELINE_POINTS_MIN)
        return usage("--points %s: expected a number from 16 to 1000000", text);
    parsed->timeline.points = (uint32_t)points;
    return 0;
}

static int parse_index(const char *text, arguments *parsed)
{
    uint64_t index;
    if (!parse_number(text, RVL_MAX_DEVICES - 1, &index))
        return usage("--index %s: expected the number of a device, from 0", text);
    parsed->index = (size_t)index;
    return 0;
}

enum {
    AGAINST = 256,
    AGAINST_WAKE,
    SVG,
    CHROME,
    DEVICE,
    WAKE,
    CONDUCTOR,
    SNAPSHOT_PROCESS,
    SNAPSHOT_DEVICE,
    INDEX,
    POINTS,
    PARTIAL,
    HELP
};

static const struct option long_options[] = {
    {"against", required_argument, NULL, AGAINST},
    {"against-wake", required_argument, NULL, AGAINST_WAKE},
    {"svg", required_argument, NULL, SVG},
    {"chrome", required_argument, NULL, CHROME},
    {"device", required_argument, NULL, DEVICE},
    {"wake", required_argument, NULL, WAKE},
    {"conductor", required_argument, NULL, CONDUCTOR},
    {"snapshot-process", required_argument, NULL, SNAPSHOT_PROCESS},
    {"snapshot-device", required_argument, NULL, SNAPSHOT_DEVICE},
    {"index", required_argument, NULL, INDEX},
    {"points", required_argument, NULL, POINTS},
    {"partial", no_argument, NULL, PARTIAL},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_option(int option, char *word, arguments *parsed)
{
    switch (option) {
    case 'o':
        parsed->html = optarg;
        return 0;
    case AGAINST:
        parsed->against[parsed->against_count++] = optarg;
        return 0;
    case AGAINST_WAKE:
        parsed->against_woken = true;
        return options_wake(optarg, &parsed->against_wake)
                   ? 0
                   : usage("--against-wake %s: expected staged or together", optarg);
    case SVG:
        parsed->svg = optarg;
        return 0;
    case CHROME:
        parsed->chrome = optarg;
        return 0;
    case DEVICE:
        return parse_device(optarg, &parsed->options);
    case WAKE:
        return options_wake(optarg, &parsed->options.wake)
                   ? 0
                   : usage("--wake %s: expected staged or together", optarg);
    case CONDUCTOR:
        parsed->options.conductor = optarg;
        return 0;
    case SNAPSHOT_PROCESS:
        parsed->options.snapshot_process = optarg;
        return 0;
    case SNAPSHOT_DEVICE:
        return options_snapshot_device("report", optarg, &parsed->options.snapshot_device);
    case INDEX:
        return parse_index(optarg, parsed);
    case POINTS:
        return parse_points(optarg, parsed);
    case PARTIAL:
        parsed->options.partial = true;
        return 0;
    case HELP:
        parsed->help = true;
        return 0;
    default:
        return options_bad_option("report", option, word);
    }
}

static int check_arguments(const arguments *parsed)
{
    int to_stdout = 0;
    const char *const files[] = {parsed->html, parsed->svg, parsed->chrome};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        to_stdout += files[i] != NULL && strcmp(files[i], "-") == 0;
    if (to_stdout > 1)
        return usage("%s: only one file can be the standard output", "-");
    if (parsed->html != NULL && !html_available())
        return usage("-o %s: built without the page, since its chart library could not be had "
                     "from npm; --svg and --chrome work",
                     parsed->html);
    return parsed->path_count > 0 ? 0 : usage("%s: name at least one trace or snapshot", "report");
}

static int parse(int argc, char **argv, arguments *parsed)
{
    options_begin();
    for (;;) {
        char *word;
        int option = options_next(argc, argv, ":o:", long_options, NULL, &word);
        if (option == -1)
            break;
        int status = parse_option(option, word, parsed);
        if (status != 0 || parsed->help)
            return status;
    }
    parsed->paths = (const char *const *)(argv + optind);
    parsed->path_count = (size_t)(argc - optind);
    return check_arguments(parsed);
}

/* ---- Runs ---- */

static void close_run(report_run *run)
{
    rvl_replay_close(run->replay);
    rvl_timeline_close(run->timeline);
}

static int open_run(const arguments *parsed, const char *const *paths, size_t path_count,
                    rvl_wake wake, report_run *run)
{
    rvl_replay_options options = parsed->options;
    rvl_trace_error error = {.struct_size = sizeof error};
    if (rvl_timeline_open(&parsed->timeline, &run->timeline) != RVL_OK)
        return complain(EXIT_INTERNAL, "out of host memory");
    options.timeline = run->timeline;
    options.wake = wake;
    rvl_status status = rvl_replay_run(paths, path_count, &options, &error, &run->replay);
    if (status == RVL_OK)
        return 0;
    int code = explain_replay(status, &error);
    /* A report answers nothing about what fits. */
    return code == EXIT_DOES_NOT_FIT ? EXIT_BAD_INPUT : code;
}

/* "step.rvt and 1 more, woken together"; the caller frees it. NULL: no memory. */
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

static int write_file(int kind, const char *path, const arguments *parsed, const report_run *runs,
                      size_t count)
{
    output_file file = output_to_stdout();
    if (strcmp(path, "-") != 0 && !output_open(path, &file))
        return EXIT_INTERNAL;
    return output_finish(&file, write_kind(kind, file.stream, parsed, runs, count));
}

/* ---- The terminal ---- */

static unsigned terminal_columns(void)
{
    struct winsize size;
    uint64_t columns = 0;
    const char *named = getenv("COLUMNS");
    if (named != NULL && parse_number(named, COLUMNS_MAX, &columns) && columns > 0)
        return (unsigned)columns;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col < COLUMNS_MAX ? size.ws_col : COLUMNS_MAX;
    return COLUMNS_DEFAULT;
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
            ok = write_terminal(stdout, &runs[i], d, terminal_columns(), wants_colour());
        }
    }
    return ok ? 0 : complain(EXIT_INTERNAL, "out of host memory");
}

/* ---- Running ---- */

static int write_all(const arguments *parsed, const report_run *runs, size_t count)
{
    const char *const files[FILE_KINDS] = {parsed->html, parsed->svg, parsed->chrome};
    bool any = false;
    if (parsed->index >= rvl_timeline_device_count(runs[0].timeline))
        return usage("--index: %s", "the trace has fewer devices");
    for (int kind = 0; kind < FILE_KINDS; kind++) {
        int status = files[kind] != NULL ? write_file(kind, files[kind], parsed, runs, count) : 0;
        any = any || files[kind] != NULL;
        if (status != 0)
            return status;
    }
    return any ? 0 : show(runs, count);
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
        status = write_all(parsed, runs, two ? 2 : 1);
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

/* What is written must not be what is read. */
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
    arguments parsed = {.options = {.struct_size = sizeof parsed.options, .snapshot_parts = true},
                        .timeline = {.struct_size = sizeof parsed.timeline}};
    parsed.against = calloc((size_t)argc, sizeof *parsed.against);
    if (parsed.against == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    int status = parse(argc, argv, &parsed);
    if (status == 0 && parsed.help)
        help_report();
    else if (status == 0)
        status = check_outputs(&parsed);
    if (status == 0 && !parsed.help)
        status = run(&parsed);
    free(parsed.against);
    return status;
}
