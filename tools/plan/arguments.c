/* SPDX-License-Identifier: MIT */
/* Options of `reveille plan`: every setting of a step, each with a list of values. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "plan/plan.h"

#define FRACTION_TEXT_BYTES 16
#define RANGE_MAX 10000

static int usage(const char *format, const char *what)
{
    return options_bad_usage("plan", format, what);
}

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

/* "1,2,4". A comma within brackets or nothing between commas is no value. */
static int add_list(plan_axis *axis, const char *list)
{
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        if (length == 0)
            return usage("an empty value in the list \"%s\"", list);
        if (!add_value(axis, at, length))
            return no_memory();
        at += length;
        if (*at == '\0')
            return 0;
    }
}

/* "0.65" of 650000. */
static void write_fraction(uint32_t ppm, char text[FRACTION_TEXT_BYTES])
{
    snprintf(text, FRACTION_TEXT_BYTES, "%u.%06u", ppm / 1000000, ppm % 1000000);
    size_t length = strlen(text);
    while (text[length - 1] == '0')
        text[--length] = '\0';
    if (text[length - 1] == '.')
        text[length - 1] = '\0';
}

/* "0.6:0.9:0.05": from, to (included), step. */
static int add_range(plan_axis *axis, const char *range)
{
    char parts[3][FRACTION_TEXT_BYTES] = {"", "", ""}, text[FRACTION_TEXT_BYTES];
    uint32_t from, to, step;
    int end = 0;
    if (sscanf(range, "%15[0-9.]:%15[0-9.]:%15[0-9.]%n", parts[0], parts[1], parts[2], &end) != 3 ||
        range[end] != '\0' || !model_parse_fraction(parts[0], &from) ||
        !model_parse_fraction(parts[1], &to) || !model_parse_fraction(parts[2], &step) ||
        from > to || (to - from) / step > RANGE_MAX)
        return usage("--mem-fraction %s: expected FROM:TO:STEP, such as 0.6:0.9:0.05", range);
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

static int add_setting(plan_arguments *arguments, const char *name, const char *list)
{
    plan_axis *axis = axis_named(arguments, name);
    if (strcmp(name, "model") == 0) /* a path may hold a comma */
        return add_value(axis, list, strlen(list)) ? 0 : no_memory();
    if (strcmp(name, "mem-fraction") == 0 && strchr(list, ':') != NULL)
        return add_range(axis, list);
    return add_list(axis, list);
}

static int check_values(const plan_arguments *arguments)
{
    rvl_model_options options = {.struct_size = sizeof options};
    rvl_profile profile = {.struct_size = sizeof profile};
    char why[MODEL_WHY_BYTES];
    for (size_t i = 0; i < arguments->axis_count; i++) {
        const plan_axis *axis = &arguments->axes[i];
        for (size_t k = 0; k < axis->count && strcmp(axis->name, "model") != 0; k++) {
            if (!model_set(&options, axis->name, axis->values[k], why))
                return usage("%s", why);
            if (strcmp(axis->name, "device") == 0 &&
                rvl_profile_find(axis->values[k], &profile) != RVL_OK)
                return usage("--device %s: neither a size nor a profile that `reveille devices` "
                             "lists",
                             axis->values[k]);
        }
    }
    return 0;
}

/* ---- The command line ---- */

enum {
    SETTING = 256,
    SWITCH,
    GIVEN,
    MAX,
    THREADS,
    CONDUCTOR,
    SNAPSHOT_PROCESS,
    SNAPSHOT_DEVICE,
    SWEEP,
    PER_RANK,
    PARTIAL,
    CSV,
    JSON,
    HELP
};

static const struct option long_options[] = {
    {"model", required_argument, NULL, SETTING},
    {"device", required_argument, NULL, SETTING},
    {"tp", required_argument, NULL, SETTING},
    {"pp", required_argument, NULL, SETTING},
    {"pp-rank", required_argument, NULL, SETTING},
    {"ep", required_argument, NULL, SETTING},
    {"mem-fraction", required_argument, NULL, SETTING},
    {"weights-dtype", required_argument, NULL, SETTING},
    {"kv-dtype", required_argument, NULL, SETTING},
    {"train", required_argument, NULL, SETTING},
    {"reshard", optional_argument, NULL, SWITCH},
    {"micro-batch", required_argument, NULL, SETTING},
    {"seq-len", required_argument, NULL, SETTING},
    {"recompute", optional_argument, NULL, SWITCH},
    {"optimizer", required_argument, NULL, SETTING},
    {"strategy", required_argument, NULL, SETTING},
    {"wake", required_argument, NULL, SETTING},
    {"given", required_argument, NULL, GIVEN},
    {"max", required_argument, NULL, MAX},
    {"sweep", no_argument, NULL, SWEEP},
    {"threads", required_argument, NULL, THREADS},
    {"conductor", required_argument, NULL, CONDUCTOR},
    {"snapshot-process", required_argument, NULL, SNAPSHOT_PROCESS},
    {"snapshot-device", required_argument, NULL, SNAPSHOT_DEVICE},
    {"per-rank", no_argument, NULL, PER_RANK},
    {"partial", no_argument, NULL, PARTIAL},
    {"csv", no_argument, NULL, CSV},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static int parse_given(char *text, plan_arguments *arguments)
{
    char why[MODEL_WHY_BYTES];
    char *equals = strchr(text, '=');
    if (equals == NULL)
        return usage("--given %s: expected TERM=SIZE", text);
    *equals = '\0';
    if (!model_set_given(text, equals + 1, &arguments->given[arguments->given_count], why))
        return usage("%s", why);
    arguments->given_count++;
    return 0;
}

static int parse_threads(const char *text, uint32_t *threads_out)
{
    char *end;
    unsigned long threads = strtoul(text, &end, 10);
    if (*text < '1' || *text > '9' || *end != '\0' || threads > 1024)
        return usage("--threads %s: expected a whole number from 1 to 1024", text);
    *threads_out = (uint32_t)threads;
    return 0;
}

static int parse_flag(int option, plan_arguments *arguments)
{
    bool *flags[] = {
        [SWEEP - SWEEP] = &arguments->sweep,     [PER_RANK - SWEEP] = &arguments->per_rank,
        [PARTIAL - SWEEP] = &arguments->partial, [CSV - SWEEP] = &arguments->csv,
        [JSON - SWEEP] = &arguments->json,       [HELP - SWEEP] = &arguments->help};
    *flags[option - SWEEP] = true;
    return 0;
}

static int parse_option(int option, int index, char *word, plan_arguments *arguments)
{
    switch (option) {
    case SETTING:
        return add_setting(arguments, long_options[index].name, optarg);
    case SWITCH:
        return add_setting(arguments, long_options[index].name, optarg != NULL ? optarg : "yes");
    case GIVEN:
        return parse_given(optarg, arguments);
    case MAX:
        arguments->tag = optarg;
        return 0;
    case THREADS:
        return parse_threads(optarg, &arguments->threads);
    case CONDUCTOR:
        arguments->conductor = optarg;
        return 0;
    case SNAPSHOT_PROCESS:
        arguments->snapshot_process = optarg;
        return 0;
    case SNAPSHOT_DEVICE:
        arguments->snapshot_placed = true;
        return options_snapshot_device("plan", optarg, &arguments->snapshot_device);
    case ':':
    case '?':
        return options_bad_option("plan", option, word);
    default:
        return parse_flag(option, arguments);
    }
}

/* Settings of a step mean nothing to a trace, but for the device and the wake. */
static int check_settings(const plan_arguments *arguments)
{
    if (arguments->trace_count == 0) {
        bool of_traces = arguments->conductor != NULL || arguments->partial ||
                         arguments->snapshot_process != NULL || arguments->snapshot_placed;
        return of_traces ? usage("%s: only for a trace",
                                 "--conductor, --partial, --snapshot-process, --snapshot-device")
                         : 0;
    }
    for (size_t i = 0; i < arguments->axis_count; i++) {
        const char *name = arguments->axes[i].name;
        if (strcmp(name, "device") != 0 && strcmp(name, "wake") != 0)
            return usage("--%s is a setting of a model's step: name a config with --model, or "
                         "leave it out",
                         name);
    }
    return arguments->given_count == 0 ? 0 : usage("%s: only with --model", "--given");
}

static int check(const plan_arguments *arguments)
{
    size_t cases = plan_case_count(arguments);
    bool model = plan_find_axis(arguments, "model") != NULL;
    if (arguments->trace_count > 0 && model)
        return usage("%s: a model or traces, not both", "--model");
    if (arguments->trace_count == 0 && !model)
        return usage("%s: name a trace, or a config with --model", "plan");
    if (arguments->tag == NULL && !arguments->sweep)
        return usage("%s: say what to find: --max TAG, --sweep, or both", "plan");
    if (arguments->json && arguments->csv)
        return usage("%s: one of them", "--json, --csv");
    if (arguments->csv && !arguments->sweep)
        return usage("%s: only with --sweep", "--csv");
    if (cases > 1 && !arguments->sweep)
        return usage("%s: lists of several values are for --sweep", "plan");
    if (arguments->per_rank && (model || arguments->tag == NULL || arguments->sweep))
        return usage("%s: only for traces, with --max and without --sweep", "--per-rank");
    if (cases > PLAN_CASES_MAX)
        return usage("%s: more than 10 million cases", "--sweep");
    int status = check_settings(arguments);
    return status == 0 ? check_values(arguments) : status;
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
    options_begin();
    for (;;) {
        char *word;
        int index = 0;
        int option = options_next(argc, argv, ":", long_options, &index, &word);
        if (option == -1)
            break;
        int status = parse_option(option, index, word, arguments);
        if (status != 0 || arguments->help)
            return status;
    }
    arguments->traces = (const char *const *)(argv + optind);
    arguments->trace_count = (size_t)(argc - optind);
    int status = check(arguments);
    return status == 0 && arguments->per_rank ? add_traces(arguments) : status;
}

/* The order of the command line does not change the order of the cases: models, then devices. */
static int compare_axes(const void *left, const void *right)
{
    const plan_axis *axes[] = {left, right};
    int places[2];
    for (int i = 0; i < 2; i++) {
        for (places[i] = 0; long_options[places[i]].name != NULL; places[i]++) {
            if (strcmp(long_options[places[i]].name, axes[i]->name) == 0)
                break;
        }
    }
    return places[0] - places[1];
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
