/* SPDX-License-Identifier: MIT */
/* What the files of the simulated cuSPARSE share: results are those of NVIDIA's documentation. */
#ifndef RVL_SIMCUDA_MATH_SPARSE_H
#define RVL_SIMCUDA_MATH_SPARSE_H

#include <stdint.h>

#include "simcuda/math/library.h"

#define RVLI_SPARSE_NOT_SUPPORTED 10

/* A sparse or dense matrix, or a vector, as far as it is read. */
typedef struct rvli_sparse_matrix {
    int64_t rows, columns, entries;
    int value_type; /* cudaDataType */
} rvli_sparse_matrix;

/* Of a cudaDataType. */
uint64_t rvli_sparse_value_bytes(int value_type);

/* A call that computes, by its function's name: a kernel is launched on the handle's stream. */
int rvli_sparse_compute(const char *name, void *handle);

#endif
