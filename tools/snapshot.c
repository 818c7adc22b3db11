/* SPDX-License-Identifier: MIT */
/* reveille snapshot: what a PyTorch memory snapshot says of every stage, and what would change. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "options.h"
#include "reveille/snapshot.h"

#define DEVICE_MAX 4096

typedef struct arguments {
    rvl_snapshot_options options;
    const char **settings; /* room for one a word of the command line */
    const char *path;
    bool json;
    bool help;
} arguments;

void help_snapshot(void)
{
    fputs(
        "usage: reveille snapshot [OPTION]... FILE.pickle[.gz]\n"
        "\n"
        "Runs the allocations of a PyTorch memory snapshot through a model of the caching\n"
        "allocator, and prints for every stage (annotations stage:NAME) its peaks and what lies\n"
        "between reserved and requested memory.\n"
        "\n"
        "  --verify             feed recorded segment addresses in, and report the first entry\n"
        "                       in which model and recording differ (default: predict)\n"
        "  --set KEY=VALUE      change a setting, as in PYTORCH_CUDA_ALLOC_CONF; may be repeated:\n"
        "                       expandable_segments, max_split_size_mb,\n"
        "                       max_non_split_rounding_mb, large_segment_size_mb,\n"
        "                       roundup_power2_divisions, garbage_collection_threshold,\n"
        "                       per_process_memory_fraction (default: as recorded);\n"
        "                       capacity=SIZE is --capacity\n"
        "  --capacity SIZE      what the device has for the process, such as 80GiB\n"
        "                       (default: without bound)\n"
        "  --empty-cache-at-stages\n"
        "                       call empty_cache before every stage\n"
        "  --stage-prefix P     of the annotations that are stages (default: stage:)\n"
        "  --device N           index of the device (default: the first with a trace)\n"
        "  --json               print JSON, schema 1 (default: a table)\n"
        "  --help               print this\n"
        "\n"
        "Exit status: 0 done; 3 the verification diverged, or requests do not fit the capacity;\n"
        "2 bad usage or a bad snapshot; 1 an internal failure.\n",
        stdout);
}

/* ---- Arguments ---- */

static int usage(const char *format, const char *what)
{
    return options_bad_usage("snapshot", format, what);
}

enum { VERIFY = 256, SET, CAPACITY, EMPTY_CACHE, STAGE_PREFIX, DEVICE, JSON, HELP };

static const struct option long_options[] = {
    {"verify", no_argument, NULL, VERIFY},
    {"set", required_argument, NULL, SET},
    {"capacity", required_argument, NULL, CAPACITY},
    {"empty-cache-at-stages", no_argument, NULL, EMPTY_CACHE},
    {"stage-prefix", required_argument, NULL, STAGE_PREFIX},
    {"device", required_argument, NULL, DEVICE},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_device(const char *text, rvl_snapshot_options *options)
{
    char *end;
    unsigned long index = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || index >= DEVICE_MAX)
        return usage("--device %s: expected the index of a device", text);
    options->device = (uint32_t)index + 1;
    return 0;
}

static int parse_capacity(const char *text, rvl_snapshot_options *options)
{
    if (rvl_size_parse(text, &options->capacity_bytes) != RVL_OK)
        return usage("--capacity %s: expected a size such as 80GiB", text);
    return 0;
}

static int parse_option(int option, char *word, arguments *parsed)
{
    switch (option) {
    case VERIFY:
        parsed->options.verify = true;
        return 0;
    case SET:
        if (strncmp(optarg, "capacity=", strlen("capacity=")) == 0)
            return parse_capacity(optarg + strlen("capacity="), &parsed->options);
        parsed->settings[parsed->options.setting_count++] = optarg;
        return 0;
    case CAPACITY:
        return parse_capacity(optarg, &parsed->options);
    case EMPTY_CACHE:
        parsed->options.empty_cache_at_stages = true;
        return 0;
    case STAGE_PREFIX:
        parsed->options.stage_prefix = optarg;
        return 0;
    case DEVICE:
        return parse_device(optarg, &parsed->options);
    case JSON:
        parsed->json = true;
        return 0;
    case HELP:
        parsed->help = true;
        return 0;
    default:
        return options_bad_option("snapshot", option, word);
    }
}

static int parse(int argc, char **argv, arguments *parsed)
{
    options_begin();
    for (;;) {
        char *word;
        int option = options_next(argc, argv, ":", long_options, NULL, &word);
        if (option == -1)
            break;
        int status = parse_option(option, word, parsed);
        if (status != 0 || parsed->help)
            return status;
    }
    if (argc - optind != 1)
        return usage("%s: name one snapshot", argv[0]);
    parsed->path = argv[optind];
    parsed->options.settings = parsed->settings;
    return 0;
}

/* ---- For people ---- */

static bool add_stage(table *rows, const rvl_snapshot *snapshot, uint32_t index)
{
    rvl_snapshot_stage stage = {.struct_size = sizeof stage};
    char texts[9][SIZE_TEXT_BYTES], retries[SIZE_TEXT_BYTES], pinned[4 * SIZE_TEXT_BYTES] = "";
    if (rvl_snapshot_get_stage(snapshot, index, &stage) != RVL_OK)
        return false;
    snprintf(retries, sizeof retries, "%" PRIu64, stage.num_alloc_retries);
    if (stage.pinned_bytes > 0)
        snprintf(pinned, sizeof pinned, "%s by entry %" PRIu64 " (%s)",
                 format_size(stage.pinned_bytes, texts[7]), stage.pinning_event,
                 format_size(stage.pinning_size_bytes, texts[8]));
    const char *cells[] = {stage.name,
                           format_size(stage.peak_allocated_bytes, texts[0]),
                           format_size(stage.peak_reserved_bytes, texts[1]),
                           format_size(stage.end_reserved_bytes, texts[2]),
                           retries,
                           format_size(stage.rounding_bytes, texts[3]),
                           format_size(stage.split_bytes, texts[4]),
                           format_size(stage.cached_bytes, texts[5]),
                           format_size(stage.pending_bytes, texts[6]),
                           pinned};
    table_add(rows, cells);
    return true;
}

static bool print_stages(const rvl_snapshot *snapshot, uint32_t count)
{
    static const char *const titles[] = {"stage",   "allocated",  "reserved", "end",
                                         "retries", "rounding",   "split",    "cached",
                                         "pending", "most pinned"};
    static const bool right[] = {false, true, true, true, true, true, true, true, true, false};
    table *rows = table_new(titles, right, sizeof titles / sizeof titles[0]);
    bool ok = rows != NULL;
    for (uint32_t i = 0; ok && i < count; i++)
        ok = add_stage(rows, snapshot, i);
    ok = ok && table_print(rows, "  ", NULL, NULL);
    table_free(rows);
    return ok;
}

static void print_divergence(const rvl_snapshot_facts *facts)
{
    if (!facts->diverged)
        return;
    printf("diverged at entry %" PRIu64 " (%s): %s", facts->diverged_at,
           facts->diverged_action != NULL ? facts->diverged_action : "the end",
           facts->diverged_why);
    if (facts->diverged_action != NULL)
        printf("; recorded 0x%" PRIx64 ", %" PRIu64 " bytes", facts->diverged_addr,
               facts->diverged_bytes);
    if (facts->diverged_expected_bytes > 0)
        printf("; model 0x%" PRIx64 ", %" PRIu64 " bytes", facts->diverged_expected_addr,
               facts->diverged_expected_bytes);
    printf("\n");
}

static bool print_report(const rvl_snapshot *snapshot, const rvl_snapshot_facts *facts)
{
    char size[SIZE_TEXT_BYTES];
    printf("%s, %" PRIu64 " entries, confidence: %s\n", facts->verify ? "verified" : "predicted",
           facts->event_count, facts->exact ? "exact" : "interval");
    if (!print_stages(snapshot, facts->stage_count))
        return false;
    print_divergence(facts);
    if (facts->oom_count > 0)
        printf("%" PRIu64 " requests did not fit; the first is entry %" PRIu64 ", %s\n",
               facts->oom_count, facts->oom_event, format_size(facts->oom_requested_bytes, size));
    if (facts->skipped_count > 0)
        printf("%" PRIu64 " entries were skipped\n", facts->skipped_count);
    for (uint32_t i = 0; i < facts->note_count; i++)
        printf("note: %s\n", rvl_snapshot_note(snapshot, i));
    return true;
}

/* ---- Running ---- */

static bool print_json(const rvl_snapshot *snapshot)
{
    char *json;
    if (rvl_snapshot_to_json(snapshot, &json) != RVL_OK)
        return false;
    puts(json);
    rvl_replay_string_free(json);
    return true;
}

static int run(const arguments *parsed)
{
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    rvl_snapshot *snapshot = NULL;
    rvl_status status = rvl_snapshot_run(parsed->path, &parsed->options, &error, &snapshot);
    if (status != RVL_OK)
        return explain_replay(status, &error);
    (void)rvl_snapshot_get(snapshot, &facts);
    bool printed = parsed->json ? print_json(snapshot) : print_report(snapshot, &facts);
    int code = facts.diverged || facts.oom_count > 0 ? EXIT_DOES_NOT_FIT : EXIT_FITS;
    rvl_snapshot_close(snapshot);
    return printed ? code : complain(EXIT_INTERNAL, "out of host memory");
}

int command_snapshot(int argc, char **argv)
{
    arguments parsed = {.options = {.struct_size = sizeof parsed.options}};
    parsed.settings = calloc((size_t)argc, sizeof *parsed.settings);
    if (parsed.settings == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    int status = parse(argc, argv, &parsed);
    if (status == 0 && parsed.help)
        help_snapshot();
    else if (status == 0)
        status = run(&parsed);
    free(parsed.settings);
    return status;
}
