/* SPDX-License-Identifier: MIT */
/* The simulated functions of cuBLASLt. Arguments and results are those of NVIDIA's
 * documentation. */
#ifndef RVL_SIMCUDA_BLAS_LT_H
#define RVL_SIMCUDA_BLAS_LT_H

#include "simcuda/blas/lt_types.h"

int cublasLtCreate(rvli_lt_handle **handle);
int cublasLtDestroy(rvli_lt_handle *handle);
size_t cublasLtGetVersion(void);

int cublasLtMatmulDescCreate(rvli_lt_product **made, int compute, int scale);
int cublasLtMatmulDescDestroy(rvli_lt_product *described);
int cublasLtMatmulDescSetAttribute(rvli_lt_product *described, int attribute, const void *value,
                                   size_t size_bytes);
int cublasLtMatmulPreferenceCreate(rvli_lt_preference **made);
int cublasLtMatmulPreferenceDestroy(rvli_lt_preference *described);
int cublasLtMatmulPreferenceSetAttribute(rvli_lt_preference *described, int attribute,
                                         const void *value, size_t size_bytes);
int cublasLtMatrixLayoutCreate(rvli_lt_layout **made, int type, uint64_t rows, uint64_t columns,
                               int64_t leading);
int cublasLtMatrixLayoutDestroy(rvli_lt_layout *described);
int cublasLtMatrixLayoutSetAttribute(rvli_lt_layout *described, int attribute, const void *value,
                                     size_t size_bytes);

int cublasLtMatmulAlgoGetHeuristic(rvli_lt_handle *handle, rvli_lt_product *operation,
                                   rvli_lt_layout *a, rvli_lt_layout *b, rvli_lt_layout *c,
                                   rvli_lt_layout *d, rvli_lt_preference *preference, int wanted,
                                   rvli_lt_found results[], int *found);
int cublasLtMatmul(rvli_lt_handle *handle, rvli_lt_product *operation, const void *alpha,
                   const void *a, rvli_lt_layout *a_layout, const void *b, rvli_lt_layout *b_layout,
                   const void *beta, const void *c, rvli_lt_layout *c_layout, void *d,
                   rvli_lt_layout *d_layout, const rvli_lt_algorithm *algorithm, void *workspace,
                   size_t workspace_bytes, void *stream);

#endif
