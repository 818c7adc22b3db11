/* SPDX-License-Identifier: MIT */
/* Prints two runs stage by stage, as a table: both peaks, and the holders that differ. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#define WHO_MAX 3u /* holders to name */

/* The bytes of a holder at the peak in the first run, minus those in the second. */
typedef struct difference {
    rvl_holder holder;
    int64_t bytes;
} difference;

typedef struct differences {
    difference list[2 * RVL_REPLAY_LISTED_HOLDERS];
    size_t count;
} differences;

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void add_bytes(differences *sum, const rvl_holder *holder, int64_t bytes)
{
    size_t i = 0;
    while (i < sum->count && !(same_text(sum->list[i].holder.process, holder->process) &&
                               same_text(sum->list[i].holder.tag, holder->tag)))
        i++;
    if (i == sum->count)
        sum->list[sum->count++] = (difference){.holder = *holder};
    sum->list[i].bytes += bytes;
}

static bool add_holders(differences *sum, const report_run *run, size_t device, uint32_t stage,
                        int sign)
{
    rvl_holder holders[RVL_REPLAY_LISTED_HOLDERS];
    size_t count = 0;
    if (rvl_replay_get_holders(run->replay, device, stage, holders, sizeof *holders,
                               RVL_REPLAY_LISTED_HOLDERS, &count) != RVL_OK)
        return false;
    for (size_t i = 0; i < count && i < RVL_REPLAY_LISTED_HOLDERS; i++)
        add_bytes(sum, &holders[i], sign * (int64_t)holders[i].bytes);
    return true;
}

static uint64_t size_of(int64_t bytes)
{
    return bytes < 0 ? (uint64_t)0 - (uint64_t)bytes : (uint64_t)bytes;
}

static int compare_differences(const void *left, const void *right)
{
    const difference *a = left;
    const difference *b = right;
    if (size_of(a->bytes) != size_of(b->bytes))
        return size_of(a->bytes) > size_of(b->bytes) ? -1 : 1;
    int by_process = strcmp(a->holder.process, b->holder.process);
    if (by_process != 0)
        return by_process;
    return strcmp(a->holder.tag != NULL ? a->holder.tag : "",
                  b->holder.tag != NULL ? b->holder.tag : "");
}

/* Formats "+61.0 GiB" or "-512 B"; "" for 0. */
static const char *signed_size(int64_t bytes, char text[SIZE_TEXT_BYTES + 1])
{
    text[0] = bytes < 0 ? '-' : '+';
    format_size(size_of(bytes), text + 1);
    return bytes == 0 ? "" : text;
}

/* Returns "engine/kv_cache -94.8 GiB, trainer/untagged +1.0 MiB". The caller frees it. NULL: no
 * memory. */
static char *who_differs(differences *found)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return NULL;
    qsort(found->list, found->count, sizeof *found->list, compare_differences);
    for (size_t i = 0; i < found->count && i < WHO_MAX && found->list[i].bytes != 0; i++) {
        const difference *each = &found->list[i];
        char amount[SIZE_TEXT_BYTES + 1];
        fprintf(out, "%s%s/%s %s", i > 0 ? ", " : "", each->holder.process,
                each->holder.tag != NULL ? each->holder.tag : "untagged",
                signed_size(each->bytes, amount));
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

/* Returns the listed stage of a run in this column; the number of stages: there is none. */
static uint32_t stage_in(const report_run *run, size_t device, uint32_t column)
{
    uint32_t count = rvl_timeline_stage_count(run->timeline), i = 0;
    while (i < count && (run->stage_columns[i] != column || !stage_is_listed(run, device, i)))
        i++;
    return i;
}

static bool add_row(table *rows, const report_run *runs[2], size_t device, uint32_t column)
{
    char peaks[2][SIZE_TEXT_BYTES] = {"", ""}, change[SIZE_TEXT_BYTES + 1] = "";
    listed_stage stages[2] = {0};
    differences found = {.count = 0};
    bool has[2];
    for (int i = 0; i < 2; i++) {
        uint32_t index = stage_in(runs[i], device, column);
        has[i] = index < rvl_timeline_stage_count(runs[i]->timeline);
        if (has[i] && (!stage_get(runs[i], device, index, &stages[i]) ||
                       !add_holders(&found, runs[i], device, stages[i].peak_stage, i > 0 ? -1 : 1)))
            return false;
        if (has[i])
            format_size(stages[i].stats.peak_bytes, peaks[i]);
    }
    if (!has[0] && !has[1])
        return true;
    bool both = has[0] && has[1];
    char *who = both ? who_differs(&found) : strdup(has[0] ? "first run only" : "second run only");
    const char *by =
        both ? signed_size((int64_t)(stages[0].stats.peak_bytes - stages[1].stats.peak_bytes),
                           change)
             : "";
    if (who != NULL)
        table_add(rows, (const char *const[]){stages[has[0] ? 0 : 1].stats.name, peaks[0], peaks[1],
                                              by, who});
    free(who);
    return who != NULL;
}

static int device_number(const report_run *run, size_t index)
{
    rvl_timeline_device device = {.struct_size = sizeof device};
    return rvl_timeline_get_device(run->timeline, index, &device) == RVL_OK ? device.device : 0;
}

bool print_differences(const report_run *run, const report_run *against, size_t device)
{
    static const char *const titles[] = {"stage", "peak", "second run", "difference",
                                         "who differs at the peak"};
    static const bool right[] = {false, true, true, true, false};
    const report_run *runs[2] = {run, against};
    table *rows = table_new(titles, right, 5);
    bool ok = rows != NULL;
    for (uint32_t column = 0; ok && column < run->column_count; column++)
        ok = add_row(rows, runs, device, column);
    if (ok)
        printf("\ndifferences on device %d\n", device_number(run, device));
    ok = ok && table_print(rows, "  ");
    table_free(rows);
    return ok;
}
