/* SPDX-License-Identifier: MIT */
/* Declarations that the files of `reveille fit` share: a command with a placeholder for a value,
 * and its results. */
#ifndef RVL_CLI_FIT_FIT_H
#define RVL_CLI_FIT_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "document.h"
#include "fit/search.h"
#include "verdict.h"

#define FIT_DEVICES_MAX 16

typedef struct fit_arguments {
    const char *find; /* "batch=1..512", "batch=1,2,4" */
    const char *devices;
    uint32_t gpus;
    uint32_t jobs; /* 0: one for each core */
    uint32_t timeout_s;
    const char *host_memory;
    const char *keep_contents;
    const char *stages;
    const char *response_lengths;
    const char *response_seed;
    option_headroom headroom;
    option_document json;
    char **words; /* the command, ended by NULL */

    /* Parsed from the fields above: */
    char hole[64]; /* the placeholder, "{batch}" */
    uint64_t first;
    uint64_t last;
    uint64_t *list; /* NULL: all from first to last */
    size_t list_count;
    char *device_list;
    const char *device[FIT_DEVICES_MAX];
    size_t device_count;
} fit_arguments;

/* A run of the command with one value on one device. */
typedef struct fit_run {
    uint64_t value;
    rvl_verdict verdict; /* without the strings that the replay owns */
    char stage[64];      /* the stage with the peak */
    char holder[160];    /* the largest holder of that peak */
    uint64_t peak_bytes;
    double seconds;
    bool fits;
    bool broken; /* it failed for another reason than memory */
    char *said;  /* the last lines that it printed, if it is broken */
} fit_run;

/* The result for a device. */
typedef struct fit_result {
    const char *device;
    search of;
    fit_run *runs; /* in the order in which they ran */
    size_t count;
    const fit_run *broken; /* the broken run with the smallest value; NULL: none */
} fit_result;

/*
 * Runs the command with all of these values at once, each in its own process. Stores the results in
 * the order of the values. Returns 0 or, having complained, the exit status.
 */
int fit_run_all(const fit_arguments *arguments, const char *device, const uint64_t *values,
                size_t count, fit_run *runs_out);

void fit_run_free(fit_run *run);

/* Prints the result, as a table for each device and as JSON. Returns 0 or the exit status. */
int fit_print(const fit_arguments *arguments, const fit_result *results, size_t count);

#endif
