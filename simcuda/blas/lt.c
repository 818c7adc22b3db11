/* SPDX-License-Identifier: MIT */
/*
 * cuBLASLt: the program describes a product, asks for an algorithm, and runs the product, which
 * launches a kernel (product.h). The only algorithm needs no workspace and does not split
 * products. What PyTorch sets aside for a workspace comes from its own allocator, regardless of
 * this.
 */
#include "simcuda/blas/lt.h"

#include <stdlib.h>
#include <string.h>

#include "simcuda/blas/product.h"

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

/* ---- Descriptions. They keep the attributes that select a product's kernel ---- */

#define TRANSPOSED_A 3 /* CUBLASLT_MATMUL_DESC_TRANSA; the next is B's */
#define TRANSPOSED_B 4
#define REAL_32 0 /* CUDA_R_32F; here and below, values of cudaDataType */
#define REAL_64 1
#define COMPLEX_32 4
#define COMPLEX_64 5
#define LAYOUT_TYPE 0  /* CUBLASLT_MATRIX_LAYOUT_TYPE */
#define LAYOUT_COUNT 5 /* CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT */

typedef struct layout {
    uint64_t rows, columns;
    uint32_t type;
    uint32_t count;
} layout;
_Static_assert(sizeof(layout) <= sizeof(rvli_lt_layout), "a layout has room for it");

typedef struct operation {
    uint32_t a_transposed, b_transposed;
} operation;
_Static_assert(sizeof(operation) <= sizeof(rvli_lt_product), "so has an operation");

/* Where an attribute is kept. NULL: it is not used. */
static uint32_t *of_operation(rvli_lt_product *described, int attribute)
{
    operation *of = (operation *)described;
    return attribute == TRANSPOSED_A   ? &of->a_transposed
           : attribute == TRANSPOSED_B ? &of->b_transposed
                                       : NULL;
}

static uint32_t *of_layout(rvli_lt_layout *described, int attribute)
{
    layout *of = (layout *)described;
    return attribute == LAYOUT_TYPE ? &of->type : attribute == LAYOUT_COUNT ? &of->count : NULL;
}

static uint32_t *of_preference(rvli_lt_preference *described, int attribute)
{
    (void)described;
    (void)attribute;
    return NULL;
}

#define DESCRIBED(type, create_arguments, prefix, place_of)                                        \
    int prefix##Create create_arguments                                                            \
    {                                                                                              \
        *made = calloc(1, sizeof **made);                                                          \
        return *made != NULL ? RVLI_BLAS_SUCCESS : RVLI_BLAS_ALLOC_FAILED;                         \
    }                                                                                              \
    DESCRIBED_FURTHER(type, prefix, place_of)

#define DESCRIBED_FURTHER(type, prefix, place_of)                                                  \
    int prefix##Destroy(type *described)                                                           \
    {                                                                                              \
        free(described);                                                                           \
        return RVLI_BLAS_SUCCESS;                                                                  \
    }                                                                                              \
    int prefix##SetAttribute(type *described, int attribute, const void *value, size_t size_bytes) \
    {                                                                                              \
        if (described == NULL)                                                                     \
            return RVLI_BLAS_INVALID_VALUE;                                                        \
        uint32_t *place = place_of(described, attribute);                                          \
        if (place != NULL && value != NULL && size_bytes == sizeof *place)                         \
            memcpy(place, value, sizeof *place);                                                   \
        return RVLI_BLAS_SUCCESS;                                                                  \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter" /* the other arguments are not used */
DESCRIBED(rvli_lt_product, (rvli_lt_product * *made, int compute, int scale), cublasLtMatmulDesc,
          of_operation)
DESCRIBED(rvli_lt_preference, (rvli_lt_preference * *made), cublasLtMatmulPreference, of_preference)
DESCRIBED_FURTHER(rvli_lt_layout, cublasLtMatrixLayout, of_layout)

int cublasLtMatrixLayoutCreate(rvli_lt_layout **made, int type, uint64_t rows, uint64_t columns,
                               int64_t leading)
{
    rvli_lt_layout *created = calloc(1, sizeof *created);
    if (created == NULL)
        return RVLI_BLAS_ALLOC_FAILED;
    *(layout *)created = (layout){rows, columns, (uint32_t)type, 1};
    *made = created;
    return RVLI_BLAS_SUCCESS;
}

/* ---- Products ---- */

int cublasLtMatmulAlgoGetHeuristic(rvli_lt_handle *handle, rvli_lt_product *described,
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

/* The first factor's type decides. */
static rvli_precision precision_of(uint32_t type)
{
    return type == REAL_64 || type == COMPLEX_64   ? RVLI_PRECISION_64
           : type == REAL_32 || type == COMPLEX_32 ? RVLI_PRECISION_32
                                                   : RVLI_PRECISION_16;
}

static rvli_product product_of(const operation *of, const layout *a, const layout *d)
{
    return (rvli_product){.precision = precision_of(a->type),
                          .a_transposed = of->a_transposed != 0,
                          .b_transposed = of->b_transposed != 0,
                          .batched = d->count > 1,
                          .m = d->rows,
                          .n = d->columns,
                          .k = of->a_transposed != 0 ? a->rows : a->columns};
}

int cublasLtMatmul(rvli_lt_handle *handle, rvli_lt_product *described, const void *alpha,
                   const void *a, rvli_lt_layout *a_layout, const void *b, rvli_lt_layout *b_layout,
                   const void *beta, const void *c, rvli_lt_layout *c_layout, void *d,
                   rvli_lt_layout *d_layout, const rvli_lt_algorithm *algorithm, void *workspace,
                   size_t workspace_bytes, void *stream)
{
    if (described == NULL || a_layout == NULL || d_layout == NULL)
        return RVLI_BLAS_INVALID_VALUE;
    const rvli_product product = product_of((const operation *)described, (const layout *)a_layout,
                                            (const layout *)d_layout);
    return rvli_product_launch(&product, stream) == CUDA_SUCCESS ? RVLI_BLAS_SUCCESS
                                                                 : RVLI_BLAS_EXECUTION_FAILED;
}
