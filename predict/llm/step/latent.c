/* SPDX-License-Identifier: MIT */
/*
 * Latent attention (DeepSeek's): queries, keys and values come from compressed ones.
 *
 * As transformers trains it, keys and values of all heads are made from what is compressed, and
 * attention takes them as any other. Parts with positions are joined to those without, so queries
 * and keys are copies, and values are a view of what the KV up-projection gave.
 */
#include <string.h>

#include "predict/llm/step/training.h"

#define SEEDS_BYTES 256

static uint64_t bytes_of(const rvli_training *t, rvli_dim dim)
{
    return RVLI_HALF * t->tokens * t->model->dim[dim];
}

static bool compresses_q(const rvli_training *t)
{
    return (t->model->features & RVLI_Q_LORA) != 0;
}

/* Parts of all heads of q with positions. */
static uint64_t rotary_bytes(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    return RVLI_HALF * t->tokens * t->model->heads *
           (dim[RVLI_DIM_KV_DOWN] - dim[RVLI_DIM_KV_LORA]);
}

static bool recomputes(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
}

static uint64_t sums_bytes(const rvli_training *t)
{
    return RVLI_FULL * t->tokens * t->model->heads;
}

/* ---- Forward ---- */

/* Takes what was projected, and answers it through its norm. */
static rvli_block compressed(rvli_training *t, rvli_block *projected, rvli_dim width,
                             rvli_norm *norm, bool kept)
{
    rvli_block output = rvli_norm_forward(t, t->tokens, t->model->dim[width], kept ? norm : NULL);
    rvli_release(t, projected);
    return output;
}

static rvli_block project_q(rvli_training *t, rvli_layer *layer, bool kept)
{
    if (!compresses_q(t))
        return rvli_activation(t, bytes_of(t, RVLI_DIM_Q));
    rvli_block down = rvli_activation(t, bytes_of(t, RVLI_DIM_Q_LORA));
    layer->latent_q = compressed(t, &down, RVLI_DIM_Q_LORA, &layer->q_norm, kept);
    rvli_block q = rvli_activation(t, bytes_of(t, RVLI_DIM_Q));
    if (!rvli_has_indexer(t)) /* which needs it, too */
        rvli_leave(t, &layer->latent_q, kept);
    return q;
}

static void attend(rvli_training *t, rvli_layer *layer, bool kept)
{
    layer->attended = rvli_activation(t, bytes_of(t, RVLI_DIM_ATTENDED));
    layer->sums = rvli_activation(t, sums_bytes(t));
    rvli_leave(t, &layer->sums, kept);
    rvli_leave(t, &layer->mask, kept);
    layer->by_tokens = rvli_activation(t, bytes_of(t, RVLI_DIM_ATTENDED));
    rvli_leave(t, &layer->attended, kept);
}

static void drop(rvli_training *t, rvli_layer *layer)
{
    rvli_block *all[] = {&layer->mask, &layer->k,        &layer->q,        &layer->v,
                         &layer->sums, &layer->attended, &layer->by_tokens};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}

/* Mistral 4's queries are scaled by their token's place, and so are their gradients. */
static void scale_by_token(rvli_training *t, rvli_block *q)
{
    if (strcmp(t->model->type, "mistral4") == 0)
        *q = rvli_next(t, rvli_bytes_of(*q), q);
}

rvli_block rvli_latent_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block q = project_q(t, layer, kept);
    rvli_block down = rvli_activation(t, bytes_of(t, RVLI_DIM_KV_DOWN));
    rvli_block view = NULL; /* of down, which stays */
    layer->latent_kv = compressed(t, &view, RVLI_DIM_KV_LORA, &layer->k_norm, kept);
    rvli_block rotated = rvli_rotate_pairs(t, rotary_bytes(t));
    layer->q = rvli_activation(t, bytes_of(t, RVLI_DIM_Q));
    scale_by_token(t, &layer->q);
    layer->v = rvli_activation(t, bytes_of(t, RVLI_DIM_KV_UP));
    layer->k = rvli_activation(t, bytes_of(t, RVLI_DIM_Q));
    rvli_indexer_forward(t, layer);
    attend(t, layer, kept);
    rvli_block output = rvli_activation(t, bytes_of(t, RVLI_DIM_HIDDEN));
    rvli_indexer_attended(t, layer);
    rvli_release(t, &q);
    rvli_release(t, &rotated);
    rvli_release(t, &down);
    rvli_indexer_done(t, layer, kept && recomputes(t));
    if (!kept) {
        drop(t, layer);
        rvli_release(t, &layer->latent_q);
        rvli_release(t, &layer->latent_kv);
        rvli_release(t, &layer->attention_input);
    }
    return output;
}

/* ---- Backward ---- */

/* What attention works in, as in sdpa.c, but once where heads of keys and values differ. */
static void attend_backward(rvli_training *t, rvli_layer *layer, rvli_block *of_attended,
                            rvli_attention_gradients *of)
{
    uint64_t wide = bytes_of(t, RVLI_DIM_Q);
    of->q = rvli_activation(t, wide);
    of->k = rvli_activation(t, wide);
    of->v = rvli_activation(t, bytes_of(t, RVLI_DIM_ATTENDED));
    rvli_block works = rvli_activation(t, 2 * wide + sums_bytes(t) + SEEDS_BYTES);
    rvli_release(t, &works);
    rvli_release(t, of_attended);
    drop(t, layer);
}

/* The gradients of keys and values become that of what gave both. */
static rvli_block join_backward(rvli_training *t, rvli_attention_gradients *of)
{
    uint64_t wide = bytes_of(t, RVLI_DIM_Q), both = bytes_of(t, RVLI_DIM_KV_UP);
    rvli_block with_positions = rvli_activation(t, wide);
    rvli_block rotated = rvli_activation(t, rotary_bytes(t));
    rvli_block of_rotated = rvli_activation(t, rotary_bytes(t));
    rvli_release(t, &of_rotated);
    rvli_release(t, &of->k);
    rvli_block without = rvli_activation(t, wide);
    rvli_block of_plain = rvli_next(t, both - bytes_of(t, RVLI_DIM_ATTENDED), &without);
    rvli_release(t, &with_positions);
    rvli_release(t, &rotated);
    rvli_block joined = rvli_next(t, both, &of_plain);
    rvli_release(t, &of->v);
    return rvli_next(t, both, &joined);
}

/* Takes the gradient of what a projection gave, and answers that of its input. */
static rvli_block projected_backward(rvli_training *t, rvli_unit *unit, rvli_role role,
                                     rvli_dim input, rvli_block *of_output)
{
    rvli_gradient(t, unit, role);
    return rvli_next(t, bytes_of(t, input), of_output);
}

/* Answers the gradient of the part of q that was rotated. */
static rvli_block pairs_backward(rvli_training *t)
{
    uint64_t bytes = rotary_bytes(t);
    rvli_block by_cosine[2] = {rvli_activation(t, bytes / 2), rvli_activation(t, bytes / 2)};
    rvli_block by_sine[2] = {rvli_activation(t, bytes / 2), rvli_activation(t, bytes / 2)};
    rvli_release(t, &by_sine[0]);
    rvli_release(t, &by_sine[1]);
    rvli_block added = rvli_activation(t, bytes / 2);
    rvli_release(t, &added);
    rvli_block sum = rvli_next(t, bytes, &by_cosine[1]);
    rvli_block other = rvli_next(t, bytes, &by_cosine[0]);
    rvli_release(t, &other);
    return sum;
}

/* From the gradient of keys and values to that of the layer's input. */
static rvli_block kv_backward(rvli_training *t, rvli_unit *unit, rvli_layer *layer,
                              rvli_block *of_up, rvli_block *of_q, rvli_block *of_rotated)
{
    rvli_block of_normed = projected_backward(t, unit, RVLI_ROLE_V, RVLI_DIM_KV_LORA, of_up);
    rvli_release(t, &layer->latent_kv);
    scale_by_token(t, of_q);
    *of_rotated = pairs_backward(t);
    rvli_block of_compressed =
        rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_KV_LORA], &layer->k_norm, unit,
                           RVLI_ROLE_K_NORM, of_normed);
    rvli_block of_down = rvli_next(t, bytes_of(t, RVLI_DIM_KV_DOWN), &of_compressed);
    return projected_backward(t, unit, RVLI_ROLE_K, RVLI_DIM_HIDDEN, &of_down);
}

static rvli_block q_backward(rvli_training *t, rvli_unit *unit, rvli_layer *layer, rvli_block *of_q,
                             rvli_block *of_rotated)
{
    rvli_block joined = rvli_next(t, bytes_of(t, RVLI_DIM_Q), of_q);
    rvli_release(t, of_rotated);
    rvli_block of_projected = rvli_next(t, bytes_of(t, RVLI_DIM_Q), &joined);
    if (!compresses_q(t))
        return projected_backward(t, unit, RVLI_ROLE_Q, RVLI_DIM_HIDDEN, &of_projected);
    rvli_block of_normed = projected_backward(t, unit, RVLI_ROLE_Q, RVLI_DIM_Q_LORA, &of_projected);
    rvli_release(t, &layer->latent_q);
    rvli_block of_down = rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_Q_LORA],
                                            &layer->q_norm, unit, RVLI_ROLE_Q_NORM, of_normed);
    return projected_backward(t, unit, RVLI_ROLE_Q_DOWN, RVLI_DIM_HIDDEN, &of_down);
}

rvli_block rvli_latent_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_attention_gradients of = {0};
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_attended =
        projected_backward(t, unit, RVLI_ROLE_O, RVLI_DIM_ATTENDED, &of_output);
    rvli_release(t, &layer->by_tokens);
    attend_backward(t, layer, &of_attended, &of);
    rvli_block of_up = join_backward(t, &of);
    rvli_block of_rotated = NULL;
    rvli_block of_input = kv_backward(t, unit, layer, &of_up, &of.q, &of_rotated);
    rvli_block by_q = q_backward(t, unit, layer, &of.q, &of_rotated);
    rvli_release(t, &layer->attention_input);
    rvli_block sum = rvli_activation(t, bytes_of(t, RVLI_DIM_HIDDEN));
    rvli_release(t, &of_input);
    rvli_release(t, &by_q);
    return sum;
}
