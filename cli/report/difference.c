/* SPDX-License-Identifier: MIT */
/*
 * The difference of each holder between two runs, along a chart. It is sampled at as many places as
 * a picture can show, so that its size does not depend on the runs.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

/* The state of adding a run. */
typedef struct filling {
    difference_curves *made;
    const axis *along;
    uint32_t *layer_of; /* by series; equal to made->layers: the series is paused */
    uint32_t series_count;
    double sign;
} filling;

static bool same_series(const rvl_timeline_series *a, const rvl_timeline_series *b)
{
    bool same_tag =
        a->tag == NULL || b->tag == NULL ? a->tag == b->tag : strcmp(a->tag, b->tag) == 0;
    return a->external == b->external && same_tag && strcmp(a->process, b->process) == 0;
}

/* Returns the layer of a holder, or the last layer, which is for all holders without their own. */
static uint32_t layer_of(const difference_curves *made, const rvl_timeline_series *series)
{
    uint32_t i = 0;
    while (i + 1 < made->layers && !same_series(&made->keys[i], series))
        i++;
    return i;
}

/* Adds layers for the holders that the run's chart draws separately. false: no memory. */
static bool add_layers(difference_curves *made, const report_run *run, size_t device)
{
    stack stacked;
    if (!stack_make(run->timeline, device, false, LAYERS_MAX, &stacked))
        return false;
    for (uint32_t i = 0; i < stacked.alone; i++) {
        rvl_timeline_series series = {.struct_size = sizeof series};
        rvl_timeline_get_series(run->timeline, device, stacked.order[i], &series);
        if (layer_of(made, &series) + 1 < made->layers)
            continue;
        made->keys[made->layers - 1] = series;
        made->layers++;
    }
    free(stacked.order);
    return true;
}

/* Adds an instant to all places up to that of the next instant. */
static bool fill_instant(void *user, const instant *now)
{
    filling *fill = user;
    difference_curves *made = fill->made;
    size_t from = (size_t)(axis_place(fill->along, now->time_ns) * (DIFFERENCE_PLACES - 1) + 0.999);
    size_t to = (size_t)(axis_place(fill->along, now->until_ns) * (DIFFERENCE_PLACES - 1) + 0.999);
    for (size_t place = from; place < to || (place == to && to + 1 == DIFFERENCE_PLACES); place++) {
        for (uint32_t i = 0; i < fill->series_count; i++) {
            if (fill->layer_of[i] < made->layers)
                made->bytes[fill->layer_of[i] * DIFFERENCE_PLACES + place] +=
                    fill->sign * (double)now->bytes[i];
        }
    }
    return true;
}

static bool fill_run(difference_curves *made, const report_run *run, size_t device, double sign)
{
    rvl_timeline_device of = {.struct_size = sizeof of};
    axis along = {0};
    if (rvl_timeline_get_device(run->timeline, device, &of) != RVL_OK)
        return false;
    filling fill = {.made = made, .along = &along, .series_count = of.series_count, .sign = sign};
    fill.layer_of = calloc((size_t)of.series_count + 1, sizeof *fill.layer_of);
    bool ok = fill.layer_of != NULL && axis_make(run, device, &along);
    for (uint32_t i = 0; ok && i < of.series_count; i++) {
        rvl_timeline_series series = {.struct_size = sizeof series};
        rvl_timeline_get_series(run->timeline, device, i, &series);
        fill.layer_of[i] = series.paused ? made->layers : layer_of(made, &series);
    }
    ok = ok && walk_instants(run->timeline, device, fill_instant, &fill);
    free(fill.layer_of);
    free(along.knots);
    return ok;
}

static void find_edges(difference_curves *made)
{
    for (size_t place = 0; place < DIFFERENCE_PLACES; place++) {
        double up = 0, down = 0;
        for (uint32_t layer = 0; layer < made->layers; layer++) {
            double bytes = made->bytes[layer * DIFFERENCE_PLACES + place];
            *(bytes > 0 ? &up : &down) += bytes;
        }
        made->most = up > made->most ? up : made->most;
        made->least = down < made->least ? down : made->least;
    }
}

bool difference_make(const report_run *run, const report_run *against, size_t device,
                     difference_curves *made_out)
{
    *made_out = (difference_curves){.layers = 1};
    if (!add_layers(made_out, run, device) || !add_layers(made_out, against, device))
        return false;
    made_out->bytes = calloc((size_t)made_out->layers * DIFFERENCE_PLACES, sizeof *made_out->bytes);
    if (made_out->bytes == NULL || !fill_run(made_out, run, device, 1) ||
        !fill_run(made_out, against, device, -1)) {
        free(made_out->bytes);
        return false;
    }
    find_edges(made_out);
    return true;
}
