/* SPDX-License-Identifier: MIT */
/*
 * The optimizer's step. The first step makes the states, parameter by parameter. PyTorch's default,
 * foreach AdamW, holds the square roots of all second moments at once.
 */
#include <stdlib.h>

#include "predict/llm/step/training.h"

/* States of few elements are not quantised. */
static bool is_in_blocks(const rvli_training *t, uint64_t elements)
{
    return rvli_optimizer_kinds[t->options->optimizer].blocks &&
           elements >= RVLI_STATE_8BIT_ELEMENTS_MIN;
}

static uint64_t state_bytes(const rvli_training *t, const rvli_parameter *parameter)
{
    uint64_t elements = parameter->share_elements;
    bool full = rvli_optimizer_kinds[t->options->optimizer].blocks && !is_in_blocks(t, elements);
    /* states in the parameter's type */
    bool as_it_is = t->options->optimizer == RVL_MODEL_ADAMW_BF16;
    if (full || (as_it_is && rvli_is_wide_router(t, parameter->role)))
        return RVLI_FULL * elements;
    return rvli_optimizer_kinds[t->options->optimizer].bytes * elements;
}

/* bitsandbytes keeps large states in managed memory, which PyTorch does not allocate. */
static bool is_paged(const rvli_training *t, uint64_t elements)
{
    return rvli_optimizer_kinds[t->options->optimizer].paged &&
           elements >= RVLI_STATE_PAGED_ELEMENTS_MIN;
}

/* The scales of both states, after the states (bitsandbytes/optim/optimizer.py, init_state). */
static void make_scales(rvli_training *t, uint64_t elements, unsigned states)
{
    uint64_t blocks = (elements + RVLI_STATE_BLOCK - 1) / RVLI_STATE_BLOCK;
    for (unsigned state = 0; state < states && is_in_blocks(t, elements); state++)
        rvli_take(&t->tape, RVL_MODEL_OPTIMIZER, blocks * RVLI_FULL);
}

static void make_states(rvli_training *t)
{
    unsigned count = rvli_optimizer_kinds[t->options->optimizer].states;
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        rvli_parameter *parameter = &t->parameters[i];
        if (!parameter->trained || parameter->has_managed_states || parameter->states[0] != NULL)
            continue;
        parameter->has_managed_states = is_paged(t, parameter->share_elements);
        for (unsigned state = 0; state < count && !parameter->has_managed_states; state++)
            parameter->states[state] =
                rvli_take(&t->tape, RVL_MODEL_OPTIMIZER, state_bytes(t, parameter));
        make_scales(t, parameter->share_elements, count);
    }
}

static bool is_adamw(const rvli_training *t)
{
    return t->options->optimizer == RVL_MODEL_ADAMW ||
           t->options->optimizer == RVL_MODEL_ADAMW_BF16;
}

void rvli_optimizer_step(rvli_training *t)
{
    if (rvli_is_on_host(t))
        return;
    make_states(t);
    if (!is_adamw(t) || (t->options->flags & RVL_MODEL_FUSED))
        return;
    rvli_block *roots = calloc(t->parameter_count, sizeof(rvli_block));
    if (roots == NULL) {
        t->tape.failed = true;
        return;
    }
    for (uint32_t i = 0; i < t->parameter_count; i++)
        roots[i] = rvli_take(&t->tape, RVL_MODEL_OPTIMIZER_TEMPORARIES,
                             t->parameters[i].trained ? state_bytes(t, &t->parameters[i]) : 0);
    for (uint32_t i = t->parameter_count; i > 0; i--)
        rvli_release(t, &roots[i - 1]);
    free(roots);
}
