/* SPDX-License-Identifier: MIT */
/*
 * cuBLASLt: a product is described, an algorithm asked for, and the product taken. The one
 * algorithm needs no workspace; what PyTorch sets aside for one comes from its own allocator,
 * whatever is answered.
 */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (handle == NULL)
        return CUBLAS_STATUS_INVALID_VALUE;
    *handle = malloc(1);
    return *handle != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

/* ---- Descriptions: of no content that anybody reads ---- */

#define DESCRIBED(type, attributes, create_arguments, prefix)                                      \
    cublasStatus_t prefix##Create create_arguments                                                 \
    {                                                                                              \
        *made = calloc(1, sizeof **made);                                                          \
        return *made != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;                 \
    }                                                                                              \
    cublasStatus_t prefix##Destroy(type described)                                                 \
    {                                                                                              \
        free(described);                                                                           \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    cublasStatus_t prefix##SetAttribute(type described, attributes attribute, const void *value,   \
                                        size_t size_bytes)                                         \
    {                                                                                              \
        (void)attribute;                                                                           \
        (void)value;                                                                               \
        (void)size_bytes;                                                                          \
        return described == NULL ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;            \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter" /* what is described is nobody's concern */
DESCRIBED(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
          (cublasLtMatmulDesc_t * made, cublasComputeType_t compute, cudaDataType_t scale),
          cublasLtMatmulDesc)
DESCRIBED(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
          (cublasLtMatmulPreference_t * made), cublasLtMatmulPreference)
DESCRIBED(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t,
          (cublasLtMatrixLayout_t * made, cudaDataType type, uint64_t rows, uint64_t columns,
           int64_t leading),
          cublasLtMatrixLayout)

/* ---- Products ---- */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    if (wanted < 1 || results == NULL || found == NULL)
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(&results[0], 0, sizeof results[0]);
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].wavesCount = 1.0f;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    return operation == NULL ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}
