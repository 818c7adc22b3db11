/* SPDX-License-Identifier: MIT */
/* The file that a calibration writes. docs/calibrate.md describes it; rvl_profile_load() reads it.
 */
#ifndef RVL_CLI_CALIBRATE_DOCUMENT_H
#define RVL_CLI_CALIBRATE_DOCUMENT_H

#include <stdint.h>

#include "calibrate/agree.h"
#include "calibrate/samples.h"
#include "reveille/sim.h"

typedef struct document {
    const rvl_profile *profile;
    uint64_t measured_costs; /* bits of costs, from rvl_profile_fit() */
    const samples *measured;
    const agreement *agreed; /* NULL: not yet known */
    int driver_version;
    const char *date; /* "2026-11-22" */
} document;

/* Returns the file's text, which ends in a line break. The caller frees it. NULL: no memory. */
char *document_text(const document *it);

#endif
