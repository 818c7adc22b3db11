/* SPDX-License-Identifier: MIT */
/*
 * A linear layer of a decoder layer, and what LoRA puts beside it.
 *
 * An adapter is two thin matrices in fp32, as PEFT makes them (peft/tuners/lora/layer.py,
 * Linear.forward): the input is converted to fp32, goes through both, is scaled, and is added to
 * what the frozen layer gives, in fp32. The backward pass keeps the converted input and what the
 * first matrix gave. A frozen layer keeps nothing but its weight.
 *
 * Beside a weight in four bits PEFT first copies what the layer gives, and what the adapter gives
 * is bf16 before both are added (peft/tuners/lora/bnb.py).
 */
#include "predict/llm/step/training.h"

/* The input of a role's layer, and what it gives. */
static void widths(const rvli_training *t, rvli_role role, uint64_t *in_out, uint64_t *out_out)
{
    const uint64_t *dim = t->model->dim;
    *in_out = dim[RVLI_DIM_HIDDEN];
    *out_out = dim[RVLI_DIM_HIDDEN];
    if (role == RVLI_ROLE_Q)
        *out_out = dim[RVLI_DIM_Q_OUT];
    else if (role == RVLI_ROLE_K || role == RVLI_ROLE_V)
        *out_out = dim[RVLI_DIM_KV];
    else if (role == RVLI_ROLE_QKV)
        *out_out = dim[RVLI_DIM_Q] + 2 * dim[RVLI_DIM_KV];
    else if (role == RVLI_ROLE_O)
        *in_out = dim[RVLI_DIM_ATTENDED];
    else if (role == RVLI_ROLE_DOWN)
        *in_out = dim[RVLI_DIM_INTERMEDIATE];
    else if (role == RVLI_ROLE_GATE_UP)
        *out_out = 2 * dim[RVLI_DIM_INTERMEDIATE];
    else if (role == RVLI_ROLE_MAMBA_IN)
        *out_out = dim[RVLI_DIM_MAMBA_IN];
    else if (role == RVLI_ROLE_MAMBA_OUT)
        *in_out = dim[RVLI_DIM_MAMBA_INNER];
    else
        *out_out = dim[RVLI_DIM_INTERMEDIATE];
}

bool rvli_is_adapted(const rvli_training *t, uint32_t number, rvli_role role)
{
    return t->units[number].adapters[role] != 0;
}

/* ---- Forward ---- */

/* Answers the sum of what an adapter and the frozen layer give. */
static rvli_block add_in_fp32(rvli_training *t, uint64_t out, rvli_block *scaled,
                              rvli_block *output)
{
    rvli_block sum = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, scaled);
    rvli_release(t, output);
    rvli_block half = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_release(t, &sum);
    return half;
}

/* The same in bf16. input: the adapter's, if it is not kept. */
static rvli_block add_in_bf16(rvli_training *t, uint64_t out, rvli_block *scaled,
                              rvli_block *output, rvli_block *input)
{
    rvli_block half = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_release(t, scaled);
    rvli_block sum = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_release(t, output);
    if (input != NULL)
        rvli_release(t, input);
    rvli_release(t, &half);
    return sum;
}

static rvli_block adapter_forward(rvli_training *t, uint32_t number, rvli_role role,
                                  rvli_block output, bool kept)
{
    uint64_t in, out;
    rvli_adapter *adapter = &t->layers[number].adapters[role];
    widths(t, role, &in, &out);
    adapter->input = rvli_activation(t, RVLI_FULL * t->tokens * in);
    adapter->inner = rvli_activation(t, RVLI_FULL * t->tokens * t->options->lora_rank);
    rvli_block given = rvli_activation(t, RVLI_FULL * t->tokens * out);
    if (!kept)
        rvli_release(t, &adapter->inner);
    rvli_block scaled = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, &given);
    if (rvli_is_base_quantised(t))
        return add_in_bf16(t, out, &scaled, &output, kept ? NULL : &adapter->input);
    rvli_block sum = add_in_fp32(t, out, &scaled, &output);
    if (!kept)
        rvli_release(t, &adapter->input);
    return sum;
}

/* What the frozen, or trained, weight gives. */
static rvli_block base_forward(rvli_training *t, uint64_t in, uint64_t out)
{
    if (!rvli_is_base_quantised(t)) {
        rvli_block output = rvli_activation(t, RVLI_HALF * t->tokens * out);
        rvli_workspace(t, RVLI_WORKSPACE_FORWARD); /* the first product, without positions */
        return output;
    }
    rvli_nf4 nf4 = rvli_nf4_forward(t, in * out);
    rvli_block output = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_nf4_done(t, &nf4);
    return output;
}

static void copy_output(rvli_training *t, uint64_t out, rvli_block *output)
{
    rvli_block copy = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_release(t, output);
    *output = copy;
}

void rvli_down_again(rvli_training *t, uint32_t number)
{
    uint64_t in, out;
    rvli_adapter *adapter = &t->layers[number].adapters[RVLI_ROLE_DOWN];
    if (!rvli_is_adapted(t, number, RVLI_ROLE_DOWN))
        return;
    widths(t, RVLI_ROLE_DOWN, &in, &out);
    rvli_block output = base_forward(t, in, out);
    if (rvli_is_base_quantised(t))
        copy_output(t, out, &output);
    adapter->input = rvli_activation(t, RVLI_FULL * t->tokens * in);
    adapter->inner = rvli_activation(t, RVLI_FULL * t->tokens * t->options->lora_rank);
    rvli_release(t, &output);
}

rvli_block rvli_linear_forward(rvli_training *t, uint32_t number, rvli_role role, bool kept)
{
    uint64_t in, out;
    widths(t, role, &in, &out);
    rvli_block output = base_forward(t, in, out);
    if (!rvli_is_adapted(t, number, role))
        return output;
    if (rvli_is_base_quantised(t))
        copy_output(t, out, &output);
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
    if (sum->is_product && *part != NULL && !rvli_is_base_quantised(t)) {
        rvli_block added = rvli_activation(t, rvli_bytes_of(*part));
        rvli_release(t, &sum->block);
        *sum = (rvli_sum){.block = added};
    }
    rvli_release(t, part);
}

/* What was worked out before the layer was computed again; NULL: nothing. */
static rvli_block take_early(rvli_training *t, uint32_t number, rvli_role role)
{
    rvli_block early = NULL;
    if (role == RVLI_ROLE_DOWN) {
        early = t->layers[number].early;
        t->layers[number].early = NULL;
    }
    return early;
}

/* Of what an adapter gave before it was scaled. Leaves that of what the frozen layer gave in
 * *of_output. */
static rvli_block scaled_backward(rvli_training *t, uint64_t out, bool wanted,
                                  rvli_block *of_output)
{
    rvli_block full = rvli_activation(t, RVLI_FULL * t->tokens * out);
    if (!rvli_is_base_quantised(t)) {
        rvli_release(t, of_output);
        *of_output = rvli_activation(t, wanted ? RVLI_HALF * t->tokens * out : 0);
    }
    rvli_block scaled = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, &full);
    return scaled;
}

static void adapter_backward(rvli_training *t, uint32_t number, rvli_role role,
                             rvli_block *of_output, rvli_sum *of_input)
{
    uint64_t in, out;
    rvli_unit *unit = &t->units[number];
    rvli_adapter *adapter = &t->layers[number].adapters[role];
    bool wanted = rvli_wants_gradient(t, number, role);
    widths(t, role, &in, &out);
    rvli_block scaled = take_early(t, number, role);
    if (scaled == NULL)
        scaled = scaled_backward(t, out, wanted, of_output);
    rvli_adapter_gradient(t, unit, role, 1);
    rvli_block of_inner = rvli_activation(t, RVLI_FULL * t->tokens * t->options->lora_rank);
    rvli_release(t, &scaled);
    rvli_release(t, &adapter->inner);
    rvli_adapter_gradient(t, unit, role, 0);
    rvli_block full = rvli_activation(t, wanted ? RVLI_FULL * t->tokens * in : 0);
    rvli_release(t, &of_inner);
    rvli_release(t, &adapter->input);
    rvli_block half = rvli_activation(t, wanted ? RVLI_HALF * t->tokens * in : 0);
    rvli_release(t, &full);
    rvli_add(t, of_input, &half, false);
}

static rvli_block base_backward(rvli_training *t, uint64_t in, uint64_t out)
{
    rvli_nf4 nf4 = {0};
    if (rvli_is_base_quantised(t))
        nf4 = rvli_nf4_backward(t, in * out);
    rvli_block product = rvli_activation(t, RVLI_HALF * t->tokens * in);
    rvli_nf4_done(t, &nf4);
    return product;
}

void rvli_down_backward_early(rvli_training *t, uint32_t number)
{
    uint64_t in, out;
    rvli_layer *layer = &t->layers[number];
    if (!rvli_is_base_quantised(t))
        return;
    widths(t, RVLI_ROLE_DOWN, &in, &out);
    if (rvli_is_adapted(t, number, RVLI_ROLE_DOWN))
        layer->early = scaled_backward(t, out, true, &(rvli_block){NULL});
    else
        layer->early = base_backward(t, in, out);
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
    rvli_block product = take_early(t, number, role);
    if (product == NULL)
        product = base_backward(t, in, out);
    if (has_bias) {
        rvli_gradient(t, unit, role);
        rvli_gradient_summed(t, unit, bias, t->tokens, out);
    }
    return product;
}

bool rvli_wants_gradient(const rvli_training *t, uint32_t number, rvli_role role)
{
    bool reads_hidden =
        role == RVLI_ROLE_Q || role == RVLI_ROLE_K || role == RVLI_ROLE_V || role == RVLI_ROLE_QKV;
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    return !rvli_is_frozen(t) || number > 0 || !reads_hidden || recompute;
}
