/* SPDX-License-Identifier: MIT */
/*
 * Memory that the driver allocates for itself, as external bytes. The memory in use is read before
 * and after the calls in which the driver allocates.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/text.h"
#include "hooks/record/internal.h"
#include "hooks/record/usage.h"

#define CAUSE_BYTES 40

/* The process is appended, so that causes are distinct over all files. */
static const char *const causes[RVLI_GROWTHS] = {
    [RVLI_GROWTH_CONTEXT] = "cuda_context:",
    [RVLI_GROWTH_KERNELS] = "kernels:",
    [RVLI_GROWTH_STREAMS] = "streams:",
    [RVLI_GROWTH_GRAPHS] = "graphs:",
    [RVLI_GROWTH_NCCL] = "nccl:",
};

static uint64_t told_bytes[RVLI_GROWTHS][RVL_MAX_DEVICES];
static _Atomic uint64_t contexts_begun; /* bit d: device d */

void rvli_record_begin_growth(void)
{
    memset(told_bytes, 0, sizeof told_bytes);
    atomic_store(&contexts_begun, 0);
}

static void tell(rvli_recorded_growth growth, int device, uint64_t bytes)
{
    char cause[CAUSE_BYTES];
    rvli_text text = rvli_text_begin(cause, sizeof cause);
    rvli_text_add(&text, causes[growth]);
    rvli_text_add_u64(&text, (uint64_t)rvli_record_process());
    told_bytes[growth][device] = bytes;
    rvli_record_write(&(rvl_trace_event){.kind = RVL_EVENT_EXTERNAL,
                                         .device = rvli_usage_device_at(device)->place,
                                         .bytes = bytes,
                                         .name = cause});
}

void rvli_record_nccl(int device, int64_t change_bytes)
{
    tell(RVLI_GROWTH_NCCL, device, told_bytes[RVLI_GROWTH_NCCL][device] + (uint64_t)change_bytes);
}

bool rvli_recorder_nccl_bytes(int device, uint64_t *bytes_out)
{
    if (!rvli_recorder_on())
        return false;
    pthread_mutex_lock(&rvli_record_lock);
    bool known = rvli_record_has_file() && device < (int)RVL_MAX_DEVICES &&
                 (rvli_record_devices_used() >> device & 1) != 0;
    if (known)
        *bytes_out = told_bytes[RVLI_GROWTH_NCCL][device];
    pthread_mutex_unlock(&rvli_record_lock);
    return known;
}

static void end_growth_of(rvli_recorded_growth growth, int device)
{
    if (told_bytes[growth][device] > 0)
        tell(growth, device, 0);
}

void rvli_record_end_growth(void)
{
    for (rvli_recorded_growth growth = 0; growth < RVLI_GROWTHS; growth++)
        for (int device = 0; device < (int)RVL_MAX_DEVICES; device++)
            end_growth_of(growth, device);
}

/*
 * Whether this is the first context of the device, which only NVML can measure: before it exists,
 * the driver cannot report use.
 */
static bool begins_context(int device)
{
    return rvli_usage_device_at(device)->always &&
           !(atomic_fetch_or(&contexts_begun, UINT64_C(1) << device) >> device & 1);
}

bool rvli_record_has_context(int device)
{
    return !rvli_usage_device_at(device)->always ||
           (atomic_load(&contexts_begun) >> device & 1) != 0;
}

void rvli_record_context_begun(int device, uint64_t before_bytes)
{
    if (rvli_record_knows_device(device) && begins_context(device))
        rvli_recorder_growth_end(RVLI_GROWTH_CONTEXT, device, before_bytes);
}

uint64_t rvli_recorder_growth_begin(rvli_recorded_growth growth, int device)
{
    uint64_t used_bytes;
    if (!rvli_recorder_on() || rvli_usage_load() != RVL_OK)
        return RVLI_RECORDER_UNMEASURED;
    device = device >= 0 ? device : rvli_usage_current();
    if (!rvli_record_knows_device(device) ||
        (growth == RVLI_GROWTH_CONTEXT && !begins_context(device)) ||
        !rvli_record_read_use(device, &used_bytes))
        return RVLI_RECORDER_UNMEASURED;
    return used_bytes;
}

void rvli_recorder_growth_end(rvli_recorded_growth growth, int device, uint64_t before_bytes)
{
    uint64_t used_bytes;
    if (before_bytes == RVLI_RECORDER_UNMEASURED)
        return;
    device = device >= 0 ? device : rvli_usage_current();
    if (!rvli_record_knows_device(device) || !rvli_record_read_use(device, &used_bytes) ||
        used_bytes <= before_bytes || !rvli_record_enter())
        return;
    tell(growth, device, told_bytes[growth][device] + used_bytes - before_bytes);
    rvli_record_use_device(device);
    pthread_mutex_unlock(&rvli_record_lock);
}

bool rvli_recorder_context_reset(int device)
{
    if (!rvli_recorder_on() || device < 0 || device >= (int)RVL_MAX_DEVICES)
        return false;
    pthread_mutex_lock(&rvli_record_lock);
    if (rvli_record_has_file()) {
        rvli_record_free_addresses(device);
        for (rvli_recorded_growth growth = 0; growth < RVLI_GROWTH_NCCL; growth++)
            end_growth_of(growth, device); /* NCCL's memory is from cuMemCreate() and survives */
    }
    atomic_fetch_and(&contexts_begun,
                     ~(UINT64_C(1) << device)); /* measure the next context again */
    pthread_mutex_unlock(&rvli_record_lock);
    return true;
}

bool rvli_recorder_context_released(int device)
{
    return rvli_recorder_on() && rvli_record_may_read() && !rvli_usage_active(device) &&
           rvli_recorder_context_reset(device);
}
