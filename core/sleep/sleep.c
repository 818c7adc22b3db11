/* SPDX-License-Identifier: MIT */
/*
 * Sleep and wake: a pause of all tags, then the driver's checkpoint of the process; and the
 * reverse.
 *
 * The checkpoint is slow for large memory and fast for what a pause leaves, so the pause comes
 * first. The driver does not refuse processes that it cannot restore. So known obstacles are looked
 * for before anything is done. And a wake makes sure of its room before the restore, which loses
 * the process if there is none.
 *
 * While a process sleeps, its contexts are marked, and every call about them is refused at its
 * start (core/entry.c), so no call of ours waits in the driver. Calls of the thread that moves the
 * process are allowed.
 */
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/text.h"
#include "core/listener.h"
#include "core/memory/blocks.h"
#include "core/sleep/sleep_group.h"
#include "reveille/record.h"

#define RETRY_NS 2000000u
#define ROOM_SPARE_BYTES (UINT64_C(64) << 20) /* beyond what the process was seen to release */

/* ---- Recordings ---- */

/* Records the sleep or wake around the recorded pauses and resumes. */
static void record(const rvli_sleepers *all, rvl_event_kind kind, bool skips)
{
    rvl_error before = *rvli_error_get();
    if (all->real)
        rvli_listener_tell_sleep(kind, skips);
    for (size_t i = 0; i < all->count; i++)
        for (uint32_t number = 0; number < all->contexts[i]->process_count; number++) {
            const rvl_mark mark = {
                .struct_size = sizeof mark, .kind = kind, .process = number, .skip_content = skips};
            (void)rvl_record_mark(all->contexts[i], &mark);
        }
    rvli_error_set(&before);
}

/* ---- Waiting ---- */

typedef struct deadline {
    uint64_t end_ns;
} deadline;

static deadline deadline_in(uint64_t timeout_ns)
{
    uint64_t now_ns = rvli_monotonic_ns();
    return (deadline){timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns};
}

static uint64_t left_ns(deadline until)
{
    uint64_t now_ns = rvli_monotonic_ns();
    return now_ns < until.end_ns ? until.end_ns - now_ns : 0;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
}

static uint32_t timeout_ms(deadline until)
{
    uint64_t ms = left_ns(until) / 1000000;
    return ms == 0 ? 1 : ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

/* Waits for calls that were in progress when the contexts were marked. */
static rvl_status wait_for_calls(const rvli_sleepers *all, deadline until)
{
    for (;;) {
        uint32_t changing = 0;
        for (size_t i = 0; i < all->count; i++) {
            rvli_lock(all->contexts[i]);
            changing += all->contexts[i]->changing;
            rvli_unlock(all->contexts[i]);
        }
        if (changing == 0)
            return RVL_OK;
        if (left_ns(until) == 0)
            return rvli_error(RVL_ERR_TIMEOUT, "other threads still allocate, free or move memory: "
                                               "wait for them, or give more time");
        rest();
    }
}

/* ---- The pause ---- */

static void forget_tags(rvl_context *context)
{
    for (size_t t = 0; t < context->sleep.tag_count; t++) {
        const rvli_tag *tag = rvli_tag_get(context, context->sleep.tags[t]);
        for (rvli_allocation *each = tag->allocations; each != NULL; each = each->next)
            each->slept = false;
    }
    free(context->sleep.tags);
    free(context->sleep.held_bytes);
    context->sleep.tags = NULL;
    context->sleep.held_bytes = NULL;
    context->sleep.tag_count = 0;
}

static void forget_all(rvli_sleepers *all)
{
    for (size_t i = 0; i < all->count; i++)
        forget_tags(all->contexts[i]);
}

/* Calls of other threads are allowed again, so the sleep's notes must be freed first. */
static void be_awake(rvli_sleepers *all)
{
    forget_all(all);
    rvli_sleepers_set_state(all, RVLI_AWAKE);
}

static rvl_status note_tags(rvl_context *context, const rvl_transition *pause)
{
    rvli_sleep *sleep = &context->sleep;
    sleep->tags = malloc((pause->touched_count + 1) * sizeof *sleep->tags);
    sleep->held_bytes = calloc((size_t)context->device_count, sizeof *sleep->held_bytes);
    if (sleep->tags == NULL || sleep->held_bytes == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a sleep");
    for (size_t i = 0; i < pause->touched_count; i++)
        sleep->tags[sleep->tag_count++] = pause->touched[i]->number;
    for (size_t i = 0; i < pause->item_count; i++)
        pause->items[i].allocation->slept = true;
    return RVL_OK;
}

static void abort_pauses(rvli_sleepers *all)
{
    rvl_error cause = *rvli_error_get();
    for (size_t i = 0; i < all->count; i++)
        if (all->pauses[i] != NULL)
            (void)rvl_transition_abort(all->pauses[i]);
    rvli_error_set(&cause);
}

/* Pauses the tags of all processes: a context on simulated devices may represent several. */
static rvl_status prepare_pause(rvl_context *context, uint64_t flags, rvl_transition **pause_out)
{
    rvl_tag *tags = NULL;
    size_t count = 0;
    const rvl_pause_options options = {
        .struct_size = sizeof options,
        .flags = flags & RVL_SLEEP_DISCARD ? RVL_PAUSE_DISCARD : 0,
    };
    rvl_status status = rvli_sleepers_tags(context, &tags, &count);
    if (status == RVL_OK)
        status = rvl_pause_prepare(context, tags, count, &options, pause_out);
    free(tags);
    if (status == RVL_OK)
        status = note_tags(context, *pause_out);
    return status;
}

static rvl_status pause_all(rvli_sleepers *all, uint64_t flags)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < all->count && status == RVL_OK; i++)
        status = prepare_pause(all->contexts[i], flags, &all->pauses[i]);
    if (status != RVL_OK) {
        abort_pauses(all);
        return status;
    }
    for (size_t i = 0; i < all->count; i++) {
        (void)rvl_transition_commit(all->pauses[i]); /* cannot fail */
        for (int device = 0; device < all->contexts[i]->device_count; device++)
            (void)rvli_kept_give_up(all->contexts[i], device);
    }
    return RVL_OK;
}

/* ---- The resume ---- */

/* Resumes all contexts, or none. */
static rvl_status resume_all(rvli_sleepers *all, uint64_t timeout_ns)
{
    rvl_transition *resumes[RVLI_SLEEPERS_MAX] = {NULL};
    deadline until = deadline_in(timeout_ns);
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < all->count && status == RVL_OK; i++) {
        const rvli_sleep *sleep = &all->contexts[i]->sleep;
        const rvl_resume_options options = {
            .struct_size = sizeof options,
            .timeout_ns = timeout_ns > 0 ? left_ns(until) : 0,
        };
        if (sleep->tag_count > 0)
            status = rvl_resume_prepare(all->contexts[i], sleep->tags, sleep->tag_count, &options,
                                        &resumes[i]);
    }
    rvl_error cause = *rvli_error_get();
    for (size_t i = 0; i < all->count; i++)
        if (resumes[i] != NULL)
            (void)(status == RVL_OK ? rvl_transition_commit(resumes[i])
                                    : rvl_transition_abort(resumes[i]));
    if (status != RVL_OK)
        rvli_error_set(&cause);
    return status;
}

/* Appends to the message of the failure that is the cause. */
static void add_to_cause(const rvl_error *cause, const char *more)
{
    char message[sizeof cause->message];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, cause->message);
    rvli_text_add(&text, more);
    rvli_error_set(cause);
    rvli_error_message(message);
}

/* ---- Leaving the devices ---- */

/*
 * Returns whether this device of this context represents the process there: the first context that
 * has the device does.
 */
static bool stands_for_device(const rvli_sleepers *all, size_t index, int device)
{
    int ordinal = all->contexts[index]->devices[device].facts.ordinal;
    for (size_t i = 0; i <= index; i++)
        for (int d = 0; d < all->contexts[i]->device_count; d++)
            if (all->contexts[i]->devices[d].facts.ordinal == ordinal)
                return i == index && d == device;
    return false;
}

/* Reads the free bytes of each device once, before the lock. */
static rvl_status read_free_awake(rvli_sleepers *all)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < all->count; i++) {
        rvl_context *context = all->contexts[i];
        for (int device = 0; device < context->device_count && status == RVL_OK; device++) {
            uint64_t total_bytes = 0, *held = &context->sleep.held_bytes[device];
            if (stands_for_device(all, i, device))
                status = rvli_process_named(
                    context->ops.memory_info(context->self, device, held, &total_bytes),
                    "memory_info");
        }
    }
    return status;
}

/*
 * Stores how much more is free now. If that cannot be read, the wake relies on the room that it
 * finds.
 */
static void read_held(rvli_sleepers *all)
{
    rvl_error before = *rvli_error_get();
    for (size_t i = 0; i < all->count; i++) {
        rvl_context *context = all->contexts[i];
        for (int device = 0; device < context->device_count; device++) {
            uint64_t free_bytes = 0, *held = &context->sleep.held_bytes[device];
            if (!stands_for_device(all, i, device))
                continue;
            rvl_status status = context->ops.process_room(context->self, device, &free_bytes);
            *held = status == RVL_OK && free_bytes > *held ? free_bytes - *held : 0;
        }
    }
    rvli_error_set(&before);
}

/* Locks the process and takes it off its devices. On failure unlocks it again. */
static rvl_status take_off(rvli_sleepers *all, deadline until)
{
    rvl_status status = read_free_awake(all);
    if (status == RVL_OK)
        status = RVLI_PROCESS(all, process_lock, (RVLI_PROCESS_SELF(all), timeout_ms(until)));
    if (status != RVL_OK)
        return status;
    status = RVLI_PROCESS(all, process_checkpoint, (RVLI_PROCESS_SELF(all)));
    if (status == RVL_OK) {
        read_held(all);
        return RVL_OK;
    }
    rvl_error cause = *rvli_error_get();
    if (RVLI_PROCESS(all, process_unlock, (RVLI_PROCESS_SELF(all))) != RVL_OK &&
        RVLI_PROCESS(all, process_unlock, (RVLI_PROCESS_SELF(all))) != RVL_OK) {
        add_to_cause(&cause, "; and the driver does not unlock the process: end it");
        rvli_sleepers_set_state(all, RVLI_SLEEP_LOST);
        return cause.status;
    }
    rvli_error_set(&cause);
    return status;
}

/* ---- Sleep ---- */

/* Resumes the tags after a sleep that failed after its pauses. The process is awake. */
static rvl_status undo_pause(rvli_sleepers *all)
{
    rvl_error cause = *rvli_error_get();
    bool resumed = resume_all(all, RVLI_SLEEP_TIMEOUT_NS) == RVL_OK;
    if (resumed)
        rvli_error_set(&cause);
    else
        add_to_cause(&cause, "; the process is awake, and its tags stay paused: rvl_resume()");
    record(all, RVL_EVENT_WAKE, !resumed);
    return cause.status;
}

static rvl_status sleep_marked(rvli_sleepers *all, const rvl_sleep_options *options)
{
    deadline until = deadline_in(options->timeout_ns);
    rvl_status status = rvli_sleepers_check(all, options->flags);
    if (status == RVL_OK)
        status = wait_for_calls(all, until);
    if (status == RVL_OK)
        status = rvli_sleepers_check(all, options->flags);
    if (status != RVL_OK)
        return status;
    record(all, RVL_EVENT_SLEEP, options->flags & RVL_SLEEP_DISCARD);
    status = pause_all(all, options->flags);
    if (status != RVL_OK) {
        record(all, RVL_EVENT_WAKE, false); /* nothing has moved */
        return status;
    }
    status = take_off(all, deadline_in(options->timeout_ns));
    return status == RVL_OK || rvli_sleepers_state(all) == RVLI_SLEEP_LOST ? status
                                                                           : undo_pause(all);
}

rvl_status rvl_sleep(rvl_context *context, const rvl_sleep_options *user_options)
{
    rvl_sleep_options options;
    rvli_sleepers all = {.count = 0};
    rvl_status status = rvli_sleep_read_options(&options, user_options);
    if (status == RVL_OK)
        status = rvli_sleepers_begin(context, &all);
    if (status != RVL_OK)
        return status;
    if (rvli_sleepers_state(&all) != RVLI_AWAKE) {
        status = rvli_error(RVL_ERR_STATE, "the process is asleep already");
    } else {
        rvli_sleepers_set_state(&all, RVLI_SLEEP_MOVING);
        status = sleep_marked(&all, &options);
        if (status == RVL_OK)
            rvli_sleepers_set_state(&all, RVLI_ASLEEP);
        else if (rvli_sleepers_state(&all) != RVLI_SLEEP_LOST)
            be_awake(&all);
        else
            forget_all(&all);
    }
    rvli_sleepers_end(&all);
    return status;
}

/* ---- Wake ---- */

/*
 * Returns the bytes of a tag on a device that the sleep has paused. Allocations that were paused
 * before stay paused.
 */
static uint64_t bytes_to_resume(const rvli_tag *tag, int device)
{
    uint64_t before = 0,
             paused = tag->holders[device] != NULL ? tag->holders[device]->paused_bytes : 0;
    for (const rvli_allocation *each = tag->allocations; each != NULL; each = each->next)
        before += each->device == device && !each->slept ? each->size : 0;
    return paused > before ? paused - before : 0;
}

/* Sums those bytes over all tags, on a device by the driver's number. */
static uint64_t paused_bytes(const rvli_sleepers *all, int ordinal)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < all->count; i++) {
        rvl_context *context = all->contexts[i];
        for (size_t t = 0; t < context->sleep.tag_count; t++) {
            const rvli_tag *tag = rvli_tag_get(context, context->sleep.tags[t]);
            for (int device = 0; device < context->device_count; device++)
                if (context->devices[device].facts.ordinal == ordinal)
                    bytes += bytes_to_resume(tag, device);
        }
    }
    return bytes;
}

static rvl_status refuse_room(int ordinal, uint64_t needed_bytes, uint64_t free_bytes)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "the wake needs ");
    rvli_text_add_bytes(&text, needed_bytes);
    rvli_text_add(&text, ", ");
    rvli_text_add_bytes(&text, free_bytes);
    rvli_text_add(&text, " free on device ");
    rvli_text_add_u64(&text, (uint64_t)ordinal);
    rvli_text_add(&text, ": the process sleeps on, until others have freed that");
    rvli_error(RVL_ERR_DEVICE_OOM, message);
    rvli_error_op("process_room");
    rvli_error_bytes(ordinal, needed_bytes, free_bytes);
    return RVL_ERR_DEVICE_OOM;
}

static rvl_status check_room(rvli_sleepers *all, bool with_tags)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < all->count; i++) {
        rvl_context *context = all->contexts[i];
        for (int device = 0; device < context->device_count && status == RVL_OK; device++) {
            uint64_t free_bytes = 0;
            if (!stands_for_device(all, i, device) || context->devices[device].facts.overcommit)
                continue;
            int ordinal = context->devices[device].facts.ordinal;
            uint64_t needed = context->sleep.held_bytes[device];
            needed += needed > 0 && all->real ? ROOM_SPARE_BYTES : 0;
            needed += with_tags ? paused_bytes(all, ordinal) : 0;
            status = rvli_process_named(
                context->ops.process_room(context->self, device, &free_bytes), "process_room");
            if (status == RVL_OK && needed > free_bytes)
                status = refuse_room(ordinal, needed, free_bytes);
        }
    }
    return status;
}

static rvl_status wait_for_room(rvli_sleepers *all, bool with_tags, uint64_t timeout_ns)
{
    deadline until = deadline_in(timeout_ns);
    for (;;) {
        rvl_status status = check_room(all, with_tags);
        if (status != RVL_ERR_DEVICE_OOM || timeout_ns == 0)
            return status;
        if (left_ns(until) == 0) {
            rvl_error cause = *rvli_error_get();
            cause.status = RVL_ERR_TIMEOUT;
            rvli_error_set(&cause);
            return RVL_ERR_TIMEOUT;
        }
        rest();
    }
}

static rvl_status lose(rvli_sleepers *all)
{
    rvl_error cause = *rvli_error_get();
    rvli_sleepers_set_state(all, RVLI_SLEEP_LOST);
    cause.status = RVL_ERR_DEVICE_LOST;
    add_to_cause(&cause, "; the process cannot come back: end it");
    return RVL_ERR_DEVICE_LOST;
}

/* Brings the process back from any state, so that an interrupted wake can continue. */
static rvl_status bring_back(rvli_sleepers *all)
{
    rvli_process_state state = RVLI_PROCESS_AWAY;
    rvl_status status = RVLI_PROCESS(all, process_state, (RVLI_PROCESS_SELF(all), &state));
    if (status != RVL_OK)
        return status;
    if (state == RVLI_PROCESS_AWAY) {
        status = RVLI_PROCESS(all, process_restore, (RVLI_PROCESS_SELF(all)));
        if (status != RVL_OK)
            return lose(all);
        state = RVLI_PROCESS_LOCKED;
    }
    if (state == RVLI_PROCESS_LOCKED)
        status = RVLI_PROCESS(all, process_unlock, (RVLI_PROCESS_SELF(all)));
    return state == RVLI_PROCESS_LOST ? lose(all) : status;
}

/* Puts the process to sleep again after its tags could not be resumed. */
static rvl_status sleep_again(rvli_sleepers *all)
{
    rvl_error cause = *rvli_error_get();
    if (take_off(all, deadline_in(RVLI_SLEEP_TIMEOUT_NS)) == RVL_OK) {
        rvli_error_set(&cause);
        return cause.status;
    }
    add_to_cause(&cause, "; the process is awake, and its tags stay paused: rvl_resume()");
    if (rvli_sleepers_state(all) != RVLI_SLEEP_LOST) {
        record(all, RVL_EVENT_WAKE, true);
        be_awake(all);
    }
    return cause.status;
}

static rvl_status wake_marked(rvli_sleepers *all, const rvl_wake_up_options *options)
{
    bool with_tags = (options->flags & RVL_WAKE_UP_PAUSED) == 0;
    deadline until = deadline_in(options->timeout_ns);
    rvl_status status = wait_for_room(all, with_tags, options->timeout_ns);
    if (status == RVL_OK)
        status = bring_back(all);
    if (status == RVL_OK && with_tags)
        status = resume_all(all, options->timeout_ns > 0 ? left_ns(until) : 0);
    else if (status != RVL_OK)
        return status;
    if (status != RVL_OK)
        return sleep_again(all);
    record(all, RVL_EVENT_WAKE, !with_tags);
    return RVL_OK;
}

rvl_status rvl_wake_up(rvl_context *context, const rvl_wake_up_options *user_options)
{
    rvl_wake_up_options options;
    rvli_sleepers all = {.count = 0};
    rvl_status status = rvli_wake_read_options(&options, user_options);
    if (status == RVL_OK)
        status = rvli_sleepers_begin(context, &all);
    if (status != RVL_OK)
        return status;
    status = rvli_sleepers_check_asleep(&all);
    if (status == RVL_OK) {
        status = wake_marked(&all, &options);
        if (status == RVL_OK)
            be_awake(&all);
        else if (rvli_sleepers_state(&all) == RVLI_SLEEP_LOST)
            forget_all(&all);
    }
    rvli_sleepers_end(&all);
    return status;
}
