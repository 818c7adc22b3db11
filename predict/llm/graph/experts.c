/* SPDX-License-Identifier: MIT */
/*
 * Operators of experts and routers (transformers' integrations/moe.py, grouped_mm_experts_forward):
 * sorting, rows by index, products over all experts.
 *
 * No size depends on which expert a token chooses.
 */
#include "predict/llm/graph/graph.h"

#define INDEX_BYTES 8

static rvli_shape indices_shape(uint64_t count)
{
    return (rvli_shape){.elements = count,
                        .width = 1,
                        .element_bytes = INDEX_BYTES,
                        .holder = RVL_MODEL_ACTIVATIONS};
}

/* ---- Routers ---- */

static void softmax_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                             rvli_value **of_out)
{
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (of_out[0] != NULL)
        of_out[0]->shape.heads_first = node->input[0].shape.heads_first;
    rvli_work(g, rvli_shape_bytes(&gradient->shape));
}

rvli_value *rvli_op_softmax(rvli_graph *g, rvli_value *const *x)
{
    rvli_node *node = rvli_node_make(g, softmax_backward, x, 1);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &x[0]->shape));
    rvli_node_keep(g, node, y);
    return y;
}

static uint64_t chosen(const rvli_graph *g)
{
    return g->t->tokens * g->t->model->experts_per_token;
}

/* The best of each row, and their positions. */
static void topk(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    rvli_shape shape = x[0]->shape;
    const rvli_shape indices = indices_shape(chosen(g));
    shape.elements = chosen(g);
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    results_out[0] = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    results_out[1] = rvli_value_make(g, &indices);
    rvli_node_keep(g, node, results_out[1]);
}

/* Only the positions of the best of each row. The input has no gradient. */
static rvli_value *topk_indices(rvli_graph *g, rvli_value *const *x)
{
    rvli_value *both[2] = {NULL, NULL};
    topk(g, x, both);
    rvli_value_release(g, both[0]);
    return both[1];
}

/* The elements at the given indices of each row. */
static rvli_value *gather(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_shape shape = arguments[0]->shape;
    shape.elements = arguments[1]->shape.elements;
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, arguments, 1);
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* The best two of each group, and their positions. */
static void best_of_groups(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    uint64_t count = 2 * g->t->tokens * g->t->model->dim[RVLI_DIM_EXPERT_GROUPS];
    const rvli_shape places = indices_shape(count);
    rvli_shape values = x[0]->shape;
    values.elements = count;
    results_out[0] = rvli_value_make(g, &values);
    results_out[1] = rvli_value_make(g, &places);
}

static rvli_value *sum_two(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= 2;
    return rvli_value_make(g, &shape);
}

/* A mask of groups, expanded to all experts. With one group it is a view. */
static rvli_value *of_each_expert(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements = g->t->tokens * g->t->model->experts;
    bool copied = x[0]->shape.elements > g->t->tokens;
    return copied ? rvli_value_make(g, &shape) : rvli_value_view(g, x[0], &shape);
}

static rvli_value *to_bool(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.element_bytes = 1;
    return rvli_value_make(g, &shape);
}

static rvli_value *detach(rvli_graph *g, rvli_value *const *x)
{
    return rvli_value_view(g, x[0], &x[0]->shape);
}

/* Divides by the sum of each row in place, and keeps a copy of the former values. */
static rvli_value *normalize(rvli_graph *g, rvli_value *const *x)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_pass, x, 1);
    rvli_value *before = rvli_value_make(g, &x[0]->shape);
    rvli_node_keep(g, node, before);
    rvli_value_release(g, before);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &x[0]->shape));
}

/* ---- Indices ---- */

/* A sort works in a second copy of keys and values. */
static void sort_works(rvli_graph *g, const rvli_shape *indices)
{
    rvli_work(g, 2 * rvli_shape_bytes(indices));
}

/* The sorted values, and their former positions. */
static void sort(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    results_out[0] = rvli_value_make(g, &x[0]->shape);
    results_out[1] = rvli_value_make(g, &x[0]->shape);
    rvli_value *places = rvli_value_make(g, &x[0]->shape);
    sort_works(g, &x[0]->shape);
    rvli_value_release(g, places);
}

/* A tensor of the same size, without a gradient. */
static rvli_value *empty_like(rvli_graph *g, rvli_value *const *x)
{
    return rvli_value_make(g, &x[0]->shape);
}

static rvli_value *to_int(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.element_bytes = INDEX_BYTES / 2;
    return rvli_value_make(g, &shape);
}

/* Of a permutation, indexed by its own values. */
static rvli_value *inverse(rvli_graph *g, rvli_value *const *x)
{
    rvli_value *y = rvli_value_make(g, &x[0]->shape);
    rvli_value_release(g, rvli_value_make(g, &x[0]->shape));
    return y;
}

/* Rows are added at the indices in their order, so the indices are sorted first. */
static void rows_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    const rvli_shape indices = indices_shape(node->number);
    rvli_value *passing[4];
    (void)gradient;
    of_out[0] = rvli_gradient_make(g, node, 0);
    for (int i = 0; i < 4; i++) /* linear indices, sorted ones, positions, a range */
        passing[i] = rvli_value_make(g, &indices);
    sort_works(g, &indices);
    for (int i = 0; i < 4; i++)
        rvli_value_release(g, passing[i]);
}

rvli_value *rvli_op_rows_at(rvli_graph *g, rvli_value *x, rvli_value *indices)
{
    rvli_shape shape = x->shape;
    shape.elements = indices->shape.elements * shape.width;
    if (x->leaf != 0)
        shape.holder = RVL_MODEL_ACTIVATIONS;
    rvli_node *node = rvli_node_make(g, rows_backward, &x, 1);
    if (node != NULL)
        node->number = indices->shape.elements;
    rvli_node_keep(g, node, indices);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static rvli_value *rows_at(rvli_graph *g, rvli_value *const *arguments)
{
    return rvli_op_rows_at(g, arguments[0], arguments[1]);
}

/* Clears rows of experts that are elsewhere: in a copy, or below in place. */
static rvli_value *masked_fill(rvli_graph *g, rvli_value *const *x)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &x[0]->shape));
}

static rvli_value *masked_fill_in_place(rvli_graph *g, rvli_value *const *x)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &x[0]->shape));
}

/* ---- Products over all experts ---- */

static void grouped_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                             rvli_value **of_out)
{
    (void)gradient;
    if (node->input[1].wanted)
        of_out[1] = rvli_gradient_make(g, node, 1);
    if (!g->stopped)
        rvli_workspace(g->t, RVLI_WORKSPACE_BACKWARD);
    if (node->input[0].wanted)
        of_out[0] = rvli_gradient_make(g, node, 0);
}

static rvli_value *grouped(rvli_graph *g, rvli_value *const *inputs)
{
    rvli_value *x = inputs[0], *weight = inputs[1];
    rvli_shape shape = x->shape;
    shape.width = weight->shape.elements / g->t->model->experts / x->shape.width;
    shape.elements = x->shape.elements / x->shape.width * shape.width;
    rvli_node *node = rvli_node_make(g, grouped_backward, inputs, 2);
    if (weight->learns)
        rvli_node_keep(g, node, x);
    if (x->learns)
        rvli_node_keep(g, node, weight);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* Experts beside an MLP have separate roles. */
static rvli_role role_here(const rvli_graph *g, rvli_role beside, rvli_role alone)
{
    return g->t->units[g->unit].by_role[beside] != 0 ? beside : alone;
}

static rvli_value *experts_up(rvli_graph *g, rvli_value *const *nothing)
{
    (void)nothing;
    return rvli_value_parameter(g, role_here(g, RVLI_ROLE_EXPERTS_UP, RVLI_ROLE_GATE));
}

static rvli_value *experts_down(rvli_graph *g, rvli_value *const *nothing)
{
    (void)nothing;
    return rvli_value_parameter(g, role_here(g, RVLI_ROLE_EXPERTS_DOWN, RVLI_ROLE_DOWN));
}

/* Over the chosen experts of each token. */
static rvli_value *sum_chosen(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements = g->t->tokens * shape.width;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* ---- Each token through all experts (Llama 4) ---- */

/* Repeats the tokens for each expert. */
static rvli_value *repeat(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements *= g->t->model->experts;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* .transpose(0, 1).reshape(-1, 1): a column, so its gradient is summed along rows of the product,
 * without partial sums. */
static rvli_value *by_experts(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, rvli_backward_pass, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* x.scatter_(dim, indices, values); x has no gradient. */
static rvli_value *scatter_in_place(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_new, &arguments[2], 1);
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_view(g, arguments[0], &arguments[0]->shape));
}

static void add_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                         rvli_value **of_out)
{
    (void)g;
    for (int i = 0; i < 2; i++)
        of_out[i] = node->input[i].wanted ? rvli_value_retain(gradient) : NULL;
}

static rvli_value *add_in_place(rvli_graph *g, rvli_value *const *parts)
{
    rvli_node *node = rvli_node_make(g, add_backward, parts, 2);
    return rvli_node_gives(g, node, rvli_value_view(g, parts[0], &parts[0]->shape));
}

/* Clears masked elements in a copy, and in the gradient, too. */
static rvli_value *masked_fill_where(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_new, arguments, 1);
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_make(g, &arguments[0]->shape));
}

static rvli_value *masked_fill_where_in_place(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_new, arguments, 1);
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_view(g, arguments[0], &arguments[0]->shape));
}

const rvli_operator rvli_expert_operators[] = {
    RVLI_OPERATOR("softmax", 1, rvli_op_softmax),
    RVLI_SEVERAL("topk", 1, topk),
    RVLI_OPERATOR("topk_indices", 1, topk_indices),
    RVLI_OPERATOR("gather", 2, gather),
    RVLI_SEVERAL("best_of_groups", 1, best_of_groups),
    RVLI_OPERATOR("sum_two", 1, sum_two),
    RVLI_OPERATOR("of_each_expert", 1, of_each_expert),
    RVLI_OPERATOR("bool", 1, to_bool),
    RVLI_OPERATOR("detach", 1, detach),
    RVLI_OPERATOR("normalize_", 1, normalize),
    RVLI_SEVERAL("sort", 1, sort),
    RVLI_OPERATOR("empty_like", 1, empty_like),
    RVLI_OPERATOR("int", 1, to_int),
    RVLI_OPERATOR("inverse", 1, inverse),
    RVLI_OPERATOR("rows_at", 2, rows_at),
    RVLI_OPERATOR("masked_fill", 1, masked_fill),
    RVLI_OPERATOR("masked_fill_", 1, masked_fill_in_place),
    RVLI_OPERATOR("experts_up", 0, experts_up),
    RVLI_OPERATOR("experts_down", 0, experts_down),
    RVLI_OPERATOR("grouped", 2, grouped),
    RVLI_OPERATOR("sum_chosen", 1, sum_chosen),
    RVLI_OPERATOR("repeat", 1, repeat),
    RVLI_OPERATOR("by_experts", 1, by_experts),
    RVLI_OPERATOR("scatter_", 3, scatter_in_place),
    RVLI_OPERATOR("add_", 2, add_in_place),
    RVLI_OPERATOR("masked_fill_where", 2, masked_fill_where),
    RVLI_OPERATOR("masked_fill_where_", 2, masked_fill_where_in_place),
    {.name = NULL},
};
