/* SPDX-License-Identifier: MIT */
/*
 * Mamba 2's recurrence over chunks of a sequence, by plain operations in fp32: what transformers
 * runs where mamba_ssm is not installed (mamba2_chunk_scan of modeling_nemotron_h.py and
 * modeling_granitemoehybrid.py).
 *
 * Products of two tensors are made whole, with all dimensions of both, and then summed over one of
 * them. So for a moment there is a value for each pair of tokens of a chunk, head and element of
 * the state, and the backward pass has two of them: that is what a step takes at most.
 *
 * A sequence is padded to whole chunks. Keys and queries of a group are copied for each of its
 * heads.
 */
#include "predict/llm/step/training.h"

typedef struct sizes {
    uint64_t rates_half; /* of each token and head */
    uint64_t rates;      /* the same in fp32 */
    uint64_t inputs;
    uint64_t group_keys;
    uint64_t keys;
    uint64_t padded_rates; /* of whole chunks, as all that follows */
    uint64_t padded_inputs;
    uint64_t padded_keys;
    uint64_t pairs;    /* of tokens of a chunk, for each head */
    uint64_t states;   /* one for each chunk */
    uint64_t first;    /* one for each sequence */
    uint64_t between;  /* pairs of chunks, and of what is before the first, for each head */
    uint64_t chunks;   /* of a sequence */
    uint64_t head;     /* elements of a head's input */
    uint64_t state;    /* elements of the state for each of these */
    uint64_t products; /* inputs by keys, or queries by states, of each token */
} sizes;

static sizes sizes_of(const rvli_training *t)
{
    const rvl_model *m = t->model;
    uint64_t heads = m->dim[RVLI_DIM_MAMBA_HEADS], inner = m->dim[RVLI_DIM_MAMBA_INNER];
    uint64_t keys = m->mamba_groups * m->mamba_group_width / 2;
    uint64_t state = m->mamba_group_width / 2, sequences = t->options->micro_batch;
    uint64_t length = rvli_round_up(t->options->seq_len, m->mamba_chunk);
    uint64_t chunks = length / m->mamba_chunk, padded = sequences * length;
    uint64_t one = RVLI_FULL * sequences * inner * state;
    return (sizes){.rates_half = RVLI_HALF * t->tokens * heads,
                   .rates = RVLI_FULL * t->tokens * heads,
                   .inputs = RVLI_FULL * t->tokens * inner,
                   .group_keys = RVLI_FULL * t->tokens * keys,
                   .keys = RVLI_FULL * t->tokens * heads * state,
                   .padded_rates = RVLI_FULL * padded * heads,
                   .padded_inputs = RVLI_FULL * padded * inner,
                   .padded_keys = RVLI_FULL * padded * heads * state,
                   .pairs = RVLI_FULL * padded * m->mamba_chunk * heads,
                   .states = chunks * one,
                   .first = one,
                   .between = RVLI_FULL * sequences * heads * (chunks + 1) * (chunks + 1),
                   .chunks = chunks,
                   .head = inner / heads,
                   .state = state,
                   .products = RVLI_FULL * padded * inner * state};
}

/* Of two tensors, summed over a dimension. */
static rvli_block product(rvli_training *t, uint64_t whole, uint64_t bytes)
{
    rvli_block all = rvli_activation(t, whole);
    return rvli_next(t, bytes, &all);
}

/* ---- Forward ---- */

/* What only the backward pass needs. */
static void unless(rvli_training *t, bool kept, rvli_block *block)
{
    if (!kept)
        rvli_release(t, block);
}

/* The exponent of sums over all segments. */
static rvli_block segments(rvli_training *t, uint64_t bytes)
{
    rvli_block masked = rvli_activation(t, bytes);
    rvli_block sums = rvli_activation(t, bytes);
    rvli_block lower = rvli_next(t, bytes, &sums);
    rvli_release(t, &masked);
    return rvli_next(t, bytes, &lower);
}

/* In fp32, then for every head. */
static rvli_block for_heads(rvli_training *t, const sizes *z)
{
    return product(t, z->group_keys, z->keys);
}

/* What the function has until it returns, beside what it keeps. */
typedef struct locals {
    rvli_block rates, skipped, decay, sums, diagonal, first, products, off_diagonal;
} locals;

/* Rates, inputs, keys and queries, in chunks. */
static void chunk(rvli_training *t, const sizes *z, rvli_scan *s, locals *l, bool kept)
{
    s->biased = rvli_activation(t, z->rates_half);
    s->opened = rvli_activation(t, z->rates_half);
    unless(t, kept, &s->biased);
    l->rates = rvli_activation(t, z->rates_half);
    unless(t, kept, &s->opened);
    s->inputs = rvli_activation(t, z->inputs);
    rvli_block keys = for_heads(t, z);
    rvli_block queries = for_heads(t, z);
    s->padded = rvli_activation(t, z->padded_inputs);
    l->skipped = rvli_activation(t, z->padded_inputs);
    unless(t, kept, &s->padded);
    s->rates_of_inputs = rvli_activation(t, z->rates);
    rvli_block inputs = rvli_activation(t, z->inputs);
    unless(t, kept, &s->rates_of_inputs);
    unless(t, kept, &s->inputs);
    s->rates_of_decay = rvli_activation(t, z->rates);
    rvli_block decay = rvli_activation(t, z->rates);
    unless(t, kept, &s->rates_of_decay);
    s->chunked = rvli_activation(t, z->padded_inputs);
    l->decay = rvli_activation(t, z->padded_rates);
    s->keys = rvli_activation(t, z->padded_keys);
    s->queries = rvli_activation(t, z->padded_keys);
    rvli_release(t, &inputs);
    rvli_release(t, &decay);
    rvli_release(t, &keys);
    rvli_release(t, &queries);
}

/* Each token sees those before it in its chunk. */
static void within(rvli_training *t, const sizes *z, rvli_scan *s, locals *l)
{
    l->sums = rvli_activation(t, z->padded_rates);
    rvli_block copy = rvli_activation(t, z->padded_rates);
    rvli_release(t, &copy);
    s->segments = segments(t, z->pairs);
    s->scores = product(t, z->pairs * z->state, z->pairs);
    s->weighed = product(t, z->pairs, z->pairs);
    l->diagonal = product(t, z->pairs * z->head, z->padded_inputs);
}

/* What a chunk adds to the state, and the state that enters each. */
static void across(rvli_training *t, const sizes *z, rvli_scan *s, locals *l, bool kept)
{
    s->ends = product(t, z->padded_rates, z->padded_rates);
    s->decayed = rvli_activation(t, z->padded_keys);
    rvli_block own = product(t, z->products, z->states);
    l->first = rvli_activation(t, z->first);
    s->states = rvli_next(t, z->states + z->first, &own);
    s->between = segments(t, z->between);
    s->entering = product(t, (z->states + z->first) * (z->chunks + 1), z->states + z->first);
    unless(t, kept, &s->states);
    s->begins = rvli_activation(t, z->padded_rates);
}

static void add_up(rvli_training *t, const sizes *z, rvli_scan *s, locals *l, bool kept)
{
    l->products = rvli_activation(t, z->products);
    s->read = rvli_activation(t, z->padded_inputs);
    l->off_diagonal = rvli_activation(t, z->padded_inputs);
    unless(t, kept, &s->read);
    rvli_block sum = rvli_activation(t, z->padded_inputs);
    s->output = rvli_next(t, z->padded_inputs, &sum);
}

static void leave(rvli_training *t, rvli_scan *s, locals *l, bool kept)
{
    rvli_block *gone[] = {&l->rates,    &l->decay, &l->skipped,  &l->sums,
                          &l->diagonal, &l->first, &l->products, &l->off_diagonal};
    rvli_block *parts[] = {&s->chunked, &s->keys,     &s->queries, &s->segments,
                           &s->scores,  &s->weighed,  &s->ends,    &s->decayed,
                           &s->between, &s->entering, &s->begins};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        rvli_release(t, gone[i]);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        unless(t, kept, parts[i]);
}

void rvli_scan_forward(rvli_training *t, rvli_scan *scan, bool kept)
{
    sizes z = sizes_of(t);
    locals l = {0};
    chunk(t, &z, scan, &l, kept);
    within(t, &z, scan, &l);
    across(t, &z, scan, &l, kept);
    add_up(t, &z, scan, &l, kept);
    leave(t, scan, &l, kept);
}

/* ---- Backward ---- */

/* What the gradient of a product takes: its own gradient, NULL: it stays, and what was kept. */
typedef struct factors {
    rvli_block *of_product;
    rvli_block *kept[2]; /* NULL: none */
} factors;

static void release_kept(rvli_training *t, const factors *f)
{
    for (int i = 0; i < 2; i++) {
        if (f->kept[i] != NULL)
            rvli_release(t, f->kept[i]);
    }
}

/* Recomputed tensors go as soon as they are used, before what was made of them is summed. */
static void used(rvli_training *t, const factors *f)
{
    if (t->options->flags & RVL_MODEL_RECOMPUTE)
        release_kept(t, f);
}

static void done(rvli_training *t, const factors *f)
{
    if (f->of_product != NULL)
        rvli_release(t, f->of_product);
    release_kept(t, f);
}

/* Gradients of two tensors, of which the product was summed. Each is as large as the whole product
 * before it is summed. */
static void product_backward(rvli_training *t, const factors *f, uint64_t whole, uint64_t first,
                             rvli_block *first_out, uint64_t second, rvli_block *second_out)
{
    rvli_block of_second = rvli_activation(t, whole);
    rvli_block of_first = rvli_activation(t, whole);
    used(t, f);
    *first_out = rvli_next(t, first, &of_first);
    *second_out = rvli_next(t, second, &of_second);
    done(t, f);
}

/* Of a small tensor by a large one: the gradient of the small one is summed. */
static void scaled_backward(rvli_training *t, const factors *f, uint64_t large, uint64_t small,
                            rvli_block *small_out, rvli_block *large_out)
{
    rvli_block of_small = rvli_activation(t, large);
    *large_out = rvli_activation(t, large);
    used(t, f);
    *small_out = rvli_next(t, small, &of_small);
    done(t, f);
}

/* Back through the exponent and both masks to the sums' input, which was expanded so often. */
static rvli_block segments_backward(rvli_training *t, uint64_t bytes, uint64_t times,
                                    rvli_block *of_segments, rvli_block *kept)
{
    rvli_block of_lower = rvli_next(t, bytes, of_segments);
    rvli_release(t, kept);
    rvli_block of_sums = rvli_next(t, bytes, &of_lower);
    rvli_block turned = rvli_activation(t, bytes);
    rvli_block summed = rvli_activation(t, bytes);
    rvli_block back = rvli_next(t, bytes, &summed);
    rvli_release(t, &turned);
    rvli_release(t, &of_sums);
    rvli_block of_masked = rvli_next(t, bytes, &back);
    return rvli_next(t, bytes / times, &of_masked);
}

/* Gradients that several steps pass on. */
typedef struct gradients {
    rvli_block sums; /* of the decay, summed within a chunk */
    rvli_block decay;
    rvli_block queries;
    rvli_block keys;
    rvli_block chunked;
    rvli_block states;
    rvli_block rates;
} gradients;

/* What was read from the state that enters; of_output stays. */
static void read_backward(rvli_training *t, const sizes *z, rvli_scan *s, gradients *g)
{
    rvli_block of_begins, of_read, of_entering;
    scaled_backward(t, &(factors){.kept = {&s->read}}, z->padded_inputs, z->padded_rates,
                    &of_begins, &of_read);
    product_backward(t, &(factors){&of_read, {&s->entering}}, z->products, z->padded_keys,
                     &g->queries, z->states, &of_entering);
    g->sums = rvli_activation(t, z->padded_rates);
    rvli_release_used(t, &of_begins, &s->begins);
    g->states = rvli_next(t, z->states + z->first, &of_entering);
}

/* The states that enter, from those that each chunk adds. */
static void between_backward(rvli_training *t, const sizes *z, rvli_scan *s, gradients *g)
{
    rvli_block of_between, of_states;
    uint64_t all = z->states + z->first;
    product_backward(t, &(factors){&g->states, {&s->states}}, all * (z->chunks + 1), z->between,
                     &of_between, all, &of_states);
    g->states = of_states;
    rvli_block of_last = segments_backward(t, z->between, z->chunks + 1, &of_between, &s->between);
    rvli_block selected = rvli_next(t, z->padded_rates, &of_last);
    rvli_release(t, &selected); /* added in place, as more below */
}

/* What a chunk adds, from inputs and keys. */
static void states_backward(rvli_training *t, const sizes *z, rvli_scan *s, gradients *g)
{
    rvli_block of_decayed, of_ends;
    product_backward(t, &(factors){&g->states, {&s->decayed}}, z->products, z->padded_keys,
                     &of_decayed, z->padded_inputs, &g->chunked);
    scaled_backward(t, &(factors){&of_decayed, {NULL}}, z->padded_keys, z->padded_rates, &of_ends,
                    &g->keys);
    rvli_block of_difference = rvli_activation(t, z->padded_rates);
    rvli_release_used(t, &of_ends, &s->ends);
    rvli_block negated = rvli_next(t, z->padded_rates, &of_difference);
    rvli_release(t, &negated);
    rvli_block of_last = rvli_activation(t, z->padded_rates);
    rvli_release(t, &of_last);
}

/* What a token reads in its own chunk, from the scores weighed by the decay. */
static rvli_block weighed_backward(rvli_training *t, const sizes *z, rvli_scan *s, gradients *g)
{
    rvli_block of_weighed, of_inputs;
    product_backward(t, &(factors){.kept = {&s->chunked, &s->weighed}}, z->pairs * z->head,
                     z->pairs, &of_weighed, z->padded_inputs, &of_inputs);
    rvli_block inputs = rvli_next(t, z->padded_inputs, &g->chunked);
    rvli_release(t, &of_inputs);
    g->chunked = inputs;
    return of_weighed;
}

static void within_backward(rvli_training *t, const sizes *z, rvli_scan *s, gradients *g)
{
    rvli_block of_queries, of_keys;
    rvli_block of_weighed = weighed_backward(t, z, s, g);
    rvli_block of_segments = rvli_activation(t, z->pairs);
    rvli_block of_scores = rvli_activation(t, z->pairs);
    rvli_release_used(t, &of_weighed, &s->scores);
    product_backward(t, &(factors){&of_scores, {&s->keys, &s->queries}}, z->pairs * z->state,
                     z->padded_keys, &of_queries, z->padded_keys, &of_keys);
    rvli_release(t, &of_keys);
    rvli_block queries = rvli_next(t, z->padded_keys, &g->queries);
    rvli_release(t, &of_queries);
    g->queries = queries;
    g->decay = segments_backward(t, z->pairs, t->model->mamba_chunk, &of_segments, &s->segments);
}

/* Sums within a chunk, and the padding. */
static void chunk_backward(rvli_training *t, const sizes *z, gradients *g)
{
    rvli_block turned = rvli_activation(t, z->padded_rates);
    rvli_block summed = rvli_activation(t, z->padded_rates);
    rvli_block copy = rvli_activation(t, z->padded_rates);
    rvli_release(t, &copy);
    rvli_block back = rvli_next(t, z->padded_rates, &summed);
    rvli_release(t, &turned);
    rvli_release(t, &g->sums);
    rvli_block sum = rvli_next(t, z->padded_rates, &g->decay);
    rvli_release(t, &back);
    g->queries = rvli_next(t, z->keys, &g->queries);
    g->keys = rvli_next(t, z->keys, &g->keys);
    g->decay = rvli_next(t, z->rates, &sum);
    g->chunked = rvli_next(t, z->inputs, &g->chunked);
}

/* Inputs and decay by their rates. Answers the gradient of the inputs. */
static rvli_block rates_backward(rvli_training *t, const sizes *z, rvli_unit *unit, rvli_scan *s,
                                 gradients *g)
{
    rvli_block of_rates = rvli_activation(t, z->rates);
    rvli_block of_decay = rvli_activation(t, z->rates);
    rvli_gradient(t, unit, RVLI_ROLE_MAMBA_DECAY);
    rvli_release(t, &of_decay);
    rvli_release(t, &g->decay);
    rvli_release(t, &s->rates_of_decay);
    g->rates = rvli_next(t, z->rates_half, &of_rates);
    rvli_block of_inputs;
    scaled_backward(t, &(factors){&g->chunked, {&s->rates_of_inputs, &s->inputs}}, z->inputs,
                    z->rates, &of_rates, &of_inputs);
    rvli_block half = rvli_next(t, z->rates_half, &of_rates);
    rvli_release(t, &half);
    return of_inputs;
}

/* What passes the state by. It is added to the gradient of the inputs in place. */
static void skipped_backward(rvli_training *t, const sizes *z, rvli_unit *unit, rvli_scan *s,
                             rvli_block *of_output)
{
    rvli_block of_padded = rvli_activation(t, z->padded_inputs);
    rvli_block of_weight = rvli_activation(t, z->padded_inputs);
    rvli_gradient(t, unit, RVLI_ROLE_MAMBA_SKIP);
    rvli_release(t, &of_weight);
    rvli_release(t, of_output);
    rvli_release(t, &s->padded);
    rvli_block of_inputs = rvli_next(t, z->inputs, &of_padded);
    rvli_release(t, &of_inputs);
}

/* The same summed over heads of a group, in bf16. */
static rvli_block of_group(rvli_training *t, const sizes *z, rvli_block *gradient)
{
    rvli_block sum = rvli_next(t, z->group_keys, gradient);
    return rvli_next(t, z->group_keys / 2, &sum);
}

/* Through bounds and softplus of the rates. */
static rvli_block opened_backward(rvli_training *t, const sizes *z, rvli_unit *unit, rvli_scan *s,
                                  rvli_block *of_rates)
{
    rvli_block above = rvli_activation(t, z->rates_half / 2);
    rvli_block below = rvli_activation(t, z->rates_half / 2);
    rvli_block bounded = rvli_next(t, z->rates_half, &below);
    rvli_release(t, &above);
    rvli_release(t, of_rates);
    rvli_release(t, &s->opened);
    rvli_block of_biased = rvli_next(t, z->rates_half, &bounded);
    rvli_release(t, &s->biased);
    rvli_gradient_summed(t, unit, RVLI_ROLE_MAMBA_RATES, t->tokens,
                         t->model->dim[RVLI_DIM_MAMBA_HEADS]);
    return of_biased;
}

rvli_block rvli_scan_backward(rvli_training *t, rvli_unit *unit, rvli_scan *scan,
                              rvli_block of_output, rvli_block *of_rates_out)
{
    sizes z = sizes_of(t);
    gradients g = {0};
    if (z.padded_inputs > z.inputs) /* what was cut off has no gradient */
        of_output = rvli_next(t, z.padded_inputs, &of_output);
    read_backward(t, &z, scan, &g);
    between_backward(t, &z, scan, &g);
    states_backward(t, &z, scan, &g);
    within_backward(t, &z, scan, &g);
    chunk_backward(t, &z, &g);
    rvli_block of_inputs = rates_backward(t, &z, unit, scan, &g);
    skipped_backward(t, &z, unit, scan, &of_output);
    rvli_block of_queries = of_group(t, &z, &g.queries);
    rvli_block of_keys = of_group(t, &z, &g.keys);
    of_inputs = rvli_next(t, z.inputs / 2, &of_inputs);
    *of_rates_out = opened_backward(t, &z, unit, scan, &g.rates);
    rvli_block of_convolved =
        rvli_activation(t, RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_MAMBA_CONV]);
    rvli_release(t, &of_inputs);
    rvli_release(t, &of_keys);
    rvli_release(t, &of_queries);
    return of_convolved;
}
