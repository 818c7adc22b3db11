/* SPDX-License-Identifier: MIT */
/*
 * The layout of cuBLASLt's types, as NVIDIA documents them ("cuBLAS", "Using the cuBLASLt API",
 * CUDA 12 and 13). If its header is available, tests/simcuda/blas_layout.c compares the two. An
 * enumeration is an int in C.
 */
#ifndef RVL_SIMCUDA_BLAS_LT_TYPES_H
#define RVL_SIMCUDA_BLAS_LT_TYPES_H

#include <stddef.h>
#include <stdint.h>

#define RVLI_BLAS_SUCCESS 0
#define RVLI_BLAS_ALLOC_FAILED 3
#define RVLI_BLAS_INVALID_VALUE 7
#define RVLI_BLAS_EXECUTION_FAILED 13
#define RVLI_BLAS_NOT_SUPPORTED 15

/* Descriptions are opaque. Callers may have them on the stack. */
typedef struct rvli_lt_words8 {
    uint64_t data[8];
} rvli_lt_words8;
typedef struct rvli_lt_words32 {
    uint64_t data[32];
} rvli_lt_words32;
typedef rvli_lt_words8 rvli_lt_algorithm;
typedef rvli_lt_words8 rvli_lt_layout;
typedef rvli_lt_words8 rvli_lt_preference;
typedef rvli_lt_words32 rvli_lt_product;
typedef struct rvli_lt_handle rvli_lt_handle;

/* An algorithm, as a search returns it. */
typedef struct rvli_lt_found {
    rvli_lt_algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} rvli_lt_found;

#endif
