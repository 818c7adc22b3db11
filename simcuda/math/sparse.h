/* SPDX-License-Identifier: MIT */
/* Declarations that the files of the simulated cuSPARSE share. Results are those of NVIDIA's
 * documentation. */
#ifndef RVL_SIMCUDA_MATH_SPARSE_H
#define RVL_SIMCUDA_MATH_SPARSE_H

#include <stdint.h>

#include "simcuda/math/library.h"

#define RVLI_SPARSE_NOT_SUPPORTED 10

/* A sparse or dense matrix, or a vector: the fields that are used. */
typedef struct rvli_sparse_matrix {
    int64_t rows, columns, entries;
    int value_type; /* cudaDataType */
} rvli_sparse_matrix;

/* The bytes of a cudaDataType. */
uint64_t rvli_sparse_value_bytes(int value_type);

/* Launches a kernel on the handle's stream, for a call that computes. name: the function. */
int rvli_sparse_compute(const char *name, void *handle);

#endif
