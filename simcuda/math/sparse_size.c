/* SPDX-License-Identifier: MIT */
#include "simcuda/math/sparse_size.h"

#include <math.h>

#include "simcuda/math/numbers.h"

uint64_t rvli_sparse_product_bytes(bool balanced, uint64_t entries)
{
    return 7 + (balanced ? 8 * rvli_parts(entries, 24) : 4 * rvli_parts(entries, 256));
}

/* 23 except for large vectors. */
uint64_t rvli_sparse_vector_bytes(uint64_t entries)
{
    return 23 + 8 * (entries / 1024);
}

/* Measured for diagonal matrices only. The division between entries and rows is assumed. */
uint64_t rvli_sparse_solve_bytes(uint64_t rows, uint64_t entries, uint64_t columns,
                                 uint64_t value_bytes)
{
    const uint64_t levels = 8 * rvli_max(rows, 127) + (columns >= 32 ? 8 * rows : 0);
    return 258 + levels + 44 * rows + entries * (16 + 2 * value_bytes) +
           rows * columns * value_bytes;
}

uint64_t rvli_sparse_block_solve_bytes(uint64_t block_rows, bool vector)
{
    return 3 * rvli_up(4 * block_rows, 256) + (vector ? 768 : 512);
}

uint64_t rvli_sparse_products(uint64_t entries_a, uint64_t entries_b, uint64_t inner)
{
    return inner == 0 ? 0 : (uint64_t)((double)entries_a * (double)entries_b / (double)inner + .5);
}

uint64_t rvli_sparse_estimate_bytes(uint64_t entries_a)
{
    return 12 * entries_a + 1079;
}

/* Indices and values, twice. */
uint64_t rvli_sparse_compute_bytes(uint64_t products, uint64_t value_bytes)
{
    return 2 * (8 + value_bytes) * products + 5159;
}

uint64_t rvli_sparse_entries(uint64_t drawn, uint64_t rows, uint64_t columns)
{
    const double places = (double)rows * (double)columns;
    if (places <= 0)
        return 0;
    const double hit = -places * expm1(-(double)drawn / places);
    return rvli_min((uint64_t)(hit + .5), rows * columns);
}

/* Not measured on a card. Assumes keys and positions, twice. */
uint64_t rvli_sparse_sort_bytes(uint64_t entries)
{
    return rvli_up(16 * entries, 256) + 1024;
}
