/* SPDX-License-Identifier: MIT */
/*
 * The dry run: what a transition would do, and how long it would take.
 *
 * Walks the steps of pause.c and resume.c over the same list of allocations, adding up the cost
 * model's prices instead of making the calls. Copies run beside the calls: each device has an
 * engine for each direction, and a copy starts when it is queued or when the one before it ends.
 */
#include "base/cost.h"
#include "base/error.h"
#include "base/options.h"
#include "core/backup.h"
#include "core/transition.h"

/* What is asked of the dry run. */
typedef struct question {
    bool pausing;
    bool skip_content; /* discard, or no_restore */
    bool waits;        /* with a timeout everything is created before anything is mapped */
} question;

/* A run of the model: the caller's time, and when each device's copies end. */
typedef struct timeline {
    uint64_t now_ns;
    uint64_t copies_end_ns[RVL_MAX_DEVICES];
    uint64_t host_bytes[RVL_MAX_DEVICES];       /* that backups hold */
    uint64_t host_made_bytes[RVL_MAX_DEVICES];  /* the most so far: made once, and kept */
    uint64_t host_made_end_ns[RVL_MAX_DEVICES]; /* when what was asked for has been made */
    uint64_t disk_end_ns;
    uint64_t released_bytes[RVL_MAX_DEVICES]; /* since blocks were last created */
} timeline;

static void queue_copy(timeline *line, int device, rvl_cost cost, uint64_t bytes)
{
    uint64_t start = line->copies_end_ns[device];
    if (start < line->now_ns)
        start = line->now_ns;
    line->copies_end_ns[device] = start + rvli_cost_ns(cost, bytes);
}

static void queue_disk(timeline *line, rvl_cost cost, uint64_t bytes)
{
    if (line->disk_end_ns < line->now_ns)
        line->disk_end_ns = line->now_ns;
    line->disk_end_ns += rvli_cost_ns(cost, bytes);
}

static void wait_copies(timeline *line)
{
    if (line->now_ns < line->disk_end_ns)
        line->now_ns = line->disk_end_ns;
    for (int device = 0; device < RVL_MAX_DEVICES; device++)
        if (line->now_ns < line->copies_end_ns[device])
            line->now_ns = line->copies_end_ns[device];
}

static const rvl_cost_model *costs_of(const rvl_context *context, const rvli_allocation *allocation)
{
    return &context->devices[allocation->device].facts.cost;
}

/* A call made once a block of an allocation. */
static uint64_t cost_of_blocks(const rvli_allocation *allocation, rvl_cost cost)
{
    uint64_t largest = allocation->tag->block_bytes;
    if (largest == 0 || allocation->size <= largest)
        return rvli_cost_ns(cost, allocation->size);
    uint64_t rest = allocation->size % largest;
    return allocation->size / largest * rvli_cost_ns(cost, largest) +
           (rest != 0 ? rvli_cost_ns(cost, rest) : 0);
}

/* ---- Pause ---- */

static void begin_host(const rvl_context *context, timeline *line)
{
    for (int device = 0; device < context->device_count; device++) {
        line->host_bytes[device] = context->devices[device].ledger.host_bytes;
        line->host_made_bytes[device] = context->devices[device].ledger.host_peak_bytes;
    }
}

/* Host memory for a backup: made beside what goes on, if there were never so many bytes. */
static void make_host(timeline *line, int device, rvl_cost cost, uint64_t bytes)
{
    line->now_ns += cost.call_ns;
    line->host_bytes[device] += bytes;
    if (line->host_bytes[device] <= line->host_made_bytes[device])
        return;
    uint64_t made = line->host_bytes[device] - line->host_made_bytes[device];
    uint64_t start = line->host_made_end_ns[device];
    if (start < line->now_ns)
        start = line->now_ns;
    cost.call_ns = 0;
    line->host_made_end_ns[device] = start + rvli_cost_ns(cost, made);
    line->host_made_bytes[device] = line->host_bytes[device];
}

/* Whether the digests of an allocation are computed when it is paused. */
static bool digested(const rvl_context *context, const rvli_allocation *allocation)
{
    return context->devices[allocation->device].facts.digests &&
           (context->verify || allocation->tag->retain_backups);
}

/* As if all had changed: what a retained backup spares is known only when it is compared. */
static void save_time(const rvl_context *context, const rvli_allocation *allocation, timeline *line)
{
    const rvl_cost_model *cost = costs_of(context, allocation);
    int device = allocation->device;
    bool retained = allocation->backup != NULL;
    if (allocation->policy == RVL_BACKUP_HOST && !retained)
        make_host(line, device, cost->host_alloc, allocation->size);
    if (digested(context, allocation))
        queue_copy(line, device, cost->digest, allocation->size);
    if (allocation->policy == RVL_BACKUP_DISK) {
        queue_disk(line, cost->disk_write, allocation->size);
        return;
    }
    queue_copy(line, device, cost->copy_to_host, allocation->size);
    if (!retained && line->copies_end_ns[device] < line->host_made_end_ns[device])
        line->copies_end_ns[device] = line->host_made_end_ns[device];
}

static void pause_time(const rvli_transition *transition, bool discard, timeline *line)
{
    begin_host(transition->context, line);
    for (size_t i = 0; i < transition->item_count && !discard; i++)
        if (transition->items[i].allocation->policy != RVL_BACKUP_NONE)
            save_time(transition->context, transition->items[i].allocation, line);
    wait_copies(line);
    for (size_t i = 0; i < transition->item_count; i++) {
        const rvli_allocation *allocation = transition->items[i].allocation;
        const rvl_cost_model *cost = costs_of(transition->context, allocation);
        line->now_ns += rvli_cost_ns(cost->unmap, allocation->size);
        line->now_ns += cost_of_blocks(allocation, cost->release);
    }
}

/* ---- Resume ---- */

/* The first block that is created on a device pays for those that were released before. */
static void create_time(const rvli_transition *transition, size_t i, timeline *line)
{
    const rvli_allocation *allocation = transition->items[i].allocation;
    const rvl_cost_model *cost = costs_of(transition->context, allocation);
    if (transition->items[i].had_blocks)
        return;
    line->now_ns += rvli_cost_ns(cost->reclaim, line->released_bytes[allocation->device]);
    line->released_bytes[allocation->device] = 0;
    line->now_ns += cost_of_blocks(allocation, cost->create);
}

static void load_time(const rvl_context *context, const rvli_allocation *allocation, timeline *line)
{
    const rvl_cost_model *cost = costs_of(context, allocation);
    if (allocation->policy == RVL_BACKUP_DISK)
        queue_disk(line, cost->disk_read, allocation->size);
    else
        queue_copy(line, allocation->device, cost->copy_to_device, allocation->size);
}

/* Content is checked once it is all there or on its way. */
static void check_time(const rvli_transition *transition, timeline *line)
{
    const rvl_context *context = transition->context;
    if (line->now_ns < line->disk_end_ns)
        line->now_ns = line->disk_end_ns;
    for (size_t i = 0; i < transition->item_count; i++) {
        const rvli_allocation *allocation = transition->items[i].allocation;
        if (context->verify && allocation->backup != NULL && allocation->backup->current)
            queue_copy(line, allocation->device, costs_of(context, allocation)->digest,
                       allocation->size);
    }
}

static void resume_time(const rvli_transition *transition, const question *asked, timeline *line)
{
    uint64_t free_ns = 0;
    for (int device = 0; device < transition->context->device_count; device++)
        line->released_bytes[device] = transition->context->devices[device].released_bytes;
    for (size_t i = 0; i < transition->item_count && asked->waits; i++)
        create_time(transition, i, line);
    for (size_t i = 0; i < transition->item_count; i++) {
        const rvli_allocation *allocation = transition->items[i].allocation;
        const rvl_cost_model *cost = costs_of(transition->context, allocation);
        if (!asked->waits)
            create_time(transition, i, line);
        line->now_ns += cost_of_blocks(allocation, cost->map);
        line->now_ns += rvli_cost_ns(cost->set_access, allocation->size);
        if (allocation->backup == NULL)
            continue;
        if (!asked->skip_content)
            load_time(transition->context, allocation, line);
        if (allocation->policy == RVL_BACKUP_HOST && !allocation->tag->retain_backups)
            free_ns += rvli_cost_ns(cost->host_free, allocation->size);
    }
    if (!asked->skip_content)
        check_time(transition, line);
    wait_copies(line);
    line->now_ns += free_ns;
}

/* ---- The answer ---- */

static uint64_t moved_bytes(const rvli_transition *transition, int device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < transition->item_count; i++)
        if (transition->items[i].allocation->device == device &&
            !(transition->items[i].had_blocks && transition->items[i].before == RVL_STATE_LOST))
            bytes += transition->items[i].allocation->size;
    return bytes;
}

/* What backups of a policy will take (pause), or give back (resume). */
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

/* Free bytes of every device. Calls the backend: without the lock. */
static rvl_status read_free(rvl_context *context, uint64_t *free_bytes)
{
    for (int device = 0; device < context->device_count; device++) {
        uint64_t total_bytes = 0;
        rvl_status status =
            context->ops.memory_info(context->self, device, &free_bytes[device], &total_bytes);
        if (status != RVL_OK) {
            rvli_error_op("memory_info");
            return status;
        }
    }
    return RVL_OK;
}

/* Room left on a device, less what is needed; negative if it does not fit. */
static int64_t room_of(uint64_t free_bytes, uint64_t needed_bytes)
{
    return (int64_t)free_bytes - (int64_t)needed_bytes;
}

/* The device with the least room, and whether all have enough. */
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

/* With the lock held: nothing is marked, so the list is good only meanwhile. */
static rvl_status answer(rvli_transition *transition, const question *asked,
                         const uint64_t *free_bytes, rvl_forecast *forecast)
{
    timeline line = {0};
    rvl_status status = rvli_transition_collect(
        transition, asked->pausing ? RVLI_MOVE_PAUSE_BEGIN : RVLI_MOVE_RESUME_BEGIN, false);
    if (status != RVL_OK)
        return status;
    find_tightest(transition, asked->pausing, free_bytes, forecast);
    if (asked->pausing)
        pause_time(transition, asked->skip_content, &line);
    else
        resume_time(transition, asked, &line);
    forecast->time_ns = line.now_ns;
    forecast->host_bytes =
        backup_bytes(transition, RVL_BACKUP_HOST, asked->pausing, asked->skip_content);
    forecast->disk_bytes =
        backup_bytes(transition, RVL_BACKUP_DISK, asked->pausing, asked->skip_content);
    for (size_t i = 0; i < transition->item_count; i++)
        forecast->allocation_count += rvli_weight(transition->items[i].allocation);
    return RVL_OK;
}

static rvl_status forecast_claimed(rvli_transition *transition, const question *asked,
                                   rvl_forecast *forecast_out)
{
    uint64_t free_bytes[RVL_MAX_DEVICES];
    rvl_forecast forecast = {0};
    rvl_status status = read_free(transition->context, free_bytes);
    rvli_lock(transition->context);
    if (status == RVL_OK)
        status = answer(transition, asked, free_bytes, &forecast);
    rvli_unlock(transition->context);
    rvli_transition_end(transition);
    if (status != RVL_OK)
        return status;
    return rvli_result_write(forecast_out, &forecast, sizeof forecast);
}

rvl_status rvl_pause_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                              const rvl_pause_options *user_options, rvl_forecast *forecast_out)
{
    rvl_pause_options options;
    rvli_transition transition;
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK)
        status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = rvli_streams_check(context, options.streams, options.stream_count);
    if (status == RVL_OK)
        status = rvli_transition_begin(context, tags, tag_count, options.process, &transition);
    if (status != RVL_OK)
        return status;
    const question asked = {.pausing = true, .skip_content = options.discard};
    return forecast_claimed(&transition, &asked, forecast_out);
}

rvl_status rvl_resume_forecast(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                               const rvl_resume_options *user_options, rvl_forecast *forecast_out)
{
    rvl_resume_options options;
    rvli_transition transition;
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK)
        status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = rvli_streams_check(context, options.streams, options.stream_count);
    if (status == RVL_OK)
        status = rvli_transition_begin(context, tags, tag_count, options.process, &transition);
    if (status != RVL_OK)
        return status;
    const question asked = {.skip_content = options.no_restore, .waits = options.timeout_ns > 0};
    return forecast_claimed(&transition, &asked, forecast_out);
}
