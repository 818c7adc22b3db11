/* SPDX-License-Identifier: MIT */
/* Turns a timeline into a sequence of instants. */
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#define NARROW_PART 16 /* the last stage gets at least this fraction, a 16th, of the whole time */

typedef struct walker {
    const rvl_timeline *timeline;
    size_t device;
    uint64_t *bytes;
    bool *paused;               /* by series */
    rvl_timeline_value *values; /* of the current point, with room for all series */
    uint32_t series_count;
    uint64_t used_bytes;
    uint64_t paused_bytes;
    instant_fn callback;
    void *user;
    uint64_t until_ns;
} walker;

static void set_bytes(walker *walk, uint32_t series, uint64_t bytes)
{
    uint64_t *sum = walk->paused[series] ? &walk->paused_bytes : &walk->used_bytes;
    *sum += bytes - walk->bytes[series];
    walk->bytes[series] = bytes;
}

static bool tell(walker *walk, const rvl_timeline_point *point, uint64_t time_ns, uint64_t until_ns)
{
    instant now = {
        .time_ns = time_ns,
        .until_ns = until_ns,
        .bytes = walk->bytes,
        .used_bytes = walk->used_bytes,
        .paused_bytes = walk->paused_bytes,
        .values = walk->values,
        .value_count = point->value_count,
    };
    return walk->callback(walk->user, &now);
}

bool read_point(const rvl_timeline *timeline, size_t device, uint32_t index,
                rvl_timeline_point *point_out, rvl_timeline_value *values_out, size_t capacity)
{
    size_t count = 0;
    *point_out = (rvl_timeline_point){.struct_size = sizeof *point_out};
    return rvl_timeline_get_point(timeline, device, index, point_out) == RVL_OK &&
           rvl_timeline_get_values(timeline, device, index, values_out, sizeof *values_out,
                                   capacity, &count) == RVL_OK;
}

/* Reads a point, and its values into walk->values, where they are valid until the next call. */
static bool enter_point(walker *walk, uint32_t index, rvl_timeline_point *point_out)
{
    return read_point(walk->timeline, walk->device, index, point_out, walk->values,
                      walk->series_count);
}

/* Whether the peak of the current point is at another instant than its end. */
static bool has_peak_apart(const walker *walk, const rvl_timeline_point *point)
{
    for (uint32_t i = 0; i < point->value_count; i++) {
        if (walk->values[i].at_peak_bytes != walk->values[i].last_bytes)
            return true;
    }
    return point->peak_ns < point->end_ns;
}

static bool walk_point(walker *walk, const rvl_timeline_point *point, uint64_t next_ns)
{
    if (has_peak_apart(walk, point)) {
        for (uint32_t i = 0; i < point->value_count; i++)
            set_bytes(walk, walk->values[i].series, walk->values[i].at_peak_bytes);
        if (!tell(walk, point, point->peak_ns, point->end_ns))
            return false;
    }
    for (uint32_t i = 0; i < point->value_count; i++)
        set_bytes(walk, walk->values[i].series, walk->values[i].last_bytes);
    return tell(walk, point, point->end_ns, next_ns);
}

/* Finds the time of the next point's first instant, or, after the last point, the chart's end. */
static bool find_next(walker *walk, uint32_t index, uint32_t count, uint64_t *next_ns_out)
{
    rvl_timeline_point next;
    *next_ns_out = chart_end_ns(walk->timeline);
    if (index + 1 >= count)
        return true;
    if (!enter_point(walk, index + 1, &next))
        return false;
    *next_ns_out = has_peak_apart(walk, &next) ? next.peak_ns : next.end_ns;
    return true;
}

static bool walk_points(walker *walk, uint32_t count)
{
    rvl_timeline_point point;
    uint64_t next_ns = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!find_next(walk, i, count, &next_ns) || !enter_point(walk, i, &point) ||
            !walk_point(walk, &point, next_ns))
            return false;
    }
    return true;
}

uint64_t chart_end_ns(const rvl_timeline *timeline)
{
    uint64_t end_ns = rvl_timeline_end_ns(timeline);
    uint64_t narrow_ns = end_ns / NARROW_PART;
    rvl_timeline_stage last = {.struct_size = sizeof last};
    uint32_t count = rvl_timeline_stage_count(timeline);
    if (count == 0 || rvl_timeline_get_stage(timeline, count - 1, &last) != RVL_OK ||
        end_ns - last.begin_ns >= narrow_ns || end_ns > UINT64_MAX - narrow_ns)
        return end_ns;
    return last.begin_ns + narrow_ns;
}

bool walk_instants(const rvl_timeline *timeline, size_t device_index, instant_fn callback,
                   void *user)
{
    rvl_timeline_device device = {.struct_size = sizeof device};
    if (rvl_timeline_get_device(timeline, device_index, &device) != RVL_OK)
        return false;
    walker walk = {
        .timeline = timeline, .device = device_index, .callback = callback, .user = user};
    walk.bytes = calloc((size_t)device.series_count + 1, sizeof *walk.bytes);
    walk.paused = calloc((size_t)device.series_count + 1, sizeof *walk.paused);
    walk.values = calloc((size_t)device.series_count + 1, sizeof *walk.values);
    walk.series_count = device.series_count;
    bool ok = walk.bytes != NULL && walk.paused != NULL && walk.values != NULL;
    for (uint32_t i = 0; ok && i < device.series_count; i++) {
        rvl_timeline_series series = {.struct_size = sizeof series};
        ok = rvl_timeline_get_series(timeline, device_index, i, &series) == RVL_OK;
        walk.paused[i] = series.paused;
    }
    ok = ok && walk_points(&walk, device.point_count);
    free(walk.bytes);
    free(walk.paused);
    free(walk.values);
    return ok;
}

static bool note_paused(void *user, const instant *now)
{
    uint64_t *most = user;
    *most = now->paused_bytes > *most ? now->paused_bytes : *most;
    return true;
}

bool most_paused(const rvl_timeline *timeline, size_t device, uint64_t *bytes_out)
{
    *bytes_out = 0;
    return walk_instants(timeline, device, note_paused, bytes_out);
}
