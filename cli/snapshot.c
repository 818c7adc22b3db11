/* SPDX-License-Identifier: MIT */
/* reveille snapshot: the memory of every stage of a PyTorch snapshot, as recorded or with changes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "document.h"
#include "holders.h"
#include "options.h"
#include "progress.h"
#include "reveille/snapshot.h"

#define CAPACITY_MIN (UINT64_C(1) << 20) /* bytes; a smaller number most likely lacks its unit */

#define DEVICE_MAX 4096

typedef struct arguments {
    rvl_snapshot_options options;
    const char **settings; /* with room for each word of the command line */
    const char *path;
    option_document json;
    bool tensors;
    bool index_given;   /* --device N */
    const char *device; /* --device PROFILE; NULL: not given */
} arguments;

static int add_setting(const command_spec *command, const option_spec *option, char *value,
                       void *user);
static int set_device(const command_spec *command, const option_spec *option, char *value,
                      void *user);

#define FIELD(name) offsetof(arguments, name)

const command_spec snapshot_spec = {
    .name = "snapshot",
    .summary = "predict the memory of a PyTorch snapshot, stage by stage",
    .usage = "[OPTION]... FILE.pickle[.gz]",
    .description =
        "Runs the allocations of a PyTorch memory snapshot through a model of the caching "
        "allocator, and prints for every stage (annotations stage:NAME) its peaks and the parts of "
        "the difference between reserved and requested memory.\n\n"
        "The keys of `--set` are expandable_segments, max_split_size_mb, "
        "max_non_split_rounding_mb, large_segment_size_mb, roundup_power2_divisions, "
        "garbage_collection_threshold and per_process_memory_fraction; capacity=SIZE is "
        "`--capacity`.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_FLAG,
             .name = "verify",
             .help = "use the recorded segment addresses, and report the first entry in which "
                     "model and recording differ",
             .usual = "predict",
             .field = FIELD(options.flags),
             .bit = RVL_SNAPSHOT_VERIFY},
            {.kind = OPTION_CALL,
             .name = "set",
             .value = "KEY=VALUE",
             .help = "change a setting, as in PYTORCH_CUDA_ALLOC_CONF",
             .usual = "as recorded",
             .expected = "KEY=VALUE, such as expandable_segments=True",
             .set = add_setting,
             .repeated = true},
            {.kind = OPTION_SIZE,
             .name = "capacity",
             .value = "SIZE",
             .help = "memory that the device has for the process, such as 80GiB",
             .usual = "that of `--device`; with other settings, the limit in the recording",
             .field = FIELD(options.capacity_bytes)},
            {.kind = OPTION_FLAG,
             .name = "empty-cache-at-stages",
             .help = "call empty_cache before every stage",
             .usual = "as recorded",
             .field = FIELD(options.flags),
             .bit = RVL_SNAPSHOT_EMPTY_CACHE},
            OPTION_OF_STAGES(FIELD(options.stage_prefix),
                             "annotations that start with this are stages, named by the rest",
                             "stage:"),
            {.kind = OPTION_STRING,
             .name = "stage-prefix",
             .value = "PREFIX",
             .help = "the older name of --stages",
             .usual = "as --stages",
             .expected = "the beginning of an annotation, such as stage:",
             .field = FIELD(options.stage_prefix)},
            {.kind = OPTION_STRING,
             .name = "recompute",
             .value = "FILE:LINE",
             .help = "recompute the calls of this line in the backward pass, as gradient "
                     "checkpointing does; the snapshot must be one of `reveille run --snapshots`",
             .usual = "as recorded",
             .expected = "a line of the program, such as gpt.py:23",
             .field = FIELD(options.recompute)},
            {.kind = OPTION_CALL,
             .name = "device",
             .value = "N|DEVICE",
             .help = "index of the device in the file; or the device for the run: a profile "
                     "(`reveille devices` lists them) or a file that `reveille calibrate` wrote, "
                     "minus the memory that the driver takes",
             .usual = "the first with a trace; as recorded",
             .expected = "the index of a device, or a profile",
             .set = set_device,
             .repeated = true},
            {.kind = OPTION_FLAG,
             .name = "tensors",
             .help = "list every tensor and segment of the recording instead, as JSON in columns",
             .usual = "the stages",
             .field = FIELD(tensors)},
            {.kind = OPTION_FLAG,
             .name = "all-frames",
             .help = "name the innermost frame of each stack, also if it is not the program's",
             .usual = "the program's own frame, not one of C++, Python, PyTorch or packages",
             .field = FIELD(options.flags),
             .bit = RVL_SNAPSHOT_ALL_FRAMES},
            OPTION_OF_JSON(FIELD(json)),
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "done"},
                                  {"3", "the verification diverged, or requests do not fit the "
                                        "capacity"},
                                  {"2", "bad usage or a bad snapshot"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille snapshot traces/snapshots/dev-default.pickle.gz",
             "How much every stage reserves, and why."},
            {"reveille snapshot run.pickle.gz --set expandable_segments=True --capacity 80GiB",
             "The same run with another setting, and with a limit."},
            {"reveille snapshot run.pickle.gz --verify",
             "Does the allocator's model agree with the recording?"},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-replay(1), reveille-report(1); docs/snapshot.md in the "
                "sources",
    .operands = "pickle pickle.gz",
};

/* ---- Arguments ---- */

/* A number without a unit is an index. Each kind can be given once. */
static int set_device(const command_spec *command, const option_spec *option, char *value,
                      void *user)
{
    (void)option;
    arguments *parsed = user;
    char *end, why[DEVICE_WHY_BYTES];
    bool is_index = value[strspn(value, "0123456789")] == '\0';
    unsigned long index = strtoul(value, &end, 10);
    if (is_index ? parsed->index_given : parsed->device != NULL)
        return options_refuse(command, "--device %s: given twice", value);
    if (is_index && (*value == '\0' || index >= DEVICE_MAX))
        return options_refuse(command, "--device %s: expected the index of a device", value);
    if (!is_index && !options_check_device(value, why))
        return options_refuse(command, "--device %s: %s", value, why);
    if (is_index)
        parsed->options.device = (uint32_t)index + 1;
    else
        parsed->device = value;
    parsed->index_given |= is_index;
    return 0;
}

/* Sets the capacity to what the device has for one process, unless --capacity was given. */
static void set_capacity(arguments *parsed)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    if (parsed->device == NULL || parsed->options.capacity_bytes > 0 ||
        rvl_profile_load(parsed->device, &profile) != RVL_OK) /* set_device() has checked it */
        return;
    uint64_t taken = profile.driver.context_bytes + profile.driver.first_kernel_bytes;
    parsed->options.capacity_bytes =
        profile.capacity_bytes > taken ? profile.capacity_bytes - taken : 1;
}

static int add_setting(const command_spec *command, const option_spec *option, char *value,
                       void *user)
{
    static const char capacity[] = "capacity=";
    (void)option;
    arguments *parsed = user;
    if (strncmp(value, capacity, strlen(capacity)) != 0)
        parsed->settings[parsed->options.setting_count++] = value;
    else if (rvl_size_parse(value + strlen(capacity), &parsed->options.capacity_bytes) != RVL_OK)
        return options_refuse(command,
                              "--set %s: expected a size such as 80GiB after the =", value);
    return 0;
}

/* --tensors lists the recording without the allocator's model, so it excludes the model's options.
 */
static int check(const arguments *parsed, const option_line *line, int operands)
{
    static const char *const of_the_model[] = {
        "verify", "set",          "capacity",  "empty-cache-at-stages",
        "stages", "stage-prefix", "recompute", "all-frames"};
    if (operands != 1)
        return options_refuse(&snapshot_spec, "snapshot: name one snapshot");
    if (parsed->options.capacity_bytes > 0 && parsed->options.capacity_bytes < CAPACITY_MIN)
        return options_refuse(&snapshot_spec,
                              "--capacity: %" PRIu64 " bytes, which no GPU has: write the unit, "
                              "such as 80GiB",
                              parsed->options.capacity_bytes);
    for (size_t i = 0; parsed->tensors && i < sizeof of_the_model / sizeof *of_the_model; i++)
        if (options_given(&snapshot_spec, line, of_the_model[i]))
            return options_refuse(&snapshot_spec,
                                  "--%s: not with --tensors, which lists what was recorded: leave "
                                  "one of them out",
                                  of_the_model[i]);
    if (parsed->tensors && parsed->device != NULL)
        return options_refuse(&snapshot_spec,
                              "--device %s: with --tensors only the index of a device in the file",
                              parsed->device);
    int status = documents_check(&snapshot_spec, &parsed->json, NULL);
    return status == 0 ? documents_check_inputs(&parsed->json, NULL, &parsed->path, 1) : status;
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
    ok = ok && table_print(rows, "  ");
    table_free(rows);
    return ok;
}

/* Whether the snapshot has stacks. Without them, lines add nothing to the table of stages. */
static bool has_stacks(const rvl_snapshot *snapshot, uint32_t stage)
{
    rvl_snapshot_line line = {.struct_size = sizeof line};
    for (uint32_t i = 0; rvl_snapshot_get_line(snapshot, stage, i, &line) == RVL_OK; i++) {
        if (line.name != NULL)
            return true;
    }
    return false;
}

static bool print_holders(const rvl_snapshot *snapshot, uint32_t count)
{
    rvl_snapshot_stage stage = {.struct_size = sizeof stage};
    bool ok = true;
    for (uint32_t i = 0; ok && i < count; i++) {
        holding held = {0};
        if (!has_stacks(snapshot, i) || rvl_snapshot_get_stage(snapshot, i, &stage) != RVL_OK)
            continue;
        ok = holding_add_stage(&held, snapshot, i);
        holding_sort(&held);
        ok = ok && holders_print(&held, stage.name);
        holding_clear(&held);
    }
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
    char size[SIZE_TEXT_BYTES], text[COUNT_TEXT_BYTES];
    printf("%s, %s, confidence: %s\n", facts->verify ? "verified" : "predicted",
           format_count(facts->event_count, "entry", "entries", text),
           facts->exact ? "exact" : "interval");
    if (!print_stages(snapshot, facts->stage_count) || !print_holders(snapshot, facts->stage_count))
        return false;
    print_divergence(facts);
    if (facts->capacity_bytes > 0)
        printf("bound: %s for the process%s\n", format_size(facts->capacity_bytes, size),
               facts->capacity_recorded ? ", as a failed request of the recording shows" : "");
    if (facts->oom_count > 0)
        printf("%s did not fit; the first is entry %" PRIu64 ", %s\n",
               format_count(facts->oom_count, "request", "requests", text), facts->oom_event,
               format_size(facts->oom_requested_bytes, size));
    if (facts->skipped_count > 0)
        printf("%s skipped\n",
               format_count(facts->skipped_count, "entry was", "entries were", text));
    for (uint32_t i = 0; i < facts->note_count; i++)
        printf("note: %s\n", rvl_snapshot_note(snapshot, i));
    return true;
}

/* ---- Running ---- */

static int write_json(const rvl_snapshot *snapshot, const option_document *asked)
{
    char *json = NULL;
    if (!asked->wanted)
        return 0;
    (void)rvl_snapshot_to_json(snapshot, &json);
    int status = document_write_text(asked, json);
    rvl_string_free(json);
    return status;
}

static int list_tensors(const arguments *parsed)
{
    char *json;
    progress_begin("snapshot", NULL);
    rvl_status status = rvl_snapshot_get_tensors(parsed->path, &parsed->options, &json);
    progress_end();
    if (status != RVL_OK)
        return explain_replay(status);
    option_document listed = parsed->json;
    listed.wanted = true;
    int code = document_write_text(&listed, json);
    rvl_string_free(json);
    return code;
}

static int run(const arguments *parsed)
{
    if (parsed->tensors)
        return list_tensors(parsed);
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    rvl_snapshot *snapshot = NULL;
    rvl_snapshot_options options = parsed->options;
    options.flags |= RVL_SNAPSHOT_HOLDERS;
    progress_begin("snapshot", NULL);
    rvl_status status = rvl_snapshot_run(parsed->path, &options, &snapshot);
    progress_end();
    if (status != RVL_OK)
        return explain_replay(status);
    (void)rvl_snapshot_get_facts(snapshot, &facts);
    bool printed = document_is_printed(&parsed->json) || print_report(snapshot, &facts);
    int code = facts.diverged || facts.oom_count > 0 ? EXIT_DOES_NOT_FIT : EXIT_FITS;
    int written = printed ? write_json(snapshot, &parsed->json)
                          : complain(EXIT_INTERNAL, "out of host memory");
    rvl_snapshot_close(snapshot);
    return written != 0 ? written : code;
}

int command_snapshot(int argc, char **argv)
{
    arguments parsed = {.options = {.struct_size = sizeof parsed.options}};
    option_line line;
    parsed.settings = calloc((size_t)argc, sizeof *parsed.settings);
    if (parsed.settings == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    if (options_parse(&snapshot_spec, argc, argv, &parsed, &line)) {
        parsed.path = argv[line.first];
        parsed.options.settings = parsed.settings;
        line.status = check(&parsed, &line, argc - line.first);
        set_capacity(&parsed);
        if (line.status == 0)
            line.status = run(&parsed);
    }
    free(parsed.settings);
    return line.status;
}
