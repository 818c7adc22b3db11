/* SPDX-License-Identifier: MIT */
/*
 * The forecast: what a transition would do, and how long it would take.
 *
 * What would move is counted here. The duration is found by running the transition in a context in
 * which only time passes (core/forecast/rehearsal.h). So a forecast has every step of the
 * transition, in the same order.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "core/backup/backup.h"
#include "core/forecast/rehearsal.h"
#include "core/transition/order.h"
#include "core/transition/transition.h"

/* ---- Counting ---- */

static uint64_t moved_bytes(const rvli_transition *transition, int device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < transition->item_count; i++)
        if (transition->items[i].allocation->device == device &&
            !(transition->items[i].had_blocks && transition->items[i].before == RVL_STATE_LOST))
            bytes += transition->items[i].allocation->size;
    return bytes;
}

/* Returns the bytes that backups of a policy will take (pause), or release (resume). */
static uint64_t backup_bytes(const rvli_transition *transition, rvl_backup policy, bool pausing,
                             bool discard)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < transition->item_count; i++) {
        const rvli_allocation *allocation = transition->items[i].allocation;
        bool held = allocation->backup != NULL;
        bool counts = pausing ? !held && !discard : held && !allocation->tag->retain_backups;
        bytes += allocation->policy == policy && counts ? allocation->size : 0;
    }
    return bytes;
}

/* Reads the free bytes of every device. Calls the backend, so the lock must not be held. */
static rvl_status read_free(rvl_context *context, uint64_t *free_bytes)
{
    for (int device = 0; device < context->device_count; device++) {
        uint64_t total_bytes = 0;
        bool asleep = atomic_load(&context->sleep.state) != RVLI_AWAKE;
        rvl_status status =
            asleep ? context->ops.process_room(context->self, device, &free_bytes[device])
                   : context->ops.memory_info(context->self, device, &free_bytes[device],
                                              &total_bytes);
        if (status != RVL_OK) {
            rvli_error_op(asleep ? "process_room" : "memory_info");
            return status;
        }
    }
    return RVL_OK;
}

/* Returns the room on a device, less what is needed. Negative if it does not fit. */
static int64_t room_of(uint64_t free_bytes, uint64_t needed_bytes)
{
    return (int64_t)free_bytes - (int64_t)needed_bytes;
}

/* Finds the device with the least room, and whether all have enough. */
static void find_tightest(const rvli_transition *transition, bool pausing,
                          const uint64_t *free_bytes, rvl_forecast *forecast)
{
    const rvl_context *context = transition->context;
    bool first = true;
    forecast->fits = true;
    for (int device = 0; device < context->device_count; device++) {
        if (transition->item_count > 0 && !(transition->device_mask >> device & 1))
            continue;
        uint64_t needed = moved_bytes(transition, device);
        uint64_t available = free_bytes[device] + context->devices[device].kept_bytes;
        forecast->fits = forecast->fits && (pausing || needed <= available);
        if (first ||
            room_of(available, needed) < room_of(forecast->free_bytes, forecast->needed_bytes)) {
            forecast->device = device;
            forecast->needed_bytes = needed;
            forecast->free_bytes = available;
        }
        first = false;
    }
}

/* With the lock held: nothing is marked, so the list is only valid while it is. */
static void count(const rvli_transition *transition, bool pausing, const uint64_t *free_bytes,
                  rvl_forecast *forecast)
{
    bool skip_content = transition->skip_content;
    find_tightest(transition, pausing, free_bytes, forecast);
    forecast->host_bytes = backup_bytes(transition, RVL_BACKUP_HOST, pausing, skip_content);
    forecast->disk_bytes = backup_bytes(transition, RVL_BACKUP_DISK, pausing, skip_content);
    for (size_t i = 0; i < transition->item_count; i++)
        forecast->allocation_count += rvli_weight(transition->items[i].allocation);
}

/* ---- The rehearsal ---- */

typedef struct dry_run {
    rvl_context *rehearsal;
    rvl_addr *order; /* first addresses of the items in order; NULL: by id */
    size_t order_count;
    rvl_forecast forecast;
} dry_run;

/*
 * Stores the order by the first address of each item, because riders are not in the rehearsal: an
 * address within one belongs to its carrier there.
 */
static rvl_status note_order(const rvli_transition *transition, dry_run *run)
{
    if (transition->order == NULL)
        return RVL_OK;
    run->order = malloc(transition->item_count * sizeof *run->order);
    if (run->order == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the order of a dry run");
    run->order_count = transition->item_count;
    for (size_t i = 0; i < run->order_count; i++)
        run->order[i] = transition->order[i]->allocation->addr;
    return RVL_OK;
}

/* With the lock held. resuming: NULL for a pause. */
static rvl_status copy(rvli_transition *transition, const rvl_resume_options *resuming,
                       dry_run *run)
{
    rvl_status status = rvli_transition_collect(
        transition, resuming == NULL ? RVLI_MOVE_PAUSE_BEGIN : RVLI_MOVE_RESUME_BEGIN, false);
    if (status == RVL_OK && resuming != NULL)
        status = rvli_order_make(transition, resuming->order, resuming->order_count);
    if (status == RVL_OK)
        status = note_order(transition, run);
    return status == RVL_OK ? rvli_rehearsal_begin(transition, resuming == NULL, &run->rehearsal)
                            : status;
}

/* Lists what would move, counts it, and copies it into a rehearsal. */
static rvl_status prepare(rvli_transition *transition, const rvl_resume_options *resuming,
                          dry_run *run)
{
    uint64_t free_bytes[RVL_MAX_DEVICES];
    rvl_status status = read_free(transition->context, free_bytes);
    if (status != RVL_OK)
        return status;
    rvli_lock(transition->context);
    for (int device = 0; device < transition->context->device_count; device++)
        transition->context->devices[device].free_bytes = free_bytes[device];
    status = copy(transition, resuming, run);
    if (status == RVL_OK)
        count(transition, resuming == NULL, free_bytes, &run->forecast);
    rvli_unlock(transition->context);
    return status;
}

/* After the transition in the rehearsal: stores the time that it took. */
static rvl_status answer(dry_run *run, rvl_status status, rvl_forecast *forecast_out)
{
    if (run->rehearsal != NULL) {
        run->forecast.time_ns = rvl_clock_ns(run->rehearsal);
        rvli_rehearsal_end(run->rehearsal);
    }
    free(run->order);
    return status == RVL_OK ? rvli_result_write(forecast_out, &run->forecast, sizeof run->forecast)
                            : status;
}

rvl_status rvl_pause_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                              const rvl_pause_options *user_options, rvl_forecast *forecast_out)
{
    rvl_pause_options options;
    rvli_transition transition;
    dry_run run = {0};
    rvl_status status =
        rvli_pause_begin(context, tags, tag_count, user_options, &options, &transition);
    if (status != RVL_OK)
        return status;
    status = prepare(&transition, NULL, &run);
    rvli_transition_end(&transition);
    if (status == RVL_OK) {
        const rvl_pause_options dry = {.struct_size = sizeof dry, .flags = options.flags};
        status = rvl_pause(run.rehearsal, NULL, 0, &dry);
    }
    return answer(&run, status, forecast_out);
}

rvl_status rvl_resume_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                               const rvl_resume_options *user_options, rvl_forecast *forecast_out)
{
    rvl_resume_options options;
    rvli_transition transition;
    dry_run run = {0};
    rvl_status status =
        rvli_resume_begin(context, tags, tag_count, user_options, &options, &transition);
    if (status != RVL_OK)
        return status;
    status = prepare(&transition, &options, &run);
    rvli_transition_end(&transition);
    if (status == RVL_OK) {
        const rvl_resume_options dry = {.struct_size = sizeof dry,
                                        .flags = options.flags,
                                        .timeout_ns = options.timeout_ns,
                                        .order = run.order,
                                        .order_count = run.order_count};
        status = rvl_resume(run.rehearsal, NULL, 0, &dry);
    }
    return answer(&run, status, forecast_out);
}
