/* SPDX-License-Identifier: MIT */
/* The gated MLP of a dense layer. Experts keep what docs/model.md says, as one block. */
#include "predict/llm/step/training.h"

static uint64_t inner_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_INTERMEDIATE];
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

static rvli_block experts_forward(rvli_training *t, rvli_layer *layer, bool kept)
{
    layer->experts = rvli_activation(t, t->tokens * rvli_experts_kept_bytes(t->model));
    rvli_block output = rvli_activation(t, hidden_bytes(t));
    if (!kept) {
        rvli_release(t, &layer->experts);
        rvli_release(t, &layer->mlp_input);
    }
    return output;
}

rvli_block rvli_mlp_forward(rvli_training *t, uint32_t number, bool kept, bool partial)
{
    rvli_layer *layer = &t->layers[number];
    if (rvli_layer_is(t->model, number, RVLI_LAYER_SPARSE))
        return experts_forward(t, layer, kept);
    layer->gate = rvli_linear_forward(t, number, RVLI_ROLE_GATE, kept);
    layer->activated = rvli_activation(t, inner_bytes(t));
    if (!kept)
        rvli_release(t, &layer->gate);
    layer->up = rvli_linear_forward(t, number, RVLI_ROLE_UP, kept);
    layer->product = rvli_activation(t, inner_bytes(t));
    if (!kept) {
        rvli_release(t, &layer->activated);
        rvli_release(t, &layer->up);
    }
    rvli_block output = NULL;
    if (partial)
        rvli_down_again(t, number);
    else
        output = rvli_linear_forward(t, number, RVLI_ROLE_DOWN, kept);
    if (!kept || rvli_is_frozen(t)) {
        rvli_release(t, &layer->product);
        rvli_release(t, &layer->mlp_input);
    }
    return output;
}

static rvli_block experts_backward(rvli_training *t, rvli_layer *layer, rvli_unit *unit)
{
    rvli_gradient(t, unit, RVLI_ROLE_DOWN);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_gradient(t, unit, RVLI_ROLE_GATE);
    rvli_block of_input = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, &layer->experts);
    rvli_release(t, &layer->mlp_input);
    return of_input;
}

rvli_block rvli_mlp_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    if (rvli_layer_is(t->model, number, RVLI_LAYER_SPARSE))
        return experts_backward(t, layer, unit);
    rvli_sum of_product = {0}, of_input = {0};
    rvli_block of_output = NULL; /* the flow's, which stays */
    rvli_block part =
        rvli_linear_backward(t, number, RVLI_ROLE_DOWN, RVLI_ROLE_OTHER, &of_output, &of_product);
    rvli_release(t, &of_output);
    rvli_release(t, &layer->product);
    rvli_add(t, &of_product, &part, true);
    rvli_block of_up = rvli_activation(t, inner_bytes(t));
    rvli_block of_activated = rvli_activation(t, inner_bytes(t));
    rvli_release_used(t, &of_product.block, &layer->activated);
    rvli_release(t, &layer->up);
    part = rvli_linear_backward(t, number, RVLI_ROLE_UP, RVLI_ROLE_OTHER, &of_up, &of_input);
    rvli_release(t, &of_up);
    rvli_add(t, &of_input, &part, true);
    rvli_block of_gate = rvli_activation(t, inner_bytes(t));
    rvli_release_used(t, &of_activated, &layer->gate);
    part = rvli_linear_backward(t, number, RVLI_ROLE_GATE, RVLI_ROLE_OTHER, &of_gate, &of_input);
    rvli_release_used(t, &of_gate, &layer->mlp_input);
    rvli_add(t, &of_input, &part, true);
    return of_input.block;
}
