/* SPDX-License-Identifier: MIT */
/* What the files of `reveille fit` share: a command with a hole for a value, and what it came to.
 */
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
    const char *find; /* "batch=1..512" */
    const char *devices;
    uint32_t gpus;
    uint32_t jobs; /* 0: as many as there are cores */
    uint32_t timeout_s;
    const char *host_memory;
    const char *keep_contents;
    const char *stages;
    const char *response_lengths;
    const char *response_seed;
    option_headroom headroom;
    option_document json;
    char **words; /* of the command; end with NULL */

    /* Read from these: */
    char hole[64]; /* "{batch}" */
    uint64_t first;
    uint64_t last;
    char *device_list;
    const char *device[FIT_DEVICES_MAX];
    size_t device_count;
} fit_arguments;

/* One run of the command with one value on one device. */
typedef struct fit_run {
    uint64_t value;
    rvl_verdict verdict; /* without strings of the replay */
    char stage[64];      /* with the peak */
    char holder[160];    /* the largest of that peak */
    uint64_t peak_bytes;
    double seconds;
    bool fits;
    bool broken; /* it failed, and not of memory */
    char *said;  /* what it printed last, where it is broken */
} fit_run;

/* Of a device. */
typedef struct fit_result {
    const char *device;
    search of;
    fit_run *runs; /* as they were asked for */
    size_t count;
    const fit_run *broken; /* the first that is; NULL: none */
} fit_result;

/*
 * Runs the command with each of these values, all at once, each in a process of its own. Returns 0,
 * or the exit status, having complained. Results come in the order of the values.
 */
int fit_run_all(const fit_arguments *arguments, const char *device, const uint64_t *values,
                size_t count, fit_run *runs_out);

void fit_run_free(fit_run *run);

/* The answer as a table a device, and as JSON. Returns 0 or the exit status. */
int fit_print(const fit_arguments *arguments, const fit_result *results, size_t count);

#endif
