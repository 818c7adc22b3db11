/* SPDX-License-Identifier: MIT */
/* Contexts that the program has opened itself: their memory is recorded by tag, as a region's is.
 */
#include "base/error.h"
#include "hooks/guard.h"
#include "hooks/recorder_internal.h"
#include "hooks/settings.h"
#include "hooks/usage.h"

static void opening(uint64_t *before_bytes)
{
    if (!rvli_recorder_on() || rvli_usage_load() != RVL_OK)
        return;
    for (int device = 0; device < rvli_usage_count(); device++)
        if (!rvli_record_has_context(device))
            (void)rvli_record_read_use(device, &before_bytes[device]);
}

static void opened(uint64_t ordinals, const uint64_t *before_bytes)
{
    for (int device = 0; device < (int)RVL_MAX_DEVICES; device++)
        if (ordinals >> device & 1 && before_bytes[device] != RVLI_USE_UNKNOWN)
            rvli_record_context_begun(device, before_bytes[device]);
}

static void closed(uint64_t ordinals)
{
    for (int device = 0; device < (int)RVL_MAX_DEVICES; device++)
        if (ordinals >> device & 1)
            (void)rvli_recorder_context_released(device);
}

static void allocated(const rvli_witnessed *what)
{
    const rvli_recorded recorded = {
        .size_bytes = what->size_bytes,
        .tag = rvli_intern(what->tag), /* without host memory: memory of no tag */
        .device = what->ordinal,
        .backup = what->backup,
        .paused = what->paused,
    };
    rvli_recorder_alloc(RVLI_RECORDED_ADDRESS, what->addr, &recorded);
}

static void freeing(rvl_addr addr)
{
    (void)rvli_recorder_free(RVLI_RECORDED_ADDRESS, addr, NULL);
}

static rvl_status before(const rvli_transition *transition, rvl_event_kind kind)
{
    if (kind == RVL_EVENT_PAUSE)
        rvli_guard_record_begin(transition);
    return RVL_OK;
}

static void after(const rvli_transition *transition, rvl_event_kind kind, bool done)
{
    (void)kind;
    (void)done;
    rvli_guard_record_end(transition);
}

const rvli_witness rvli_recorder_witness = {
    .opening = opening,
    .opened = opened,
    .closed = closed,
    .allocated = allocated,
    .freeing = freeing,
    .guard = {before, after},
    .stage = rvli_recorder_stage,
    .step = rvli_recorder_step,
};
