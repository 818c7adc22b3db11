/* SPDX-License-Identifier: MIT */
/*
 * What chooses the experts of each token of gpt_oss: it chooses first, and then takes the softmax
 * of the chosen, so nothing of the size of all logits stays.
 */
#include "predict/llm/step/training.h"

#define INDEX_BYTES UINT64_C(8)

/* Of all tokens and experts. */
static uint64_t pairs(const rvli_training *t)
{
    return t->tokens * t->model->experts;
}

static uint64_t chosen(const rvli_training *t)
{
    return t->tokens * t->model->experts_per_token;
}

void rvli_router_forward(rvli_training *t, rvli_experts *e, bool kept)
{
    e->logits = rvli_activation(t, RVLI_HALF * pairs(t));
    rvli_block values = rvli_activation(t, RVLI_FULL * chosen(t));
    e->indices = rvli_activation(t, INDEX_BYTES * chosen(t));
    e->scores = rvli_activation(t, RVLI_FULL * chosen(t));
    e->weights = rvli_next(t, RVLI_HALF * chosen(t), &values);
    rvli_leave(t, &e->scores, kept);
}

void rvli_router_backward(rvli_training *t, rvli_unit *unit, rvli_experts *e, rvli_sum *of_tokens)
{
    rvli_block of_scores = rvli_activation(t, RVLI_FULL * pairs(t));
    rvli_release(t, &e->scores);
    rvli_release(t, &e->indices);
    rvli_block of_logits = rvli_next(t, RVLI_HALF * pairs(t), &of_scores);
    rvli_gradient(t, unit, RVLI_ROLE_ROUTER);
    rvli_block part =
        rvli_next(t, RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN], &of_logits);
    rvli_add(t, of_tokens, &part, false);
}
