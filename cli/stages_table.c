/* SPDX-License-Identifier: MIT */
/*
 * The result of a replay for people: a table a device, stages down, below it the first instant that
 * does not fit, and at the end the verdict.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "verdict.h"

#define NS_PER_SECOND 1e9

enum { STAGE, PEAK, MARK, END, FREE, HOST, SECONDS, HOLDERS, COLUMNS };

static const char *const titles[COLUMNS] = {
    "stage", "peak", "", "end", "free at peak", "host", "seconds", "who holds the peak",
};
static const bool right[COLUMNS] = {false, true, false, true, true, true, true, false};

/* "engine/kv_cache"; the caller frees it. NULL: no memory. */
static char *holder_name(const char *process, const char *tag)
{
    char *name = NULL;
    if (asprintf(&name, "%s/%s", process, tag != NULL ? tag : "untagged") < 0)
        return NULL;
    char *text = printable(name);
    free(name);
    return text;
}

/* "engine/kv_cache 94.2 GiB, engine/weights 30.7 GiB, 12 others 3.0 GiB"; the caller frees it.
 * NULL: no memory. */
static char *holders_text(const rvl_replay *replay, size_t device, uint32_t stage,
                          uint64_t peak_bytes)
{
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    char bytes[SIZE_TEXT_BYTES], *text = NULL;
    size_t count = 0, size = 0;
    if (rvl_replay_get_holders(replay, device, stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, &count) != RVL_OK)
        return NULL;
    size_t listed = count < RVL_REPLAY_LISTED_HOLDERS ? count : RVL_REPLAY_LISTED_HOLDERS;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    bool ok = true;
    uint64_t rest_bytes = peak_bytes;
    for (size_t i = 0; i < listed && ok; i++) {
        char *name = holder_name(holders[i].process, holders[i].tag);
        ok = name != NULL && fprintf(out, "%s%s %s", i > 0 ? ", " : "", name,
                                     format_size(holders[i].bytes, bytes)) > 0;
        rest_bytes -= holders[i].bytes;
        free(name);
    }
    if (count > listed)
        fprintf(out, ", %zu others %s", count - listed, format_size(rest_bytes, bytes));
    if (fclose(out) != 0 || !ok) {
        free(text);
        return NULL;
    }
    return text;
}

static const char *mark_of(bool fits, bool over_budget)
{
    if (fits)
        return over_budget ? "* over budget" : "";
    return over_budget ? "* OOM, over budget" : "* OOM";
}

typedef struct stage_table {
    table *rows;
    const rvl_replay *replay;
    size_t device;
    uint64_t capacity_bytes;
} stage_table;

/* ---- A row for each name ---- */

#define NAMES_MAX 256u /* of more, each stage has its row */

/* The stages of a name: how many, and the largest. */
typedef struct named {
    const char *mark;
    uint64_t count;
    uint64_t peak_bytes;
    uint32_t largest;
} named;

typedef struct names {
    uint32_t count; /* 0: each stage has a row of its own */
    named list[NAMES_MAX];
} names;

/* Of several processes, or of ranges, a name comes very often: its largest stage stands for all. */
static void collect_names(const rvl_replay *replay, size_t device, uint32_t stages, names *found)
{
    found->count = 0;
    for (uint32_t i = 0; i < stages; i++) {
        rvl_stage_stats stats = {.struct_size = sizeof stats};
        rvl_replay_mark mark = {.struct_size = sizeof mark};
        uint32_t at = 0;
        bool known = rvl_replay_get_stage(replay, device, i, &stats, NULL) == RVL_OK &&
                     rvl_replay_get_mark(replay, device, i, &mark) == RVL_OK &&
                     (mark.flags & RVL_REPLAY_MARK_OF_PROCESS) != 0;
        while (known && at < found->count && strcmp(found->list[at].mark, stats.mark) != 0)
            at++;
        if (!known || at == NAMES_MAX) {
            found->count = 0;
            return;
        }
        named *each = &found->list[at];
        if (at == found->count) {
            *each = (named){.mark = stats.mark, .largest = i};
            found->count++;
        }
        if (stats.peak_bytes > each->peak_bytes) {
            each->peak_bytes = stats.peak_bytes;
            each->largest = i;
        }
        each->count += mark.count;
    }
}

/* "forward x50, most in #37"; the caller frees it. NULL: no memory. */
static char *row_name(const rvl_stage_stats *stats, uint64_t count)
{
    char *text = NULL;
    char *shown = printable(count > 1 ? stats->mark : stats->name);
    if (shown == NULL || count <= 1)
        return shown;
    int length = asprintf(&text, "%s x%" PRIu64 ", most in %s", shown, count,
                          strcmp(stats->name, stats->mark) != 0 ? strrchr(stats->name, '#') : "#1");
    free(shown);
    return length >= 0 ? text : NULL;
}

/* A row of a stage: its widths, or, to_print, itself. Only what is printed lists its holders. */
static bool show_stage(const stage_table *shown, uint32_t stage, uint64_t count, bool to_print)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    bool over_budget = false;
    char sizes[4][SIZE_TEXT_BYTES], seconds[32];
    if (rvl_replay_get_stage(shown->replay, shown->device, stage, &stats, &over_budget) != RVL_OK)
        return false;
    char *name = row_name(&stats, count);
    char *holders =
        to_print ? holders_text(shown->replay, shown->device, stage, stats.peak_bytes) : strdup("");
    bool ok = name != NULL && holders != NULL;
    if (ok) {
        bool fits = stats.peak_bytes <= shown->capacity_bytes;
        snprintf(seconds, sizeof seconds, "%.3f", (double)stats.transition_ns / NS_PER_SECOND);
        const char *cells[COLUMNS] = {
            [STAGE] = name,
            [PEAK] = format_size(stats.peak_bytes, sizes[0]),
            [MARK] = mark_of(fits, over_budget),
            [END] = format_size(stats.end_bytes, sizes[1]),
            [FREE] = format_size(stats.free_at_peak_bytes, sizes[2]),
            [HOST] = format_size(stats.host_bytes, sizes[3]),
            [SECONDS] = seconds,
            [HOLDERS] = holders,
        };
        if (to_print)
            table_put(shown->rows, cells, !fits || over_budget, "  ");
        else
            table_widen(shown->rows, cells);
    }
    free(name);
    free(holders);
    return ok;
}

/* There may be a stage for every event, so that rows are made twice instead of kept. */
static bool print_stages(const rvl_replay *replay, size_t index, const rvl_replay_device *device)
{
    const stage_table shown = {.rows = table_new(titles, right, COLUMNS),
                               .replay = replay,
                               .device = index,
                               .capacity_bytes = device->capacity_bytes};
    names *found = calloc(1, sizeof *found);
    bool ok = shown.rows != NULL && found != NULL;
    if (ok)
        collect_names(replay, index, device->stage_count, found);
    uint32_t rows = ok && found->count > 0 ? found->count : device->stage_count;
    for (int to_print = 0; to_print <= 1; to_print++) {
        ok = ok && (to_print == 0 || table_print(shown.rows, "  "));
        for (uint32_t i = 0; ok && i < rows; i++)
            ok = found->count > 0 ? show_stage(&shown, found->list[i].largest, found->list[i].count,
                                               to_print > 0)
                                  : show_stage(&shown, i, 1, to_print > 0);
    }
    free(found);
    table_free(shown.rows);
    return ok;
}

/* Name of a stage of a device; the caller frees it. NULL: no memory. */
static char *stage_text(const rvl_replay *replay, size_t index, uint32_t stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    if (rvl_replay_get_stage(replay, index, stage, &stats, NULL) != RVL_OK)
        return strdup("no stage");
    return printable(stats.name);
}

/* What is in doubt about a device that it fits. */
static void format_doubt(const rvl_replay_device *device, char *text, size_t size)
{
    char doubt[SIZE_TEXT_BYTES];
    text[0] = '\0';
    if (device->flags & RVL_REPLAY_DEVICE_DOUBTFUL)
        snprintf(text, size, " (in doubt: programs may get %s less)",
                 format_size(device->capacity_doubt_bytes, doubt));
}

static bool print_heading(const rvl_replay *replay, size_t index, const rvl_replay_device *device)
{
    char capacity[SIZE_TEXT_BYTES], peak[SIZE_TEXT_BYTES];
    char *stage = stage_text(replay, index, device->peak_stage);
    char *profile = printable(device->profile != NULL ? device->profile : "given by size");
    bool ok = stage != NULL && profile != NULL;
    char doubt[64 + SIZE_TEXT_BYTES];
    format_doubt(device, doubt, sizeof doubt);
    if (ok)
        printf("device %d: %s%s, %s; peak %s in %s%s%s\n", device->device, profile,
               device->flags & RVL_REPLAY_DEVICE_ASSUMED ? " (assumed: --device names yours)" : "",
               format_size(device->capacity_bytes, capacity), format_size(device->peak_bytes, peak),
               stage, doubt, device->within_budgets ? "" : ", over budget");
    free(stage);
    free(profile);
    return ok;
}

static bool print_oom(const rvl_replay *replay, size_t index, const rvl_replay_device *device)
{
    char requested[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES];
    if (device->peak_bytes <= device->capacity_bytes)
        return true;
    char *file = printable(device->oom_file != NULL ? device->oom_file : "?");
    char *holder = holder_name(device->oom_process, device->oom_tag);
    char *stage = stage_text(replay, index, device->oom_stage);
    bool ok = file != NULL && holder != NULL && stage != NULL;
    if (ok)
        printf("  does not fit from %s:%" PRIu32 " on: in %s, %s asks for %s, %s are free\n", file,
               device->oom_line, stage, holder, format_size(device->oom_requested_bytes, requested),
               format_size(device->oom_free_bytes, left));
    free(file);
    free(holder);
    free(stage);
    return ok;
}

static double change_percent(uint64_t from, uint64_t to)
{
    return from > 0 ? ((double)to - (double)from) / (double)from * 100 : 0;
}

/* What was truly in use when a stage ended, as far as the trace says. */
static bool print_readings(const rvl_replay *replay, size_t index, const rvl_replay_device *device)
{
    bool ok = true;
    for (uint32_t stage = 0; ok && stage < device->stage_count; stage++) {
        uint64_t read = 0, predicted = 0;
        char sizes[2][SIZE_TEXT_BYTES], change[CHANGE_TEXT_BYTES];
        if (rvl_replay_get_reading(replay, index, stage, &read, &predicted) != RVL_OK)
            continue;
        char *name = stage_text(replay, index, stage);
        ok = name != NULL;
        if (ok)
            printf("  last reading in %s: %s, predicted %s (%s)\n", name,
                   format_size(read, sizes[0]), format_size(predicted, sizes[1]),
                   format_change(change_percent(read, predicted), change));
        free(name);
    }
    return ok;
}

static void print_samples(const rvl_replay_device *device)
{
    char size[SIZE_TEXT_BYTES], samples[COUNT_TEXT_BYTES];
    int64_t worst = device->worst_sample_difference_bytes;
    uint64_t bytes = worst < 0 ? (uint64_t)0 - (uint64_t)worst : (uint64_t)worst;
    if (device->sample_count == 0)
        return;
    printf("  %s of the true use: at worst the prediction is %s %s\n",
           format_count(device->sample_count, "sample", "samples", samples),
           format_size(bytes, size), worst < 0 ? "below" : "above");
}

static void print_notes(const rvl_replay *replay, const rvl_trace_progress *progress)
{
    uint64_t skipped = 0;
    char text[COUNT_TEXT_BYTES];
    rvl_replay_event_count(replay, &skipped);
    if (skipped > 0)
        printf("%s skipped\n", format_count(skipped, "event of an unknown kind was",
                                            "events of unknown kinds were", text));
    if (progress->cut_files > 0)
        printf("%" PRIu64 " of the files %s off before %s end record\n", progress->cut_files,
               progress->cut_files == 1 ? "breaks" : "break",
               progress->cut_files == 1 ? "its" : "their");
}

bool report_print_tables(const rvl_replay *replay, const rvl_trace_progress *progress)
{
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK)
            return false;
        if (i > 0)
            printf("\n");
        if (!print_heading(replay, i, &device) || !print_stages(replay, i, &device) ||
            !print_oom(replay, i, &device) || !print_readings(replay, i, &device))
            return false;
        print_samples(&device);
    }
    print_notes(replay, progress);
    return true;
}

bool report_print(const rvl_replay *replay, const rvl_trace_progress *progress)
{
    return report_print_tables(replay, progress) && verdict_print(replay);
}
