/* SPDX-License-Identifier: MIT */
/* Forecasts of a sleep or a wake: the forecasts of its pauses or resumes, and the driver's part. */
#include <stdlib.h>

#include "base/cost.h"
#include "base/error.h"
#include "base/options.h"
#include "base/process_cost.h"
#include "core/sleep/sleep_group.h"

/* Adds the forecast of one context: keeps the tightest device, and sums the rest. */
static void add_forecast(rvl_forecast *sum, const rvl_forecast *one, bool first)
{
    bool tighter = first || (int64_t)(one->free_bytes - one->needed_bytes) <
                                (int64_t)(sum->free_bytes - sum->needed_bytes);
    rvl_forecast before = *sum;
    if (tighter)
        *sum = *one;
    sum->fits = one->fits && (first || before.fits);
    sum->host_bytes = before.host_bytes + one->host_bytes;
    sum->disk_bytes = before.disk_bytes + one->disk_bytes;
    sum->allocation_count = before.allocation_count + one->allocation_count;
    sum->time_ns = before.time_ns + one->time_ns;
}

static rvl_status forecast_one(rvl_context *context, uint64_t flags, rvl_forecast *one)
{
    rvl_tag *tags = NULL;
    size_t count = 0;
    const rvl_pause_options options = {
        .struct_size = sizeof options,
        .flags = flags & RVL_SLEEP_DISCARD ? RVL_PAUSE_DISCARD : 0,
    };
    *one = (rvl_forecast){.struct_size = sizeof *one, .fits = true};
    rvl_status status = rvli_sleepers_tags(context, &tags, &count);
    if (status == RVL_OK && count > 0)
        status = rvl_pause_forecast(context, tags, count, &options, one);
    free(tags);
    return status;
}

/*
 * Returns the bytes of the host memory pool that the driver goes over when the process leaves: what
 * will be registered by then, including what the pause will request.
 */
static uint64_t registered_bytes(const rvli_sleepers *all, uint64_t asked_bytes)
{
    rvli_host_facts facts = {0};
    rvl_context *any = all->contexts[0];
    rvl_error before = *rvli_error_get();
    bool registers = all->real && any->ops.host_memory(any->self, &facts) == RVL_OK &&
                     facts.registers; /* simulated devices register nothing */
    rvli_error_set(&before);
    uint64_t wanted_bytes = registers ? facts.used_bytes + asked_bytes : 0;
    return wanted_bytes > facts.pinned_bytes ? wanted_bytes : facts.pinned_bytes;
}

rvl_status rvl_sleep_forecast(rvl_context *context, const rvl_sleep_options *user_options,
                              rvl_forecast *forecast_out)
{
    rvl_sleep_options options;
    rvli_sleepers all = {.count = 0};
    rvl_forecast sum = {.fits = true}, one;
    rvl_status status = rvli_sleep_read_options(&options, user_options);
    if (status == RVL_OK)
        status = rvli_sleepers_begin(context, &all);
    if (status != RVL_OK)
        return status;
    if (rvli_sleepers_state(&all) != RVLI_AWAKE)
        status = rvli_error(RVL_ERR_STATE, "the process is asleep already");
    if (status == RVL_OK)
        status = rvli_sleepers_check(&all, options.flags);
    for (size_t i = 0; i < all.count && status == RVL_OK; i++) {
        status = forecast_one(all.contexts[i], options.flags, &one);
        if (status == RVL_OK)
            add_forecast(&sum, &one, i == 0);
    }
    if (status == RVL_OK) {
        sum.time_ns +=
            rvli_cost_ns(RVLI_PROCESS_LOCK, 0) + rvli_cost_ns(RVLI_PROCESS_CHECKPOINT, 0) +
            rvli_cost_ns(RVLI_PROCESS_PINNED_OFF, registered_bytes(&all, sum.host_bytes));
        status = rvli_result_write(forecast_out, &sum, sizeof sum);
    }
    rvli_sleepers_end(&all);
    return status;
}

static rvl_status forecast_wake(rvli_sleepers *all, uint64_t flags, rvl_forecast *sum)
{
    uint64_t held_bytes = 0;
    rvl_status status = rvli_sleepers_check_asleep(all);
    for (size_t i = 0; i < all->count && status == RVL_OK; i++) {
        const rvli_sleep *sleep = &all->contexts[i]->sleep;
        rvl_forecast one = {.struct_size = sizeof one, .fits = true};
        if (sleep->tag_count > 0 && !(flags & RVL_WAKE_UP_PAUSED))
            status =
                rvl_resume_forecast(all->contexts[i], sleep->tags, sleep->tag_count, NULL, &one);
        add_forecast(sum, &one, i == 0);
        for (int device = 0; device < all->contexts[i]->device_count; device++)
            held_bytes += sleep->held_bytes[device];
    }
    sum->needed_bytes += held_bytes;
    sum->fits = sum->fits && sum->needed_bytes <= sum->free_bytes;
    sum->time_ns += rvli_cost_ns(RVLI_PROCESS_RESTORE, all->real ? 0 : held_bytes) +
                    rvli_cost_ns(RVLI_PROCESS_PINNED_BACK, registered_bytes(all, 0)) +
                    rvli_cost_ns(RVLI_PROCESS_UNLOCK, 0);
    return status;
}

rvl_status rvl_wake_up_forecast(rvl_context *context, const rvl_wake_up_options *user_options,
                                rvl_forecast *forecast_out)
{
    rvl_wake_up_options options;
    rvli_sleepers all = {.count = 0};
    rvl_forecast sum = {.fits = true};
    rvl_status status = rvli_wake_read_options(&options, user_options);
    if (status == RVL_OK)
        status = rvli_sleepers_begin(context, &all);
    if (status != RVL_OK)
        return status;
    status = forecast_wake(&all, options.flags, &sum);
    if (status == RVL_OK)
        status = rvli_result_write(forecast_out, &sum, sizeof sum);
    rvli_sleepers_end(&all);
    return status;
}
