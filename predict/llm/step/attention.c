/* SPDX-License-Identifier: MIT */
/*
 * Attention of a decoder layer: projections, norms of q and k where a family has them, rotary
 * positions, and around scaled_dot_product_attention (sdpa.c).
 */
#include "predict/llm/step/training.h"

static uint64_t q_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * rvli_dim_here(t, RVLI_DIM_Q);
}

static uint64_t kv_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * rvli_dim_here(t, RVLI_DIM_KV);
}

/* ---- Forward ---- */

static rvli_block normed(rvli_training *t, rvli_block projected, uint64_t heads, rvli_norm *norm,
                         bool kept)
{
    rvli_block output = rvli_norm_forward(t, t->tokens * heads, rvli_dim_here(t, RVLI_DIM_HEAD),
                                          kept ? norm : NULL);
    rvli_release(t, &projected);
    return output;
}

/* x * cos + rotated(x) * sin. */
static rvli_block rotated(rvli_training *t, rvli_block projected)
{
    uint64_t bytes = rvli_bytes_of(projected);
    rvli_block by_cosine = rvli_activation(t, bytes);
    rvli_block negated = rvli_activation(t, bytes / 2);
    rvli_block turned = rvli_next(t, bytes, &negated);
    rvli_block by_sine = rvli_next(t, bytes, &turned);
    rvli_block sum = rvli_activation(t, bytes);
    rvli_release(t, &by_cosine);
    rvli_release(t, &by_sine);
    rvli_release(t, &projected);
    return sum;
}

/* From what was projected. */
static rvli_block normed_v(rvli_training *t, rvli_layer *layer, rvli_block *projected, bool kept)
{
    rvli_block v = rvli_norm_plain_forward(t, t->tokens * rvli_kv_heads_here(t),
                                           rvli_dim_here(t, RVLI_DIM_HEAD),
                                           kept ? &layer->streams.v_norm : NULL);
    rvli_release(t, projected);
    return v;
}

/* Gemma 4 projects k and v before both are normed, or k alone for both. */
static void both_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    uint64_t heads = rvli_kv_heads_here(t);
    bool shared = rvli_layer_is(t->model, number, RVLI_LAYER_KEYS_AS_VALUES);
    rvli_block k = rvli_linear_forward(t, RVLI_ROLE_K);
    rvli_block v = shared ? NULL : rvli_linear_forward(t, RVLI_ROLE_V);
    rvli_block output = rvli_norm_forward(t, t->tokens * heads, rvli_dim_here(t, RVLI_DIM_HEAD),
                                          kept ? &layer->k_norm : NULL);
    if (shared)
        v = k;
    else
        rvli_release(t, &k);
    layer->k = rotated(t, output);
    layer->v = normed_v(t, layer, &v, kept);
}

/* Gemma 3n and 4: one after the other, with a norm of v; the last layers have no keys of their own.
 */
static void in_turn_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block q = rvli_linear_forward(t, RVLI_ROLE_Q);
    layer->q = rotated(t, normed(t, q, t->model->heads, &layer->q_norm, kept));
    if (!rvli_layer_is(t->model, number, RVLI_LAYER_KEYS))
        return;
    if (rvli_is_scaled(t)) {
        both_forward(t, number, kept);
        return;
    }
    rvli_block k = rvli_linear_forward(t, RVLI_ROLE_K);
    layer->k = rotated(t, normed(t, k, rvli_kv_heads_here(t), &layer->k_norm, kept));
    rvli_block v = rvli_linear_forward(t, RVLI_ROLE_V);
    layer->v = normed_v(t, layer, &v, kept);
}

/* Whether later layers of the same kind use its keys; Gemma 4 holds the last ones of each kind even
 * if none does. */
static bool shares_keys(const rvli_training *t, uint32_t number)
{
    const rvl_model *model = t->model;
    bool windowed = rvli_layer_is(model, number, RVLI_LAYER_WINDOW), shared = rvli_is_scaled(t);
    if (!rvli_layer_is(model, number, RVLI_LAYER_KEYS))
        return false;
    for (uint32_t later = number + 1; later < model->layers; later++) {
        if (rvli_layer_is(model, later, RVLI_LAYER_WINDOW) != windowed)
            continue;
        if (rvli_layer_is(model, later, RVLI_LAYER_KEYS))
            return false;
        shared = true;
    }
    return shared;
}

/* A dictionary holds them until the forward pass ends, or, recomputing, the backward pass of their
 * layer: then it has them alone. */
static void hold_keys(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    bool windowed = rvli_layer_is(t->model, number, RVLI_LAYER_WINDOW);
    bool again = kept && (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    bool copied = layer->wide_k != NULL || !kept;
    if (again || !copied || !shares_keys(t, number))
        return;
    t->streams.keys[windowed] = layer->k;
    t->streams.values[windowed] = layer->v;
    layer->k = NULL;
    layer->v = NULL;
}

rvli_block rvli_attention_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    in_turn_forward(t, number, kept);
    rvli_sdpa_forward(t, layer, kept);
    hold_keys(t, number, kept);
    rvli_block output = rvli_linear_forward(t, RVLI_ROLE_O);
    rvli_sdpa_done(t, layer, kept);
    if (!kept && !rvli_has_streams(t)) /* which need it later */
        rvli_release(t, &layer->attention_input);
    return output;
}

/* ---- Backward ---- */

/* Takes the gradient of what was rotated, and answers that of what it was. angles: which go; NULL:
 * none, others need them. */
static rvli_block rotate_backward(rvli_training *t, uint64_t bytes, rvli_block *gradient,
                                  rvli_block *angles)
{
    rvli_block by_sine = rvli_activation(t, bytes);
    if (angles != NULL)
        rvli_release(t, &angles[RVLI_ROTARY_SINE]);
    rvli_block negated = rvli_activation(t, bytes / 2);
    rvli_block first_half = rvli_activation(t, bytes);
    rvli_release(t, &negated);
    rvli_block second_half = rvli_activation(t, bytes);
    rvli_release(t, &by_sine);
    rvli_release(t, &negated);
    rvli_release(t, &second_half);
    rvli_block by_cosine = rvli_activation(t, bytes);
    rvli_release(t, gradient);
    if (angles != NULL)
        rvli_release(t, &angles[RVLI_ROTARY_COSINE]);
    rvli_release(t, &by_cosine);
    return first_half;
}

/* Those of keys that layers share add up until the layer comes that made them. */
static void share_backward(rvli_training *t, uint32_t number, rvli_attention_gradients *of)
{
    rvli_streams *s = &t->streams;
    bool windowed = rvli_layer_is(t->model, number, RVLI_LAYER_WINDOW);
    rvli_block *sums[] = {&s->of_keys[windowed], &s->of_values[windowed]};
    rvli_block *parts[] = {&of->k, &of->v};
    bool own = rvli_layer_is(t->model, number, RVLI_LAYER_KEYS);
    for (int i = 0; i < 2; i++) {
        if (own && shares_keys(t, number)) {
            rvli_release(t, sums[i]);
        } else if (!own && *sums[i] == NULL) {
            *sums[i] = *parts[i];
            *parts[i] = NULL;
        } else if (!own) {
            rvli_release(t, parts[i]);
        }
    }
    if (own && shares_keys(t, number)) {
        rvli_release(t, &s->keys[windowed]);
        rvli_release(t, &s->values[windowed]);
    }
}

/* The angles that go with this layer: Gemma 4's with the first layer of their kind. */
static rvli_block *last_angles(rvli_training *t, uint32_t number)
{
    bool windowed = rvli_layer_is(t->model, number, RVLI_LAYER_WINDOW);
    if (!rvli_is_scaled(t))
        return number == 0 ? t->rotary : NULL;
    for (uint32_t lower = 0; lower < number; lower++) {
        if (rvli_layer_is(t->model, lower, RVLI_LAYER_WINDOW) == windowed)
            return NULL;
    }
    return windowed ? t->rotary : t->streams.rotary;
}

/* From the gradient of q or k as attention got it to that of what was projected. */
static rvli_block in_turn_normed_backward(rvli_training *t, uint32_t number, rvli_role role,
                                          rvli_block *gradient)
{
    rvli_layer *layer = &t->layers[number];
    bool is_q = role == RVLI_ROLE_Q;
    uint64_t heads = is_q ? t->model->heads : rvli_kv_heads_here(t);
    rvli_block rotated = rotate_backward(t, is_q ? q_bytes(t) : kv_bytes(t), gradient,
                                         is_q ? last_angles(t, number) : NULL);
    return rvli_norm_backward(t, t->tokens * heads, rvli_dim_here(t, RVLI_DIM_HEAD),
                              is_q ? &layer->q_norm : &layer->k_norm, &t->units[number],
                              is_q ? RVLI_ROLE_Q_NORM : RVLI_ROLE_K_NORM, rotated);
}

/* From there to a part of the input's, which goes with q unless streams need it later. */
static void in_turn_linear_backward(rvli_training *t, uint32_t number, rvli_role role,
                                    rvli_block *projected, rvli_sum *of_input)
{
    rvli_block part = rvli_linear_backward(t, number, role, RVLI_ROLE_OTHER);
    rvli_release(t, projected);
    if (role == RVLI_ROLE_Q && !rvli_has_streams(t))
        rvli_release(t, &t->layers[number].attention_input);
    rvli_add(t, of_input, &part, true);
}

static void keys_backward(rvli_training *t, uint32_t number, rvli_attention_gradients *of,
                          rvli_sum *of_input)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block v =
        rvli_norm_plain_backward(t, t->tokens * rvli_kv_heads_here(t),
                                 rvli_dim_here(t, RVLI_DIM_HEAD), &layer->streams.v_norm, of->v);
    bool shared = rvli_layer_is(t->model, number, RVLI_LAYER_KEYS_AS_VALUES);
    if (!rvli_is_scaled(t))
        in_turn_linear_backward(t, number, RVLI_ROLE_V, &v, of_input);
    rvli_block k = in_turn_normed_backward(t, number, RVLI_ROLE_K, &of->k);
    if (rvli_is_scaled(t) && !shared) { /* it lies by heads */
        v = rvli_next(t, kv_bytes(t), &v);
        in_turn_linear_backward(t, number, RVLI_ROLE_V, &v, of_input);
    }
    if (shared)
        k = rvli_next(t, kv_bytes(t), &k); /* the sum of both */
    rvli_release(t, &v);
    in_turn_linear_backward(t, number, RVLI_ROLE_K, &k, of_input);
}

static void in_turn_backward(rvli_training *t, uint32_t number, rvli_attention_gradients *of,
                             rvli_sum *of_input)
{
    share_backward(t, number, of);
    if (rvli_layer_is(t->model, number, RVLI_LAYER_KEYS))
        keys_backward(t, number, of, of_input);
    rvli_block q = in_turn_normed_backward(t, number, RVLI_ROLE_Q, &of->q);
    in_turn_linear_backward(t, number, RVLI_ROLE_Q, &q, of_input);
}

rvli_block rvli_attention_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_sum of_attended = {0}, of_input = {0};
    rvli_block part = rvli_linear_backward(t, number, RVLI_ROLE_O, RVLI_ROLE_O_BIAS);
    rvli_release(t, &of_output);
    rvli_add(t, &of_attended, &part, true);
    rvli_attention_gradients of = {0};
    rvli_sdpa_backward(t, layer, &of_attended.block, &of);
    in_turn_backward(t, number, &of, &of_input);
    return of_input.block;
}
