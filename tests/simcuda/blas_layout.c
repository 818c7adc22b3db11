/* SPDX-License-Identifier: MIT */
/* Compares simcuda/blas's types of cuBLASLt with NVIDIA's header. */
#include <cublasLt.h>
#include <stddef.h>

#include "simcuda/blas/lt_types.h"

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)

SAME(sizeof(rvli_lt_algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(rvli_lt_layout), sizeof(cublasLtMatrixLayoutOpaque_t));
SAME(sizeof(rvli_lt_preference), sizeof(cublasLtMatmulPreferenceOpaque_t));
SAME(sizeof(rvli_lt_product), sizeof(cublasLtMatmulDescOpaque_t));
SAME(sizeof(rvli_lt_found), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(rvli_lt_found, workspace_bytes),
     offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(rvli_lt_found, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(offsetof(rvli_lt_found, waves), offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
SAME(RVLI_BLAS_SUCCESS, CUBLAS_STATUS_SUCCESS);
SAME(RVLI_BLAS_ALLOC_FAILED, CUBLAS_STATUS_ALLOC_FAILED);
SAME(RVLI_BLAS_INVALID_VALUE, CUBLAS_STATUS_INVALID_VALUE);
SAME(RVLI_BLAS_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(sizeof(int), sizeof(cublasStatus_t));
