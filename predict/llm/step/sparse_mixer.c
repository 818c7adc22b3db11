/* SPDX-License-Identifier: MIT */
/*
 * How Phi-3.5-MoE chooses two experts of each token while it trains (modeling_phimoe.py,
 * sparsemixer): twice it draws one from those close to the best, with a gradient of its own, the
 * second time without the first. Noise may multiply what the block gets, and what its router gets.
 */
#include "predict/llm/step/training.h"

#define INDEX_BYTES UINT64_C(8)

bool rvli_is_sparse_mixer(const rvli_training *t)
{
    return (t->model->features & RVLI_SPARSE_MIXER) != 0;
}

/* Of all tokens and experts, in bf16. */
static rvli_block pairs(rvli_training *t)
{
    return rvli_activation(t, RVLI_HALF * t->tokens * t->model->experts);
}

static rvli_block of_tokens(rvli_training *t, uint64_t each)
{
    return rvli_activation(t, each * t->tokens);
}

static rvli_block hidden(rvli_training *t)
{
    return rvli_activation(t, RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN]);
}

/* ---- Forward ---- */

void rvli_jitter_forward(rvli_training *t, rvli_experts *e, bool kept)
{
    if ((t->model->features & RVLI_JITTER) == 0)
        return;
    for (int i = 0; i < 2; i++) {
        e->noise[i] = hidden(t);
        rvli_leave(t, &e->noise[i], kept);
    }
}

/* Whether an expert is too far from the best one: a byte each. */
static rvli_block compare(rvli_training *t, rvli_block *best_out)
{
    rvli_block value = of_tokens(t, RVLI_HALF);
    *best_out = of_tokens(t, INDEX_BYTES);
    rvli_block absolute = pairs(t);
    rvli_block factor = rvli_next(t, rvli_bytes_of(absolute), &absolute);
    rvli_block apart = pairs(t);
    rvli_block share = rvli_next(t, rvli_bytes_of(apart), &apart);
    rvli_block far = rvli_activation(t, t->tokens * t->model->experts);
    rvli_release(t, &share);
    rvli_release(t, &value);
    rvli_release(t, &factor);
    return far;
}

/* From logits without those that are too far, with noise. */
static rvli_block draw(rvli_training *t)
{
    rvli_block noise = pairs(t);
    rvli_block logarithm = rvli_next(t, rvli_bytes_of(noise), &noise);
    rvli_block noisy = rvli_next(t, rvli_bytes_of(logarithm), &logarithm);
    rvli_block value = of_tokens(t, RVLI_HALF);
    rvli_block index = of_tokens(t, INDEX_BYTES);
    rvli_release(t, &noisy);
    rvli_release(t, &value);
    return index;
}

/* One expert of each token; *multiplied_out: its weight. */
static void choose_one(rvli_training *t, rvli_mixer *round, rvli_block *multiplied_out)
{
    rvli_block best = NULL;
    round->far = compare(t, &best);
    rvli_block left = pairs(t);
    round->index = draw(t);
    round->gates = rvli_next(t, rvli_bytes_of(left), &left);
    round->multiplier = of_tokens(t, RVLI_HALF);
    rvli_block half_way = of_tokens(t, RVLI_FULL);
    *multiplied_out = rvli_next(t, RVLI_HALF * t->tokens, &half_way);
    rvli_release(t, &best);
}

void rvli_sparse_mixer_forward(rvli_training *t, rvli_experts *e)
{
    rvli_block weights[2];
    choose_one(t, &e->rounds[0], &weights[0]);
    rvli_block others = pairs(t); /* without the first */
    choose_one(t, &e->rounds[1], &weights[1]);
    e->weights = of_tokens(t, 2 * RVLI_HALF);
    e->indices = of_tokens(t, 2 * INDEX_BYTES);
    rvli_release(t, &weights[0]);
    rvli_release(t, &weights[1]);
    rvli_release(t, &others);
}

static void drop(rvli_training *t, rvli_mixer *round)
{
    rvli_release(t, &round->far);
    rvli_release(t, &round->gates);
    rvli_release(t, &round->index);
    rvli_release(t, &round->multiplier);
}

void rvli_sparse_mixer_drop(rvli_training *t, rvli_experts *e)
{
    drop(t, &e->rounds[0]);
    drop(t, &e->rounds[1]);
}

/* ---- Backward ---- */

static rvli_block one_backward(rvli_training *t, rvli_mixer *round)
{
    rvli_block product = of_tokens(t, RVLI_HALF);
    rvli_block negative = of_tokens(t, RVLI_HALF);
    rvli_block of_logits = pairs(t);
    rvli_release(t, &negative);
    rvli_release(t, &product);
    drop(t, round);
    return of_logits;
}

rvli_block rvli_sparse_mixer_backward(rvli_training *t, rvli_experts *e)
{
    rvli_block of_logits = one_backward(t, &e->rounds[1]);
    rvli_block part = one_backward(t, &e->rounds[0]);
    rvli_release(t, &part); /* added in place */
    rvli_release(t, &e->indices);
    return of_logits;
}

/* Autograd has the second product, in place on a view, by a copy of the whole. */
void rvli_jitter_backward(rvli_training *t, rvli_layer *layer, rvli_sum *of_input)
{
    rvli_experts *e = &layer->experts;
    if ((t->model->features & RVLI_JITTER) == 0)
        return;
    rvli_release(t, &layer->mlp_input);
    rvli_block sum = hidden(t);
    rvli_release(t, &of_input->block);
    rvli_block whole = hidden(t);
    rvli_block part = hidden(t);
    rvli_block product = hidden(t);
    rvli_release(t, &product);
    rvli_release(t, &part);
    rvli_release(t, &sum);
    rvli_release(t, &e->noise[1]);
    *of_input = (rvli_sum){.block = hidden(t)};
    rvli_release(t, &whole);
    rvli_release(t, &e->noise[0]);
}
