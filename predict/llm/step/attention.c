/* SPDX-License-Identifier: MIT */
/*
 * Attention of a decoder layer: projections, norms of q and k where a family has them, rotary
 * positions, and around scaled_dot_product_attention (sdpa.c).
 */
#include "predict/llm/step/training.h"

static uint64_t q_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_Q];
}

static uint64_t kv_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_KV];
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

static bool has_norms(const rvli_training *t)
{
    return (t->model->features & RVLI_QK_NORM) != 0;
}

/* Below the first layer nothing is trained: k has a gradient if an adapter made it. */
static bool has_gradient_of_k(const rvli_training *t, uint32_t number)
{
    return rvli_wants_gradient(t, number, RVLI_ROLE_K) || rvli_is_adapted(t, number, RVLI_ROLE_K);
}

/* ---- Forward ---- */

static rvli_block normed(rvli_training *t, rvli_block projected, uint64_t heads, rvli_norm *norm,
                         bool kept)
{
    if (!has_norms(t))
        return projected;
    rvli_block output =
        rvli_norm_forward(t, t->tokens * heads, t->model->dim[RVLI_DIM_HEAD], kept ? norm : NULL);
    rvli_release(t, &projected);
    return output;
}

/* x * cos + rotated(x) * sin */
static rvli_block rotate(rvli_training *t, uint64_t bytes)
{
    rvli_block by_cosine = rvli_activation(t, bytes);
    rvli_block negated = rvli_activation(t, bytes / 2);
    rvli_block rotated = rvli_activation(t, bytes);
    rvli_release(t, &negated);
    rvli_block by_sine = rvli_activation(t, bytes);
    rvli_release(t, &rotated);
    rvli_block sum = rvli_activation(t, bytes);
    rvli_release(t, &by_cosine);
    rvli_release(t, &by_sine);
    return sum;
}

/* What latent attention keeps is known, its order is not: it is one block. */
static rvli_block latent_forward(rvli_training *t, rvli_layer *layer, bool kept)
{
    layer->latent = rvli_activation(t, t->tokens * rvli_attention_kept_bytes(t->model));
    rvli_block output = rvli_activation(t, hidden_bytes(t));
    if (!kept) {
        rvli_release(t, &layer->latent);
        rvli_release(t, &layer->attention_input);
    }
    return output;
}

rvli_block rvli_attention_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    if (t->model->features & RVLI_MLA)
        return latent_forward(t, layer, kept);
    rvli_block q = rvli_linear_forward(t, number, RVLI_ROLE_Q, kept);
    if (t->model->features & RVLI_QKV_BIAS)
        rvli_workspace(t,
                       layer->input == NULL ? RVLI_WORKSPACE_BIAS : RVLI_WORKSPACE_RECOMPUTED_BIAS);
    q = normed(t, q, t->model->heads, &layer->q_norm, kept);
    rvli_block k = rvli_linear_forward(t, number, RVLI_ROLE_K, kept);
    k = normed(t, k, t->model->kv_heads, &layer->k_norm, kept && has_gradient_of_k(t, number));
    layer->v = rvli_linear_forward(t, number, RVLI_ROLE_V, kept);
    layer->q = rotate(t, q_bytes(t));
    layer->k = rotate(t, kv_bytes(t));
    rvli_release(t, &q);
    rvli_release(t, &k);
    rvli_sdpa_forward(t, layer, kept);
    rvli_block output = rvli_linear_forward(t, number, RVLI_ROLE_O, kept);
    rvli_sdpa_done(t, layer, kept);
    if (!kept || rvli_is_frozen(t))
        rvli_release(t, &layer->attention_input);
    return output;
}

/* ---- Backward ---- */

/* Takes the gradient of what was rotated, and answers that of what it was. The last frees the
 * angles. */
static rvli_block rotate_backward(rvli_training *t, uint64_t bytes, rvli_block gradient, bool last)
{
    rvli_block by_sine = rvli_activation(t, bytes);
    if (last)
        rvli_release(t, &t->rotary[RVLI_ROTARY_SINE]);
    rvli_block negated = rvli_activation(t, bytes / 2);
    rvli_block first_half = rvli_activation(t, bytes);
    rvli_release(t, &negated);
    rvli_block second_half = rvli_activation(t, bytes);
    rvli_release(t, &by_sine);
    rvli_release(t, &second_half);
    rvli_block by_cosine = rvli_activation(t, bytes);
    rvli_release(t, &gradient);
    if (last)
        rvli_release(t, &t->rotary[RVLI_ROTARY_COSINE]);
    rvli_release(t, &by_cosine);
    return first_half;
}

/* q and k: through their norm, and made contiguous. */
static rvli_block normed_backward(rvli_training *t, rvli_unit *unit, uint64_t bytes, uint64_t heads,
                                  rvli_norm *norm, rvli_role role, rvli_block gradient)
{
    if (has_norms(t))
        gradient = rvli_norm_backward(t, t->tokens * heads, t->model->dim[RVLI_DIM_HEAD], norm,
                                      unit, role, gradient);
    rvli_block contiguous = rvli_activation(t, bytes);
    rvli_release(t, &gradient);
    return contiguous;
}

static rvli_block latent_backward(rvli_training *t, rvli_layer *layer)
{
    rvli_block of_input = rvli_activation(t, hidden_bytes(t));
    rvli_block passing = rvli_activation(t, 2 * q_bytes(t));
    rvli_release(t, &passing);
    rvli_release(t, &layer->latent);
    rvli_release(t, &layer->attention_input);
    return of_input;
}

static void k_backward(rvli_training *t, uint32_t number, rvli_block of_k, rvli_sum *of_input)
{
    rvli_layer *layer = &t->layers[number];
    of_k = normed_backward(t, &t->units[number], kv_bytes(t), t->model->kv_heads, &layer->k_norm,
                           RVLI_ROLE_K_NORM, of_k);
    rvli_block part =
        rvli_linear_backward(t, number, RVLI_ROLE_K, RVLI_ROLE_K_BIAS, &of_k, of_input);
    rvli_release(t, &of_k);
    rvli_add(t, of_input, &part, true);
}

rvli_block rvli_attention_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_sum of_attended = {0}, of_input = {0};
    rvli_block of_output = NULL; /* the flow's, which stays */
    if (t->model->features & RVLI_MLA) {
        rvli_gradient(t, &t->units[number], RVLI_ROLE_O);
        return latent_backward(t, layer);
    }
    rvli_block part =
        rvli_linear_backward(t, number, RVLI_ROLE_O, RVLI_ROLE_OTHER, &of_output, &of_attended);
    rvli_release(t, &of_output);
    rvli_add(t, &of_attended, &part, true);
    if (!rvli_wants_gradient(t, number, RVLI_ROLE_Q)) /* nor does the residual */
        rvli_release(t, &t->flow);
    rvli_attention_gradients of = {0};
    rvli_sdpa_backward(t, layer, &of_attended.block, &of);
    if (has_gradient_of_k(t, number))
        of.k = rotate_backward(t, kv_bytes(t), of.k, false);
    else
        rvli_release(t, &of.k);
    of.q = rotate_backward(t, q_bytes(t), of.q, number == 0);
    part = rvli_linear_backward(t, number, RVLI_ROLE_V, RVLI_ROLE_V_BIAS, &of.v, &of_input);
    rvli_release(t, &of.v);
    rvli_add(t, &of_input, &part, true);
    if (has_gradient_of_k(t, number))
        k_backward(t, number, of.k, &of_input);
    of.q = normed_backward(t, &t->units[number], q_bytes(t), t->model->heads, &layer->q_norm,
                           RVLI_ROLE_Q_NORM, of.q);
    part = rvli_linear_backward(t, number, RVLI_ROLE_Q, RVLI_ROLE_Q_BIAS, &of.q, &of_input);
    rvli_release(t, &of.q);
    rvli_release(t, &layer->attention_input);
    rvli_add(t, &of_input, &part, true);
    return of_input.block;
}
