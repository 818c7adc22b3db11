/* SPDX-License-Identifier: MIT */
/*
 * What chooses the experts of each token.
 *
 * Most take the softmax of all logits in fp32, and then the best. DeepSeek's take sigmoids, and
 * choose by these and a bias, without experts of groups that were not chosen. Granite and gpt_oss
 * choose first, so nothing of the size of all logits stays.
 *
 * Routers in fp32 convert hidden states and their own weights, and both stay.
 */
#include "predict/llm/step/training.h"

#define INDEX_BYTES UINT64_C(8)

typedef enum router_kind { SOFTMAX, SIGMOID, CHOSEN_FIRST } router_kind;

static bool has(const rvli_training *t, uint64_t features)
{
    return (t->model->features & features) != 0;
}

static router_kind kind_of(const rvli_training *t)
{
    if (has(t, RVLI_EXPERT_BIAS | RVLI_NUMBERS))
        return CHOSEN_FIRST;
    return has(t, RVLI_ROUTER_BIAS) ? SIGMOID : SOFTMAX;
}

static bool is_wide(const rvli_training *t)
{
    return has(t, RVLI_FULL_ROUTER);
}

/* Of all tokens and experts, a byte each. */
static uint64_t pairs(const rvli_training *t)
{
    return t->tokens * t->model->experts;
}

static uint64_t chosen(const rvli_training *t)
{
    return t->tokens * t->model->experts_per_token;
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

static uint64_t logits_bytes(const rvli_training *t)
{
    return (is_wide(t) ? RVLI_FULL : RVLI_HALF) * pairs(t);
}

static uint64_t weights_bytes(const rvli_training *t)
{
    return (has(t, RVLI_FULL_WEIGHTS) ? RVLI_FULL : RVLI_HALF) * chosen(t);
}

/* ---- Forward ---- */

/* The best of what is there, and where they are. Answers their values. */
static rvli_block choose(rvli_training *t, rvli_experts *e)
{
    rvli_block values = rvli_activation(t, RVLI_FULL * chosen(t));
    e->indices = rvli_activation(t, INDEX_BYTES * chosen(t));
    return values;
}

static void softmax_forward(rvli_training *t, rvli_experts *e)
{
    rvli_block full = rvli_activation(t, is_wide(t) ? 0 : RVLI_FULL * pairs(t));
    e->scores = rvli_activation(t, RVLI_FULL * pairs(t));
    rvli_release(t, &full);
    rvli_block values = choose(t, e);
    e->weights = rvli_next(t, weights_bytes(t), &values);
}

/* The sum of the best two of each group, and which groups these choose. */
typedef struct groups {
    rvli_block places;
    rvli_block sums;
    rvli_block mask; /* of groups */
    rvli_block each; /* of experts, where there are several groups */
    rvli_block outside;
} groups;

/* Leaves the scores of experts in groups that were chosen. */
static groups choose_groups(rvli_training *t, rvli_block *scores)
{
    uint64_t count = t->tokens * t->model->dim[RVLI_DIM_EXPERT_GROUPS];
    groups g = {0};
    rvli_block values = rvli_activation(t, 2 * RVLI_FULL * count);
    g.places = rvli_activation(t, 2 * INDEX_BYTES * count);
    g.sums = rvli_next(t, RVLI_FULL * count, &values);
    g.mask = rvli_activation(t, RVLI_FULL * count);
    g.each = rvli_activation(t, count > t->tokens ? RVLI_FULL * pairs(t) : 0);
    rvli_block inside = rvli_activation(t, pairs(t));
    g.outside = rvli_next(t, pairs(t), &inside);
    *scores = rvli_next(t, RVLI_FULL * pairs(t), scores);
    return g;
}

static void drop_groups(rvli_training *t, groups *g)
{
    rvli_block *all[] = {&g->outside, &g->places, &g->sums, &g->mask, &g->each};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}

/* DeepSeek's: without groups that were not chosen. MiniMax M2 has none. */
static void sigmoid_forward(rvli_training *t, rvli_experts *e)
{
    bool grouped = is_wide(t);
    rvli_block full = rvli_activation(t, grouped ? 0 : RVLI_FULL * pairs(t));
    e->scores = rvli_activation(t, RVLI_FULL * pairs(t));
    rvli_release(t, &full);
    rvli_block biased = rvli_activation(t, RVLI_FULL * pairs(t));
    groups g = {0};
    if (grouped)
        g = choose_groups(t, &biased);
    rvli_block values = choose(t, e);
    rvli_block gathered = rvli_next(t, RVLI_FULL * chosen(t), &values);
    e->divided = rvli_activation(t, grouped ? RVLI_FULL * chosen(t) : 0);
    e->weights = rvli_next(t, weights_bytes(t), &gathered);
    rvli_release(t, &biased);
    drop_groups(t, &g);
}

static void chosen_first_forward(rvli_training *t, rvli_experts *e)
{
    if (has(t, RVLI_NUMBERS)) /* Granite's logits, in fp32 */
        e->logits = rvli_next(t, RVLI_FULL * pairs(t), &e->logits);
    rvli_block values = choose(t, e);
    e->scores = rvli_activation(t, RVLI_FULL * chosen(t));
    e->weights = rvli_next(t, weights_bytes(t), &values);
}

void rvli_router_forward(rvli_training *t, rvli_experts *e, bool kept)
{
    static void (*const forward[])(rvli_training *,
                                   rvli_experts *) = {[SOFTMAX] = softmax_forward,
                                                      [SIGMOID] = sigmoid_forward,
                                                      [CHOSEN_FIRST] = chosen_first_forward};
    uint64_t matrix = (uint64_t)t->model->experts * t->model->dim[RVLI_DIM_HIDDEN];
    e->input = rvli_activation(t, is_wide(t) ? 2 * hidden_bytes(t) : 0);
    e->router = rvli_activation(t, is_wide(t) ? RVLI_FULL * matrix : 0);
    e->logits = rvli_activation(t, logits_bytes(t));
    forward[kind_of(t)](t, e);
    rvli_block *all[] = {&e->input, &e->router, &e->scores, &e->divided};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_leave(t, all[i], kept);
}

/* ---- Backward ---- */

/* Answers the gradient of all logits. */
static rvli_block logits_backward(rvli_training *t, rvli_experts *e)
{
    rvli_block of_scores = rvli_activation(t, RVLI_FULL * pairs(t));
    if (kind_of(t) != CHOSEN_FIRST) {
        rvli_block of_full = rvli_activation(t, RVLI_FULL * pairs(t));
        rvli_block works = rvli_activation(t, kind_of(t) == SOFTMAX ? RVLI_FULL * pairs(t) : 0);
        rvli_release(t, &works);
        rvli_release(t, &of_scores);
        of_scores = of_full;
    }
    rvli_release(t, &e->scores);
    rvli_release(t, &e->indices);
    rvli_release(t, &e->divided);
    return is_wide(t) ? of_scores : rvli_next(t, logits_bytes(t), &of_scores);
}

void rvli_router_backward(rvli_training *t, rvli_unit *unit, rvli_experts *e, rvli_sum *of_tokens)
{
    uint64_t matrix = (uint64_t)t->model->experts * t->model->dim[RVLI_DIM_HIDDEN];
    rvli_block of_logits = logits_backward(t, e);
    rvli_block part = NULL;
    if (is_wide(t)) {
        rvli_block of_matrix = rvli_activation(t, RVLI_FULL * matrix);
        rvli_block of_full = rvli_activation(t, 2 * hidden_bytes(t));
        rvli_release(t, &e->input);
        rvli_release(t, &e->router);
        rvli_release(t, &of_logits);
        rvli_gradient(t, unit, RVLI_ROLE_ROUTER);
        rvli_release(t, &of_matrix);
        part = rvli_next(t, hidden_bytes(t), &of_full);
    } else {
        rvli_gradient(t, unit, RVLI_ROLE_ROUTER);
        part = rvli_next(t, hidden_bytes(t), &of_logits);
    }
    rvli_add(t, of_tokens, &part, false);
}
