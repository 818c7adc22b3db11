/* SPDX-License-Identifier: MIT */
/*
 * Memory that the driver allocates for itself in calls that do not ask for memory. The first launch
 * of a kernel loads its code and allocates local memory for its threads; a stream has a channel; a
 * graph has its nodes on the device. While recording, the first use of each kernel and graph is
 * measured, and every call of the other kinds.
 */
#ifndef RVL_HOOKS_PRELOAD_GROWTH_H
#define RVL_HOOKS_PRELOAD_GROWTH_H

#include "hooks/record/recorder.h"

/*
 * Call before and after. Pass the result of the first to the second. key: the object of which only
 * the first use is measured; NULL: always measure.
 */
uint64_t rvli_growth_begin(rvli_recorded_growth growth, const void *key);

/* Forgets all keys: with a context gone, new objects may have the same addresses. */
void rvli_growth_forget(void);

static inline void rvli_growth_end(rvli_recorded_growth growth, uint64_t before_bytes)
{
    if (before_bytes != RVLI_RECORDER_UNMEASURED)
        rvli_recorder_growth_end(growth, -1, before_bytes);
}

#endif
