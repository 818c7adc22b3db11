/* SPDX-License-Identifier: MIT */
/* What the listener of this process has heard of the calling thread. Simulated contexts are silent.
 */
#ifndef RVL_STRESS_LISTENING_H
#define RVL_STRESS_LISTENING_H

#include "owner.h"

typedef struct heard {
    uint64_t opening, opened, closed;
    uint64_t allocated, freeing;
    uint64_t before, after;
    uint64_t stage, step;
    rvl_addr allocated_addr, freed_addr;
    uint64_t size_bytes;
} heard;

/* Sets the listener, and forgets what was heard. */
void listen_begin(caller *by);

/* Fails the run unless the thread has heard this since; then forgets it. */
void listen_compare(caller *by, const heard *expected);

#endif
