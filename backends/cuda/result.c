/* SPDX-License-Identifier: MIT */
/* Converts results of the driver to the library's errors. */
#include "backends/cuda/driver.h"

#include "base/error.h"
#include "base/text.h"

rvl_status rvli_cuda_status(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return RVL_OK;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return RVL_ERR_DEVICE_OOM;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
        return RVL_ERR_NOT_SUPPORTED;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
        return RVL_ERR_NO_DEVICE;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
    case CUDA_ERROR_CAPTURED_EVENT:
        return RVL_ERR_BUSY;
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return RVL_ERR_DEVICE_LOST;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_NOT_FOUND:
        return RVL_ERR_INVALID;
    default:
        return RVL_ERR_IO; /* the record also has the driver's number and name */
    }
}

rvl_status rvli_cuda_check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return RVL_OK;
    const char *name = NULL;
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvl_status status = rvli_cuda_status(result);
    if (rvli_cuda.cuGetErrorName == NULL ||
        rvli_cuda.cuGetErrorName(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "CUresult";
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, what);
    if (status == RVL_ERR_DEVICE_LOST)
        rvli_text_add(&text, ": the device is lost to this process; start it again: ");
    else
        rvli_text_add(&text, ": the driver answered ");
    rvli_text_add(&text, name);
    rvli_error(status, message);
    rvli_error_native((int)result, name);
    return status;
}
