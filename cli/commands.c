/* SPDX-License-Identifier: MIT */
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "command.h"

const subcommand commands[] = {
    {&replay_spec, command_replay},
    {&record_spec, command_record},
    {&run_spec, command_run},
    {&weights_spec, command_weights},
    {&fit_spec, command_fit},
    {&model_spec, command_model},
    {&plan_spec, command_plan},
    {&check_spec, command_check},
    {&compare_spec, command_compare},
    {&report_spec, command_report},
    {&snapshot_spec, command_snapshot},
    {&devices_spec, command_devices},
    {&calibrate_spec, command_calibrate},
    {&store_spec, command_store},
    {&sleep_spec, command_sleep},
    {&wake_spec, command_wake},
    {&completion_spec, command_completion},
    {&manual_spec, command_manual},
    {NULL, NULL},
};

const command_spec reveille_spec = {
    .summary = "release and reclaim GPU memory, and predict how much a job needs",
    .usage = "COMMAND [ARGUMENT]...\nhelp [COMMAND]\n--help | --version",
    .description =
        "Predicts the GPU memory of programs before they have a GPU: a trace, a model's config or "
        "a PyTorch snapshot is replayed on a simulated device, and the peak of every stage is "
        "printed with its holders. Traces are recorded from unmodified programs.\n\n"
        "`reveille help COMMAND` and `man reveille-COMMAND` describe a command.",
    .options = (const option_spec[]){{.kind = OPTION_END}},
    .exits = (const text_entry[]){{"0", "success: everything fits"},
                                  {"1", "an internal failure: no memory, or a failed write"},
                                  {"2", "bad usage or bad input: a line says where and why"},
                                  {"3", "something does not fit, is over budget, or grew"},
                                  {NULL, NULL}},
    .examples =
        (const text_entry[]){
            {"reveille record -o run.rvt python train.py", "Record an unmodified program."},
            {"reveille run --device h100-80g python train.py",
             "Run it without a GPU, on a simulated one."},
            {"reveille calibrate -o card.json",
             "Measure this machine's card, as a device for all commands."},
            {"reveille replay run.rvt --device h100-80g",
             "Does the recorded program fit another kind of GPU?"},
            {"reveille model config.json -o step.rvt --tp 4 --train fsdp:8",
             "Without a program: make the trace of a step from a model's config."},
            {"reveille plan --model config.json --device h200,h100-80g --tp 1,2,4,8 --sweep",
             "Find the fewest and smallest GPUs that a model fits."},
            {"reveille check memory.toml", "Compare peaks with budgets, in CI."},
            {NULL, NULL}},
    .environment =
        (const text_entry[]){
            {"NO_COLOR", "If set and not empty, nothing is coloured unless `--color` says so."},
            {"COLUMNS", "The width that tables and charts on a terminal are fitted to."},
            {"LC_ALL, LC_CTYPE, LANG",
             "The locale. Charts in the terminal are drawn in ASCII if it does not use UTF-8."},
            {NULL, NULL}},
    .see_also = "reveille-replay(1), reveille-record(1), reveille-run(1), reveille-fit(1), "
                "reveille-model(1), reveille-weights(1), "
                "reveille-plan(1), reveille-check(1), reveille-compare(1), reveille-report(1), "
                "reveille-snapshot(1), "
                "reveille-devices(1), reveille-calibrate(1), reveille-store(1), "
                "reveille-sleep(1), reveille-wake(1), "
                "reveille-completion(1), reveille-manual(1)",
};

static const char *nearest(const char *name)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (const subcommand *each = commands; each->spec != NULL; each++) {
        size_t distance = suggest_distance(name, each->spec->name);
        if (suggest_matches(name, each->spec->name) && distance < least) {
            best = each->spec->name;
            least = distance;
        }
    }
    return best;
}

const subcommand *commands_find(const char *name)
{
    for (const subcommand *each = commands; each->spec != NULL; each++) {
        if (strcmp(each->spec->name, name) == 0)
            return each;
    }
    const char *meant = nearest(name);
    options_refuse(&reveille_spec, "unknown command %s%s%s%s", name,
                   meant != NULL ? ": did you mean " : "", meant != NULL ? meant : "",
                   meant != NULL ? "?" : "");
    return NULL;
}
