/* SPDX-License-Identifier: MIT */
/* Fills a timeline (predict/replay/timeline.h), and returns its contents. */
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/options.h"
#include "predict/replay/timeline.h"

#define EXTERNAL "external"
#define START "start"

static rvl_status no_memory(void)
{
    return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the timeline: ask for fewer points");
}

/* ---- Opening ---- */

rvl_status rvl_timeline_open(const rvl_timeline_options *options, rvl_timeline **timeline_out)
{
    rvl_timeline_options known = {0};
    rvl_status status = rvli_options_read(&known, sizeof known, options);
    if (status == RVL_OK)
        status = rvli_flags_check(0, 0, known.reserved);
    if (status != RVL_OK)
        return status;
    uint32_t points = known.points > 0 ? known.points : RVL_TIMELINE_POINTS_DEFAULT;
    if (timeline_out == NULL || points < RVL_TIMELINE_POINTS_MIN ||
        points > RVL_TIMELINE_POINTS_MAX)
        return rvli_error(RVL_ERR_INVALID, "points of a timeline: 16 to 1000000");
    rvl_timeline *timeline = calloc(1, sizeof *timeline);
    if (timeline == NULL)
        return no_memory();
    timeline->points_max = points;
    *timeline_out = timeline;
    return RVL_OK;
}

static bool begin_device(const rvl_timeline *timeline, rvli_timeline_device *device)
{
    device->changes_max = 1;
    device->serial = 1;
    device->buckets = calloc(timeline->points_max, sizeof *device->buckets);
    return device->buckets != NULL;
}

rvl_status rvli_timeline_begin(rvl_timeline *timeline, size_t device_count)
{
    if (timeline->devices != NULL)
        return rvli_error(RVL_ERR_STATE, "this timeline is of another replay: open one for each");
    timeline->devices = calloc(device_count > 0 ? device_count : 1, sizeof *timeline->devices);
    if (timeline->devices == NULL)
        return no_memory();
    timeline->device_count = device_count;
    for (size_t i = 0; i < device_count; i++) {
        if (!begin_device(timeline, &timeline->devices[i]))
            return no_memory();
    }
    return rvli_timeline_stage(timeline, START, 0, 0);
}

rvl_status rvli_timeline_describe(rvl_timeline *timeline, size_t device, int index,
                                  const char *profile, uint64_t capacity_bytes)
{
    rvli_timeline_device *described = &timeline->devices[device];
    char *copy = profile != NULL ? strdup(profile) : NULL;
    if (profile != NULL && copy == NULL)
        return no_memory();
    free(described->profile);
    described->profile = copy;
    described->index = index;
    described->capacity_bytes = capacity_bytes;
    return RVL_OK;
}

/* ---- Series ---- */

/* Makes the key of a series: kind, process, zero byte, tag. NULL: no memory. */
static rvli_timeline_name *make_name(rvli_timeline_kind kind, const char *process, const char *tag,
                                     size_t *size_out)
{
    size_t process_size = strlen(process) + 1;
    size_t tag_size = tag != NULL ? strlen(tag) + 1 : 0;
    rvli_timeline_name *name = calloc(1, sizeof *name + 1 + process_size + tag_size);
    if (name == NULL)
        return NULL;
    name->text[0] = (char)kind;
    memcpy(name->text + 1, process, process_size);
    name->tag_at = SIZE_MAX;
    if (tag != NULL) {
        name->tag_at = 1 + process_size;
        memcpy(name->text + name->tag_at, tag, tag_size);
    }
    *size_out = 1 + process_size + tag_size;
    return name;
}

static bool grow_series(rvli_timeline_device *device)
{
    return RVLI_ROOM(device->series, device->series_count, device->series_capacity, 16);
}

/* Adds a series, which then owns the name. false: no memory, and the caller still owns the name. */
static bool add_series(rvli_timeline_device *device, rvli_timeline_name *name, size_t size)
{
    if (!grow_series(device))
        return false;
    name->series = device->series_count;
    HASH_ADD_KEYPTR(hh, device->names, name->text, size, name);
    if (name->hh.tbl == NULL)
        return false;
    device->series[device->series_count++] = (rvli_timeline_series){
        .process = name->text + 1,
        .tag = name->tag_at != SIZE_MAX ? name->text + name->tag_at : NULL,
        .external = name->text[0] == RVLI_TIMELINE_EXTERNAL,
        .paused = name->text[0] == RVLI_TIMELINE_PAUSED,
    };
    return true;
}

rvl_status rvli_timeline_series_of(rvl_timeline *timeline, size_t device_index,
                                   rvli_timeline_kind kind, const char *process, const char *tag,
                                   uint32_t *series_out)
{
    rvli_timeline_device *device = &timeline->devices[device_index];
    size_t size;
    rvli_timeline_name *found = NULL;
    const char *holder = kind == RVLI_TIMELINE_EXTERNAL ? EXTERNAL : process;
    rvli_timeline_name *name = make_name(kind, holder, tag, &size);
    if (name == NULL)
        return no_memory();
    HASH_FIND(hh, device->names, name->text, size, found);
    if (found != NULL || !add_series(device, name, size)) {
        free(name);
        if (found == NULL)
            return no_memory();
        *series_out = found->series;
        return RVL_OK;
    }
    *series_out = name->series;
    return RVL_OK;
}

/* ---- The open point ---- */

static int compare_values(const void *left, const void *right)
{
    const rvl_timeline_value *a = left;
    const rvl_timeline_value *b = right;
    return a->series < b->series ? -1 : a->series > b->series;
}

/* Makes room by letting points stand for more changes and time. */
static rvl_status make_room(const rvl_timeline *timeline, rvli_timeline_device *device)
{
    uint32_t points = timeline->points_max;
    if (device->bucket_count < points)
        return RVL_OK;
    uint64_t span_ns =
        device->buckets[device->bucket_count - 1].end_ns - device->buckets[0].begin_ns;
    device->changes_max = device->changes / (points / 8) + 1;
    device->span_max_ns = span_ns / (points / 8) + 1;
    return rvli_timeline_merge(device->buckets, &device->bucket_count, device->changes_max,
                               device->span_max_ns, timeline->stages_seen <= points / 8);
}

/* Appends the open point to the others. RVL_ERR_HOST_OOM leaves it open. */
static rvl_status close_open(const rvl_timeline *timeline, rvli_timeline_device *device)
{
    rvli_timeline_bucket *open = &device->open;
    if (open->changes == 0)
        return RVL_OK;
    rvl_status status = make_room(timeline, device);
    if (status != RVL_OK)
        return no_memory();
    uint32_t count = open->value_count;
    rvl_timeline_value *values = malloc((count > 0 ? count : 1) * sizeof *values);
    if (values == NULL)
        return no_memory();
    for (uint32_t i = 0; i < count; i++) {
        const rvli_timeline_series *series = &device->series[open->values[i].series];
        if (series->epoch != device->epoch) /* unchanged since the peak */
            open->values[i].at_peak_bytes = series->bytes;
        values[i] = open->values[i];
    }
    qsort(values, count, sizeof *values, compare_values);
    rvli_timeline_bucket closed = *open;
    closed.values = values;
    device->buckets[device->bucket_count++] = closed;
    *open = (rvli_timeline_bucket){.values = open->values};
    device->serial++;
    return RVL_OK;
}

/* Whether the next commit begins a new point. */
static bool is_full(const rvli_timeline_device *device, uint64_t time_ns)
{
    const rvli_timeline_bucket *open = &device->open;
    return open->changes >= device->changes_max || device->stage_begins ||
           (device->span_max_ns > 0 && time_ns - open->begin_ns >= device->span_max_ns);
}

/* Finds the value of a series in the open point, or adds it. NULL: no memory. */
static rvl_timeline_value *value_of(rvli_timeline_device *device, uint32_t index)
{
    rvli_timeline_series *series = &device->series[index];
    rvli_timeline_bucket *open = &device->open;
    if (series->serial == device->serial)
        return &open->values[series->slot];
    if (!RVLI_ROOM(open->values, open->value_count, device->open_capacity, 16))
        return NULL;
    series->serial = device->serial;
    series->slot = open->value_count++;
    bool from_start = open->changes == 0; /* else it had these bytes for part of the point */
    open->values[series->slot] =
        (rvl_timeline_value){.series = index,
                             .before_bytes = series->bytes,
                             .min_bytes = from_start ? UINT64_MAX : series->bytes,
                             .max_bytes = from_start ? 0 : series->bytes};
    return &open->values[series->slot];
}

rvl_status rvli_timeline_set(rvl_timeline *timeline, uint64_t time_ns, size_t device_index,
                             uint32_t index, uint64_t bytes)
{
    rvli_timeline_device *device = &timeline->devices[device_index];
    rvli_timeline_series *series = &device->series[index];
    if (series->bytes == bytes)
        return RVL_OK;
    if (!device->pending && is_full(device, time_ns)) {
        rvl_status status = close_open(timeline, device);
        if (status != RVL_OK)
            return status;
    }
    rvl_timeline_value *value = value_of(device, index);
    if (value == NULL)
        return no_memory();
    device->pending = true;
    if (series->epoch != device->epoch) { /* the first change since the peak */
        series->epoch = device->epoch;
        value->at_peak_bytes = series->bytes;
    }
    if (!series->paused)
        device->used_bytes += bytes - series->bytes;
    series->bytes = bytes;
    value->last_bytes = bytes;
    value->min_bytes = bytes < value->min_bytes ? bytes : value->min_bytes;
    value->max_bytes = bytes > value->max_bytes ? bytes : value->max_bytes;
    series->peak_bytes = bytes > series->peak_bytes ? bytes : series->peak_bytes;
    return RVL_OK;
}

static void begin_point(rvli_timeline_device *device, uint64_t time_ns)
{
    device->open.begin_ns = time_ns;
    device->open.min_bytes = UINT64_MAX;
    device->open.begins_stage = device->stage_begins;
    device->stage_begins = false;
}

static bool is_above(uint64_t used, uint64_t parts, uint64_t peak_used, uint64_t peak_parts)
{
    return used > peak_used || (used == peak_used && parts > peak_parts);
}

static void commit_device(rvli_timeline_device *device, uint64_t time_ns)
{
    rvli_timeline_bucket *open = &device->open;
    uint64_t used = device->used_bytes;
    bool first = open->changes == 0;
    if (first)
        begin_point(device, time_ns);
    device->pending = false;
    device->changes++;
    open->changes++;
    open->end_ns = time_ns;
    open->last_bytes = used;
    open->min_bytes = used < open->min_bytes ? used : open->min_bytes;
    uint64_t parts = device->part_bytes;
    if (first || is_above(used, parts, open->max_bytes, open->peak_part_bytes)) {
        open->max_bytes = used;
        open->peak_part_bytes = parts;
        open->peak_ns = time_ns;
        device->epoch++;
    }
    if (is_above(used, parts, device->peak_bytes, device->peak_part_bytes)) {
        device->peak_bytes = used;
        device->peak_part_bytes = parts;
        device->peak_ns = time_ns;
    }
}

void rvli_timeline_parts(rvl_timeline *timeline, size_t device, uint64_t bytes)
{
    timeline->devices[device].part_bytes = bytes;
}

void rvli_timeline_commit(rvl_timeline *timeline, uint64_t time_ns)
{
    timeline->end_ns = time_ns;
    for (size_t i = 0; i < timeline->device_count; i++) {
        if (timeline->devices[i].pending)
            commit_device(&timeline->devices[i], time_ns);
    }
}

rvl_status rvli_timeline_stage(rvl_timeline *timeline, const char *name, uint32_t step,
                               uint64_t time_ns)
{
    if (timeline->stage_count == timeline->points_max)
        rvli_timeline_merge_stages(timeline->stages, &timeline->stage_count, time_ns);
    if (!RVLI_ROOM(timeline->stages, timeline->stage_count, timeline->stage_capacity, 16))
        return no_memory();
    char *copy = strdup(name);
    if (copy == NULL)
        return no_memory();
    timeline->stages[timeline->stage_count++] = (rvli_timeline_mark){.name = copy,
                                                                     .step = step,
                                                                     .first = timeline->stages_seen,
                                                                     .count = 1,
                                                                     .begin_ns = time_ns};
    timeline->stages_seen++;
    for (size_t i = 0; i < timeline->device_count; i++)
        timeline->devices[i].stage_begins = true;
    return RVL_OK;
}

rvl_status rvli_timeline_end(rvl_timeline *timeline)
{
    for (size_t i = 0; i < timeline->device_count; i++) {
        rvl_status status = close_open(timeline, &timeline->devices[i]);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static void free_device(rvli_timeline_device *device)
{
    rvli_timeline_name *name, *next;
    HASH_ITER (hh, device->names, name, next) {
        HASH_DEL(device->names, name);
        free(name);
    }
    for (uint32_t i = 0; i < device->bucket_count; i++)
        free(device->buckets[i].values);
    free(device->buckets);
    free(device->open.values);
    free(device->series);
    free(device->profile);
}

void rvl_timeline_close(rvl_timeline *timeline)
{
    if (timeline == NULL)
        return;
    for (size_t i = 0; i < timeline->device_count; i++)
        free_device(&timeline->devices[i]);
    for (uint32_t i = 0; i < timeline->stage_count; i++)
        free(timeline->stages[i].name);
    free(timeline->devices);
    free(timeline->stages);
    free(timeline);
}

/* ---- Returning the contents ---- */

size_t rvl_timeline_device_count(const rvl_timeline *timeline)
{
    return timeline != NULL ? timeline->device_count : 0;
}

uint64_t rvl_timeline_end_ns(const rvl_timeline *timeline)
{
    return timeline != NULL ? timeline->end_ns : 0;
}

uint32_t rvl_timeline_stage_count(const rvl_timeline *timeline)
{
    return timeline != NULL ? timeline->stage_count : 0;
}

static rvl_status find_device(const rvl_timeline *timeline, size_t index, const void *out,
                              const rvli_timeline_device **device_out)
{
    if (timeline == NULL || out == NULL)
        return rvli_error(RVL_ERR_INVALID, "no timeline, or no place for the answer");
    if (index >= timeline->device_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no device of this index in the timeline");
    *device_out = &timeline->devices[index];
    return RVL_OK;
}

rvl_status rvl_timeline_get_device(const rvl_timeline *timeline, size_t index,
                                   rvl_timeline_device *device_out)
{
    const rvli_timeline_device *found = NULL;
    rvl_status status = find_device(timeline, index, device_out, &found);
    if (status != RVL_OK)
        return status;
    rvl_timeline_device device = {
        .struct_size = sizeof device,
        .device = found->index,
        .profile = found->profile,
        .capacity_bytes = found->capacity_bytes,
        .peak_bytes = found->peak_bytes,
        .peak_ns = found->peak_ns,
        .changes = found->changes,
        .series_count = found->series_count,
        .point_count = found->bucket_count,
    };
    return rvli_result_write(device_out, &device, sizeof device);
}

rvl_status rvl_timeline_get_series(const rvl_timeline *timeline, size_t device_index,
                                   uint32_t series_index, rvl_timeline_series *series_out)
{
    const rvli_timeline_device *device = NULL;
    rvl_status status = find_device(timeline, device_index, series_out, &device);
    if (status != RVL_OK)
        return status;
    if (series_index >= device->series_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no series of this index in the timeline");
    const rvli_timeline_series *found = &device->series[series_index];
    rvl_timeline_series series = {
        .struct_size = sizeof series,
        .process = found->process,
        .tag = found->tag,
        .external = found->external,
        .paused = found->paused,
        .peak_bytes = found->peak_bytes,
    };
    return rvli_result_write(series_out, &series, sizeof series);
}

static rvl_status find_point(const rvl_timeline *timeline, size_t device_index,
                             uint32_t point_index, const void *answer,
                             const rvli_timeline_bucket **point_out)
{
    const rvli_timeline_device *device = NULL;
    rvl_status status = find_device(timeline, device_index, answer, &device);
    if (status != RVL_OK)
        return status;
    if (point_index >= device->bucket_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no point of this index in the timeline");
    *point_out = &device->buckets[point_index];
    return RVL_OK;
}

rvl_status rvl_timeline_get_point(const rvl_timeline *timeline, size_t device_index,
                                  uint32_t point_index, rvl_timeline_point *point_out)
{
    const rvli_timeline_bucket *found = NULL;
    rvl_status status = find_point(timeline, device_index, point_index, point_out, &found);
    if (status != RVL_OK)
        return status;
    rvl_timeline_point point = {
        .struct_size = sizeof point,
        .begin_ns = found->begin_ns,
        .end_ns = found->end_ns,
        .changes = found->changes,
        .min_bytes = found->min_bytes,
        .max_bytes = found->max_bytes,
        .last_bytes = found->last_bytes,
        .peak_ns = found->peak_ns,
        .value_count = found->value_count,
    };
    return rvli_result_write(point_out, &point, sizeof point);
}

rvl_status rvl_timeline_get_values(const rvl_timeline *timeline, size_t device_index,
                                   uint32_t point_index, rvl_timeline_value *values_out,
                                   size_t value_size, size_t capacity, size_t *count_out)
{
    const rvli_elements_out out = {.element = RVLI_ELEMENT(rvl_timeline_value, at_peak_bytes),
                                   .array = values_out,
                                   .size = value_size,
                                   .capacity = capacity};
    const rvli_timeline_bucket *found = NULL;
    rvl_status status = find_point(timeline, device_index, point_index, count_out, &found);
    if (status != RVL_OK)
        return status;
    return rvli_elements_fill(&out, found->values, found->value_count, count_out);
}

rvl_status rvl_timeline_get_stage(const rvl_timeline *timeline, uint32_t stage_index,
                                  rvl_timeline_stage *stage_out)
{
    if (timeline == NULL || stage_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "no timeline, or no place for the answer");
    if (stage_index >= timeline->stage_count)
        return rvli_error(RVL_ERR_NOT_FOUND, "no stage of this index in the timeline");
    const rvli_timeline_mark *found = &timeline->stages[stage_index];
    rvl_timeline_stage stage = {.struct_size = sizeof stage,
                                .name = found->name,
                                .step = found->step,
                                .begin_ns = found->begin_ns,
                                .first = found->first,
                                .count = found->count};
    return rvli_result_write(stage_out, &stage, sizeof stage);
}
