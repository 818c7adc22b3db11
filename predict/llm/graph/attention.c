/* SPDX-License-Identifier: MIT */
/*
 * scaled_dot_product_attention as an operator. step/sdpa.c has the memory that its kernels work in.
 *
 * Kernels keep q, k, v, their output, and a sum for each row. A window shorter than the sequence is
 * a mask, and they keep a copy of it in bf16. Plain operations in fp32 are a text (math_attention
 * in texts/decoder.txt). Attention over parts of each sequence keeps what ring.c says.
 */
#include "predict/llm/graph/graph.h"

static bool is_math(const rvli_graph *g)
{
    return g->t->options->attention == RVL_MODEL_ATTENTION_MATH;
}

bool rvli_repeats_heads(const rvli_graph *g)
{
    return !is_math(g) && rvli_sdpa_repeats(g->t);
}

/* ---- Kernels ---- */

static rvli_shape bytes_shape(uint64_t bytes)
{
    return (rvli_shape){.elements = bytes, .element_bytes = 1, .holder = RVL_MODEL_ACTIVATIONS};
}

static void kernel_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    (void)gradient;
    for (int i = 0; i < 3; i++) {
        of_out[i] = rvli_gradient_make(g, node, i);
        if (of_out[i] != NULL)
            of_out[i]->shape.heads_first = node->input[i].shape.heads_first;
    }
    if (!g->stopped)
        rvli_sdpa_backward_works(g->t, 1);
}

rvli_shape rvli_attention_shape(const rvli_shape *q, const rvli_shape *v)
{
    rvli_shape shape = *q;
    shape.elements = shape.elements / shape.width * v->width;
    shape.width = v->width;
    return shape;
}

static rvli_value *run_kernel(rvli_graph *g, rvli_value *const *qkv, uint64_t mask_bytes)
{
    const rvli_shape shape = rvli_attention_shape(&qkv[0]->shape, &qkv[2]->shape);
    const rvli_shape mask_shape = bytes_shape(mask_bytes);
    const rvli_shape sums_shape = bytes_shape(rvli_sdpa_sums_bytes(g->t));
    rvli_node *node = rvli_node_make(g, kernel_backward, qkv, 3);
    for (int i = 0; i < 3; i++)
        rvli_node_keep(g, node, qkv[i]);
    rvli_value *mask = rvli_value_make(g, &mask_shape);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    rvli_value *sums = rvli_value_make(g, &sums_shape);
    if (!g->stopped)
        rvli_sdpa_forward_works(g->t, 1);
    rvli_node_keep(g, node, mask);
    rvli_node_keep(g, node, y);
    rvli_node_keep(g, node, sums);
    rvli_value_release(g, mask);
    rvli_value_release(g, sums);
    return y;
}

static rvli_value *kernel(rvli_graph *g, rvli_value *const *qkv)
{
    return run_kernel(g, qkv, rvli_sdpa_mask_bytes(g->t));
}

rvli_value *rvli_op_masked_attention(rvli_graph *g, rvli_value *const *arguments)
{
    return run_kernel(g, arguments, RVLI_HALF * arguments[3]->shape.elements);
}

/* ---- The operator ---- */

/* Autocast converts from the last argument to the first, since its calls are compiled that way. */
rvli_value *rvli_op_attention(rvli_graph *g, rvli_value *const *qkv)
{
    rvli_value *half[3];
    for (int i = 2; i >= 0; i--)
        half[i] = rvli_op_convert(g, qkv[i], RVLI_HALF);
    rvli_value *y = NULL;
    if (!g->stopped)
        y = is_math(g) ? rvli_program_call(g, RVLI_ENTRY_MATH, half, 3)
                       : (rvli_is_ring(g->t) ? rvli_op_ring_attention : kernel)(g, half);
    for (int i = 0; i < 3; i++)
        rvli_value_release(g, half[i]);
    return y;
}
