/* SPDX-License-Identifier: MIT */
/*
 * Maps times to places along a chart.
 *
 * The axis "time" is linear in time. On the axis "event", every stage has a column of the same
 * width, and within it every instant at which something changes has the same width. So stages of
 * unknown length, such as those of a model, do not hide each other, and a step of ten events is as
 * wide as one of a thousand. With two runs, stages of the same name share a column.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

/* ---- Columns ---- */

static rvl_timeline_stage stage_at(const rvl_timeline *timeline, uint32_t index)
{
    rvl_timeline_stage stage = {.struct_size = sizeof stage};
    rvl_timeline_get_stage(timeline, index, &stage);
    return stage;
}

/* Returns the first stage to show. The time before the first mark counts as a stage only if memory
 * was in use then. */
static uint32_t first_stage(const rvl_timeline *timeline)
{
    if (rvl_timeline_stage_count(timeline) < 2)
        return 0;
    uint64_t begin_ns = stage_at(timeline, 1).begin_ns;
    for (size_t i = 0; i < rvl_timeline_device_count(timeline); i++) {
        rvl_timeline_point point = {.struct_size = sizeof point};
        if (rvl_timeline_get_point(timeline, i, 0, &point) == RVL_OK && point.begin_ns < begin_ns)
            return 0;
    }
    return 1;
}

/* Returns the next stage of this name, starting at `from`; the number of stages: there is none. */
static uint32_t find_stage(const rvl_timeline *timeline, uint32_t from, const char *name)
{
    uint32_t count = rvl_timeline_stage_count(timeline);
    while (from < count && strcmp(stage_at(timeline, from).name, name) != 0)
        from++;
    return from;
}

static bool reserve_columns(report_run *run)
{
    uint32_t count = rvl_timeline_stage_count(run->timeline);
    run->stage_columns = calloc((size_t)count + 1, sizeof *run->stage_columns);
    if (run->stage_columns != NULL && count > 0)
        run->stage_columns[0] = NO_COLUMN;
    return run->stage_columns != NULL;
}

/* Gives every stage a column, and returns the number of columns. Before a stage that both runs have
 * come the stages that only the first has, and those that only the second has. */
static uint32_t align(report_run *first, report_run *second)
{
    uint32_t next = first_stage(first->timeline), column = 0;
    uint32_t count = rvl_timeline_stage_count(first->timeline);
    uint32_t others = second != NULL ? rvl_timeline_stage_count(second->timeline) : 0;
    for (uint32_t i = others > 0 ? first_stage(second->timeline) : 0; i < others; i++) {
        uint32_t same = find_stage(first->timeline, next, stage_at(second->timeline, i).name);
        while (same < count && next < same)
            first->stage_columns[next++] = column++;
        if (same < count)
            first->stage_columns[next++] = column;
        second->stage_columns[i] = column++;
    }
    while (next < count)
        first->stage_columns[next++] = column++;
    return column;
}

bool columns_make(report_run *runs, size_t run_count)
{
    bool ok = true;
    for (size_t i = 0; i < run_count; i++)
        ok = reserve_columns(&runs[i]) && ok;
    if (!ok)
        return false;
    uint32_t count = align(&runs[0], run_count > 1 ? &runs[1] : NULL);
    for (size_t i = 0; i < run_count; i++)
        runs[i].column_count = count;
    return true;
}

/* ---- Knots ---- */

typedef struct times {
    uint64_t *ns;
    size_t count;
    size_t capacity;
} times;

static bool note_time(void *user, const instant *now)
{
    times *seen = user;
    if (seen->count > 0 && seen->ns[seen->count - 1] == now->time_ns)
        return true;
    if (seen->count == seen->capacity) {
        size_t capacity = seen->capacity > 0 ? 2 * seen->capacity : 256;
        uint64_t *grown = realloc(seen->ns, capacity * sizeof *grown);
        if (grown == NULL)
            return false;
        seen->ns = grown;
        seen->capacity = capacity;
    }
    seen->ns[seen->count++] = now->time_ns;
    return true;
}

static void add_knot(axis *made, uint64_t time_ns, double place)
{
    made->knots[made->count++] = (knot){time_ns, place};
}

/* Adds knots at the begin and end of a stage, and at each time between at which something changed.
 */
static void add_stage(axis *made, const times *seen, size_t *next, uint64_t begin_ns,
                      uint64_t end_ns, double column, double columns)
{
    while (*next < seen->count && seen->ns[*next] <= begin_ns)
        ++*next;
    size_t last = *next;
    while (last < seen->count && seen->ns[last] < end_ns)
        last++;
    double slots = (double)(last - *next) + 1;
    add_knot(made, begin_ns, column / columns);
    for (size_t i = *next; i < last; i++)
        add_knot(made, seen->ns[i], (column + (double)(i - *next + 1) / slots) / columns);
    add_knot(made, end_ns, (column + 1) / columns);
    *next = last;
}

static bool by_event(const report_run *run, const times *seen, axis *made)
{
    uint32_t stages = rvl_timeline_stage_count(run->timeline);
    size_t next = 0;
    made->knots = malloc((seen->count + 2 * (size_t)stages + 2) * sizeof *made->knots);
    if (made->knots == NULL)
        return false;
    for (uint32_t i = 0; i < stages; i++) {
        bool last = i + 1 == stages;
        uint64_t end_ns =
            last ? chart_end_ns(run->timeline) : stage_at(run->timeline, i + 1).begin_ns;
        if (run->stage_columns[i] != NO_COLUMN)
            add_stage(made, seen, &next, stage_at(run->timeline, i).begin_ns, end_ns,
                      run->stage_columns[i], run->column_count);
    }
    return true;
}

bool axis_make(const report_run *run, size_t device, axis *axis_out)
{
    times seen = {0};
    bool ok = true;
    *axis_out = (axis){0};
    if (run->axis == AXIS_EVENT)
        ok = walk_instants(run->timeline, device, note_time, &seen) &&
             by_event(run, &seen, axis_out);
    free(seen.ns);
    if (ok && axis_out->count == 0) {
        free(axis_out->knots);
        axis_out->knots = calloc(2, sizeof *axis_out->knots);
        ok = axis_out->knots != NULL;
    }
    if (ok && axis_out->count == 0) {
        add_knot(axis_out, 0, 0);
        add_knot(axis_out, run->end_ns > 0 ? run->end_ns : 1, 1);
    }
    return ok;
}

double axis_place(const axis *along, uint64_t time_ns)
{
    size_t low = 0, high = along->count - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (along->knots[middle].time_ns <= time_ns)
            low = middle;
        else
            high = middle - 1;
    }
    const knot *from = &along->knots[low], *to = from + 1;
    if (low + 1 == along->count || time_ns <= from->time_ns)
        return from->place;
    double part = (double)(time_ns - from->time_ns) / (double)(to->time_ns - from->time_ns);
    return from->place + part * (to->place - from->place);
}
