/* SPDX-License-Identifier: MIT */
/*
 * Memory-efficient attention with heads too wide for the other kernels (Gemma 4: 512). Its output
 * and gradients do not fit into registers (torch/include/ATen/native/transformers/cuda/
 * mem_eff_attention: kernel_forward.h, kNeedsOutputAccumulatorBuffer; kernel_backward.h,
 * workspace_size()).
 *
 * Keys are divided so that 200 blocks run (aten/src/ATen/native/transformers/cuda/
 * attention_backward.cu). Each part sums separate gradients.
 */
#include "predict/llm/step/training.h"

#define BLOCK_ROWS UINT64_C(64)
#define BLOCK_COLUMNS UINT64_C(128)
#define LOCK_BYTES UINT64_C(16)
#define BLOCKS_AT_ONCE UINT64_C(200)

static uint64_t blocks(uint64_t count, uint64_t size)
{
    return (count + size - 1) / size;
}

static uint64_t all_heads(const rvli_training *t)
{
    return (uint64_t)t->options->micro_batch * t->model->heads;
}

/* Number of parts that keys are divided into. */
static uint64_t parts(const rvli_training *t)
{
    uint64_t most = blocks(t->options->seq_len, BLOCK_ROWS), wanted = BLOCKS_AT_ONCE / all_heads(t);
    wanted = wanted > 0 ? wanted : 1;
    return wanted < most ? wanted : most;
}

void rvli_wide_forward_works(rvli_training *t, uint32_t part)
{
    uint64_t elements = t->tokens / part * rvli_dim_here(t, RVLI_DIM_Q);
    rvli_block output = rvli_activation(t, RVLI_FULL * elements);
    rvli_release(t, &output);
}

void rvli_wide_backward_works(rvli_training *t, uint32_t part)
{
    uint64_t head = rvli_dim_here(t, RVLI_DIM_HEAD), rows = t->options->seq_len / part;
    uint64_t of_keys = 2 * parts(t) * BLOCK_ROWS * rvli_round_up(head, BLOCK_ROWS) * RVLI_FULL;
    uint64_t of_q = blocks(rows, BLOCK_ROWS) * blocks(head, BLOCK_COLUMNS) *
                    (LOCK_BYTES + RVLI_FULL * BLOCK_ROWS * BLOCK_COLUMNS);
    rvli_block products = rvli_activation(t, RVLI_FULL * all_heads(t) * rows);
    rvli_block gradients = rvli_activation(t, all_heads(t) * (of_keys + of_q));
    rvli_release(t, &products);
    rvli_release(t, &gradients);
}
