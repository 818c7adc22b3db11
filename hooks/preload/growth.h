/* SPDX-License-Identifier: MIT */
/*
 * What the driver takes for itself inside calls that ask for no memory: code is loaded when a
 * kernel runs for the first time, and local memory for its threads with it; a stream has a channel;
 * a graph has its nodes on the device. While recording, such calls are looked at: the first of each
 * kernel and graph, and every other.
 */
#ifndef RVL_HOOKS_PRELOAD_GROWTH_H
#define RVL_HOOKS_PRELOAD_GROWTH_H

#include "hooks/record/recorder.h"

/* Before a call; the answer is for the other. key: what it is the first use of, NULL: nothing. */
uint64_t rvli_growth_begin(rvli_recorded_growth growth, const void *key);

/* A context is gone: what was used first may have the same address again, and is new. */
void rvli_growth_forget(void);

static inline void rvli_growth_end(rvli_recorded_growth growth, uint64_t before_bytes)
{
    if (before_bytes != RVLI_RECORDER_UNMEASURED)
        rvli_recorder_growth_end(growth, -1, before_bytes);
}

#endif
