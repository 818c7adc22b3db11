/* SPDX-License-Identifier: MIT */
/* Convolutions over time, with separate channels (aten/src/ATen/native/Convolution.cpp). Their
 * input is copied with channels first, forward and again backward. Their output is a little longer
 * than the input. */
#include "predict/llm/graph/graph.h"

static uint64_t longer_elements(const rvli_graph *g, uint64_t width)
{
    const rvli_training_shape *o = g->t->options;
    uint64_t kernel = g->t->model->dim[RVLI_DIM_CONV_KERNEL];
    return (uint64_t)o->micro_batch * (o->seq_len + kernel - 1) * width;
}

static void convolve_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                              rvli_value **of_out)
{
    (void)gradient;
    rvli_value *copy = rvli_gradient_make(g, node, 0);
    if (node->input[1].wanted)
        of_out[1] = rvli_gradient_make(g, node, 1);
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (node->input[2].wanted)
        of_out[2] = rvli_gradient_make(g, node, 2);
    rvli_value_release(g, copy);
}

/* The output ends where the last token no longer contributes. Mamba's convolution may have a
 * bias. */
static rvli_value *convolved(rvli_graph *g, rvli_value *const *inputs)
{
    rvli_shape shape = inputs[0]->shape;
    shape.elements = longer_elements(g, shape.width);
    rvli_node *node = rvli_node_make(g, convolve_backward, inputs, 3);
    rvli_node_keep(g, node, inputs[0]);
    rvli_node_keep(g, node, inputs[1]);
    rvli_value *copy = rvli_value_make(g, &inputs[0]->shape);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    rvli_value_release(g, copy);
    return y;
}

static rvli_value *conv1d(rvli_graph *g, rvli_value *const *arguments)
{
    bool is_mamba = rvli_parameter_at(g, arguments[1]->leaf)->role == RVLI_ROLE_MAMBA_CONV;
    rvli_value *bias = is_mamba ? rvli_value_parameter(g, RVLI_ROLE_MAMBA_CONV_BIAS) : NULL;
    rvli_value *const inputs[] = {arguments[0], arguments[1], bias};
    rvli_value *y = rvli_op_autocast(g, convolved, inputs, 3);
    rvli_value_release(g, bias);
    return y;
}

/* [..., :seqlen] */
static rvli_value *of_tokens(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements = g->t->tokens * shape.width;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

const rvli_operator rvli_convolution_operators[] = {
    RVLI_OPERATOR("conv1d", 2, conv1d),
    RVLI_OPERATOR("of_tokens", 1, of_tokens),
    {.name = NULL},
};
