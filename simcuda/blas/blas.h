/* SPDX-License-Identifier: MIT */
/* What the files of the simulated cuBLAS share. */
#ifndef RVL_SIMCUDA_BLAS_BLAS_H
#define RVL_SIMCUDA_BLAS_BLAS_H

#include "simcuda/blas/lt_types.h" /* the results */
#include "simcuda/blas/product.h"

/*
 * A call with a handle that computes a product, or something else (NULL).
 * CUBLAS_STATUS_EXECUTION_FAILED: nothing was launched.
 */
int rvli_blas_compute(void *handle, const rvli_product *product);

#endif
