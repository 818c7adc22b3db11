/* SPDX-License-Identifier: MIT */
/*
 * Collects the samples of true use in a trace, while the replay reads them.
 *
 * The memory is bounded, as for a timeline. When there are too many samples, drops every second one
 * and halves the sampling rate.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"

#define MACHINE "machine" /* the process that records how the command of `reveille run` ended */

/* Drops every second sample. */
static void thin(samples *seen)
{
    size_t kept = 0;
    for (size_t i = 0; i < seen->count; i += 2)
        seen->list[kept++] = seen->list[i];
    seen->count = kept;
    seen->every *= 2;
}

static bool grow(samples *seen)
{
    size_t capacity = seen->capacity > 0 ? 2 * seen->capacity : 64;
    sample *grown = realloc(seen->list, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    seen->list = grown;
    seen->capacity = capacity;
    return true;
}

rvl_status samples_note(void *user, rvl_trace_event *event, bool *keep_out)
{
    samples *seen = user;
    (void)keep_out;
    if (event == NULL) { /* the events start, perhaps again */
        seen->count = 0;
        seen->passed = 0;
        seen->every = 1;
    }
    if (event != NULL && event->kind == RVL_EVENT_ENDED && strcmp(event->process, MACHINE) == 0)
        seen->simulated = true;
    if (event == NULL || event->kind != RVL_EVENT_SAMPLE)
        return RVL_OK;
    if (seen->passed++ % seen->every != 0)
        return RVL_OK;
    if (seen->count == seen->most)
        thin(seen);
    if (seen->count == seen->capacity && !grow(seen))
        return RVL_ERR_HOST_OOM;
    seen->list[seen->count++] = (sample){event->time_ns, event->bytes, (int)event->device};
    return RVL_OK;
}

const sample *samples_next(const samples *seen, int device, const sample *last)
{
    const sample *end = seen->list + seen->count;
    for (const sample *each = last != NULL ? last + 1 : seen->list; each < end; each++) {
        if (each->device == device)
            return each;
    }
    return NULL;
}

uint64_t samples_most_bytes(const samples *seen, int device)
{
    uint64_t most = 0;
    for (const sample *each = samples_next(seen, device, NULL); each != NULL;
         each = samples_next(seen, device, each))
        most = each->bytes > most ? each->bytes : most;
    return most;
}
