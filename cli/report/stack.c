/* SPDX-License-Identifier: MIT */
/* Orders the layers of a chart, and names them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

typedef struct layer {
    uint32_t index;
    rvl_timeline_series series;
} layer;

static int compare_sizes(const void *left, const void *right)
{
    const layer *a = left;
    const layer *b = right;
    if (a->series.peak_bytes != b->series.peak_bytes)
        return a->series.peak_bytes > b->series.peak_bytes ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Whether this is the series for a snapshot's tensors. Other series of its process are memory
 * beyond them. */
static bool is_base(const layer *each)
{
    return each->series.tag != NULL && strcmp(each->series.tag, "tensors") == 0;
}

static int compare_places(const void *left, const void *right)
{
    const layer *a = left;
    const layer *b = right;
    if (a->series.external != b->series.external)
        return a->series.external ? -1 : 1;
    int by_process = strcmp(a->series.process, b->series.process);
    if (by_process != 0)
        return by_process;
    if (is_base(a) != is_base(b))
        return is_base(a) ? -1 : 1;
    return compare_sizes(left, right);
}

static uint32_t pick_layers(const rvl_timeline *timeline, size_t device, bool paused, layer *layers,
                            uint32_t series_count)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < series_count; i++) {
        layers[count] = (layer){.index = i, .series = {.struct_size = sizeof layers->series}};
        if (rvl_timeline_get_series(timeline, device, i, &layers[count].series) == RVL_OK &&
            layers[count].series.paused == paused)
            count++;
    }
    return count;
}

bool stack_make(const rvl_timeline *timeline, size_t device_index, bool paused, uint32_t most,
                stack *stack_out)
{
    rvl_timeline_device device = {.struct_size = sizeof device};
    if (rvl_timeline_get_device(timeline, device_index, &device) != RVL_OK)
        return false;
    size_t room = (size_t)device.series_count + 1;
    layer *layers = calloc(room, sizeof *layers);
    uint32_t *order = calloc(room, sizeof *order);
    if (layers == NULL || order == NULL) {
        free(layers);
        free(order);
        return false;
    }
    uint32_t count = pick_layers(timeline, device_index, paused, layers, device.series_count);
    uint32_t alone = count > most ? most - 1 : count;
    qsort(layers, count, sizeof *layers, compare_sizes);
    qsort(layers, alone, sizeof *layers, compare_places);
    for (uint32_t i = 0; i < count; i++)
        order[i] = layers[i].index;
    free(layers);
    *stack_out =
        (stack){.order = order, .count = count, .alone = alone, .layers = alone + (count > alone)};
    return true;
}

uint32_t stack_reach(const stack *stacked, uint32_t index)
{
    return index < stacked->alone ? index + 1 : stacked->count;
}

char *stack_label(const rvl_timeline *timeline, size_t device, const stack *stacked, uint32_t index)
{
    char *label = NULL, size[SIZE_TEXT_BYTES];
    rvl_timeline_series series = {.struct_size = sizeof series};
    if (index >= stacked->alone)
        return asprintf(&label, "%" PRIu32 " others", stacked->count - stacked->alone) >= 0 ? label
                                                                                            : NULL;
    if (rvl_timeline_get_series(timeline, device, stacked->order[index], &series) != RVL_OK)
        return NULL;
    const char *tag = series.tag != NULL ? series.tag : "untagged";
    if (asprintf(&label, "%s/%s, at most %s", series.process, tag,
                 format_size(series.peak_bytes, size)) < 0)
        return NULL;
    return label;
}

colour stack_colour(const report_run *run, size_t device, const stack *stacked, uint32_t index)
{
    rvl_timeline_series series = {.struct_size = sizeof series};
    if (index >= stacked->alone ||
        rvl_timeline_get_series(run->timeline, device, stacked->order[index], &series) != RVL_OK)
        return palette_rest();
    return palette_colour(run->palette, &series);
}
