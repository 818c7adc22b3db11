/* SPDX-License-Identifier: MIT */
/*
 * Operators of Mamba 2's scan (mamba2_chunk_scan of modeling_nemotron_h.py), which multiplies
 * tensors with different dimensions.
 *
 * Values here track their dimensions. A product has the dimensions of both factors, so it briefly
 * has an element for each pair of tokens of a chunk, for each head and each element of the state. A
 * sum removes a dimension (operators.c). The gradients of a product are as large as the product,
 * and are then summed.
 */
#include "predict/llm/graph/graph.h"

enum {
    SEQUENCES = 1 << 0,
    POSITIONS = 1 << 1, /* in a sequence; padding makes them CHUNKS and TOKENS */
    CHUNKS = 1 << 2,
    TOKENS = 1 << 3,
    OTHERS = 1 << 4,  /* tokens of the same chunk, a second time */
    BORDERS = 1 << 5, /* between chunks: one more than chunks */
    LATER = 1 << 6,   /* borders, a second time */
    HEADS = 1 << 7,
    ELEMENTS = 1 << 8, /* of a head */
    STATES = 1 << 9    /* elements of the state, for each element of a head */
};

#define AXES 10

static uint64_t states_of(const rvl_model *m)
{
    return m->mamba_group_width / 2;
}

uint64_t rvli_axes_elements(const rvli_graph *g, uint16_t axes)
{
    const rvl_model *m = g->t->model;
    const uint64_t heads = m->dim[RVLI_DIM_MAMBA_HEADS], chunks = rvli_chunks_of(g);
    const uint64_t sizes[AXES] = {g->t->options->micro_batch,
                                  g->t->options->seq_len,
                                  chunks,
                                  rvli_chunk_tokens(g),
                                  rvli_chunk_tokens(g),
                                  chunks + 1,
                                  chunks + 1,
                                  heads,
                                  m->dim[RVLI_DIM_MAMBA_INNER] / heads,
                                  states_of(m)};
    uint64_t elements = 1;
    for (int i = 0; i < AXES; i++)
        elements *= axes >> i & 1 ? sizes[i] : 1;
    return elements;
}

/* ---- Projections ---- */

/* The gate, the convolution's input, and a rate for each head. */
static void split_projected(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    const uint64_t *dim = g->t->model->dim;
    const uint64_t widths[] = {dim[RVLI_DIM_MAMBA_INNER], dim[RVLI_DIM_MAMBA_CONV],
                               dim[RVLI_DIM_MAMBA_HEADS]};
    rvli_op_divide(g, x[0], widths, 3, results_out);
    if (results_out[2] != NULL)
        results_out[2]->shape.axes = SEQUENCES | POSITIONS | HEADS;
}

/* The scan's inputs, keys and queries. */
static void split_convolved(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    const rvl_model *m = g->t->model;
    const uint64_t keys = m->mamba_groups * states_of(m);
    rvli_op_divide(g, x[0], (const uint64_t[]){m->dim[RVLI_DIM_MAMBA_INNER], keys, keys}, 3,
                   results_out);
}

/* ---- Views ---- */

static rvli_value *along(rvli_graph *g, rvli_value *x, int axes)
{
    rvli_shape shape = x->shape;
    shape.axes = (uint16_t)axes;
    shape.width = 1;
    return rvli_op_reshape(g, x, &shape);
}

static rvli_value *mamba_heads(rvli_graph *g, rvli_value *const *x)
{
    return along(g, x[0], SEQUENCES | POSITIONS | HEADS | ELEMENTS);
}

static rvli_value *mamba_groups(rvli_graph *g, rvli_value *const *x)
{
    return along(g, x[0], 0);
}

/* For the norm: rows as wide as a group of heads. */
static rvli_value *norm_groups(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.width /= g->t->model->mamba_groups;
    return rvli_op_reshape(g, x[0], &shape);
}

/* [..., None], at any place */
static rvli_value *unsqueeze(rvli_graph *g, rvli_value *const *x)
{
    return along(g, x[0], x[0]->shape.axes);
}

/* [:, :, None]: turns TOKENS into OTHERS */
static rvli_value *of_others(rvli_graph *g, rvli_value *const *x)
{
    return along(g, x[0], (x[0]->shape.axes & ~TOKENS) | OTHERS);
}

/* ---- Copies ---- */

static rvli_value *copied(rvli_graph *g, rvli_value *x, int axes)
{
    rvli_shape shape = x->shape;
    shape.axes = (uint16_t)axes;
    shape.elements = rvli_axes_elements(g, shape.axes);
    shape.heads_first = shape.has_heads;
    rvli_node *node = rvli_node_make(g, rvli_backward_in_order, &x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* .repeat_interleave(): a group's values for each of its heads */
static rvli_value *repeat_groups(rvli_graph *g, rvli_value *const *x)
{
    return copied(g, x[0], SEQUENCES | POSITIONS | HEADS | STATES);
}

/* F.pad(x, (1, 0)) */
static rvli_value *pad_border(rvli_graph *g, rvli_value *const *x)
{
    return copied(g, x[0], (x[0]->shape.axes & ~CHUNKS) | BORDERS);
}

/* ---- Sums ---- */

static void expand_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    rvli_backward_in_order(g, node, gradient, of_out);
    if (of_out[0] != NULL)
        of_out[0]->is_view = true;
}

/* x[..., None].expand(): for each pair of tokens of a chunk, or of borders. */
static rvli_value *expand_pairs(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.axes |= shape.axes & TOKENS ? OTHERS : LATER;
    shape.elements = rvli_axes_elements(g, shape.axes);
    rvli_node *node = rvli_node_make(g, expand_backward, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

static rvli_value *sum_over(rvli_graph *g, rvli_value *x, int axis)
{
    uint16_t axes = (uint16_t)(x->shape.axes & ~axis);
    rvli_value *y = rvli_op_sum(g, x, x->shape.elements / rvli_axes_elements(g, axes));
    if (y != NULL)
        y->shape.axes = axes;
    return y;
}

static rvli_value *sum_states(rvli_graph *g, rvli_value *const *x)
{
    return sum_over(g, x[0], STATES);
}

static rvli_value *sum_tokens(rvli_graph *g, rvli_value *const *x)
{
    return sum_over(g, x[0], TOKENS);
}

static rvli_value *sum_others(rvli_graph *g, rvli_value *const *x)
{
    return sum_over(g, x[0], OTHERS);
}

static rvli_value *sum_borders(rvli_graph *g, rvli_value *const *x)
{
    return sum_over(g, x[0], BORDERS);
}

/* ---- States between chunks ---- */

/* zeros_like(x[:, :1]): the state before the first chunk */
static rvli_value *zeros_of_first(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.axes &= (uint16_t)~CHUNKS;
    shape.elements = rvli_axes_elements(g, shape.axes);
    return rvli_value_make(g, &shape);
}

static void behind_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    of_out[1] = rvli_value_view(g, gradient, &node->input[1].shape);
}

/* cat([first, x], dim=1); `first` has no gradient */
static rvli_value *cat_behind(rvli_graph *g, rvli_value *const *parts)
{
    rvli_shape shape = parts[1]->shape;
    shape.axes = (uint16_t)((shape.axes & ~CHUNKS) | BORDERS);
    shape.elements = rvli_axes_elements(g, shape.axes);
    rvli_node *node = rvli_node_make(g, behind_backward, parts, 2);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* [:, :-1]: the states that enter chunks */
static rvli_value *without_last(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.axes = (uint16_t)((shape.axes & ~LATER) | CHUNKS);
    shape.elements = rvli_axes_elements(g, shape.axes);
    rvli_node *node = rvli_node_make(g, rvli_backward_in_order, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

/* ---- Padding, and the last token (chunks.c) ---- */

uint16_t rvli_axes_chunked(uint16_t axes)
{
    return axes & POSITIONS ? (uint16_t)((axes & ~POSITIONS) | CHUNKS | TOKENS) : axes;
}

uint16_t rvli_axes_flat(uint16_t axes)
{
    return axes & CHUNKS ? (uint16_t)((axes & ~(CHUNKS | TOKENS)) | POSITIONS) : axes;
}

uint16_t rvli_axes_last(uint16_t axes)
{
    return (uint16_t)(axes & ~TOKENS);
}

uint64_t rvli_axes_rows(const rvli_graph *g, uint16_t axes)
{
    return axes & BORDERS ? rvli_chunks_of(g) + 1 : rvli_chunk_tokens(g);
}

const rvli_operator rvli_scan_operators[] = {
    RVLI_SEVERAL("split_projected", 1, split_projected),
    RVLI_SEVERAL("split_convolved", 1, split_convolved),
    RVLI_OPERATOR("mamba_heads", 1, mamba_heads),
    RVLI_OPERATOR("mamba_groups", 1, mamba_groups),
    RVLI_OPERATOR("norm_groups", 1, norm_groups),
    RVLI_OPERATOR("unsqueeze", 1, unsqueeze),
    RVLI_OPERATOR("of_others", 1, of_others),
    RVLI_OPERATOR("repeat_groups", 1, repeat_groups),
    RVLI_OPERATOR("pad_border", 1, pad_border),
    RVLI_OPERATOR("expand_pairs", 1, expand_pairs),
    RVLI_OPERATOR("sum_states", 1, sum_states),
    RVLI_OPERATOR("sum_tokens", 1, sum_tokens),
    RVLI_OPERATOR("sum_others", 1, sum_others),
    RVLI_OPERATOR("sum_borders", 1, sum_borders),
    RVLI_OPERATOR("zeros_of_first", 1, zeros_of_first),
    RVLI_OPERATOR("cat_behind", 2, cat_behind),
    RVLI_OPERATOR("without_last", 1, without_last),
    {.name = NULL},
};
