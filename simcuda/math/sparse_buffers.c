/* SPDX-License-Identifier: MIT */
/*
 * The buffer sizes that cuSPARSE's functions return (sparse_size.h), and the number of entries
 * in a result. Arguments are those of NVIDIA's documentation. Only a kernel would know where the
 * entries of a result are, so their number is computed as for evenly distributed entries.
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "simcuda/math/sparse.h"
#include "simcuda/math/sparse_size.h"

#define BALANCED 6 /* CUSPARSE_SPMM_CSR_ALG2 */

typedef rvli_sparse_matrix matrix;

static int answer(void *handle, size_t *bytes, uint64_t size)
{
    if (handle == NULL)
        return RVLI_MATH_NOT_INITIALIZED;
    if (bytes == NULL)
        return RVLI_MATH_INVALID_VALUE;
    *bytes = (size_t)size;
    return RVLI_MATH_SUCCESS;
}

static uint64_t least_of(int64_t size)
{
    return size > 0 ? (uint64_t)size : 0;
}

#define DECLARED(name, arguments)                                                                  \
    int name arguments;                                                                            \
    int name arguments

#pragma GCC diagnostic ignored "-Wunused-parameter" /* most arguments are not read */

/* ---- Products ---- */

DECLARED(cusparseSpMM_bufferSize,
         (void *handle, int op_a, int op_b, const void *alpha, const matrix *a, const matrix *b,
          const void *beta, matrix *c, int compute, int algorithm, size_t *bytes))
{
    if (a == NULL || c == NULL)
        return RVLI_MATH_INVALID_VALUE;
    const uint64_t entries = (uint64_t)a->entries;
    if (c->columns == 1)
        return answer(handle, bytes, rvli_sparse_vector_bytes(entries));
    return answer(handle, bytes, rvli_sparse_product_bytes(algorithm == BALANCED, entries));
}

DECLARED(cusparseSpMV_bufferSize,
         (void *handle, int op_a, const void *alpha, const matrix *a, const matrix *x,
          const void *beta, matrix *y, int compute, int algorithm, size_t *bytes))
{
    if (a == NULL)
        return RVLI_MATH_INVALID_VALUE;
    return answer(handle, bytes, rvli_sparse_vector_bytes((uint64_t)a->entries));
}

/* One byte in 57 of 60 measurements. */
DECLARED(cusparseSDDMM_bufferSize,
         (void *handle, int op_a, int op_b, const void *alpha, const matrix *a, const matrix *b,
          const void *beta, matrix *c, int compute, int algorithm, size_t *bytes))
{
    return answer(handle, bytes, 1);
}

/* ---- Triangular solves ---- */

static int solve(void *handle, const matrix *a, uint64_t columns, size_t *bytes)
{
    if (a == NULL)
        return RVLI_MATH_INVALID_VALUE;
    return answer(handle, bytes,
                  rvli_sparse_solve_bytes((uint64_t)a->rows, (uint64_t)a->entries, columns,
                                          rvli_sparse_value_bytes(a->value_type)));
}

DECLARED(cusparseSpSV_bufferSize,
         (void *handle, int op_a, const void *alpha, const matrix *a, const matrix *x, matrix *y,
          int compute, int algorithm, void *notes, size_t *bytes))
{
    return solve(handle, a, 1, bytes);
}

DECLARED(cusparseSpSM_bufferSize,
         (void *handle, int op_a, int op_b, const void *alpha, const matrix *a, const matrix *b,
          matrix *c, int compute, int algorithm, void *notes, size_t *bytes))
{
    return c == NULL ? RVLI_MATH_INVALID_VALUE : solve(handle, a, (uint64_t)c->columns, bytes);
}

static int solve_blocks(void *handle, int block_rows, bool vector, int *bytes)
{
    const uint64_t size = rvli_sparse_block_solve_bytes(least_of(block_rows), vector);
    if (handle == NULL)
        return RVLI_MATH_NOT_INITIALIZED;
    if (bytes == NULL || size > INT_MAX)
        return RVLI_MATH_INVALID_VALUE;
    *bytes = (int)size;
    return RVLI_MATH_SUCCESS;
}

/* ---- Sums: the first call counts entries ---- */

static int64_t union_of(int m, int n, int entries_a, int entries_b)
{
    const double places = (double)m * (double)n;
    const double both = places > 0 ? (double)entries_a * (double)entries_b / places : 0;
    return (int64_t)((double)entries_a + (double)entries_b - both + .5);
}

DECLARED(cusparseXcsrgeam2Nnz,
         (void *handle, int m, int n, const void *of_a, int entries_a, const int *rows_a,
          const int *columns_a, const void *of_b, int entries_b, const int *rows_b,
          const int *columns_b, const void *of_c, int *rows_c, int *total, void *workspace))
{
    const int64_t entries = union_of(m, n, entries_a, entries_b);
    if (total == NULL || entries > INT_MAX)
        return RVLI_MATH_INVALID_VALUE;
    *total = (int)entries; /* a host pointer, as PyTorch passes */
    return rvli_sparse_compute("cusparseXcsrgeam2Nnz", handle);
}

#define SUM_BYTES 512

#define OF_TYPE(letter)                                                                            \
    DECLARED(cusparse##letter##csrgeam2_bufferSizeExt,                                             \
             (void *handle, int m, int n, const void *alpha, const void *of_a, int entries_a,      \
              const void *values_a, const int *rows_a, const int *columns_a, const void *beta,     \
              const void *of_b, int entries_b, const void *values_b, const int *rows_b,            \
              const int *columns_b, const void *of_c, const void *values_c, const int *rows_c,     \
              const int *columns_c, size_t *bytes))                                                \
    {                                                                                              \
        return answer(handle, bytes, SUM_BYTES);                                                   \
    }                                                                                              \
    DECLARED(cusparse##letter##bsrsv2_bufferSize,                                                  \
             (void *handle, int direction, int op, int block_rows, int blocks, const void *of_a,   \
              void *values, const int *rows, const int *columns, int block, void *notes,           \
              int *bytes))                                                                         \
    {                                                                                              \
        return solve_blocks(handle, block_rows, true, bytes);                                      \
    }                                                                                              \
    DECLARED(cusparse##letter##bsrsm2_bufferSize,                                                  \
             (void *handle, int direction, int op_a, int op_x, int block_rows, int n, int blocks,  \
              const void *of_a, void *values, const int *rows, const int *columns, int block,      \
              void *notes, int *bytes))                                                            \
    {                                                                                              \
        return solve_blocks(handle, block_rows, false, bytes);                                     \
    }

OF_TYPE(S)
OF_TYPE(D)
OF_TYPE(C)
OF_TYPE(Z)

/* Reports that every block can be inverted. */
#define NO_ZERO_PIVOT(name)                                                                        \
    DECLARED(name, (void *handle, void *notes, int *position))                                     \
    {                                                                                              \
        if (position != NULL)                                                                      \
            *position = -1;                                                                        \
        return handle != NULL ? RVLI_MATH_SUCCESS : RVLI_MATH_NOT_INITIALIZED;                     \
    }

NO_ZERO_PIVOT(cusparseXbsrsv2_zeroPivot)
NO_ZERO_PIVOT(cusparseXbsrsm2_zeroPivot)

/* ---- The product of two sparse matrices: each step first returns its buffer size, then
 * computes ---- */

static uint64_t products_of(const matrix *a, const matrix *b)
{
    return rvli_sparse_products((uint64_t)a->entries, (uint64_t)b->entries, (uint64_t)a->columns);
}

DECLARED(cusparseSpGEMM_workEstimation,
         (void *handle, int op_a, int op_b, const void *alpha, const matrix *a, const matrix *b,
          const void *beta, matrix *c, int compute, int algorithm, void *notes, size_t *bytes,
          void *buffer))
{
    if (a == NULL || b == NULL)
        return RVLI_MATH_INVALID_VALUE;
    if (buffer != NULL)
        return rvli_sparse_compute("cusparseSpGEMM_workEstimation", handle);
    return answer(handle, bytes, rvli_sparse_estimate_bytes((uint64_t)a->entries));
}

DECLARED(cusparseSpGEMM_compute,
         (void *handle, int op_a, int op_b, const void *alpha, const matrix *a, const matrix *b,
          const void *beta, matrix *c, int compute, int algorithm, void *notes, size_t *bytes,
          void *buffer))
{
    if (a == NULL || b == NULL || c == NULL)
        return RVLI_MATH_INVALID_VALUE;
    const uint64_t products = products_of(a, b);
    if (buffer == NULL)
        return answer(handle, bytes,
                      rvli_sparse_compute_bytes(products, rvli_sparse_value_bytes(a->value_type)));
    c->entries = (int64_t)rvli_sparse_entries(products, (uint64_t)c->rows, (uint64_t)c->columns);
    return rvli_sparse_compute("cusparseSpGEMM_compute", handle);
}

/* ---- Sorting ---- */

#define SORT(name, arguments)                                                                      \
    DECLARED(name, arguments)                                                                      \
    {                                                                                              \
        return answer(handle, bytes, rvli_sparse_sort_bytes(least_of(nnz)));                       \
    }

SORT(cusparseXcsrsort_bufferSizeExt,
     (void *handle, int m, int n, int nnz, const int *rows, const int *columns, size_t *bytes))
SORT(cusparseXcoosort_bufferSizeExt,
     (void *handle, int m, int n, int nnz, const int *rows, const int *columns, size_t *bytes))
