/* SPDX-License-Identifier: MIT */
/*
 * Attention of a decoder layer: projections, norms of q and k where a family has them, rotary
 * positions, and scaled_dot_product_attention by cuDNN, which PyTorch takes first on Hopper and
 * later.
 *
 * cuDNN's backward pass has a workspace: a copy in fp32 of what the gradient of q adds up in, as
 * much for each part of the sequence that runs at once (two), and the sums of each row once more.
 */
#include "predict/llm/step/training.h"

#define SEEDS_BYTES 256

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

static uint64_t sums_bytes(const rvli_training *t)
{
    return RVLI_FULL * t->tokens * t->model->heads;
}

static bool has_norms(const rvli_training *t)
{
    return (t->model->features & RVLI_QK_NORM) != 0;
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

rvli_block rvli_attention_forward(rvli_training *t, rvli_layer *layer, bool kept)
{
    if (t->model->features & RVLI_MLA)
        return latent_forward(t, layer, kept);
    rvli_block q = rvli_activation(t, q_bytes(t));
    if (t->model->features & RVLI_QKV_BIAS)
        rvli_workspace(t,
                       layer->input == NULL ? RVLI_WORKSPACE_BIAS : RVLI_WORKSPACE_RECOMPUTED_BIAS);
    q = normed(t, q, t->model->heads, &layer->q_norm, kept);
    rvli_block k = rvli_activation(t, kv_bytes(t));
    k = normed(t, k, t->model->kv_heads, &layer->k_norm, kept);
    layer->v = rvli_activation(t, kv_bytes(t));
    layer->q = rotate(t, q_bytes(t));
    layer->k = rotate(t, kv_bytes(t));
    rvli_release(t, &q);
    rvli_release(t, &k);
    layer->attended = rvli_activation(t, q_bytes(t));
    layer->sums = rvli_activation(t, sums_bytes(t));
    if (!kept)
        rvli_release(t, &layer->sums);
    rvli_block output = rvli_activation(t, hidden_bytes(t));
    if (!kept) {
        rvli_release(t, &layer->attended);
        rvli_release(t, &layer->q);
        rvli_release(t, &layer->k);
        rvli_release(t, &layer->v);
        rvli_release(t, &layer->attention_input);
    }
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

/* Of one projection: a linear layer without a bias has its weight's gradient first. */
static rvli_block project_backward(rvli_training *t, rvli_unit *unit, rvli_role weight,
                                   rvli_role bias, uint64_t width)
{
    if (unit->by_role[bias] == 0)
        rvli_gradient(t, unit, weight);
    rvli_block of_input = rvli_activation(t, hidden_bytes(t));
    if (unit->by_role[bias] != 0) {
        rvli_gradient(t, unit, weight);
        rvli_gradient_summed(t, unit, bias, t->tokens, width);
    }
    return of_input;
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

rvli_block rvli_attention_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_gradient(t, unit, RVLI_ROLE_O);
    if (t->model->features & RVLI_MLA)
        return latent_backward(t, layer);
    rvli_block of_attended = rvli_activation(t, q_bytes(t));
    rvli_block of_q = rvli_activation(t, q_bytes(t));
    rvli_block of_k = rvli_activation(t, kv_bytes(t));
    rvli_block of_v = rvli_activation(t, kv_bytes(t));
    rvli_block workspace = rvli_activation(t, 4 * q_bytes(t) + sums_bytes(t) + SEEDS_BYTES);
    rvli_release(t, &workspace);
    rvli_release(t, &of_attended);
    rvli_release(t, &layer->k);
    rvli_release(t, &layer->q);
    rvli_release(t, &layer->v);
    rvli_release(t, &layer->sums);
    rvli_release(t, &layer->attended);
    of_k = rotate_backward(t, kv_bytes(t), of_k, false);
    of_q = rotate_backward(t, q_bytes(t), of_q, number == 0);

    uint64_t width = t->model->dim[RVLI_DIM_KV];
    rvli_block by_v = project_backward(t, unit, RVLI_ROLE_V, RVLI_ROLE_V_BIAS, width);
    rvli_release(t, &of_v);
    of_k = normed_backward(t, unit, kv_bytes(t), t->model->kv_heads, &layer->k_norm,
                           RVLI_ROLE_K_NORM, of_k);
    rvli_block by_k = project_backward(t, unit, RVLI_ROLE_K, RVLI_ROLE_K_BIAS, width);
    rvli_release(t, &of_k);
    rvli_block sum = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, &by_v);
    rvli_release(t, &by_k);
    of_q = normed_backward(t, unit, q_bytes(t), t->model->heads, &layer->q_norm, RVLI_ROLE_Q_NORM,
                           of_q);
    rvli_block by_q =
        project_backward(t, unit, RVLI_ROLE_Q, RVLI_ROLE_Q_BIAS, t->model->dim[RVLI_DIM_Q]);
    rvli_release(t, &of_q);
    rvli_release(t, &layer->attention_input);
    rvli_release(t, &by_q); /* added in place */
    return sum;
}
