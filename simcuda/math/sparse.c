/* SPDX-License-Identifier: MIT */
/*
 * cuSPARSE's handles and descriptions. A handle takes no visible memory: with four handles in a
 * process, an H100 had as much in use as with one (bench/results/2026-11-27-h100/handles.txt).
 * The memory for the code of a function's kernels is assumed.
 */
#include "simcuda/math/sparse.h"

#include <cuda.h>
#include <stdlib.h>

#include "simcuda/math/library.h"

#define CODE_BYTES ((uint64_t)64 << 10)

typedef struct handle {
    void *stream;
    int pointer_mode;
} handle;

int cusparseCreate(handle **made);
int cusparseDestroy(handle *of);
int cusparseSetStream(handle *of, void *stream);
int cusparseGetStream(handle *of, void **stream);
int cusparseSetPointerMode(handle *of, int mode);
int cusparseGetPointerMode(handle *of, int *mode);
int cusparseGetVersion(handle *of, int *version);
const char *cusparseGetErrorName(int status);
const char *cusparseGetErrorString(int status);

int cusparseCreate(handle **made)
{
    if (made == NULL)
        return RVLI_MATH_INVALID_VALUE;
    rvli_math_memory none = {0};
    if (rvli_math_take(&none, NULL, 0) != CUDA_SUCCESS)
        return RVLI_MATH_NOT_INITIALIZED;
    *made = calloc(1, sizeof **made);
    return *made != NULL ? RVLI_MATH_SUCCESS : RVLI_MATH_ALLOC_FAILED;
}

int cusparseDestroy(handle *of)
{
    free(of);
    return of != NULL ? RVLI_MATH_SUCCESS : RVLI_MATH_NOT_INITIALIZED;
}

RVLI_MATH_KEPT(cusparseSetStream, cusparseGetStream, void *, stream)
RVLI_MATH_KEPT(cusparseSetPointerMode, cusparseGetPointerMode, int, pointer_mode)

int cusparseGetVersion(handle *of, int *version)
{
    if (of == NULL)
        return RVLI_MATH_NOT_INITIALIZED;
    *version = RVLI_SPARSE_VERSION;
    return RVLI_MATH_SUCCESS;
}

const char *cusparseGetErrorName(int status)
{
    return status == RVLI_MATH_SUCCESS            ? "CUSPARSE_STATUS_SUCCESS"
           : status == RVLI_MATH_NOT_INITIALIZED  ? "CUSPARSE_STATUS_NOT_INITIALIZED"
           : status == RVLI_MATH_ALLOC_FAILED     ? "CUSPARSE_STATUS_ALLOC_FAILED"
           : status == RVLI_MATH_EXECUTION_FAILED ? "CUSPARSE_STATUS_EXECUTION_FAILED"
           : status == RVLI_SPARSE_NOT_SUPPORTED  ? "CUSPARSE_STATUS_NOT_SUPPORTED"
                                                  : "CUSPARSE_STATUS_INVALID_VALUE";
}

const char *cusparseGetErrorString(int status)
{
    return cusparseGetErrorName(status);
}

int rvli_sparse_compute(const char *name, void *with)
{
    const handle *of = with;
    if (of == NULL)
        return RVLI_MATH_NOT_INITIALIZED;
    return rvli_math_launch(name, CODE_BYTES, of->stream) == CUDA_SUCCESS
               ? RVLI_MATH_SUCCESS
               : RVLI_MATH_EXECUTION_FAILED;
}

uint64_t rvli_sparse_value_bytes(int value_type)
{
    static const unsigned char bytes[] = {4, 8, 2, 1, 8, 16, 4};      /* CUDA_R_32F to CUDA_C_16F */
    return value_type == 14                                       ? 2 /* CUDA_R_16BF */
           : value_type >= 0 && (size_t)value_type < sizeof bytes ? bytes[value_type]
                                                                  : 4;
}

/* ---- Descriptions ---- */

static int keep(rvli_sparse_matrix **made, int64_t rows, int64_t columns, int64_t entries,
                int value_type)
{
    if (made == NULL || rows < 0 || columns < 0 || entries < 0)
        return RVLI_MATH_INVALID_VALUE;
    *made = malloc(sizeof **made);
    if (*made == NULL)
        return RVLI_MATH_ALLOC_FAILED;
    **made = (rvli_sparse_matrix){rows, columns, entries, value_type};
    return RVLI_MATH_SUCCESS;
}

#define MADE(name, arguments, rows, columns, entries)                                              \
    int cusparseCreate##name arguments;                                                            \
    int cusparseCreateConst##name arguments;                                                       \
    int cusparseCreate##name arguments                                                             \
    {                                                                                              \
        return keep(made, rows, columns, entries, value_type);                                     \
    }                                                                                              \
    int cusparseCreateConst##name arguments                                                        \
    {                                                                                              \
        return keep(made, rows, columns, entries, value_type);                                     \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter" /* a matrix's content is not read */
MADE(Csr,
     (rvli_sparse_matrix * *made, int64_t m, int64_t n, int64_t nnz, void *offsets, void *indices,
      void *values, int offset_type, int index_type, int base, int value_type),
     m, n, nnz)
MADE(Csc,
     (rvli_sparse_matrix * *made, int64_t m, int64_t n, int64_t nnz, void *offsets, void *indices,
      void *values, int offset_type, int index_type, int base, int value_type),
     m, n, nnz)
MADE(Coo,
     (rvli_sparse_matrix * *made, int64_t m, int64_t n, int64_t nnz, void *row_indices,
      void *indices, void *values, int index_type, int base, int value_type),
     m, n, nnz)
MADE(Bsr,
     (rvli_sparse_matrix * *made, int64_t m, int64_t n, int64_t nnz, int64_t block_rows,
      int64_t block_columns, void *offsets, void *indices, void *values, int offset_type,
      int index_type, int base, int value_type, int order),
     m *block_rows, n *block_columns, nnz *block_rows *block_columns)
MADE(DnMat,
     (rvli_sparse_matrix * *made, int64_t m, int64_t n, int64_t leading, void *values,
      int value_type, int order),
     m, n, 0)
MADE(DnVec, (rvli_sparse_matrix * *made, int64_t n, void *values, int value_type), n, 1, 0)

RVLI_MATH_GONE(cusparseDestroySpMat)
RVLI_MATH_GONE(cusparseDestroyDnMat)
RVLI_MATH_GONE(cusparseDestroyDnVec)

int cusparseSpMatGetSize(const rvli_sparse_matrix *of, int64_t *rows, int64_t *columns,
                         int64_t *entries);
int cusparseSpMatGetSize(const rvli_sparse_matrix *of, int64_t *rows, int64_t *columns,
                         int64_t *entries)
{
    if (of == NULL)
        return RVLI_MATH_INVALID_VALUE;
    *rows = of->rows;
    *columns = of->columns;
    *entries = of->entries;
    return RVLI_MATH_SUCCESS;
}

/* Data that an algorithm keeps between its calls, and the older descriptions. */
RVLI_MATH_NOTES(cusparseCreateMatDescr, cusparseDestroyMatDescr)
RVLI_MATH_NOTES(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info)
RVLI_MATH_NOTES(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info)
RVLI_MATH_NOTES(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr)
RVLI_MATH_NOTES(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr)
RVLI_MATH_NOTES(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr)
