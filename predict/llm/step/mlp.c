/* SPDX-License-Identifier: MIT */
/*
 * The gated MLP of a dense layer. Where gate and up are one parameter, both parts are views of one
 * tensor. Without a gate it is the square of a relu (Nemotron-H).
 */
#include "predict/llm/step/training.h"

static uint64_t inner_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * rvli_dim_here(t, RVLI_DIM_INTERMEDIATE);
}

/* Gemma 3n: what is below a bound that follows from a token's gate is cut off. */
static void cut_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    if (!rvli_layer_is(t->model, number, RVLI_LAYER_CUT))
        return;
    rvli_block above = rvli_activation(t, inner_bytes(t));
    layer->streams.cut = rvli_activation(t, inner_bytes(t));
    rvli_release(t, &above);
    if (!kept)
        rvli_release(t, &layer->gate);
}

/* Takes the gradient of what is left, and leaves that of the gate: by the bound, too, through a
 * mean and a deviation. */
static void cut_backward(rvli_training *t, uint32_t number, rvli_block *gradient)
{
    rvli_layer *layer = &t->layers[number];
    if (!rvli_layer_is(t->model, number, RVLI_LAYER_CUT))
        return;
    rvli_block of_gate = rvli_activation(t, inner_bytes(t));
    rvli_release(t, gradient);
    rvli_release(t, &layer->streams.cut);
    rvli_block negated = rvli_activation(t, inner_bytes(t));
    rvli_release(t, &negated);
    rvli_block apart = rvli_activation(t, inner_bytes(t));
    rvli_block by_deviation = rvli_activation(t, inner_bytes(t));
    rvli_release(t, &apart);
    rvli_release(t, &layer->gate);
    rvli_release(t, &by_deviation);
    rvli_block by_mean = rvli_activation(t, inner_bytes(t));
    rvli_release(t, &by_mean);
    *gradient = of_gate;
}

static bool is_fused(const rvli_training *t)
{
    return (t->model->features & RVLI_FUSED_UP) != 0;
}

static bool has_gate(const rvli_training *t)
{
    return (t->model->features & RVLI_NO_GATE) == 0;
}

/* Of up: relu, and its square. */
static void without_gate_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block up = rvli_linear_forward(t, RVLI_ROLE_UP);
    layer->activated = rvli_activation(t, inner_bytes(t));
    layer->product = rvli_activation(t, inner_bytes(t));
    rvli_release(t, &up);
    if (!kept)
        rvli_release(t, &layer->activated);
}

/* The product of up and the activated gate. */
static void gated_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    if (is_fused(t))
        layer->up = rvli_linear_forward(t, RVLI_ROLE_GATE_UP);
    else
        layer->gate = rvli_linear_forward(t, RVLI_ROLE_GATE);
    cut_forward(t, number, kept);
    layer->activated = rvli_activation(t, inner_bytes(t));
    if (!kept && !rvli_has_streams(t))
        rvli_release(t, &layer->gate);
    if (!is_fused(t))
        layer->up = rvli_linear_forward(t, RVLI_ROLE_UP);
    layer->product = rvli_activation(t, inner_bytes(t));
    if (!kept && !rvli_has_streams(t)) {
        rvli_release(t, &layer->activated);
        rvli_release(t, &layer->up);
    }
}

/* What has a name in Gemma 3n's MLP until it returns; of others the input alone. */
static void drop_named(rvli_training *t, rvli_layer *layer)
{
    if (!rvli_has_streams(t)) {
        rvli_release(t, &layer->mlp_input);
        return;
    }
    rvli_release(t, &layer->gate);
    rvli_release(t, &layer->streams.cut);
    rvli_release(t, &layer->activated);
    rvli_release(t, &layer->up);
}

rvli_block rvli_mlp_forward(rvli_training *t, uint32_t number, bool kept, bool partial)
{
    rvli_layer *layer = &t->layers[number];
    if (rvli_layer_is(t->model, number, RVLI_LAYER_SPARSE) && !rvli_has_beside(t))
        return rvli_experts_forward(t, number, kept, partial);
    if (rvli_is_hybrid(t))
        return rvli_hybrid_mlp_forward(t, number, kept, partial);
    (has_gate(t) ? gated_forward : without_gate_forward)(t, number, kept);
    rvli_block output = NULL;
    if (!partial)
        output = rvli_linear_forward(t, RVLI_ROLE_DOWN);
    if (!kept) {
        rvli_release(t, &layer->product);
        drop_named(t, layer);
    }
    return output;
}

/* The gradients of two views of one tensor, joined. */
static void fused_backward(rvli_training *t, uint32_t number, rvli_block *of_up,
                           rvli_block *of_activated, rvli_sum *of_input)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block of_gate = rvli_activation(t, inner_bytes(t));
    rvli_release_used(t, of_activated, &layer->up);
    rvli_block of_both = rvli_activation(t, 2 * inner_bytes(t));
    rvli_release(t, &of_gate);
    rvli_release(t, of_up);
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_GATE_UP, RVLI_ROLE_OTHER);
    rvli_release_used(t, &of_both, &layer->mlp_input);
    rvli_add(t, of_input, &part, true);
}

static void apart_backward(rvli_training *t, uint32_t number, rvli_block *of_up,
                           rvli_block *of_activated, rvli_sum *of_input)
{
    rvli_layer *layer = &t->layers[number];
    rvli_release(t, &layer->up);
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_UP, RVLI_ROLE_UP_BIAS);
    rvli_release(t, of_up);
    rvli_add(t, of_input, &part, true);
    rvli_block of_gate = rvli_activation(t, inner_bytes(t));
    bool is_cut = rvli_layer_is(t->model, number, RVLI_LAYER_CUT);
    rvli_release_used(t, of_activated, is_cut ? &(rvli_block){NULL} : &layer->gate);
    cut_backward(t, number, &of_gate);
    part = rvli_linear_backward(t, number, RVLI_ROLE_GATE, RVLI_ROLE_GATE_BIAS);
    rvli_release_used(t, &of_gate, &layer->mlp_input);
    rvli_add(t, of_input, &part, true);
}

rvli_block rvli_squared_backward(rvli_training *t, rvli_block of_square, rvli_block *relu)
{
    uint64_t bytes = rvli_bytes_of(of_square);
    rvli_block power = rvli_activation(t, bytes);
    rvli_block doubled = rvli_activation(t, bytes);
    rvli_block of_relu = rvli_activation(t, bytes);
    rvli_release(t, &doubled);
    rvli_release(t, &power);
    rvli_release(t, &of_square);
    rvli_block of_input = rvli_activation(t, bytes);
    rvli_release(t, &of_relu);
    rvli_release(t, relu);
    return of_input;
}

static void without_gate_backward(rvli_training *t, uint32_t number, rvli_block of_product,
                                  rvli_sum *of_input)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block of_up = rvli_squared_backward(t, of_product, &layer->activated);
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_UP, RVLI_ROLE_UP_BIAS);
    rvli_release_used(t, &of_up, &layer->mlp_input);
    rvli_add(t, of_input, &part, true);
}

rvli_block rvli_mlp_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_sum of_product = {0}, of_input = {0};
    if (rvli_layer_is(t->model, number, RVLI_LAYER_SPARSE) && !rvli_has_beside(t)) {
        rvli_block of_tokens = rvli_experts_backward(t, number, of_output);
        rvli_fetched(t);
        return of_tokens;
    }
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_DOWN, RVLI_ROLE_DOWN_BIAS);
    rvli_release(t, &of_output);
    rvli_fetched(t);
    rvli_release(t, &layer->product);
    rvli_add(t, &of_product, &part, true);
    if (rvli_is_hybrid(t))
        return rvli_hybrid_mlp_backward(t, number, of_product.block);
    if (!has_gate(t)) {
        without_gate_backward(t, number, of_product.block, &of_input);
        return of_input.block;
    }
    rvli_block of_up = rvli_activation(t, inner_bytes(t));
    rvli_block of_activated = rvli_activation(t, inner_bytes(t));
    rvli_release_used(t, &of_product.block, &layer->activated);
    (is_fused(t) ? fused_backward : apart_backward)(t, number, &of_up, &of_activated, &of_input);
    return of_input.block;
}
