/* SPDX-License-Identifier: MIT */
/* Names of results come from the header. Texts are the driver's where they are known. */
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

/* NULL: use the name. */
static const char *text_of(CUresult error)
{
    switch ((int)error) {
    case CUDA_SUCCESS:
        return "no error";
    case CUDA_ERROR_INVALID_VALUE:
        return "invalid argument";
    case CUDA_ERROR_OUT_OF_MEMORY:
        return "out of memory";
    case CUDA_ERROR_NOT_INITIALIZED:
        return "initialization error";
    case CUDA_ERROR_NO_DEVICE:
        return "no CUDA-capable device is detected";
    case CUDA_ERROR_INVALID_DEVICE:
        return "invalid device ordinal";
    case CUDA_ERROR_INVALID_CONTEXT:
        return "invalid device context";
    case CUDA_ERROR_INVALID_HANDLE:
        return "invalid resource handle";
    case CUDA_ERROR_ILLEGAL_STATE:
        return "the operation cannot be performed in the present state";
    case CUDA_ERROR_NOT_SUPPORTED:
        return "operation not supported";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
        return "operation not permitted when stream is capturing";
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
        return "operation failed due to a previous error during capture";
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
        return "operation would result in a merge of separate capture sequences";
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
        return "capture was not ended in the same stream as it began";
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
        return "capturing stream has unjoined work";
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
        return "dependency created on uncaptured work in another stream";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        return "operation would make the legacy stream depend on a capturing blocking stream";
    case CUDA_ERROR_CAPTURED_EVENT:
        return "operation not permitted on an event last recorded in a capturing stream";
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
        return "attempt to terminate a thread-local capture sequence from another thread";
    default:
        return NULL;
    }
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    CUresult result = cuGetErrorName(error, text);
    if (result == CUDA_SUCCESS && text_of(error) != NULL)
        *text = text_of(error);
    return result;
}
