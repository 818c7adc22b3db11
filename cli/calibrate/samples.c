/* SPDX-License-Identifier: MIT */
#include "calibrate/samples.h"

#include <stdlib.h>
#include <string.h>

static series *find(const samples *all, const char *act, uint64_t bytes)
{
    for (size_t i = 0; i < all->count; i++) {
        if (all->list[i].bytes == bytes && strcmp(all->list[i].act, act) == 0)
            return &all->list[i];
    }
    return NULL;
}

const series *samples_find(const samples *all, const char *act, uint64_t bytes)
{
    return find(all, act, bytes);
}

/* Makes room for one more entry of `size` bytes. NULL: no memory; the list is unchanged. */
static void *grown(void *list, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return list;
    size_t wanted = *capacity > 0 ? *capacity * 2 : 8;
    void *bigger = realloc(list, wanted * size);
    if (bigger != NULL)
        *capacity = wanted;
    return bigger;
}

static series *find_or_make(samples *all, const char *act, uint64_t bytes, const char *unit)
{
    series *found = find(all, act, bytes);
    if (found != NULL)
        return found;
    series *list = grown(all->list, all->count, &all->capacity, sizeof *list);
    if (list == NULL)
        return NULL;
    all->list = list;
    list[all->count] = (series){.act = act, .unit = unit, .bytes = bytes};
    return &list[all->count++];
}

void samples_add(samples *all, const char *act, uint64_t bytes, const char *unit, uint64_t value)
{
    series *one = find_or_make(all, act, bytes, unit);
    uint64_t *values =
        one != NULL ? grown(one->values, one->count, &one->capacity, sizeof *values) : NULL;
    if (values == NULL) {
        all->failed = true;
        return;
    }
    one->values = values;
    values[one->count++] = value;
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

rvl_measurement samples_spread(const series *one)
{
    if (one == NULL || one->count == 0)
        return (rvl_measurement){0};
    qsort(one->values, one->count, sizeof *one->values, by_value);
    return (rvl_measurement){.act = one->act,
                             .unit = one->unit,
                             .bytes = one->bytes,
                             .least_value = one->values[0],
                             .median_value = one->values[one->count / 2],
                             .most_value = one->values[one->count - 1],
                             .count = one->count};
}

bool samples_fit(const samples *all, rvl_profile *profile, uint64_t *costs_out)
{
    rvl_measurement *list = calloc(all->count + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < all->count; i++)
        list[i] = samples_spread(&all->list[i]);
    bool fitted = list != NULL && !all->failed &&
                  rvl_profile_fit(profile, list, sizeof *list, all->count, costs_out) == RVL_OK;
    free(list);
    return fitted;
}

void means_note(means *batch, const char *act, uint64_t bytes, uint64_t ns)
{
    size_t i = 0;
    while (i < batch->count &&
           (strcmp(batch->list[i].act, act) != 0 || batch->list[i].bytes != bytes))
        i++;
    if (i == MEANS_MAX)
        return;
    if (i == batch->count) {
        batch->list[i].act = act;
        batch->list[i].bytes = bytes;
        batch->list[i].sum_ns = batch->list[i].calls = 0;
        batch->count++;
    }
    batch->list[i].sum_ns += ns;
    batch->list[i].calls++;
}

void means_keep(means *batch, samples *all)
{
    for (size_t i = 0; i < batch->count; i++)
        samples_add(all, batch->list[i].act, batch->list[i].bytes, "ns",
                    batch->list[i].sum_ns / batch->list[i].calls);
    batch->count = 0;
}

void samples_move(samples *all, samples *part)
{
    for (size_t i = 0; i < part->count; i++) {
        const series *one = &part->list[i];
        for (size_t j = 0; j < one->count; j++)
            samples_add(all, one->act, one->bytes, one->unit, one->values[j]);
    }
    all->failed = all->failed || part->failed;
    samples_free(part);
}

void samples_free(samples *all)
{
    for (size_t i = 0; i < all->count; i++)
        free(all->list[i].values);
    free(all->list);
    *all = (samples){0};
}
