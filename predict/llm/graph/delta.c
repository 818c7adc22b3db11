/* SPDX-License-Identifier: MIT */
/* Operators of gated delta nets: parts of their projections, heads, and triangular systems of
 * equations. */
#include "predict/llm/graph/graph.h"

static uint64_t values_width(const rvli_graph *g)
{
    return g->t->model->dim[RVLI_DIM_DELTA_VALUE];
}

static uint64_t keys_width(const rvli_graph *g)
{
    return (g->t->model->dim[RVLI_DIM_DELTA_CONV] - values_width(g)) / 2;
}

static uint64_t key_head(const rvli_graph *g)
{
    return g->t->model->state_elements / values_width(g);
}

/* ---- Parts and heads ---- */

static void split_qkv(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    const uint64_t widths[] = {keys_width(g), keys_width(g), values_width(g)};
    rvli_op_divide(g, x[0], widths, 3, results_out);
}

/* q, k, v and the gate. */
static void split_qkvz(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    const uint64_t widths[] = {keys_width(g), keys_width(g), values_width(g), values_width(g)};
    rvli_op_divide(g, x[0], widths, 4, results_out);
}

static rvli_value *key_heads(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], key_head(g));
}

static rvli_value *value_heads(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], g->t->model->dim[RVLI_DIM_DELTA_HEAD]);
}

/* One value for each head. */
static rvli_value *rate_heads(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], 1);
}

/* Repeats keys for every head of values. Does nothing if there are as many heads of keys. */
static rvli_value *repeat_keys(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements = g->t->tokens * key_head(g) * g->t->model->dim[RVLI_DIM_DELTA_HEADS];
    if (shape.elements == x[0]->shape.elements)
        return rvli_value_retain(x[0]);
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* ---- Order in memory ---- */

static void to_half_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                             rvli_value **of_out)
{
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (of_out[0] != NULL)
        of_out[0]->shape.heads_first = gradient->shape.heads_first;
}

/* .to(type, memory_format=torch.contiguous_format) */
static rvli_value *to_contiguous(rvli_graph *g, rvli_value *x, uint8_t element_bytes)
{
    rvli_shape shape = x->shape;
    if (shape.element_bytes == element_bytes)
        return rvli_value_retain(x);
    shape.element_bytes = element_bytes;
    shape.heads_first = shape.has_heads;
    rvli_node *node = rvli_node_make(g, to_half_backward, &x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static rvli_value *float_contiguous(rvli_graph *g, rvli_value *const *x)
{
    return to_contiguous(g, x[0], RVLI_FULL);
}

static rvli_value *hidden_dtype_contiguous(rvli_graph *g, rvli_value *const *x)
{
    return to_contiguous(g, x[0], (uint8_t)rvli_flow_bytes(g->t));
}

static void channels_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                              rvli_value **of_out)
{
    bool viewed = g->t->options->micro_batch == 1;
    of_out[0] = viewed ? rvli_value_view(g, gradient, &node->input[0].shape)
                       : rvli_gradient_make(g, node, 0);
}

/* Channels before tokens. With several sequences the gradient is copied, since a product needs it
 * by rows. */
static rvli_value *channels_first(rvli_graph *g, rvli_value *const *x)
{
    rvli_node *node = rvli_node_make(g, channels_backward, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &x[0]->shape));
}

/* ---- The delta rule ---- */

/* A state for each head and sequence, in fp32. */
static rvli_value *new_state(rvli_graph *g, rvli_value *const *nothing)
{
    (void)nothing;
    const rvli_shape shape = {.elements = g->t->options->micro_batch * g->t->model->state_elements,
                              .width = g->t->model->dim[RVLI_DIM_DELTA_HEAD],
                              .element_bytes = RVLI_FULL,
                              .holder = RVL_MODEL_ACTIVATIONS};
    return rvli_value_make(g, &shape);
}

/* The gradient of the right side is the solution of a system. The gradient of the matrix is a
 * product, which is negated and cut to its lower triangle. */
static void solve_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    (void)gradient;
    of_out[1] = rvli_gradient_make(g, node, 1);
    if (of_out[1] != NULL)
        of_out[1]->shape.by_columns = true;
    rvli_value *product = rvli_gradient_make(g, node, 0);
    rvli_value *negated = rvli_gradient_make(g, node, 0);
    rvli_value_release(g, product);
    of_out[0] = rvli_gradient_make(g, node, 0);
    rvli_value_release(g, negated);
}

/* The solution is stored by columns. */
static rvli_value *solve_triangular(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_shape shape = arguments[1]->shape;
    shape.by_columns = true;
    rvli_node *node = rvli_node_make(g, solve_backward, arguments, 2);
    rvli_node_keep(g, node, arguments[0]);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    rvli_node_keep(g, node, y);
    return y;
}

const rvli_operator rvli_delta_operators[] = {
    RVLI_SEVERAL("split_qkv", 1, split_qkv),
    RVLI_SEVERAL("split_qkvz", 1, split_qkvz),
    RVLI_OPERATOR("key_heads", 1, key_heads),
    RVLI_OPERATOR("value_heads", 1, value_heads),
    RVLI_OPERATOR("rate_heads", 1, rate_heads),
    RVLI_OPERATOR("repeat_keys", 1, repeat_keys),
    RVLI_OPERATOR("float_contiguous", 1, float_contiguous),
    RVLI_OPERATOR("hidden_dtype_contiguous", 1, hidden_dtype_contiguous),
    RVLI_OPERATOR("channels_first", 1, channels_first),
    RVLI_OPERATOR("new_state", 0, new_state),
    RVLI_OPERATOR("solve_triangular", 2, solve_triangular),
    {.name = NULL},
};
