/* SPDX-License-Identifier: MIT */
/*
 * Attention by plain operations in bf16, for families that scaled_dot_product_attention cannot do:
 * each head has a sink, a score that belongs to no token (transformers' eager_attention_forward of
 * gpt_oss).
 *
 * Keys and values are copied for each head of q. All scores are there several times for a moment;
 * their softmax stays, in a forward pass that keeps nothing until the MLP has run.
 */
#include "predict/llm/step/training.h"

#define INDEX_BYTES UINT64_C(8)

static uint64_t q_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_Q];
}

static uint64_t kv_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_KV];
}

/* Scores of all rows, each with so many beside those of tokens. */
static uint64_t scores(const rvli_training *t, uint64_t sinks)
{
    return RVLI_HALF * t->tokens * t->model->heads * (t->options->seq_len + sinks);
}

static bool is_grouped(const rvli_training *t)
{
    return t->model->kv_heads != t->model->heads;
}

void rvli_eager_forward(rvli_training *t, rvli_layer *layer, bool kept)
{
    layer->wide_k = rvli_activation(t, is_grouped(t) ? q_bytes(t) : 0);
    layer->wide_v = rvli_activation(t, is_grouped(t) ? q_bytes(t) : 0);
    rvli_block products = rvli_activation(t, scores(t, 0));
    rvli_block scaled = rvli_next(t, scores(t, 0), &products);
    rvli_block masked = rvli_next(t, scores(t, 0), &scaled);
    rvli_block with_sinks = rvli_activation(t, scores(t, 1));
    layer->largest = rvli_activation(t, INDEX_BYTES * t->tokens * t->model->heads);
    rvli_block lowered = rvli_next(t, scores(t, 1), &with_sinks);
    rvli_leave(t, &layer->largest, kept);
    layer->softmax = rvli_next(t, scores(t, 1), &masked);
    rvli_block by_heads = rvli_activation(t, q_bytes(t));
    layer->attended = rvli_next(t, q_bytes(t), &by_heads);
    rvli_release(t, &lowered);
    rvli_leave(t, &layer->wide_k, kept);
    rvli_leave(t, &layer->wide_v, kept);
}

/* What the caller still has until it returns. */
void rvli_eager_done(rvli_training *t, rvli_layer *layer, bool kept)
{
    if (!kept)
        rvli_release(t, &layer->attended);
    if (!kept)
        rvli_release(t, &layer->q);
    if (!kept || is_grouped(t)) {
        rvli_release(t, &layer->k);
        rvli_release(t, &layer->v);
    }
}

/* From the gradient of what the softmax gave to that of the products. */
static rvli_block scores_backward(rvli_training *t, rvli_layer *layer, rvli_block *of_weights)
{
    rvli_block of_softmax = rvli_next(t, scores(t, 1), of_weights);
    rvli_block of_lowered = rvli_activation(t, scores(t, 1));
    rvli_block passing = rvli_activation(t, scores(t, 1));
    rvli_release(t, &passing);
    rvli_release(t, &of_softmax);
    rvli_release(t, &layer->softmax);
    for (int i = 0; i < 2; i++) { /* through the largest of each row, and to where it is */
        passing = rvli_activation(t, scores(t, 1));
        rvli_release(t, &passing);
    }
    rvli_release(t, &layer->largest);
    return rvli_next(t, scores(t, 0), &of_lowered);
}

void rvli_eager_backward(rvli_training *t, rvli_layer *layer, rvli_block *of_attended,
                         rvli_attention_gradients *of)
{
    rvli_release(t, &layer->attended);
    rvli_block of_wide_v = rvli_activation(t, q_bytes(t));
    rvli_block of_weights = rvli_next(t, scores(t, 0), of_attended);
    rvli_release(t, &layer->wide_v);
    rvli_block of_products = scores_backward(t, layer, &of_weights);
    of->q = rvli_activation(t, q_bytes(t));
    rvli_block of_wide_k = rvli_next(t, q_bytes(t), &of_products);
    rvli_release(t, &layer->wide_k);
    rvli_release(t, &layer->q);
    rvli_release(t, &layer->k);
    rvli_release(t, &layer->v);
    of->v = rvli_next(t, kv_bytes(t), &of_wide_v);
    of->k = rvli_next(t, kv_bytes(t), &of_wide_k);
    of->v_by_heads = is_grouped(t);
}
