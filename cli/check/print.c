/* SPDX-License-Identifier: MIT */
/* Prints the results of checks: as a table, GitHub annotations, Markdown or a JUnit file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "engines.h"
#include "markdown.h"
#include "output.h"

static const char *const verdicts[] = {
    [CHECK_OK] = "ok",
    [CHECK_LOWER] = "ok, lower than the baseline",
    [CHECK_UNKNOWN] = "NOT IN THE BASELINE",
    [CHECK_GONE] = "IN THE BASELINE ALONE",
    [CHECK_GREW] = "ABOVE THE BASELINE",
    [CHECK_OVER_BUDGET] = "OVER BUDGET",
    [CHECK_REFUSED] = "REFUSED",
    [CHECK_FEW_TOKENS] = "KV CACHE TOO SMALL",
    [CHECK_OOM] = "OOM",
    [CHECK_NO_ROOM] = "NO ROOM",
    [CHECK_BROKEN] = "ERROR",
};

static double change_percent(const check_stage *stage)
{
    double baseline = (double)stage->baseline_bytes;
    return baseline > 0 ? ((double)stage->peak_bytes - baseline) / baseline * 100 : 0;
}

const char *check_explain(const check_stage *stage, double tolerance_percent,
                          char text[CHECK_TEXT_BYTES])
{
    char peak[SIZE_TEXT_BYTES], bound[SIZE_TEXT_BYTES];
    if (stage->why != NULL)
        return stage->why;
    format_size(stage->peak_bytes, peak);
    switch (stage->verdict) {
    case CHECK_OOM:
        snprintf(text, CHECK_TEXT_BYTES,
                 "does not fit: the peak of %s is more than the device's %s", peak,
                 format_size(stage->capacity_bytes, bound));
        break;
    case CHECK_OVER_BUDGET:
        snprintf(text, CHECK_TEXT_BYTES, "over budget: the peak of %s is more than %s", peak,
                 format_size(stage->budget_bytes, bound));
        break;
    case CHECK_GREW:
    case CHECK_LOWER:
        snprintf(text, CHECK_TEXT_BYTES,
                 "the peak of %s is %.2f %% %s the baseline of %s, and the tolerance is %g %%",
                 peak, fabs(change_percent(stage)),
                 stage->verdict == CHECK_GREW ? "above" : "below",
                 format_size(stage->baseline_bytes, bound), tolerance_percent);
        break;
    case CHECK_UNKNOWN:
        snprintf(text, CHECK_TEXT_BYTES,
                 "not in the baseline: look at its peak of %s, then run `reveille check "
                 "--update-baseline`",
                 peak);
        break;
    case CHECK_GONE:
        snprintf(text, CHECK_TEXT_BYTES,
                 "in the baseline, with a peak of %s, and not in this run: see why, then run "
                 "`reveille check --update-baseline`",
                 format_size(stage->baseline_bytes, bound));
        break;
    default:
        snprintf(text, CHECK_TEXT_BYTES, "the peak is %s", peak);
    }
    return text;
}

typedef struct totals {
    size_t cases;
    size_t stages; /* cases that are stages */
    size_t failures;
    size_t errors;
} totals;

static void add_totals(const check_result *result, totals *sums)
{
    for (size_t i = 0; i < result->stage_count; i++) {
        bool broken = result->stages[i].verdict == CHECK_BROKEN;
        sums->cases++;
        sums->stages += !broken;
        sums->errors += broken;
        sums->failures += check_fails(&result->stages[i]) && !broken;
    }
    bool broken = result->outcome == CHECK_BROKEN;
    sums->cases += check_run_fails(result);
    sums->errors += broken;
    sums->failures += check_run_fails(result) && !broken;
}

/* ---- Table ---- */

/* Returns the verdict of a run or, if its KV cache is too small, a text that explains that. */
static const char *explain_run(const check_result *result, char text[CHECK_TEXT_BYTES])
{
    if (result->outcome != CHECK_FEW_TOKENS)
        return result->verdict;
    uint64_t tokens = engines_least_tokens(&result->engines), asked = result->item->kv_tokens;
    if (result->engines.count == 0)
        snprintf(text, CHECK_TEXT_BYTES,
                 "no engine has said how large its KV cache is, and \"kv_tokens\" is %" PRIu64
                 ": vLLM and SGLang say it where the command starts one",
                 asked);
    else
        snprintf(text, CHECK_TEXT_BYTES,
                 "the KV cache has room for %" PRIu64 " tokens, fewer than \"kv_tokens\", %" PRIu64,
                 tokens, asked);
    return text;
}

/* Prints "  sft on h200: fits, with 61.2 GiB to spare". */
static void say_line(const check_result *result, const char *verdict, const char *text)
{
    fputs("  ", stdout);
    write_shown(stdout, RVLI_SHOWN_PLAIN, result->item->name);
    fputs(" on ", stdout);
    write_shown(stdout, RVLI_SHOWN_PLAIN, result->device);
    printf(": %s%s", verdict, verdict[0] != '\0' ? ": " : "");
    write_shown(stdout, RVLI_SHOWN_PLAIN, text);
    puts("");
}

static void say_run(const check_result *result)
{
    char line[ENGINES_LINE_BYTES], text[CHECK_TEXT_BYTES];
    for (size_t i = 0; i < result->engines.count; i++) {
        engines_describe(&result->engines.list[i], line);
        say_line(result, "", line);
    }
    if (result->verdict == NULL)
        return;
    if (result->outcome == CHECK_FEW_TOKENS)
        say_line(result, "", result->verdict);
    say_line(result, check_run_fails(result) ? verdicts[result->outcome] : "",
             explain_run(result, text));
}

/* Adds a row for a check without stages, with the reason. */
static bool add_empty(table *rows, const check_result *result)
{
    const check_stage *stage = &result->stages[0];
    char *verdict;
    if (asprintf(&verdict, "%s: %s", verdicts[stage->verdict], stage->why) < 0)
        return false;
    table_add(rows, (const char *const[]){result->item->name, result->device, stage->name, "", "",
                                          "", "", verdict});
    table_mark_last(rows);
    free(verdict);
    return true;
}

static void add_stage(table *rows, const check_result *result, const check_stage *stage)
{
    char peak[SIZE_TEXT_BYTES] = "", budget[SIZE_TEXT_BYTES] = "", baseline[SIZE_TEXT_BYTES] = "";
    char change[CHANGE_TEXT_BYTES] = "", name[CHECK_TEXT_BYTES];
    if (stage->device > 0)
        snprintf(name, sizeof name, "%s (device %d)", stage->name, stage->device);
    else
        snprintf(name, sizeof name, "%s", stage->name);
    if (stage->verdict != CHECK_GONE)
        format_size(stage->peak_bytes, peak);
    if (stage->budget_bytes > 0)
        format_size(stage->budget_bytes, budget);
    if (stage->has_baseline)
        format_size(stage->baseline_bytes, baseline);
    if (stage->has_baseline && stage->verdict != CHECK_GONE)
        format_change(change_percent(stage), change);
    table_add(rows, (const char *const[]){result->item->name, result->device, name, peak, budget,
                                          baseline, change, verdicts[stage->verdict]});
    if (check_fails(stage))
        table_mark_last(rows);
}

bool check_print_table(const check_results *results)
{
    static const char *const titles[] = {"check",  "device",   "stage",  "peak",
                                         "budget", "baseline", "change", ""};
    static const bool right[] = {false, false, false, true, true, true, true, false};
    totals all = {0};
    char stages[COUNT_TEXT_BYTES];
    table *rows = table_new(titles, right, 8);
    bool complete = rows != NULL;
    for (size_t i = 0; i < results->count && complete; i++) {
        const check_result *result = &results->results[i];
        add_totals(result, &all);
        if (check_is_empty(result)) {
            complete = add_empty(rows, result);
            continue;
        }
        for (size_t k = 0; k < result->stage_count; k++)
            add_stage(rows, result, &result->stages[k]);
    }
    bool printed = complete && table_print(rows, "");
    table_free(rows);
    for (size_t i = 0; printed && i < results->count; i++)
        say_run(&results->results[i]);
    if (printed)
        printf("%s, %zu failed", format_count(all.stages, "stage", "stages", stages), all.failures);
    if (printed && all.errors > 0)
        printf(", %zu in error", all.errors);
    if (printed)
        puts("");
    return printed;
}

/* ---- Lines for stages and runs ---- */

static void say_holders(rvli_shown_as as, const check_stage *stage)
{
    if (stage->holders == NULL)
        return;
    fputs("; at its peak: ", stdout);
    write_shown(stdout, as, stage->holders);
}

static void say_failure(const check_result *result, const check_stage *stage)
{
    char text[CHECK_TEXT_BYTES];
    fputs("  ", stdout);
    write_shown(stdout, RVLI_SHOWN_PLAIN, result->item->name);
    fputs(" on ", stdout);
    write_shown(stdout, RVLI_SHOWN_PLAIN, result->device);
    fputs(", stage ", stdout);
    write_shown(stdout, RVLI_SHOWN_PLAIN, stage->name);
    fputs(": ", stdout);
    write_shown(stdout, RVLI_SHOWN_PLAIN,
                check_explain(stage, result->item->tolerance_percent, text));
    say_holders(RVLI_SHOWN_PLAIN, stage);
    puts("");
}

void check_print_failures(const check_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        const check_result *result = &results->results[i];
        for (size_t k = 0; k < result->stage_count && !check_is_empty(result); k++) {
            if (check_fails(&result->stages[k]))
                say_failure(result, &result->stages[k]);
        }
    }
}

static void begin_annotation(const check_file *file, const check_result *result, bool fails)
{
    printf("::%s file=", fails ? "error" : "notice");
    write_shown(stdout, RVLI_SHOWN_GITHUB_PROPERTY, file->path);
    fputs(",title=", stdout);
    write_shown(stdout, RVLI_SHOWN_GITHUB_PROPERTY, result->item->name);
    fputs(" on ", stdout);
    write_shown(stdout, RVLI_SHOWN_GITHUB_PROPERTY, result->device);
    fputs("::", stdout);
}

static void annotate_run(const check_file *file, const check_result *result)
{
    char text[CHECK_TEXT_BYTES];
    begin_annotation(file, result, check_run_fails(result));
    write_shown(stdout, RVLI_SHOWN_GITHUB, explain_run(result, text));
    puts("");
}

static void annotate(const check_file *file, const check_result *result, const check_stage *stage)
{
    char text[CHECK_TEXT_BYTES];
    begin_annotation(file, result, check_fails(stage));
    if (stage->why == NULL) {
        fputs("stage ", stdout);
        write_shown(stdout, RVLI_SHOWN_GITHUB, stage->name);
        fputs(": ", stdout);
    }
    write_shown(stdout, RVLI_SHOWN_GITHUB,
                check_explain(stage, result->item->tolerance_percent, text));
    say_holders(RVLI_SHOWN_GITHUB, stage);
    puts("");
}

void check_print_github(const check_file *file, const check_results *results)
{
    for (size_t i = 0; i < results->count; i++) {
        const check_result *result = &results->results[i];
        for (size_t k = 0; k < result->stage_count; k++) {
            if (result->stages[k].verdict != CHECK_OK)
                annotate(file, result, &result->stages[k]);
        }
        if (result->noted && result->verdict != NULL)
            annotate_run(file, result);
    }
}

/* ---- Markdown ---- */

static void write_size(FILE *out, bool known, uint64_t bytes)
{
    char size[SIZE_TEXT_BYTES];
    fprintf(out, "%s | ", known ? format_size(bytes, size) : "");
}

static bool write_stage_row(FILE *out, const check_result *result, const check_stage *stage)
{
    char change[CHANGE_TEXT_BYTES] = "";
    bool has_run = stage->why == NULL && stage->verdict != CHECK_GONE;
    fputs("| ", out);
    bool ok = markdown_name(out, result->item->name);
    fputs(" | ", out);
    ok = ok && markdown_name(out, result->device);
    fputs(" | ", out);
    ok = ok && markdown_name(out, stage->name);
    if (stage->device > 0)
        fprintf(out, " (device %d)", stage->device);
    fputs(" | ", out);
    write_size(out, has_run, stage->peak_bytes);
    write_size(out, stage->budget_bytes > 0, stage->budget_bytes);
    write_size(out, stage->has_baseline, stage->baseline_bytes);
    if (stage->has_baseline && has_run)
        format_change(change_percent(stage), change);
    fprintf(out, "%s | %s%s%s |\n", change, check_fails(stage) ? "**" : "",
            verdicts[stage->verdict], check_fails(stage) ? "**" : "");
    return ok;
}

static bool write_stage_rows(FILE *out, const check_results *results)
{
    size_t rows = 0;
    bool ok = true;
    fputs("| check | device | stage | peak | budget | baseline | change | |\n"
          "| :--- | :--- | :--- | ---: | ---: | ---: | ---: | :--- |\n",
          out);
    for (size_t i = 0; i < results->count; i++) {
        const check_result *result = &results->results[i];
        for (size_t k = 0; ok && k < result->stage_count; k++)
            if (rows++ < MARKDOWN_ROWS_MAX)
                ok = write_stage_row(out, result, &result->stages[k]);
    }
    if (rows > MARKDOWN_ROWS_MAX)
        fprintf(out, "\n%zu more rows are left out.\n", rows - MARKDOWN_ROWS_MAX);
    return ok;
}

/* Writes "- `sft` on `h200`: fits, with 61.2 GiB to spare", without a line break. */
static bool write_item(FILE *out, const check_result *result, const char *stage, const char *text)
{
    fputs("- ", out);
    bool ok = markdown_name(out, result->item->name);
    fputs(" on ", out);
    ok = ok && markdown_name(out, result->device);
    if (stage != NULL) {
        fputs(", stage ", out);
        ok = ok && markdown_name(out, stage);
    }
    fputs(": ", out);
    ok = ok && markdown_text(out, text);
    return ok;
}

static bool write_item_line(FILE *out, const check_result *result, const char *text)
{
    bool ok = write_item(out, result, NULL, text);
    fputs("\n", out);
    return ok;
}

static bool write_items(FILE *out, const check_result *result)
{
    char text[CHECK_TEXT_BYTES], line[ENGINES_LINE_BYTES];
    bool ok = true;
    for (size_t i = 0; ok && i < result->engines.count; i++) {
        engines_describe(&result->engines.list[i], line);
        ok = write_item_line(out, result, line);
    }
    if (ok && result->verdict != NULL)
        ok = write_item_line(out, result, result->verdict);
    if (ok && result->outcome == CHECK_FEW_TOKENS)
        ok = write_item_line(out, result, explain_run(result, text));
    for (size_t k = 0; ok && k < result->stage_count; k++) {
        const check_stage *stage = &result->stages[k];
        if (!check_fails(stage))
            continue;
        ok = write_item(out, result, stage->name,
                        check_explain(stage, result->item->tolerance_percent, text));
        fputs(stage->holders != NULL ? "; at its peak: " : "", out);
        ok = ok && (stage->holders == NULL || markdown_text(out, stage->holders));
        fputs("\n", out);
    }
    return ok;
}

bool check_write_markdown(FILE *out, const void *user)
{
    const check_results *results = user;
    totals all = {0};
    char stages[COUNT_TEXT_BYTES];
    for (size_t i = 0; i < results->count; i++)
        add_totals(&results->results[i], &all);
    fprintf(out, "### GPU memory: %s, %zu failed",
            format_count(all.stages, "stage", "stages", stages), all.failures);
    if (all.errors > 0)
        fprintf(out, ", %zu in error", all.errors);
    fputs("\n\n", out);
    bool ok = write_stage_rows(out, results);
    fputs("\n", out);
    for (size_t i = 0; ok && i < results->count; i++)
        ok = write_items(out, &results->results[i]);
    return ok;
}

/* ---- JUnit ---- */

static void write_xml(FILE *output, const char *text)
{
    write_shown(output, RVLI_SHOWN_XML, text);
}

void check_write_said(FILE *output, rvli_shown_as as, const char *said)
{
    for (const char *at = said; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        char *line = strndup(at, length);
        fputs("  | ", output);
        if (line != NULL)
            write_shown(output, as, line);
        fputs("\n", output);
        free(line);
        at += length + (at[length] == '\n');
    }
}

static void write_suite_name(FILE *output, const check_result *result)
{
    write_xml(output, result->item->name);
    fputs(" on ", output);
    write_xml(output, result->device);
}

static void write_case(FILE *output, const check_result *result, const check_stage *stage)
{
    char text[CHECK_TEXT_BYTES];
    const char *kind = stage->verdict == CHECK_BROKEN ? "error" : "failure";
    fputs("    <testcase classname=\"", output);
    write_suite_name(output, result);
    fputs("\" name=\"", output);
    write_xml(output, stage->name);
    if (stage->device > 0)
        fprintf(output, " (device %d)", stage->device);
    if (!check_fails(stage)) {
        fputs("\"/>\n", output);
        return;
    }
    fprintf(output, "\">\n      <%s message=\"", kind);
    write_xml(output, check_explain(stage, result->item->tolerance_percent, text));
    fputs("\">", output);
    if (stage->holders != NULL) {
        fputs("at its peak: ", output);
        write_xml(output, stage->holders);
    }
    if (stage->said != NULL) {
        fputs("the command said at its end:\n", output);
        check_write_said(output, RVLI_SHOWN_XML, stage->said);
    }
    fprintf(output, "</%s>\n    </testcase>\n", kind);
}

/* Writes a test case for the verdict of a run that fails as a whole. */
static void write_run(FILE *output, const check_result *result)
{
    const char *kind = result->outcome == CHECK_BROKEN ? "error" : "failure";
    char text[CHECK_TEXT_BYTES];
    fputs("    <testcase classname=\"", output);
    write_suite_name(output, result);
    fprintf(output, "\" name=\"verdict\">\n      <%s message=\"", kind);
    write_xml(output, explain_run(result, text));
    fputs("\"/>\n    </testcase>\n", output);
}

static void write_property(FILE *output, const char *name, const char *value)
{
    fprintf(output, "    <properties>\n      <property name=\"%s\" value=\"", name);
    write_xml(output, value);
    fputs("\"/>\n    </properties>\n", output);
}

static void write_totals(FILE *output, const totals *all)
{
    fprintf(output, "\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n", all->cases,
            all->failures, all->errors);
}

static void write_suite(FILE *output, const check_result *result)
{
    totals all = {0};
    add_totals(result, &all);
    fputs("  <testsuite name=\"", output);
    write_suite_name(output, result);
    write_totals(output, &all);
    if (result->verdict != NULL)
        write_property(output, "verdict", result->verdict);
    for (size_t i = 0; i < result->stage_count; i++)
        write_case(output, result, &result->stages[i]);
    if (check_run_fails(result))
        write_run(output, result);
    fputs("  </testsuite>\n", output);
}

int check_write_junit(const char *path, const check_results *results)
{
    totals all = {0};
    output_file file;
    int code = output_open(path, &file);
    if (code != 0)
        return code;
    for (size_t i = 0; i < results->count; i++)
        add_totals(&results->results[i], &all);
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
          "<testsuites name=\"reveille check",
          file.stream);
    write_totals(file.stream, &all);
    for (size_t i = 0; i < results->count; i++)
        write_suite(file.stream, &results->results[i]);
    fputs("</testsuites>\n", file.stream);
    return output_finish(&file, true);
}
