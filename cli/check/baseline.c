/* SPDX-License-Identifier: MIT */
/*
 * The baseline: the accepted peaks, in a file under version control. It has one stage on each line,
 * in the order of the checks, so that a change is easy to review.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "output.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* ---- Comparing ---- */

static bool is_of(const json_t *entry, const check_result *result)
{
    return strcmp(text_of(entry, "check"), result->item->name) == 0 &&
           strcmp(text_of(entry, "device"), result->device) == 0;
}

/* Returns the entry of a stage; NULL: there is none. */
static const json_t *find_entry(const json_t *stages, const check_result *result,
                                const check_stage *stage)
{
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *entry = json_array_get(stages, i);
        if (is_of(entry, result) && strcmp(text_of(entry, "stage"), stage->name) == 0 &&
            json_integer_value(json_object_get(entry, "index")) == stage->device)
            return entry;
    }
    return NULL;
}

/* Returns the stage of an entry; NULL: the run does not have it. */
static const check_stage *find_stage(const check_result *result, const json_t *entry)
{
    for (size_t i = 0; i < result->stage_count; i++) {
        const check_stage *stage = &result->stages[i];
        if (strcmp(text_of(entry, "stage"), stage->name) == 0 &&
            json_integer_value(json_object_get(entry, "index")) == stage->device)
            return stage;
    }
    return NULL;
}

static bool add_gone(check_result *result, const json_t *entry)
{
    size_t size = (result->stage_count + 1) * sizeof *result->stages;
    check_stage *grown = realloc(result->stages, size);
    if (grown == NULL)
        return false;
    result->stages = grown;
    check_stage *stage = &grown[result->stage_count];
    *stage = (check_stage){.name = printable(text_of(entry, "stage")),
                           .device = (int)json_integer_value(json_object_get(entry, "index")),
                           .has_baseline = true,
                           .baseline_bytes =
                               (uint64_t)json_integer_value(json_object_get(entry, "peak_bytes")),
                           .verdict = CHECK_GONE};
    result->stage_count += stage->name != NULL;
    return stage->name != NULL;
}

/* Adds stages that the baseline has and the run lacks: they are no longer checked. false: no
 * memory.
 */
static bool add_all_gone(const json_t *stages, check_result *result)
{
    for (size_t i = 0; i < json_array_size(stages) && !check_is_empty(result); i++) {
        const json_t *entry = json_array_get(stages, i);
        if (is_of(entry, result) && find_stage(result, entry) == NULL && !add_gone(result, entry))
            return false;
    }
    return true;
}

static void compare_stage(const json_t *stages, const check_result *result, check_stage *stage)
{
    const json_t *entry = find_entry(stages, result, stage);
    double tolerance = result->item->tolerance_percent / 100;
    stage->has_baseline = entry != NULL;
    stage->baseline_bytes =
        entry != NULL ? (uint64_t)json_integer_value(json_object_get(entry, "peak_bytes")) : 0;
    double peak = (double)stage->peak_bytes, baseline = (double)stage->baseline_bytes;
    if (stage->verdict != CHECK_OK)
        return;
    if (entry == NULL)
        stage->verdict = CHECK_UNKNOWN;
    else if (peak > baseline * (1 + tolerance))
        stage->verdict = CHECK_GREW;
    else if (peak < baseline * (1 - tolerance))
        stage->verdict = CHECK_LOWER;
}

/* Returns the baseline's list of stages. NULL: it is invalid; has complained. */
static const json_t *list_of(const char *path, const json_t *root)
{
    const json_t *stages = json_object_get(root, "stages");
    const json_t *entry;
    size_t i;
    bool good = json_integer_value(json_object_get(root, "schema")) == 1 && json_is_array(stages);
    for (i = 0; good && i < json_array_size(stages); i++) {
        entry = json_array_get(stages, i);
        good = json_integer_value(json_object_get(entry, "peak_bytes")) >= 0 &&
               json_is_integer(json_object_get(entry, "peak_bytes"));
    }
    if (good)
        return stages;
    complain(EXIT_BAD_INPUT,
             "%s: no baseline of schema 1: write it again with `reveille check --update-baseline`",
             path);
    return NULL;
}

int check_compare(const check_file *file, check_results *results)
{
    json_error_t error;
    json_t *root = json_load_file(file->baseline, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return complain(EXIT_BAD_INPUT,
                        "%s:%d: %s: `reveille check --update-baseline` writes a baseline",
                        file->baseline, error.line > 0 ? error.line : 0, error.text);
    const json_t *stages = list_of(file->baseline, root);
    int code = stages != NULL ? 0 : EXIT_BAD_INPUT;
    for (size_t i = 0; i < results->count && code == 0; i++) {
        check_result *result = &results->results[i];
        for (size_t k = 0; k < result->stage_count; k++)
            compare_stage(stages, result, &result->stages[k]);
        if (!add_all_gone(stages, result))
            code = complain(EXIT_INTERNAL, "out of host memory");
    }
    json_decref(root);
    return code;
}

/* ---- Updating ---- */

/* Writes an entry on its own line. false: no memory, or invalid UTF-8. */
static bool write_entry(FILE *output, const check_result *result, const check_stage *stage,
                        bool first)
{
    json_t *entry = json_pack("{s:s,s:s,s:i,s:s,s:I}", "check", result->item->name, "device",
                              result->device, "index", stage->device, "stage", stage->name,
                              "peak_bytes", (json_int_t)stage->peak_bytes);
    char *text = entry != NULL ? json_dumps(entry, 0) : NULL;
    if (text != NULL)
        fprintf(output, "%s\n    %s", first ? "" : ",", text);
    free(text);
    json_decref(entry);
    return text != NULL;
}

static bool write_stages(FILE *output, const check_results *results)
{
    bool first = true;
    fputs("{\n  \"schema\": 1,\n  \"stages\": [", output);
    for (size_t i = 0; i < results->count; i++) {
        const check_result *result = &results->results[i];
        for (size_t k = 0; k < result->stage_count; k++) {
            if (!write_entry(output, result, &result->stages[k], first))
                return false;
            first = false;
        }
    }
    fputs("\n  ]\n}\n", output);
    return true;
}

int check_update(const check_file *file, const check_results *results)
{
    output_file written;
    int code = output_open(file->baseline, &written);
    if (code != 0)
        return code;
    return output_finish(&written, write_stages(written.stream, results));
}
