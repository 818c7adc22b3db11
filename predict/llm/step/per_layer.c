/* SPDX-License-Identifier: MIT */
/*
 * An embedding of each token for each layer (Gemma 3n and 4): those of all layers lie in one
 * tensor, made from the tokens and from a projection of the embedded tokens.
 *
 * In Gemma 4 (modeling_gemma4.py) a layer projects what it has behind the MLP to the size of its
 * embedding, multiplies both, and adds what a second projection and a norm make of it. Gemma 3n
 * does so with its streams (streams.c).
 */
#include "predict/llm/step/training.h"

bool rvli_has_per_layer(const rvli_training *t)
{
    return (t->model->features & RVLI_PER_LAYER) != 0;
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

static uint64_t one_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_PER_LAYER];
}

static uint64_t all_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_PER_LAYER_ALL];
}

/* ---- Of all layers ---- */

/* Gemma 4 multiplies it by a number, Gemma 3n in place. */
static rvli_block project(rvli_training *t)
{
    rvli_block projected = rvli_activation(t, all_bytes(t));
    rvli_workspace(t, RVLI_WORKSPACE_FORWARD);
    return rvli_is_scaled(t) ? rvli_next(t, all_bytes(t), &projected) : projected;
}

void rvli_per_layer_make(rvli_training *t)
{
    rvli_streams *s = &t->streams;
    uint64_t width = t->model->dim[RVLI_DIM_PER_LAYER];
    if (!rvli_has_per_layer(t))
        return;
    s->embedded = t->embedded; /* which the projection keeps */
    if (rvli_has_streams(t))
        t->embedded = NULL;
    rvli_block found = rvli_activation(t, all_bytes(t));
    rvli_block scaled = rvli_next(t, all_bytes(t), &found);
    rvli_block projected = project(t);
    rvli_block added = rvli_norm_forward(t, t->tokens * t->model->layers, width, &s->norm);
    rvli_release(t, &projected);
    rvli_block sum = rvli_activation(t, all_bytes(t));
    s->embeddings = rvli_next(t, all_bytes(t), &sum);
    rvli_release(t, &added);
    rvli_release(t, &scaled);
}

void rvli_per_layer_part_backward(rvli_training *t)
{
    rvli_block of_all = rvli_activation(t, all_bytes(t));
    if (t->streams.of_embeddings == NULL)
        t->streams.of_embeddings = of_all;
    else
        rvli_release(t, &of_all); /* added in place */
}

void rvli_per_layer_backward(rvli_training *t)
{
    rvli_streams *s = &t->streams;
    uint64_t all = all_bytes(t), width = t->model->dim[RVLI_DIM_PER_LAYER];
    if (!rvli_has_per_layer(t))
        return;
    rvli_block of_sum = rvli_next(t, all, &s->of_embeddings);
    rvli_block of_projected = rvli_norm_backward(t, t->tokens * t->model->layers, width, &s->norm,
                                                 rvli_root(t), RVLI_ROLE_EMBEDDINGS_NORM, NULL);
    rvli_block plain = rvli_next(t, all, &of_projected);
    rvli_gradient(t, rvli_root(t), RVLI_ROLE_EMBEDDINGS_PROJECTION);
    rvli_block of_embedded = rvli_next(t, hidden_bytes(t), &plain);
    rvli_release(t, &s->embedded);
    rvli_release(t, &of_embedded); /* added in place */
    rvli_block of_found = rvli_next(t, all, &of_sum);
    rvli_gradient(t, rvli_root(t), RVLI_ROLE_EMBEDDINGS);
    rvli_release(t, &of_found);
}

/* ---- In a layer of Gemma 4 ---- */

static bool has_part(const rvli_training *t)
{
    return rvli_has_per_layer(t) && !rvli_has_streams(t);
}

rvli_block rvli_per_layer_forward(rvli_training *t, uint32_t number, rvli_block hidden, bool kept)
{
    rvli_layer_streams *s = &t->layers[number].streams;
    if (!has_part(t))
        return hidden;
    s->gate = rvli_activation(t, one_bytes(t));
    s->activated = rvli_activation(t, one_bytes(t));
    rvli_leave(t, &s->gate, kept);
    s->product = rvli_activation(t, one_bytes(t));
    rvli_leave(t, &s->activated, kept);
    rvli_block projected = rvli_activation(t, hidden_bytes(t));
    rvli_leave(t, &s->product, kept);
    rvli_block normed = rvli_norm_forward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN],
                                          kept ? &s->behind_embedding : NULL);
    rvli_release(t, &projected);
    rvli_block sum = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, &normed);
    s->scaled = hidden;
    rvli_leave(t, &s->scaled, kept);
    return sum;
}

void rvli_per_layer_layer_backward(rvli_training *t, uint32_t number)
{
    rvli_layer_streams *s = &t->layers[number].streams;
    rvli_unit *unit = &t->units[number];
    if (!has_part(t))
        return;
    rvli_block of_projected = rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN],
                                                 &s->behind_embedding, unit, RVLI_ROLE_OTHER, NULL);
    rvli_gradient(t, unit, RVLI_ROLE_PER_LAYER_PROJECTION);
    rvli_block of_product = rvli_next(t, one_bytes(t), &of_projected);
    rvli_release(t, &s->product);
    s->of_embedding = rvli_activation(t, one_bytes(t));
    rvli_block of_activated = rvli_next(t, one_bytes(t), &of_product);
    rvli_release(t, &s->activated);
    if (number == 0) /* of which all layers had parts */
        rvli_release(t, &t->streams.embeddings);
    rvli_block of_gate = rvli_next(t, one_bytes(t), &of_activated);
    rvli_release(t, &s->gate);
    rvli_gradient(t, unit, RVLI_ROLE_PER_LAYER_GATE);
    rvli_block part = rvli_next(t, hidden_bytes(t), &of_gate);
    rvli_release(t, &s->scaled);
    rvli_release(t, &part); /* added in place */
}

/* The embedding of a layer was cut out before the layer ran. */
void rvli_per_layer_layer_done(rvli_training *t, uint32_t number)
{
    if (!has_part(t))
        return;
    rvli_per_layer_part_backward(t);
    rvli_release(t, &t->layers[number].streams.of_embedding);
}
