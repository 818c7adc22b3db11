/* SPDX-License-Identifier: MIT */
/*
 * Operators of attention by plain operations (math_attention in texts/decoder.txt). Products of all
 * heads want one dimension for sequences and heads. With several sequences, a factor with tokens
 * before heads in memory is copied for that.
 */
#include "predict/llm/graph/graph.h"

static uint64_t seq_len(const rvli_graph *g)
{
    return g->t->options->seq_len;
}

/* ---- Factors ---- */

static void repeat_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    (void)gradient;
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (of_out[0] != NULL)
        of_out[0]->shape.heads_first = rvli_kv_heads_here(g->t) > 1;
}

/* .repeat_interleave(): keys or values for each head of q */
static rvli_value *repeat_heads(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements *= g->t->model->heads / rvli_kv_heads_here(g->t);
    shape.heads_first = true;
    rvli_node *node = rvli_node_make(g, repeat_backward, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* With one dimension for sequences and heads. */
static rvli_value *joined(rvli_graph *g, rvli_value *x)
{
    if (x == NULL || x->shape.heads_first || g->t->options->micro_batch == 1)
        return rvli_value_retain(x);
    rvli_shape shape = x->shape;
    shape.heads_first = true;
    rvli_node *node = rvli_node_make(g, rvli_backward_pass, &x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* ---- Products ---- */

static void product_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                             rvli_value **of_out)
{
    rvli_value *rows = joined(g, gradient);
    for (int i = 1; i >= 0; i--) {
        of_out[i] = node->input[i].wanted ? rvli_gradient_make(g, node, i) : NULL;
        if (of_out[i] != NULL)
            of_out[i]->shape.heads_first = true;
    }
    rvli_value_release(g, rows);
    if (!g->stopped)
        rvli_workspace(g->t, RVLI_WORKSPACE_BACKWARD);
}

static rvli_value *matmul_heads(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_value *factors[2] = {joined(g, arguments[0]), joined(g, arguments[1])};
    rvli_value *y = NULL;
    if (!g->stopped) {
        rvli_shape shape = factors[0]->shape;
        shape.elements = shape.elements / shape.width * factors[1]->shape.width;
        shape.width = factors[1]->shape.width;
        shape.heads_first = true;
        rvli_node *node = rvli_node_make(g, product_backward, factors, 2);
        for (int i = 0; i < 2; i++)
            rvli_node_keep(g, node, factors[i]);
        y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    }
    rvli_value_release(g, factors[0]);
    rvli_value_release(g, factors[1]);
    return y;
}

/* ---- Scores ---- */

/* Ones, their lower triangle, and what is added to scores: not kept, since no gradient needs it. */
static rvli_value *causal_mask(rvli_graph *g, rvli_value *const *none)
{
    (void)none;
    const uint64_t pairs = seq_len(g) * seq_len(g);
    rvli_shape shape = {.elements = pairs, .width = seq_len(g), .element_bytes = 1};
    shape.holder = RVL_MODEL_ACTIVATIONS;
    rvli_value *ones = rvli_value_make(g, &shape);
    rvli_value *lower = rvli_value_make(g, &shape);
    rvli_value_release(g, ones);
    shape.element_bytes = RVLI_FULL;
    rvli_value *mask = rvli_value_make(g, &shape);
    rvli_value_release(g, lower);
    return mask;
}

/* A softmax that looks for rows without a token that they may see: a byte for each score, and one
 * for each row. */
static rvli_value *safe_softmax(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape each = x[0]->shape, rows = each;
    rvli_value *y = rvli_op_softmax(g, x);
    each.element_bytes = rows.element_bytes = 1;
    rows.elements /= rows.width;
    rvli_value *empty = rvli_value_make(g, &each);
    rvli_value *all = rvli_value_make(g, &rows);
    rvli_value_release(g, all);
    rvli_value_release(g, empty);
    return y;
}

const rvli_operator rvli_math_operators[] = {
    RVLI_OPERATOR("repeat_heads", 1, repeat_heads),
    RVLI_OPERATOR("matmul_heads", 2, matmul_heads),
    RVLI_OPERATOR("causal_mask", 0, causal_mask),
    RVLI_OPERATOR("safe_softmax", 1, safe_softmax),
    {.name = NULL},
};
