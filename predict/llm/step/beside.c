/* SPDX-License-Identifier: MIT */
/*
 * Experts beside an MLP (Gemma 4's 26B-A4B, modeling_gemma4.py): both are in every layer, each with
 * a norm behind it, and what they give is added up.
 *
 * The router sees the residual through a norm without a weight and two factors. It takes the
 * softmax of all logits in fp32, then the best, divides them by their sum in place (which keeps a
 * copy of what they were), and multiplies them by a number of each expert. The experts see the
 * residual through a norm of their own.
 */
#include "predict/llm/step/training.h"

#define INDEX_BYTES UINT64_C(8)

bool rvli_has_beside(const rvli_training *t)
{
    return rvli_is_scaled(t) && t->model->experts > 0;
}

static uint64_t width(const rvli_training *t)
{
    return t->model->dim[RVLI_DIM_HIDDEN];
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * width(t);
}

/* Of all tokens and experts; of the chosen alone. */
static uint64_t pairs(const rvli_training *t)
{
    return t->tokens * t->model->experts;
}

static uint64_t chosen(const rvli_training *t)
{
    return t->tokens * t->model->experts_per_token;
}

/* ---- Forward ---- */

/* What the router's product takes. */
static void router_input_forward(rvli_training *t, rvli_beside *b, bool kept)
{
    b->normed = rvli_norm_plain_forward(t, t->tokens, width(t), kept ? &b->router : NULL);
    rvli_block scaled = rvli_activation(t, hidden_bytes(t));
    b->input = rvli_next(t, hidden_bytes(t), &scaled);
    rvli_leave(t, &b->normed, kept);
}

static void router_forward(rvli_training *t, rvli_beside *b, rvli_experts *e, bool kept)
{
    router_input_forward(t, b, kept);
    rvli_block logits = rvli_activation(t, RVLI_HALF * pairs(t));
    rvli_block full = rvli_activation(t, RVLI_FULL * pairs(t));
    e->scores = rvli_next(t, RVLI_FULL * pairs(t), &full);
    b->values = rvli_activation(t, RVLI_FULL * chosen(t));
    e->indices = rvli_activation(t, INDEX_BYTES * chosen(t));
    e->divided = rvli_activation(t, RVLI_FULL * t->tokens); /* their sum */
    b->before = rvli_activation(t, RVLI_FULL * chosen(t));
    b->factors = rvli_activation(t, RVLI_HALF * chosen(t));
    e->weights = rvli_activation(t, RVLI_FULL * chosen(t));
    rvli_block *all[] = {&b->values, &b->before, &b->factors, &b->input};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_leave(t, all[i], kept);
    rvli_release(t, &logits);
}

rvli_block rvli_beside_forward(rvli_training *t, uint32_t number, rvli_block given, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_beside *b = &layer->beside;
    if (!rvli_has_beside(t))
        return given;
    b->named[0] = rvli_norm_forward(t, t->tokens, width(t), kept ? &b->behind_mlp : NULL);
    router_forward(t, b, &layer->experts, kept);
    rvli_block tokens = rvli_norm_forward(t, t->tokens, width(t), kept ? &b->before_experts : NULL);
    rvli_block routed = rvli_experts_run(t, &layer->experts, kept);
    rvli_release(t, &tokens);
    b->named[1] = rvli_norm_forward(t, t->tokens, width(t), kept ? &b->behind_experts : NULL);
    rvli_release(t, &routed);
    return rvli_next(t, hidden_bytes(t), &given);
}

void rvli_beside_done(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    if (!rvli_has_beside(t))
        return;
    rvli_release(t, &layer->beside.named[0]);
    rvli_release(t, &layer->beside.named[1]);
    rvli_release(t, &layer->experts.weights);
    if (!kept)
        rvli_experts_drop(t, &layer->experts);
}

/* ---- Backward ---- */

/* Of the logits, from that of the weights of the chosen. */
static rvli_block logits_backward(rvli_training *t, rvli_beside *b, rvli_experts *e)
{
    rvli_block of_factors = rvli_activation(t, RVLI_FULL * chosen(t));
    rvli_block of_values = rvli_activation(t, RVLI_FULL * chosen(t));
    rvli_release(t, &of_factors);
    rvli_release(t, &b->factors);
    rvli_release(t, &b->values);
    rvli_block of_before = rvli_next(t, RVLI_FULL * chosen(t), &of_values);
    rvli_release(t, &b->before);
    rvli_release(t, &e->divided);
    rvli_block of_scores = rvli_next(t, RVLI_FULL * pairs(t), &of_before);
    rvli_release(t, &e->indices);
    rvli_block of_full = rvli_activation(t, RVLI_FULL * pairs(t));
    rvli_block works = rvli_activation(t, RVLI_FULL * pairs(t));
    rvli_release(t, &works);
    rvli_release(t, &of_scores);
    rvli_release(t, &e->scores);
    return rvli_next(t, RVLI_HALF * pairs(t), &of_full);
}

/* Its part of the gradient of the residual is added in place. */
static void router_backward(rvli_training *t, rvli_unit *unit, rvli_beside *b, rvli_experts *e)
{
    rvli_block of_logits = logits_backward(t, b, e);
    rvli_gradient(t, unit, RVLI_ROLE_ROUTER);
    rvli_block of_input = rvli_next(t, hidden_bytes(t), &of_logits);
    rvli_release(t, &b->input);
    rvli_block of_scaled = rvli_next(t, hidden_bytes(t), &of_input);
    rvli_block of_normed = rvli_activation(t, hidden_bytes(t));
    rvli_block of_scale = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, &of_scale);
    rvli_release(t, &of_scaled);
    rvli_release(t, &b->normed);
    rvli_block part = rvli_norm_plain_backward(t, t->tokens, width(t), &b->router, of_normed);
    rvli_release(t, &part);
}

rvli_block rvli_beside_backward(rvli_training *t, uint32_t number, rvli_block of_sum)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_beside *b = &layer->beside;
    if (!rvli_has_beside(t))
        return of_sum;
    rvli_block gradient =
        rvli_norm_backward(t, t->tokens, width(t), &b->behind_experts, unit, RVLI_ROLE_OTHER, NULL);
    gradient = rvli_experts_run_backward(t, number, gradient);
    gradient = rvli_norm_backward(t, t->tokens, width(t), &b->before_experts, unit, RVLI_ROLE_OTHER,
                                  gradient);
    router_backward(t, unit, b, &layer->experts);
    rvli_release(t, &gradient); /* added in place */
    rvli_experts_drop(t, &layer->experts);
    return rvli_norm_backward(t, t->tokens, width(t), &b->behind_mlp, unit, RVLI_ROLE_OTHER,
                              of_sum);
}
