/* SPDX-License-Identifier: MIT */
/*
 * A layer: norm, attention, residual; norm, MLP or experts, residual
 * (megatron/core/transformer/transformer_layer.py, mlp.py, megatron/core/fusions).
 *
 * Recomputed in full, the forward pass keeps the input of each layer alone.
 */
#include "predict/llm/step/megatron/rank.h"

static uint64_t inner_bytes(const rvli_rank *r)
{
    return RVLI_HALF * r->tokens * r->inner;
}

/* Gate and up are one matrix, and their activation and product one kernel. */
static rvli_block dense(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    layer->fc1 = rvli_rank_take(r, 2 * inner_bytes(r));
    layer->activated = rvli_rank_take(r, inner_bytes(r));
    if (!kept)
        rvli_rank_drop(r, &layer->fc1);
    rvli_block output = rvli_rank_rows(r);
    if (!kept)
        rvli_rank_drop(r, &layer->activated);
    return output;
}

static rvli_block dense_backward(rvli_rank *r, rvli_rank_layer *layer)
{
    uint64_t elements = r->inner * r->model->dim[RVLI_DIM_HIDDEN];
    rvli_block of_activated =
        rvli_rank_rows_backward(r, inner_bytes(r), elements, &layer->activated);
    rvli_block of_fc1 = rvli_rank_take(r, 2 * inner_bytes(r));
    rvli_rank_drop(r, &of_activated);
    rvli_rank_drop(r, &layer->fc1);
    return rvli_rank_columns_backward(r, 2 * elements, &of_fc1, &layer->mlp_input);
}

static bool is_sparse(const rvli_rank *r, uint32_t number)
{
    return rvli_layer_is(r->model, r->first_layer + number, RVLI_LAYER_SPARSE);
}

/* Answers what the layer gives. */
static rvli_block run(rvli_rank *r, rvli_rank_layer *layer, uint32_t number, bool kept)
{
    layer->attention_input = rvli_rank_norm(r, &layer->attention_scale, kept);
    rvli_block attended = rvli_rank_attention(r, layer, kept);
    layer->middle = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &attended);
    if (!kept)
        rvli_rank_drop(r, &layer->attention_input);
    layer->mlp_input = rvli_rank_norm(r, &layer->mlp_scale, kept);
    rvli_block mlp =
        is_sparse(r, number) ? rvli_rank_experts(r, layer, kept) : dense(r, layer, kept);
    rvli_block output = rvli_rank_take(r, r->part_bytes);
    if (!kept)
        rvli_rank_drop(r, &layer->mlp_input);
    rvli_rank_drop(r, &mlp);
    if (!kept)
        rvli_rank_drop(r, &layer->middle);
    return output;
}

void rvli_rank_layer_forward(rvli_rank *r, rvli_rank_layer *layer, uint32_t number)
{
    layer->input = r->hidden;
    r->hidden = run(r, layer, number, !rvli_rank_recomputes(r));
}

void rvli_rank_layer_backward(rvli_rank *r, rvli_rank_layer *layer, uint32_t number, bool lent)
{
    bool recompute = rvli_rank_recomputes(r);
    rvli_block *input = lent || recompute ? NULL : &layer->input;
    rvli_block again = recompute ? run(r, layer, number, true) : NULL;
    rvli_block gradient =
        is_sparse(r, number) ? rvli_rank_experts_backward(r, layer) : dense_backward(r, layer);
    gradient = rvli_rank_norm_backward(r, &gradient, &layer->middle, &layer->mlp_scale);
    rvli_rank_join(r, &gradient);
    gradient = rvli_rank_attention_backward(r, layer);
    gradient = rvli_rank_norm_backward(r, &gradient, input, &layer->attention_scale);
    if (!recompute) {
        rvli_rank_join(r, &gradient);
        return;
    }
    rvli_rank_drop(r, &gradient); /* added in place */
    rvli_rank_drop(r, &again);
    if (!lent)
        rvli_rank_drop(r, &layer->input);
}
