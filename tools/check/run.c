/* SPDX-License-Identifier: MIT */
/* Running checks: each on each of its devices, by replay. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"

#define HOLDERS_SHOWN 6
#define HOLDERS_TEXT_BYTES 1024

static int no_memory(void)
{
    return complain(EXIT_INTERNAL, "out of host memory");
}

/* ---- Replaying ---- */

static int refuse_replay(const check_item *item, rvl_status status, rvl_trace_error *error)
{
    char message[sizeof error->message + 128];
    snprintf(message, sizeof message, "check %.100s: %s", item->name,
             error->message[0] != '\0' ? error->message : rvl_status_text(status));
    snprintf(error->message, sizeof error->message, "%.*s", (int)sizeof error->message - 1,
             message);
    return explain_replay(status, error);
}

static int replay_traces(const check_item *item, const rvl_replay_options *options,
                         rvl_replay **replay_out)
{
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_status status = rvl_replay_run((const char *const *)item->traces, item->trace_count,
                                       options, &error, replay_out);
    return status == RVL_OK ? 0 : refuse_replay(item, status, &error);
}

static int replay_step(const check_item *item, const rvl_model_step *step,
                       const rvl_replay_options *options, rvl_replay **replay_out)
{
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_status status = rvl_model_step_replay(step, options, &error, replay_out);
    return status == RVL_OK ? 0 : refuse_replay(item, status, &error);
}

static int replay_model(const check_item *item, const rvl_replay_options *options,
                        rvl_replay **replay_out)
{
    rvl_model_error error = {.struct_size = sizeof error};
    rvl_model_options settings = item->options;
    rvl_model *model;
    rvl_model_step *step = NULL;
    settings.device = options->device;
    rvl_status status = rvl_model_open(item->model, &error, &model);
    if (status != RVL_OK)
        return model_explain(status, item->model, &error);
    status = rvl_model_step_make(model, &settings, &error, &step);
    int code = status == RVL_OK ? replay_step(item, step, options, replay_out)
                                : model_explain(status, item->model, &error);
    rvl_model_step_close(step);
    rvl_model_close(model);
    return code;
}

static int replay_item(const check_item *item, const char *device, rvl_replay **replay_out)
{
    rvl_replay_options options = {.struct_size = sizeof options,
                                  .device = device,
                                  .conductor = item->conductor,
                                  .wake = item->model == NULL ? item->wake : RVL_WAKE_STAGED,
                                  .budgets = item->budgets,
                                  .budget_count = item->budget_count};
    return item->model != NULL ? replay_model(item, &options, replay_out)
                               : replay_traces(item, &options, replay_out);
}

/* ---- Reading the result ---- */

static char *list_holders(const rvl_replay *replay, size_t device, uint32_t stage)
{
    char text[HOLDERS_TEXT_BYTES] = "", size[SIZE_TEXT_BYTES];
    const rvl_holder *holders;
    size_t count, length = 0;
    if (rvl_replay_get_holders(replay, device, stage, &holders, &count) != RVL_OK)
        count = 0;
    for (size_t i = 0; i < count && i < HOLDERS_SHOWN; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%.64s/%.64s %s",
                                   i > 0 ? ", " : "", holders[i].process,
                                   holders[i].tag != NULL ? holders[i].tag : "-",
                                   format_size(holders[i].bytes, size));
    return printable(text);
}

static uint64_t budget_of(const check_item *item, const char *mark)
{
    uint64_t least = 0;
    for (size_t i = 0; i < item->budget_count; i++) {
        const rvl_budget *budget = &item->budgets[i];
        if (strcmp(budget->stage, mark) == 0 && (least == 0 || budget->bytes < least))
            least = budget->bytes;
    }
    return least;
}

static bool read_stage(const rvl_replay *replay, size_t index, uint32_t number,
                       const check_item *item, check_stage *stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    rvl_replay_device device = {.struct_size = sizeof device};
    bool over;
    if (rvl_replay_get_device(replay, index, &device) != RVL_OK ||
        rvl_replay_get_stage(replay, index, number, &stats, &over) != RVL_OK)
        return false;
    *stage = (check_stage){.name = printable(stats.name),
                           .device = device.device,
                           .peak_bytes = stats.peak_bytes,
                           .capacity_bytes = device.capacity_bytes,
                           .budget_bytes = budget_of(item, stats.mark),
                           .holders = list_holders(replay, index, number),
                           .verdict = over ? CHECK_OVER_BUDGET : CHECK_OK};
    if (stats.peak_bytes > device.capacity_bytes)
        stage->verdict = CHECK_OOM;
    return stage->name != NULL && stage->holders != NULL;
}

static size_t count_stages(const rvl_replay *replay)
{
    size_t count = 0;
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        if (rvl_replay_get_device(replay, i, &device) == RVL_OK)
            count += device.stage_count;
    }
    return count;
}

static int read_replay(const rvl_replay *replay, check_result *result)
{
    size_t count = count_stages(replay);
    result->stages = calloc(count + 1, sizeof *result->stages);
    if (result->stages == NULL)
        return no_memory();
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        rvl_replay_get_device(replay, i, &device);
        for (uint32_t stage = 0; stage < device.stage_count; stage++) {
            if (!read_stage(replay, i, stage, result->item, &result->stages[result->stage_count++]))
                return no_memory();
        }
    }
    if (count == 0)
        return complain(EXIT_BAD_INPUT,
                        "check %s: the trace has no stage: mark them with rvl_stage()",
                        result->item->name);
    return 0;
}

/* ---- All of them ---- */

static int run_one(const check_item *item, const char *device, check_result *result)
{
    rvl_replay *replay = NULL;
    *result = (check_result){.item = item, .device = device != NULL ? device : "own"};
    int code = replay_item(item, device, &replay);
    if (code != 0)
        return code == EXIT_DOES_NOT_FIT ? EXIT_INTERNAL : code;
    code = read_replay(replay, result);
    rvl_replay_close(replay);
    return code;
}

int check_run(const check_file *file, check_results *results_out)
{
    check_results results = {0};
    size_t count = 0;
    int code = 0;
    for (size_t i = 0; i < file->item_count; i++)
        count += file->items[i].device_count;
    results.results = calloc(count, sizeof *results.results);
    if (results.results == NULL)
        return no_memory();
    for (size_t i = 0; i < file->item_count && code == 0; i++) {
        const check_item *item = &file->items[i];
        for (size_t k = 0; k < item->device_count && code == 0; k++)
            code = run_one(item, item->devices[k], &results.results[results.count++]);
    }
    if (code != 0)
        check_results_free(&results);
    else
        *results_out = results;
    return code;
}

void check_results_free(check_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        check_result *result = &results->results[i];
        for (size_t k = 0; k < result->stage_count; k++) {
            free(result->stages[k].name);
            free(result->stages[k].holders);
        }
        free(result->stages);
    }
    free(results->results);
    *results = (check_results){0};
}
