/* SPDX-License-Identifier: MIT */
/*
 * A gated delta net: projections, a convolution over time, the delta rule by chunks
 * (delta_rule.c), and a norm by a gate (Qwen3NextGatedDeltaNet and Qwen3_5GatedDeltaNet of
 * transformers 5.17, where neither flash-linear-attention nor causal-conv1d is installed).
 *
 * qwen3_next has two projections, the parts of which are copied to lie in the order of their heads.
 * qwen3_5 has four.
 */
#include "predict/llm/step/training.h"

typedef struct sizes {
    uint64_t hidden;
    uint64_t values;    /* v, and the gate */
    uint64_t keys;      /* q, or k */
    uint64_t wide_keys; /* the same for every head of v */
    uint64_t mixed;     /* q, k and v */
    uint64_t convolved;
    uint64_t rates; /* one for each head of v */
} sizes;

/* All in bf16. */
static sizes sizes_of(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    const uint64_t token = RVLI_HALF * t->tokens, values = dim[RVLI_DIM_DELTA_VALUE];
    const uint64_t padding = t->options->micro_batch * (dim[RVLI_DIM_CONV_KERNEL] - 1);
    return (sizes){.hidden = token * dim[RVLI_DIM_HIDDEN],
                   .values = token * values,
                   .keys = token * (dim[RVLI_DIM_DELTA_CONV] - values) / 2,
                   .wide_keys =
                       token * (t->model->state_elements / values) * dim[RVLI_DIM_DELTA_HEADS],
                   .mixed = token * dim[RVLI_DIM_DELTA_CONV],
                   .convolved = RVLI_HALF * (t->tokens + padding) * dim[RVLI_DIM_DELTA_CONV],
                   .rates = token * dim[RVLI_DIM_DELTA_HEADS]};
}

static bool is_split(const rvli_training *t)
{
    return (t->model->features & RVLI_SPLIT_DELTA) != 0;
}

/* Rows of the gated norm: a head of v each. */
static uint64_t norm_rows(const rvli_training *t)
{
    return t->tokens * t->model->dim[RVLI_DIM_DELTA_HEADS];
}

/* ---- Forward ---- */

/* What Python has until the net is done, and nobody keeps. */
typedef struct locals {
    rvli_block all; /* of qwen3_next: q, k, v and gate as they are projected */
    rvli_block both_rates;
    rvli_block gate;
    rvli_block beta_input;
    rvli_block decay_input;
    rvli_block activated; /* behind the convolution */
    rvli_block decay;
    rvli_block wide_q;
    rvli_block wide_k;
} locals;

static void project_split(rvli_training *t, const sizes *s, rvli_delta *d, locals *l)
{
    d->projected = rvli_activation(t, s->mixed);
    l->gate = rvli_activation(t, s->values);
    l->beta_input = rvli_activation(t, s->rates);
    l->decay_input = rvli_activation(t, s->rates);
}

/* Answers what is copied once more: q, k and v, which go behind the convolution. */
static void project_joined(rvli_training *t, const sizes *s, rvli_delta *d, locals *l,
                           rvli_block copies[3])
{
    l->all = rvli_activation(t, s->mixed + s->values);
    l->both_rates = rvli_activation(t, 2 * s->rates);
    copies[2] = rvli_activation(t, s->values);
    l->gate = rvli_activation(t, s->values);
    l->beta_input = rvli_activation(t, s->rates);
    l->decay_input = rvli_activation(t, s->rates);
    copies[0] = rvli_activation(t, s->keys);
    copies[1] = rvli_activation(t, s->keys);
    d->projected = rvli_activation(t, s->mixed);
}

static void convolve(rvli_training *t, const sizes *s, rvli_delta *d, locals *l, bool kept)
{
    rvli_block by_channels = rvli_activation(t, s->mixed);
    d->convolved = rvli_next(t, s->convolved, &by_channels);
    l->activated = rvli_activation(t, s->mixed);
    rvli_leave(t, &d->convolved, kept);
    rvli_leave(t, &d->projected, kept);
}

/* Beta and the decay; q and k for every head of v. */
static void make_rates(rvli_training *t, const sizes *s, rvli_delta *d, locals *l, bool kept)
{
    d->beta = rvli_activation(t, s->rates);
    rvli_block full = rvli_activation(t, 2 * s->rates);
    d->decay_input = rvli_next(t, 2 * s->rates, &full);
    d->decay = rvli_activation(t, 2 * s->rates);
    rvli_leave(t, &d->decay_input, kept);
    l->decay = rvli_activation(t, 2 * s->rates);
    rvli_leave(t, &d->decay, kept);
    bool repeated = s->wide_keys != s->keys;
    l->wide_q = rvli_activation(t, repeated ? s->wide_keys : 0);
    l->wide_k = rvli_activation(t, repeated ? s->wide_keys : 0);
}

/* Takes what the rule gave. */
static void norm_forward(rvli_training *t, const sizes *s, rvli_delta *d, rvli_block ruled,
                         bool kept)
{
    uint64_t full = 2 * s->values, rates = 2 * s->rates;
    d->norm.input = rvli_activation(t, full);
    rvli_block squares = rvli_activation(t, full);
    rvli_block variance = rvli_next(t, rates, &squares);
    rvli_block above_zero = rvli_activation(t, rates);
    d->norm.scale = rvli_next(t, rates, &above_zero);
    rvli_block scaled = rvli_activation(t, full);
    rvli_leave(t, &d->norm.scale, kept);
    rvli_leave(t, &d->norm.input, kept);
    d->norm.normed = rvli_activation(t, s->values);
    d->weighted = rvli_next(t, s->values, &scaled);
    rvli_leave(t, &d->norm.normed, kept);
    d->gate = rvli_activation(t, full);
    d->activated_gate = rvli_activation(t, full);
    rvli_leave(t, &d->gate, kept);
    rvli_block gated = rvli_activation(t, full);
    rvli_leave(t, &d->activated_gate, kept);
    rvli_leave(t, &d->weighted, kept);
    d->output = rvli_next(t, s->values, &gated);
    rvli_release(t, &variance);
    rvli_release(t, &ruled);
}

rvli_block rvli_delta_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_delta *d = &layer->delta;
    const sizes s = sizes_of(t);
    locals l = {0};
    rvli_block copies[3] = {NULL};
    if (is_split(t))
        project_split(t, &s, d, &l);
    else
        project_joined(t, &s, d, &l, copies);
    convolve(t, &s, d, &l, kept);
    for (int i = 0; i < 3; i++)
        rvli_release(t, &copies[i]);
    make_rates(t, &s, d, &l, kept);
    rvli_block ruled = rvli_delta_rule_forward(t, d, kept);
    norm_forward(t, &s, d, ruled, kept);
    rvli_block output = rvli_activation(t, s.hidden);
    rvli_block *dropped[] = {&l.all,        &l.both_rates,  &l.wide_q,    &l.wide_k, &l.gate,
                             &l.beta_input, &l.decay_input, &l.activated, &l.decay};
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
        rvli_release(t, dropped[i]);
    if (!kept) {
        rvli_release(t, &d->beta);
        rvli_release(t, &d->output);
        rvli_release(t, &layer->attention_input);
    }
    return output;
}

/* ---- Backward ---- */

/* Answers the product of a projection's weight. *of_output is then what the caller releases. */
static rvli_block projected_backward(rvli_training *t, rvli_unit *unit, rvli_role role,
                                     uint64_t bytes)
{
    rvli_gradient(t, unit, role);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    return rvli_activation(t, bytes);
}

/* From the gradient of the net's output, which its caller has, to those of what the rule gave and
 * of the gate. */
static rvli_block norm_backward(rvli_training *t, const sizes *s, rvli_unit *unit, rvli_delta *d,
                                rvli_block *of_gate)
{
    uint64_t full = 2 * s->values, width = t->model->dim[RVLI_DIM_DELTA_HEAD];
    rvli_block of_output = projected_backward(t, unit, RVLI_ROLE_DELTA_OUT, s->values);
    rvli_release(t, &d->output);
    rvli_block of_gated = rvli_next(t, full, &of_output);
    rvli_block of_activated = rvli_activation(t, full);
    rvli_block in_full = rvli_activation(t, full);
    rvli_block of_weighted = rvli_next(t, s->values, &in_full);
    rvli_release(t, &of_gated);
    rvli_release(t, &d->activated_gate);
    rvli_release(t, &d->weighted);
    rvli_block of_full_gate = rvli_next(t, full, &of_activated);
    rvli_release(t, &d->gate);
    *of_gate = rvli_next(t, s->values, &of_full_gate);
    rvli_block of_normed = rvli_activation(t, s->values);
    rvli_block of_weight = rvli_activation(t, s->values);
    rvli_gradient_summed(t, unit, RVLI_ROLE_DELTA_NORM, norm_rows(t), width);
    rvli_release(t, &of_weight);
    rvli_release(t, &of_weighted);
    rvli_release(t, &d->norm.normed);
    rvli_block of_scaled = rvli_next(t, full, &of_normed);
    rvli_block of_input = rvli_norm_scaled_backward(t, norm_rows(t), width, &d->norm, of_scaled);
    return rvli_next(t, s->values, &of_input);
}

/* q, k and v in fp32 back to bf16, and to their own heads. */
static void narrow(rvli_training *t, const sizes *s, rvli_delta_gradients *g)
{
    g->v = rvli_next(t, s->values, &g->v);
    g->k = rvli_next(t, s->wide_keys, &g->k);
    g->q = rvli_next(t, s->wide_keys, &g->q);
    if (s->wide_keys == s->keys)
        return;
    g->k = rvli_next(t, s->keys, &g->k);
    g->q = rvli_next(t, s->keys, &g->q);
}

/* Through decay and beta back to what was projected. */
static void rates_backward(rvli_training *t, const sizes *s, rvli_unit *unit, rvli_delta *d,
                           rvli_delta_gradients *g)
{
    rvli_block of_soft = rvli_activation(t, 2 * s->rates);
    rvli_block of_rate = rvli_next(t, 2 * s->rates, &g->decay);
    rvli_release(t, &of_rate);
    rvli_release(t, &d->decay);
    rvli_block of_sum = rvli_next(t, 2 * s->rates, &of_soft);
    rvli_release(t, &d->decay_input);
    rvli_gradient(t, unit, RVLI_ROLE_DELTA_BIAS);
    g->decay = rvli_next(t, s->rates, &of_sum);
    rvli_gradient(t, unit, RVLI_ROLE_DELTA_RATE);
    g->beta = rvli_next(t, s->rates, &g->beta);
    rvli_release(t, &d->beta);
}

/* Answers the gradient of what was convolved; takes those of q, k and v. */
static rvli_block convolved_backward(rvli_training *t, const sizes *s, rvli_unit *unit,
                                     rvli_delta *d, rvli_delta_gradients *g)
{
    g->v = rvli_next(t, s->values, &g->v);
    rvli_block of_activated = rvli_activation(t, s->mixed);
    rvli_release(t, &g->q);
    rvli_release(t, &g->k);
    rvli_release(t, &g->v);
    rvli_block of_part = rvli_next(t, s->mixed, &of_activated);
    rvli_release(t, &d->convolved);
    rvli_block of_convolved = rvli_next(t, s->convolved, &of_part);
    rvli_block by_channels = rvli_activation(t, s->mixed);
    rvli_gradient(t, unit, RVLI_ROLE_DELTA_CONV);
    rvli_block of_projected = rvli_next(t, s->mixed, &by_channels);
    rvli_release(t, &of_convolved);
    rvli_release(t, &d->projected);
    return of_projected;
}

/* Answers that of the input. */
static rvli_block split_backward(rvli_training *t, const sizes *s, uint32_t number,
                                 rvli_delta_gradients *g, rvli_block *of_gate,
                                 rvli_block *of_projected)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_sum sum = {0};
    const struct {
        rvli_role role;
        rvli_block *of_output;
    } parts[] = {{RVLI_ROLE_DELTA_DECAY, &g->decay},
                 {RVLI_ROLE_DELTA_BETA, &g->beta},
                 {RVLI_ROLE_DELTA_GATE, of_gate},
                 {RVLI_ROLE_DELTA_QKV, of_projected}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        /* Of several sequences it lies by channels, and a product needs it by rows. */
        if (parts[i].of_output == of_projected && t->options->micro_batch > 1)
            *of_projected = rvli_next(t, s->mixed, of_projected);
        rvli_block product = projected_backward(t, unit, parts[i].role, s->hidden);
        rvli_release(t, parts[i].of_output);
        if (parts[i].of_output == of_projected)
            rvli_release(t, &layer->attention_input);
        rvli_add(t, &sum, &product, true);
    }
    return sum.block;
}

static rvli_block joined_backward(rvli_training *t, const sizes *s, uint32_t number,
                                  rvli_delta_gradients *g, rvli_block *of_gate,
                                  rvli_block *of_projected)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_sum sum = {0};
    rvli_block of_rates = rvli_activation(t, 2 * s->rates);
    rvli_release(t, &g->decay);
    rvli_release(t, &g->beta);
    rvli_block of_all = rvli_next(t, s->mixed + s->values, of_projected);
    rvli_release(t, of_gate);
    rvli_block product = projected_backward(t, unit, RVLI_ROLE_DELTA_BETA, s->hidden);
    rvli_release(t, &of_rates);
    rvli_add(t, &sum, &product, true);
    product = projected_backward(t, unit, RVLI_ROLE_DELTA_QKV, s->hidden);
    rvli_release(t, &of_all);
    rvli_release(t, &layer->attention_input);
    rvli_add(t, &sum, &product, true);
    return sum.block;
}

rvli_block rvli_delta_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_delta *d = &t->layers[number].delta;
    rvli_unit *unit = &t->units[number];
    const sizes s = sizes_of(t);
    rvli_delta_gradients g = {0};
    rvli_block of_gate = NULL;
    rvli_block of_ruled = norm_backward(t, &s, unit, d, &of_gate);
    rvli_release(t, &of_output);
    rvli_delta_rule_backward(t, d, &of_ruled, &g);
    rvli_block of_beta = rvli_next(t, s.rates, &g.beta);
    g.beta = of_beta;
    narrow(t, &s, &g);
    rates_backward(t, &s, unit, d, &g);
    rvli_block of_projected = convolved_backward(t, &s, unit, d, &g);
    return (is_split(t) ? split_backward : joined_backward)(t, &s, number, &g, &of_gate,
                                                            &of_projected);
}
