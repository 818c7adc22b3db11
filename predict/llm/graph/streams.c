/* SPDX-License-Identifier: MIT */
/*
 * Operators on hidden states that are several streams in one tensor (Gemma 3n).
 *
 * A part of the tensor, one stream or all except the first, is a view. Its gradient is as large as
 * the whole tensor.
 */
#include "predict/llm/graph/graph.h"

static uint64_t stream_count(const rvli_graph *g)
{
    return g->t->model->dim[RVLI_DIM_ALTUP_COUNT];
}

/* ---- Parts ---- */

/* The first stream, or that of the loop. Both have the same size. */
static rvli_value *one_stream(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= stream_count(g);
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

static rvli_value *repeat_streams(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements *= stream_count(g);
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static rvli_value *mean_of_streams(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= stream_count(g);
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* A number for each token and stream: .permute(2, 0, 1).unsqueeze(-1) */
static rvli_value *of_streams(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], 1);
}

/* An operator that keeps both inputs, with an output in the shape of the first. */
static rvli_value *of_two(rvli_graph *g, rvli_backward_fn backward, rvli_value *const *both)
{
    rvli_node *node = rvli_node_make(g, backward, both, 2);
    rvli_node_keep(g, node, both[0]);
    rvli_node_keep(g, node, both[1]);
    return rvli_node_gives(g, node, rvli_value_make(g, &both[0]->shape));
}

/* ---- Mixing: each token's streams are multiplied by a matrix ---- */

static void mix_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                         rvli_value **of_out)
{
    (void)gradient;
    for (int i = 0; i < 2; i++)
        of_out[i] = rvli_gradient_make(g, node, i);
}

static rvli_value *mix_streams(rvli_graph *g, rvli_value *const *factors)
{
    return of_two(g, mix_backward, factors);
}

/* ---- Changing views in place (torch/csrc/autograd/functions/tensor.cpp, CopySlices) ---- */

/* Copies the gradient, and the part of it that belongs to the change. */
static void change_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    rvli_shape part = gradient->shape;
    part.elements = node->number;
    of_out[0] = rvli_value_make(g, &gradient->shape);
    of_out[1] = rvli_value_make(g, &part);
}

/* Changes this number of elements of x. */
static rvli_value *change(rvli_graph *g, rvli_backward_fn backward, rvli_value *const *both,
                          uint64_t elements)
{
    rvli_node *node = rvli_node_make(g, backward, both, 2);
    if (node != NULL)
        node->number = elements;
    return rvli_node_gives(g, node, rvli_value_view(g, both[0], &both[0]->shape));
}

/* A view of a part of a changed value, or of all of it in another order. */
static rvli_value *part_of(rvli_graph *g, rvli_value *x, uint64_t elements)
{
    rvli_shape shape = x->shape;
    shape.elements = elements;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, &x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x, &shape));
}

/* x += y, where x is a view of a whole tensor. */
static rvli_value *add_to_view(rvli_graph *g, rvli_value *const *arguments)
{
    uint64_t all = arguments[0]->shape.elements;
    rvli_value *sum = change(g, change_backward, arguments, all);
    rvli_value *given = sum != NULL ? part_of(g, sum, all) : NULL;
    rvli_value_release(g, sum);
    return given;
}

/* The assignment replaces the former values. */
static void assign_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    change_backward(g, node, gradient, of_out);
    rvli_value_release(g, rvli_value_make(g, &node->input[1].shape)); /* zeros */
}

/* x[1:] += y. Python changes the part in place, and then assigns it to itself. */
static rvli_value *add_to_others(rvli_graph *g, rvli_value *const *arguments)
{
    uint64_t one = arguments[0]->shape.elements / stream_count(g);
    uint64_t others = one * (stream_count(g) - 1);
    rvli_value *both[2] = {change(g, change_backward, arguments, others), NULL};
    both[1] = both[0] != NULL ? part_of(g, both[0], others) : NULL;
    rvli_value *given = both[1] != NULL ? change(g, assign_backward, both, others) : NULL;
    rvli_value_release(g, both[1]);
    rvli_value_release(g, both[0]);
    return given;
}

/* ---- A Python list, and stacking its values ---- */

void rvli_list_release(rvli_graph *g)
{
    while (g->list_count > 0)
        rvli_value_release(g, g->list[--g->list_count]);
}

static rvli_value *append(rvli_graph *g, rvli_value *const *x)
{
    if (g->list_count < RVLI_STREAMS_MAX)
        g->list[g->list_count++] = rvli_value_retain(x[0]);
    return NULL;
}

static rvli_value *new_list(rvli_graph *g, rvli_value *const *x)
{
    rvli_list_release(g);
    return append(g, x);
}

/* The gradients of the parts are views. A node has two inputs: everything before, and the last
 * part. */
static void stack_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    of_out[1] = rvli_value_view(g, gradient, &node->input[1].shape);
    if (of_out[1] != NULL)
        of_out[1]->is_view = true;
    if (node->input[0].wanted)
        of_out[0] = rvli_value_view(g, gradient, &node->input[0].shape);
}

static rvli_value *stack(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_value *before = NULL;
    (void)arguments;
    for (uint32_t i = 0; i < g->list_count && !g->stopped; i++) {
        rvli_value *const both[] = {before, g->list[i]};
        rvli_shape shape = g->list[i]->shape;
        shape.elements *= i + 1;
        rvli_node *node = rvli_node_make(g, stack_backward, both, 2);
        rvli_value *stacked = i + 1 < g->list_count ? rvli_value_view(g, &(rvli_value){0}, &shape)
                                                    : rvli_value_make(g, &shape);
        rvli_value_release(g, before);
        before = rvli_node_gives(g, node, stacked);
    }
    return before;
}

/* ---- Projections of all streams except the first ---- */

/* The index of a stream's matrix. Those of all streams follow one another, each before its
 * adapter. */
static uint32_t of_stream(const rvli_graph *g, uint32_t last)
{
    uint32_t each = g->t->parameters[last].adapter != 0 ? 3 : 1;
    return last - each * ((uint32_t)stream_count(g) - 1 - g->stream);
}

static rvli_value *projection(rvli_graph *g, rvli_role role, rvli_value *x)
{
    uint32_t last = g->t->units[g->unit].by_role[role];
    rvli_value *weight = last > 0 ? rvli_value_leaf(g, of_stream(g, last - 1), 0) : NULL;
    rvli_value *y = rvli_linear(g, weight, x);
    rvli_value_release(g, weight);
    return y;
}

static rvli_value *altup_projections(rvli_graph *g, rvli_value *const *x)
{
    return projection(g, RVLI_ROLE_EMBED_STREAMS, x[0]);
}

static rvli_value *altup_unembed_projections(rvli_graph *g, rvli_value *const *x)
{
    return projection(g, RVLI_ROLE_UNEMBED_STREAMS, x[0]);
}

/* ---- Magnitudes of rows ---- */

/* The gradient of the divisor needs the quotient, which is computed again and divided once more. */
static void divide_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    rvli_value *passing[3];
    for (int i = 0; i < 3; i++)
        passing[i] = rvli_value_make(g, &gradient->shape);
    of_out[1] = rvli_value_make(g, &gradient->shape);
    for (int i = 0; i < 3; i++)
        rvli_value_release(g, passing[i]);
    of_out[0] = rvli_gradient_make(g, node, 0);
}

static rvli_value *divide(rvli_graph *g, rvli_value *const *parts)
{
    return of_two(g, divide_backward, parts);
}

/* Makes twice the result, the quotient by it, the test for 0, and each element's distance from the
 * mean. */
static void std_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                         rvli_value **of_out)
{
    rvli_value *passing[3];
    for (int i = 0; i < 3; i++)
        passing[i] = rvli_value_make(g, &gradient->shape);
    rvli_value *apart = rvli_gradient_make(g, node, 0);
    of_out[0] = rvli_gradient_make(g, node, 0);
    rvli_value_release(g, apart);
    for (int i = 0; i < 3; i++)
        rvli_value_release(g, passing[i]);
}

/* Over the last dimension. */
static rvli_value *std_of(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= shape.width;
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, std_backward, x, 1);
    rvli_node_keep(g, node, x[0]);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    rvli_node_keep(g, node, y);
    return y;
}

static rvli_value *sqrt_of(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_elementwise(g, RVLI_OP_SQRT, x[0]);
}

const rvli_operator rvli_stream_operators[] = {
    RVLI_OPERATOR("active_stream", 1, one_stream),
    RVLI_OPERATOR("stream", 1, one_stream),
    RVLI_OPERATOR("repeat_streams", 1, repeat_streams),
    RVLI_OPERATOR("mean_of_streams", 1, mean_of_streams),
    RVLI_OPERATOR("of_streams", 1, of_streams),
    RVLI_OPERATOR("mix_streams", 2, mix_streams),
    RVLI_OPERATOR("add_to_view_", 2, add_to_view),
    RVLI_OPERATOR("add_to_others_", 2, add_to_others),
    RVLI_OPERATOR("new_list", 1, new_list),
    RVLI_OPERATOR("append", 1, append),
    RVLI_OPERATOR("stack", 0, stack),
    RVLI_OPERATOR("altup_projections", 1, altup_projections),
    RVLI_OPERATOR("altup_unembed_projections", 1, altup_unembed_projections),
    RVLI_OPERATOR("divide_by", 2, divide),
    RVLI_OPERATOR("std", 1, std_of),
    RVLI_OPERATOR("sqrt", 1, sqrt_of),
    {.name = NULL},
};
