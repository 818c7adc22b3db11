/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/loaded.h"

#include <stdatomic.h>

#include "simcuda/driver/share.h"

#define DEVICES_MAX 64

/* Counts losses: code is lost with a device's last context. A forked child has no code. */
static atomic_uint losses;
static atomic_uint lost_in[DEVICES_MAX]; /* the device's last loss */

void rvli_loaded_lose(int device)
{
    atomic_store(&lost_in[device], atomic_fetch_add(&losses, 1) + 1);
}

void rvli_loaded_forget(void)
{
    for (int device = 0; device < DEVICES_MAX; device++)
        rvli_loaded_lose(device);
}

/* Clears the bits of devices that have lost code since the bits were set. */
static void refresh(rvli_loaded *of)
{
    unsigned now = atomic_load(&losses);
    if (of->losses == now)
        return;
    for (int device = 0; device < DEVICES_MAX; device++)
        if (atomic_load(&lost_in[device]) > of->losses)
            of->devices &= ~(UINT64_C(1) << device);
    of->losses = now;
}

static bool is_there(rvli_loaded *of, int device)
{
    refresh(of);
    return of->devices >> device & 1;
}

static void note(rvli_loaded *of, int device)
{
    refresh(of);
    of->devices |= UINT64_C(1) << device;
}

CUresult rvli_loaded_kernel(int device, const rvli_image *image, rvli_loaded *image_at,
                            const rvli_kernel_entry *entry, rvli_loaded *entry_at)
{
    CUresult result = CUDA_SUCCESS;
    if (is_there(entry_at, device))
        return CUDA_SUCCESS;
    if (!is_there(image_at, device)) {
        result = rvli_share_image(device, image->global_bytes, image->asserts);
        if (result == CUDA_SUCCESS)
            note(image_at, device);
    }
    if (result == CUDA_SUCCESS)
        result = rvli_share_code(device, entry != NULL ? entry->code_bytes : 0);
    if (result == CUDA_SUCCESS)
        result = rvli_share_local(device, entry != NULL ? entry->local_bytes : 0);
    if (result == CUDA_SUCCESS)
        note(entry_at, device);
    return result;
}
