/* SPDX-License-Identifier: MIT */
/*
 * What the devices say is in use: samples of those that the program has used, and what the making
 * of a context has taken. Whoever tells it may be gone once the process is ending.
 */
#include "hooks/recorder_internal.h"

#include <string.h>

#include "base/text.h"
#include "hooks/usage.h"

#define CONTEXT_CAUSE "cuda_context:" /* and the process: causes are the same over all files */

static uint64_t sampled;                        /* bit d: the program has used device d */
static uint64_t context_bytes[RVL_MAX_DEVICES]; /* as told */
static _Atomic uint64_t contexts_begun;         /* bit d */
static _Atomic bool ending;                     /* libraries that tell what is in use may be gone */

void rvli_record_begin_devices(void)
{
    sampled = 0;
    memset(context_bytes, 0, sizeof context_bytes);
    atomic_store(&contexts_begun, 0);
}

/* ---- What is in use ---- */

void rvli_record_stop_reading(void)
{
    atomic_store(&ending, true);
}

bool rvli_record_may_read(void)
{
    return !atomic_load(&ending);
}

bool rvli_record_read_use(int device, uint64_t *used_bytes_out)
{
    return rvli_record_may_read() && rvli_usage_read(device, used_bytes_out);
}

bool rvli_record_knows_device(int device)
{
    return device >= 0 && device < rvli_usage_count();
}

uint64_t rvli_record_devices_used(void)
{
    return sampled;
}

void rvli_record_sample(int device, uint64_t used_bytes)
{
    rvli_record_write(&(rvl_trace_event){.kind = RVL_EVENT_SAMPLE,
                                         .device = rvli_usage_device_at(device)->place,
                                         .bytes = used_bytes});
}

void rvli_record_sample_all(void)
{
    uint64_t used_bytes;
    for (uint64_t left = sampled; left != 0; left &= left - 1) {
        int device = __builtin_ctzll(left);
        if (rvli_record_read_use(device, &used_bytes))
            rvli_record_sample(device, used_bytes);
    }
}

void rvli_record_use_device(int device)
{
    uint64_t bit = UINT64_C(1) << device, used_bytes;
    if (sampled & bit)
        return;
    sampled |= bit;
    if (rvli_record_read_use(device, &used_bytes))
        rvli_record_sample(device, used_bytes);
}

/* ---- Contexts ---- */

static void write_external(int device, uint64_t bytes)
{
    char cause[sizeof CONTEXT_CAUSE + 20];
    rvli_text text = rvli_text_begin(cause, sizeof cause);
    rvli_text_add(&text, CONTEXT_CAUSE);
    rvli_text_add_u64(&text, (uint64_t)rvli_record_process());
    context_bytes[device] = bytes;
    rvli_record_write(&(rvl_trace_event){.kind = RVL_EVENT_EXTERNAL,
                                         .device = rvli_usage_device_at(device)->place,
                                         .bytes = bytes,
                                         .name = cause});
}

void rvli_record_end_contexts(void)
{
    for (int device = 0; device < (int)RVL_MAX_DEVICES; device++)
        if (context_bytes[device] > 0)
            write_external(device, 0);
}

uint64_t rvli_recorder_context_begin(int device)
{
    uint64_t used_bytes;
    const rvli_recorder_calls *other = rvli_record_other();
    if (other != NULL)
        return other->context_begin(device);
    if (!rvli_recorder_on() || rvli_usage_load() != RVL_OK || !rvli_record_knows_device(device) ||
        !rvli_usage_device_at(device)->always ||
        (atomic_fetch_or(&contexts_begun, UINT64_C(1) << device) >> device & 1) ||
        !rvli_record_read_use(device, &used_bytes))
        return RVLI_RECORDER_UNMEASURED;
    return used_bytes;
}

void rvli_recorder_context_end(int device, uint64_t before_bytes)
{
    uint64_t used_bytes;
    const rvli_recorder_calls *other = rvli_record_other();
    if (other != NULL) {
        other->context_end(device, before_bytes);
        return;
    }
    if (before_bytes == RVLI_RECORDER_UNMEASURED || !rvli_record_read_use(device, &used_bytes) ||
        used_bytes <= before_bytes || !rvli_record_enter())
        return;
    write_external(device, used_bytes - before_bytes);
    rvli_record_use_device(device);
    pthread_mutex_unlock(&rvli_record_lock);
}
