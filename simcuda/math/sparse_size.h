/* SPDX-License-Identifier: MIT */
/*
 * Buffers of cuSPARSE, in bytes, by rules that follow cuSPARSE 12.6 on an H100, as PyTorch 2.11
 * used it in about 700 calls (bench/gpu/driver/workspaces.py,
 * bench/results/2026-11-27-h100/torch_math.csv). docs/fidelity/libraries.md lists where a rule
 * is inexact.
 */
#ifndef RVL_SIMCUDA_MATH_SPARSE_SIZE_H
#define RVL_SIMCUDA_MATH_SPARSE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* A sparse matrix times a dense one. balanced: the algorithm that balances entries
 * (CUSPARSE_SPMM_CSR_ALG2). */
uint64_t rvli_sparse_product_bytes(bool balanced, uint64_t entries);
uint64_t rvli_sparse_vector_bytes(uint64_t entries);

/* Triangular solves. columns: of the right side. */
uint64_t rvli_sparse_solve_bytes(uint64_t rows, uint64_t entries, uint64_t columns,
                                 uint64_t value_bytes);
uint64_t rvli_sparse_block_solve_bytes(uint64_t block_rows, bool vector);

/* The product of two sparse matrices: the number of products of two entries, and both buffers. */
uint64_t rvli_sparse_products(uint64_t entries_a, uint64_t entries_b, uint64_t inner);
uint64_t rvli_sparse_estimate_bytes(uint64_t entries_a);
uint64_t rvli_sparse_compute_bytes(uint64_t products, uint64_t value_bytes);

/* The number of entries in a result of `drawn` entries at unknown, evenly distributed places. */
uint64_t rvli_sparse_entries(uint64_t drawn, uint64_t rows, uint64_t columns);

uint64_t rvli_sparse_sort_bytes(uint64_t entries);

#endif
