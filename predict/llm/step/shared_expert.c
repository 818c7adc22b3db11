/* SPDX-License-Identifier: MIT */
/*
 * The expert for all tokens, beside those that each of them chooses.
 *
 * DeepSeek's and most others run behind the chosen ones. Qwen's runs before the router, and so
 * comes last in the backward pass; what it gave is multiplied by a gate of each token when the
 * others are done.
 *
 * Where tokens come as rows, autograd adds the gradients of both products in place. Else they are
 * views, to which it does not add.
 */
#include "predict/llm/step/training.h"

static bool has(const rvli_training *t, uint64_t features)
{
    return (t->model->features & features) != 0;
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

static uint64_t inner_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_SHARED_INTERMEDIATE];
}

bool rvli_has_shared(const rvli_training *t)
{
    return t->model->dim[RVLI_DIM_SHARED_INTERMEDIATE] > 0;
}

bool rvli_opens_shared(const rvli_training *t)
{
    return rvli_has_shared(t) && has(t, RVLI_SHARED_GATE);
}

bool rvli_is_shared_first(const rvli_training *t)
{
    return rvli_has_shared(t) && has(t, RVLI_SHARED_GATE);
}

/* Qwen's and Llama 4's. */
static bool is_flat(const rvli_training *t)
{
    return has(t, RVLI_SHARED_GATE);
}

/* ---- Forward ---- */

/* gate, up, the activated gate and their product; without a gate relu and its square. */
static void inner_forward(rvli_training *t, rvli_experts *e, bool kept)
{
    bool fused = has(t, RVLI_FUSED_UP), squared = has(t, RVLI_NO_GATE);
    e->shared_gate = rvli_activation(t, fused || squared ? 0 : inner_bytes(t));
    rvli_block both = rvli_activation(t, fused ? 2 * inner_bytes(t) : 0);
    rvli_block relu = rvli_activation(t, squared ? inner_bytes(t) : 0);
    e->shared_activated = rvli_activation(t, inner_bytes(t));
    rvli_leave(t, &e->shared_gate, kept);
    e->shared_up = fused ? both : rvli_activation(t, squared ? 0 : inner_bytes(t));
    e->shared_product = rvli_activation(t, inner_bytes(t));
    rvli_leave(t, &e->shared_activated, kept);
    rvli_leave(t, &e->shared_up, kept || fused); /* its parts have a name */
    rvli_release(t, &relu);
}

rvli_block rvli_shared_expert_forward(rvli_training *t, rvli_experts *e, bool kept, bool partial)
{
    inner_forward(t, e, kept);
    rvli_block given = rvli_activation(t, partial ? 0 : hidden_bytes(t));
    rvli_leave(t, &e->shared_product, kept);
    rvli_leave(t, &e->shared_up, kept);
    return given;
}

rvli_block rvli_shared_expert_open(rvli_training *t, rvli_experts *e, rvli_block given, bool kept,
                                   bool partial)
{
    if (!rvli_opens_shared(t))
        return given;
    rvli_block gate = rvli_activation(t, RVLI_HALF * t->tokens);
    e->shared_opened = rvli_next(t, RVLI_HALF * t->tokens, &gate);
    e->shared_given = given;
    rvli_block product = rvli_activation(t, partial ? 0 : hidden_bytes(t));
    rvli_leave(t, &e->shared_given, kept);
    return product;
}

/* ---- Backward ---- */

rvli_block rvli_shared_expert_open_backward(rvli_training *t, rvli_unit *unit, rvli_experts *e,
                                            rvli_sum *of_tokens)
{
    if (!rvli_opens_shared(t))
        return NULL;
    rvli_block of_given = rvli_activation(t, hidden_bytes(t));
    rvli_block of_opened = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, &of_opened);
    rvli_release(t, &e->shared_given);
    rvli_release(t, &e->shared_opened);
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_OPEN);
    rvli_block part = rvli_activation(t, hidden_bytes(t));
    rvli_add(t, of_tokens, &part, false);
    return of_given;
}

/* Takes the gradient of the product, and answers that of up, or of gate and up in one.
 * of_activated_out: of the activated gate, where it comes later; else NULL. */
static rvli_block product_backward(rvli_training *t, rvli_experts *e, rvli_block of_product,
                                   rvli_block *of_activated_out)
{
    *of_activated_out = NULL;
    if (has(t, RVLI_NO_GATE))
        return rvli_squared_backward(t, of_product, &e->shared_activated);
    rvli_block of_up = rvli_activation(t, inner_bytes(t));
    rvli_block of_activated = rvli_next(t, inner_bytes(t), &of_product);
    rvli_release(t, &e->shared_activated);
    if (!has(t, RVLI_FUSED_UP)) {
        rvli_release(t, &e->shared_up);
        *of_activated_out = of_activated;
        return of_up;
    }
    rvli_block of_gate = rvli_next(t, inner_bytes(t), &of_activated);
    rvli_release(t, &e->shared_up);
    rvli_block of_both = rvli_next(t, 2 * inner_bytes(t), &of_gate);
    rvli_release(t, &of_up);
    return of_both;
}

/* Nobody needs the tokens any more, where the router has its own or has run before. */
static void done_with_tokens(rvli_training *t, rvli_layer *layer)
{
    if (has(t, RVLI_FULL_ROUTER) || rvli_is_shared_first(t))
        rvli_release(t, &layer->mlp_input);
}

void rvli_shared_expert_backward(rvli_training *t, uint32_t number, rvli_block *of_output,
                                 rvli_sum *of_tokens)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_experts *e = &layer->experts;
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_DOWN);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_product = rvli_activation(t, inner_bytes(t));
    if (of_output != NULL)
        rvli_release(t, of_output);
    rvli_release(t, &e->shared_product);
    rvli_block of_activated = NULL;
    rvli_block of_up = product_backward(t, e, of_product, &of_activated);
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_UP);
    rvli_block part = rvli_next(t, hidden_bytes(t), &of_up);
    if (of_activated == NULL)
        done_with_tokens(t, layer);
    rvli_add(t, of_tokens, &part, !is_flat(t));
    if (of_activated == NULL)
        return;
    rvli_block of_gate = rvli_next(t, inner_bytes(t), &of_activated);
    rvli_release(t, &e->shared_gate);
    rvli_gradient(t, unit, RVLI_ROLE_SHARED_GATE);
    part = rvli_next(t, hidden_bytes(t), &of_gate);
    done_with_tokens(t, layer);
    rvli_add(t, of_tokens, &part, !is_flat(t));
}

void rvli_shared_expert_last_backward(rvli_training *t, uint32_t number, rvli_block *of_output,
                                      rvli_sum *of_tokens)
{
    of_tokens->is_view = !is_flat(t);
    rvli_shared_expert_backward(t, number, of_output, of_tokens);
}
