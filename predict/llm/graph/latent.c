/* SPDX-License-Identifier: MIT */
/*
 * Operators of DeepSeek's latent attention: parts of heads with and without positions, and keys
 * that are copied together from both.
 */
#include "predict/llm/graph/graph.h"

static uint64_t heads(const rvli_graph *g)
{
    return g->t->model->heads;
}

static uint64_t values_width(const rvli_graph *g)
{
    return g->t->model->dim[RVLI_DIM_ATTENDED] / heads(g);
}

/* .view(): the model's number of heads, of any width. */
static rvli_value *view_heads(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.width = shape.elements / g->t->tokens / heads(g);
    return rvli_op_reshape(g, x[0], &shape);
}

/* ---- Parts ---- */

static void split_rotary(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    rvli_op_split(g, x[0], x[0]->shape.width - rvli_rotary_width(g->t->model), results_out);
}

static void split_rotary_first(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    rvli_op_split(g, x[0], rvli_rotary_width(g->t->model), results_out);
}

static void split_values(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    rvli_op_split(g, x[0], x[0]->shape.width - values_width(g), results_out);
}

/* x[..., 0::2], x[..., 1::2] */
static rvli_value *every_second(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_slice(g, x[0], x[0]->shape.width / 2);
}

/* ---- Keys ---- */

/* One head as a view for all heads. */
static rvli_value *expand_heads(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements *= heads(g);
    shape.has_heads = true;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

/* Keys with room for the parts without and with positions. */
static rvli_value *new_keys(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.width = rvli_dim_here(g->t, RVLI_DIM_Q) / heads(g);
    shape.elements = g->t->tokens * heads(g) * shape.width;
    shape.heads_first = shape.has_heads;
    return rvli_value_make(g, &shape);
}

/* Copies the whole gradient, and the part out of it. Zeros take the part's place in the gradient of
 * the former values (torch/csrc/autograd/functions/tensor.cpp, CopySlices). */
static void copy_part_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                               rvli_value **of_out)
{
    rvli_value *whole = rvli_value_make(g, &gradient->shape);
    of_out[1] = rvli_gradient_make(g, node, 1);
    if (of_out[1] != NULL)
        of_out[1]->shape.heads_first = node->input[1].shape.has_heads;
    if (!node->input[0].wanted) {
        rvli_value_release(g, whole);
        return;
    }
    rvli_work(g, rvli_shape_bytes(&node->input[1].shape));
    of_out[0] = whole;
}

/* keys[..., some] .copy_(part) */
static rvli_value *copy_part(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, copy_part_backward, arguments, 2);
    return rvli_node_gives(g, node, rvli_value_view(g, arguments[0], &arguments[0]->shape));
}

const rvli_operator rvli_latent_operators[] = {
    RVLI_OPERATOR("view_heads", 1, view_heads),
    RVLI_SEVERAL("split_rotary", 1, split_rotary),
    RVLI_SEVERAL("split_rotary_first", 1, split_rotary_first),
    RVLI_SEVERAL("split_values", 1, split_values),
    RVLI_OPERATOR("even", 1, every_second),
    RVLI_OPERATOR("odd", 1, every_second),
    RVLI_OPERATOR("expand_heads", 1, expand_heads),
    RVLI_OPERATOR("new_keys", 1, new_keys),
    RVLI_OPERATOR("copy_part_", 2, copy_part),
    {.name = NULL},
};
