/* SPDX-License-Identifier: MIT */
/*
 * Buffers of cuSPARSE, in bytes, by rules: cuSPARSE 12.6 on an H100, as PyTorch 2.11 asked for them
 * in some 700 calls (bench/gpu/driver/workspaces.py, bench/results/2026-11-27-h100/torch_math.csv).
 * docs/fidelity/libraries.md says where a rule is off.
 */
#ifndef RVL_SIMCUDA_MATH_SPARSE_SIZE_H
#define RVL_SIMCUDA_MATH_SPARSE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* A sparse matrix times a dense one: the algorithm that balances entries (CUSPARSE_SPMM_CSR_ALG2),
 * and others. */
uint64_t rvli_sparse_product_bytes(bool balanced, uint64_t entries);
uint64_t rvli_sparse_vector_bytes(uint64_t entries);

/* Triangular solves. The columns are those of the right side. */
uint64_t rvli_sparse_solve_bytes(uint64_t rows, uint64_t entries, uint64_t columns,
                                 uint64_t value_bytes);
uint64_t rvli_sparse_block_solve_bytes(uint64_t block_rows, bool vector);

/* The product of two sparse matrices: how many products of two numbers it has, both buffers, and
 * the result. */
uint64_t rvli_sparse_products(uint64_t entries_a, uint64_t entries_b, uint64_t inner);
uint64_t rvli_sparse_estimate_bytes(uint64_t entries_a);
uint64_t rvli_sparse_compute_bytes(uint64_t products, uint64_t value_bytes);

/* Entries of a result, of which the places are not known: they are taken to be drawn evenly. */
uint64_t rvli_sparse_entries(uint64_t drawn, uint64_t rows, uint64_t columns);

uint64_t rvli_sparse_sort_bytes(uint64_t entries);

#endif
