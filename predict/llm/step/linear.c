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
    *in_out = rvli_dim_here(t, RVLI_DIM_HIDDEN);
    *out_out = rvli_dim_here(t, RVLI_DIM_HIDDEN);
    if (role == RVLI_ROLE_Q)
        *out_out = rvli_dim_here(t, RVLI_DIM_Q_OUT);
    else if (role == RVLI_ROLE_K || role == RVLI_ROLE_V)
        *out_out = rvli_dim_here(t, RVLI_DIM_KV);
    else if (role == RVLI_ROLE_QKV)
        *out_out = rvli_dim_here(t, RVLI_DIM_Q) + 2 * rvli_dim_here(t, RVLI_DIM_KV);
    else if (role == RVLI_ROLE_O)
        *in_out = rvli_dim_here(t, RVLI_DIM_ATTENDED);
    else if (role == RVLI_ROLE_DOWN)
        *in_out = rvli_dim_here(t, RVLI_DIM_INTERMEDIATE);
    else if (role == RVLI_ROLE_GATE_UP)
        *out_out = 2 * rvli_dim_here(t, RVLI_DIM_INTERMEDIATE);
    else if (role == RVLI_ROLE_MAMBA_IN)
        *out_out = rvli_dim_here(t, RVLI_DIM_MAMBA_IN);
    else if (role == RVLI_ROLE_MAMBA_OUT)
        *in_out = rvli_dim_here(t, RVLI_DIM_MAMBA_INNER);
    else if (role == RVLI_ROLE_CONV_IN)
        *out_out = rvli_dim_here(t, RVLI_DIM_THREE_HIDDEN);
    else if (role != RVLI_ROLE_CONV_OUT)
        *out_out = rvli_dim_here(t, RVLI_DIM_INTERMEDIATE);
}

/* Whether a layer is given fp32, which it converts for its product. What attention gives is bf16.
 */
static bool is_given_wide(const rvli_training *t, rvli_role role)
{
    return rvli_is_wide(t) && role != RVLI_ROLE_O;
}

/* Bytes of an element of what a layer is given, and gives. */
static uint64_t passed_bytes(const rvli_training *t, rvli_role role)
{
    return is_given_wide(t, role) ? RVLI_FULL : RVLI_HALF;
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

/* The same in the type of what the layer gives. input: the adapter's, if it is not kept. */
static rvli_block add_as_given(rvli_training *t, uint64_t given_bytes, rvli_block *scaled,
                               rvli_block *output, rvli_block *input)
{
    bool converts = rvli_adapted_bytes(t) == RVLI_FULL;
    rvli_block half = rvli_activation(t, converts ? given_bytes : 0);
    if (converts)
        rvli_release(t, scaled);
    rvli_block sum = rvli_activation(t, given_bytes);
    rvli_release(t, output);
    if (input != NULL)
        rvli_release(t, input);
    rvli_release(t, &half);
    rvli_release(t, scaled);
    return sum;
}

/* What goes through an adapter up to its second matrix. In bf16 the input is the layer's own, if
 * that is bf16. */
static void enter_adapter(rvli_training *t, uint32_t number, rvli_role role)
{
    uint64_t in, out, each = rvli_adapted_bytes(t), rank = t->options->lora_rank;
    rvli_adapter *adapter = &t->layers[number].adapters[role];
    bool casts = rvli_casts_adapters(t);
    widths(t, role, &in, &out);
    adapter->casts[0] = rvli_activation(t, casts ? RVLI_HALF * rank * in : 0);
    if (each == RVLI_FULL || is_given_wide(t, role))
        adapter->input = rvli_activation(t, each * t->tokens * in);
    adapter->inner = rvli_activation(t, each * t->tokens * rank);
}

static rvli_block adapter_forward(rvli_training *t, uint32_t number, rvli_role role,
                                  rvli_block output, bool kept)
{
    uint64_t in, out, each = rvli_adapted_bytes(t);
    rvli_adapter *adapter = &t->layers[number].adapters[role];
    bool casts = rvli_casts_adapters(t);
    widths(t, role, &in, &out);
    enter_adapter(t, number, role);
    if (!kept && is_given_wide(t, role))
        rvli_release(t, &adapter->input); /* nothing has a name for it */
    adapter->casts[1] = rvli_activation(t, casts ? RVLI_HALF * t->options->lora_rank * out : 0);
    rvli_block given = rvli_activation(t, each * t->tokens * out);
    if (!kept)
        rvli_release(t, &adapter->inner);
    rvli_block scaled = rvli_activation(t, each * t->tokens * out);
    rvli_release(t, &given);
    if (rvli_is_base_quantised(t) || each == RVLI_HALF)
        return add_as_given(t, passed_bytes(t, role) * t->tokens * out, &scaled, &output,
                            kept ? NULL : &adapter->input);
    rvli_block sum = add_in_fp32(t, out, &scaled, &output);
    if (!kept)
        rvli_release(t, &adapter->input);
    return sum;
}

/* What the frozen, or trained, weight gives. */
static rvli_block base_forward(rvli_training *t, rvli_role role, uint64_t in, uint64_t out)
{
    bool wide = is_given_wide(t, role);
    if (!rvli_is_base_quantised(t)) {
        rvli_block given = rvli_activation(t, RVLI_HALF * t->tokens * out);
        rvli_workspace(t, RVLI_WORKSPACE_FORWARD); /* the first product, without positions */
        return given;
    }
    rvli_block input = rvli_activation(t, wide ? RVLI_HALF * t->tokens * in : 0);
    rvli_nf4 nf4 = rvli_nf4_forward(t, in * out);
    rvli_block output = rvli_activation(t, RVLI_HALF * t->tokens * out);
    rvli_nf4_done(t, &nf4);
    if (!wide)
        return output;
    rvli_block full = rvli_activation(t, RVLI_FULL * t->tokens * out);
    rvli_release(t, &output);
    rvli_release(t, &input);
    return full;
}

static void copy_output(rvli_training *t, rvli_block *output)
{
    rvli_block copy = rvli_activation(t, rvli_bytes_of(*output));
    rvli_release(t, output);
    *output = copy;
}

void rvli_down_again(rvli_training *t, uint32_t number)
{
    uint64_t in, out;
    if (!rvli_is_adapted(t, number, RVLI_ROLE_DOWN))
        return;
    widths(t, RVLI_ROLE_DOWN, &in, &out);
    rvli_block output = base_forward(t, RVLI_ROLE_DOWN, in, out);
    if (rvli_is_base_quantised(t))
        copy_output(t, &output);
    enter_adapter(t, number, RVLI_ROLE_DOWN);
    rvli_release(t, &output);
}

rvli_block rvli_linear_forward(rvli_training *t, uint32_t number, rvli_role role, bool kept)
{
    uint64_t in, out;
    widths(t, role, &in, &out);
    rvli_block output = base_forward(t, role, in, out);
    if (!rvli_is_adapted(t, number, role))
        return output;
    if (rvli_is_base_quantised(t))
        copy_output(t, &output);
    return adapter_forward(t, number, role, output, kept);
}

void rvli_end_autocast(rvli_training *t)
{
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    for (uint32_t number = 0; rvli_casts_adapters(t) && number < t->model->layers; number++) {
        for (int role = 0; role < RVLI_ROLE_COUNT; role++) {
            rvli_adapter *adapter = &t->layers[number].adapters[role];
            if (recompute || !rvli_wants_gradient(t, number, (rvli_role)role))
                rvli_release(t, &adapter->casts[0]);
            if (recompute)
                rvli_release(t, &adapter->casts[1]);
        }
    }
}

/* ---- Backward ---- */

static void add(rvli_training *t, rvli_sum *sum, rvli_block *part, bool is_view)
{
    if (sum->block == NULL) {
        *sum = (rvli_sum){.block = *part, .is_view = is_view};
        *part = NULL;
        return;
    }
    if (sum->is_view && *part != NULL) {
        rvli_block added = rvli_activation(t, rvli_bytes_of(*part));
        rvli_release(t, &sum->block);
        *sum = (rvli_sum){.block = added};
    }
    rvli_release(t, part);
}

void rvli_add(rvli_training *t, rvli_sum *sum, rvli_block *part, bool is_product)
{
    add(t, sum, part, is_product && !rvli_is_base_quantised(t));
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
static rvli_block scaled_backward(rvli_training *t, rvli_role role, uint64_t out, bool wanted,
                                  rvli_block *of_output)
{
    uint64_t each = rvli_adapted_bytes(t);
    bool same = each == RVLI_HALF && !is_given_wide(t, role);
    rvli_block converted = rvli_activation(t, same ? 0 : each * t->tokens * out);
    if (!rvli_is_base_quantised(t) && !same) {
        rvli_release(t, of_output);
        *of_output = rvli_activation(t, wanted ? RVLI_HALF * t->tokens * out : 0);
    }
    rvli_block scaled = rvli_activation(t, each * t->tokens * out);
    if (each == RVLI_HALF && !wanted)
        rvli_release(t, of_output);
    rvli_release(t, &converted);
    return scaled;
}

/* Of one of its matrices, in the type that it computed in. */
static rvli_block matrix_backward(rvli_training *t, uint32_t number, rvli_role role, uint32_t index)
{
    rvli_unit *unit = &t->units[number];
    const rvli_parameter *matrix = &t->parameters[unit->adapters[role] - 1 + index];
    if (!rvli_casts_adapters(t)) {
        rvli_adapter_gradient(t, unit, role, index);
        return NULL;
    }
    return rvli_activation(t, RVLI_HALF * matrix->elements);
}

/* In its own type. */
static void convert_gradient(rvli_training *t, uint32_t number, rvli_role role, uint32_t index,
                             rvli_block *half)
{
    if (rvli_casts_adapters(t))
        rvli_adapter_gradient(t, &t->units[number], role, index);
    rvli_release(t, half);
}

/* The last of the adapters that share an input has used it. */
static void release_shared(rvli_training *t, uint32_t number, rvli_role role)
{
    rvli_layer *layer = &t->layers[number];
    if (role == RVLI_ROLE_Q || role == RVLI_ROLE_QKV)
        rvli_release(t, &layer->attention_input);
    else if (role == RVLI_ROLE_O)
        rvli_release(t, &layer->by_tokens);
    else if (role == RVLI_ROLE_GATE || role == RVLI_ROLE_GATE_UP)
        rvli_release(t, &layer->mlp_input);
    else if (role == RVLI_ROLE_DOWN)
        rvli_release(t, &layer->product);
}

/* Takes the gradient of an adapter's input as it computed, and adds that of the layer's input. */
static void add_of_input(rvli_training *t, rvli_role role, uint64_t in, rvli_block *of_adapter,
                         rvli_sum *of_input)
{
    bool wanted = *of_adapter != NULL;
    uint64_t given = passed_bytes(t, role);
    if (rvli_adapted_bytes(t) == given) {
        add(t, of_input, of_adapter, true);
        return;
    }
    rvli_block converted = rvli_activation(t, wanted ? given * t->tokens * in : 0);
    rvli_release(t, of_adapter);
    add(t, of_input, &converted, false);
}

static void adapter_backward(rvli_training *t, uint32_t number, rvli_role role,
                             rvli_block *of_output, rvli_sum *of_input)
{
    uint64_t in, out, each = rvli_adapted_bytes(t);
    rvli_adapter *adapter = &t->layers[number].adapters[role];
    bool wanted = rvli_wants_gradient(t, number, role);
    widths(t, role, &in, &out);
    rvli_block scaled = take_early(t, number, role);
    if (scaled == NULL)
        scaled = scaled_backward(t, role, out, wanted, of_output);
    rvli_block of_second = matrix_backward(t, number, role, 1);
    rvli_block of_inner = rvli_activation(t, each * t->tokens * t->options->lora_rank);
    rvli_release(t, &scaled);
    rvli_release(t, &adapter->inner);
    rvli_release(t, &adapter->casts[1]);
    convert_gradient(t, number, role, 1, &of_second);
    rvli_block of_first = matrix_backward(t, number, role, 0);
    rvli_block of_adapter = rvli_activation(t, wanted ? each * t->tokens * in : 0);
    rvli_release(t, &of_inner);
    rvli_release(t, &adapter->casts[0]);
    rvli_release(t, &adapter->input);
    if (each == RVLI_HALF)
        release_shared(t, number, role);
    add_of_input(t, role, in, &of_adapter, of_input);
    convert_gradient(t, number, role, 0, &of_first);
}

/* of_output: NULL: it stays. */
static rvli_block base_backward(rvli_training *t, rvli_role role, uint64_t in, uint64_t out,
                                rvli_block *of_output)
{
    rvli_nf4 nf4 = {0};
    bool wide = is_given_wide(t, role);
    rvli_block half = rvli_activation(t, wide ? RVLI_HALF * t->tokens * out : 0);
    if (wide)
        rvli_release(t, of_output);
    if (rvli_is_base_quantised(t))
        nf4 = rvli_nf4_backward(t, in * out);
    rvli_block product = rvli_activation(t, RVLI_HALF * t->tokens * in);
    rvli_nf4_done(t, &nf4);
    rvli_release(t, &half);
    if (!wide)
        return product;
    rvli_block full = rvli_activation(t, RVLI_FULL * t->tokens * in);
    rvli_release(t, &product);
    return full;
}

void rvli_down_backward_early(rvli_training *t, uint32_t number)
{
    uint64_t in, out;
    rvli_layer *layer = &t->layers[number];
    if (!rvli_is_base_quantised(t))
        return;
    widths(t, RVLI_ROLE_DOWN, &in, &out);
    if (rvli_is_adapted(t, number, RVLI_ROLE_DOWN))
        layer->early = scaled_backward(t, RVLI_ROLE_DOWN, out, true, &(rvli_block){NULL});
    else
        layer->early = base_backward(t, RVLI_ROLE_DOWN, in, out, &(rvli_block){NULL});
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
        product = base_backward(t, role, in, out, of_output);
    if (has_bias) {
        rvli_gradient(t, unit, role);
        rvli_gradient_summed(t, unit, bias, t->tokens, out);
    }
    return product;
}

bool rvli_keeps_input(const rvli_training *t, uint32_t number, rvli_role role)
{
    return !rvli_is_frozen(t) || (rvli_adapted_bytes(t) == RVLI_HALF && !is_given_wide(t, role) &&
                                  rvli_is_adapted(t, number, role));
}

bool rvli_wants_gradient(const rvli_training *t, uint32_t number, rvli_role role)
{
    bool reads_hidden =
        role == RVLI_ROLE_Q || role == RVLI_ROLE_K || role == RVLI_ROLE_V || role == RVLI_ROLE_QKV;
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    return !rvli_is_frozen(t) || number > 0 || !reads_hidden || recompute;
}
