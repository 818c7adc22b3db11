/* SPDX-License-Identifier: MIT */
/*
 * The gated MLP of a dense layer.
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

/* The product of up and the activated gate. */
static void gated_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    layer->gate = rvli_linear_forward(t, RVLI_ROLE_GATE);
    cut_forward(t, number, kept);
    layer->activated = rvli_activation(t, inner_bytes(t));
    if (!kept && !rvli_has_streams(t))
        rvli_release(t, &layer->gate);
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

rvli_block rvli_mlp_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    gated_forward(t, number, kept);
    rvli_block output = rvli_linear_forward(t, RVLI_ROLE_DOWN);
    if (!kept) {
        rvli_release(t, &layer->product);
        drop_named(t, layer);
    }
    return output;
}

static void gated_backward(rvli_training *t, uint32_t number, rvli_block *of_up,
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

rvli_block rvli_mlp_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_sum of_product = {0}, of_input = {0};
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_DOWN, RVLI_ROLE_DOWN_BIAS);
    rvli_release(t, &of_output);
    rvli_fetched(t);
    rvli_release(t, &layer->product);
    rvli_add(t, &of_product, &part, true);
    rvli_block of_up = rvli_activation(t, inner_bytes(t));
    rvli_block of_activated = rvli_activation(t, inner_bytes(t));
    rvli_release_used(t, &of_product.block, &layer->activated);
    gated_backward(t, number, &of_up, &of_activated, &of_input);
    return of_input.block;
}
