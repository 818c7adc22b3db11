/* SPDX-License-Identifier: MIT */
/*
 * cuBLASLt: a product is described, an algorithm asked for, and the product taken. The one
 * algorithm needs no workspace; what PyTorch sets aside for one comes from its own allocator,
 * whatever is answered.
 */
#include "simcuda/blas/lt.h"

#include <stdlib.h>
#include <string.h>

int cublasLtCreate(rvli_lt_handle **handle)
{
    if (handle == NULL)
        return RVLI_BLAS_INVALID_VALUE;
    *handle = malloc(1);
    return *handle != NULL ? RVLI_BLAS_SUCCESS : RVLI_BLAS_ALLOC_FAILED;
}

int cublasLtDestroy(rvli_lt_handle *handle)
{
    free(handle);
    return RVLI_BLAS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return RVLI_BLAS_VERSION;
}

/* ---- Descriptions: of no content that anybody reads ---- */

#define DESCRIBED(type, create_arguments, prefix)                                                  \
    int prefix##Create create_arguments                                                            \
    {                                                                                              \
        *made = calloc(1, sizeof **made);                                                          \
        return *made != NULL ? RVLI_BLAS_SUCCESS : RVLI_BLAS_ALLOC_FAILED;                         \
    }                                                                                              \
    int prefix##Destroy(type *described)                                                           \
    {                                                                                              \
        free(described);                                                                           \
        return RVLI_BLAS_SUCCESS;                                                                  \
    }                                                                                              \
    int prefix##SetAttribute(type *described, int attribute, const void *value, size_t size_bytes) \
    {                                                                                              \
        (void)attribute;                                                                           \
        (void)value;                                                                               \
        (void)size_bytes;                                                                          \
        return described == NULL ? RVLI_BLAS_INVALID_VALUE : RVLI_BLAS_SUCCESS;                    \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter" /* what is described is nobody's concern */
DESCRIBED(rvli_lt_product, (rvli_lt_product * *made, int compute, int scale), cublasLtMatmulDesc)
DESCRIBED(rvli_lt_preference, (rvli_lt_preference * *made), cublasLtMatmulPreference)
DESCRIBED(rvli_lt_layout,
          (rvli_lt_layout * *made, int type, uint64_t rows, uint64_t columns, int64_t leading),
          cublasLtMatrixLayout)

/* ---- Products ---- */

int cublasLtMatmulAlgoGetHeuristic(rvli_lt_handle *handle, rvli_lt_product *operation,
                                   rvli_lt_layout *a, rvli_lt_layout *b, rvli_lt_layout *c,
                                   rvli_lt_layout *d, rvli_lt_preference *preference, int wanted,
                                   rvli_lt_found results[], int *found)
{
    if (wanted < 1 || results == NULL || found == NULL)
        return RVLI_BLAS_INVALID_VALUE;
    memset(&results[0], 0, sizeof results[0]);
    results[0].state = RVLI_BLAS_SUCCESS;
    results[0].waves = 1.0f;
    *found = 1;
    return RVLI_BLAS_SUCCESS;
}

int cublasLtMatmul(rvli_lt_handle *handle, rvli_lt_product *operation, const void *alpha,
                   const void *a, rvli_lt_layout *a_layout, const void *b, rvli_lt_layout *b_layout,
                   const void *beta, const void *c, rvli_lt_layout *c_layout, void *d,
                   rvli_lt_layout *d_layout, const rvli_lt_algorithm *algorithm, void *workspace,
                   size_t workspace_bytes, void *stream)
{
    return operation == NULL ? RVLI_BLAS_INVALID_VALUE : RVLI_BLAS_SUCCESS;
}
