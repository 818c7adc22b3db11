/* SPDX-License-Identifier: MIT */
/*
 * Experts as transformers runs them on a GPU: by grouped products (integrations/moe.py,
 * grouped_mm_experts_forward).
 *
 * Tokens are copied once for each expert that they chose, in the order of the experts, and go
 * through two products over all experts. What these give is copied each time to clear the rows of
 * experts that are elsewhere. The sizes do not depend on how tokens are routed.
 */
#include "predict/llm/step/training.h"

#define INDEX_BYTES UINT64_C(8)
#define INDICES 3 /* order, token and inverse order, of each chosen expert */

typedef struct widths {
    uint64_t tokens;   /* hidden states */
    uint64_t selected; /* the same for each chosen expert */
    uint64_t inner;    /* of the experts' MLP */
    uint64_t up;       /* with the gate, if there is one */
    uint64_t logits;
    uint64_t shared; /* what the expert for all tokens keeps */
} widths;

static widths widths_of(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    uint64_t hidden = RVLI_HALF * t->tokens * dim[RVLI_DIM_HIDDEN];
    uint64_t chosen = t->model->experts_per_token;
    uint64_t inner = RVLI_HALF * t->tokens * chosen * dim[RVLI_DIM_EXPERT_INTERMEDIATE];
    uint64_t gates = (t->model->features & RVLI_NO_GATE) != 0 ? 1 : 2;
    return (widths){.tokens = hidden,
                    .selected = hidden * chosen,
                    .inner = inner,
                    .up = gates * inner,
                    .logits = RVLI_HALF * t->tokens * dim[RVLI_DIM_EXPERTS],
                    .shared = 4 * RVLI_HALF * t->tokens * dim[RVLI_DIM_SHARED_INTERMEDIATE]};
}

static void drop(rvli_training *t, rvli_experts *e)
{
    rvli_block *all[] = {&e->probabilities, &e->indices, &e->selected, &e->up,
                         &e->activated,     &e->product, &e->given,    &e->shared};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}

/* A copy in which some rows are cleared; takes the original. */
static rvli_block cleared(rvli_training *t, rvli_block *original)
{
    rvli_block copy = rvli_activation(t, (*original)->requested);
    rvli_release(t, original);
    return copy;
}

/* ---- Forward ---- */

/* Answers the logits, which stay until the experts are done. */
static rvli_block route(rvli_training *t, const widths *w, rvli_experts *e)
{
    rvli_block logits = rvli_activation(t, w->logits);
    rvli_block full = rvli_activation(t, 2 * w->logits);
    e->probabilities = rvli_activation(t, 2 * w->logits);
    rvli_release(t, &full);
    e->indices =
        rvli_activation(t, INDICES * INDEX_BYTES * t->tokens * t->model->experts_per_token);
    return logits;
}

static void run(rvli_training *t, const widths *w, rvli_experts *e)
{
    e->selected = rvli_activation(t, w->selected);
    rvli_block given = rvli_activation(t, w->up);
    e->up = cleared(t, &given);
    e->activated = rvli_activation(t, w->inner);
    e->product = rvli_activation(t, w->up > w->inner ? w->inner : 0);
    given = rvli_activation(t, w->selected);
    e->given = cleared(t, &given);
}

/* Each token's outputs, weighed, in its order, and their sum. */
static rvli_block add_up(rvli_training *t, const widths *w)
{
    rvli_block weighed = rvli_activation(t, w->selected);
    rvli_block ordered = rvli_activation(t, w->selected);
    rvli_release(t, &weighed);
    rvli_block sum = rvli_activation(t, w->tokens);
    rvli_release(t, &ordered);
    return sum;
}

static rvli_block with_shared(rvli_training *t, const widths *w, rvli_experts *e, rvli_block routed)
{
    if (w->shared == 0)
        return routed;
    e->shared = rvli_activation(t, w->shared);
    rvli_block given = rvli_activation(t, w->tokens);
    rvli_block sum = rvli_activation(t, w->tokens);
    rvli_release(t, &given);
    rvli_release(t, &routed);
    return sum;
}

rvli_block rvli_experts_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    widths w = widths_of(t);
    rvli_block logits = route(t, &w, &layer->experts);
    run(t, &w, &layer->experts);
    rvli_block output = add_up(t, &w);
    rvli_release(t, &logits);
    output = with_shared(t, &w, &layer->experts, output);
    if (!kept) {
        drop(t, &layer->experts);
        rvli_release(t, &layer->mlp_input);
    }
    return output;
}

/* ---- Backward ---- */

static rvli_block next(rvli_training *t, uint64_t bytes, rvli_block *before)
{
    rvli_block made = rvli_activation(t, bytes);
    rvli_release(t, before);
    return made;
}

/* Answers the gradient of what the experts gave. */
static rvli_block weights_backward(rvli_training *t, const widths *w, rvli_experts *e)
{
    rvli_block of_ordered = rvli_activation(t, w->selected);
    rvli_block of_weighed = next(t, w->selected, &of_ordered);
    rvli_block of_weights = rvli_activation(t, w->selected);
    rvli_block of_given = rvli_activation(t, w->selected);
    rvli_release(t, &of_weights);
    rvli_release(t, &of_weighed);
    rvli_release(t, &e->given);
    return next(t, w->selected, &of_given);
}

/* Answers that of what gate and up gave. */
static rvli_block gate_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                rvli_block of_product)
{
    bool gated = w->up > w->inner;
    rvli_block of_up = rvli_activation(t, gated ? w->inner : 0);
    rvli_block of_activated = gated ? next(t, w->inner, &of_product) : of_product;
    rvli_release(t, &e->activated);
    rvli_block of_gate = next(t, w->inner, &of_activated);
    rvli_release(t, &e->up);
    rvli_block of_both = next(t, w->up, &of_gate);
    rvli_release(t, &of_up);
    return next(t, w->up, &of_both);
}

static void shared_backward(rvli_training *t, const widths *w, rvli_experts *e)
{
    rvli_block of_product = rvli_activation(t, w->shared / 4);
    rvli_block of_both = rvli_activation(t, w->shared / 2);
    rvli_release(t, &e->shared);
    rvli_release(t, &of_product);
    rvli_release(t, &of_both);
}

rvli_block rvli_experts_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_experts *e = &layer->experts;
    widths w = widths_of(t);
    shared_backward(t, &w, e);
    rvli_block of_given = weights_backward(t, &w, e);
    rvli_release(t, &of_output);
    rvli_gradient(t, unit, RVLI_ROLE_DOWN);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_product = next(t, w.inner, &of_given);
    rvli_release(t, &e->product);
    rvli_block of_up = gate_backward(t, &w, e, of_product);
    rvli_gradient(t, unit, RVLI_ROLE_GATE);
    rvli_block of_selected = next(t, w.selected, &of_up);
    rvli_release(t, &e->selected);
    of_selected = next(t, w.selected, &of_selected);
    rvli_block of_input = next(t, w.tokens, &of_selected);
    drop(t, e);
    rvli_release(t, &layer->mlp_input);
    return of_input;
}
