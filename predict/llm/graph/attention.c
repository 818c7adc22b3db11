/* SPDX-License-Identifier: MIT */
/*
 * scaled_dot_product_attention as an operator. step/sdpa.c has the memory that its kernels work in.
 *
 * Kernels keep q, k, v, their output, and a sum for each row. A window shorter than the sequence is
 * a mask, and they keep a copy of it in bf16. Plain operations in fp32 are a text (math_attention
 * in texts/decoder.txt). Attention over parts of each sequence keeps what step/ring.c says.
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
        rvli_sdpa_backward_works(g->t);
}

/* A row for each row of q, as wide as values. */
static rvli_shape attended_shape(rvli_value *const *qkv)
{
    rvli_shape shape = qkv[0]->shape;
    shape.elements = shape.elements / shape.width * qkv[2]->shape.width;
    shape.width = qkv[2]->shape.width;
    return shape;
}

static rvli_value *run_kernel(rvli_graph *g, rvli_value *const *qkv, uint64_t mask_bytes)
{
    const rvli_shape shape = attended_shape(qkv);
    const rvli_shape mask_shape = bytes_shape(mask_bytes);
    const rvli_shape sums_shape = bytes_shape(rvli_sdpa_sums_bytes(g->t));
    rvli_node *node = rvli_node_make(g, kernel_backward, qkv, 3);
    for (int i = 0; i < 3; i++)
        rvli_node_keep(g, node, qkv[i]);
    rvli_value *mask = rvli_value_make(g, &mask_shape);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    rvli_value *sums = rvli_value_make(g, &sums_shape);
    if (!g->stopped)
        rvli_sdpa_forward_works(g->t);
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

/* ---- Parts of each sequence ---- */

static rvli_value *gradient_of(rvli_graph *g, const rvli_node *node, int input, rvli_block *block)
{
    rvli_value *whole = rvli_value_adopt(g, block);
    rvli_shape shape = node->input[input].shape;
    shape.heads_first = true;
    rvli_value *gradient = rvli_value_view(g, whole, &shape);
    rvli_value_release(g, whole);
    return gradient;
}

/* The gradients of k and v are in one block. */
static void ring_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    rvli_attention_gradients of = {0};
    (void)gradient;
    if (g->stopped)
        return;
    rvli_ring_backward(g->t, &of);
    of_out[0] = gradient_of(g, node, 0, &of.q);
    of_out[2] = gradient_of(g, node, 2, &of.v);
    of_out[1] = rvli_value_view(g, of_out[2], &node->input[1].shape);
}

/* In a layer that is computed again, nothing is kept forward: its nodes only count. */
static rvli_value *ring(rvli_graph *g, rvli_value *const *qkv)
{
    rvli_block sums = NULL;
    rvli_node *node = rvli_node_make(g, ring_backward, qkv, 3);
    bool kept = node != NULL && g->frame == NULL;
    for (int i = 0; i < 3; i++)
        rvli_node_keep(g, node, qkv[i]);
    if (g->stopped)
        return NULL;
    rvli_block output = rvli_ring_forward(g->t, &sums);
    if (!kept)
        rvli_release(g->t, &sums);
    rvli_shape shape = qkv[0]->shape;
    shape.heads_first = true;
    rvli_value *whole = rvli_value_adopt(g, &output);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_view(g, whole, &shape));
    rvli_value *kept_sums = kept ? rvli_value_adopt(g, &sums) : rvli_value_retain(y);
    rvli_value_release(g, whole);
    rvli_node_keep(g, node, kept_sums);
    rvli_value_release(g, kept_sums);
    rvli_node_keep(g, node, y);
    return y;
}

/* Autocast converts from the last argument to the first, since its calls are compiled that way. */
rvli_value *rvli_op_attention(rvli_graph *g, rvli_value *const *qkv)
{
    rvli_value *half[3];
    for (int i = 2; i >= 0; i--)
        half[i] = rvli_op_convert(g, qkv[i], RVLI_HALF);
    rvli_value *y = NULL;
    if (!g->stopped)
        y = is_math(g) ? rvli_program_call(g, RVLI_ENTRY_MATH, half, 3)
                       : (rvli_is_ring(g->t) ? ring : kernel)(g, half);
    for (int i = 0; i < 3; i++)
        rvli_value_release(g, half[i]);
    return y;
}
