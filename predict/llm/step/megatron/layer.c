/* SPDX-License-Identifier: MIT */
/*
 * A layer: norm, attention, residual; norm, MLP or experts, residual
 * (megatron/core/transformer/transformer_layer.py, mlp.py, megatron/core/fusions).
 *
 * With full recomputation the forward pass keeps only the input of each layer.
 */
#include "predict/llm/step/megatron/rank.h"

static uint64_t inner_bytes(const rvli_rank *r)
{
    return RVLI_HALF * r->tokens * r->inner;
}

static rvli_entry entry_of_mlp(const rvli_rank *r, rvli_rank_layer *layer)
{
    return (rvli_entry){.output_bytes = 2 * inner_bytes(r),
                        .weight_elements = 2 * r->inner * r->model->dim[RVLI_DIM_HIDDEN],
                        .normed = &layer->mlp_input,
                        .scale = &layer->mlp_scale};
}

/* Gate and up are one matrix. Their activation and product are one kernel. */
static rvli_block dense(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    rvli_entry entry = entry_of_mlp(r, layer);
    layer->fc1 = rvli_rank_enter(r, &entry, kept);
    layer->activated = rvli_rank_take(r, inner_bytes(r));
    if (!kept)
        rvli_rank_drop(r, &layer->fc1);
    rvli_block output = rvli_rank_rows(r);
    if (!kept)
        rvli_rank_drop(r, &layer->activated);
    return output;
}

static void dense_backward(rvli_rank *r, rvli_rank_layer *layer)
{
    uint64_t elements = r->inner * r->model->dim[RVLI_DIM_HIDDEN];
    rvli_entry entry = entry_of_mlp(r, layer);
    rvli_block of_activated =
        rvli_rank_rows_backward(r, inner_bytes(r), elements, &layer->activated);
    rvli_block of_fc1 = rvli_rank_take(r, 2 * inner_bytes(r));
    rvli_rank_drop(r, &of_activated);
    rvli_rank_drop(r, &layer->fc1);
    rvli_rank_enter_backward(r, &entry, &of_fc1, &layer->middle, false);
}

static rvli_block sparse(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    layer->mlp_input = rvli_rank_norm(r, &layer->mlp_scale, kept);
    return rvli_rank_experts(r, layer, kept);
}

static void sparse_backward(rvli_rank *r, rvli_rank_layer *layer)
{
    rvli_block gradient = rvli_rank_experts_backward(r, layer);
    gradient = rvli_rank_norm_backward(r, &gradient, &layer->middle, &layer->mlp_scale);
    rvli_rank_join(r, &gradient);
}

static bool is_sparse(const rvli_rank *r, uint32_t number)
{
    return rvli_layer_is(r->model, r->first_layer + number, RVLI_LAYER_SPARSE);
}

/* Returns the layer's output. */
static rvli_block run(rvli_rank *r, rvli_rank_layer *layer, uint32_t number, bool kept)
{
    r->graph = &r->graphs[(size_t)r->part * r->layer_count + number];
    rvli_block attended = rvli_rank_attention(r, layer, kept);
    layer->middle = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &attended);
    if (!kept)
        rvli_rank_drop(r, &layer->attention_input);
    rvli_block mlp = is_sparse(r, number) ? sparse(r, layer, kept) : dense(r, layer, kept);
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

/* TransformerEngine's checkpoint, which computes layers again, holds the gradient that it was
 * given. */
static rvli_block hold_flow(rvli_rank *r)
{
    bool held = rvli_rank_recomputes(r) && !rvli_rank_is_local(r) && !r->flow_is_lent;
    r->flow_is_lent = r->flow_is_lent || held;
    return held ? r->flow : NULL;
}

/* lent: the layer's input, and so its gradient, belongs to the schedule. */
static void let_input_go(rvli_rank *r, rvli_rank_layer *layer, uint32_t number, bool lent)
{
    if (lent)
        return;
    if (!is_sparse(r, number)) {
        rvli_rank_drop(r, &layer->input);
        return;
    }
    *r->graph = (rvli_held_graph){.input = layer->input, .gradient = r->flow};
    layer->input = NULL;
    r->flow_is_lent = true;
}

void rvli_rank_layer_backward(rvli_rank *r, rvli_rank_layer *layer, uint32_t number, bool lent)
{
    bool recompute = rvli_rank_recomputes(r);
    rvli_block *input = lent || recompute ? NULL : &layer->input;
    rvli_block again = recompute ? run(r, layer, number, true) : NULL;
    rvli_block held = hold_flow(r);
    if (is_sparse(r, number))
        sparse_backward(r, layer);
    else
        dense_backward(r, layer);
    rvli_block of_qkv = rvli_rank_attention_backward(r, layer);
    rvli_entry entry = rvli_rank_attention_entry(r, layer);
    rvli_rank_enter_backward(r, &entry, &of_qkv, input, recompute);
    if (!recompute)
        return;
    rvli_rank_drop(r, &again);
    rvli_rank_drop(r, &held);
    let_input_go(r, layer, number, lent);
}
