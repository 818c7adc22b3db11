/* SPDX-License-Identifier: MIT */
/*
 * DeepSeek's sparse attention, as transformers trains it (modeling_glm_moe_dsa.py,
 * GlmMoeDsaIndexer, and modeling_deepseek_v32.py).
 *
 * An indexer scores all tokens for each one, for every head of its own in fp32, and takes the best.
 * It runs without gradients, so its weights never get any. Attention then sees all keys and values
 * under a mask that lets the chosen ones through. Each layer keeps its mask in bf16.
 *
 * In GLM's family a layer hands what it chose to the next one, also where that has an indexer of
 * its own. A layer that is computed again needs what it was handed, and so keeps it.
 */
#include <string.h>

#include "predict/llm/step/training.h"

#define CHOSEN_BYTES UINT64_C(4)
#define INDEX_BYTES UINT64_C(8)
/* What topk of so many rows works in (aten/src/ATen/native/cuda/TensorTopK.cu): digits counted. */
#define DIGITS_BYTES UINT64_C(512)

bool rvli_has_indexer(const rvli_training *t)
{
    return (t->model->features & RVLI_INDEXER) != 0;
}

/* GLM's rotates pairs of neighbours, and hands on what it chose. */
static bool is_glm(const rvli_training *t)
{
    return rvli_has_indexer(t) && strcmp(t->model->type, "glm_moe_dsa") == 0;
}

static bool recomputes(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
}

static uint64_t bytes_of(const rvli_training *t, rvli_dim dim)
{
    return RVLI_HALF * t->tokens * t->model->dim[dim];
}

static uint64_t chosen(const rvli_training *t)
{
    uint64_t most = t->model->dim[RVLI_DIM_INDEX_CHOSEN];
    return t->tokens * (most < t->options->seq_len ? most : t->options->seq_len);
}

/* A byte for each token and each that it could see. */
static uint64_t pairs(const rvli_training *t)
{
    return t->tokens * t->options->seq_len;
}

/* Of one head, or of all. */
static uint64_t rotary_bytes(const rvli_training *t, uint64_t heads)
{
    const uint64_t *dim = t->model->dim;
    return RVLI_HALF * t->tokens * heads * (dim[RVLI_DIM_KV_DOWN] - dim[RVLI_DIM_KV_LORA]);
}

static rvli_block rotate(rvli_training *t, uint64_t bytes)
{
    return (is_glm(t) ? rvli_rotate_pairs : rvli_rotate_halves)(t, bytes);
}

/* What stays until the indexer returns. */
typedef struct working {
    rvli_block q, normed_k;
    rvli_block rotated_q, rotated_k;
    rvli_block joined_q, joined_k;
    rvli_block scores;
    rvli_block weights;
} working;

static void project(rvli_training *t, working *w)
{
    w->q = rvli_activation(t, bytes_of(t, RVLI_DIM_INDEX));
    rvli_block k = rvli_activation(t, bytes_of(t, RVLI_DIM_INDEX_HEAD));
    w->normed_k = rvli_next(t, bytes_of(t, RVLI_DIM_INDEX_HEAD), &k);
    w->rotated_q = rotate(t, rotary_bytes(t, t->model->dim[RVLI_DIM_INDEX_HEADS]));
    w->rotated_k = rotate(t, rotary_bytes(t, 1));
    w->joined_q = rvli_activation(t, bytes_of(t, RVLI_DIM_INDEX));
    w->joined_k = rvli_activation(t, bytes_of(t, RVLI_DIM_INDEX_HEAD));
}

/* Of every head. Keys are copied for each token where there are several sequences. */
static void score(rvli_training *t, working *w)
{
    const uint64_t *dim = t->model->dim;
    uint64_t all = RVLI_FULL * pairs(t) * dim[RVLI_DIM_INDEX_HEADS];
    rvli_block q = rvli_activation(t, 2 * bytes_of(t, RVLI_DIM_INDEX));
    rvli_block k = rvli_activation(t, 2 * bytes_of(t, RVLI_DIM_INDEX_HEAD));
    bool several = t->options->micro_batch > 1;
    rvli_block copies =
        rvli_activation(t, several ? RVLI_FULL * pairs(t) * dim[RVLI_DIM_INDEX_HEAD] : 0);
    rvli_block products = rvli_activation(t, all);
    rvli_release(t, &copies);
    rvli_release(t, &q);
    rvli_release(t, &k);
    rvli_block scaled = rvli_next(t, all, &products);
    w->scores = rvli_next(t, all, &scaled);
    rvli_block weights = rvli_activation(t, bytes_of(t, RVLI_DIM_INDEX_HEADS));
    rvli_block full = rvli_next(t, 2 * bytes_of(t, RVLI_DIM_INDEX_HEADS), &weights);
    w->weights = rvli_next(t, 2 * bytes_of(t, RVLI_DIM_INDEX_HEADS), &full);
}

/* Sums over heads, without tokens that come later; the best of these. */
static rvli_block choose(rvli_training *t, rvli_block *masked)
{
    rvli_block sums = rvli_activation(t, RVLI_FULL * pairs(t));
    rvli_block later = rvli_activation(t, pairs(t));
    *masked = rvli_activation(t, RVLI_FULL * pairs(t));
    rvli_release(t, &later);
    rvli_release(t, &sums);
    rvli_block values = rvli_activation(t, RVLI_FULL * chosen(t));
    rvli_block indices = rvli_activation(t, INDEX_BYTES * chosen(t));
    rvli_block digits = rvli_activation(t, DIGITS_BYTES * t->tokens);
    rvli_block counts = rvli_activation(t, 2 * DIGITS_BYTES * t->tokens);
    rvli_release(t, &counts);
    rvli_release(t, &digits);
    rvli_release(t, &values);
    return rvli_next(t, CHOSEN_BYTES * chosen(t), &indices);
}

static rvli_block run(rvli_training *t)
{
    working w = {0};
    rvli_block masked = NULL;
    project(t, &w);
    score(t, &w);
    rvli_block indices = choose(t, &masked);
    rvli_block *all[] = {&w.joined_q, &w.rotated_q, &w.q,       &w.joined_k, &w.rotated_k,
                         &w.normed_k, &w.scores,    &w.weights, &masked};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
    return indices;
}

void rvli_indexer_forward(rvli_training *t, rvli_layer *layer)
{
    if (!rvli_has_indexer(t))
        return;
    layer->chosen = run(t);
    rvli_block ones = rvli_activation(t, pairs(t));
    rvli_block wide = rvli_activation(t, INDEX_BYTES * chosen(t));
    layer->hidden_pairs = rvli_activation(t, pairs(t));
    rvli_release(t, &ones);
    rvli_release(t, &wide);
    rvli_block shown = rvli_activation(t, pairs(t));
    layer->seen_pairs = rvli_next(t, pairs(t), &shown);
    layer->mask = rvli_activation(t, RVLI_HALF * pairs(t));
}

void rvli_indexer_attended(rvli_training *t, rvli_layer *layer)
{
    rvli_release(t, &layer->seen_pairs);
}

void rvli_indexer_done(rvli_training *t, rvli_layer *layer, bool again)
{
    if (!is_glm(t) || again)
        rvli_release(t, &layer->chosen);
    rvli_release(t, &layer->hidden_pairs);
}

void rvli_indexer_hand_on(rvli_training *t, uint32_t number)
{
    if (!is_glm(t))
        return;
    rvli_layer *layer = &t->layers[number];
    rvli_block before = t->chosen;
    t->chosen = layer->chosen;
    layer->chosen = NULL;
    if (recomputes(t))
        layer->handed = before;
    else
        rvli_release(t, &before);
}

void rvli_indexer_end(rvli_training *t)
{
    rvli_release(t, &t->chosen);
}
