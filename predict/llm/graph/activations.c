/* SPDX-License-Identifier: MIT */
/* Operators of xIELU, the activation in Apertus's MLP, in plain PyTorch, and of clamps. */
#include "predict/llm/graph/graph.h"

static rvli_shape of_bytes(const rvli_shape *x)
{
    rvli_shape shape = *x;
    shape.element_bytes = 1;
    return shape;
}

/* Whether an element is above 0. */
static rvli_value *above_zero(rvli_graph *g, rvli_value *const *x)
{
    const rvli_shape shape = of_bytes(&x[0]->shape);
    return rvli_value_make(g, &shape);
}

/* The gradient passes where x is the smaller, and half of it where both are equal. Each condition
 * is a mask of bytes. */
static void minimum_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                             rvli_value **of_out)
{
    const rvli_shape condition = of_bytes(&gradient->shape);
    of_out[0] = rvli_gradient_make(g, node, 0);
    rvli_value *ties = rvli_value_make(g, &condition);
    rvli_value *halved = rvli_gradient_make(g, node, 0);
    rvli_value *smaller = rvli_value_make(g, &condition);
    rvli_value_release(g, ties);
    rvli_value_release(g, halved);
    rvli_value_release(g, smaller);
}

/* The smaller of x and a number; "maximum" has the same memory. */
static rvli_value *minimum(rvli_graph *g, rvli_value *const *x)
{
    rvli_node *node = rvli_node_make(g, minimum_backward, x, 1);
    rvli_node_keep(g, node, x[0]);
    return rvli_node_gives(g, node, rvli_value_make(g, &x[0]->shape));
}

/* After a clamp on node->number sides. Masks of bytes say where the gradient passes. */
static void clamp_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    const rvli_shape condition = of_bytes(&gradient->shape);
    rvli_shape number = gradient->shape;
    number.elements = 1;
    bool both = node->number > 1;
    rvli_value *zero = rvli_value_make(g, &number);
    rvli_value *above = rvli_value_make(g, &condition);
    rvli_value *below = both ? rvli_value_make(g, &condition) : NULL;
    of_out[0] = rvli_gradient_make(g, node, 0);
    rvli_value_release(g, below);
    rvli_value_release(g, above);
    rvli_value_release(g, zero);
}

static rvli_value *clamp(rvli_graph *g, rvli_value *x, uint64_t sides)
{
    rvli_node *node = rvli_node_make(g, clamp_backward, &x, 1);
    if (node != NULL)
        node->number = sides;
    rvli_node_keep(g, node, x);
    rvli_shape shape = x->shape;
    if (x->leaf != 0)
        shape.holder = RVL_MODEL_ACTIVATIONS;
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static rvli_value *clamp_above(rvli_graph *g, rvli_value *const *x)
{
    return clamp(g, x[0], 1);
}

static rvli_value *clamp_between(rvli_graph *g, rvli_value *const *x)
{
    return clamp(g, x[0], 2);
}

static void where_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    (void)gradient;
    for (int i = 1; i < 3; i++)
        of_out[i] = rvli_gradient_make(g, node, i);
}

static rvli_value *where(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, where_backward, arguments, 3);
    rvli_node_keep(g, node, arguments[0]);
    return rvli_node_gives(g, node, rvli_value_make(g, &arguments[1]->shape));
}

static rvli_value *softplus(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_elementwise(g, RVLI_OP_SOFTPLUS, x[0]);
}

static rvli_value *expm1_of(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_elementwise(g, RVLI_OP_EXPM1, x[0]);
}

const rvli_operator rvli_activation_operators[] = {
    RVLI_OPERATOR("above_zero", 1, above_zero),
    RVLI_OPERATOR("minimum", 1, minimum),
    RVLI_OPERATOR("maximum", 1, minimum),
    RVLI_OPERATOR("where", 3, where),
    RVLI_OPERATOR("softplus", 1, softplus),
    RVLI_OPERATOR("expm1", 1, expm1_of),
    RVLI_OPERATOR("clamp_above", 1, clamp_above),
    RVLI_OPERATOR("clamp_between", 1, clamp_between),
    {.name = NULL},
};
