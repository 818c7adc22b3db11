/* SPDX-License-Identifier: MIT */
#include "hooks/nccl/device.h"

#include "base/error.h"
#include "hooks/process/driver.h"

static rvl_status check(CUresult result, const char *call)
{
    if (result == CUDA_SUCCESS)
        return RVL_OK;
    rvli_error(RVL_ERR_DEVICE_LOST, "the driver does not answer for the communicator's device");
    rvli_error_op(call);
    rvli_error_native((int)result, "");
    return RVL_ERR_DEVICE_LOST;
}

rvl_status rvli_device_enter(int device)
{
    const rvli_driver_calls *driver = rvli_driver();
    CUcontext context = NULL;
    if (driver == NULL)
        return rvli_error_get()->status;
    rvl_status status = check(driver->cuDevicePrimaryCtxRetain(&context, device), "retain_context");
    if (status != RVL_OK)
        return status;
    status = check(driver->cuCtxPushCurrent(context), "push_context");
    if (status != RVL_OK)
        (void)driver->cuDevicePrimaryCtxRelease(device);
    return status;
}

void rvli_device_leave(int device)
{
    const rvli_driver_calls *driver = rvli_driver(); /* not NULL: the device was entered */
    CUcontext context = NULL;
    (void)driver->cuCtxPopCurrent(&context);
    (void)driver->cuDevicePrimaryCtxRelease(device);
}

rvl_status rvli_device_free_bytes(int device, uint64_t *free_bytes_out)
{
    size_t free_bytes = 0, total_bytes = 0;
    rvl_status status = rvli_device_enter(device);
    if (status != RVL_OK)
        return status;
    status = check(rvli_driver()->cuMemGetInfo(&free_bytes, &total_bytes), "memory_info");
    rvli_device_leave(device);
    if (status == RVL_OK)
        *free_bytes_out = free_bytes;
    return status;
}
