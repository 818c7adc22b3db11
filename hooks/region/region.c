/* SPDX-License-Identifier: MIT */
#include "hooks/region/region.h"

#include "base/error.h"
#include "hooks/process/cuda_values.h"
#include "hooks/process/driver.h"
#include "hooks/process/message.h"
#include "hooks/record/recorder.h"
#include "hooks/region/saver.h"

static void record(int device, size_t size, rvl_addr addr)
{
    const rvli_thread_settings *settings = rvli_settings_of_thread();
    const rvli_recorded what = {
        .size_bytes = size,
        .tag = settings->tag,
        .device = device,
        .backup = settings->host_backup   ? RVL_BACKUP_HOST
                  : settings->disk_backup ? RVL_BACKUP_DISK
                                          : RVL_BACKUP_NONE,
    };
    rvli_recorder_alloc(RVLI_RECORDED_ADDRESS, addr, &what);
}

int rvli_region_alloc(int device, size_t size, void **pointer_out)
{
    rvl_addr addr = 0;
    rvl_status status = rvli_saver_alloc(device, size, rvli_settings_of_thread(), &addr);
    if (status == RVL_OK && rvli_recorder_on())
        record(device, size, addr);
    if (status == RVL_OK)
        *pointer_out = (void *)(uintptr_t)addr;
    else if (status != RVL_ERR_DEVICE_OOM) /* PyTorch frees memory and retries */
        rvli_say_error("allocating in a region");
    return rvli_saver_cuda_error(status);
}

bool rvli_region_free(void *pointer, int *error_out)
{
    if (atomic_load_explicit(&rvli_saver_live, memory_order_relaxed) == 0)
        return false;
    rvli_recorded was;
    bool recorded = rvli_recorder_free(RVLI_RECORDED_ADDRESS, (uintptr_t)pointer, &was);
    rvl_status status = rvli_saver_free((uintptr_t)pointer);
    if (status == RVL_ERR_NOT_FOUND)
        return false;
    *error_out = rvli_saver_cuda_error(status);
    if (status != RVL_OK && recorded) { /* it is still allocated */
        rvl_error cause = *rvli_error_get();
        rvli_recorder_alloc(RVLI_RECORDED_ADDRESS, (uintptr_t)pointer, &was);
        rvli_error_set(&cause);
    }
    /* At exit, the driver and all its memory may be gone before the program frees its last
     * allocations. */
    if (*error_out != RVLI_CUDA_SUCCESS && *error_out != RVLI_CUDA_UNLOADING)
        rvli_say_error("freeing memory of a region");
    return true;
}

int rvli_region_current_device(int *device_out)
{
    const rvli_driver_calls *driver = rvli_driver();
    return driver != NULL ? (int)driver->cuCtxGetDevice(device_out)
                          : rvli_saver_cuda_error(rvli_error_get()->status);
}
