/* SPDX-License-Identifier: MIT */
/* Names of results are those of the header; texts are the driver's where it has been seen. */
#include "simcuda/driver/driver.h"

CUresult cuGetErrorName(CUresult error, const char **text)
{
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)error) {
#define RVLI_RESULT(name)                                                                          \
    case name:                                                                                     \
        *text = #name;                                                                             \
        return CUDA_SUCCESS;
#include "cuda_results.inc"
#undef RVLI_RESULT
    default:
        *text = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    CUresult result = cuGetErrorName(error, text);
    switch ((int)error) {
    case CUDA_SUCCESS:
        *text = "no error";
        break;
    case CUDA_ERROR_INVALID_VALUE:
        *text = "invalid argument";
        break;
    case CUDA_ERROR_OUT_OF_MEMORY:
        *text = "out of memory";
        break;
    case CUDA_ERROR_NOT_INITIALIZED:
        *text = "initialization error";
        break;
    case CUDA_ERROR_NO_DEVICE:
        *text = "no CUDA-capable device is detected";
        break;
    case CUDA_ERROR_INVALID_DEVICE:
        *text = "invalid device ordinal";
        break;
    case CUDA_ERROR_INVALID_CONTEXT:
        *text = "invalid device context";
        break;
    case CUDA_ERROR_NOT_SUPPORTED:
        *text = "operation not supported";
        break;
    default:
        break;
    }
    return result;
}
