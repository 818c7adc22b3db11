/* SPDX-License-Identifier: MIT */
/*
 * Operators of Phi-3.5-MoE's router (modeling_phimoe.py, sparsemixer). It draws one expert from
 * those close to the best, with a special gradient. Noise multiplies in place.
 */
#include "predict/llm/graph/graph.h"

#define INDEX_BYTES 8

/* The maximum of each row, and its position. */
static void max(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= shape.width;
    shape.width = 1;
    results_out[0] = rvli_value_make(g, &shape);
    shape.element_bytes = INDEX_BYTES;
    results_out[1] = rvli_value_make(g, &shape);
}

static rvli_value *argmax(rvli_graph *g, rvli_value *const *x)
{
    rvli_value *both[2] = {NULL, NULL};
    max(g, x, both);
    rvli_value_release(g, both[0]);
    return both[1];
}

/* Elementwise, without a gradient. */
static rvli_value *plain(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    return rvli_value_make(g, &shape);
}

/* The same, with results of one byte. */
static rvli_value *compare(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.element_bytes = 1;
    return rvli_value_make(g, &shape);
}

static void draw_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    rvli_value *product = rvli_value_make(g, &gradient->shape);
    rvli_value *negative = rvli_value_make(g, &gradient->shape);
    of_out[0] = rvli_gradient_make(g, node, 0);
    rvli_value_release(g, negative);
    rvli_value_release(g, product);
}

/* PhimoeMultiplier: only the scores have a gradient. */
static rvli_value *multiply_by_draw(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, draw_backward, arguments, 1);
    for (int i = 1; i < 4; i++)
        rvli_node_keep(g, node, arguments[i]);
    rvli_shape shape = arguments[1]->shape;
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* A copy of x, with a number at the given indices of each row. */
static rvli_value *scatter_number(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_new, arguments, 1);
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_make(g, &arguments[0]->shape));
}

/* In place on a view: copies the whole gradient, and then the view's part of it (CopySlices). */
static void view_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    (void)gradient;
    of_out[0] = rvli_gradient_make(g, node, 0);
    rvli_value *part = rvli_gradient_make(g, node, 0);
    rvli_work(g, rvli_shape_bytes(&node->input[0].shape));
    rvli_value_release(g, part);
}

static rvli_value *in_place(rvli_graph *g, rvli_value *const *arguments, rvli_backward_fn backward)
{
    rvli_node *node = rvli_node_make(g, backward, arguments, 1);
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_view(g, arguments[0], &arguments[0]->shape));
}

static rvli_value *multiply(rvli_graph *g, rvli_value *const *arguments)
{
    return in_place(g, arguments, rvli_backward_new);
}

static rvli_value *multiply_view(rvli_graph *g, rvli_value *const *arguments)
{
    return in_place(g, arguments, view_backward);
}

/* .reshape(-1) */
static rvli_value *reshape_flat(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], 1);
}

const rvli_operator rvli_mixer_operators[] = {
    RVLI_SEVERAL("max", 1, max),
    RVLI_OPERATOR("argmax", 1, argmax),
    RVLI_OPERATOR("abs", 1, plain),
    RVLI_OPERATOR("clamp", 1, plain),
    RVLI_OPERATOR("log", 1, plain),
    RVLI_OPERATOR("divide", 2, plain),
    RVLI_OPERATOR("equal", 2, compare),
    RVLI_OPERATOR("logical_or", 2, compare),
    RVLI_OPERATOR("multiply_by_draw", 4, multiply_by_draw),
    RVLI_OPERATOR("scatter_number", 2, scatter_number),
    RVLI_OPERATOR("multiply_", 2, multiply),
    RVLI_OPERATOR("multiply_view_", 2, multiply_view),
    RVLI_OPERATOR("reshape_flat", 1, reshape_flat),
    {.name = NULL},
};
