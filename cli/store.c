/* SPDX-License-Identifier: MIT */
/*
 * reveille store: owns the store of a node, or prints the state of one.
 */
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "command.h"
#include "document.h"
#include "options.h"
#include "reveille/sim.h"
#include "reveille/store.h"

#define BUDGET_VARIABLE "REVEILLE_HOST_BUDGET"

typedef struct arguments {
    uint64_t budget_bytes;
    bool status;
    option_document json;
} arguments;

const command_spec store_spec = {
    .name = "store",
    .summary = "keep one host backup of content that processes share",
    .usage = "[--budget SIZE] PATH\n--status [--json[=FILE]] PATH",
    .description =
        "Owns a store: the host backups of all processes that name its PATH. Equal content is kept "
        "once. The store makes a socket at PATH, prints a line when it is ready, and serves until "
        "it is interrupted. Processes of other users are refused. Programs use it with "
        "`REVEILLE_STORE=PATH` in their environment, or with `store_path` in the options of a "
        "context.\n\n"
        "Content outlives the store: a paused process has its content mapped, and can resume "
        "without the store. A pause needs the store. If it has ended, start it again at the same "
        "PATH.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_SIZE,
             .name = "budget",
             .value = "SIZE",
             .help = "limit of host memory for all processes together, such as 512GiB",
             .usual = "`REVEILLE_HOST_BUDGET`; else no limit",
             .field = offsetof(arguments, budget_bytes)},
            {.kind = OPTION_FLAG,
             .name = "status",
             .help = "print what the store at PATH keeps, and end",
             .usual = "serve",
             .field = offsetof(arguments, status)},
            OPTION_OF_JSON(offsetof(arguments, json)),
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "interrupted, or printed"},
                                  {"2", "bad usage, or the PATH cannot be used"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille store --budget 512GiB /run/user/1000/reveille.sock",
             "Keep the backups of this node's processes, in at most 512 GiB."},
            {"reveille store --status --json /run/user/1000/reveille.sock | jq .kept_bytes",
             "Print how much host memory they use."},
            {NULL, NULL}},
    .environment =
        (const text_entry[]){{BUDGET_VARIABLE, "The budget, if `--budget` is not given."},
                             {NULL, NULL}},
    .see_also = "reveille(1), rvl_store_open(3)",
};

/* Prints why a call failed. A bad path, or a bad answer from the store, counts as bad input. */
static int explain(rvl_status status)
{
    rvl_error error = {.struct_size = sizeof error};
    (void)rvl_last_error(&error);
    int code = status == RVL_ERR_HOST_OOM ? EXIT_INTERNAL : EXIT_BAD_INPUT;
    return complain(code, "%s%s%s%s%s%s", error.file, error.file[0] != '\0' ? ": " : "",
                    error.message, error.native_name[0] != '\0' ? " (" : "", error.native_name,
                    error.native_name[0] != '\0' ? ")" : "");
}

/* ---- State ---- */

static void print_table(const rvl_store_stats *stats)
{
    char kept[SIZE_TEXT_BYTES], budget[SIZE_TEXT_BYTES], referenced[SIZE_TEXT_BYTES];
    char shared[SIZE_TEXT_BYTES], refused[SIZE_TEXT_BYTES], times[TIMES_TEXT_BYTES];
    printf("kept        %s of %s\n", format_size(stats->kept_bytes + stats->promised_bytes, kept),
           stats->budget_bytes > 0 ? format_size(stats->budget_bytes, budget) : "no budget");
    printf("without it  %s\n", format_size(stats->referenced_bytes, referenced));
    printf("shared      %s\n", format_size(stats->shared_bytes, shared));
    printf("refused     %s, %s\n", format_size(stats->refused_bytes, refused),
           format_times(stats->refused_count, times));
    printf("segments    %" PRIu64 "\n", stats->segment_count);
    printf("users       %" PRIu64 "\n", stats->user_count);
}

static bool write_json(FILE *out, const void *user)
{
    const rvl_store_stats *stats = user;
    fprintf(out,
            "{\"schema\":1,\"budget_bytes\":%" PRIu64 ",\"kept_bytes\":%" PRIu64
            ",\"promised_bytes\":%" PRIu64 ",\"referenced_bytes\":%" PRIu64
            ",\"segment_count\":%" PRIu64 ",\"user_count\":%" PRIu64 ",\"shared_bytes\":%" PRIu64
            ",\"refused_bytes\":%" PRIu64 ",\"refused_count\":%" PRIu64 "}\n",
            stats->budget_bytes, stats->kept_bytes, stats->promised_bytes, stats->referenced_bytes,
            stats->segment_count, stats->user_count, stats->shared_bytes, stats->refused_bytes,
            stats->refused_count);
    return true;
}

static int print_status(const char *path, const option_document *json)
{
    rvl_store_stats stats = {.struct_size = sizeof stats};
    rvl_status status = rvl_store_get_stats(path, &stats);
    if (status != RVL_OK)
        return explain(status);
    if (!document_is_printed(json))
        print_table(&stats);
    return document_write(json, write_json, &stats);
}

/* ---- Owner ---- */

/* Raises the limit of descriptors: each segment takes one. */
static void lift_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

/* Blocks SIGINT and SIGTERM. Returns a descriptor that is readable once one of them is pending; -1:
 * failed. */
static int catch_signals(void)
{
    sigset_t caught;
    sigemptyset(&caught);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGTERM);
    return sigprocmask(SIG_BLOCK, &caught, NULL) == 0 ? signalfd(-1, &caught, SFD_CLOEXEC) : -1;
}

static int serve(const char *path, uint64_t budget_bytes)
{
    const rvl_store_options options = {
        .struct_size = sizeof options, .path = path, .budget_bytes = budget_bytes};
    rvl_store *store = NULL;
    lift_descriptors();
    int interrupted = catch_signals();
    if (interrupted < 0)
        return complain(EXIT_INTERNAL, "signals cannot be waited for");
    rvl_status status = rvl_store_open(&options, &store);
    if (status == RVL_OK) {
        say("store at %s\n", path);
        fflush(stdout);
        status = rvl_store_serve(store, interrupted);
    }
    int code = status == RVL_OK ? EXIT_FITS : explain(status);
    rvl_store_close(store);
    close(interrupted);
    return code;
}

/* Reads the budget from the environment. false: the variable is invalid; has complained. */
static bool read_budget(uint64_t *bytes_out)
{
    const char *value = getenv(BUDGET_VARIABLE);
    if (value == NULL || value[0] == '\0' ||
        (rvl_size_parse(value, bytes_out) == RVL_OK && *bytes_out > 0))
        return true;
    options_refuse(&store_spec,
                   "store: " BUDGET_VARIABLE " is not a size: %s: set one such as 512GiB", value);
    return false;
}

int command_store(int argc, char **argv)
{
    arguments parsed = {0};
    option_line line;
    if (!options_parse(&store_spec, argc, argv, &parsed, &line))
        return line.status;
    if (line.first != argc - 1)
        return options_refuse(&store_spec, "store: one PATH is needed, of the socket");
    bool budget = options_given(&store_spec, &line, "budget");
    if (parsed.status && budget)
        return options_refuse(&store_spec, "store: --budget is for the start of a store");
    if (parsed.json.wanted && !parsed.status)
        return options_refuse(&store_spec, "store: --json is for --status");
    int status = documents_check(&store_spec, &parsed.json, NULL);
    if (status != 0)
        return status;
    if (parsed.status)
        return print_status(argv[line.first], &parsed.json);
    if (!budget && !read_budget(&parsed.budget_bytes))
        return EXIT_BAD_INPUT;
    return serve(argv[line.first], parsed.budget_bytes);
}
