/* SPDX-License-Identifier: MIT */
/* Declarations that the files of the simulated cuBLAS share. */
#ifndef RVL_SIMCUDA_BLAS_BLAS_H
#define RVL_SIMCUDA_BLAS_BLAS_H

#include "simcuda/blas/lt_types.h" /* the results */
#include "simcuda/blas/product.h"

/*
 * Launches a kernel for a call with a handle. product: what it computes; NULL: something else.
 * CUBLAS_STATUS_EXECUTION_FAILED: nothing was launched.
 */
int rvli_blas_compute(void *handle, const rvli_product *product);

#endif
