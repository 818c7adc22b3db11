/* SPDX-License-Identifier: MIT */
/*
 * Gradients of parameters.
 *
 * The gradient of a vector is a sum over rows. PyTorch's reduction splits it over blocks of
 * threads, which leave partial sums in memory (aten/src/ATen/native/cuda/Reduce.cuh,
 * setReduceConfig): a thread reads four columns, a block has 128 threads, and a multiprocessor runs
 * 2048.
 */
#include "predict/llm/step/training.h"

#define COLUMNS_OF_THREAD 4
#define THREADS_OF_BLOCK 128
#define THREADS_OF_ROW 32                              /* at most */
#define BLOCKS_AT_ONCE (132 * 2048 / THREADS_OF_BLOCK) /* an H100 or H200 */
#define VALUES_MIN 16
#define VALUES_MAX 256

static uint64_t divide_up(uint64_t value, uint64_t by)
{
    return (value + by - 1) / by;
}

static uint64_t power_of_two_below(uint64_t value)
{
    uint64_t power = 1;
    while (2 * power <= value)
        power *= 2;
    return power;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Bytes of partial sums. 0: one block of threads reads all rows. */
static uint64_t partial_sums(uint64_t rows, uint64_t width)
{
    uint64_t across = power_of_two_below(divide_up(width, COLUMNS_OF_THREAD));
    across = smaller(across, THREADS_OF_ROW);
    uint64_t columns = across * COLUMNS_OF_THREAD;
    uint64_t values = divide_up(rows, THREADS_OF_BLOCK / across);
    if (values < VALUES_MIN)
        return 0;
    uint64_t blocks = smaller(divide_up(BLOCKS_AT_ONCE, divide_up(width, columns)),
                              divide_up(values, VALUES_MIN));
    uint64_t least = divide_up(values, VALUES_MAX);
    blocks = blocks > least ? blocks : least;
    return blocks > 1 ? RVLI_FULL * width * blocks * columns : 0;
}

void rvli_rows_summed(rvli_training *t, uint64_t rows, uint64_t width)
{
    rvli_block sums = rvli_activation(t, partial_sums(rows, width));
    rvli_release(t, &sums);
}
