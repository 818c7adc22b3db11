/* SPDX-License-Identifier: MIT */
/*
 * LoRA's adapters of parameters that do not belong to a linear layer: stacks of experts, and
 * routers (peft/tuners/lora/layer.py, ParamWrapper).
 *
 * The product of the two matrices is added to the whole parameter in each forward pass. So its
 * users keep a second tensor of the parameter's size, and make a whole gradient of it.
 */
#include "predict/llm/graph/graph.h"

/* A for each expert: a view. */
static rvli_value *stacked_a(rvli_graph *g, rvli_value *const *weight)
{
    rvli_value *a = rvli_adapter_matrix(g, weight[0], 0, 0);
    if (a == NULL)
        return NULL;
    rvli_node *node = rvli_node_make(g, rvli_backward_pass, &a, 1);
    rvli_value *view = rvli_node_gives(g, node, rvli_value_view(g, a, &a->shape));
    rvli_value_release(g, a);
    return view;
}

/* B for each expert: a permuted view. Its gradient is copied into the order of B. */
static rvli_value *stacked_b(rvli_graph *g, rvli_value *const *weight)
{
    rvli_value *b = rvli_adapter_matrix(g, weight[0], 1, 0);
    if (b == NULL)
        return NULL;
    rvli_shape shape = b->shape;
    shape.holder = RVL_MODEL_ACTIVATIONS;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, &b, 1);
    rvli_value *view = rvli_node_gives(g, node, rvli_value_view(g, b, &shape));
    rvli_value_release(g, b);
    return view;
}

/* B times A, of a parameter that is one matrix. */
static rvli_value *product_of_adapter(rvli_graph *g, rvli_value *const *weight)
{
    rvli_value *a = rvli_adapter_matrix(g, weight[0], 0, 0);
    rvli_value *b = rvli_adapter_matrix(g, weight[0], 1, g->t->options->lora_rank);
    rvli_value *delta = rvli_op_product(g, b, a, NULL, RVL_MODEL_ACTIVATIONS);
    rvli_value_release(g, a);
    rvli_value_release(g, b);
    return delta;
}

/* Gradients of both factors, each before and after it is multiplied by the scale. The product for
 * the second copies the first factor. */
static void fold_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    (void)gradient;
    for (int i = 1; i <= 2; i++) {
        rvli_value *unscaled = rvli_gradient_make(g, node, i);
        if (i == 2)
            rvli_work(g, rvli_shape_bytes(&node->input[1].shape));
        of_out[i] = rvli_gradient_make(g, node, i);
        rvli_value_release(g, unscaled);
    }
}

/* A tensor like the weight. B is copied for the product. */
static rvli_value *sum_of(rvli_graph *g, rvli_node *node, rvli_value *const *arguments)
{
    rvli_shape shape = arguments[0]->shape;
    shape.holder = RVL_MODEL_ACTIVATIONS;
    rvli_value *sum = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    if (!g->stopped)
        rvli_work(g, rvli_shape_bytes(&arguments[1]->shape));
    return sum;
}

/* torch.baddbmm(weight, b, a) */
static rvli_value *baddbmm(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, fold_backward, arguments, 3);
    rvli_node_keep(g, node, arguments[1]);
    rvli_node_keep(g, node, arguments[2]);
    return sum_of(g, node, arguments);
}

/* PyTorch tries a parametrization once, without a gradient. */
static rvli_value *try_baddbmm(rvli_graph *g, rvli_value *const *arguments)
{
    return sum_of(g, NULL, arguments);
}

const rvli_operator rvli_folded_operators[] = {
    RVLI_OPERATOR("stacked_A", 1, stacked_a),
    RVLI_OPERATOR("stacked_B", 1, stacked_b),
    RVLI_OPERATOR("product_of_adapter", 1, product_of_adapter),
    RVLI_OPERATOR("baddbmm", 3, baddbmm),
    RVLI_OPERATOR("try_baddbmm", 3, try_baddbmm),
    {.name = NULL},
};
