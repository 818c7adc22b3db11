/* SPDX-License-Identifier: MIT */
/*
 * scaled_dot_product_attention as an operator. step/sdpa.c has the memory that its kernels work in.
 *
 * Kernels keep q, k, v, their output, and a sum for each row. A window shorter than the sequence is
 * a mask, and they keep a copy of it in bf16. Plain operations in fp32 (math), and attention over
 * parts of each sequence (step/ring.c), keep what those files say.
 */
#include "predict/llm/graph/graph.h"

static bool is_ring(const rvli_graph *g)
{
    return rvli_is_ring(g->t);
}

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

/* ---- Attention by functions of step/ ---- */

#define PARTS 5

/* The parts that functions of step/ keep. This operator keeps q, k and v. */
static void parts_of(rvli_attended *a, rvli_block *parts_out[PARTS])
{
    parts_out[0] = &a->wide_q;
    parts_out[1] = &a->wide_k;
    parts_out[2] = &a->wide_v;
    parts_out[3] = &a->softmax;
    parts_out[4] = &a->sums;
}

/* Takes the block out of a storage that nobody shares, since it is freed in the middle of the work.
 * NULL: it is shared. */
static rvli_block steal(rvli_storage *storage)
{
    if (storage == NULL || storage->refs > 1)
        return NULL;
    rvli_block block = storage->block;
    storage->block = NULL;
    return block;
}

static rvli_value *gradient_of(rvli_graph *g, const rvli_node *node, int input, rvli_block *block)
{
    rvli_value *whole = rvli_value_adopt(g, block);
    rvli_shape shape = node->input[input].shape;
    shape.heads_first = is_ring(g);
    rvli_value *gradient = rvli_value_view(g, whole, &shape);
    rvli_value_release(g, whole);
    return gradient;
}

static void plain_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    rvli_attended a = {0};
    rvli_block *parts[PARTS];
    rvli_attention_gradients of = {0};
    parts_of(&a, parts);
    rvli_block of_attended = is_math(g) ? steal(gradient->storage) : NULL;
    for (int i = 0; is_math(g) && i < PARTS - 1 && i < node->kept_count; i++)
        *parts[i] = steal(node->kept[i]);
    if (g->stopped)
        return;
    rvli_sdpa_backward(g->t, &a, &of_attended, &of);
    of_out[0] = gradient_of(g, node, 0, &of.q);
    of_out[2] = gradient_of(g, node, 2, &of.v);
    if (is_ring(g)) /* k and v in one block */
        of_out[1] = rvli_value_view(g, of_out[2], &node->input[1].shape);
    else
        of_out[1] = gradient_of(g, node, 1, &of.k);
}

/* In a layer that is computed again, nothing is kept forward: its nodes only count. */
static rvli_value *plain(rvli_graph *g, rvli_value *const *qkv)
{
    rvli_attended a = {0};
    rvli_block *parts[PARTS];
    rvli_node *node = rvli_node_make(g, plain_backward, qkv, 3);
    bool kept = node != NULL && g->frame == NULL;
    for (int i = 0; is_ring(g) && i < 3; i++)
        rvli_node_keep(g, node, qkv[i]);
    if (g->stopped)
        return NULL;
    rvli_sdpa_forward(g->t, &a, kept);
    rvli_shape shape = qkv[0]->shape;
    shape.heads_first = is_ring(g);
    rvli_value *whole = rvli_value_adopt(g, &a.output);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_view(g, whole, &shape));
    rvli_value_release(g, whole);
    parts_of(&a, parts);
    for (int i = is_math(g) ? 0 : PARTS - 1; i < (is_math(g) ? PARTS - 1 : PARTS); i++) {
        rvli_value *part = kept ? rvli_value_adopt(g, parts[i]) : rvli_value_retain(y);
        rvli_node_keep(g, node, part);
        rvli_value_release(g, part);
    }
    if (is_ring(g))
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
        y = (is_math(g) || is_ring(g) ? plain : kernel)(g, half);
    for (int i = 0; i < 3; i++)
        rvli_value_release(g, half[i]);
    return y;
}
