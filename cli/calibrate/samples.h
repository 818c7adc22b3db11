/* SPDX-License-Identifier: MIT */
/*
 * The measured values: for each act and size, all times or all amounts.
 *
 * An act is measured several times. The minimum, the median, the maximum and the count are
 * reported. The fit (rvl_profile_fit()) uses only medians, so that a single slow call has no
 * effect.
 */
#ifndef RVL_CLI_CALIBRATE_SAMPLES_H
#define RVL_CLI_CALIBRATE_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/calibrate.h"

/* The values of an act on a number of bytes. */
typedef struct series {
    const char *act;  /* "create"; a static string */
    const char *unit; /* "ns" or "bytes"; a static string */
    uint64_t bytes;   /* the size that it acts on; 0: it has none */
    uint64_t *values; /* sorted by samples_spread() */
    size_t count;
    size_t capacity;
} series;

typedef struct samples {
    series *list;
    size_t count;
    size_t capacity;
    bool failed; /* there was no memory for a value, so the results would be wrong */
} samples;

/* Adds a value. act and unit are static strings. */
void samples_add(samples *all, const char *act, uint64_t bytes, const char *unit, uint64_t value);

/* Returns the series of an act on this number of bytes. NULL: there is none. */
const series *samples_find(const samples *all, const char *act, uint64_t bytes);

/* Returns minimum, median, maximum and count. Sorts the values. one may be NULL, or without values:
 * the result then has count 0 and no act. */
rvl_measurement samples_spread(const series *one);

/* Fits a profile with rvl_profile_fit(). false: no memory, now or in samples_add(). */
bool samples_fit(const samples *all, rvl_profile *profile, uint64_t *costs_out);

/*
 * The times of the calls in a batch. A pause or resume takes the sum of its calls, of which a few
 * take many times longer than the others. So the mean over the batch matters. It becomes one value
 * of the act.
 */
#define MEANS_MAX 16
typedef struct means {
    struct {
        const char *act;
        uint64_t bytes;
        uint64_t sum_ns;
        uint64_t calls;
    } list[MEANS_MAX];
    size_t count;
} means;

/* Notes the time of a call. Ignores acts and sizes beyond the first MEANS_MAX. */
void means_note(means *batch, const char *act, uint64_t bytes, uint64_t ns);

/* Adds the mean of each act and size, and empties the batch. */
void means_keep(means *batch, samples *all);

/* Moves all values of `part` into `all`, and leaves the part empty. */
void samples_move(samples *all, samples *part);

void samples_free(samples *all);

#endif
