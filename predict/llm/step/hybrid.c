/* SPDX-License-Identifier: MIT */
/*
 * Falcon-H1's layers: Mamba 2 and attention take what one norm gives, each multiplied by a number,
 * and what they give is multiplied and added up (modeling_falcon_h1.py, FalconH1DecoderLayer).
 * Numbers multiply the gate of the MLP and what it gives, too, which runs up before the gate.
 *
 * A product with a number keeps nothing, but is a tensor of its own both ways.
 */
#include "predict/llm/step/training.h"

bool rvli_is_hybrid(const rvli_training *t)
{
    return (t->model->features & RVLI_HYBRID) != 0;
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

static uint64_t inner_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_INTERMEDIATE];
}

/* ---- Both in the place of attention ---- */

void rvli_hybrid_forward(rvli_training *t, uint32_t number, rvli_block normed, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    layer->attention_input = rvli_activation(t, hidden_bytes(t));
    rvli_block given = rvli_mamba_forward(t, number, kept, false);
    layer->mixed[0] = rvli_next(t, hidden_bytes(t), &given);
    layer->mamba.input = layer->attention_input;
    layer->attention_input = rvli_activation(t, hidden_bytes(t));
    given = rvli_attention_forward(t, number, kept);
    layer->mixed[1] = rvli_next(t, hidden_bytes(t), &given);
    rvli_block sum = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, &normed);
    layer->middle = rvli_next(t, hidden_bytes(t), &sum);
}

rvli_block rvli_hybrid_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block of_attended = rvli_activation(t, hidden_bytes(t));
    rvli_block part = rvli_attention_backward(t, number, of_attended);
    rvli_block gradient = rvli_next(t, hidden_bytes(t), &part);
    rvli_block of_scanned = rvli_activation(t, hidden_bytes(t));
    layer->attention_input = layer->mamba.input;
    layer->mamba.input = NULL;
    part = rvli_mamba_backward(t, number, of_scanned);
    rvli_block second = rvli_next(t, hidden_bytes(t), &part);
    rvli_release(t, &second); /* added in place */
    return gradient;
}

/* ---- MLP ---- */

rvli_block rvli_hybrid_mlp_forward(rvli_training *t, uint32_t number, bool kept, bool partial)
{
    rvli_layer *layer = &t->layers[number];
    layer->up = rvli_linear_forward(t, RVLI_ROLE_UP);
    rvli_block gate = rvli_linear_forward(t, RVLI_ROLE_GATE);
    layer->gate = rvli_next(t, inner_bytes(t), &gate);
    layer->activated = rvli_activation(t, inner_bytes(t));
    rvli_leave(t, &layer->gate, kept);
    layer->product = rvli_activation(t, inner_bytes(t));
    rvli_leave(t, &layer->activated, kept);
    rvli_leave(t, &layer->up, kept);
    rvli_block given = NULL;
    if (!partial)
        given = rvli_linear_forward(t, RVLI_ROLE_DOWN);
    rvli_block output = rvli_next(t, partial ? 0 : hidden_bytes(t), &given);
    rvli_leave(t, &layer->product, kept);
    rvli_leave(t, &layer->mlp_input, kept);
    return output;
}

/* From the gradient of the product of up and gate to that of what the MLP got. */
rvli_block rvli_hybrid_mlp_backward(rvli_training *t, uint32_t number, rvli_block of_product)
{
    rvli_layer *layer = &t->layers[number];
    rvli_sum of_input = {0};
    rvli_block of_activated = rvli_activation(t, inner_bytes(t));
    rvli_block of_up = rvli_activation(t, inner_bytes(t));
    rvli_release(t, &of_product);
    rvli_release(t, &layer->up);
    rvli_release(t, &layer->activated);
    rvli_block of_scaled = rvli_activation(t, inner_bytes(t));
    rvli_release_used(t, &of_activated, &layer->gate);
    rvli_block of_gate = rvli_next(t, inner_bytes(t), &of_scaled);
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_GATE, RVLI_ROLE_GATE_BIAS);
    rvli_release(t, &of_gate);
    rvli_add(t, &of_input, &part, true);
    part = rvli_linear_backward(t, number, RVLI_ROLE_UP, RVLI_ROLE_UP_BIAS);
    rvli_release_used(t, &of_up, &layer->mlp_input);
    rvli_add(t, &of_input, &part, true);
    return of_input.block;
}
