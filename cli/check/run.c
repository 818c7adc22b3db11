/* SPDX-License-Identifier: MIT */
/* Runs each check on each of its devices: replays its traces or its step, or the trace of its
 * command. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "check/check.h"
#include "engines.h"
#include "interrupt.h"
#include "peaks.h"
#include "progress.h"

#define FIRST_STAGE "start"
#define HOLDERS_SHOWN 6
#define HOLDERS_TEXT_BYTES 1024

static int no_memory(void)
{
    return complain(EXIT_INTERNAL, "out of host memory");
}

/* ---- Replaying ---- */

/* Stores the reason of a failed replay. Returns 0 or, without memory, the exit status. */
static int refuse_replay(rvl_status status, check_refusal *why)
{
    why->verdict = CHECK_BROKEN;
    int code = describe_replay(status, why->text, sizeof why->text);
    return code == EXIT_INTERNAL ? no_memory() : 0;
}

static int refuse_model(const char *path, rvl_status status, check_refusal *why)
{
    bool no_room = status == RVL_ERR_INVALID && strcmp(rvli_error_get()->key, "mem-fraction") == 0;
    why->verdict = no_room ? CHECK_NO_ROOM : CHECK_BROKEN;
    int code = model_describe(status, path, why->text, sizeof why->text);
    return code == EXIT_INTERNAL ? no_memory() : 0;
}

static int replay_traces(const check_item *item, const rvl_replay_options *options,
                         check_refusal *why, rvl_replay **replay_out)
{
    rvl_status status =
        rvl_replay_run((const char *const *)item->traces, item->trace_count, options, replay_out);
    return status == RVL_OK ? 0 : refuse_replay(status, why);
}

static int replay_step(const rvl_model_step *step, const rvl_replay_options *options,
                       check_refusal *why, rvl_replay **replay_out)
{
    rvl_status status = rvl_model_step_replay(step, options, replay_out);
    return status == RVL_OK ? 0 : refuse_replay(status, why);
}

static int replay_model(const check_item *item, const rvl_replay_options *options,
                        check_refusal *why, rvl_replay **replay_out)
{
    rvl_model_options settings = item->options;
    rvl_model *model;
    rvl_model_step *step = NULL;
    settings.device = options->device;
    rvl_status status = rvl_model_open(item->model, &model);
    if (status != RVL_OK)
        return refuse_model(item->model, status, why);
    status = rvl_model_step_make(model, &settings, &step);
    int code = status == RVL_OK ? replay_step(step, options, why, replay_out)
                                : refuse_model(item->model, status, why);
    rvl_model_step_close(step);
    rvl_model_close(model);
    return code;
}

/*
 * Explains the end of a command that failed or used no GPU, with the verdict of its trace. Earlier
 * text of the reason follows the verdict.
 */
static rvl_status explain_end(const char *trace, const rvl_replay_options *options,
                              check_refusal *why)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    rvl_replay *replay = NULL;
    char before[sizeof why->text];
    rvl_status status = rvl_replay_run(&trace, 1, options, &replay);
    if (status == RVL_OK)
        status = rvl_replay_get_verdict(replay, &verdict);
    if (status == RVL_OK) {
        memcpy(before, why->text, sizeof before);
        snprintf(why->text, sizeof why->text, "%s%s%.*s", verdict.text,
                 before[0] != '\0' ? "; " : "", (int)(sizeof before / 2), before);
        if (verdict.kind == RVL_VERDICT_OUT_OF_MEMORY)
            why->verdict = CHECK_OOM;
    }
    rvl_replay_close(replay);
    return status;
}

/* Runs the command and replays its trace. The trace has the device, so the replay gets none. */
static int replay_command(check_result *result, const rvl_replay_options *options,
                          check_refusal *why, rvl_replay **replay_out)
{
    char unnamed[SIMULATE_TRACE_BYTES];
    const char *trace = unnamed;
    rvl_replay_options own = *options;
    own.device = NULL;
    int file = simulate_trace(unnamed);
    if (file < 0)
        return EXIT_INTERNAL;
    int code = check_simulate(result->item, options->device, trace, why, &result->engines);
    if (code == 0 && why->verdict == CHECK_OK) {
        rvl_status status = rvl_replay_run(&trace, 1, &own, replay_out);
        code = status == RVL_OK ? 0 : refuse_replay(status, why);
    } else if (code == 0 && why->ended) {
        own.budget_count = 0; /* the file is not wrong if the command did not reach a stage */
        rvl_status status = explain_end(trace, &own, why);
        code = status == RVL_OK ? 0 : refuse_replay(status, why);
    }
    close(file);
    return code;
}

/* Sets *replay_out to NULL if there is no replay; *why then has the reason. */
static int replay_item(check_result *result, const char *device, check_refusal *why,
                       rvl_replay **replay_out)
{
    const check_item *item = result->item;
    rvl_replay_options options = {.struct_size = sizeof options,
                                  .device = device,
                                  .conductor = item->conductor,
                                  .wake = item->model == NULL ? item->wake : RVL_WAKE_STAGED,
                                  .budgets = item->budgets,
                                  .budget_count = item->budget_count,
                                  .budget_size = sizeof *item->budgets};
    *replay_out = NULL;
    verdict_ask(&item->headroom, &options);
    if (item->words != NULL)
        return replay_command(result, &options, why, replay_out);
    return item->model != NULL ? replay_model(item, &options, why, replay_out)
                               : replay_traces(item, &options, why, replay_out);
}

/* ---- Reading the result ---- */

static char *list_holders(const rvl_replay *replay, size_t device, uint32_t stage)
{
    char text[HOLDERS_TEXT_BYTES] = "", size[SIZE_TEXT_BYTES];
    rvl_holder holders[HOLDERS_SHOWN];
    size_t count, length = 0;
    if (rvl_replay_get_holders(replay, device, stage, holders, sizeof *holders, HOLDERS_SHOWN,
                               &count) != RVL_OK)
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

/* Whether another rank has a row of this name on the same device. */
static bool has_other_rank(const peak *rows, size_t count, const peak *row)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].device == row->device && rows[i].rank != row->rank &&
            strcmp(rows[i].stats.mark, row->stats.mark) == 0)
            return true;
    }
    return false;
}

/*
 * Returns a name for the row that stays the same in later runs: "forward" for a row that stands for
 * all stages of the name, "forward[rank 3]" if ranks share the device. The caller frees it. NULL:
 * no memory.
 */
static char *name_row(const rvl_replay *replay, const peak *rows, size_t count, const peak *row)
{
    rvl_replay_mark mark = {.struct_size = sizeof mark};
    char *text = NULL;
    bool of_process = rvl_replay_get_mark(replay, row->device, row->stage, &mark) == RVL_OK &&
                      (mark.flags & RVL_REPLAY_MARK_OF_PROCESS) != 0;
    if (!of_process || row->rank == RVL_NO_RANK || !has_other_rank(rows, count, row))
        return printable(of_process ? row->stats.mark : row->stats.name);
    if (asprintf(&text, "%s[rank %" PRIu32 "]", row->stats.mark, row->rank) < 0)
        return NULL;
    char *name = printable(text);
    free(text);
    return name;
}

static bool read_row(const rvl_replay *replay, const peak *row, const check_item *item, char *name,
                     check_stage *stage)
{
    rvl_replay_device device = {.struct_size = sizeof device};
    if (rvl_replay_get_device(replay, row->device, &device) != RVL_OK) {
        free(name);
        return false;
    }
    *stage = (check_stage){.name = name,
                           .device = device.device,
                           .peak_bytes = row->stats.peak_bytes,
                           .capacity_bytes = device.capacity_bytes,
                           .budget_bytes = budget_of(item, row->stats.mark),
                           .holders = list_holders(replay, row->device, row->stage),
                           .verdict = row->over_budget ? CHECK_OVER_BUDGET : CHECK_OK};
    if (row->stats.peak_bytes > device.capacity_bytes)
        stage->verdict = CHECK_OOM;
    return stage->name != NULL && stage->holders != NULL;
}

static int read_replay(const rvl_replay *replay, check_result *result)
{
    peak *rows = NULL;
    size_t count = 0;
    bool ok = peaks_of(replay, PEAKS_OF_RANKS, &rows, &count);
    result->stages = calloc(count + 1, sizeof *result->stages);
    ok = ok && result->stages != NULL;
    for (size_t i = 0; ok && i < count; i++)
        ok = read_row(replay, &rows[i], result->item, name_row(replay, rows, count, &rows[i]),
                      &result->stages[result->stage_count++]);
    free(rows);
    return ok ? 0 : no_memory();
}

/* ---- The verdict of a whole run ---- */

static bool has_stage_without_room(const check_result *result)
{
    for (size_t i = 0; i < result->stage_count; i++) {
        if (result->stages[i].verdict == CHECK_OOM)
            return true;
    }
    return false;
}

static bool has_too_few_tokens(const check_result *result)
{
    uint64_t asked = result->item->kv_tokens;
    return asked > 0 && engines_least_tokens(&result->engines) < asked;
}

static check_verdict outcome_of(const rvl_verdict *verdict, const check_result *result)
{
    switch (verdict->kind) {
    case RVL_VERDICT_FAILED:
    case RVL_VERDICT_NO_GPU:
        return CHECK_BROKEN;
    case RVL_VERDICT_OUT_OF_MEMORY: /* one report is enough, if a stage already has it */
        return has_stage_without_room(result) ? CHECK_OK : CHECK_OOM;
    default:
        if (verdict->refused_count > 0 && result->item->no_refusals)
            return CHECK_REFUSED;
        return has_too_few_tokens(result) ? CHECK_FEW_TOKENS : CHECK_OK;
    }
}

static int read_verdict(const rvl_replay *replay, check_result *result)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    if (rvl_replay_get_verdict(replay, &verdict) != RVL_OK)
        return no_memory();
    result->verdict = printable(verdict.text);
    result->outcome = outcome_of(&verdict, result);
    result->noted = verdict.kind != RVL_VERDICT_FITS || result->outcome == CHECK_FEW_TOKENS;
    return result->verdict != NULL ? 0 : no_memory();
}

/* Whether there is a stage beside "start", which is the time before the first mark. A stage that is
 * marked "start" has the name "start#2". */
static bool has_marked_stage(const check_result *result)
{
    for (size_t i = 0; i < result->stage_count; i++) {
        if (strcmp(result->stages[i].name, FIRST_STAGE) != 0)
            return true;
    }
    return false;
}

/* ---- All checks ---- */

static void free_stages(check_result *result)
{
    free(result->verdict);
    result->verdict = NULL;
    result->outcome = CHECK_OK;
    for (size_t i = 0; i < result->stage_count; i++) {
        free(result->stages[i].name);
        free(result->stages[i].holders);
        free(result->stages[i].why);
        free(result->stages[i].said);
    }
    free(result->stages);
    result->stages = NULL;
    result->stage_count = 0;
}

/* Replaces the stages by one with the reason. Takes ownership of why->said. */
static int note_refusal(const check_refusal *why, check_result *result)
{
    free_stages(result);
    result->stages = calloc(1, sizeof *result->stages);
    if (result->stages == NULL) {
        free(why->said);
        return no_memory();
    }
    result->stages[result->stage_count++] = (check_stage){.name = strdup("-"),
                                                          .why = printable(why->text),
                                                          .said = why->said,
                                                          .verdict = why->verdict};
    return result->stages[0].name != NULL && result->stages[0].why != NULL ? 0 : no_memory();
}

static void refuse_unmarked(const check_item *item, check_refusal *why)
{
    why->verdict = CHECK_BROKEN;
    if (item->words != NULL)
        snprintf(why->text, sizeof why->text,
                 "the command has marked no stage: mark them with NVTX ranges that begin with %s, "
                 "or leave \"stages\" out",
                 item->simulated.nvtx);
    else
        snprintf(why->text, sizeof why->text,
                 "%s: the trace has no stage: mark them with rvl_stage() or "
                 "reveille.stage(), or with ranges (`reveille run --stages`)",
                 item->model != NULL ? item->model : item->traces[0]);
}

static int run_one(const check_item *item, const char *device, check_result *result)
{
    rvl_replay *replay;
    check_refusal why = {.verdict = CHECK_OK};
    *result = (check_result){.item = item, .device = device != NULL ? device : "own"};
    int code = replay_item(result, device, &why, &replay);
    if (code == 0 && replay != NULL)
        code = read_replay(replay, result);
    if (code == 0 && replay != NULL)
        code = read_verdict(replay, result);
    rvl_replay_close(replay);
    result->cut = why.cut;
    if (code == 0 && why.verdict == CHECK_OK && !has_marked_stage(result))
        refuse_unmarked(item, &why);
    if (code == 0 && why.verdict != CHECK_OK)
        return note_refusal(&why, result);
    free(why.said);
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
    interrupt_watch();
    progress_begin("check", "checks");
    for (size_t i = 0; i < file->item_count && code == 0; i++) {
        const check_item *item = &file->items[i];
        for (size_t k = 0; k < item->device_count && code == 0 && !interrupt_came(); k++) {
            code = run_one(item, item->devices[k], &results.results[results.count++]);
            if (results.results[results.count - 1].cut)
                free_stages(&results.results[--results.count]);
            progress_report(results.count, count, results.count);
        }
    }
    progress_end();
    interrupt_unwatch();
    results.left_out = count - results.count;
    if (code != 0)
        check_results_free(&results);
    else
        *results_out = results;
    return code;
}

void check_results_free(check_results *results)
{
    for (size_t i = 0; i < results->count; i++)
        free_stages(&results->results[i]);
    free(results->results);
    *results = (check_results){0};
}
