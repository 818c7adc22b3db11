/* SPDX-License-Identifier: MIT */
/*
 * Attention of a layer: one matrix for q, k and v, norms of q and k where a family has them, rotary
 * positions without a fused kernel, and attention by cuDNN (megatron/core/transformer/attention.py,
 * megatron/core/models/common/embeddings/rope_utils.py).
 *
 * Context parallelism is TransformerEngine's (AttnFuncWithCPAndKVP2P): keys and values of each rank
 * go round. What that takes for a moment is here; what it keeps is taken to be the same as without.
 */
#include "predict/llm/step/megatron/rank.h"

#define SEEDS_BYTES 256

static uint64_t q_bytes(const rvli_rank *r)
{
    return RVLI_HALF * r->tokens * r->q_width;
}

static uint64_t kv_bytes(const rvli_rank *r)
{
    return RVLI_HALF * r->tokens * r->kv_width;
}

static uint64_t qkv_bytes(const rvli_rank *r)
{
    return q_bytes(r) + 2 * kv_bytes(r);
}

static uint64_t sums_bytes(const rvli_rank *r)
{
    return RVLI_FULL * r->tokens * r->heads;
}

static bool has_norms(const rvli_rank *r)
{
    return (r->model->features & RVLI_QK_NORM) != 0;
}

/* ---- Forward ---- */

/* Cosines or sines of the rank's positions: in fp32, scaled, and then bf16. */
static rvli_block angles(rvli_rank *r)
{
    uint64_t elements =
        (uint64_t)r->options->seq_len / r->options->cp * r->model->dim[RVLI_DIM_HEAD];
    rvli_block plain = rvli_rank_take(r, RVLI_FULL * elements);
    rvli_block scaled = rvli_rank_take(r, RVLI_FULL * elements);
    rvli_rank_drop(r, &plain);
    rvli_block half = rvli_rank_take(r, RVLI_HALF * elements);
    rvli_rank_drop(r, &scaled);
    return half;
}

static void rotate(rvli_rank *r, uint64_t bytes, rvli_rotated *rotated, bool kept)
{
    rotated->cosine = angles(r);
    rotated->sine = angles(r);
    rvli_block by_cosine = rvli_rank_take(r, bytes);
    rvli_block negated = rvli_rank_take(r, bytes / 2);
    rvli_block turned = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &negated);
    rvli_block by_sine = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &turned);
    rvli_block sum = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &by_cosine);
    rvli_rank_drop(r, &by_sine);
    rotated->output = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &sum);
    if (!kept) {
        rvli_rank_drop(r, &rotated->cosine);
        rvli_rank_drop(r, &rotated->sine);
    }
}

/* A view has q of several groups in pieces, so it is copied. */
static bool copies_q(const rvli_rank *r)
{
    return r->groups > 1 && r->heads > r->groups;
}

/* Pairs of keys and values arrive from all ranks. What each step gives stays, and their sum is in
 * fp32 before it is what attention answers. */
static void go_round(rvli_rank *r)
{
    uint64_t ranks = r->options->cp;
    if (ranks == 1)
        return;
    rvli_block pairs = rvli_rank_take(r, ranks * 2 * kv_bytes(r));
    rvli_block parts = rvli_rank_take(r, ranks * q_bytes(r));
    rvli_block sum = rvli_rank_take(r, 2 * q_bytes(r));
    rvli_rank_drop(r, &pairs);
    rvli_rank_drop(r, &parts);
    rvli_rank_drop(r, &sum);
}

/* Pairs go round with their gradients: one in use, one that arrives. */
static void go_round_backward(rvli_rank *r)
{
    rvli_block pairs = rvli_rank_take(r, r->options->cp > 1 ? 8 * kv_bytes(r) : 0);
    rvli_rank_drop(r, &pairs);
}

static void attend(rvli_rank *r, rvli_rank_layer *layer, bool with_sums)
{
    go_round(r);
    layer->attended = rvli_rank_take(r, q_bytes(r));
    if (with_sums)
        layer->sums = rvli_rank_take(r, sums_bytes(r));
}

static void project(rvli_rank *r, rvli_rank_layer *layer)
{
    rvli_rank_gather(r);
    layer->qkv = rvli_rank_take(r, qkv_bytes(r));
    rvli_rank_workspace(r, false);
    if ((r->model->features & RVLI_QKV_BIAS) == 0)
        return;
    rvli_block biased = rvli_rank_take(r, qkv_bytes(r));
    rvli_rank_drop(r, &layer->qkv);
    layer->qkv = biased;
}

static rvli_block normed(rvli_rank *r, uint64_t bytes, uint64_t heads, rvli_block *scale, bool kept)
{
    rvli_block output = rvli_rank_take(r, bytes);
    *scale = rvli_rank_take(r, RVLI_FULL * r->tokens * heads);
    if (!kept)
        rvli_rank_drop(r, scale);
    return output;
}

rvli_block rvli_rank_attention(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    bool selective = (r->options->flags & RVL_MODEL_SELECTIVE) != 0;
    rvli_block q = NULL, k = NULL;
    project(r, layer);
    layer->q_copy = rvli_rank_take(r, copies_q(r) ? q_bytes(r) : 0);
    if (has_norms(r)) {
        q = normed(r, q_bytes(r), r->heads, &layer->q_scale, kept);
        rvli_block contiguous = rvli_rank_take(r, kv_bytes(r));
        k = normed(r, kv_bytes(r), r->groups, &layer->k_scale, kept);
        rvli_rank_drop(r, &contiguous);
    }
    rotate(r, q_bytes(r), &layer->q, kept);
    rotate(r, kv_bytes(r), &layer->k, kept);
    attend(r, layer, kept && !selective);
    rvli_block output = rvli_rank_rows(r);
    rvli_rank_drop(r, &k);
    rvli_rank_drop(r, &q);
    if (!kept || !has_norms(r))
        rvli_rank_drop(r, &layer->q_copy);
    if (!kept) {
        rvli_rank_drop(r, &layer->q.output);
        rvli_rank_drop(r, &layer->k.output);
        rvli_rank_drop(r, &layer->qkv);
        rvli_rank_drop(r, &layer->attended);
    }
    return output;
}

/* ---- Backward ---- */

/* Takes the gradient of what was rotated. A recomputed layer adds to the first part in place. */
static rvli_block rotate_backward(rvli_rank *r, uint64_t bytes, rvli_rotated *rotated,
                                  rvli_block gradient)
{
    rvli_block by_sine = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &rotated->sine);
    rvli_block negated = rvli_rank_take(r, bytes / 2);
    rvli_block turned = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &by_sine);
    rvli_rank_drop(r, &negated);
    rvli_block by_cosine = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &rotated->cosine);
    rvli_block sum = NULL;
    if (!rvli_rank_recomputes(r)) {
        sum = rvli_rank_take(r, bytes);
        rvli_rank_drop(r, &turned);
    }
    rvli_rank_drop(r, &by_cosine);
    rvli_block whole = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &gradient);
    if (rvli_rank_recomputes(r)) {
        rvli_rank_drop(r, &turned);
        return whole;
    }
    rvli_block output = rvli_rank_take(r, bytes);
    rvli_rank_drop(r, &whole);
    rvli_rank_drop(r, &sum);
    return output;
}

static void norms_backward(rvli_rank *r, rvli_rank_layer *layer, rvli_block *of_q, rvli_block *of_k)
{
    rvli_block contiguous = rvli_rank_take(r, kv_bytes(r));
    rvli_block k = rvli_rank_take(r, kv_bytes(r));
    rvli_rank_drop(r, &contiguous);
    rvli_rank_drop(r, of_k);
    rvli_rank_drop(r, &layer->qkv);
    rvli_rank_drop(r, &layer->k_scale);
    rvli_block q = rvli_rank_take(r, q_bytes(r));
    rvli_rank_drop(r, of_q);
    rvli_rank_drop(r, &layer->q_copy);
    rvli_rank_drop(r, &layer->q_scale);
    *of_q = q;
    *of_k = k;
}

/* cuDNN's workspace: see step/attention.c. */
static void attend_backward(rvli_rank *r, rvli_rank_layer *layer, rvli_block *of_attended)
{
    go_round_backward(r);
    rvli_block workspace = rvli_rank_take(r, 4 * q_bytes(r) + sums_bytes(r) + SEEDS_BYTES);
    rvli_rank_drop(r, &workspace);
    rvli_rank_drop(r, of_attended);
    rvli_rank_drop(r, &layer->k.output);
    rvli_rank_drop(r, &layer->q.output);
    if (!has_norms(r))
        rvli_rank_drop(r, &layer->qkv);
    rvli_rank_drop(r, &layer->sums);
    rvli_rank_drop(r, &layer->attended);
}

rvli_block rvli_rank_attention_backward(rvli_rank *r, rvli_rank_layer *layer)
{
    uint64_t hidden = r->model->dim[RVLI_DIM_HIDDEN];
    bool selective = (r->options->flags & RVL_MODEL_SELECTIVE) != 0;
    rvli_block of_attended = rvli_rank_rows_backward(r, q_bytes(r), r->q_width * hidden,
                                                     selective ? &layer->attended : NULL);
    if (selective)
        attend(r, layer, true);
    rvli_block of_q = rvli_rank_take(r, q_bytes(r));
    rvli_block of_k = rvli_rank_take(r, kv_bytes(r));
    rvli_block of_v = rvli_rank_take(r, kv_bytes(r));
    attend_backward(r, layer, &of_attended);
    of_k = rotate_backward(r, kv_bytes(r), &layer->k, of_k);
    of_q = rotate_backward(r, q_bytes(r), &layer->q, of_q);
    if (has_norms(r))
        norms_backward(r, layer, &of_q, &of_k);
    rvli_block of_qkv = rvli_rank_take(r, qkv_bytes(r));
    rvli_rank_drop(r, &of_q);
    rvli_rank_drop(r, &of_k);
    rvli_rank_drop(r, &of_v);
    return rvli_rank_columns_backward(r, (r->q_width + 2 * r->kv_width) * hidden, &of_qkv,
                                      &layer->attention_input);
}
