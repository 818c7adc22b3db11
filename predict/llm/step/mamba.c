/* SPDX-License-Identifier: MIT */
/*
 * Mamba 2 in the place of attention, as transformers runs it where neither mamba_ssm nor
 * causal-conv1d is installed: one projection, a convolution over the last tokens, the scan, a norm
 * with a gate, and the output projection.
 *
 * Gate and norm are in fp32; the norm is of each group (Nemotron-H), or of all at once. Falcon-H1
 * has no norm, its gate is in bf16, and numbers multiply what is projected.
 */
#include "predict/llm/step/training.h"

static uint64_t width(const rvli_training *t, rvli_dim dim)
{
    return t->tokens * t->model->dim[dim];
}

/* The convolution pads each sequence at both ends; what is behind it is not read. */
static uint64_t convolved_bytes(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    uint64_t tokens = t->options->seq_len + dim[RVLI_DIM_CONV_KERNEL] - 1;
    return RVLI_HALF * t->options->micro_batch * tokens * dim[RVLI_DIM_MAMBA_CONV];
}

/* Groups that the norm has: Granite's is of all heads at once. */
static uint64_t norm_groups(const rvli_training *t)
{
    return (t->model->features & RVLI_ONE_NORM) != 0 ? t->model->mamba_groups : 1;
}

/* ---- Forward ---- */

static void unless(rvli_training *t, bool kept, rvli_block *block)
{
    if (!kept)
        rvli_release(t, block);
}

/* Answers what the convolution gives behind its silu. */
static rvli_block convolve(rvli_training *t, rvli_mamba *m, bool kept)
{
    rvli_block contiguous = rvli_activation(t, RVLI_HALF * width(t, RVLI_DIM_MAMBA_CONV));
    m->convolved = rvli_next(t, convolved_bytes(t), &contiguous);
    rvli_block output = rvli_activation(t, RVLI_HALF * width(t, RVLI_DIM_MAMBA_CONV));
    unless(t, kept, &m->convolved);
    return output;
}

/* Takes what the scan gave; answers it through gate and norm, in fp32. */
static rvli_block gated_norm(rvli_training *t, rvli_mamba *m, bool kept)
{
    uint64_t bytes = RVLI_FULL * width(t, RVLI_DIM_MAMBA_INNER);
    uint64_t rows = RVLI_FULL * t->tokens * norm_groups(t);
    m->gate = rvli_activation(t, bytes);
    m->opened_gate = rvli_activation(t, bytes);
    unless(t, kept, &m->gate);
    m->norm.input = rvli_activation(t, bytes);
    unless(t, kept, &m->opened_gate);
    rvli_block squares = rvli_activation(t, bytes);
    rvli_block variance = rvli_next(t, rows, &squares);
    rvli_block above_zero = rvli_activation(t, rows);
    m->norm.scale = rvli_next(t, rows, &above_zero);
    m->norm.normed = rvli_activation(t, bytes);
    unless(t, kept, &m->norm.scale);
    unless(t, kept, &m->norm.input);
    rvli_block output = rvli_activation(t, bytes);
    unless(t, kept, &m->norm.normed);
    rvli_release(t, &variance);
    return output;
}

/* The same without a norm. */
static rvli_block gated(rvli_training *t, rvli_mamba *m, bool kept)
{
    m->opened_gate = rvli_activation(t, RVLI_HALF * width(t, RVLI_DIM_MAMBA_INNER));
    rvli_block output = rvli_activation(t, RVLI_FULL * width(t, RVLI_DIM_MAMBA_INNER));
    unless(t, kept, &m->opened_gate);
    unless(t, kept, &m->scan.output);
    return output;
}

rvli_block rvli_mamba_forward(rvli_training *t, uint32_t number, bool kept, bool partial)
{
    rvli_layer *layer = &t->layers[number];
    rvli_mamba *m = &layer->mamba;
    m->projected = rvli_linear_forward(t, RVLI_ROLE_MAMBA_IN);
    if (rvli_is_hybrid(t))
        m->projected = rvli_next(t, RVLI_HALF * width(t, RVLI_DIM_MAMBA_IN), &m->projected);
    rvli_block convolved = convolve(t, m, kept);
    rvli_scan_forward(t, &m->scan, kept);
    rvli_block normed = (rvli_is_hybrid(t) ? gated : gated_norm)(t, m, kept);
    m->given = rvli_activation(t, RVLI_HALF * width(t, RVLI_DIM_MAMBA_INNER));
    rvli_block output = NULL;
    if (!partial)
        output = rvli_linear_forward(t, RVLI_ROLE_MAMBA_OUT);
    unless(t, kept, &m->given);
    rvli_release(t, &convolved);
    rvli_release(t, &normed);
    unless(t, kept, &m->scan.output);
    unless(t, kept, &m->projected);
    unless(t, kept, &layer->attention_input);
    return output;
}

/* ---- Backward ---- */

/* From the gradient of what the output projection took to that of what the scan gave. */
static rvli_block gated_norm_backward(rvli_training *t, rvli_unit *unit, rvli_mamba *m,
                                      rvli_block of_given, rvli_block *of_gate_out)
{
    uint64_t inner = t->model->dim[RVLI_DIM_MAMBA_INNER];
    uint64_t bytes = RVLI_FULL * t->tokens * inner, groups = norm_groups(t);
    rvli_block of_output = rvli_next(t, bytes, &of_given);
    rvli_block of_scaled = rvli_activation(t, bytes);
    rvli_block of_weight = rvli_activation(t, bytes);
    rvli_gradient_summed(t, unit, RVLI_ROLE_MAMBA_NORM, t->tokens, inner);
    rvli_release(t, &of_weight);
    rvli_release(t, &of_output);
    rvli_release(t, &m->norm.normed);
    rvli_block of_product =
        rvli_norm_scaled_backward(t, t->tokens * groups, inner / groups, &m->norm, of_scaled);
    rvli_block of_opened = rvli_activation(t, bytes);
    rvli_block of_scanned = rvli_next(t, bytes, &of_product);
    rvli_release(t, &m->opened_gate);
    rvli_release(t, &m->scan.output);
    rvli_block of_gate = rvli_next(t, bytes, &of_opened);
    rvli_release(t, &m->gate);
    *of_gate_out = rvli_next(t, bytes / 2, &of_gate);
    return of_scanned;
}

/* The same without a norm. What was recomputed goes before a gradient becomes bf16. */
static rvli_block gated_backward(rvli_training *t, rvli_mamba *m, rvli_block of_given,
                                 rvli_block *of_gate_out)
{
    uint64_t full = RVLI_FULL * width(t, RVLI_DIM_MAMBA_INNER);
    bool again = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    rvli_block of_output = rvli_next(t, full, &of_given);
    rvli_block of_opened = rvli_activation(t, full);
    rvli_block of_scanned = rvli_activation(t, full);
    unless(t, !again, &m->scan.output);
    unless(t, !again, &m->opened_gate);
    rvli_block half = rvli_next(t, full / 2, &of_opened);
    rvli_release(t, &of_output);
    rvli_release(t, &m->scan.output);
    rvli_release(t, &m->opened_gate);
    *of_gate_out = rvli_next(t, full / 2, &half);
    return of_scanned;
}

/* Answers the gradient of what was projected for the convolution. */
static rvli_block convolve_backward(rvli_training *t, rvli_unit *unit, rvli_mamba *m,
                                    rvli_block of_output)
{
    uint64_t bytes = RVLI_HALF * width(t, RVLI_DIM_MAMBA_CONV);
    rvli_block of_silu = rvli_next(t, bytes, &of_output);
    rvli_release(t, &m->convolved);
    rvli_block of_convolved = rvli_next(t, convolved_bytes(t), &of_silu);
    rvli_block contiguous = rvli_activation(t, bytes);
    rvli_gradient(t, unit, RVLI_ROLE_MAMBA_CONV);
    rvli_block of_input = rvli_next(t, bytes, &contiguous);
    rvli_release(t, &of_convolved);
    rvli_release(t, &m->projected);
    rvli_gradient(t, unit, RVLI_ROLE_MAMBA_CONV_BIAS);
    return of_input;
}

rvli_block rvli_mamba_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_mamba *m = &layer->mamba;
    rvli_block of_gate, of_rates;
    rvli_sum of_given = {0}, of_input = {0};
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_MAMBA_OUT, RVLI_ROLE_OTHER);
    rvli_release(t, &of_output);
    rvli_release(t, &m->given);
    rvli_add(t, &of_given, &part, true);
    rvli_block of_scanned = rvli_is_hybrid(t)
                                ? gated_backward(t, m, of_given.block, &of_gate)
                                : gated_norm_backward(t, unit, m, of_given.block, &of_gate);
    rvli_block of_convolved = rvli_scan_backward(t, unit, &m->scan, of_scanned, &of_rates);
    of_convolved = convolve_backward(t, unit, m, of_convolved);
    rvli_block of_projected = rvli_activation(t, RVLI_HALF * width(t, RVLI_DIM_MAMBA_IN));
    rvli_release(t, &of_gate);
    rvli_release(t, &of_convolved);
    rvli_release(t, &of_rates);
    if (rvli_is_hybrid(t))
        of_projected = rvli_next(t, rvli_bytes_of(of_projected), &of_projected);
    part = rvli_linear_backward(t, number, RVLI_ROLE_MAMBA_IN, RVLI_ROLE_OTHER);
    rvli_release_used(t, &of_projected, &layer->attention_input);
    rvli_add(t, &of_input, &part, true);
    return of_input.block;
}
