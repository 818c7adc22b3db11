/* SPDX-License-Identifier: MIT */
/*
 * State that lives from step to step. Each part of the model has one buffer of bf16 weights and one
 * of gradients. This rank's share has main weights in fp32 and Adam's moments
 * (megatron/core/optimizer/distrib_optimizer.py).
 *
 * The module's own weights are made first, and freed when they have been copied into the buffer.
 */
#include "predict/llm/step/megatron/rank.h"

static uint64_t gradient_bytes(const rvli_rank *r)
{
    return r->options->flags & RVL_MODEL_BF16_GRADIENTS ? RVLI_HALF : RVLI_FULL;
}

/* Visits parameters in the order of a part's buffer. */
static void for_each_of(rvli_rank *r, uint32_t part, bool is_expert, rvli_rank_act act)
{
    for (uint32_t i = r->parameter_count; i > 0; i--) {
        if (r->parameters[i - 1].part == part && r->parameters[i - 1].is_expert == is_expert)
            act(r, &r->parameters[i - 1]);
    }
}

void rvli_rank_for_each(rvli_rank *r, bool is_expert, rvli_rank_act act)
{
    for (uint32_t part = 0; part < r->parts; part++)
        for_each_of(r, part, is_expert, act);
}

static void drop_first(rvli_rank *r, rvli_rank_parameter *parameter)
{
    rvli_rank_drop(r, &parameter->first);
}

uint64_t rvli_rank_elements(const rvli_rank *r, uint32_t part, bool is_expert)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < r->parameter_count; i++) {
        const rvli_rank_parameter *parameter = &r->parameters[i];
        if (parameter->part == part && parameter->is_expert == is_expert)
            elements += parameter->elements;
    }
    return elements;
}

/* Permanent. */
static void make_buffers(rvli_rank *r, uint32_t part, bool is_expert)
{
    uint64_t elements = rvli_rank_elements(r, part, is_expert);
    (void)rvli_take(&r->tape, RVL_MODEL_SHARDED_WEIGHTS, RVLI_HALF * elements);
    (void)rvli_take(&r->tape, RVL_MODEL_GRADIENTS, gradient_bytes(r) * elements);
    for_each_of(r, part, is_expert, drop_first);
}

/* There is a copy in bf16 for a moment. */
static void make_main(rvli_rank *r, rvli_rank_parameter *parameter)
{
    uint64_t elements = parameter->share_elements;
    rvli_block half = rvli_take(&r->tape, RVL_MODEL_MASTER_WEIGHTS, RVLI_HALF * elements);
    parameter->main = rvli_take(&r->tape, RVL_MODEL_MASTER_WEIGHTS, RVLI_FULL * elements);
    rvli_rank_drop(r, &half);
}

/* One workspace, made for the first of its modules. */
static void make_engine_workspace(rvli_rank *r)
{
    if (!rvli_rank_is_local(r))
        (void)rvli_take(&r->tape, RVL_MODEL_BLAS_WORKSPACES, RVLI_ENGINE_WORKSPACE_BYTES);
}

void rvli_rank_load(rvli_rank *r)
{
    make_engine_workspace(r);
    for (uint32_t i = 0; i < r->parameter_count; i++)
        r->parameters[i].first =
            rvli_take(&r->tape, RVL_MODEL_SHARDED_WEIGHTS, RVLI_HALF * r->parameters[i].elements);
    for (uint32_t part = 0; part < r->parts; part++) {
        make_buffers(r, part, false);
        make_buffers(r, part, true);
    }
    if (rvli_rank_offloads(r)) {
        rvli_rank_load_hybrid(r);
        return;
    }
    rvli_rank_for_each(r, false, make_main);
    rvli_rank_for_each(r, true, make_main);
}

void rvli_rank_zero_gradients(rvli_rank *r)
{
    if (rvli_rank_offloads(r))
        return;
    for (uint32_t i = 0; i < r->parameter_count; i++)
        rvli_rank_drop(r, &r->parameters[i].gradient);
}

/* ---- The optimizer ---- */

/* For a bf16 gradient the optimizer makes a copy in fp32, which stays until the next step
 * begins. */
static void copy_gradient(rvli_rank *r, rvli_rank_parameter *parameter)
{
    if (gradient_bytes(r) == RVLI_HALF)
        parameter->gradient =
            rvli_take(&r->tape, RVL_MODEL_GRADIENTS, RVLI_FULL * parameter->share_elements);
}

void rvli_rank_make_states(rvli_rank *r, rvli_rank_parameter *parameter)
{
    for (int i = 0; i < 2 && parameter->states[i] == NULL; i++)
        parameter->states[i] =
            rvli_take(&r->tape, RVL_MODEL_OPTIMIZER, RVLI_FULL * parameter->share_elements);
}

static void take_root(rvli_rank *r, rvli_rank_parameter *parameter)
{
    parameter->root =
        rvli_take(&r->tape, RVL_MODEL_OPTIMIZER_TEMPORARIES, RVLI_FULL * parameter->share_elements);
}

static void drop_roots(rvli_rank *r)
{
    for (uint32_t i = 0; i < r->parameter_count; i++)
        rvli_rank_drop(r, &r->parameters[i].root);
}

/* Experts have a separate optimizer. PyTorch's foreach AdamW, which Megatron uses without
 * TransformerEngine and Apex, holds the roots of all its second moments at once. */
void rvli_rank_update(rvli_rank *r)
{
    if (rvli_rank_offloads(r)) {
        rvli_rank_update_hybrid(r);
        return;
    }
    rvli_rank_for_each(r, false, copy_gradient);
    rvli_rank_for_each(r, true, copy_gradient);
    for (int is_expert = 0; is_expert < 2; is_expert++) {
        rvli_rank_for_each(r, is_expert != 0, rvli_rank_make_states);
        if (rvli_rank_is_local(r) && (r->options->flags & RVL_MODEL_FUSED) == 0)
            rvli_rank_for_each(r, is_expert != 0, take_root);
        drop_roots(r);
    }
}
