/* SPDX-License-Identifier: MIT */
#include "hooks/preload/growth.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "hooks/preload/observe.h"

/* A power of two. When the table is full, further keys count as known. */
#define KNOWN_MAX 16384u
#define PROBES_MAX 64u

static _Atomic(const void *) known[KNOWN_MAX];

/* Lock-free: this runs at every launch, from many threads. */
static bool is_first(const void *key)
{
    size_t at = (size_t)(((uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
    for (size_t i = 0; i < PROBES_MAX; i++) {
        _Atomic(const void *) *slot = &known[(at + i) % KNOWN_MAX];
        const void *there = atomic_load_explicit(slot, memory_order_relaxed);
        if (there == NULL && atomic_compare_exchange_strong(slot, &there, key))
            return true;
        if (there == key)
            return false;
    }
    return false;
}

uint64_t rvli_growth_begin(rvli_recorded_growth growth, const void *key)
{
    if (rvli_calls_open > 0 || !rvli_recorder_on() || (key != NULL && !is_first(key)))
        return RVLI_RECORDER_UNMEASURED;
    return rvli_recorder_growth_begin(growth, -1);
}

void rvli_growth_forget(void)
{
    for (size_t i = 0; i < KNOWN_MAX; i++)
        atomic_store_explicit(&known[i], NULL, memory_order_relaxed);
}
