/* SPDX-License-Identifier: MIT */
/*
 * scaled_dot_product_attention in PyTorch's four ways (aten/src/ATen/native/transformers).
 *
 * cuDNN, flash attention and the memory-efficient kernels keep q, k, v, their output, and a sum for
 * each row. They differ in the workspace of the backward pass. cuDNN: a copy in fp32 for the sum of
 * q's gradient, one for each part of the sequence that runs at once (two), and the sums a second
 * time. Flash: the copy once, and gradients of k and v for every head of q. Efficient: the copy in
 * blocks of rows, each with a lock.
 *
 * A window shorter than the sequence is a mask, and each layer keeps a copy of it in bf16. No
 * kernel takes both a mask and shared heads, so k and v are copied for each head of q. cuDNN then
 * works in one copy of q.
 *
 * math is plain operations in fp32, and a text (math_attention in graph/texts/decoder.txt).
 */
#include "predict/llm/step/training.h"

#define SEEDS_BYTES 256
#define FLASH_ROWS 128
#define FLASH_WIDTH_MAX 256
#define EFFICIENT_SUM_ROWS 32
#define EFFICIENT_ROWS 128
#define EFFICIENT_LOCK_BYTES 16

static uint64_t q_elements(const rvli_training *t)
{
    return t->tokens * rvli_dim_here(t, RVLI_DIM_Q);
}

/* Rows of all heads, with each sequence rounded up. */
static uint64_t rows_by(const rvli_training *t, uint64_t step)
{
    return t->options->micro_batch * rvli_round_up(t->options->seq_len, step) * t->model->heads;
}

/* Parts of sequences are attended to without a mask. */
static bool is_masked(const rvli_training *t)
{
    return !rvli_is_ring(t) && rvli_layer_is(t->model, t->at, RVLI_LAYER_WINDOW) &&
           t->options->seq_len >= t->model->window;
}

/* Heads too wide for the other kernels: the efficient kernels run. These do not share keys and
 * values. */
static bool is_wide_head(const rvli_training *t)
{
    return rvli_dim_here(t, RVLI_DIM_HEAD) > FLASH_WIDTH_MAX;
}

static bool is_efficient(const rvli_training *t)
{
    return t->options->attention == RVL_MODEL_ATTENTION_EFFICIENT || is_wide_head(t);
}

static uint64_t pairs(const rvli_training *t)
{
    return (uint64_t)t->options->seq_len * t->options->seq_len;
}

static uint64_t sums_bytes(const rvli_training *t)
{
    return RVLI_FULL * rows_by(t, is_efficient(t) ? EFFICIENT_SUM_ROWS : 1);
}

/* ---- Kernels that do not keep scores ---- */

/* torch/aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, mha_bwd */
static void flash_works(rvli_training *t, uint32_t part)
{
    uint64_t seq_len = t->options->seq_len / part;
    uint64_t head = rvli_dim_here(t, RVLI_DIM_HEAD);
    uint64_t width = head <= 192 ? rvli_round_up(head, 32) : 256;
    uint64_t rows = t->options->micro_batch * rvli_round_up(seq_len, FLASH_ROWS) * t->model->heads;
    uint64_t repeated = rvli_shares_heads(t) ? RVLI_HALF * q_elements(t) : 0;
    rvli_block products = rvli_activation(t, RVLI_FULL * rows);
    rvli_block of_q = rvli_activation(t, RVLI_FULL * rows * width);
    rvli_block of_k = rvli_activation(t, repeated);
    rvli_block of_v = rvli_activation(t, repeated);
    rvli_release(t, &of_v);
    rvli_release(t, &of_k);
    rvli_release(t, &of_q);
    rvli_release(t, &products);
}

/* torch/aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_backward.h */
static void efficient_works(rvli_training *t)
{
    uint64_t rows = rows_by(t, EFFICIENT_ROWS);
    rvli_block products = rvli_activation(t, RVLI_FULL * rows_by(t, 1));
    rvli_block of_q = rvli_activation(t, RVLI_FULL * rows * rvli_dim_here(t, RVLI_DIM_HEAD) +
                                             rows / EFFICIENT_ROWS * EFFICIENT_LOCK_BYTES);
    rvli_release(t, &products);
    rvli_release(t, &of_q);
}

static void cudnn_works(rvli_training *t, uint32_t part)
{
    bool shared = rvli_shares_heads(t) && !is_masked(t);
    uint64_t of_q = RVLI_FULL * q_elements(t) / part;
    uint64_t of_kv = shared ? 2 * RVLI_HALF * q_elements(t) : 0; /* for every head of q */
    rvli_block work = rvli_activation(t, of_q + of_kv + sums_bytes(t) / part + SEEDS_BYTES);
    rvli_release(t, &work);
}

bool rvli_sdpa_repeats(const rvli_training *t)
{
    return is_masked(t) || is_wide_head(t);
}

uint64_t rvli_sdpa_mask_bytes(const rvli_training *t)
{
    return is_masked(t) ? RVLI_HALF * pairs(t) : 0;
}

uint64_t rvli_sdpa_sums_bytes(const rvli_training *t)
{
    return sums_bytes(t);
}

void rvli_sdpa_forward_works(rvli_training *t, uint32_t part)
{
    if (is_wide_head(t))
        rvli_wide_forward_works(t, part);
}

void rvli_sdpa_backward_works(rvli_training *t, uint32_t part)
{
    if (is_wide_head(t))
        rvli_wide_backward_works(t, part);
    else if (is_efficient(t))
        efficient_works(t);
    else if (t->options->attention == RVL_MODEL_ATTENTION_FLASH)
        flash_works(t, part);
    else
        cudnn_works(t, part);
}
