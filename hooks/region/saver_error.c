/* SPDX-License-Identifier: MIT */
/* Converts errors to those of the CUDA runtime. */
#include "hooks/region/saver.h"

#include "base/error.h"
#include "hooks/process/cuda_values.h"

int rvli_saver_cuda_error(rvl_status status)
{
    int native = rvli_error_get()->native_code;
    switch (status) {
    case RVL_OK:
        return RVLI_CUDA_SUCCESS;
    case RVL_ERR_DEVICE_OOM:
    case RVL_ERR_HOST_OOM:
        return RVLI_CUDA_MEMORY_ALLOCATION;
    case RVL_ERR_INVALID:
        return RVLI_CUDA_INVALID_VALUE;
    case RVL_ERR_FORKED:
        return RVLI_CUDA_INITIALIZATION;
    case RVL_ERR_NO_DRIVER:
    case RVL_ERR_DRIVER_TOO_OLD:
        return RVLI_CUDA_INSUFFICIENT_DRIVER;
    case RVL_ERR_NO_DEVICE:
        return RVLI_CUDA_NO_DEVICE;
    case RVL_ERR_NOT_SUPPORTED:
        return RVLI_CUDA_NOT_SUPPORTED;
    case RVL_ERR_BUSY:
        return RVLI_CUDA_CAPTURE_UNSUPPORTED;
    default: /* the driver and the runtime share all other numbers */
        return native > 0 && native < RVLI_CUDA_UNKNOWN ? native : RVLI_CUDA_UNKNOWN;
    }
}
