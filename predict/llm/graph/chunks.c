/* SPDX-License-Identifier: MIT */
/*
 * Operators of recurrences that process a sequence chunk by chunk: padding to whole chunks,
 * products of matrices, sums along a chunk, parts of a chunk, and tensors that are written part by
 * part.
 *
 * One chunk is a view of the tensor of all chunks. Its gradient is as large as the whole tensor.
 */
#include "predict/llm/graph/graph.h"

uint64_t rvli_chunk_tokens(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_DELTA) ? RVLI_DELTA_CHUNK
                                                                  : g->t->model->mamba_chunk;
}

uint64_t rvli_chunks_of(const rvli_graph *g)
{
    uint64_t tokens = rvli_chunk_tokens(g);
    return tokens > 0 ? (g->t->options->seq_len + tokens - 1) / tokens : 0;
}

static uint64_t padded_tokens(const rvli_graph *g)
{
    return rvli_chunks_of(g) * rvli_chunk_tokens(g) * g->t->options->micro_batch;
}

static rvli_value *copied(rvli_graph *g, rvli_value *x, const rvli_shape *shape)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_in_order, &x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, shape));
}

static rvli_value *viewed(rvli_graph *g, rvli_value *x, const rvli_shape *shape)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_in_order, &x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x, shape));
}

/* ---- Splitting sequences into chunks ---- */

/* Adds zeros behind each sequence. Copies even if the sequence has whole chunks. */
static rvli_value *pad(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements = shape.elements / g->t->tokens * padded_tokens(g);
    shape.axes = rvli_axes_chunked(shape.axes);
    shape.width = shape.axes != 0 ? 1 : shape.width;
    shape.heads_first = shape.has_heads;
    return copied(g, x[0], &shape);
}

/* [:sequence_length] */
static rvli_value *cut(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    if (padded_tokens(g) == g->t->tokens)
        return rvli_value_retain(x[0]);
    shape.elements = shape.elements / padded_tokens(g) * g->t->tokens;
    shape.axes = rvli_axes_flat(shape.axes);
    return viewed(g, x[0], &shape);
}

/* Views a value that is stored by rows. A gradient stored by columns is copied. */
static void by_chunks_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                               rvli_value **of_out)
{
    rvli_shape shape = node->input[0].shape;
    shape.by_columns = false;
    if (gradient->shape.by_columns)
        of_out[0] = rvli_value_make(g, &shape);
    else
        of_out[0] = rvli_value_view(g, gradient, &shape);
    if (of_out[0] != NULL)
        of_out[0]->is_view = of_out[0]->storage == gradient->storage;
}

static rvli_value *by_chunks(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    rvli_node *node = rvli_node_make(g, by_chunks_backward, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

/* Joins chunks to a sequence. Copies a value that is stored by columns. */
static rvli_value *by_tokens(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    bool copy = shape.by_columns;
    shape.by_columns = false;
    rvli_node *node = rvli_node_make(g, by_chunks_backward, x, 1);
    return rvli_node_gives(g, node,
                           copy ? rvli_value_make(g, &shape) : rvli_value_view(g, x[0], &shape));
}

/* [:, :, i] of the running chunk. */
static rvli_value *of_chunk(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= rvli_chunks_of(g);
    return viewed(g, x[0], &shape);
}

/* [..., -1] of each chunk, for a value with one element for each token. */
static rvli_value *last_of_chunk(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= rvli_chunk_tokens(g);
    shape.axes = rvli_axes_last(shape.axes);
    return viewed(g, x[0], &shape);
}

/* ---- Products of matrices ---- */

static rvli_value *of_factor(rvli_graph *g, const rvli_node *node, int i)
{
    rvli_value *product = node->input[i].wanted ? rvli_gradient_make(g, node, i) : NULL;
    if (product != NULL)
        product->is_view = true;
    return product;
}

static void matmul_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    (void)gradient;
    for (int i = 1; i >= 0; i--)
        of_out[i] = of_factor(g, node, i);
    if (!g->stopped)
        rvli_workspace(g->t, RVLI_WORKSPACE_BACKWARD);
}

static rvli_value *multiplied(rvli_graph *g, rvli_value *const *factors)
{
    rvli_shape shape = factors[0]->shape;
    shape.elements = shape.elements / shape.width * factors[1]->shape.width;
    shape.width = factors[1]->shape.width;
    shape.by_columns = false;
    rvli_node *node = rvli_node_make(g, matmul_backward, factors, 2);
    for (int i = 0; i < 2; i++) {
        if (factors[1 - i]->learns)
            rvli_node_keep(g, node, factors[i]);
    }
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static rvli_value *matmul(rvli_graph *g, rvli_value *const *factors)
{
    return rvli_op_autocast(g, multiplied, factors, 2);
}

/* .transpose(-1, -2) of a value with a row for each token of a chunk */
static rvli_value *swap(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.width = rvli_chunk_tokens(g);
    rvli_node *node = rvli_node_make(g, rvli_backward_view, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

/* ---- Operations along a chunk ---- */

/* Sums from the last token to the first: flips, sums, and flips back. A gradient with another order
 * in memory than in its dimensions is copied for the sum. */
static void cumsum_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    bool copies = gradient->shape.heads_first != gradient->shape.has_heads;
    rvli_value *turned = rvli_gradient_make(g, node, 0);
    rvli_value *summed = rvli_gradient_make(g, node, 0);
    if (copies)
        rvli_work(g, rvli_shape_bytes(&gradient->shape));
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (of_out[0] != NULL)
        of_out[0]->shape.heads_first = of_out[0]->shape.has_heads;
    rvli_value_release(g, summed);
    rvli_value_release(g, turned);
}

static rvli_value *cumsum(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    bool copies = shape.heads_first != shape.has_heads;
    shape.heads_first = shape.has_heads;
    rvli_node *node = rvli_node_make(g, cumsum_backward, x, 1);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    if (copies)
        rvli_work(g, rvli_shape_bytes(&shape));
    return y;
}

static void differences_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                                 rvli_value **of_out)
{
    (void)node;
    of_out[0] = rvli_value_retain(gradient);
    of_out[1] = rvli_value_make(g, &gradient->shape);
}

/* Between every two tokens of a chunk. */
static rvli_value *differences(rvli_graph *g, rvli_value *const *x)
{
    rvli_value *const both[] = {x[0], x[0]};
    rvli_shape shape = x[0]->shape;
    shape.elements *= rvli_chunk_tokens(g);
    shape.width = rvli_chunk_tokens(g);
    rvli_node *node = rvli_node_make(g, differences_backward, both, 2);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* Makes masks with a byte for each pair of tokens of a chunk, or of borders of chunks: one of all
 * pairs, and from it one of the pairs that are ahead. Returns the latter. */
static rvli_value *mask_of_pairs(rvli_graph *g, rvli_value *const *x)
{
    uint64_t tokens = rvli_axes_rows(g, x[0]->shape.axes);
    const rvli_shape shape = {.elements = tokens * tokens,
                              .width = tokens,
                              .element_bytes = 1,
                              .holder = RVL_MODEL_ACTIVATIONS};
    rvli_value *all = rvli_value_make(g, &shape);
    rvli_value *ahead = rvli_value_make(g, &shape);
    rvli_value_release(g, all);
    return ahead;
}

/* masked_fill(mask, number). Keeps the mask. */
static rvli_value *masked(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_shape shape = arguments[0]->shape;
    shape.heads_first = shape.has_heads;
    rvli_node *node = rvli_node_make(g, rvli_backward_in_order, arguments, 1);
    rvli_node_keep(g, node, arguments[1]);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* ---- Writing part by part ---- */

static rvli_value *zeros_like(rvli_graph *g, rvli_value *const *x)
{
    return rvli_value_make(g, &x[0]->shape);
}

/* CopySlices: copies the whole gradient, copies the part, and puts zeros in the part's place. */
static void write_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    (void)gradient;
    rvli_value *whole = rvli_value_make(g, &node->input[0].shape);
    of_out[1] = rvli_gradient_make(g, node, 1);
    if (node->input[0].wanted) {
        rvli_work(g, rvli_shape_bytes(&node->input[1].shape));
        of_out[0] = whole;
    } else {
        rvli_value_release(g, whole);
    }
}

/* x[:, :, i] = part */
static rvli_value *write_chunk(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_node *node = rvli_node_make(g, write_backward, arguments, 2);
    return rvli_node_gives(g, node, rvli_value_view(g, arguments[0], &arguments[0]->shape));
}

const rvli_operator rvli_chunk_operators[] = {
    RVLI_OPERATOR("pad", 1, pad),
    RVLI_OPERATOR("cut", 1, cut),
    RVLI_OPERATOR("by_chunks", 1, by_chunks),
    RVLI_OPERATOR("by_tokens", 1, by_tokens),
    RVLI_OPERATOR("of_chunk", 1, of_chunk),
    RVLI_OPERATOR("last_of_chunk", 1, last_of_chunk),
    RVLI_OPERATOR("matmul", 2, matmul),
    RVLI_OPERATOR("swap", 1, swap),
    RVLI_OPERATOR("cumsum", 1, cumsum),
    RVLI_OPERATOR("differences", 1, differences),
    RVLI_OPERATOR("mask_of_pairs", 1, mask_of_pairs),
    RVLI_OPERATOR("masked", 2, masked),
    RVLI_OPERATOR("zeros_like", 1, zeros_like),
    RVLI_OPERATOR("write_chunk", 2, write_chunk),
    {.name = NULL},
};
