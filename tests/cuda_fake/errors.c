/* SPDX-License-Identifier: MIT */
/* Names of results, as the header has them. */
#include "internal.h"

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    FAKE_ENTER(cuGetErrorName, FAKE_NEEDS_NOTHING);
    if (pStr == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)error) {
#define RESULT_NAME(result)                                                                        \
    case result:                                                                                   \
        *pStr = #result;                                                                           \
        return CUDA_SUCCESS;
#include "results.inc"
#undef RESULT_NAME
    default:
        *pStr = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}
