/* SPDX-License-Identifier: MIT */
/*
 * Prints the result of a replay: a table for each device, with a row for each stage, and below it
 * the first instant that does not fit. A table that devices share (alike.h) shows the largest of
 * each row, and the device that has it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alike.h"
#include "command.h"

#define NS_PER_SECOND 1e9
#define ROWS_MOST 100u /* of a table, unless --each-stage is given */

enum { STAGE, PEAK, MARK, DEVICES, LEAST, END, FREE, HOST, SECONDS, HOLDERS, COLUMNS };

/* [0]: for one device; [1]: for several. A column without a title and cells takes no space. */
static const char *const titles[2][COLUMNS] = {
    {"stage", "peak", "", "", "", "end", "free at peak", "host", "seconds", "who holds the peak"},
    {"stage", "peak", "", "on device", "elsewhere from", "end", "free at peak", "host", "seconds",
     "who holds the peak"},
};
static const bool right[COLUMNS] = {false, true, false, true, true, true, true, true, true, false};

/* Returns "engine/kv_cache". The caller frees it. NULL: no memory. */
static char *holder_name(const char *process, const char *tag)
{
    char *name = NULL;
    if (asprintf(&name, "%s/%s", process, tag != NULL ? tag : "untagged") < 0)
        return NULL;
    char *text = printable(name);
    free(name);
    return text;
}

/* Returns "engine/kv_cache 94.2 GiB, engine/weights 30.7 GiB, 12 others 3.0 GiB". The caller frees
 * it. NULL: no memory. */
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

/* ---- Device numbers ---- */

typedef struct number_list {
    int numbers[RVL_MAX_DEVICES]; /* ascending */
    size_t count;
} number_list;

/* Returns "0-3, 6". The caller frees it. NULL: no memory. */
static char *numbers_text(const number_list *list)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    for (size_t i = 0, end; i < list->count; i = end) {
        for (end = i + 1; end < list->count && list->numbers[end] == list->numbers[end - 1] + 1;)
            end++;
        fprintf(out, "%s%d", i > 0 ? ", " : "", list->numbers[i]);
        if (end > i + 1)
            fprintf(out, "-%d", list->numbers[end - 1]);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* ---- Rows ---- */

/*
 * Returns "forward x50, most in #37", or "other stages x50, most in step-7". The caller frees it.
 * NULL: no memory.
 */
static char *row_name(const peak *row)
{
    const rvl_stage_stats *stats = &row->stats;
    char *text = NULL;
    if (row->count <= 1)
        return printable(stats->name);
    char *mark = printable(stats->mark), *largest = printable(peak_largest(row));
    if (mark == NULL || largest == NULL ||
        asprintf(&text, "%s x%" PRIu32 ", most in %s", mark, row->count, largest) < 0)
        text = NULL;
    free(mark);
    free(largest);
    return text;
}

/* Returns the name of the row that stands for all omitted rows. The caller frees it. NULL: no
 * memory. */
static char *rest_name(const peak *largest, uint64_t count)
{
    char *text = NULL, *shown = printable(largest->stats.name);
    if (shown == NULL || asprintf(&text, "%" PRIu64 " others (--each-stage lists them), most in %s",
                                  count, shown) < 0)
        text = NULL;
    free(shown);
    return text;
}

/* Returns the devices that have a row's largest peak. Stores the smallest peak of the other devices
 * in least_text. The caller frees the result. NULL: no memory. */
static char *where_text(const alike_group *of, size_t row, const peak *largest,
                        char least_text[SIZE_TEXT_BYTES])
{
    uint64_t least = largest->stats.peak_bytes;
    least_text[0] = '\0';
    if (of->count == 1)
        return strdup("");
    for (size_t i = 0; i < of->count; i++) {
        uint64_t bytes = of->members[i]->rows[row].stats.peak_bytes;
        least = bytes < least ? bytes : least;
    }
    if (least == largest->stats.peak_bytes)
        return strdup("each");
    format_size(least, least_text);
    number_list largest_on = {.count = 0};
    for (size_t i = 0; i < of->count; i++)
        if (of->members[i]->rows[row].stats.peak_bytes == largest->stats.peak_bytes)
            largest_on.numbers[largest_on.count++] = of->members[i]->facts.device;
    return numbers_text(&largest_on);
}

static bool is_over_budget(const alike_group *of, size_t row)
{
    for (size_t i = 0; i < of->count; i++)
        if (of->members[i]->rows[row].over_budget)
            return true;
    return false;
}

/*
 * Prints a row, or, without to_print, widens the table for it, without its holders. rest: the
 * number of omitted stages that the row stands for, and of which it is the largest; 0: an ordinary
 * row. false: no memory.
 */
static bool show_row(table *rows, const alike_group *of, size_t row, uint64_t rest, bool to_print)
{
    const peak *largest = alike_largest(of, row);
    const rvl_stage_stats *stats = &largest->stats;
    char sizes[5][SIZE_TEXT_BYTES], seconds[32];
    char *name = rest > 0 ? rest_name(largest, rest) : row_name(largest);
    char *where = where_text(of, row, largest, sizes[4]);
    char *holders =
        to_print ? holders_text(of->replay, largest->device, largest->stage, stats->peak_bytes)
                 : strdup("");
    bool ok = name != NULL && where != NULL && holders != NULL;
    if (ok) {
        bool fits = stats->peak_bytes <= of->members[0]->facts.capacity_bytes;
        bool over_budget = is_over_budget(of, row);
        snprintf(seconds, sizeof seconds, "%.3f", (double)stats->transition_ns / NS_PER_SECOND);
        const char *cells[COLUMNS] = {
            [STAGE] = name,
            [PEAK] = format_size(stats->peak_bytes, sizes[0]),
            [MARK] = mark_of(fits, over_budget),
            [DEVICES] = where,
            [LEAST] = sizes[4],
            [END] = format_size(stats->end_bytes, sizes[1]),
            [FREE] = format_size(stats->free_at_peak_bytes, sizes[2]),
            [HOST] = format_size(stats->host_bytes, sizes[3]),
            [SECONDS] = seconds,
            [HOLDERS] = holders,
        };
        if (to_print)
            table_put(rows, cells, !fits || over_budget, "  ");
        else
            table_widen(rows, cells);
    }
    free(name);
    free(where);
    free(holders);
    return ok;
}

/* There can be a row for every event. So we make each row twice instead of storing it. */
static bool print_rows(const alike_group *of, bool each_stage)
{
    size_t count = of->members[0]->row_count, most = each_stage ? SIZE_MAX : ROWS_MOST;
    table *rows = table_new(titles[of->count > 1], right, COLUMNS);
    ranked_peak *ranked = calloc(count + 1, sizeof *ranked);
    bool ok = rows != NULL && ranked != NULL;
    uint64_t rest = 0;
    for (size_t i = 0; ok && i < count; i++)
        ranked[i] = (ranked_peak){alike_largest(of, i), i};
    if (ok)
        peaks_rank(ranked, count, most);
    for (size_t i = most; ok && i < count; i++)
        rest += ranked[i].row->count;
    for (int to_print = 0; to_print <= 1; to_print++) {
        ok = ok && (to_print == 0 || table_print(rows, "  "));
        for (size_t i = 0; ok && i < count && i < most; i++)
            ok = show_row(rows, of, ranked[i].at, 0, to_print > 0);
        if (ok && rest > 0)
            ok = show_row(rows, of, ranked[most].at, rest, to_print > 0);
    }
    table_free(rows);
    free(ranked);
    return ok;
}

/* ---- Around the table ---- */

/* Returns the name of a device's stage. The caller frees it. NULL: no memory. */
static char *stage_text(const rvl_replay *replay, size_t index, uint32_t stage)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    if (rvl_replay_get_stage(replay, index, stage, &stats, NULL) != RVL_OK)
        return strdup("no stage");
    return printable(stats.name);
}

/* Describes the doubt about a device that fits, if there is one. */
static void format_doubt(const rvl_replay_device *device, char *text, size_t size)
{
    char doubt[SIZE_TEXT_BYTES];
    text[0] = '\0';
    if (device->flags & RVL_REPLAY_DEVICE_DOUBTFUL)
        snprintf(text, size, " (in doubt: programs may get %s less)",
                 format_size(device->capacity_doubt_bytes, doubt));
}

static bool is_any_over_budget(const alike_group *of)
{
    for (size_t i = 0; i < of->count; i++)
        if (!of->members[i]->facts.within_budgets)
            return true;
    return false;
}

/* Prints "device 0: ...", or "devices 0-3: ..." and the device that has the peak. */
static bool print_heading(const alike_group *of)
{
    const device_rows *fullest = alike_fullest(of);
    const rvl_replay_device *device = &fullest->facts;
    char capacity[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES], doubt[64 + SIZE_TEXT_BYTES];
    char where[32] = "";
    number_list all = {.count = of->count};
    for (size_t i = 0; i < of->count; i++)
        all.numbers[i] = of->members[i]->facts.device;
    char *numbers = numbers_text(&all);
    char *stage = stage_text(of->replay, fullest->index, device->peak_stage);
    char *profile = printable(device->profile != NULL ? device->profile : "given by size");
    bool ok = numbers != NULL && stage != NULL && profile != NULL, many = of->count > 1;
    format_doubt(device, doubt, sizeof doubt);
    if (many)
        snprintf(where, sizeof where, " of device %d", device->device);
    if (ok)
        printf("device%s %s: %s%s, %s%s; peak %s in %s%s%s%s\n", many ? "s" : "", numbers, profile,
               device->flags & RVL_REPLAY_DEVICE_ASSUMED ? " (assumed: --device names yours)" : "",
               format_size(device->capacity_bytes, capacity), many ? " each" : "",
               format_size(device->peak_bytes, most), stage, where, doubt,
               is_any_over_budget(of) ? ", over budget" : "");
    free(numbers);
    free(stage);
    free(profile);
    return ok;
}

/* which: "device 3: ", or "" if the heading names the device. */
static bool print_oom(const rvl_replay *replay, size_t index, const rvl_replay_device *device,
                      const char *which)
{
    char requested[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES];
    if (device->peak_bytes <= device->capacity_bytes)
        return true;
    char *file = printable(device->oom_file != NULL ? device->oom_file : "?");
    char *holder = holder_name(device->oom_process, device->oom_tag);
    char *stage = stage_text(replay, index, device->oom_stage);
    bool ok = file != NULL && holder != NULL && stage != NULL;
    if (ok)
        printf("  %sdoes not fit from %s:%" PRIu32 " on: in %s, %s asks for %s, %s are free\n",
               which, file, device->oom_line, stage, holder,
               format_size(device->oom_requested_bytes, requested),
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

/* Prints the memory that was really in use at the end of stages, if the trace has such readings. */
static bool print_readings(const rvl_replay *replay, size_t index, const rvl_replay_device *device,
                           const char *which)
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
            printf("  %slast reading in %s: %s, predicted %s (%s)\n", which, name,
                   format_size(read, sizes[0]), format_size(predicted, sizes[1]),
                   format_change(change_percent(read, predicted), change));
        free(name);
    }
    return ok;
}

static void print_samples(const rvl_replay_device *device, const char *which)
{
    char size[SIZE_TEXT_BYTES], samples[COUNT_TEXT_BYTES];
    int64_t worst = device->worst_sample_difference_bytes;
    uint64_t bytes = worst < 0 ? (uint64_t)0 - (uint64_t)worst : (uint64_t)worst;
    if (device->sample_count == 0)
        return;
    printf("  %s%s of the true use: at worst the prediction is %s %s\n", which,
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

static bool print_group(const alike_group *of, bool each_stage)
{
    char which[32] = "";
    bool ok = print_heading(of) && print_rows(of, each_stage);
    for (size_t i = 0; ok && i < of->count; i++) {
        const device_rows *member = of->members[i];
        if (of->count > 1)
            snprintf(which, sizeof which, "device %d: ", member->facts.device);
        ok = print_oom(of->replay, member->index, &member->facts, which) &&
             print_readings(of->replay, member->index, &member->facts, which);
        print_samples(&member->facts, which);
    }
    return ok;
}

bool report_print_tables(const rvl_replay *replay, const rvl_trace_progress *progress,
                         bool each_stage)
{
    size_t count = rvl_replay_device_count(replay), row_count = 0;
    peak *rows = NULL;
    device_rows *all = calloc(count + 1, sizeof *all);
    bool ok =
        all != NULL &&
        peaks_of(replay, each_stage ? PEAKS_OF_NONE : PEAKS_OF_PROCESSES, &rows, &row_count) &&
        alike_read(replay, rows, row_count, all, count);
    for (size_t i = 0; ok && i < count; i++) {
        alike_group found = {.replay = replay};
        if (all[i].is_shown)
            continue;
        alike_gather(all, count, i, each_stage, &found);
        if (i > 0)
            printf("\n");
        ok = print_group(&found, each_stage);
    }
    if (ok)
        print_notes(replay, progress);
    free(all);
    free(rows);
    return ok;
}
