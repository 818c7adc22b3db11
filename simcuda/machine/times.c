/* SPDX-License-Identifier: MIT */
#include "simcuda/machine/times.h"

#include <stdlib.h>
#include <time.h>

#include "base/grow.h"

#define TIMES_MOST ((size_t)1 << 20)

static int64_t wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Drops every second entry, and spaces later entries twice as far apart. */
static void thin_out(rvli_times *times)
{
    size_t kept = 0;
    for (size_t i = 0; i < times->count; i += 2)
        times->list[kept++] = times->list[i];
    times->count = kept;
    uint64_t span = times->list[kept - 1].ns - times->list[0].ns;
    times->step_ns = span / kept > times->step_ns ? span / kept : 2 * times->step_ns + 1;
}

static void add(rvli_times *times, uint64_t ns, int64_t us)
{
    if (times->count == TIMES_MOST)
        thin_out(times);
    if (!RVLI_ROOM(times->list, times->count, times->capacity, 256))
        return;
    times->list[times->count++] = (struct rvli_time){ns, us};
}

void rvli_times_note(rvli_times *times, uint64_t ns)
{
    const struct rvli_time *last = times->count > 0 ? &times->list[times->count - 1] : NULL;
    if (last != NULL && ns <= last->ns + times->step_ns)
        return;
    int64_t us = wall_us();
    add(times, ns,
        last != NULL && us < last->us ? last->us : us); /* never earlier: a clock may be set back */
}

void rvli_times_mark(rvli_times *times, uint64_t ns, int64_t us)
{
    add(times, ns, us != 0 ? us : wall_us());
}

/* Counts the entries below ns; with_equal: up to ns. */
static size_t count_below(const rvli_times *times, uint64_t ns, int with_equal)
{
    size_t low = 0, high = times->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (times->list[middle].ns < ns || (with_equal && times->list[middle].ns == ns))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t rvli_times_first(const rvli_times *times, uint64_t ns)
{
    size_t below = count_below(times, ns, 0);
    if (times->count == 0)
        return 0;
    return times->list[below < times->count ? below : times->count - 1].us;
}

int64_t rvli_times_last(const rvli_times *times, uint64_t ns)
{
    size_t below = count_below(times, ns, 1);
    return below > 0 ? times->list[below - 1].us : 0;
}

void rvli_times_clear(rvli_times *times)
{
    free(times->list);
    *times = (rvli_times){0};
}
