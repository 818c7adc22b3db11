/* SPDX-License-Identifier: MIT */
/* reveille fit: finds the largest number with which a program fits, by runs on simulated GPUs. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "fit/fit.h"
#include "interrupt.h"
#include "progress.h"
#include "simulate.h"

#define FIELD(name) offsetof(fit_arguments, name)

const command_spec fit_spec = {
    .name = "fit",
    .summary = "find the largest number with which a program fits",
    .usage = "--find NAME=NUMBERS [OPTION]... COMMAND [ARGUMENT]...",
    .description =
        "Runs COMMAND on simulated GPUs, as `reveille run` does, with numbers in place of "
        "`{NAME}`, and prints the largest number with which it fits: no request is refused, and "
        "the headroom stays free. The number is doubled from FIRST on until one does not fit, and "
        "the interval between is divided. Several numbers run at once. In a list of numbers, such "
        "as the divisors of a batch, places are searched in the same way.\n\n"
        "Sizes are rounded, so a larger number may fit again. The search also tries a few numbers "
        "above the edge, and names one that fits. A command that fails for another reason than "
        "memory ends the search.",
    .options =
        (const option_spec[]){
            {.kind = OPTION_STRING,
             .name = "find",
             .value = "NAME=NUMBERS",
             .help = "the name, and what to search: FIRST..LAST, or numbers in ascending order, "
                     "separated by commas; the command has `{NAME}` in the number's place",
             .usual = "required",
             .expected = "a name and whole numbers, such as batch=1..512 or batch=1,2,4,8",
             .field = FIELD(find)},
            {.kind = OPTION_STRING,
             .name = "device",
             .value = "DEVICE,...",
             .help = "a profile (`reveille devices` lists them), a file that `reveille calibrate` "
                     "wrote, or a size; several devices are searched separately",
             .usual = SIMULATE_DEVICE_USUAL,
             .field = FIELD(devices)},
            OPTION_OF_GPUS(FIELD(gpus)),
            {.kind = OPTION_NUMBER,
             .name = "jobs",
             .value = "N",
             .help = "number of runs at once; each needs its own host memory",
             .usual = "the number of cores",
             .expected = "a number from 1 to 64",
             .least = 1,
             .most = SEARCH_AT_ONCE_MAX,
             .field = FIELD(jobs)},
            OPTION_OF_HEADROOM(FIELD(headroom)),
            {.kind = OPTION_NUMBER,
             .name = "timeout",
             .value = "SECONDS",
             .help = "end a run that takes longer, and the search with it",
             .usual = "none",
             .expected = "a number of seconds from 1 to 604800",
             .least = 1,
             .most = 604800,
             .field = FIELD(timeout_s)},
            {.kind = OPTION_STRING,
             .name = "host-memory",
             .value = "SIZE",
             .help = "as for `reveille run`",
             .usual = "no limit",
             .field = FIELD(host_memory)},
            {.kind = OPTION_STRING,
             .name = "keep-contents",
             .value = "SIZE",
             .help = "as for `reveille run`",
             .usual = "1MiB",
             .field = FIELD(keep_contents)},
            {.kind = OPTION_FILE,
             .name = "response-lengths",
             .value = "RULE",
             .help = "as for `reveille run`",
             .usual = "max: no sequence ends before its limit",
             .field = FIELD(response_lengths)},
            {.kind = OPTION_STRING,
             .name = "response-seed",
             .value = "N",
             .help = "as for `reveille run`",
             .usual = "0",
             .field = FIELD(response_seed)},
            OPTION_OF_STAGES(FIELD(stages),
                             "as for `reveille run`: the result then names the stage that binds",
                             "one stage, \"run\""),
            OPTION_OF_JSON(FIELD(json)),
            OPTION_OF_COLOR,
            OPTION_OF_PROGRESS,
            {.kind = OPTION_END},
        },
    .exits = (const text_entry[]){{"0", "a number fits, on every device"},
                                  {"3", "none fits, on some device"},
                                  {"2", "bad usage, or the command failed for another reason "
                                        "than memory"},
                                  {"1", "an internal failure"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille fit --find batch=1..512 -- python train.py --batch {batch}",
             "The largest batch on an H200."},
            {"reveille fit --find n=1..64 --device a100-40g,h100-80g --gpus 2 -- torchrun "
             "--nproc-per-node 2 train.py --sequences={n}",
             "The largest number on two kinds of GPU, two of each."},
            {"reveille fit --find n=1,2,4,8 --gpus 2 --jobs 1 --stages verl. -- ./job.sh FOLDER "
             "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={n}",
             "The largest micro batch of a job of verl, which must divide the mini batch."},
            {NULL, NULL}},
    .see_also = "reveille(1), reveille-run(1), reveille-plan(1); docs/fit.md in the sources",
    .command_follows = true,
};

/* ---- Arguments ---- */

/* Parses a whole number that ends at `end`. false: invalid, or too large. */
static bool whole(const char *text, const char *end, uint64_t *value_out)
{
    char *stop = NULL;
    errno = 0;
    *value_out = strtoull(text, &stop, 10);
    return text[0] >= '0' && text[0] <= '9' && errno == 0 && stop == end && *value_out <= INT64_MAX;
}

/* Parses numbers in ascending order, separated by commas. false: invalid. *list_out is the caller's
 * also then. */
static bool read_list(const char *text, uint64_t **list_out, size_t *count_out)
{
    size_t count = 1, read = 0;
    for (const char *at = text; *at != '\0'; at++)
        count += *at == ',';
    uint64_t *list = calloc(count, sizeof *list);
    *list_out = list;
    *count_out = count;
    for (; list != NULL && read < count; read++) {
        const char *end = text + strcspn(text, ",");
        if (!whole(text, end, &list[read]) || (read > 0 && list[read] <= list[read - 1]))
            return false;
        text = end + 1;
    }
    return list != NULL;
}

static bool read_numbers(fit_arguments *parsed, const char *text)
{
    const char *dots = strstr(text, "..");
    if (dots != NULL)
        return whole(text, dots, &parsed->first) &&
               whole(dots + 2, text + strlen(text), &parsed->last);
    if (!read_list(text, &parsed->list, &parsed->list_count))
        return false;
    parsed->first = parsed->list[0];
    parsed->last = parsed->list[parsed->list_count - 1];
    return true;
}

static int read_find(fit_arguments *parsed)
{
    if (parsed->find == NULL)
        return options_refuse(&fit_spec, "fit: say what to look for: --find batch=1..512");
    const char *equals = strchr(parsed->find, '=');
    size_t length = equals != NULL ? (size_t)(equals - parsed->find) : 0;
    if (length == 0 || length > sizeof parsed->hole - 3 || strpbrk(parsed->find, "{}") != NULL ||
        !read_numbers(parsed, equals + 1))
        return options_refuse(&fit_spec,
                              "--find %s: expected a name, and two whole numbers or a list in "
                              "ascending order, such as batch=1..512 or batch=1,2,4,8",
                              parsed->find);
    if (parsed->first > parsed->last)
        return options_refuse(&fit_spec, "--find %s: the first number is larger than the last",
                              parsed->find);
    snprintf(parsed->hole, sizeof parsed->hole, "{%.*s}", (int)length, parsed->find);
    return 0;
}

static int read_devices(fit_arguments *parsed)
{
    char why[DEVICE_WHY_BYTES];
    parsed->device_list = strdup(parsed->devices);
    char *rest = parsed->device_list;
    if (rest == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    for (char *each; (each = strsep(&rest, ",")) != NULL;) {
        if (parsed->device_count == FIT_DEVICES_MAX)
            return options_refuse(&fit_spec, "--device: more than %d", FIT_DEVICES_MAX);
        if (!options_check_device(each, why))
            return options_refuse(&fit_spec, "--device %s: %s", each, why);
        parsed->device[parsed->device_count++] = each;
    }
    return 0;
}

static int check(fit_arguments *parsed)
{
    bool has_hole = false;
    int status = read_find(parsed);
    if (status != 0)
        return status;
    if (parsed->words[0] == NULL)
        return options_refuse(&fit_spec, "fit: name the command to run");
    for (char **word = parsed->words; *word != NULL; word++)
        has_hole = has_hole || strstr(*word, parsed->hole) != NULL;
    if (!has_hole)
        return options_refuse(&fit_spec,
                              "the command has no %s, so every number would give the same run",
                              parsed->hole);
    return read_devices(parsed);
}

/* ---- Search ---- */

static bool keep_runs(fit_result *result, const fit_run *runs, size_t count)
{
    fit_run *more = realloc(result->runs, (result->count + count) * sizeof *more);
    if (more == NULL)
        return false;
    memcpy(more + result->count, runs, count * sizeof *runs);
    result->runs = more;
    result->count += count;
    return true;
}

/* Runs one round of values at once, and gives their results to the search. */
static int try_values(const fit_arguments *arguments, const uint64_t *values, size_t count,
                      fit_result *result)
{
    fit_run runs[SEARCH_AT_ONCE_MAX] = {{0}};
    int code = fit_run_all(arguments, result->device, values, count, runs);
    if (code != 0 || interrupt_came())
        return code;
    if (!keep_runs(result, runs, count)) {
        for (size_t i = 0; i < count; i++)
            fit_run_free(&runs[i]);
        return complain(EXIT_INTERNAL, "out of host memory");
    }
    for (size_t i = 0; i < count; i++)
        search_answer(&result->of, values[i], runs[i].fits);
    return 0;
}

/* Returns the run with the smallest value that failed for another reason than memory. NULL: none,
 * or a smaller value did not fit: larger ones may fail because of that. */
static const fit_run *first_broken(const fit_result *result)
{
    const fit_run *found = NULL;
    uint64_t edge = UINT64_MAX;
    for (size_t i = 0; i < result->count; i++) {
        const fit_run *each = &result->runs[i];
        if (each->broken && (found == NULL || each->value < found->value))
            found = each;
        if (!each->broken && !each->fits && each->value < edge)
            edge = each->value;
    }
    return found != NULL && found->value < edge ? found : NULL;
}

static int search_on(const fit_arguments *arguments, fit_result *result)
{
    uint64_t values[SEARCH_AT_ONCE_MAX];
    size_t count;
    int code = 0;
    if (!(arguments->list != NULL
              ? search_begin_list(&result->of, arguments->list, arguments->list_count)
              : search_begin(&result->of, arguments->first, arguments->last)))
        return complain(EXIT_INTERNAL, "out of host memory");
    while (code == 0 && result->broken == NULL && !interrupt_came() &&
           (count = search_next(&result->of, values, arguments->jobs)) > 0) {
        code = try_values(arguments, values, count, result);
        result->broken = first_broken(result);
        progress_report(0, 0, result->count);
    }
    return code;
}

/* Returns the exit status; 0: a number fits on every device. */
static int answer_of(const fit_result *results, size_t count)
{
    uint64_t largest;
    int code = EXIT_FITS;
    for (size_t i = 0; i < count; i++) {
        if (results[i].broken != NULL)
            return EXIT_BAD_INPUT;
        if (!search_largest(&results[i].of, &largest))
            code = EXIT_DOES_NOT_FIT;
    }
    return code;
}

static int run(fit_arguments *parsed)
{
    fit_result results[FIT_DEVICES_MAX] = {{0}};
    size_t done = 0;
    int code = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (parsed->jobs == 0)
        parsed->jobs = cores < 1                    ? 1
                       : cores > SEARCH_AT_ONCE_MAX ? SEARCH_AT_ONCE_MAX
                                                    : (uint32_t)cores;
    interrupt_watch();
    progress_begin("fit", "runs");
    for (; done < parsed->device_count && code == 0 && !interrupt_came(); done++) {
        results[done].device = parsed->device[done];
        code = search_on(parsed, &results[done]);
    }
    progress_end();
    interrupt_unwatch();
    if (interrupt_came())
        code = complain(EXIT_INTERRUPTED, "interrupted");
    int printed = code == 0 ? fit_print(parsed, results, done) : 0;
    if (code == 0)
        code = printed != 0 ? printed : answer_of(results, done);
    for (size_t i = 0; i < done; i++) {
        for (size_t k = 0; k < results[i].count; k++)
            fit_run_free(&results[i].runs[k]);
        free(results[i].runs);
        search_end(&results[i].of);
    }
    return code;
}

int command_fit(int argc, char **argv)
{
    fit_arguments parsed = {.devices = SIMULATE_DEVICE_USUAL, .gpus = 1};
    option_line line;
    if (!options_parse(&fit_spec, argc, argv, &parsed, &line))
        return line.status;
    parsed.words = argv + line.first;
    int status = check(&parsed);
    if (status == 0)
        status = documents_check(&fit_spec, &parsed.json, NULL);
    if (status == 0)
        status = run(&parsed);
    free(parsed.device_list);
    free(parsed.list);
    return status;
}
