/* SPDX-License-Identifier: MIT */
/*
 * Runs the model over a recording, entry by entry.
 *
 * A run starts from an empty device, unless entries on segments show that the device held memory.
 * If a later entry, or the memory held at the end, shows this, the run starts again from what
 * start.c finds.
 */
#include "predict/snapshot/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "base/output.h"
#include "base/trace_element.h"
#include "predict/snapshot/holdings.h"
#include "predict/snapshot/rewrite.h"
#include "predict/snapshot/tensors.h"

#define STAGE_PREFIX "stage:"
#define FLAGS                                                                                      \
    (RVL_SNAPSHOT_VERIFY | RVL_SNAPSHOT_EMPTY_CACHE | RVL_SNAPSHOT_HOLDERS |                       \
     RVL_SNAPSHOT_ALL_FRAMES | RVL_SNAPSHOT_MEET_REFUSED | RVL_SNAPSHOT_GOES_ON)
/* Entries to search for the request that released memory. */
#define AHEAD_MAX 4096u
/* Returned by an entry if the trace lacks its beginning: the run must start again. */
#define LACKS_BEGIN RVL_ERR_STATE

/* ---- Entries ---- */

static rvli_cached_block *block_at(const rvli_run *run, uint64_t addr)
{
    uint64_t value = 0;
    return addr != 0 && rvli_intmap_get(&run->live, addr, &value)
               ? (rvli_cached_block *)(uintptr_t)value
               : NULL;
}

static void skip(rvli_run *run)
{
    run->result->facts.skipped_count++;
    run->result->notes[RVLI_NOTE_SKIPPED] = true;
}

/* Frees the block at an address that is given out again. */
static void forget(rvli_run *run, uint64_t addr)
{
    rvli_cached_block *block = block_at(run, addr);
    if (block == NULL)
        return;
    run->result->notes[RVLI_NOTE_CONTRADICTION] = true;
    if (block->use == RVLI_USE_LIVE)
        rvli_allocator_free(&run->allocator, block);
    rvli_allocator_complete(&run->allocator, block);
    rvli_intmap_remove(&run->live, addr, NULL);
}

static rvl_status allocate(rvli_run *run, rvli_request *request, rvli_cached_block **block_out)
{
    rvl_snapshot_facts *facts = &run->result->facts;
    rvl_status status = rvli_allocator_malloc(&run->allocator, request, block_out);
    if (status != RVL_ERR_DEVICE_OOM)
        return status;
    if (facts->oom_count++ == 0) {
        facts->oom_event = request->event;
        facts->oom_requested_bytes = request->size;
    }
    run->result->notes[RVLI_NOTE_OOM] = true;
    request->unlimited = true;
    return rvli_allocator_malloc(&run->allocator, request, block_out);
}

static rvli_request request_of(const rvli_run *run, uint32_t index)
{
    const rvli_event_row *event = rvli_event(run, index);
    bool failed = event->action == RVLI_ACTION_OOM;
    return (rvli_request){.size = event->size,
                          .event = index,
                          .addr = run->verify && !failed ? event->addr : 0,
                          .stream = event->stream,
                          .pool = failed ? event->pool : rvli_pool_of(run, event),
                          .unlimited = failed}; /* the recording has what it released */
}

static rvl_status on_alloc(rvli_run *run, uint32_t index, const rvli_event_row *event)
{
    rvli_request request = request_of(run, index);
    rvli_cached_block *block = NULL;
    forget(run, event->addr);
    rvl_status status = rvli_queue_settle(run, &request);
    request.retries = run->just_released;
    run->just_released = false;
    run->places.wanted = event->addr;
    if (status == RVL_OK)
        status = allocate(run, &request, &block);
    if (status != RVL_OK)
        return status;
    bool elsewhere = run->verify ? run->allocator.misplaced : block->addr != event->addr;
    run->moved = run->moved || elsewhere;
    if (elsewhere && event->addr == run->new_segment && !run->changed)
        run->result->notes[RVLI_NOTE_HIDDEN_POOL] = true;
    if (run->allocator.misplaced && index < run->guessed_until)
        run->result->notes[RVLI_NOTE_GUESSED] = true;
    else if (run->allocator.misplaced)
        rvli_diverge(run, index,
                     event->addr == run->new_segment
                         ? "the model has a cached block for it, or this is of a private pool"
                         : "the model puts it elsewhere",
                     0, 0);
    status = rvli_intmap_insert(&run->live, event->addr, (uint64_t)(uintptr_t)block);
    return status == RVL_OK && run->verify ? rvli_queue_finish(run) : status;
}

static rvl_status unknown_free(rvli_run *run)
{
    if (run->may_lack_begin)
        return LACKS_BEGIN;
    run->result->notes[RVLI_NOTE_CONTRADICTION] = true;
    return RVL_OK;
}

static rvl_status on_free(rvli_run *run, uint32_t index, const rvli_event_row *event)
{
    rvli_cached_block *block = block_at(run, event->addr);
    if (block == NULL || block->use != RVLI_USE_LIVE)
        return unknown_free(run);
    block->event = index; /* supplies the address if the block is waited for */
    rvli_allocator_free(&run->allocator, block);
    return RVL_OK;
}

/* Completes a free. A block that was waited for earlier is already complete. */
static rvl_status on_completed(rvli_run *run, const rvli_event_row *event)
{
    rvli_cached_block *block = block_at(run, event->addr);
    if (block == NULL) {
        if (rvli_intmap_remove(&run->early, event->addr, NULL) || !run->may_lack_begin)
            return RVL_OK;
        return unknown_free(run);
    }
    if (block->use == RVLI_USE_LIVE) {
        run->result->notes[RVLI_NOTE_CONTRADICTION] = true;
        rvli_allocator_free(&run->allocator, block);
    }
    rvli_allocator_complete(&run->allocator, block);
    rvli_intmap_remove(&run->live, event->addr, NULL);
    return RVL_OK;
}

/*
 * A failed request records how much the device had free. Together with the bytes reserved at that
 * time, this is the device's capacity for the process. Other processes may have taken some of it
 * later, so the smallest value counts; run_all() raises it to what the process itself reserved.
 */
static void note_room(rvli_run *run, uint64_t free_bytes)
{
    uint64_t room = run->allocator.bytes.reserved + free_bytes;
    if (!run->changed && (run->recorded_room == 0 || room < run->recorded_room))
        run->recorded_room = room;
}

/*
 * A request failed after all memory that could be released was released. Under another limit it
 * might not have failed. Then only what the recording released is considered.
 */
static rvl_status on_oom(rvli_run *run, uint32_t index)
{
    rvli_request request = request_of(run, index);
    uint64_t retries = run->allocator.retries;
    rvl_status status = rvli_queue_settle(run, &request);
    run->just_released = false;
    if (status == RVL_OK && (run->verify || run->allocator.capacity_bytes == 0)) {
        status = rvli_allocator_fail(&run->allocator, &request);
        note_room(run, rvli_event(run, index)->addr);
        run->allocator.retries = retries + 1;
    }
    return status;
}

static rvl_status on_segment(rvli_run *run, uint32_t index, const rvli_event_row *event)
{
    bool gives_back =
        event->action == RVLI_ACTION_SEGMENT_FREE || event->action == RVLI_ACTION_SEGMENT_UNMAP;
    uint32_t pool = gives_back ? rvli_pool_of(run, event) : 0;
    if (event->action == RVLI_ACTION_SEGMENT_ALLOC)
        run->new_segment = event->addr;
    if (pool > 0 && 2 * pool < run->allocator.side_count)
        run->allocator.sides[(size_t)2 * pool].freeable = true;
    return gives_back || run->verify ? rvli_queue_push(run, index) : RVL_OK;
}

/*
 * Finds the request that entry `index` is part of. Only entries that belong to a request may lie
 * between them.
 */
static bool find_request(const rvli_run *run, uint32_t index, rvli_request *request_out)
{
    uint32_t end = run->recording.event_count;
    end = end - index > AHEAD_MAX ? index + AHEAD_MAX : end;
    for (; index < end; index++) {
        uint8_t action = rvli_event(run, index)->action;
        if (action == RVLI_ACTION_ALLOC || action == RVLI_ACTION_OOM) {
            *request_out = request_of(run, index);
            return true;
        }
        if (action < RVLI_ACTION_FREE_COMPLETED || action > RVLI_ACTION_SEGMENT_UNMAP)
            return false;
    }
    return false;
}

/*
 * Memory was released, and now a block becomes free. A request waits for pending blocks on its way
 * to memory. Anything else shows that the release was empty_cache.
 */
static rvl_status before_free(rvli_run *run, uint32_t index)
{
    rvli_request request;
    if (run->queue_head == run->queue_count)
        return RVL_OK;
    bool found = find_request(run, index, &request);
    return rvli_queue_settle(run, found ? &request : NULL);
}

static rvl_status on_event(rvli_run *run, uint32_t index, const rvli_event_row *event)
{
    rvl_status status = RVL_OK;
    if (event->size > RVLI_SIZE_MAX_BYTES ||
        (event->addr == 0 && event->action >= RVLI_ACTION_ALLOC &&
         event->action <= RVLI_ACTION_SEGMENT_UNMAP)) {
        skip(run);
        return RVL_OK;
    }
    switch (event->action) {
    case RVLI_ACTION_ALLOC:
        return on_alloc(run, index, event);
    case RVLI_ACTION_FREE_REQUESTED:
        status = before_free(run, index);
        run->just_released = false;
        return status == RVL_OK ? on_free(run, index, event) : status;
    case RVLI_ACTION_FREE_COMPLETED:
        status = before_free(run, index);
        return status == RVL_OK ? on_completed(run, event) : status;
    case RVLI_ACTION_SEGMENT_ALLOC:
    case RVLI_ACTION_SEGMENT_FREE:
    case RVLI_ACTION_SEGMENT_MAP:
    case RVLI_ACTION_SEGMENT_UNMAP:
        return on_segment(run, index, event);
    case RVLI_ACTION_OOM:
        return on_oom(run, index);
    case RVLI_ACTION_UNKNOWN:
        skip(run);
        return RVL_OK;
    default:
        return RVL_OK;
    }
}

/* ---- Runs ---- */

static void take_peaks(rvli_run *run)
{
    const rvli_bytes *bytes = &run->allocator.bytes;
    if (bytes->allocated > run->epoch.allocated)
        run->epoch.allocated = bytes->allocated;
    if (bytes->reserved > run->epoch.at_peak.reserved)
        rvli_stages_peak(run);
    if (rvli_stages_more(bytes, &run->epoch.held.bytes))
        run->epoch.held = (rvli_held){*bytes, run->instant};
}

static rvl_status take_down(const rvli_run *run)
{
    if (run->tracer == NULL)
        return RVL_OK;
    return rvli_tracer_hold(run->tracer, run->last_us, &run->allocator.bytes);
}

static rvl_status run_events(rvli_run *run)
{
    rvl_status status = RVL_OK;
    if (run->track != NULL)
        run->track[0] = run->allocator.bytes;
    for (uint32_t i = 0; i < run->recording.event_count && status == RVL_OK; i++) {
        const rvli_event_row *event = rvli_event(run, i);
        if (event->time_us > run->last_us)
            run->last_us = event->time_us;
        if (run->next_edge < run->edge_count && event->time_us != 0)
            status = rvli_stages_pass(run, event->time_us);
        if (status == RVL_OK)
            status = on_event(run, i, event);
        run->instant = i + 1;
        if (run->track != NULL)
            run->track[i + 1] = run->allocator.bytes;
        if (run->out_of_memory)
            status = RVL_ERR_HOST_OOM;
        take_peaks(run);
        if (status == RVL_OK)
            status = take_down(run);
    }
    if (status == RVL_OK && run->verify)
        status = rvli_queue_settle(run, NULL);
    if (status == RVL_OK && run->verify)
        status = rvli_queue_finish(run);
    take_peaks(run);
    if (status == RVL_OK)
        status = take_down(run);
    return status == RVL_OK ? rvli_stages_end(run) : status;
}

/* Whether all blocks that are live at the end were allocated in the trace. */
static bool knows_the_end(const rvli_run *run)
{
    const rvli_recording *recording = &run->recording;
    for (uint32_t i = 0; i < recording->block_count; i++) {
        const rvli_block_row *block = &recording->blocks[i];
        if (block->state == RVLI_BLOCK_ACTIVE && block_at(run, block->addr) == NULL)
            return false;
    }
    return true;
}

static uint64_t quietly(void *owner, rvli_snapshot_change change, uint64_t addr, uint64_t size,
                        uint32_t stream)
{
    (void)owner, (void)change, (void)addr, (void)size, (void)stream;
    return 0;
}

static void clear_result(rvl_snapshot *result)
{
    for (uint32_t i = 0; i < result->facts.stage_count; i++) {
        free(result->stages[i].name);
        rvli_holdings_clear(&result->stages[i].holdings);
    }
    free(result->stages);
    *result = (rvl_snapshot){0};
}

static void clear_run(rvli_run *run)
{
    rvli_allocator_destroy(&run->allocator);
    rvli_intmap_destroy(&run->live);
    rvli_intmap_destroy(&run->early);
    rvli_places_destroy(&run->places);
    free(run->queue);
    free(run->edges);
    run->queue = NULL;
    run->edges = NULL;
    run->queue_count = run->queue_head = run->queue_capacity = 0;
    run->edge_count = run->next_edge = 0;
    if (!run->changed) {
        run->burst_count = 0;
        run->highest = 0;
        run->recorded_room = 0;
    }
}

static const char *stage_prefix(const rvl_snapshot_options *options)
{
    return options->stage_prefix != NULL ? options->stage_prefix : STAGE_PREFIX;
}

/* Runs once, as recorded or as the options ask. */
static rvl_status run_once(rvli_run *run, const rvl_snapshot_options *options)
{
    rvl_status status;
    clear_result(run->result);
    run->result->facts.verify = run->verify;
    run->result->facts.event_count = run->recording.event_count;
    rvli_places_init(&run->places);
    run->places.ranges = run->recording.settings.expandable;
    run->next_burst = 0;
    run->moved = false;
    run->guessed_until = 0;
    run->new_segment = 0;
    run->epoch = (rvli_epoch){0};
    run->pinning_work = 0;
    run->last_us = 0;
    run->instant = 0;
    if (run->tracer != NULL)
        rvli_tracer_clear(run->tracer);
    bool asked = run->changed || run->verify;
    rvli_allocator_init(&run->allocator, asked ? &run->settings : &run->recording.settings,
                        run->recording.pickle.streams,
                        run->may_lack_begin ? rvli_run_change : quietly, run);
    rvli_allocator_limit(&run->allocator, asked ? run->limit_bytes : 0);
    status = rvli_stages_find(run, stage_prefix(options));
    if (status == RVL_OK && !run->may_lack_begin)
        status = rvli_start_build(run);
    run->allocator.change = rvli_run_change;
    if (status == RVL_OK)
        status = run_events(run);
    if (status == RVL_OK && run->may_lack_begin && !knows_the_end(run))
        status = LACKS_BEGIN;
    return status;
}

/* Whether the prediction reserves more than the recording ever did. */
static bool exceeds_recording(const rvli_run *run)
{
    for (uint32_t i = 0; i < run->result->facts.stage_count; i++) {
        if (run->result->stages[i].at_peak.reserved > run->highest)
            return true;
    }
    return false;
}

static void conclude(rvli_run *run)
{
    rvl_snapshot *result = run->result;
    const rvli_settings *settings = &run->settings;
    result->facts.capacity_bytes = run->limit_bytes;
    result->facts.capacity_recorded = run->limit_bytes > 0 && run->limit_bytes != run->given_bytes;
    result->notes[RVLI_NOTE_NO_SIZE] =
        run->changed && run->limit_bytes == 0 && exceeds_recording(run);
    result->notes[RVLI_NOTE_TRUNCATED] = !run->may_lack_begin;
    result->notes[RVLI_NOTE_TIED] = !run->verify && run->allocator.tied && run->moved;
    result->notes[RVLI_NOTE_NO_LIMIT] =
        (settings->gc_threshold > 0 || settings->memory_fraction > 0) &&
        run->allocator.capacity_bytes == 0 && !run->verify;
    result->notes[RVLI_NOTE_NO_SETTINGS] = run->recording.settings_missing;
    result->notes[RVLI_NOTE_UNKNOWN_SETTINGS] = run->recording.settings_unknown;
    result->notes[RVLI_NOTE_OTHER_DEVICES] = run->recording.other_devices;
    for (uint32_t i = 0; i < RVLI_NOTE_COUNT; i++)
        result->facts.note_count += result->notes[i] ? 1 : 0;
    /* Other devices do not affect the confidence for this one. */
    uint32_t harmless = run->recording.other_devices ? 1 : 0;
    result->facts.exact = result->facts.note_count == harmless;
}

/*
 * Adds the bursts up to each stage's end that were retries. A run as recorded only knows these at
 * its end.
 */
static void add_retries(rvli_run *run)
{
    rvl_snapshot *result = run->result;
    for (uint32_t i = 0; i < run->burst_count && !run->changed; i++)
        run->bursts[i].retries = (i > 0 ? run->bursts[i - 1].retries : 0) +
                                 (rvli_burst_is_retry(run, &run->bursts[i]) ? 1 : 0);
    for (uint32_t i = 0; i < result->facts.stage_count && !run->changed; i++) {
        rvli_snapshot_stage *stage = &result->stages[i];
        stage->retries += stage->bursts > 0 ? run->bursts[stage->bursts - 1].retries : 0;
    }
}

static void keep_texts(rvli_run *run)
{
    rvl_snapshot *result = run->result;
    rvl_snapshot_facts *facts = &result->facts;
    static const char *const names[] = {"unknown",
#define ACTION_NAME(name, text) text,
                                        RVLI_ACTION_MAP(ACTION_NAME)
#undef ACTION_NAME
    };
    for (uint32_t i = 0; i < facts->stage_count; i++) {
        rvli_snapshot_stage *stage = &result->stages[i];
        if (stage->pinned > 0 && stage->pinning_event < facts->event_count)
            stage->pinning_addr = rvli_event(run, stage->pinning_event)->addr;
    }
    if (facts->diverged && facts->diverged_at < facts->event_count) {
        const rvli_event_row *event = rvli_event(run, facts->diverged_at);
        facts->diverged_action = names[event->action];
        facts->diverged_addr = event->addr;
        facts->diverged_bytes = event->size;
    }
}

/*
 * Runs from an empty device. If that turns out to be wrong, runs again from what was live before
 * the trace.
 */
static rvl_status run_whole(rvli_run *run, const rvl_snapshot_options *options)
{
    rvl_status status = run_once(run, options);
    if (status == LACKS_BEGIN) {
        clear_run(run);
        run->may_lack_begin = false;
        status = run_once(run, options);
    }
    return status;
}

static bool gives_back(const rvli_run *run)
{
    for (uint32_t i = 0; i < run->recording.event_count; i++) {
        if (rvli_is_release(rvli_event(run, i)))
            return true;
    }
    return false;
}

static bool rewrites(const rvl_snapshot_options *options)
{
    return options->recompute != NULL || (options->flags & RVL_SNAPSHOT_MEET_REFUSED) != 0;
}

static rvl_status run_all(rvli_run *run, const rvl_snapshot_options *options)
{
    bool swapped = !run->verify && (run->empty_cache_at_stages || rewrites(options) ||
                                    !rvli_settings_same(&run->settings, &run->recording.settings));
    bool changed = swapped || (!run->verify && options->capacity_bytes > 0);
    bool lacks;
    rvl_status status = rvli_start_shows(run, &lacks);
    run->may_lack_begin = !lacks;
    run->given_bytes = run->limit_bytes = options->capacity_bytes;
    /* Run as recorded first, to find the causes of its bursts and the capacity of its device. */
    if (status == RVL_OK && changed && (run->given_bytes == 0 || gives_back(run)))
        status = run_whole(run, options);
    if (swapped && run->given_bytes == 0 && run->recorded_room > 0)
        run->limit_bytes = run->recorded_room > run->highest ? run->recorded_room : run->highest;
    if (changed) {
        run->changed = true;
        clear_run(run);
    }
    if (status == RVL_OK && rewrites(options))
        status = rvli_rewrite(&run->recording, options->recompute,
                              (options->flags & RVL_SNAPSHOT_MEET_REFUSED) != 0);
    if (status == RVL_OK)
        status = run_whole(run, options);
    if (status == RVL_OK) {
        conclude(run);
        add_retries(run);
        keep_texts(run);
    }
    return status;
}

/* ---- Options and errors ---- */

/* Sets the error. file NULL: the error is not about a file. */
static rvl_status tell(const char *file, rvl_status status, const char *message)
{
    rvli_error(status, message);
    if (file != NULL)
        rvli_error_place(file, 0, 0);
    return status;
}

static rvl_status apply_setting(rvli_settings *settings, const char *word, char *message,
                                size_t message_size)
{
    const char *equals = strchr(word, '='), *expected = NULL;
    rvl_status status = RVL_ERR_INVALID;
    if (equals != NULL)
        status = rvli_settings_set(settings, word, (size_t)(equals - word), equals + 1,
                                   strlen(equals + 1), &expected);
    if (equals == NULL)
        snprintf(message, message_size, "setting %s: expected KEY=VALUE", word);
    else if (status == RVL_ERR_NOT_FOUND)
        snprintf(message, message_size, "setting %s: the model follows %s", word,
                 rvli_settings_names());
    else if (status != RVL_OK)
        snprintf(message, message_size, "setting %s: expected %s", word, expected);
    return status == RVL_OK ? RVL_OK : RVL_ERR_INVALID;
}

static rvl_status check_options(const rvl_snapshot_options *options, char *message, size_t size)
{
    rvli_settings settings;
    rvli_settings_default(&settings);
    if ((options->flags & RVL_SNAPSHOT_VERIFY) &&
        (options->setting_count > 0 || (options->flags & RVL_SNAPSHOT_EMPTY_CACHE) ||
         rewrites(options))) {
        snprintf(message, size,
                 "a verification runs what was recorded: leave verify out to change it");
        return RVL_ERR_INVALID;
    }
    if (options->recompute != NULL && !rvli_rewrite_knows(options->recompute)) {
        snprintf(message, size, "recompute %.150s: expected FILE:LINE, such as gpt.py:23",
                 options->recompute);
        return RVL_ERR_INVALID;
    }
    for (size_t i = 0; i < options->setting_count; i++) {
        rvl_status status = apply_setting(&settings, options->settings[i], message, size);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static rvl_status open_run(rvli_run *run, const char *path, const rvl_snapshot_options *options,
                           char *message, size_t size)
{
    int device = options->device > 0 ? (int)(options->device - 1) : RVL_NO_DEVICE;
    rvl_status status = rvli_recording_open(path, device, message, size, &run->recording);
    if (status == RVL_OK)
        status = rvli_stages_check(run, stage_prefix(options), message, size);
    if (status != RVL_OK)
        return status;
    run->verify = (options->flags & RVL_SNAPSHOT_VERIFY) != 0;
    run->empty_cache_at_stages = (options->flags & RVL_SNAPSHOT_EMPTY_CACHE) != 0;
    run->settings = run->recording.settings;
    for (size_t i = 0; i < options->setting_count; i++)
        (void)apply_setting(&run->settings, options->settings[i], message, size);
    for (uint32_t i = 0; i < run->recording.segment_count; i++)
        run->private_pools |= run->recording.segments[i].pool > 0;
    return RVL_OK;
}

/* Allocates the record of bytes by instant, which windows use after the run. */
static rvl_status begin_track(rvli_run *run, const rvl_snapshot_options *options)
{
    if (options->window_count == 0)
        return RVL_OK;
    if ((options->flags & RVL_SNAPSHOT_HOLDERS) == 0 || options->windows == NULL ||
        options->window_size != sizeof *options->windows)
        return RVL_ERR_INVALID;
    run->track = calloc(run->recording.event_count + (size_t)1, sizeof *run->track);
    return run->track != NULL ? RVL_OK : RVL_ERR_HOST_OOM;
}

static rvl_status write_tensors(const rvli_run *run, FILE *out)
{
    rvli_tensors tensors;
    rvl_status status = rvli_tensors_find(&run->recording, &tensors);
    if (status != RVL_OK)
        return status;
    status = rvli_tensors_write(&run->recording, &tensors, run->tracer->first_us, out);
    rvli_tensors_clear(&tensors);
    return status;
}

/*
 * Runs a file. tracer: receives every step of the run; may be NULL. tensors: receives the tensors
 * as JSON, and needs a tracer; may be NULL.
 */
static rvl_status run_file(const char *path, const rvl_snapshot_options *options,
                           rvli_tracer *tracer, FILE *tensors, rvl_snapshot **snapshot_out)
{
    rvl_snapshot_options known;
    rvli_run run = {.tracer = tracer};
    char message[sizeof rvli_error_get()->message] = "";
    rvl_status status = rvli_options_read(&known, sizeof known, options);
    if (status == RVL_OK)
        status = rvli_flags_check(known.flags, FLAGS, known.reserved);
    if (status != RVL_OK)
        return status;
    if (path == NULL || snapshot_out == NULL)
        return tell(NULL, RVL_ERR_INVALID, "a path and a place for the result are needed");
    status = check_options(&known, message, sizeof message);
    if (status != RVL_OK)
        return tell(NULL, status, message);
    run.result = calloc(1, sizeof *run.result);
    if (run.result == NULL)
        return tell(NULL, RVL_ERR_HOST_OOM, "out of host memory");
    status = open_run(&run, path, &known, message, sizeof message);
    if (status == RVL_OK)
        status = begin_track(&run, &known);
    if (status == RVL_OK)
        status = run_all(&run, &known);
    if (status == RVL_ERR_NOT_FOUND && known.recompute != NULL && message[0] == '\0')
        snprintf(message, sizeof message,
                 "recompute %.100s: no call of this line keeps anything for a pass of backward, or "
                 "the file is not of `reveille run`, which records these passes",
                 known.recompute);
    clear_run(&run);
    if (status == RVL_OK && (known.flags & RVL_SNAPSHOT_HOLDERS))
        status = rvli_holdings_find(&run, &known);
    free(run.track);
    if (status == RVL_OK && tensors != NULL)
        status = write_tensors(&run, tensors);
    free(run.bursts);
    rvli_recording_close(&run.recording);
    if (status == RVL_OK) {
        *snapshot_out = run.result;
        return RVL_OK;
    }
    rvl_snapshot_close(run.result);
    return tell(path, status, message[0] != '\0' ? message : rvl_status_text(status));
}

rvl_status rvl_snapshot_run(const char *path, const rvl_snapshot_options *options,
                            rvl_snapshot **snapshot_out)
{
    return run_file(path, options, NULL, NULL, snapshot_out);
}

/* The error of the writer names the path of the trace. Replaces it by the path of the snapshot. */
static void tell_not_written(const char *path)
{
    char message[sizeof rvli_error_get()->message];
    snprintf(message, sizeof message, "its trace could not be written: %.200s",
             rvli_error_get()->message);
    rvli_error_message(message);
    rvli_error_place(path, 0, 0);
}

rvl_status rvl_snapshot_write_trace(const char *path, const rvl_snapshot_options *options,
                                    const rvl_snapshot_trace *trace, const char *trace_path)
{
    rvl_snapshot_trace how;
    rvl_trace_device device;
    rvli_tracer tracer = {0};
    rvl_snapshot *snapshot;
    rvl_status status = rvli_options_read(&how, sizeof how, trace);
    if (status == RVL_OK)
        status = rvli_flags_check(how.flags, RVL_SNAPSHOT_BY_PART, 0);
    if (status != RVL_OK)
        return status;
    if (how.device == NULL || trace_path == NULL)
        return tell(NULL, RVL_ERR_INVALID, "a device and a path for the trace are needed");
    status = rvli_trace_device_read(&device, how.device, how.device_size, 0);
    if (status != RVL_OK)
        return status;
    how.device = &device;
    if (path != NULL && rvli_output_is_same(trace_path, path))
        return tell(path, RVL_ERR_INVALID,
                    "its trace would replace it: name another file for the trace");
    tracer.by_part = (how.flags & RVL_SNAPSHOT_BY_PART) != 0;
    tracer.granule_bytes = how.device->granularity_bytes;
    status = run_file(path, options, &tracer, NULL, &snapshot);
    if (status == RVL_OK) {
        status = rvli_tracer_write(&tracer, snapshot, &how, trace_path);
        if (status != RVL_OK)
            tell_not_written(path);
        rvl_snapshot_close(snapshot);
    }
    rvli_tracer_destroy(&tracer);
    return status;
}

rvl_status rvl_snapshot_get_tensors(const char *path, const rvl_snapshot_options *options,
                                    char **json_out)
{
    rvli_tracer tracer = {0};
    rvl_snapshot *snapshot = NULL;
    char *text = NULL;
    size_t size = 0;
    if (json_out == NULL)
        return tell(NULL, RVL_ERR_INVALID, "a path and a place for the result are needed");
    FILE *stream = open_memstream(&text, &size);
    if (stream == NULL)
        return tell(NULL, RVL_ERR_HOST_OOM, "out of host memory");
    rvl_status status = run_file(path, options, &tracer, stream, &snapshot);
    bool whole = !ferror(stream);
    whole = fclose(stream) == 0 && whole;
    if (status == RVL_OK && !whole)
        status = tell(path, RVL_ERR_HOST_OOM, "out of host memory");
    rvl_snapshot_close(snapshot);
    rvli_tracer_destroy(&tracer);
    if (status == RVL_OK)
        *json_out = text;
    else
        free(text);
    return status;
}

void rvl_snapshot_close(rvl_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    clear_result(snapshot);
    free(snapshot);
}
