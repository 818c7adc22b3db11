/* SPDX-License-Identifier: MIT */
/* Marks: stages, steps, and external bytes. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "core/tables.h"
#include "core/listener.h"
#include "core/prefetch.h"

#define NAME_BYTES_MAX 255u
#define SAMPLE_TRIES 20
#define SAMPLE_AGAIN_NS 50000

static rvl_status check_name(const char *name)
{
    size_t length = name != NULL ? strnlen(name, NAME_BYTES_MAX + 1) : 0;
    if (length == 0 || length > NAME_BYTES_MAX)
        return rvli_error(RVL_ERR_INVALID, "a name must have 1 to 255 bytes");
    return RVL_OK;
}

/* ---- Stages and steps ---- */

/*
 * Reads the true use of every device, including other processes. RVLI_USE_UNKNOWN if it cannot be
 * read.
 */
static void sample_use(rvl_context *context, uint64_t *used_bytes)
{
    rvli_error_before before;
    rvli_error_keep(&before);
    for (int device = 0; device < context->device_count; device++) {
        uint64_t free_bytes = 0, total_bytes = 0;
        rvl_status status =
            context->ops.memory_info(context->self, device, &free_bytes, &total_bytes);
        used_bytes[device] = status == RVL_OK ? total_bytes - free_bytes : RVLI_USE_UNKNOWN;
    }
    rvli_error_put_back(&before);
}

/*
 * Samples the use at an instant when no thread changes memory, and returns with the lock held. If
 * there is no such instant, the use is unknown.
 */
static void sample_and_lock(rvl_context *context, uint64_t *used_bytes)
{
    for (int tries = 0; tries < SAMPLE_TRIES; tries++) {
        rvli_lock(context);
        bool quiet = context->changing == 0;
        uint64_t changes = context->changes;
        rvli_unlock(context);
        if (quiet)
            sample_use(context, used_bytes);
        rvli_lock(context);
        if (quiet && context->changes == changes)
            return;
        rvli_unlock(context);
        nanosleep(&(struct timespec){.tv_nsec = SAMPLE_AGAIN_NS}, NULL);
    }
    for (int device = 0; device < context->device_count; device++)
        used_bytes[device] = RVLI_USE_UNKNOWN;
    rvli_lock(context);
}

rvl_status rvl_stage(rvl_context *context, const char *name)
{
    uint64_t used_bytes[RVL_MAX_DEVICES];
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = check_name(name);
    if (status != RVL_OK)
        return status;

    rvli_lock(context);
    bool recording = rvli_recording(&context->recorder);
    rvli_unlock(context);
    if (recording)
        sample_and_lock(context, used_bytes);
    else
        rvli_lock(context);
    status = rvli_ledger_begin_stage(context, name);
    if (status == RVL_OK && recording && rvli_recording(&context->recorder))
        rvli_record_stage(context, name, used_bytes);
    rvli_unlock(context);
    const rvl_listener *hears = rvli_listener_of(context);
    if (status == RVL_OK && hears != NULL)
        hears->stage(context, name);
    return status;
}

rvl_status rvl_step(rvl_context *context)
{
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    context->step++;
    if (rvli_recording(&context->recorder))
        rvli_record_step(context);
    rvli_unlock(context);
    const rvl_listener *hears = rvli_listener_of(context);
    if (hears != NULL)
        hears->step(context);
    return RVL_OK;
}

/* ---- Segments, from which replay makes stages that overlap ---- */

rvl_status rvl_private_segment_now(rvl_context *context, int device,
                                   rvl_private_segment *segment_out)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    const rvli_ledger *ledger = &context->devices[device].ledger;
    *segment_out = (rvl_private_segment){
        .peak_bytes = ledger->stage.peak_bytes,
        .part_bytes = ledger->part_bytes_at_peak,
        .end_bytes = ledger->used_bytes,
        .host_bytes = ledger->stage.host_bytes,
        .transition_ns = ledger->stage.transition_ns,
    };
    rvli_unlock(context);
    return RVL_OK;
}

rvl_status rvl_private_segment_next(rvl_context *context, bool forget)
{
    rvl_status status = rvli_context_check(context);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    if (forget)
        rvli_ledger_begin_again(context);
    else
        status = rvli_ledger_next_segment(context);
    rvli_unlock(context);
    return status;
}

void rvl_private_segment_tell(rvl_context *context, const char *name)
{
    const rvl_listener *hears = rvli_listener_of(context);
    if (hears != NULL)
        hears->stage(context, name);
}

/* ---- External bytes ---- */

static rvli_cause *find_cause(rvli_ledger *ledger, const char *name)
{
    rvli_cause *cause = NULL;
    size_t length = strlen(name);
    HASH_FIND(hh, ledger->causes, name, length, cause);
    if (cause != NULL)
        return cause;
    cause = calloc(1, sizeof *cause + length + 1);
    if (cause == NULL)
        return NULL;
    memcpy(cause->name, name, length + 1);
    cause->holder.tag = cause->name;
    HASH_ADD_KEYPTR(hh, ledger->causes, cause->name, length, cause);
    if (cause->hh.tbl == NULL) {
        free(cause);
        return NULL;
    }
    return cause;
}

/* Simulated devices make room for external bytes. On real devices the memory is already taken. */
static rvl_status take_room(rvl_context *context, int device, uint64_t total_bytes)
{
    if (!context->ops.simulated)
        return RVL_OK;
    rvl_status status = context->ops.external_set(context->self, device, total_bytes);
    if (status == RVL_ERR_NOT_SUPPORTED)
        return RVL_OK;
    if (status != RVL_OK)
        rvli_error_op("external_set");
    return status;
}

/* With the lock held: external_set only exists on simulated devices and does not block. */
static rvl_status set_external(rvl_context *context, int device, const char *name, uint64_t bytes)
{
    rvli_ledger *ledger = &context->devices[device].ledger;
    rvli_cause *cause = find_cause(ledger, name);
    if (cause == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a cause of external bytes");
    uint64_t before = cause->holder.bytes;
    uint64_t others = ledger->external_bytes - before;
    if (bytes > (uint64_t)INT64_MAX - others)
        return rvli_error(RVL_ERR_INVALID, "external bytes of 2^63 or more");
    rvl_status status = take_room(context, device, others + bytes);
    if (status != RVL_OK)
        return status;
    if (bytes > before) {
        rvli_ledger_check_fit(context, device, 0, 0, bytes - before);
        rvli_ledger_add(context, device, &cause->holder, bytes - before);
    } else if (bytes < before) {
        rvli_ledger_sub(context, device, &cause->holder, before - bytes);
    }
    if (ledger->oom.happened && ledger->oom.external && ledger->oom.cause == NULL)
        ledger->oom.cause = cause->name;
    ledger->external_bytes = others + bytes;
    if (rvli_recording(&context->recorder))
        rvli_record_external(context, device, name, bytes);
    return RVL_OK;
}

rvl_status rvl_external_set(rvl_context *context, int device, const char *cause, uint64_t bytes)
{
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK)
        status = check_name(cause);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    status = set_external(context, device, cause, bytes);
    rvli_unlock(context);
    return status;
}
