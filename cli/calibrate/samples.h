/* SPDX-License-Identifier: MIT */
/*
 * What was measured: for each act and size, every time it took, or every amount that was read.
 *
 * An act is measured several times; what is told of it is the least, the median, the most and the
 * count. The fit (rvl_profile_fit()) reads medians alone, so that one slow call moves nothing.
 */
#ifndef RVL_CLI_CALIBRATE_SAMPLES_H
#define RVL_CLI_CALIBRATE_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/calibrate.h"

/* One act on so many bytes. */
typedef struct series {
    const char *act;  /* "create"; a static string */
    const char *unit; /* "ns" or "bytes"; a static string */
    uint64_t bytes;   /* what it was done to; 0: it has no size */
    uint64_t *values; /* sorted once samples_spread() has seen them */
    size_t count;
    size_t capacity;
} series;

typedef struct samples {
    series *list;
    size_t count;
    size_t capacity;
    bool failed; /* there was no memory for a value: what is told would be wrong */
} samples;

/* Adds a value. act and unit are static strings. */
void samples_add(samples *all, const char *act, uint64_t bytes, const char *unit, uint64_t value);

/* The values of an act on so many bytes; NULL: there are none. */
const series *samples_find(const samples *all, const char *act, uint64_t bytes);

/* NULL: count 0, and no act. */
rvl_measurement samples_spread(const series *one);

/* Fits a profile, as rvl_profile_fit() does. false: no memory, also for a value that was added. */
bool samples_fit(const samples *all, rvl_profile *profile, uint64_t *costs_out);

/*
 * Calls of one batch that are timed one by one. A pause or resume takes the sum of its calls, and a
 * few of them take many times as long as the others: the mean of a batch is what counts, and is one
 * value of the act.
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

/* A call took so long. More acts and sizes than MEANS_MAX are not noted. */
void means_note(means *batch, const char *act, uint64_t bytes, uint64_t ns);

/* Adds the mean of each act and size, and empties the batch. */
void means_keep(means *batch, samples *all);

/* Moves all values of `part` into `all`, and leaves the part empty. */
void samples_move(samples *all, samples *part);

void samples_free(samples *all);

#endif
