/* SPDX-License-Identifier: MIT */
/* A sleep and the wake after it, against the model of a context (api_model.h). */
#ifndef RVL_TESTS_FUZZ_API_SLEEP_H
#define RVL_TESTS_FUZZ_API_SLEEP_H

#include "api_model.h"

typedef struct api_nap {
    bool discard;           /* no backups */
    bool is_forbidden;      /* by somebody, of a process with real devices */
    bool stays_paused;      /* the wake leaves the tags to others */
    bool wakes_with_faults; /* what fails a sleep goes on to fail its wake */
    bool without_room;      /* others take the device meanwhile, and give it back */
} api_nap;

/* Sleeps, and is awake at the end, whatever failed. */
void api_sleep(api_model *m, const api_nap *nap);

#endif
