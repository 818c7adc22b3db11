/* SPDX-License-Identifier: MIT */
/*
 * LFM2's short convolution in the place of attention, as transformers runs it where causal-conv1d
 * is not installed: one projection into three parts, the product of two of them through a
 * convolution over the last tokens, that times the third, and the output projection.
 */
#include "predict/llm/step/training.h"

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

/* The convolution pads each sequence at both ends; what is behind it is not read. */
static uint64_t convolved_bytes(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    uint64_t tokens = t->options->seq_len + dim[RVLI_DIM_CONV_KERNEL] - 1;
    return RVLI_HALF * t->options->micro_batch * tokens * dim[RVLI_DIM_HIDDEN];
}

rvli_block rvli_short_conv_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_short_conv *c = &layer->short_conv;
    c->projected = rvli_linear_forward(t, RVLI_ROLE_CONV_IN);
    c->product = rvli_activation(t, hidden_bytes(t));
    rvli_block contiguous = rvli_activation(t, hidden_bytes(t));
    c->convolved = rvli_activation(t, convolved_bytes(t));
    rvli_release(t, &contiguous);
    if (!kept)
        rvli_release(t, &c->product);
    c->given = rvli_activation(t, hidden_bytes(t));
    rvli_block output = rvli_linear_forward(t, RVLI_ROLE_CONV_OUT);
    if (kept)
        return output;
    rvli_release(t, &c->given);
    rvli_release(t, &c->convolved);
    rvli_release(t, &c->projected);
    rvli_release(t, &layer->attention_input);
    return output;
}

/* From the gradient of what was convolved to that of the product. */
static rvli_block convolve_backward(rvli_training *t, rvli_unit *unit, rvli_short_conv *c,
                                    rvli_block of_seen)
{
    rvli_block of_convolved = rvli_next(t, convolved_bytes(t), &of_seen);
    rvli_block contiguous = rvli_activation(t, hidden_bytes(t));
    rvli_gradient(t, unit, RVLI_ROLE_CONV);
    rvli_block of_product = rvli_next(t, hidden_bytes(t), &contiguous);
    rvli_release(t, &of_convolved);
    rvli_release(t, &c->product);
    return of_product;
}

rvli_block rvli_short_conv_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_short_conv *c = &layer->short_conv;
    rvli_sum of_given = {0}, of_input = {0};
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_CONV_OUT, RVLI_ROLE_OTHER);
    rvli_release(t, &of_output);
    rvli_release(t, &c->given);
    rvli_add(t, &of_given, &part, true);
    rvli_block of_seen = rvli_activation(t, hidden_bytes(t));
    rvli_block of_opening = rvli_next(t, hidden_bytes(t), &of_given.block);
    rvli_release(t, &c->convolved);
    rvli_block of_product = convolve_backward(t, &t->units[number], c, of_seen);
    rvli_block of_first = rvli_activation(t, hidden_bytes(t));
    rvli_block of_second = rvli_next(t, hidden_bytes(t), &of_product);
    rvli_release(t, &c->projected);
    rvli_block of_projected = rvli_activation(t, 3 * hidden_bytes(t));
    rvli_release(t, &of_first);
    rvli_release(t, &of_opening);
    rvli_release(t, &of_second);
    part = rvli_linear_backward(t, number, RVLI_ROLE_CONV_IN, RVLI_ROLE_OTHER);
    rvli_release_used(t, &of_projected, &layer->attention_input);
    rvli_add(t, &of_input, &part, true);
    return of_input.block;
}
