/* SPDX-License-Identifier: MIT */
/* Prints the result of `reveille fit`: a sentence for each device, and the runs. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "fit/fit.h"

enum { VALUE, PEAK, SPARE, SECONDS, VERDICT, COLUMNS };

static const char *const titles[COLUMNS] = {NULL, "peak", "to spare", "seconds", "verdict"};
static const bool right[COLUMNS] = {true, true, true, true, false};

static const fit_run *run_of(const fit_result *result, uint64_t value)
{
    for (size_t i = 0; i < result->count; i++)
        if (result->runs[i].value == value)
            return &result->runs[i];
    return NULL;
}

static int by_value(const void *left, const void *right_one)
{
    const fit_run *a = *(const fit_run *const *)left, *b = *(const fit_run *const *)right_one;
    return (a->value > b->value) - (a->value < b->value);
}

/* Returns the runs in the order of their values. The caller frees the list. NULL: no memory. */
static const fit_run **sorted(const fit_result *result)
{
    const fit_run **list = calloc(result->count + 1, sizeof(fit_run *));
    for (size_t i = 0; list != NULL && i < result->count; i++)
        list[i] = &result->runs[i];
    if (list != NULL)
        qsort(list, result->count, sizeof(fit_run *), by_value);
    return list;
}

/* Stores "batch" from "{batch}". */
static void name_of(const fit_arguments *arguments, char name[64])
{
    snprintf(name, 64, "%.*s", (int)strlen(arguments->hole) - 2, arguments->hole + 1);
}

/* ---- For people ---- */

static bool print_table(const fit_arguments *arguments, const fit_result *result)
{
    char name[64];
    name_of(arguments, name);
    const char *own_titles[COLUMNS];
    memcpy(own_titles, titles, sizeof own_titles);
    own_titles[VALUE] = name;
    const fit_run **runs = sorted(result);
    table *rows = runs != NULL ? table_new(own_titles, right, COLUMNS) : NULL;
    for (size_t i = 0; rows != NULL && i < result->count; i++) {
        char value[24], peak[SIZE_TEXT_BYTES], spare[SIZE_TEXT_BYTES], seconds[24];
        const fit_run *run = runs[i];
        snprintf(value, sizeof value, "%" PRIu64, run->value);
        snprintf(seconds, sizeof seconds, "%.1f", run->seconds);
        const char *cells[COLUMNS] = {
            [VALUE] = value,
            [PEAK] = format_size(run->peak_bytes, peak),
            [SPARE] = run->fits ? format_size(run->verdict.spare_bytes, spare) : "",
            [SECONDS] = seconds,
            [VERDICT] = run->broken ? "failed" : rvl_verdict_keyword(run->verdict.kind),
        };
        table_add(rows, cells);
        if (!run->fits)
            table_mark_last(rows);
    }
    bool ok = rows != NULL && table_print(rows, "  ");
    table_free(rows);
    free(runs);
    return ok;
}

/* Prints why the smallest value that does not fit fails, and the largest holder of its peak. */
static void print_bound(const fit_run *run)
{
    if (run == NULL)
        return;
    say("  with %" PRIu64 "  %s\n", run->value, run->verdict.text);
    if (run->holder[0] != '\0')
        say("  binds  stage %s, most of it %s\n", run->stage, run->holder);
}

static void print_answer(const fit_arguments *arguments, const fit_result *result)
{
    uint64_t largest = 0, edge = 0, again = 0;
    char name[64], spare[SIZE_TEXT_BYTES];
    name_of(arguments, name);
    if (result->broken != NULL) {
        say("%s on %s: no answer: with %" PRIu64 " %s\n", name, result->device,
            result->broken->value, result->broken->verdict.text);
        return;
    }
    bool has_edge = search_edge(&result->of, &edge);
    if (!search_largest(&result->of, &largest)) {
        say("%s on %s: no value fits, from %" PRIu64 " on\n", name, result->device,
            arguments->first);
        print_bound(run_of(result, edge));
        return;
    }
    const fit_run *run = run_of(result, largest);
    say("%s on %s: %s%" PRIu64 ", with %s to spare%s\n", name, result->device,
        has_edge ? "at most " : "", largest,
        format_size(run != NULL ? run->verdict.spare_bytes : 0, spare),
        has_edge ? "" : ": the largest that was asked for fits");
    if (has_edge)
        print_bound(run_of(result, edge));
    if (search_again(&result->of, &again))
        say("  %" PRIu64 " fits again, though %" PRIu64 " does not: its sizes round otherwise\n",
            again, edge);
}

/* Prints the last output of a command that failed. */
static void print_said(const fit_result *result)
{
    if (result->broken == NULL || result->broken->said == NULL)
        return;
    complain(0, "with %" PRIu64 " on %s the command said at its end:", result->broken->value,
             result->device);
    char *text = strdup(result->broken->said), *rest = text;
    for (char *line; rest != NULL && (line = strsep(&rest, "\n")) != NULL;) {
        fputs("  | ", stderr);
        (void)write_shown(stderr, RVLI_SHOWN_PLAIN, line);
        fputc('\n', stderr);
    }
    free(text);
}

/* ---- For programs ---- */

static json_t *run_to_json(const fit_run *run)
{
    return json_pack("{s:I,s:b,s:s,s:s,s:I,s:I,s:s,s:s,s:f}", "value", (json_int_t)run->value,
                     "fits", run->fits, "kind",
                     run->broken ? "failed" : rvl_verdict_keyword(run->verdict.kind), "verdict",
                     run->verdict.text, "peak_bytes", (json_int_t)run->peak_bytes, "spare_bytes",
                     (json_int_t)run->verdict.spare_bytes, "peak_stage", run->stage, "holder",
                     run->holder, "seconds", run->seconds);
}

static json_t *number_or_null(bool there, uint64_t value)
{
    return there ? json_integer((json_int_t)value) : json_null();
}

static json_t *result_to_json(const fit_result *result)
{
    uint64_t largest = 0, edge = 0, again = 0;
    bool known = result->broken == NULL;
    json_t *tried = json_array();
    const fit_run **runs = sorted(result);
    for (size_t i = 0; runs != NULL && i < result->count; i++)
        json_array_append_new(tried, run_to_json(runs[i]));
    free(runs);
    bool has_largest = known && search_largest(&result->of, &largest);
    bool has_edge = known && search_edge(&result->of, &edge);
    bool has_again = known && search_again(&result->of, &again);
    return json_pack("{s:s,s:o,s:o,s:o,s:o}", "device", result->device, "largest",
                     number_or_null(has_largest, largest), "edge", number_or_null(has_edge, edge),
                     "fits_again", number_or_null(has_again, again), "tried", tried);
}

static int write_json(const fit_arguments *arguments, const fit_result *results, size_t count)
{
    char name[64];
    name_of(arguments, name);
    json_t *devices = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(devices, result_to_json(&results[i]));
    json_t *root = json_pack("{s:i,s:s,s:I,s:I,s:o}", "schema", 1, "find", name, "first",
                             (json_int_t)arguments->first, "last", (json_int_t)arguments->last,
                             "devices", devices);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    int status = document_write_text(&arguments->json, text);
    json_decref(root);
    free(text);
    return status;
}

int fit_print(const fit_arguments *arguments, const fit_result *results, size_t count)
{
    bool ok = true;
    for (size_t i = 0; i < count && ok && !document_is_printed(&arguments->json); i++) {
        if (i > 0)
            putchar('\n');
        ok = print_table(arguments, &results[i]);
        print_answer(arguments, &results[i]);
    }
    int status = ok ? 0 : complain(EXIT_INTERNAL, "out of host memory");
    if (ok && arguments->json.wanted)
        status = write_json(arguments, results, count);
    fflush(stdout);
    for (size_t i = 0; i < count; i++)
        print_said(&results[i]);
    return status;
}
