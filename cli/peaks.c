/* SPDX-License-Identifier: MIT */
#include "peaks.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *left, const void *right)
{
    const peak *a = left, *b = right;
    int order = strcmp(a->stats.mark, b->stats.mark);
    if (order != 0)
        return order;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->stage < b->stage ? -1 : a->stage > b->stage;
}

static int by_place(const void *left, const void *right)
{
    const peak *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* Joins the stages of the same name and rank, which must be adjacent. Returns how many remain. */
static size_t join_names(peak *list, size_t count)
{
    size_t names = 0;
    for (size_t i = 0; i < count; i++) {
        peak *last = names > 0 ? &list[names - 1] : NULL;
        if (last == NULL || last->rank != list[i].rank ||
            strcmp(last->stats.mark, list[i].stats.mark) != 0) {
            list[names++] = list[i];
            continue;
        }
        last->count += list[i].count;
        last->over_budget = last->over_budget || list[i].over_budget;
        if (list[i].stats.peak_bytes > last->stats.peak_bytes) {
            last->stage = list[i].stage;
            last->stats = list[i].stats;
        }
    }
    return names;
}

static size_t read_device(const rvl_replay *replay, size_t index, uint32_t stage_count,
                          peaks_shared shared, peak *list)
{
    size_t count = 0;
    bool of_processes = true;
    for (uint32_t i = 0; i < stage_count; i++) {
        peak *each = &list[count];
        rvl_replay_mark mark = {.struct_size = sizeof mark};
        bool marked = rvl_replay_get_mark(replay, index, i, &mark) == RVL_OK;
        *each = (peak){.device = index,
                       .stage = i,
                       .first = i,
                       .count = marked && mark.count > 1 ? mark.count : 1,
                       .rank = marked && shared == PEAKS_OF_RANKS ? mark.rank : RVL_NO_RANK,
                       .stats = {.struct_size = sizeof each->stats}};
        if (rvl_replay_get_stage(replay, index, i, &each->stats, &each->over_budget) != RVL_OK)
            continue;
        of_processes = of_processes && marked && (mark.flags & RVL_REPLAY_MARK_OF_PROCESS) != 0;
        count++;
    }
    if (shared == PEAKS_OF_NONE || (shared != PEAKS_OF_ALL && !of_processes))
        return count;
    qsort(list, count, sizeof *list, by_name);
    return join_names(list, count);
}

bool peaks_of(const rvl_replay *replay, peaks_shared shared, peak **peaks_out, size_t *count_out)
{
    size_t room = 1, count = 0, devices = rvl_replay_device_count(replay);
    rvl_replay_device device = {.struct_size = sizeof device};
    for (size_t i = 0; i < devices; i++)
        room += rvl_replay_get_device(replay, i, &device) == RVL_OK ? device.stage_count : 0;
    peak *list = calloc(room, sizeof *list);
    for (size_t i = 0; list != NULL && i < devices; i++) {
        if (rvl_replay_get_device(replay, i, &device) == RVL_OK)
            count += read_device(replay, i, device.stage_count, shared, list + count);
    }
    if (list != NULL)
        qsort(list, count, sizeof *list, by_place);
    *peaks_out = list;
    *count_out = count;
    return list != NULL;
}

const char *peak_largest(const peak *row)
{
    const char *behind = row->stats.name + strlen(row->stats.mark);
    if (behind[0] == '\0')
        return "#1";
    return behind[0] == ':' ? behind + strlen(": ") : behind;
}

/* ---- Many rows ---- */

static int by_peak(const void *left, const void *right)
{
    const ranked_peak *a = left, *b = right;
    if (a->row->over_budget != b->row->over_budget)
        return a->row->over_budget ? -1 : 1;
    if (a->row->stats.peak_bytes != b->row->stats.peak_bytes)
        return a->row->stats.peak_bytes > b->row->stats.peak_bytes ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static int by_order(const void *left, const void *right)
{
    const ranked_peak *a = left, *b = right;
    return a->at < b->at ? -1 : a->at > b->at;
}

void peaks_rank(ranked_peak *rows, size_t count, size_t most)
{
    if (count <= most)
        return;
    qsort(rows, count, sizeof *rows, by_peak);
    qsort(rows, most, sizeof *rows, by_order);
}
