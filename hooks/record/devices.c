/* SPDX-License-Identifier: MIT */
/*
 * Samples of the memory in use on the devices that the program has used. The library that reports
 * the use may be gone once the process is ending.
 */
#include "hooks/record/internal.h"

#include <stdatomic.h>

#include "hooks/record/usage.h"

static uint64_t sampled;    /* bit d: the program has used device d */
static _Atomic bool ending; /* libraries that report use may be gone */
static _Atomic bool asleep; /* the process sleeps: such calls would not return */

void rvli_record_begin_devices(void)
{
    sampled = 0;
    atomic_store(&asleep, false); /* a forked child has nothing on devices */
}

void rvli_record_stop_reading(void)
{
    atomic_store(&ending, true);
}

void rvli_record_set_asleep(bool sleeps)
{
    atomic_store(&asleep, sleeps);
}

bool rvli_record_may_read(void)
{
    return !atomic_load(&ending) && !atomic_load(&asleep);
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
