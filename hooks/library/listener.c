/* SPDX-License-Identifier: MIT */
/*
 * Records the memory of contexts that the program opened itself, by tag, as regions' memory is
 * recorded. The contexts of regions are skipped: the hooks record those themselves, because a tag
 * of a region may have memory in several contexts.
 */
#include "base/error.h"
#include "hooks/process/settings.h"
#include "hooks/record/internal.h"
#include "hooks/record/usage.h"
#include "hooks/region/guard.h"
#include "hooks/region/saver.h"

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
        if (ordinals >> device & 1 && before_bytes[device] != RVL_LISTENED_UNKNOWN)
            rvli_record_context_begun(device, before_bytes[device]);
}

static void closed(uint64_t ordinals)
{
    for (int device = 0; device < (int)RVL_MAX_DEVICES; device++)
        if (ordinals >> device & 1)
            (void)rvli_recorder_context_released(device);
}

static void allocated(const rvl_listened *what)
{
    if (rvli_saver_owns(what->context))
        return;
    const rvli_recorded recorded = {
        .size_bytes = what->size_bytes,
        .tag = rvli_intern(what->tag), /* NULL without host memory: recorded without a tag */
        .device = what->ordinal,
        .backup = what->backup,
        .paused = what->state != RVL_STATE_ACTIVE,
    };
    rvli_recorder_alloc(RVLI_RECORDED_ADDRESS, what->addr, &recorded);
}

static void freeing(const rvl_context *context, rvl_addr addr)
{
    if (!rvli_saver_owns(context))
        (void)rvli_recorder_free(RVLI_RECORDED_ADDRESS, addr, NULL);
}

static void before(const rvl_transition *transition)
{
    if (!rvli_saver_owns(rvl_transition_get_context(transition)) &&
        rvl_transition_get_kind(transition) == RVL_TRANSITION_PAUSE)
        rvli_guard_record_begin(transition);
}

static void after(const rvl_transition *transition)
{
    if (!rvli_saver_owns(rvl_transition_get_context(transition)))
        rvli_guard_record_end(transition);
}

static void stage(const rvl_context *context, const char *name)
{
    if (!rvli_saver_owns(context))
        (void)rvli_recorder_stage(name);
}

static void step(const rvl_context *context)
{
    if (!rvli_saver_owns(context))
        (void)rvli_recorder_step();
}

/*
 * Contexts of regions are included: only the core knows the size that was refused and the free
 * bytes.
 */
static void refused(const rvl_listened *what, uint64_t free_bytes)
{
    rvli_recorder_refuse(&(rvli_refused){.tag = what->tag[0] != '\0' ? what->tag : NULL,
                                         .device = what->ordinal,
                                         .requested_bytes = what->size_bytes,
                                         .free_bytes = free_bytes});
}

static void sleeping(bool discards)
{
    rvli_recorder_sleep(discards);
}

static void awake(bool paused)
{
    rvli_recorder_wake(paused);
}

const rvl_listener rvli_record_listener = {
    .struct_size = sizeof rvli_record_listener,
    .opening = opening,
    .opened = opened,
    .closed = closed,
    .allocated = allocated,
    .freeing = freeing,
    .before = before,
    .after = after,
    .stage = stage,
    .step = step,
    .refused = refused,
    .sleeping = sleeping,
    .awake = awake,
};
