/* SPDX-License-Identifier: MIT */
/*
 * Attention of a layer: one matrix for q, k and v, norms of q and k if the family has them, rotary
 * positions without a fused kernel, and attention by cuDNN (megatron/core/transformer/attention.py,
 * megatron/core/models/common/embeddings/rope_utils.py).
 *
 * Context parallelism is TransformerEngine's (ring.c). It keeps a pair of keys and values, so that
 * the matrix's output is freed after the layer's attention.
 */
#include "predict/llm/step/megatron/rank.h"

#define SEEDS_BYTES 256

uint64_t rvli_rank_q_bytes(const rvli_rank *r)
{
    return RVLI_HALF * r->tokens * r->q_width;
}

uint64_t rvli_rank_kv_bytes(const rvli_rank *r)
{
    return RVLI_HALF * r->tokens * r->kv_width;
}

static uint64_t qkv_bytes(const rvli_rank *r)
{
    return rvli_rank_q_bytes(r) + 2 * rvli_rank_kv_bytes(r);
}

uint64_t rvli_rank_sums_bytes(const rvli_rank *r)
{
    return RVLI_FULL * r->tokens * r->heads;
}

static bool has_norms(const rvli_rank *r)
{
    return (r->model->features & RVLI_QK_NORM) != 0;
}

static bool has_ring(const rvli_rank *r)
{
    return r->options->cp > 1;
}

/* ---- Forward ---- */

/* Cosines or sines of the rank's positions: in fp32, scaled, and then in bf16. */
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

/* With several groups q is not contiguous in the view, so it is copied. TransformerEngine's norm
 * always copies it. */
static bool copies_q(const rvli_rank *r)
{
    bool in_pieces = r->groups > 1 && r->heads > r->groups;
    return in_pieces || (has_norms(r) && !rvli_rank_is_local(r));
}

/* TransformerEngine stores v separately, and always has the sums. */
static void attend(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    bool local = rvli_rank_is_local(r);
    if (has_ring(r)) {
        rvli_rank_ring(r, layer, kept);
        return;
    }
    layer->v_copy = rvli_rank_take(r, local ? 0 : rvli_rank_kv_bytes(r));
    layer->attended = rvli_rank_take(r, rvli_rank_q_bytes(r));
    layer->sums = rvli_rank_take(r, kept || !local ? rvli_rank_sums_bytes(r) : 0);
    if (kept)
        return;
    rvli_rank_drop(r, &layer->sums);
    rvli_rank_drop(r, &layer->v_copy);
}

rvli_entry rvli_rank_attention_entry(const rvli_rank *r, rvli_rank_layer *layer)
{
    return (rvli_entry){.output_bytes = qkv_bytes(r),
                        .weight_elements =
                            (r->q_width + 2 * r->kv_width) * r->model->dim[RVLI_DIM_HIDDEN],
                        .normed = &layer->attention_input,
                        .scale = &layer->attention_scale};
}

/* In TransformerEngine the product itself adds the bias. */
static void project(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    rvli_entry entry = rvli_rank_attention_entry(r, layer);
    layer->qkv = rvli_rank_enter(r, &entry, kept);
    if (!rvli_rank_is_local(r))
        return;
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

/* q and k by heads. TransformerEngine's norms keep their inputs. */
static void norm_heads(rvli_rank *r, rvli_rank_layer *layer, rvli_block *q, rvli_block *k,
                       bool kept)
{
    bool local = rvli_rank_is_local(r);
    *q = normed(r, rvli_rank_q_bytes(r), r->heads, &layer->q_scale, kept);
    if (!kept && !local)
        rvli_rank_drop(r, &layer->q_copy);
    layer->k_copy = rvli_rank_take(r, rvli_rank_kv_bytes(r));
    *k = normed(r, rvli_rank_kv_bytes(r), r->groups, &layer->k_scale, kept);
    if (!kept || local)
        rvli_rank_drop(r, &layer->k_copy);
}

/* Frees what the backward pass does not need of q, k and v. */
static void let_go(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    bool selective = (r->options->flags & RVL_MODEL_SELECTIVE) != 0;
    bool copied = !rvli_rank_is_local(r) && !has_ring(r);
    if (!kept || !has_norms(r))
        rvli_rank_drop(r, &layer->q_copy);
    if (!kept)
        rvli_rank_drop(r, &layer->q.output);
    if (!kept && rvli_rank_is_local(r))
        rvli_rank_drop(r, &layer->attended);
    if (!kept || (has_ring(r) && !selective))
        rvli_rank_drop(r, &layer->k.output);
    bool needs_qkv = has_norms(r) && rvli_rank_is_local(r);
    if (!kept || ((has_ring(r) || copied) && !selective && !needs_qkv))
        rvli_rank_drop(r, &layer->qkv);
    if (!kept)
        rvli_rank_drop(r, &layer->attended);
}

rvli_block rvli_rank_attention(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    bool selective = (r->options->flags & RVL_MODEL_SELECTIVE) != 0;
    rvli_block q = NULL, k = NULL;
    project(r, layer, kept);
    layer->q_copy = rvli_rank_take(r, copies_q(r) ? rvli_rank_q_bytes(r) : 0);
    if (has_norms(r))
        norm_heads(r, layer, &q, &k, kept);
    rotate(r, rvli_rank_q_bytes(r), &layer->q, kept);
    rotate(r, rvli_rank_kv_bytes(r), &layer->k, kept);
    attend(r, layer, kept && !selective);
    rvli_block output = rvli_rank_rows(r);
    rvli_rank_drop(r, &k);
    rvli_rank_drop(r, &q);
    let_go(r, layer, kept);
    return output;
}

/* ---- Backward ---- */

/* Takes over the gradient of the rotation's output. A layer that is computed again adds to the
 * first part in place. */
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
    bool local = rvli_rank_is_local(r);
    rvli_block contiguous = rvli_rank_take(r, local ? rvli_rank_kv_bytes(r) : 0);
    rvli_block k = rvli_rank_take(r, rvli_rank_kv_bytes(r));
    rvli_rank_norm_parts(r, r->model->dim[RVLI_DIM_HEAD]);
    rvli_rank_drop(r, &contiguous);
    rvli_rank_drop(r, of_k);
    rvli_rank_drop(r, local ? &layer->qkv : &layer->k_copy);
    rvli_rank_drop(r, &layer->k_scale);
    rvli_block q = rvli_rank_take(r, rvli_rank_q_bytes(r));
    rvli_rank_norm_parts(r, r->model->dim[RVLI_DIM_HEAD]);
    rvli_rank_drop(r, of_q);
    rvli_rank_drop(r, &layer->q_copy);
    rvli_rank_drop(r, &layer->q_scale);
    *of_q = q;
    *of_k = k;
}

/* cuDNN's workspace: see step/sdpa.c. */
static void attend_backward(rvli_rank *r, rvli_rank_layer *layer, rvli_block *of_attended)
{
    rvli_block workspace =
        rvli_rank_take(r, 4 * rvli_rank_q_bytes(r) + rvli_rank_sums_bytes(r) + SEEDS_BYTES);
    rvli_rank_drop(r, &workspace);
    rvli_rank_drop(r, of_attended);
    bool local = rvli_rank_is_local(r);
    rvli_rank_drop(r, local ? &layer->k.output : &layer->q.output);
    rvli_rank_drop(r, local ? &layer->q.output : &layer->k.output);
    if (!has_norms(r) || !local)
        rvli_rank_drop(r, &layer->qkv);
    rvli_rank_drop(r, &layer->v_copy);
    rvli_rank_drop(r, &layer->sums);
    rvli_rank_drop(r, &layer->attended);
}

rvli_block rvli_rank_attention_backward(rvli_rank *r, rvli_rank_layer *layer)
{
    uint64_t hidden = r->model->dim[RVLI_DIM_HIDDEN];
    bool selective = (r->options->flags & RVL_MODEL_SELECTIVE) != 0;
    rvli_block of_attended = rvli_rank_rows_backward(r, rvli_rank_q_bytes(r), r->q_width * hidden,
                                                     selective ? &layer->attended : NULL);
    if (selective)
        attend(r, layer, true);
    rvli_block of_q = NULL, of_k = NULL, of_v = NULL, nothing = NULL;
    if (has_ring(r)) {
        of_v = rvli_rank_ring_backward(r, layer, &of_attended, &of_q);
        rvli_rank_drop(r, &layer->k.output); /* if attention was computed again */
        rvli_rank_drop(r, has_norms(r) && rvli_rank_is_local(r) ? &nothing : &layer->qkv);
    } else {
        of_q = rvli_rank_take(r, rvli_rank_q_bytes(r));
        of_k = rvli_rank_take(r, rvli_rank_kv_bytes(r));
        of_v = rvli_rank_take(r, rvli_rank_kv_bytes(r));
        attend_backward(r, layer, &of_attended);
    }
    of_k = rotate_backward(r, rvli_rank_kv_bytes(r), &layer->k, of_k);
    of_q = rotate_backward(r, rvli_rank_q_bytes(r), &layer->q, of_q);
    if (has_norms(r))
        norms_backward(r, layer, &of_q, &of_k);
    rvli_block of_qkv = rvli_rank_take(r, qkv_bytes(r));
    rvli_rank_drop(r, &of_q);
    rvli_rank_drop(r, &of_k);
    rvli_rank_drop(r, &of_v);
    return of_qkv;
}
