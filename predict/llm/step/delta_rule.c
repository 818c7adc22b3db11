/* SPDX-License-Identifier: MIT */
/*
 * The gated delta rule by chunks of 64 tokens, in plain PyTorch: what transformers runs where
 * flash-linear-attention is not installed (modeling_qwen3_next.py and modeling_qwen3_5.py of 5.17,
 * torch_chunk_gated_delta_rule).
 *
 * All is in fp32, with sequences padded to whole chunks. First come tensors of all chunks at once:
 * products of the tokens of a chunk, their decays, and what a triangular system of these gives.
 * Then a loop goes from chunk to chunk with a state for each head. It keeps the state before each
 * chunk, and the chunk's new values.
 *
 * The backward pass goes through the chunks from the last. Each part of a chunk is a view of a
 * tensor of all chunks, so its gradient is one of the whole, which is added to that of the chunks
 * before it.
 */
#include <stdlib.h>

#include "predict/llm/step/training.h"

#define CHUNK RVLI_DELTA_CHUNK

typedef struct sizes {
    uint64_t keys, values, rates; /* q or k, v, and one for each head: of the tokens */
    uint64_t padded_keys, padded_values, padded_rates;
    uint64_t pairs;
    uint64_t chunk_keys, chunk_values, chunk_pairs, chunk_rates; /* of one chunk */
    uint64_t chunk_decays;                                       /* one for each head and chunk */
    uint64_t state;
    uint64_t half_values; /* v in bf16 */
    uint64_t chunks;
    bool padded;
} sizes;

static uint64_t chunks_of(const rvli_training *t)
{
    return (t->options->seq_len + CHUNK - 1) / CHUNK;
}

static sizes sizes_of(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    const uint64_t value = dim[RVLI_DIM_DELTA_VALUE], heads = dim[RVLI_DIM_DELTA_HEADS];
    const uint64_t key = t->model->state_elements / value * heads; /* of every head of v */
    const uint64_t chunks = chunks_of(t);
    const uint64_t rows = RVLI_FULL * t->options->micro_batch;
    const uint64_t tokens = RVLI_FULL * t->tokens, chunk = rows * CHUNK, padded = chunk * chunks;
    return (sizes){.keys = tokens * key,
                   .values = tokens * value,
                   .rates = tokens * heads,
                   .padded_keys = padded * key,
                   .padded_values = padded * value,
                   .padded_rates = padded * heads,
                   .pairs = padded * heads * CHUNK,
                   .chunk_keys = chunk * key,
                   .chunk_values = chunk * value,
                   .chunk_pairs = chunk * heads * CHUNK,
                   .chunk_rates = rows * heads,
                   .chunk_decays = rows * heads * chunks,
                   .state = rows * t->model->state_elements,
                   .half_values = RVLI_HALF * t->tokens * value,
                   .chunks = chunks,
                   .padded = t->options->seq_len % CHUNK != 0};
}

void rvli_delta_make(rvli_training *t)
{
    uint64_t chunks = chunks_of(t);
    for (uint32_t layer = 0; layer < t->model->layers && !t->tape.failed; layer++) {
        if (!rvli_layer_is(t->model, layer, RVLI_LAYER_DELTA))
            continue;
        t->layers[layer].delta.chunks = calloc(chunks, sizeof(rvli_delta_chunk));
        t->tape.failed = t->layers[layer].delta.chunks == NULL;
    }
}

void rvli_delta_free(rvli_training *t)
{
    for (uint32_t layer = 0; t->layers != NULL && layer < t->model->layers; layer++)
        free(t->layers[layer].delta.chunks);
}

static void pass(rvli_training *t, uint64_t bytes)
{
    rvli_block passing = rvli_activation(t, bytes);
    rvli_release(t, &passing);
}

/* ---- Forward ---- */

/* q or k over its length. Its caller has *input until then. */
static rvli_block normed(rvli_training *t, const sizes *s, rvli_block *input, rvli_block *scale,
                         bool kept)
{
    rvli_block squares = rvli_activation(t, s->keys);
    rvli_block sums = rvli_next(t, s->rates, &squares);
    rvli_block above_zero = rvli_next(t, s->rates, &sums);
    *scale = rvli_next(t, s->rates, &above_zero);
    rvli_block output = rvli_activation(t, s->keys);
    rvli_leave(t, scale, kept);
    rvli_leave(t, input, kept);
    return output;
}

/* What Python has until the rule is done, and nobody keeps. */
typedef struct locals {
    rvli_block decay;
    rvli_block sums; /* of decays in each chunk */
    rvli_block v_beta;
    rvli_block decayed_k_beta;
    rvli_block output;
    rvli_block read; /* what the last chunk read of its state */
    rvli_block state;
} locals;

static void pad_inputs(rvli_training *t, const sizes *s, rvli_delta *d, locals *l, bool kept)
{
    d->q = rvli_activation(t, s->keys);
    d->k = rvli_activation(t, s->keys);
    rvli_block v = rvli_activation(t, s->values);
    rvli_block beta = rvli_activation(t, s->rates);
    rvli_block q = normed(t, s, &d->q, &d->q_scale, kept);
    rvli_block k = normed(t, s, &d->k, &d->k_scale, kept);
    rvli_block scaled = rvli_next(t, s->keys, &q);
    d->padded_q = rvli_activation(t, s->padded_keys);
    d->padded_k = rvli_activation(t, s->padded_keys);
    d->padded_v = rvli_activation(t, s->padded_values);
    rvli_release(t, &scaled);
    rvli_release(t, &k);
    rvli_release(t, &v);
    d->padded_beta = rvli_activation(t, s->padded_rates);
    l->decay = rvli_activation(t, s->padded_rates);
    rvli_release(t, &beta);
}

/* Products of the tokens of each chunk, and what the two systems give. */
static void solve(rvli_training *t, const sizes *s, rvli_delta *d, locals *l, bool kept)
{
    l->v_beta = rvli_activation(t, s->padded_values);
    d->k_beta = rvli_activation(t, s->padded_keys);
    l->sums = rvli_activation(t, s->padded_rates);
    rvli_block differences = rvli_activation(t, s->pairs);
    rvli_block masked = rvli_next(t, s->pairs, &differences);
    d->pairwise = rvli_next(t, s->pairs, &masked);
    d->k_products = rvli_activation(t, s->pairs);
    d->system = rvli_activation(t, s->pairs);
    rvli_leave(t, &d->k_products, kept);
    d->q_products = rvli_activation(t, s->pairs);
    d->inside = rvli_activation(t, s->pairs);
    rvli_leave(t, &d->q_products, kept);
    d->k_beta_decay = rvli_activation(t, s->padded_rates);
    l->decayed_k_beta = rvli_activation(t, s->padded_keys);
    rvli_leave(t, &d->k_beta_decay, kept);
    d->new_values = rvli_activation(t, s->padded_values);
    d->old_keys = rvli_activation(t, s->padded_keys);
}

static void decay_inputs(rvli_training *t, const sizes *s, rvli_delta *d, bool kept)
{
    d->q_decay = rvli_activation(t, s->padded_rates);
    d->decayed_q = rvli_activation(t, s->padded_keys);
    rvli_leave(t, &d->q_decay, kept);
    rvli_leave(t, &d->padded_q, kept);
    rvli_block rest = rvli_activation(t, s->padded_rates);
    d->k_decay = rvli_next(t, s->padded_rates, &rest);
    d->decayed_k = rvli_activation(t, s->padded_keys);
    rvli_leave(t, &d->k_decay, kept);
    rvli_leave(t, &d->padded_k, kept);
    d->chunk_decay = rvli_activation(t, s->chunk_decays);
}

/* l->state is that before the chunk, and then that behind it. before: NULL, or the chunk before. */
static void chunk_forward(rvli_training *t, const sizes *s, rvli_delta_chunk *chunk,
                          rvli_delta_chunk *before, locals *l, bool kept)
{
    rvli_block predicted = rvli_activation(t, s->chunk_values);
    chunk->values = rvli_next(t, s->chunk_values, &predicted);
    if (before != NULL)
        rvli_leave(t, &before->values, kept);
    l->read = rvli_next(t, s->chunk_values, &l->read);
    rvli_block attended = rvli_activation(t, s->chunk_values);
    rvli_block sum = rvli_next(t, s->chunk_values, &attended);
    rvli_release(t, &sum); /* copied into the output */
    rvli_block decayed = rvli_activation(t, s->state);
    rvli_block added = rvli_activation(t, s->state);
    chunk->state = l->state;
    l->state = rvli_activation(t, s->state);
    rvli_release(t, &decayed);
    rvli_release(t, &added);
    rvli_leave(t, &chunk->state, kept);
}

static void drop(rvli_training *t, const sizes *s, rvli_delta *d)
{
    rvli_block *all[] = {
        &d->q,          &d->k,         &d->q_scale,      &d->k_scale,   &d->padded_q,
        &d->padded_k,   &d->padded_v,  &d->padded_beta,  &d->k_beta,    &d->pairwise,
        &d->k_products, &d->system,    &d->q_products,   &d->inside,    &d->q_decay,
        &d->k_decay,    &d->decayed_q, &d->k_beta_decay, &d->decayed_k, &d->chunk_decay,
        &d->new_values, &d->old_keys};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
    rvli_release(t, &d->chunks[s->chunks - 1].values);
}

rvli_block rvli_delta_rule_forward(rvli_training *t, rvli_delta *d, bool kept)
{
    const sizes s = sizes_of(t);
    locals l = {0};
    pad_inputs(t, &s, d, &l, kept);
    solve(t, &s, d, &l, kept);
    l.state = rvli_activation(t, s.state);
    l.output = rvli_activation(t, s.padded_values);
    decay_inputs(t, &s, d, kept);
    for (uint64_t i = 0; i < s.chunks; i++)
        chunk_forward(t, &s, &d->chunks[i], i > 0 ? &d->chunks[i - 1] : NULL, &l, kept);
    rvli_release(t, &l.state);
    /* The systems answer by columns, so the output is copied to lie by rows. */
    rvli_block by_rows = rvli_next(t, s.padded_values, &l.output);
    rvli_block output = rvli_next(t, s.half_values, &by_rows);
    rvli_release(t, &l.decay);
    rvli_release(t, &l.v_beta);
    rvli_release(t, &l.sums);
    rvli_release(t, &l.decayed_k_beta);
    rvli_release(t, &l.read);
    if (!kept)
        drop(t, &s, d);
    return output;
}

/* ---- Backward ---- */

/* Gradients of tensors of all chunks. */
typedef struct gradients {
    rvli_block output;
    rvli_block inside;
    rvli_block decayed_q, decayed_k;
    rvli_block old_keys;
    rvli_block new_values;
    rvli_block chunk_decay;
    rvli_block state; /* of the one behind the chunk */
    rvli_block system;
    rvli_block pairwise;
    rvli_block k_beta, v_beta;
    rvli_block sums;
} gradients;

/* That of a view becomes one of the whole, and is added. */
static void add_view(rvli_training *t, rvli_block *sum, uint64_t whole_bytes, rvli_block *of_view)
{
    rvli_block whole = rvli_next(t, whole_bytes, of_view);
    if (*sum == NULL)
        *sum = whole;
    else
        rvli_release(t, &whole);
}

/* Through the state behind the chunk. Answers a part of the gradient of the chunk's values. */
static rvli_block state_backward(rvli_training *t, const sizes *s, rvli_delta *d, gradients *of,
                                 bool is_first)
{
    rvli_block of_values = rvli_activation(t, s->chunk_values);
    rvli_block of_keys = rvli_activation(t, s->chunk_keys);
    if (is_first)
        rvli_release(t, &d->decayed_k);
    add_view(t, &of->decayed_k, s->padded_keys, &of_keys);
    rvli_block by_state = rvli_activation(t, s->state);
    rvli_block of_before = rvli_activation(t, is_first ? 0 : s->state);
    rvli_block of_decay = rvli_next(t, s->chunk_rates, &by_state);
    rvli_release(t, &of->state);
    of->state = of_before;
    add_view(t, &of->chunk_decay, s->chunk_decays, &of_decay);
    return of_values;
}

/* The output was written chunk by chunk. Answers the chunk's gradient. */
static rvli_block written_backward(rvli_training *t, const sizes *s, gradients *of, bool is_first)
{
    rvli_block copy = rvli_activation(t, s->padded_values);
    rvli_block of_chunk = rvli_activation(t, s->chunk_values);
    if (is_first)
        rvli_release(t, &copy);
    else
        pass(t, s->chunk_values);
    rvli_release(t, &of->output);
    of->output = copy;
    return of_chunk;
}

/* Through the attention inside of the chunk. Takes the part that is there (NULL: none), and answers
 * the gradient of the chunk's values. */
static rvli_block inside_backward(rvli_training *t, const sizes *s, rvli_delta *d, gradients *of,
                                  uint64_t index, rvli_block part)
{
    rvli_block of_values = rvli_activation(t, s->chunk_values);
    rvli_block of_pairs = rvli_activation(t, s->chunk_pairs);
    rvli_release(t, &d->chunks[index].values);
    if (index == 0)
        rvli_release(t, &d->inside);
    if (part != NULL) {
        rvli_block sum = rvli_activation(t, s->chunk_values);
        rvli_release(t, &part);
        rvli_release(t, &of_values);
        of_values = sum;
    }
    add_view(t, &of->inside, s->pairs, &of_pairs);
    return of_values;
}

/* A part of the gradient of the state before the chunk. */
static void add_to_state(rvli_training *t, const sizes *s, gradients *of, rvli_block *first,
                         rvli_block *second)
{
    if (of->state == NULL && *first != NULL)
        of->state = rvli_activation(t, s->state);
    rvli_release(t, first);
    rvli_release(t, second);
}

static void chunk_backward(rvli_training *t, const sizes *s, rvli_delta *d, gradients *of,
                           uint64_t index)
{
    bool is_first = index == 0, is_last = index + 1 == s->chunks;
    uint64_t state = is_first ? 0 : s->state; /* that before the first has no gradient */
    rvli_block part = is_last ? NULL : state_backward(t, s, d, of, is_first);
    rvli_block of_chunk = written_backward(t, s, of, is_first);
    rvli_block of_values = inside_backward(t, s, d, of, index, part);
    rvli_block by_read = rvli_activation(t, state);
    rvli_block of_q = rvli_activation(t, s->chunk_keys);
    if (index <= 1) /* the first state needs none of q */
        rvli_release(t, &d->decayed_q);
    rvli_release(t, &of_chunk);
    if (!is_last)
        rvli_release(t, &by_read); /* added in place */
    add_view(t, &of->decayed_q, s->padded_keys, &of_q);
    rvli_block negated = rvli_activation(t, s->chunk_values);
    rvli_block by_prediction = rvli_activation(t, state);
    rvli_block of_keys = rvli_next(t, s->chunk_keys, &negated);
    rvli_release(t, &d->chunks[index].state);
    add_to_state(t, s, of, &by_read, &by_prediction);
    add_view(t, &of->old_keys, s->padded_keys, &of_keys);
    add_view(t, &of->new_values, s->padded_values, &of_values);
}

/* x by the exponential of its decay: takes the gradient of the product, and answers that of x. */
static rvli_block decayed_backward(rvli_training *t, const sizes *s, rvli_block *of_product,
                                   rvli_block *decay)
{
    rvli_block by_x = rvli_activation(t, s->padded_keys);
    rvli_block of_x = rvli_activation(t, s->padded_keys);
    rvli_block of_decay = rvli_next(t, s->padded_rates, &by_x);
    rvli_release(t, of_product);
    rvli_block of_log = rvli_next(t, s->padded_rates, &of_decay);
    rvli_release(t, decay);
    rvli_release(t, &of_log); /* added to that of the sums */
    return of_x;
}

/* Answers the gradient of what a system was solved for; that of the system is added. */
static rvli_block solved_backward(rvli_training *t, const sizes *s, gradients *of, uint64_t bytes,
                                  rvli_block *of_solution)
{
    rvli_block of_input = rvli_activation(t, bytes);
    rvli_block product = rvli_activation(t, s->pairs);
    rvli_block negated = rvli_next(t, s->pairs, &product);
    rvli_block lower = rvli_next(t, s->pairs, &negated);
    rvli_release(t, of_solution);
    if (of->system == NULL)
        of->system = lower;
    else
        rvli_release(t, &lower);
    return of_input;
}

/* Products of a chunk's tokens, decayed: takes the gradient, and adds to those of the factors. */
static void products_backward(rvli_training *t, const sizes *s, gradients *of,
                              rvli_block *of_decayed, rvli_block *products, rvli_block *factor)
{
    rvli_block by_pairs = rvli_activation(t, s->pairs);
    rvli_block of_products = rvli_next(t, s->pairs, of_decayed);
    rvli_release(t, products);
    if (of->pairwise == NULL)
        of->pairwise = by_pairs;
    else
        rvli_release(t, &by_pairs);
    rvli_block of_factor = rvli_activation(t, s->padded_keys);
    rvli_block of_k = rvli_activation(t, s->padded_keys);
    rvli_release(t, &of_products);
    rvli_release(t, factor);
    rvli_release(t, &of_k);
    rvli_release(t, &of_factor);
}

/* Answers the gradient of the decay. */
static rvli_block sums_backward(rvli_training *t, const sizes *s, rvli_delta *d, gradients *of)
{
    rvli_block of_masked = rvli_next(t, s->pairs, &of->pairwise);
    rvli_release(t, &d->pairwise);
    rvli_block of_differences = rvli_next(t, s->pairs, &of_masked);
    rvli_block negated = rvli_activation(t, s->pairs);
    rvli_block of_columns = rvli_next(t, s->padded_rates, &negated);
    rvli_block of_rows = rvli_next(t, s->padded_rates, &of_differences);
    rvli_release(t, &of_rows);
    rvli_release(t, &of_columns);
    return rvli_next(t, s->padded_rates, &of->sums);
}

/* x by beta: takes the gradient of the product, and answers that of x and a part of beta's. */
static rvli_block beta_backward(rvli_training *t, uint64_t bytes, uint64_t rates,
                                rvli_block *of_product, rvli_block *x, rvli_block *of_beta)
{
    rvli_block by_x = rvli_activation(t, bytes);
    rvli_block of_x = rvli_activation(t, bytes);
    *of_beta = rvli_next(t, rates, &by_x);
    rvli_release(t, of_product);
    rvli_release(t, x);
    return of_x;
}

/* Takes the gradient of q or k over its length, and answers that of q or k. */
static rvli_block normed_backward(rvli_training *t, const sizes *s, rvli_block *of_normed,
                                  rvli_block *input, rvli_block *scale)
{
    rvli_block by_input = rvli_activation(t, s->keys);
    rvli_block of_input = rvli_activation(t, s->keys);
    rvli_block of_scale = rvli_next(t, s->rates, &by_input);
    rvli_release(t, of_normed);
    rvli_block cube = rvli_activation(t, s->rates);
    rvli_block of_sums = rvli_next(t, s->rates, &of_scale);
    rvli_release(t, &cube);
    rvli_release(t, scale);
    rvli_block first = rvli_activation(t, s->keys);
    rvli_block second = rvli_next(t, s->keys, &of_sums);
    rvli_release(t, input);
    rvli_release(t, &second);
    rvli_release(t, &first);
    return of_input;
}

/* What the chunks left, back to what was padded. */
static void chunks_backward(rvli_training *t, const sizes *s, rvli_delta *d, gradients *of,
                            rvli_delta_gradients *padded)
{
    rvli_block of_ends = rvli_next(t, s->chunk_decays, &of->chunk_decay);
    rvli_release(t, &d->chunk_decay);
    of->sums = rvli_next(t, s->padded_rates, &of_ends);
    padded->k = decayed_backward(t, s, &of->decayed_k, &d->k_decay);
    padded->q = decayed_backward(t, s, &of->decayed_q, &d->q_decay);
    rvli_block of_k_beta = solved_backward(t, s, of, s->padded_keys, &of->old_keys);
    rvli_release(t, &d->old_keys);
    of->v_beta = solved_backward(t, s, of, s->padded_values, &of->new_values);
    rvli_release(t, &d->system);
    rvli_release(t, &d->new_values);
    of->k_beta = decayed_backward(t, s, &of_k_beta, &d->k_beta_decay);
    products_backward(t, s, of, &of->inside, &d->q_products, &d->padded_q);
    products_backward(t, s, of, &of->system, &d->k_products, &d->k_beta);
    padded->decay = sums_backward(t, s, d, of);
}

/* Through beta, and back to tokens. */
static void inputs_backward(rvli_training *t, const sizes *s, rvli_delta *d, gradients *of,
                            rvli_delta_gradients *g)
{
    rvli_block by_k, by_v;
    rvli_block of_v_beta = rvli_next(t, s->padded_values, &of->v_beta); /* by rows again */
    rvli_block of_k_beta = rvli_next(t, s->padded_keys, &of->k_beta);
    rvli_block of_k =
        beta_backward(t, s->padded_keys, s->padded_rates, &of_k_beta, &d->padded_k, &by_k);
    g->k = rvli_next(t, s->padded_keys, &g->k);
    rvli_release(t, &of_k);
    g->v = beta_backward(t, s->padded_values, s->padded_rates, &of_v_beta, &d->padded_v, &by_v);
    rvli_release(t, &d->padded_beta);
    g->beta = rvli_activation(t, s->padded_rates);
    rvli_release(t, &by_k);
    rvli_release(t, &by_v);
    g->decay = rvli_next(t, s->rates, &g->decay);
    g->beta = rvli_next(t, s->rates, &g->beta);
    g->v = rvli_next(t, s->values, &g->v);
    g->k = rvli_next(t, s->keys, &g->k);
    g->q = rvli_next(t, s->keys, &g->q);
    g->q = rvli_next(t, s->keys, &g->q);
}

void rvli_delta_rule_backward(rvli_training *t, rvli_delta *d, rvli_block *of_output,
                              rvli_delta_gradients *g)
{
    const sizes s = sizes_of(t);
    gradients of = {0};
    of.output = rvli_next(t, s.values, of_output);
    if (s.padded)
        of.output = rvli_next(t, s.padded_values, &of.output);
    for (uint64_t i = s.chunks; i > 0; i--)
        chunk_backward(t, &s, d, &of, i - 1);
    rvli_release(t, &d->decayed_k); /* of a single chunk nobody needed it */
    chunks_backward(t, &s, d, &of, g);
    inputs_backward(t, &s, d, &of, g);
    g->k = normed_backward(t, &s, &g->k, &d->k, &d->k_scale);
    g->q = normed_backward(t, &s, &g->q, &d->q, &d->q_scale);
}
