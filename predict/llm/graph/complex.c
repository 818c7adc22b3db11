/* SPDX-License-Identifier: MIT */
/*
 * Operators on complex numbers: pairs of elements of a head in fp32, rotated by angles (Llama 4,
 * DeepSeek V2).
 *
 * A complex number counts as two elements of fp32.
 */
#include "predict/llm/graph/graph.h"

/* Multiplies by the conjugates of the angles, which are a temporary copy. */
static void turn_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    const rvli_shape angles = {
        .elements = node->number, .element_bytes = RVLI_FULL, .holder = RVL_MODEL_ACTIVATIONS};
    rvli_value *conjugates = rvli_value_make(g, &angles);
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (of_out[0] != NULL)
        of_out[0]->shape.heads_first = gradient->shape.heads_first;
    rvli_value_release(g, conjugates);
}

/* x * angles */
static rvli_value *turn(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, turn_backward, arguments, 1);
    if (node != NULL)
        node->number = arguments[1]->shape.elements;
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_make(g, &arguments[0]->shape));
}

/* Makes angles, ones to rotate, the rotated ones, and these times a number. */
static rvli_value *complex_rotary_emb(rvli_graph *g, rvli_value *const *arguments)
{
    const uint64_t pairs = (uint64_t)g->t->options->seq_len * rvli_rotary_width(g->t->model) / 2;
    const rvli_shape real = {.elements = pairs,
                             .width = rvli_rotary_width(g->t->model) / 2,
                             .element_bytes = RVLI_FULL,
                             .holder = RVL_MODEL_ACTIVATIONS};
    rvli_shape complex = real;
    (void)arguments;
    complex.elements = 2 * pairs;
    rvli_value *angles = rvli_value_make(g, &real);
    if (!g->stopped)
        rvli_workspace(g->t, RVLI_WORKSPACE_FORWARD);
    rvli_value *ones = rvli_value_make(g, &real);
    rvli_value *turned = rvli_value_make(g, &complex);
    rvli_value_release(g, ones);
    g->positions[0][0] = rvli_value_make(g, &complex);
    rvli_value_release(g, turned);
    rvli_value_release(g, angles);
    return NULL;
}

/* For queries without positions: a number in fp32 for each token. */
static rvli_value *scales_of_tokens(rvli_graph *g, rvli_value *const *arguments)
{
    const rvli_shape shape = {.elements = g->t->options->seq_len,
                              .width = 1,
                              .element_bytes = RVLI_FULL,
                              .holder = RVL_MODEL_ACTIVATIONS};
    (void)arguments;
    return rvli_value_make(g, &shape);
}

const rvli_operator rvli_complex_operators[] = {
    RVLI_OPERATOR("turn", 2, turn),
    RVLI_OPERATOR("complex_rotary_emb", 0, complex_rotary_emb),
    RVLI_OPERATOR("scales_of_tokens", 0, scales_of_tokens),
    {.name = NULL},
};
