/* SPDX-License-Identifier: MIT */
/*
 * Linear layers: products with a weight in its own type, in autocast, or in four bits.
 *
 * LoRA's adapters, and what bitsandbytes does around a product, are texts (texts/lora). This file
 * has the products that they use. A product in four bits makes the whole weight in bf16, forward
 * and again backward, and keeps no input (bitsandbytes, autograd/_functions.py).
 */
#include "predict/llm/graph/graph.h"

#include <stdlib.h>

#include "base/grow.h"

#define INPUTS_MAX 3 /* of an operator that autocast runs in bf16 */

/* ---- A product ---- */

static void workspace(rvli_graph *g, rvli_workspace_name name)
{
    if (!g->stopped)
        rvli_workspace(g->t, name);
}

/* The gradient of the input is a transposed view of the kernel's output. */
static rvli_value *of_input(rvli_graph *g, const rvli_node *node)
{
    rvli_value *product = node->input[0].wanted ? rvli_gradient_make(g, node, 0) : NULL;
    if (product != NULL)
        product->is_view = !node->input[0].shape.is_rows;
    workspace(g, RVLI_WORKSPACE_BACKWARD);
    return product;
}

static rvli_value *of_weight(rvli_graph *g, const rvli_node *node)
{
    rvli_value *product = node->input[1].wanted ? rvli_gradient_make(g, node, 1) : NULL;
    if (product == NULL)
        return NULL;
    product->is_view = true;
    workspace(g, RVLI_WORKSPACE_BACKWARD);
    return product;
}

/* With a bias (addmm) the gradient of the input comes first, without one (mm) that of the weight.
 * The gradient of the bias is the sum over rows. */
static void product_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                             rvli_value **of_out)
{
    if (node->input[2].leaf == 0) {
        of_out[1] = of_weight(g, node);
        of_out[0] = of_input(g, node);
        return;
    }
    of_out[0] = of_input(g, node);
    of_out[1] = of_weight(g, node);
    if (node->input[2].wanted)
        of_out[2] = rvli_value_retain(gradient);
}

/* Rows as wide as the weight's output. */
static rvli_shape product_shape(const rvli_value *x, const rvli_value *weight)
{
    rvli_shape shape = x->shape;
    shape.width = weight->shape.elements / x->shape.width;
    shape.elements = x->shape.elements / x->shape.width * shape.width;
    return shape;
}

static rvli_value *product(rvli_graph *g, rvli_value *x, rvli_value *weight, rvli_value *bias,
                           rvl_model_term holder)
{
    if (x == NULL || weight == NULL)
        return NULL;
    rvli_value *const inputs[] = {x, weight, bias};
    rvli_shape shape = product_shape(x, weight);
    shape.holder = holder;
    rvli_node *node = rvli_node_make(g, product_backward, inputs, 3);
    if (weight->learns)
        rvli_node_keep(g, node, x);
    if (x->learns)
        rvli_node_keep(g, node, weight);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    workspace(g, RVLI_WORKSPACE_FORWARD);
    return y;
}

/* ---- Autocast ---- */

/* Autocast holds its copies of trained weights until it ends. */
static void hold_cast(rvli_graph *g, rvli_value *cast)
{
    if (g->cast_count == g->cast_room &&
        !rvli_grow(&g->casts, sizeof(rvli_value *), &g->cast_room, sizeof g->cast_room, 64)) {
        g->t->tape.failed = g->stopped = true;
        return;
    }
    g->casts[g->cast_count++] = rvli_value_retain(cast);
}

void rvli_casts_release(rvli_graph *g, uint32_t down_to)
{
    while (g->cast_count > down_to)
        rvli_value_release(g, g->casts[--g->cast_count]);
}

rvli_value *rvli_op_autocast(rvli_graph *g, rvli_value *(*run)(rvli_graph *, rvli_value *const *),
                             rvli_value *const *inputs, int count)
{
    rvli_value *half[INPUTS_MAX] = {NULL};
    for (int i = 0; i < count; i++)
        half[i] = rvli_is_autocast(g->t) ? rvli_op_convert(g, inputs[i], RVLI_HALF)
                                         : rvli_value_retain(inputs[i]);
    rvli_value *y = g->stopped ? NULL : run(g, half);
    for (int i = 0; i < count; i++)
        rvli_value_release(g, half[i]);
    return y;
}

static rvli_value *in_autocast(rvli_graph *g, rvli_value *x, rvli_value *weight, rvli_value *bias,
                               rvl_model_term holder)
{
    rvli_value *half_weight = rvli_op_convert(g, weight, RVLI_HALF);
    if (half_weight != NULL && half_weight != weight && weight->learns)
        hold_cast(g, half_weight);
    rvli_value *half = rvli_op_convert(g, x, RVLI_HALF);
    rvli_value *y = product(g, half, half_weight, bias, holder);
    rvli_value_release(g, half);
    rvli_value_release(g, half_weight);
    return y;
}

rvli_value *rvli_op_product(rvli_graph *g, rvli_value *x, rvli_value *weight, rvli_value *bias,
                            rvl_model_term holder)
{
    if (x == NULL || weight == NULL || g->stopped)
        return NULL;
    return (rvli_is_autocast(g->t) ? in_autocast : product)(g, x, weight, bias, holder);
}

/* ---- Four bits ---- */

static void four_bits_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                               rvli_value **of_out)
{
    (void)gradient;
    if (g->stopped)
        return;
    rvli_nf4 nf4 = rvli_nf4_backward(g->t, node->input[1].shape.elements);
    of_out[0] = rvli_gradient_make(g, node, 0);
    rvli_nf4_done(g->t, &nf4);
}

static rvli_value *bias_of(rvli_graph *g, const rvli_value *weight)
{
    static const rvli_role biases[RVLI_ROLE_COUNT] = {
        [RVLI_ROLE_Q] = RVLI_ROLE_Q_BIAS,          [RVLI_ROLE_K] = RVLI_ROLE_K_BIAS,
        [RVLI_ROLE_V] = RVLI_ROLE_V_BIAS,          [RVLI_ROLE_O] = RVLI_ROLE_O_BIAS,
        [RVLI_ROLE_GATE] = RVLI_ROLE_GATE_BIAS,    [RVLI_ROLE_UP] = RVLI_ROLE_UP_BIAS,
        [RVLI_ROLE_DOWN] = RVLI_ROLE_DOWN_BIAS,    [RVLI_ROLE_HEAD] = RVLI_ROLE_HEAD_BIAS,
        [RVLI_ROLE_ROUTER] = RVLI_ROLE_ROUTER_BIAS};
    rvli_role bias = biases[rvli_parameter_at(g, weight->leaf)->role];
    return bias != RVLI_ROLE_OTHER ? rvli_value_parameter(g, bias) : NULL;
}

static rvli_value *matmul_4bit(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_value *x = arguments[0], *weight = arguments[1];
    rvli_shape shape = product_shape(x, weight);
    if (g->stopped)
        return NULL;
    rvli_node *node = rvli_node_make(g, four_bits_backward, arguments, 2);
    rvli_nf4 nf4 = rvli_nf4_forward(g->t, weight->shape.elements);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    rvli_nf4_done(g->t, &nf4);
    return y;
}

/* ---- Layers ---- */

static bool is_quantised(const rvli_graph *g, const rvli_value *weight)
{
    return weight != NULL && rvli_parameter_at(g, weight->leaf)->is_quantised;
}

/* A linear layer without its adapter. */
static rvli_value *base_layer(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_value *x = arguments[0], *weight = arguments[1];
    if (is_quantised(g, weight))
        return rvli_program_call(g, RVLI_ENTRY_LINEAR_4BIT, arguments, 2);
    rvli_value *bias = weight != NULL ? bias_of(g, weight) : NULL;
    rvli_value *y = rvli_op_product(g, x, weight, bias, x->shape.holder);
    rvli_value_release(g, bias);
    return y;
}

/* cuBLASLt's workspace, for the first product with a bias. Autograd's thread has another one when
 * it computes layers again. */
static void bias_workspace(rvli_graph *g, const rvli_value *weight)
{
    rvli_value *bias = bias_of(g, weight);
    if (bias != NULL)
        workspace(g, g->again != NULL ? RVLI_WORKSPACE_RECOMPUTED_BIAS : RVLI_WORKSPACE_BIAS);
    rvli_value_release(g, bias);
}

rvli_value *rvli_linear(rvli_graph *g, rvli_value *weight, rvli_value *x)
{
    rvli_value *const arguments[] = {x, weight};
    rvli_value *y = NULL;
    if (x == NULL || weight == NULL)
        return NULL;
    if (rvli_parameter_at(g, weight->leaf)->adapter == 0)
        y = base_layer(g, arguments);
    else
        y = rvli_program_call(
            g, rvli_is_base_quantised(g->t) ? RVLI_ENTRY_LORA_4BIT : RVLI_ENTRY_LORA, arguments, 2);
    bias_workspace(g, weight);
    return y;
}

/* ---- LoRA's adapters ---- */

rvli_value *rvli_adapter_matrix(rvli_graph *g, const rvli_value *weight, uint32_t index,
                                uint64_t width)
{
    uint32_t first = rvli_parameter_at(g, weight->leaf)->adapter;
    return first != 0 ? rvli_value_leaf(g, first - 1 + index, width) : NULL;
}

static rvli_value *adapter(rvli_graph *g, rvli_value *const *arguments, uint32_t index)
{
    rvli_value *x = arguments[0];
    rvli_value *matrix = rvli_adapter_matrix(g, arguments[1], index, 0);
    rvli_value *y = rvli_op_product(g, x, matrix, NULL, x->shape.holder);
    rvli_value_release(g, matrix);
    return y;
}

static rvli_value *lora_a(rvli_graph *g, rvli_value *const *arguments)
{
    return adapter(g, arguments, 0);
}

static rvli_value *lora_b(rvli_graph *g, rvli_value *const *arguments)
{
    return adapter(g, arguments, 1);
}

/* PEFT's _cast_input_dtype(). With autocast and four bits, autocast converts the input instead. */
static rvli_value *cast_input(rvli_graph *g, rvli_value *const *x)
{
    uint8_t bytes = (uint8_t)rvli_adapter_bytes(g->t);
    return rvli_op_convert(g, x[0], rvli_is_autocast(g->t) ? x[0]->shape.element_bytes : bytes);
}

/* With autocast the output keeps its type, too. */
static rvli_value *cast_output(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_convert(
        g, x[0], rvli_is_autocast(g->t) ? x[0]->shape.element_bytes : x[1]->shape.element_bytes);
}

static rvli_value *linear(rvli_graph *g, rvli_value *const *arguments)
{
    return rvli_op_product(g, arguments[0], arguments[1], NULL, arguments[0]->shape.holder);
}

const rvli_operator rvli_product_operators[] = {
    RVLI_OPERATOR("linear", 2, linear),
    RVLI_OPERATOR("base_layer", 2, base_layer),
    RVLI_OPERATOR("matmul_4bit", 2, matmul_4bit),
    RVLI_OPERATOR("lora_A", 2, lora_a),
    RVLI_OPERATOR("lora_B", 2, lora_b),
    RVLI_OPERATOR("cast_input_dtype", 1, cast_input),
    RVLI_OPERATOR("cast_output_dtype", 2, cast_output),
    {.name = NULL},
};
