/* SPDX-License-Identifier: MIT */
/*
 * Experts as transformers runs them on a GPU: by grouped products (integrations/moe.py,
 * grouped_mm_experts_forward).
 *
 * Llama 4 has each token go through all experts, its hidden states weighed before they go there.
 * gpt_oss bounds gate and up, and multiplies the gate by a sigmoid of it; its biases are copied for
 * each row.
 *
 * DeepSeek's router and others take hidden states in fp32, which stay, and give weights in fp32, as
 * is then what they multiply.
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
    uint64_t weighed;  /* selected, multiplied by the router's weights */
    uint64_t logits;
    uint64_t shared; /* of the MLP of the expert for all tokens */
    uint64_t shared_up;
} widths;

static bool takes_all(const rvli_training *t)
{
    return (t->model->features & RVLI_ALL_EXPERTS) != 0;
}

static widths widths_of(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    uint64_t hidden = RVLI_HALF * t->tokens * dim[RVLI_DIM_HIDDEN];
    uint64_t chosen = takes_all(t) ? t->model->experts : t->model->experts_per_token;
    uint64_t inner = RVLI_HALF * t->tokens * chosen * dim[RVLI_DIM_EXPERT_INTERMEDIATE];
    uint64_t gates = (t->model->features & RVLI_NO_GATE) != 0 ? 1 : 2;
    uint64_t wider = (t->model->features & RVLI_FULL_WEIGHTS) != 0 ? RVLI_FULL / RVLI_HALF : 1;
    return (widths){.tokens = hidden,
                    .selected = hidden * chosen,
                    .weighed = hidden * chosen * wider,
                    .inner = inner,
                    .up = gates * inner,
                    .logits = RVLI_HALF * t->tokens * dim[RVLI_DIM_EXPERTS],
                    .shared = RVLI_HALF * t->tokens * dim[RVLI_DIM_SHARED_INTERMEDIATE],
                    .shared_up = gates * RVLI_HALF * t->tokens * dim[RVLI_DIM_SHARED_INTERMEDIATE]};
}

static void drop(rvli_training *t, rvli_experts *e)
{
    rvli_block *all[] = {
        &e->input,          &e->probabilities, &e->indices,    &e->selected,   &e->up,
        &e->activated,      &e->factors[0],    &e->factors[1], &e->factors[2], &e->product,
        &e->given,          &e->shared,        &e->repeated,   &e->shared_up,  &e->shared_activated,
        &e->shared_product, &e->shared_gate};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}

static bool has_gate(const widths *w)
{
    return w->up > w->inner;
}

/* A copy in which some rows are cleared; takes the original. */
static rvli_block cleared(rvli_training *t, rvli_block *original)
{
    rvli_block copy = rvli_activation(t, rvli_bytes_of(*original));
    rvli_release(t, original);
    return copy;
}

static rvli_block next(rvli_training *t, uint64_t bytes, rvli_block *before)
{
    rvli_block made = rvli_activation(t, bytes);
    rvli_release(t, before);
    return made;
}

static bool is_biased(const rvli_training *t)
{
    return (t->model->features & RVLI_EXPERT_BIAS) != 0;
}

/* ---- Forward ---- */

/* Answers the logits, which stay until the experts are done. */
static rvli_block route(rvli_training *t, const widths *w, rvli_experts *e)
{
    bool in_full = (t->model->features & RVLI_FULL_ROUTER) != 0;
    e->input = rvli_activation(t, in_full ? 2 * w->tokens : 0);
    rvli_block logits = rvli_activation(t, w->logits);
    rvli_block full = rvli_activation(t, 2 * w->logits);
    e->probabilities = rvli_activation(t, 2 * w->logits);
    rvli_release(t, &full);
    e->indices =
        rvli_activation(t, INDICES * INDEX_BYTES * t->tokens * t->model->experts_per_token);
    return logits;
}

static void gate_forward(rvli_training *t, const widths *w, rvli_experts *e)
{
    e->activated = rvli_activation(t, w->inner);
    if (is_biased(t)) {
        rvli_block bounded = rvli_activation(t, w->inner);
        rvli_block scaled = rvli_activation(t, w->inner);
        e->factors[0] = next(t, w->inner, &scaled);
        e->factors[1] = rvli_activation(t, w->inner);
        e->factors[2] = rvli_activation(t, w->inner);
        e->product = next(t, w->inner, &bounded);
    } else {
        e->product = rvli_activation(t, w->inner);
    }
    if (!has_gate(w)) /* relu and its square need themselves alone */
        rvli_release(t, &e->up);
}

/* Each token's outputs, weighed, in its order, and their sum. */
static rvli_block add_up(rvli_training *t, const widths *w)
{
    bool in_full = w->weighed > w->selected;
    rvli_block weighed = rvli_activation(t, w->weighed);
    rvli_block ordered = next(t, w->weighed, &weighed);
    rvli_block sum = next(t, in_full ? 2 * w->tokens : w->tokens, &ordered);
    return in_full ? next(t, w->tokens, &sum) : sum;
}

/* All experts for each token. Answers the sum of their outputs. */
static rvli_block run_all(rvli_training *t, const widths *w, rvli_experts *e)
{
    e->repeated = rvli_activation(t, w->selected);
    e->selected = rvli_activation(t, w->selected);
    e->up = rvli_activation(t, w->up);
    e->activated = rvli_activation(t, w->inner);
    e->product = rvli_activation(t, w->inner);
    rvli_block given = rvli_activation(t, w->selected);
    return next(t, w->tokens, &given);
}

/* Those that were chosen. Answers the sum of their outputs. */
static rvli_block run(rvli_training *t, const widths *w, rvli_experts *e)
{
    e->selected = rvli_activation(t, w->selected);
    rvli_block bias = rvli_activation(t, is_biased(t) ? w->up : 0);
    rvli_block given = rvli_activation(t, w->up);
    e->up = cleared(t, &given);
    gate_forward(t, w, e);
    bias = next(t, is_biased(t) ? w->selected : 0, &bias);
    given = rvli_activation(t, w->selected);
    e->given = cleared(t, &given);
    rvli_block sum = add_up(t, w);
    rvli_release(t, &bias);
    return sum;
}

/* gate, up, the activated gate and their product; without a gate relu and its square. */
static void shared_forward(rvli_training *t, const widths *w, rvli_experts *e)
{
    if (!rvli_runs_shared(t)) {
        e->shared = rvli_activation(t, 4 * w->shared);
        return;
    }
    e->shared_up = rvli_activation(t, w->shared_up);
    e->shared_activated = rvli_activation(t, w->shared);
    e->shared_product = rvli_activation(t, w->shared);
    if (!has_gate(w))
        rvli_release(t, &e->shared_up);
}

static bool is_shared_first(const rvli_training *t)
{
    return (t->model->features & RVLI_SHARED_FIRST) != 0;
}

/* Hunyuan's and ERNIE's shared expert, before the router. Answers what it gave. */
static rvli_block shared_first_forward(rvli_training *t, const widths *w, rvli_experts *e)
{
    if (!is_shared_first(t) || w->shared == 0)
        return NULL;
    e->shared_gate = rvli_activation(t, w->shared);
    e->shared_activated = rvli_activation(t, w->shared);
    e->shared_up = rvli_activation(t, w->shared);
    e->shared_product = rvli_activation(t, w->shared);
    return rvli_activation(t, w->tokens);
}

static rvli_block with_shared(rvli_training *t, const widths *w, rvli_experts *e, rvli_block given,
                              rvli_block routed)
{
    if (w->shared == 0)
        return routed;
    if (given == NULL) {
        shared_forward(t, w, e);
        given = rvli_activation(t, w->tokens);
    }
    rvli_block sum = rvli_activation(t, w->tokens);
    rvli_release(t, &given);
    rvli_release(t, &routed);
    return sum;
}

rvli_block rvli_experts_forward(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    widths w = widths_of(t);
    rvli_block given = shared_first_forward(t, &w, &layer->experts);
    rvli_block logits = route(t, &w, &layer->experts);
    rvli_block output = (takes_all(t) ? run_all : run)(t, &w, &layer->experts);
    if (given == NULL)
        rvli_release(t, &logits);
    output = with_shared(t, &w, &layer->experts, given, output);
    rvli_release(t, &logits);
    if (!kept) {
        drop(t, &layer->experts);
        rvli_release(t, &layer->mlp_input);
    }
    return output;
}

/* ---- Backward ---- */

/* Answers the gradient of what the experts gave. */
static rvli_block weights_backward(rvli_training *t, const widths *w, rvli_experts *e)
{
    bool in_full = w->weighed > w->selected;
    rvli_block of_sum = rvli_activation(t, in_full ? 2 * w->tokens : 0);
    rvli_block of_ordered = next(t, w->weighed, &of_sum);
    rvli_block of_weighed = next(t, w->weighed, &of_ordered);
    rvli_block of_weights = rvli_activation(t, w->weighed);
    rvli_block of_given = rvli_activation(t, w->weighed);
    rvli_release(t, &of_weights);
    rvli_release(t, &of_weighed);
    rvli_release(t, &e->given);
    if (in_full)
        of_given = next(t, w->selected, &of_given);
    return next(t, w->selected, &of_given);
}

/* The same of a bounded gate by its sigmoid: gate and up are every second element. */
static rvli_block bounded_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                   rvli_block of_product)
{
    rvli_block of_up = rvli_activation(t, w->inner);
    rvli_block of_gated = next(t, w->inner, &of_product);
    rvli_release(t, &e->factors[1]);
    rvli_release(t, &e->factors[2]);
    rvli_block of_gate = rvli_activation(t, w->inner);
    rvli_block of_sigmoid = next(t, w->inner, &of_gated);
    rvli_release(t, &e->activated);
    rvli_block of_scaled = next(t, w->inner, &of_sigmoid);
    rvli_release(t, &e->factors[0]);
    rvli_block passing = next(t, w->inner, &of_scaled);
    rvli_release(t, &passing);
    rvli_block of_bounded = next(t, w->inner, &of_up);
    rvli_block of_free = next(t, w->inner, &of_gate);
    rvli_release(t, &e->up);
    rvli_block of_both = next(t, w->up, &of_bounded);
    rvli_block second = next(t, w->up, &of_free);
    rvli_release(t, &second);
    return next(t, w->up, &of_both);
}

/* What an MLP kept of gate and up, and what it activated of them. */
typedef struct activation {
    bool gated;
    rvli_block *up;
    rvli_block *activated;
} activation;

/* Answers the gradient of what gate and up gave, or up alone. */
static rvli_block activated_backward(rvli_training *t, const activation *a, rvli_block of_product)
{
    uint64_t bytes = rvli_bytes_of(of_product);
    if (!a->gated)
        return rvli_squared_backward(t, of_product, a->activated);
    rvli_block of_up = rvli_activation(t, bytes);
    rvli_block of_activated = next(t, bytes, &of_product);
    rvli_release(t, a->activated);
    rvli_block of_gate = next(t, bytes, &of_activated);
    rvli_release(t, a->up);
    rvli_block of_both = next(t, 2 * bytes, &of_gate);
    rvli_release(t, &of_up);
    return of_both;
}

/* The same of the experts, of which some rows are cleared. */
static rvli_block gate_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                rvli_block of_product)
{
    rvli_block of_both =
        activated_backward(t, &(activation){has_gate(w), &e->up, &e->activated}, of_product);
    return next(t, w->up, &of_both);
}

/* Answers the gradient of the tokens; NULL: it is part of the other experts'. */
static rvli_block shared_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                  rvli_unit *unit)
{
    if (!rvli_runs_shared(t)) {
        rvli_block of_product = rvli_activation(t, w->shared);
        rvli_block of_both = rvli_activation(t, 2 * w->shared);
        rvli_release(t, &e->shared);
        rvli_release(t, &of_product);
        rvli_release(t, &of_both);
        return NULL;
    }
    if (w->shared == 0 || is_shared_first(t))
        return NULL;
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_DOWN);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_product = rvli_activation(t, w->shared);
    rvli_release(t, &e->shared_product);
    rvli_block of_up = activated_backward(
        t, &(activation){has_gate(w), &e->shared_up, &e->shared_activated}, of_product);
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_UP);
    return next(t, w->tokens, &of_up);
}

/* Adds both gradients of the tokens. */
static rvli_block both(rvli_training *t, const widths *w, rvli_block of_shared,
                       rvli_block of_routed)
{
    if (of_shared == NULL)
        return of_routed;
    rvli_block sum = next(t, w->tokens, &of_shared);
    rvli_release(t, &of_routed);
    return sum;
}

/* From the gradient of the sum of their outputs to that of what the products of gate and up gave.
 */
static rvli_block outputs_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                   rvli_unit *unit)
{
    rvli_block of_given =
        takes_all(t) ? rvli_activation(t, w->selected) : weights_backward(t, w, e);
    rvli_gradient(t, unit, RVLI_ROLE_DOWN);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_product = next(t, w->inner, &of_given);
    rvli_release(t, &e->product);
    return (is_biased(t) ? bounded_backward : gate_backward)(t, w, e, of_product);
}

/* From the gradient of what the experts got to that of the tokens. */
static rvli_block inputs_backward(rvli_training *t, const widths *w, rvli_experts *e,
                                  rvli_block of_selected)
{
    rvli_block of_weights = rvli_activation(t, takes_all(t) ? w->selected : 0);
    of_selected = next(t, w->selected, &of_selected);
    rvli_release(t, &of_weights);
    rvli_release(t, &e->repeated);
    return next(t, w->tokens, &of_selected);
}

/* Of a router in fp32. What it passes on is added in place. */
static void router_backward(rvli_training *t, const widths *w, rvli_experts *e)
{
    if (e->input == NULL)
        return;
    rvli_block of_full = rvli_activation(t, 2 * w->tokens);
    rvli_release(t, &e->input);
    rvli_block of_tokens = next(t, w->tokens, &of_full);
    rvli_release(t, &of_tokens);
}

/* The expert that ran first comes last. Adds its part to the gradient of the tokens. */
static void shared_first_backward(rvli_training *t, const widths *w, rvli_layer *layer,
                                  rvli_unit *unit, rvli_block *of_output, rvli_block *of_input)
{
    rvli_experts *e = &layer->experts;
    if (!is_shared_first(t) || w->shared == 0)
        return;
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_DOWN);
    rvli_block of_product = rvli_activation(t, w->shared);
    rvli_release(t, of_output);
    rvli_release(t, &e->shared_product);
    rvli_block of_up = rvli_activation(t, w->shared);
    rvli_block of_activated = rvli_activation(t, w->shared);
    rvli_release(t, &of_product);
    rvli_release(t, &e->shared_activated);
    rvli_release(t, &e->shared_up);
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_UP);
    rvli_block part = rvli_activation(t, w->tokens);
    rvli_release(t, &of_up);
    rvli_block sum = next(t, w->tokens, of_input);
    rvli_release(t, &part);
    rvli_block of_gate = next(t, w->shared, &of_activated);
    rvli_release(t, &e->shared_gate);
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_GATE);
    part = next(t, w->tokens, &of_gate);
    rvli_release(t, &part); /* added in place */
    *of_input = sum;
}

rvli_block rvli_experts_backward(rvli_training *t, uint32_t number, rvli_block of_output)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_experts *e = &layer->experts;
    widths w = widths_of(t);
    rvli_block of_shared = shared_backward(t, &w, e, unit);
    bool first = is_shared_first(t) && w.shared > 0;
    if (e->input != NULL && !first) /* the router has its own, in fp32 */
        rvli_release(t, &layer->mlp_input);
    rvli_block of_up = outputs_backward(t, &w, e, unit);
    if (!first)
        rvli_release(t, &of_output);
    rvli_gradient(t, unit, RVLI_ROLE_GATE);
    rvli_block of_selected = next(t, w.selected, &of_up);
    rvli_release(t, &e->selected);
    rvli_block of_input = both(t, &w, of_shared, inputs_backward(t, &w, e, of_selected));
    router_backward(t, &w, e);
    shared_first_backward(t, &w, layer, unit, &of_output, &of_input);
    drop(t, e);
    rvli_release(t, &layer->mlp_input);
    return of_input;
}
