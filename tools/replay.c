/* SPDX-License-Identifier: MIT */
/* reveille replay: predicts the memory peak of every stage of a trace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "options.h"

/* Smaller traces are done before a bar is worth drawing. */
#define BAR_BYTES_MIN (UINT64_C(16) << 20)
#define BAR_WIDTH 40
#define MOST_SETTLE_MS 60000

typedef struct arguments {
    rvl_replay_options options;
    rvl_budget *budgets; /* room for one a word of the command line */
    const char *const *paths;
    size_t path_count;
    bool json;
    bool help;
} arguments;

typedef struct run_state {
    rvl_trace_progress progress; /* as last told */
    bool bar;                    /* stderr is a terminal */
    bool drawn;
} run_state;

void help_replay(void)
{
    fputs("usage: reveille replay [OPTION]... TRACE...\n"
          "\n"
          "Replays traces, merged on one clock, on a simulated device, and prints for every stage\n"
          "its memory peak and who holds it.\n"
          "\n"
          "  --device DEVICE      profile (see `reveille devices`) or size, such as 80GiB\n"
          "                       (default: the trace's own)\n"
          "  --wake staged|together\n"
          "                       together: within a step every resume happens at the first one\n"
          "                       (default: staged)\n"
          "  --budget STAGE=SIZE  upper bound on the peak of every stage of that name; may be\n"
          "                       repeated (default: none)\n"
          "  --conductor PROCESS  whose stage and step marks count (default: the first process\n"
          "                       that marks)\n"
          "  --snapshot-process NAME\n"
          "                       whose segments those of a PyTorch snapshot among the traces\n"
          "                       (.pickle, .pickle.gz) are (default: trainer)\n"
          "  --snapshot-device N  the device that they are on (default: 0)\n"
          "  --backend sim|cuda   what replays (default: sim)\n"
          "  --settle MS          on a real GPU, wait before each resume: the driver clears what "
          "was\n"
          "                       just released before it gives it out again (default: 0)\n"
          "  --partial            replay a trace that breaks off as far as it is whole\n"
          "                       (default: refuse it)\n"
          "  --json               print JSON, schema 1 (default: a table)\n"
          "  --help               print this\n"
          "\n"
          "Exit status: 0 fits; 3 does not fit or is over budget; 2 bad usage or bad trace; 1 an\n"
          "internal failure.\n",
          stdout);
}

/* ---- Arguments ---- */

static int usage(const char *format, const char *what)
{
    return options_bad_usage("replay", format, what);
}

static int parse_wake(const char *text, rvl_wake *wake_out)
{
    return options_wake(text, wake_out) ? 0 : usage("--wake %s: expected staged or together", text);
}

static int parse_backend(const char *text, rvl_replay_options *options)
{
    if (strcmp(text, "sim") != 0 && strcmp(text, "cuda") != 0)
        return usage("--backend %s: expected sim or cuda", text);
    options->backend = text;
    return 0;
}

static int parse_settle(const char *text, rvl_replay_options *options)
{
    char *end = NULL;
    errno = 0;
    unsigned long settle_ms = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || settle_ms > MOST_SETTLE_MS)
        return usage("--settle %s: expected milliseconds, at most 60000", text);
    options->settle_ms = (uint32_t)settle_ms;
    return 0;
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

/* A stage's name may hold '='; a size does not. */
static int parse_budget(char *text, arguments *parsed)
{
    char *equals = strrchr(text, '=');
    rvl_budget budget = {.stage = text};
    if (equals == NULL || equals == text)
        return usage("--budget %s: expected STAGE=SIZE", text);
    if (rvl_size_parse(equals + 1, &budget.bytes) != RVL_OK)
        return usage("--budget %s: expected a size such as 90GiB after the =", text);
    *equals = '\0';
    parsed->budgets[parsed->options.budget_count++] = budget;
    return 0;
}

enum {
    DEVICE = 256,
    WAKE,
    BUDGET,
    CONDUCTOR,
    SNAPSHOT_PROCESS,
    SNAPSHOT_DEVICE,
    BACKEND,
    SETTLE,
    PARTIAL,
    JSON,
    HELP
};

static const struct option long_options[] = {
    {"device", required_argument, NULL, DEVICE},
    {"wake", required_argument, NULL, WAKE},
    {"budget", required_argument, NULL, BUDGET},
    {"conductor", required_argument, NULL, CONDUCTOR},
    {"snapshot-process", required_argument, NULL, SNAPSHOT_PROCESS},
    {"snapshot-device", required_argument, NULL, SNAPSHOT_DEVICE},
    {"backend", required_argument, NULL, BACKEND},
    {"settle", required_argument, NULL, SETTLE},
    {"partial", no_argument, NULL, PARTIAL},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_option(int option, char *word, arguments *parsed)
{
    switch (option) {
    case DEVICE:
        return parse_device(optarg, &parsed->options);
    case WAKE:
        return parse_wake(optarg, &parsed->options.wake);
    case BUDGET:
        return parse_budget(optarg, parsed);
    case CONDUCTOR:
        parsed->options.conductor = optarg;
        return 0;
    case SNAPSHOT_PROCESS:
        parsed->options.snapshot_process = optarg;
        return 0;
    case SNAPSHOT_DEVICE:
        return options_snapshot_device("replay", optarg, &parsed->options.snapshot_device);
    case BACKEND:
        return parse_backend(optarg, &parsed->options);
    case SETTLE:
        return parse_settle(optarg, &parsed->options);
    case PARTIAL:
        parsed->options.partial = true;
        return 0;
    case JSON:
        parsed->json = true;
        return 0;
    case HELP:
        parsed->help = true;
        return 0;
    default:
        return options_bad_option("replay", option, word);
    }
}

static int parse(int argc, char **argv, arguments *parsed)
{
    int option, status = 0;
    options_begin();
    for (;;) {
        char *word;
        option = options_next(argc, argv, ":", long_options, NULL, &word);
        if (option == -1)
            break;
        status = parse_option(option, word, parsed);
        if (status != 0 || parsed->help)
            return status;
    }
    parsed->paths = (const char *const *)(argv + optind);
    parsed->path_count = (size_t)(argc - optind);
    parsed->options.budgets = parsed->budgets;
    return parsed->path_count > 0 ? 0 : usage("%s: name at least one trace", argv[0]);
}

/* ---- Progress ---- */

static void draw_bar(const rvl_trace_progress *progress)
{
    uint64_t done =
        progress->bytes_read < progress->bytes_total ? progress->bytes_read : progress->bytes_total;
    int filled = (int)((double)done / (double)progress->bytes_total * BAR_WIDTH);
    fprintf(stderr, "\r[%-*.*s] %3d %%  %" PRIu64 " events", BAR_WIDTH, filled,
            "########################################", filled * 100 / BAR_WIDTH, progress->events);
}

static void on_progress(void *user, const rvl_trace_progress *progress)
{
    run_state *state = user;
    state->progress = *progress;
    if (!state->bar || progress->bytes_total <= BAR_BYTES_MIN)
        return;
    draw_bar(progress);
    state->drawn = true;
}

static void clear_bar(const run_state *state)
{
    if (state->drawn)
        fputs("\r\x1b[K", stderr);
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

int describe_replay(rvl_status status, const rvl_trace_error *error, char *text, size_t size)
{
    const char *message = error->message[0] != '\0' ? error->message : rvl_status_text(status);
    const char *file = error->file;
    if (file == NULL)
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

int explain_replay(rvl_status status, const rvl_trace_error *error)
{
    char text[EXPLANATION_BYTES];
    int code = describe_replay(status, error, text, sizeof text);
    return complain(code, "%s", text);
}

static bool print_text(void *user, const char *text, size_t size)
{
    (void)user;
    return fwrite(text, 1, size, stdout) == size;
}

/* What does not arrive shows at the stream. */
static bool print_json(const rvl_replay *replay)
{
    rvl_status status = rvl_replay_write_json(replay, print_text, NULL);
    putchar('\n');
    return status != RVL_ERR_HOST_OOM;
}

static bool all_is_well(const rvl_replay *replay)
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
    run_state state = {.bar = isatty(STDERR_FILENO) == 1};
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_replay *replay = NULL;
    parsed->options.progress = on_progress;
    parsed->options.progress_user = &state;
    rvl_status status =
        rvl_replay_run(parsed->paths, parsed->path_count, &parsed->options, &error, &replay);
    clear_bar(&state);
    if (status != RVL_OK)
        return explain_replay(status, &error);
    bool printed = parsed->json ? print_json(replay) : report_print(replay, &state.progress);
    int code = all_is_well(replay) ? EXIT_FITS : EXIT_DOES_NOT_FIT;
    rvl_replay_close(replay);
    return printed ? code : complain(EXIT_INTERNAL, "out of host memory");
}

int command_replay(int argc, char **argv)
{
    arguments parsed = {.options = {.struct_size = sizeof parsed.options}};
    parsed.budgets = calloc((size_t)argc, sizeof *parsed.budgets);
    if (parsed.budgets == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    int status = parse(argc, argv, &parsed);
    if (status == 0 && parsed.help)
        help_replay();
    else if (status == 0)
        status = run(&parsed);
    free(parsed.budgets);
    return status;
}
