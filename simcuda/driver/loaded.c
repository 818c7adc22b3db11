/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/loaded.h"

#include "simcuda/driver/share.h"

static unsigned life;

void rvli_loaded_forget(void)
{
    life++;
}

static bool is_there(const rvli_loaded *of, int device)
{
    return of->life == life && (of->devices >> device & 1);
}

static void note(rvli_loaded *of, int device)
{
    if (of->life != life)
        *of = (rvli_loaded){.life = life};
    of->devices |= UINT64_C(1) << device;
}

CUresult rvli_loaded_kernel(int device, const rvli_image *image, rvli_loaded *image_at,
                            const rvli_entry *entry, rvli_loaded *entry_at)
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
