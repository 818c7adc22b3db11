/* SPDX-License-Identifier: MIT */
/*
 * Latent attention (DeepSeek's): queries, keys and values come from compressed ones.
 *
 * As transformers trains it, keys and values of all heads are made from what is compressed, and
 * attention takes them as any other. Parts with positions are joined to those without, so queries
 * and keys are copies, and values are a view of what the KV up-projection gave.
 */
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
    if (!kept)
        rvli_release(t, &layer->latent_q);
    return q;
}

static void attend(rvli_training *t, rvli_layer *layer)
{
    layer->attended = rvli_activation(t, bytes_of(t, RVLI_DIM_ATTENDED));
    layer->sums = rvli_activation(t, sums_bytes(t));
    layer->by_tokens = rvli_activation(t, bytes_of(t, RVLI_DIM_ATTENDED));
}

static void drop(rvli_training *t, rvli_layer *layer)
{
    rvli_block *all[] = {&layer->q,    &layer->k,         &layer->v,        &layer->attended,
                         &layer->sums, &layer->by_tokens, &layer->latent_kv};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}

rvli_block rvli_latent_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block q = project_q(t, layer, kept);
    rvli_block down = rvli_activation(t, bytes_of(t, RVLI_DIM_KV_DOWN));
    rvli_block view = NULL; /* of down, which stays */
    layer->latent_kv = compressed(t, &view, RVLI_DIM_KV_LORA, &layer->k_norm, kept);
    rvli_block rotated = rvli_activation(t, rotary_bytes(t));
    layer->q = rvli_activation(t, bytes_of(t, RVLI_DIM_Q));
    layer->v = rvli_activation(t, bytes_of(t, RVLI_DIM_KV_UP));
    layer->k = rvli_activation(t, bytes_of(t, RVLI_DIM_Q));
    attend(t, layer);
    rvli_block output = rvli_activation(t, bytes_of(t, RVLI_DIM_HIDDEN));
    rvli_release(t, &q);
    rvli_release(t, &rotated);
    rvli_release(t, &down);
    if (!kept) {
        drop(t, layer);
        rvli_release(t, &layer->attention_input);
    }
    return output;
}

/* ---- Backward ---- */

/* Leaves the gradients of q and k in the first two, and of what gave keys and values in the third.
 */
static void attend_backward(rvli_training *t, rvli_layer *layer, rvli_block *of_attended,
                            rvli_attention_gradients *of)
{
    uint64_t wide = bytes_of(t, RVLI_DIM_Q);
    of->q = rvli_activation(t, wide);
    of->k = rvli_activation(t, wide);
    rvli_block of_v = rvli_activation(t, bytes_of(t, RVLI_DIM_ATTENDED));
    rvli_block works = rvli_activation(t, 2 * 2 * wide + sums_bytes(t) + SEEDS_BYTES);
    rvli_release(t, &works);
    rvli_release(t, of_attended);
    drop(t, layer);
    of->v = rvli_activation(t, bytes_of(t, RVLI_DIM_KV_UP));
    rvli_release(t, &of_v);
    rvli_release(t, &of->k);
}

/* Takes the gradient of what a projection gave, and answers that of its input. */
static rvli_block projected_backward(rvli_training *t, rvli_dim input, rvli_block *of_output)
{
    rvli_block of_input = rvli_activation(t, bytes_of(t, input));
    rvli_release(t, of_output);
    return of_input;
}

/* From the gradient of compressed keys and values to that of the layer's input. */
static rvli_block kv_backward(rvli_training *t, rvli_unit *unit, rvli_layer *layer,
                              rvli_block *of_up)
{
    rvli_block of_normed = projected_backward(t, RVLI_DIM_KV_LORA, of_up);
    rvli_block of_compressed =
        rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_KV_LORA], &layer->k_norm, unit,
                           RVLI_ROLE_K_NORM, of_normed);
    rvli_block of_down = projected_backward(t, RVLI_DIM_KV_DOWN, &of_compressed);
    return projected_backward(t, RVLI_DIM_HIDDEN, &of_down);
}

static rvli_block q_backward(rvli_training *t, rvli_unit *unit, rvli_layer *layer, rvli_block *of_q)
{
    rvli_block of_projected = projected_backward(t, RVLI_DIM_Q, of_q);
    if (!compresses_q(t))
        return projected_backward(t, RVLI_DIM_HIDDEN, &of_projected);
    rvli_block of_normed = projected_backward(t, RVLI_DIM_Q_LORA, &of_projected);
    rvli_release(t, &layer->latent_q);
    rvli_block of_down = rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_Q_LORA],
                                            &layer->q_norm, unit, RVLI_ROLE_Q_NORM, of_normed);
    return projected_backward(t, RVLI_DIM_HIDDEN, &of_down);
}

rvli_block rvli_latent_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_attention_gradients of = {0};
    rvli_gradient(t, unit, RVLI_ROLE_O);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_attended = projected_backward(t, RVLI_DIM_ATTENDED, &of_output);
    attend_backward(t, layer, &of_attended, &of);
    rvli_block of_input = kv_backward(t, unit, layer, &of.v);
    rvli_block by_q = q_backward(t, unit, layer, &of.q);
    rvli_release(t, &layer->attention_input);
    rvli_block sum = rvli_activation(t, bytes_of(t, RVLI_DIM_HIDDEN));
    rvli_release(t, &of_input);
    rvli_release(t, &by_q);
    return sum;
}
