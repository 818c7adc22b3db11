/* SPDX-License-Identifier: MIT */
/* The options of `reveille plan`: every setting of a step, with a list of values each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

#define FRACTION_TEXT_BYTES 16
#define RANGE_MAX 10000

static int no_memory(void)
{
    return complain(EXIT_INTERNAL, "out of host memory");
}

/* ---- Lists ---- */

static bool add_value(plan_axis *axis, const char *text, size_t length)
{
    char **values = realloc(axis->values, (axis->count + 1) * sizeof *values);
    if (values == NULL)
        return false;
    axis->values = values;
    values[axis->count] = strndup(text, length);
    return values[axis->count] != NULL && ++axis->count > 0;
}

/* Adds the values of a list such as "1,2,4". Refuses empty values. Returns 0 or the exit status. */
static int add_list(plan_axis *axis, const char *list)
{
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        if (length == 0)
            return options_refuse(&plan_spec, "an empty value in the list \"%s\"", list);
        if (!add_value(axis, at, length))
            return no_memory();
        at += length;
        if (*at == '\0')
            return 0;
    }
}

/* Writes 650000 as "0.65". */
static void write_fraction(uint32_t ppm, char text[FRACTION_TEXT_BYTES])
{
    snprintf(text, FRACTION_TEXT_BYTES, "%u.%06u", ppm / 1000000, ppm % 1000000);
    size_t length = strlen(text);
    while (text[length - 1] == '0')
        text[--length] = '\0';
    if (text[length - 1] == '.')
        text[length - 1] = '\0';
}

/* Parses a memory fraction into parts per million. */
static bool parse_fraction(const char *text, uint32_t *ppm_out)
{
    rvl_model_options options = {.struct_size = sizeof options};
    bool parsed = rvl_model_options_set(&options, "mem-fraction", text) == RVL_OK;
    *ppm_out = options.mem_fraction_ppm;
    return parsed;
}

/* Adds the values of a range "FROM:TO:STEP", such as "0.6:0.9:0.05". TO is included. */
static int add_range(plan_axis *axis, const char *range)
{
    char parts[3][FRACTION_TEXT_BYTES] = {"", "", ""}, text[FRACTION_TEXT_BYTES];
    uint32_t from, to, step;
    int end = 0;
    if (sscanf(range, "%15[0-9.]:%15[0-9.]:%15[0-9.]%n", parts[0], parts[1], parts[2], &end) != 3 ||
        range[end] != '\0' || !parse_fraction(parts[0], &from) || !parse_fraction(parts[1], &to) ||
        !parse_fraction(parts[2], &step) || from > to || (to - from) / step > RANGE_MAX)
        return options_refuse(
            &plan_spec, "--mem-fraction %s: expected FROM:TO:STEP, such as 0.6:0.9:0.05", range);
    for (uint32_t ppm = from; ppm <= to; ppm += step) {
        write_fraction(ppm, text);
        if (!add_value(axis, text, strlen(text)))
            return no_memory();
    }
    return 0;
}

static plan_axis *axis_named(plan_arguments *arguments, const char *name)
{
    for (size_t i = 0; i < arguments->axis_count; i++) {
        if (strcmp(arguments->axes[i].name, name) == 0)
            return &arguments->axes[i];
    }
    plan_axis *axis = &arguments->axes[arguments->axis_count++];
    *axis = (plan_axis){.name = name};
    return axis;
}

static int add_values(plan_arguments *arguments, const char *name, const char *list)
{
    plan_axis *axis = axis_named(arguments, name);
    if (strcmp(name, "model") == 0) /* a path can contain a comma */
        return add_value(axis, list, strlen(list)) ? 0 : no_memory();
    if (strcmp(name, "mem-fraction") == 0 && strchr(list, ':') != NULL)
        return add_range(axis, list);
    return add_list(axis, list);
}

static int check_value(const char *name, const char *value)
{
    rvl_model_options options = {.struct_size = sizeof options};
    char why[MODEL_WHY_BYTES], device_why[DEVICE_WHY_BYTES];
    if (strcmp(name, "model") == 0)
        return 0;
    if (!model_set(&options, name, value, why))
        return options_refuse(&plan_spec, "%s", why);
    if (strcmp(name, "device") == 0 && !options_check_device(value, device_why))
        return options_refuse(&plan_spec, "--device %s: %s", value, device_why);
    return 0;
}

static int check_values(const plan_arguments *arguments)
{
    for (size_t i = 0; i < arguments->axis_count; i++) {
        const plan_axis *axis = &arguments->axes[i];
        for (size_t k = 0; k < axis->count; k++) {
            int status = check_value(axis->name, axis->values[k]);
            if (status != 0)
                return status;
        }
    }
    return 0;
}

/* ---- Command line ---- */

static int add_setting(const command_spec *command, const option_spec *option, char *list,
                       void *user);
static int add_given(const command_spec *command, const option_spec *option, char *value,
                     void *user);

#define FIELD(name) offsetof(plan_arguments, name)

const command_spec plan_spec = {
    .name = "plan",
    .summary = "find what fits: a tag's largest size, the cheapest settings",
    .usage = "[OPTION]... TRACE|SNAPSHOT... --max TAG\n"
             "[OPTION]... --per-rank TRACE|SNAPSHOT... --max TAG\n"
             "[OPTION]... --model CONFIG.json --max TAG\n"
             "[OPTION]... TRACE|SNAPSHOT... --sweep [--max TAG]\n"
             "[OPTION]... --model CONFIG.json... --sweep [--max TAG]",
    .description =
        "Finds the largest size of a tag at which every stage fits and leaves the headroom, to the "
        "granule, and the stage that binds. Or evaluates all combinations of settings, and names "
        "the cheapest one that fits and leaves the headroom: the fewest GPUs, then the smallest "
        "of them. docs/plan.md in the sources has the rules.\n\n"
        "A list has values with commas between them. `--mem-fraction` also takes FROM:TO:STEP, "
        "such as 0.6:0.9:0.05. `--device` and `--wake` also apply to traces. A setting that cannot "
        "change any case is refused.\n\n"
        "Ctrl-C ends a sweep after the running cases, and prints those that are finished. A second "
        "Ctrl-C ends it at once.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_STRING,
             .name = "max",
             .value = "TAG",
             .help = "find the largest size of this tag, or of PROCESS/TAG",
             .usual = "none",
             .field = FIELD(tag)},
            {.kind = OPTION_FLAG,
             .name = "sweep",
             .help = "evaluate all combinations of the lists of values below",
             .usual = "one value of each",
             .field = FIELD(sweep)},
            OPTION_OF_HEADROOM(FIELD(headroom)),
            {.kind = OPTION_CALL,
             .name = "model",
             .value = "CONFIG.json",
             .help = "a step of this model, as `reveille model` makes it",
             .usual = "traces, merged on one clock",
             .expected = "the name of a config.json",
             .set = add_setting,
             .repeated = true,
             .files = "json"},
            {.kind = OPTION_CALL,
             .name = "device",
             .value = "DEVICE,...",
             .help = "profiles (`reveille devices` lists them) or sizes",
             .usual = "h200, or the trace's own",
             .expected = "profiles that `reveille devices` lists, or sizes such as 80GiB",
             .set = add_setting},
            {.kind = OPTION_SETTINGS, .optional = true, .set = add_setting},
            {.kind = OPTION_CALL,
             .name = "given",
             .value = "TERM=SIZE",
             .help = "a term of known size",
             .usual = "formulas",
             .expected = "TERM=SIZE, such as cuda_graph=2.5GiB",
             .set = add_given,
             .repeated = true},
            {.kind = OPTION_GROUP,
             .help = "Traces and PyTorch snapshots (which have the tag segments)"},
            OPTION_OF_CONDUCTOR(FIELD(conductor)),
            OPTION_OF_SNAPSHOT_PROCESS(FIELD(snapshot_process)),
            OPTION_OF_SNAPSHOT_DEVICE(FIELD(snapshot_device)),
            {.kind = OPTION_FLAG,
             .name = "per-rank",
             .help = "each trace is one rank of a job: find the largest size that all ranks can "
                     "have, and the rank that binds",
             .usual = "merged",
             .field = FIELD(per_rank)},
            OPTION_OF_PARTIAL(FIELD(partial), 0),
            {.kind = OPTION_GROUP, .help = "Output"},
            {.kind = OPTION_NUMBER,
             .name = "threads",
             .value = "N",
             .help = "number of threads for a sweep, or for ranks",
             .usual = "one for each core",
             .least = 1,
             .most = 1024,
             .field = FIELD(threads)},
            OPTION_OF_JSON(FIELD(json)),
            {.kind = OPTION_FLAG,
             .name = "csv",
             .help = "print a sweep as CSV",
             .usual = "a table",
             .field = FIELD(csv)},
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits =
        (const text_entry[]){
            {"0", "something fits, and leaves the headroom"},
            {"3", "nothing fits, or nothing leaves the headroom; the nearest is shown"},
            {"2", "bad usage or bad input, a trace without a stage, or no valid case"},
            {"1", "an internal failure"},
            {"130", "interrupted; the finished cases are shown"},
            {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille plan traces/qwen2.5-32b-tp2-h200.rvt --max kv_cache",
             "The largest KV cache of a recorded step."},
            {"reveille plan --model config.json --train fsdp:8 --max kv_cache",
             "The largest KV cache of a model's step, with its memory fraction."},
            {"reveille plan --model config.json --device h200,h100-80g --tp 1,2,4,8 --sweep",
             "The fewest and smallest GPUs."},
            {"reveille plan --per-rank rank*.rvt --max kv_cache",
             "The largest KV cache that all ranks of a job allow, and the rank that binds."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-model(1), reveille-devices(1); docs/plan.md in the sources",
    .operands = OPTION_TRACE_FILES,
};

static int add_setting(const command_spec *command, const option_spec *option, char *list,
                       void *user)
{
    (void)command;
    return add_values(user, option->name, list != NULL ? list : "yes");
}

static int add_given(const command_spec *command, const option_spec *option, char *value,
                     void *user)
{
    (void)option;
    char why[MODEL_WHY_BYTES];
    plan_arguments *arguments = user;
    char *equals = strchr(value, '=');
    if (equals == NULL)
        return options_refuse(command, "--given %s: expected TERM=SIZE", value);
    *equals = '\0';
    if (!model_set_given(value, equals + 1, &arguments->given[arguments->given_count], why))
        return options_refuse(command, "%s", why);
    arguments->given_count++;
    return 0;
}

/* ---- Consistency ---- */

/* Refuses settings of a step for traces, which have only a device and a wake. */
static int check_for_traces(const plan_arguments *arguments)
{
    for (size_t i = 0; i < arguments->axis_count; i++) {
        const char *name = arguments->axes[i].name;
        if (strcmp(name, "device") != 0 && strcmp(name, "wake") != 0)
            return options_refuse(&plan_spec,
                                  "--%s is a setting of a model's step: name a config with "
                                  "--model, or leave it out",
                                  name);
    }
    return arguments->given_count == 0
               ? 0
               : options_refuse(&plan_spec, "--given: only with --model: leave it out");
}

/* Whether a setting has no effect in any case. Stores the reason and the remedy in why. */
static bool is_idle_in_all(const plan_arguments *arguments, const char *name,
                           char why[MODEL_WHY_BYTES])
{
    char *no_train[] = {"none"}, *no_strategy[] = {"v3"};
    plan_axis trains = {.values = no_train, .count = 1};
    plan_axis strategies = {.values = no_strategy, .count = 1};
    const plan_axis *train = plan_find_axis(arguments, "train");
    const plan_axis *strategy = plan_find_axis(arguments, "strategy");
    train = train != NULL ? train : &trains;
    strategy = strategy != NULL ? strategy : &strategies;
    for (size_t i = 0; i < train->count * strategy->count; i++) {
        rvl_model_options options = {.struct_size = sizeof options,
                                     .given = arguments->given,
                                     .given_count = arguments->given_count,
                                     .given_size = sizeof *arguments->given};
        model_set(&options, "train", train->values[i % train->count], why);
        model_set(&options, "strategy", strategy->values[i / train->count], why);
        if (!model_setting_idle(&options, name, why))
            return false;
    }
    return true;
}

static int check_for_models(const plan_arguments *arguments, const option_line *line)
{
    static const char *const of_traces[] = {"conductor", "partial", "snapshot-process",
                                            "snapshot-device"};
    for (size_t i = 0; i < sizeof of_traces / sizeof of_traces[0]; i++) {
        if (options_given(&plan_spec, line, of_traces[i]))
            return options_refuse(&plan_spec, "--%s: only for a trace: leave it out", of_traces[i]);
    }
    for (size_t i = 0; i < arguments->axis_count; i++) {
        const char *name = arguments->axes[i].name;
        char why[MODEL_WHY_BYTES];
        if (is_idle_in_all(arguments, name, why))
            return options_refuse(&plan_spec, "--%s %s", name, why);
        if (strcmp(name, "mem-fraction") == 0 && model_is_cache(arguments->tag))
            return options_refuse(&plan_spec, "--mem-fraction is what --max kv_cache looks for: "
                                              "leave one of them out");
    }
    return 0;
}

static int check_form(const plan_arguments *arguments, const option_line *line, bool model)
{
    size_t cases = plan_case_count(arguments);
    if (arguments->trace_count > 0 && model)
        return options_refuse(&plan_spec, "--model: a model or traces, not both");
    if (arguments->trace_count == 0 && !model)
        return options_refuse(&plan_spec, "plan: name a trace, or a config with --model");
    if (arguments->tag == NULL && !arguments->sweep)
        return options_refuse(&plan_spec, "plan: say what to find: --max TAG, --sweep, or both");
    if (document_is_printed(&arguments->json) && arguments->csv)
        return options_refuse(&plan_spec, "--json, --csv: one of them can be the standard output: "
                                          "write the other to a file, as --json=FILE");
    if (arguments->csv && !arguments->sweep)
        return options_refuse(&plan_spec, "--csv: only with --sweep");
    if (cases > 1 && !arguments->sweep)
        return options_refuse(&plan_spec, "plan: lists of several values are for --sweep");
    if (arguments->per_rank && (model || arguments->tag == NULL || arguments->sweep))
        return options_refuse(&plan_spec,
                              "--per-rank: only for traces, with --max and without --sweep");
    if (options_given(&plan_spec, line, "threads") && !arguments->sweep && !arguments->per_rank)
        return options_refuse(&plan_spec,
                              "--threads: only with --sweep or --per-rank: the search for "
                              "one size uses one thread");
    return cases > PLAN_CASES_MAX
               ? options_refuse(&plan_spec, "--sweep: more than 10 million cases")
               : 0;
}

static int check(const plan_arguments *arguments, const option_line *line)
{
    bool model = plan_find_axis(arguments, "model") != NULL;
    int status = check_form(arguments, line, model);
    if (status == 0 && !model)
        status = check_for_traces(arguments);
    if (status == 0)
        status = check_values(arguments);
    if (status == 0)
        status = model ? check_for_models(arguments, line)
                       : options_check_snapshots(&plan_spec, line, arguments->traces,
                                                 arguments->trace_count);
    return status;
}

static int add_traces(plan_arguments *arguments)
{
    plan_axis *axis = axis_named(arguments, "trace");
    for (size_t i = 0; i < arguments->trace_count; i++) {
        if (!add_value(axis, arguments->traces[i], strlen(arguments->traces[i])))
            return no_memory();
    }
    return 0;
}

static int parse_words(int argc, char **argv, plan_arguments *arguments)
{
    option_line line;
    if (!options_parse(&plan_spec, argc, argv, arguments, &line)) {
        arguments->answered = true;
        return line.status;
    }
    arguments->traces = (const char *const *)(argv + line.first);
    arguments->trace_count = (size_t)(argc - line.first);
    int status = check(arguments, &line);
    if (status == 0)
        status = documents_check(&plan_spec, &arguments->json, NULL);
    if (status == 0)
        status = documents_check_inputs(&arguments->json, NULL, arguments->traces,
                                        arguments->trace_count);
    return status == 0 && arguments->per_rank ? add_traces(arguments) : status;
}

/* Returns the index of an axis's option in the table; the number of options: it has no option. */
static int place_of(const plan_axis *axis)
{
    const option_spec *option;
    int place = 0;
    while ((option = options_at(&plan_spec, (size_t)place)) != NULL &&
           (option->kind == OPTION_GROUP || strcmp(option->name, axis->name) != 0))
        place++;
    return place;
}

/* Orders axes by the table of options, models and devices first, so that the order of options on
 * the command line does not matter. */
static int compare_axes(const void *left, const void *right)
{
    return place_of(left) - place_of(right);
}

int plan_parse(int argc, char **argv, plan_arguments *arguments)
{
    *arguments = (plan_arguments){.given = calloc((size_t)argc, sizeof *arguments->given)};
    if (arguments->given == NULL)
        return no_memory();
    int status = parse_words(argc, argv, arguments);
    qsort(arguments->axes, arguments->axis_count, sizeof *arguments->axes, compare_axes);
    return status;
}

void plan_arguments_free(plan_arguments *arguments)
{
    for (size_t i = 0; i < arguments->axis_count; i++) {
        for (size_t k = 0; k < arguments->axes[i].count; k++)
            free(arguments->axes[i].values[k]);
        free(arguments->axes[i].values);
    }
    free(arguments->given);
    *arguments = (plan_arguments){0};
}

/* ---- Cases ---- */

const plan_axis *plan_find_axis(const plan_arguments *arguments, const char *name)
{
    for (size_t i = 0; i < arguments->axis_count; i++) {
        if (strcmp(arguments->axes[i].name, name) == 0)
            return &arguments->axes[i];
    }
    return NULL;
}

size_t plan_case_count(const plan_arguments *arguments)
{
    size_t count = 1;
    for (size_t i = 0; i < arguments->axis_count && count <= PLAN_CASES_MAX; i++)
        count *= arguments->axes[i].count;
    return count;
}

const char *plan_value(const plan_arguments *arguments, size_t number, size_t axis)
{
    for (size_t i = arguments->axis_count - 1; i > axis; i--)
        number /= arguments->axes[i].count;
    return arguments->axes[axis].values[number % arguments->axes[axis].count];
}
