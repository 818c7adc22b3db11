/* SPDX-License-Identifier: MIT */
/*
 * Operators of attention by plain operations, for families that scaled_dot_product_attention cannot
 * compute: each head has a sink, a score that belongs to no token (eager_attention_forward of
 * modeling_gpt_oss.py). Several copies of all scores exist for a moment. Also the biases of these
 * families' experts, by rows.
 */
#include "predict/llm/graph/graph.h"

/* .transpose(2, 3) of keys */
static rvli_value *swap_tokens(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.width = g->t->options->seq_len;
    rvli_node *node = rvli_node_make(g, rvli_backward_view, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

/* Adds a mask to the scores. All heads share it. */
static rvli_value *add_mask(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_pass, arguments, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &arguments[0]->shape));
}

/* .reshape(1, -1, 1, 1).expand(): for each row of scores */
static rvli_value *expand_sinks(rvli_graph *g, rvli_value *const *sinks)
{
    rvli_shape shape = sinks[0]->shape;
    shape.elements = g->t->tokens * g->t->model->heads;
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, sinks, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, sinks[0], &shape));
}

/* .max(dim=-1, keepdim=True).values. Keeps the positions. */
static rvli_value *largest(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= shape.width;
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    rvli_value *values = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    shape.element_bytes = sizeof(int64_t);
    rvli_value *places = rvli_value_make(g, &shape);
    rvli_node_keep(g, node, places);
    rvli_value_release(g, places);
    return values;
}

/* [..., :-1] */
static rvli_value *without_sinks(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_slice(g, x[0], x[0]->shape.width - 1);
}

/* bias[experts]: the row of an expert for each index. */
static rvli_value *biases(rvli_graph *g, rvli_role role, rvli_value *indices)
{
    uint32_t index = g->t->units[g->unit].by_role[role];
    if (index == 0)
        return NULL;
    uint64_t width = g->t->parameters[index - 1].elements / g->t->model->experts;
    rvli_value *bias = rvli_value_leaf(g, index - 1, width);
    rvli_value *rows = bias != NULL ? rvli_op_rows_at(g, bias, indices) : NULL;
    rvli_value_release(g, bias);
    return rows;
}

static rvli_value *up_biases(rvli_graph *g, rvli_value *const *indices)
{
    return biases(g, RVLI_ROLE_EXPERTS_UP_BIAS, indices[0]);
}

static rvli_value *down_biases(rvli_graph *g, rvli_value *const *indices)
{
    return biases(g, RVLI_ROLE_EXPERTS_DOWN_BIAS, indices[0]);
}

const rvli_operator rvli_sinks_operators[] = {
    RVLI_OPERATOR("swap_tokens", 1, swap_tokens),     RVLI_OPERATOR("add_mask", 2, add_mask),
    RVLI_OPERATOR("expand_sinks", 1, expand_sinks),   RVLI_OPERATOR("largest", 1, largest),
    RVLI_OPERATOR("without_sinks", 1, without_sinks), RVLI_OPERATOR("up_biases", 1, up_biases),
    RVLI_OPERATOR("down_biases", 1, down_biases),     {.name = NULL},
};
