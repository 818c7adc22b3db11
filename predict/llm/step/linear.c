/* SPDX-License-Identifier: MIT */
/*
 * A linear layer of a decoder layer, and what LoRA puts beside it.
 *
 * An adapter is two thin matrices in fp32, as PEFT makes them (peft/tuners/lora/layer.py,
 * Linear.forward): the input is converted to fp32, goes through both, is scaled, and is added to
 * what the frozen layer gives, in fp32. The backward pass keeps the converted input and what the
 * first matrix gave. A frozen layer keeps nothing but its weight.
 */
#include "predict/llm/step/training.h"

/* The input of a role's layer, and what it gives. */
static void widths(const rvli_training *t, rvli_role role, uint64_t *in_out, uint64_t *out_out)
{
    const uint64_t *dim = t->model->dim;
    *in_out = dim[RVLI_DIM_HIDDEN];
    *out_out = dim[RVLI_DIM_HIDDEN];
    if (role == RVLI_ROLE_Q)
        *out_out = dim[RVLI_DIM_Q];
    else if (role == RVLI_ROLE_K || role == RVLI_ROLE_V)
        *out_out = dim[RVLI_DIM_KV];
    else if (role == RVLI_ROLE_O)
        *in_out = dim[RVLI_DIM_ATTENDED];
    else if (role == RVLI_ROLE_DOWN)
        *in_out = dim[RVLI_DIM_INTERMEDIATE];
    else
        *out_out = dim[RVLI_DIM_INTERMEDIATE];
}

bool rvli_is_adapted(const rvli_training *t, uint32_t number, rvli_role role)
{
    return t->units[number].adapters[role] != 0;
}

/* ---- Forward ---- */

static rvli_block adapter_forward(rvli_training *t, uint32_t number, rvli_role role,
                                  rvli_block output, bool kept)
{
    uint64_t in, out;
    rvli_adapter *adapter = &t->layers[number].adapters[role];
    widths(t, role, &in, &out);
    adapter->input = rvli_activation(t, RVLI_FULL * t->tokens * in);
    adapter->inner = rvli_activation(t, RVLI_FULL * t->tokens * t->options->lora_rank);
    rvli_block given = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_block scaled = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, &given);
    rvli_block sum = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, &scaled);
    rvli_release(t, &output);
    rvli_block half = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_release(t, &sum);
    if (!kept) {
        rvli_release(t, &adapter->inner);
        rvli_release(t, &adapter->input);
    }
    return half;
}

rvli_block rvli_linear_forward(rvli_training *t, uint32_t number, rvli_role role, bool kept)
{
    uint64_t in, out;
    widths(t, role, &in, &out);
    rvli_block output = rvli_activation(t, RVLI_HALF * t->tokens * out);
    if (!rvli_is_adapted(t, number, role))
        return output;
    return adapter_forward(t, number, role, output, kept);
}

/* ---- Backward ---- */

void rvli_add(rvli_training *t, rvli_sum *sum, rvli_block *part, bool is_product)
{
    if (sum->block == NULL) {
        *sum = (rvli_sum){.block = *part, .is_product = is_product};
        *part = NULL;
        return;
    }
    if (sum->is_product && *part != NULL) {
        rvli_block added = rvli_activation(t, (*part)->requested);
        rvli_release(t, &sum->block);
        *sum = (rvli_sum){.block = added};
    }
    rvli_release(t, part);
}

/* Leaves the gradient of what the frozen layer gave in *of_output. */
static void adapter_backward(rvli_training *t, uint32_t number, rvli_role role,
                             rvli_block *of_output, rvli_sum *of_input)
{
    uint64_t in, out;
    rvli_unit *unit = &t->units[number];
    rvli_adapter *adapter = &t->layers[number].adapters[role];
    bool wanted = rvli_wants_gradient(t, number, role);
    widths(t, role, &in, &out);
    rvli_block full = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, of_output);
    *of_output = rvli_activation(t, wanted ? RVLI_HALF * t->tokens * out : 0);
    rvli_block scaled = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, &full);
    rvli_adapter_gradient(t, unit, role, 1);
    rvli_block of_inner = rvli_activation(t, RVLI_FULL * t->tokens * t->options->lora_rank);
    rvli_release(t, &scaled);
    rvli_release(t, &adapter->inner);
    rvli_adapter_gradient(t, unit, role, 0);
    full = rvli_activation(t, wanted ? RVLI_FULL * t->tokens * in : 0);
    rvli_release(t, &of_inner);
    rvli_release(t, &adapter->input);
    rvli_block half = rvli_activation(t, wanted ? RVLI_HALF * t->tokens * in : 0);
    rvli_release(t, &full);
    rvli_add(t, of_input, &half, false);
}

rvli_block rvli_linear_backward(rvli_training *t, uint32_t number, rvli_role role, rvli_role bias,
                                rvli_block *of_output, rvli_sum *of_input)
{
    uint64_t in, out;
    rvli_unit *unit = &t->units[number];
    bool has_bias = bias != RVLI_ROLE_OTHER && unit->by_role[bias] != 0;
    widths(t, role, &in, &out);
    if (rvli_is_adapted(t, number, role))
        adapter_backward(t, number, role, of_output, of_input);
    if (!rvli_wants_gradient(t, number, role))
        return NULL;
    if (!has_bias)
        rvli_gradient(t, unit, role);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD); /* the first product, behind a fused loss */
    rvli_block product = rvli_activation(t, RVLI_HALF * t->tokens * in);
    if (has_bias) {
        rvli_gradient(t, unit, role);
        rvli_gradient_summed(t, unit, bias, t->tokens, out);
    }
    return product;
}

bool rvli_wants_gradient(const rvli_training *t, uint32_t number, rvli_role role)
{
    bool reads_hidden = role == RVLI_ROLE_Q || role == RVLI_ROLE_K || role == RVLI_ROLE_V;
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    return !rvli_is_frozen(t) || number > 0 || !reads_hidden || recompute;
}
