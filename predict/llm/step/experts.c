/* SPDX-License-Identifier: MIT */
/*
 * Experts as transformers runs them on a GPU: by grouped products (integrations/moe.py,
 * grouped_mm_experts_forward).
 *
 * The chosen experts of all tokens are sorted. Tokens are copied once for each expert that they
 * chose, in this order, and go through two products over all experts. What these give is copied
 * each time to clear the rows of experts that are elsewhere. The sizes do not depend on how tokens
 * are routed.
 */
#include "predict/llm/step/training.h"

#define INDEX_BYTES UINT64_C(8)

typedef struct widths {
    uint64_t tokens;   /* hidden states */
    uint64_t selected; /* the same for each chosen expert */
    uint64_t inner;    /* of the experts' MLP */
    uint64_t up;       /* with the gate */
    uint64_t weighed;  /* selected, multiplied by the router's weights */
    uint64_t indices;  /* one for each chosen expert */
} widths;

static widths widths_of(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    uint64_t hidden = RVLI_HALF * t->tokens * dim[RVLI_DIM_HIDDEN];
    uint64_t chosen = t->model->experts_per_token;
    uint64_t inner = RVLI_HALF * t->tokens * chosen * dim[RVLI_DIM_EXPERT_INTERMEDIATE];
    uint64_t wider = (t->model->features & RVLI_FULL_WEIGHTS) != 0 ? RVLI_FULL / RVLI_HALF : 1;
    return (widths){.tokens = hidden,
                    .selected = hidden * chosen,
                    .weighed = hidden * chosen * wider,
                    .inner = inner,
                    .up = 2 * inner,
                    .indices = INDEX_BYTES * t->tokens * t->model->experts_per_token};
}

/* What nothing needs behind the experts, unless they are run for a backward pass. */
void rvli_experts_drop(rvli_training *t, rvli_experts *e)
{
    rvli_block *all[] = {&e->scores,  &e->indices,        &e->divided,  &e->order, &e->places,
                         &e->inverse, &e->sorted_weights, &e->selected, &e->up,    &e->activated,
                         &e->product, &e->given,          &e->weights};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}

/* ---- Forward ---- */

static void gate_forward(rvli_training *t, const widths *w, rvli_experts *e, bool kept)
{
    e->activated = rvli_activation(t, w->inner);
    e->product = rvli_activation(t, w->inner);
    rvli_leave(t, &e->up, kept);
    rvli_leave(t, &e->activated, kept);
}

/* The chosen experts of all tokens, sorted. */
typedef struct sorting {
    rvli_block sorted;
    rvli_block small; /* the same in 4 bytes, to be counted */
} sorting;

/* What a sort works in, beside keys and values: both once more. */
static void sort_works(rvli_training *t, const widths *w)
{
    rvli_block works = rvli_activation(t, 2 * w->indices);
    rvli_release(t, &works);
}

static sorting sort(rvli_training *t, const widths *w, rvli_experts *e)
{
    sorting s = {.sorted = rvli_activation(t, w->indices)};
    e->order = rvli_activation(t, w->indices);
    rvli_block places = rvli_activation(t, w->indices);
    sort_works(t, w);
    rvli_release(t, &places);
    e->places = rvli_activation(t, w->indices);
    e->selected = rvli_activation(t, w->selected);
    e->sorted_weights = rvli_activation(t, rvli_bytes_of(e->weights));
    s.small = rvli_activation(t, w->indices / 2);
    return s;
}

/* Each token's outputs, weighed, in its order, and their sum. */
static rvli_block add_up(rvli_training *t, const widths *w, rvli_experts *e)
{
    bool in_full = w->weighed > w->selected;
    rvli_block weighed = rvli_activation(t, w->weighed);
    e->inverse = rvli_activation(t, w->indices);
    rvli_block places = rvli_activation(t, w->indices);
    rvli_release(t, &places);
    rvli_block ordered = rvli_next(t, w->weighed, &weighed);
    rvli_block sum = rvli_activation(t, in_full ? 2 * w->tokens : w->tokens);
    rvli_block output = in_full ? rvli_activation(t, w->tokens) : sum;
    rvli_release(t, &ordered);
    if (in_full)
        rvli_release(t, &sum);
    return output;
}

rvli_block rvli_experts_run(rvli_training *t, rvli_experts *e, bool kept)
{
    const widths all = widths_of(t), *w = &all;
    sorting s = sort(t, w, e);
    rvli_block given = rvli_activation(t, w->up);
    e->up = rvli_next(t, w->up, &given); /* a copy, some rows cleared */
    gate_forward(t, w, e, kept);
    given = rvli_activation(t, w->selected);
    rvli_leave(t, &e->product, kept);
    e->given = rvli_next(t, w->selected, &given);
    rvli_block sum = add_up(t, w, e);
    rvli_release(t, &s.sorted);
    rvli_release(t, &s.small);
    rvli_leave(t, &e->selected, kept);
    rvli_leave(t, &e->given, kept);
    return sum;
}

/* ---- Backward ---- */

/* What is put where indices say is added in their order, so they are sorted first. */
static void put_backward(rvli_training *t, const widths *w)
{
    rvli_block linear = rvli_activation(t, w->indices);
    rvli_block sorted = rvli_activation(t, w->indices);
    rvli_block places = rvli_activation(t, w->indices);
    rvli_block range = rvli_activation(t, w->indices);
    sort_works(t, w);
    rvli_release(t, &range);
    rvli_release(t, &places);
    rvli_release(t, &sorted);
    rvli_release(t, &linear);
}

/* From the gradient of the sum of all outputs to that of each. That of the sum goes, where it is
 * its own. */
static void sum_backward(rvli_training *t, const widths *w, rvli_experts *e, rvli_block *of_output)
{
    bool in_full = w->weighed > w->selected;
    rvli_block of_sum = rvli_activation(t, in_full ? 2 * w->tokens : 0);
    e->of_ordered = rvli_next(t, w->weighed, &of_sum);
    rvli_release(t, of_output);
}

/* Answers the gradient of what the experts gave. */
static rvli_block weights_backward(rvli_training *t, const widths *w, rvli_experts *e)
{
    bool in_full = w->weighed > w->selected;
    bool recomputed = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    rvli_block of_weighed = rvli_activation(t, w->weighed);
    put_backward(t, w);
    rvli_release(t, &e->of_ordered);
    rvli_release(t, &e->inverse);
    rvli_block of_weights = rvli_activation(t, w->weighed);
    rvli_block of_given = rvli_activation(t, w->weighed);
    if (recomputed)
        rvli_release(t, &e->given);
    if (in_full)
        of_given = rvli_next(t, w->selected, &of_given);
    e->of_weights = rvli_next(t, rvli_bytes_of(e->sorted_weights), &of_weights);
    rvli_release(t, &of_weighed);
    rvli_release(t, &e->given);
    rvli_release(t, &e->sorted_weights);
    return rvli_next(t, w->selected, &of_given);
}

/* Answers the gradient of what gate and up gave, of which some rows are cleared. */
static rvli_block gate_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                rvli_block of_product)
{
    rvli_block of_up = rvli_activation(t, w->inner);
    rvli_block of_activated = rvli_next(t, w->inner, &of_product);
    rvli_release(t, &e->activated);
    rvli_block of_gate = rvli_next(t, w->inner, &of_activated);
    rvli_release(t, &e->up);
    rvli_block of_both = rvli_next(t, w->up, &of_gate);
    rvli_release(t, &of_up);
    return rvli_next(t, w->up, &of_both);
}

/* From the gradient of what the experts gave to that of what the products of gate and up gave. */
static rvli_block outputs_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                   rvli_unit *unit, rvli_block of_given)
{
    rvli_gradient(t, unit, RVLI_ROLE_EXPERTS_DOWN);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_product = rvli_next(t, w->inner, &of_given);
    rvli_release(t, &e->product);
    return gate_backward(t, w, e, of_product);
}

/* The same of those that were chosen, and of the router's weights in the experts' order. */
static rvli_block selected_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                    rvli_block of_selected)
{
    of_selected = rvli_next(t, w->selected, &of_selected);
    rvli_block of_weights = rvli_activation(t, rvli_bytes_of(e->of_weights));
    put_backward(t, w);
    rvli_release(t, &e->order);
    rvli_release(t, &e->of_weights);
    rvli_block of_tokens = rvli_activation(t, w->tokens);
    put_backward(t, w);
    rvli_release(t, &e->places);
    rvli_release(t, &of_selected);
    rvli_release(t, &of_weights);
    return of_tokens;
}

rvli_block rvli_experts_run_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_unit *unit = &t->units[number];
    rvli_experts *e = &t->layers[number].experts;
    widths w = widths_of(t);
    sum_backward(t, &w, e, &of_output);
    rvli_block of_given = weights_backward(t, &w, e);
    e->of_ordered = NULL;
    rvli_block of_up = outputs_backward(t, &w, e, unit, of_given);
    rvli_gradient(t, unit, RVLI_ROLE_EXPERTS_UP);
    rvli_block of_selected = rvli_next(t, w.selected, &of_up);
    rvli_release(t, &e->selected);
    return selected_backward(t, &w, e, of_selected);
}
