/* SPDX-License-Identifier: MIT */
/*
 * Operators of DeepSeek's sparse attention. An indexer scores all tokens for each token, in fp32
 * for each of its heads, and selects the best. It runs without gradients: no operator here has a
 * backward pass, and the weights have no role.
 */
#include "predict/llm/graph/graph.h"

#define CHOSEN_BYTES UINT64_C(8)
/* Bytes for each row in which topk counts digits (aten/src/ATen/native/cuda/TensorTopK.cu). */
#define DIGITS_BYTES UINT64_C(512)

static rvli_value *make(rvli_graph *g, uint64_t elements, uint64_t width, uint64_t element_bytes)
{
    const rvli_shape shape = {.elements = elements,
                              .width = width,
                              .element_bytes = (uint8_t)element_bytes,
                              .holder = RVL_MODEL_ACTIVATIONS};
    return rvli_value_make(g, &shape);
}

static uint64_t dim(const rvli_graph *g, rvli_dim which)
{
    return g->t->model->dim[which];
}

/* Pairs of a token and one that it could see. */
static uint64_t pairs(const rvli_graph *g)
{
    return g->t->tokens * g->t->options->seq_len;
}

/* ---- Scores ---- */

static rvli_value *index_queries(rvli_graph *g, rvli_value *const *x)
{
    (void)x;
    return make(g, g->t->tokens * dim(g, RVLI_DIM_INDEX), dim(g, RVLI_DIM_INDEX_HEAD), RVLI_HALF);
}

static rvli_value *index_keys(rvli_graph *g, rvli_value *const *x)
{
    (void)x;
    return make(g, g->t->tokens * dim(g, RVLI_DIM_INDEX_HEAD), dim(g, RVLI_DIM_INDEX_HEAD),
                RVLI_HALF);
}

static rvli_value *index_weights(rvli_graph *g, rvli_value *const *x)
{
    (void)x;
    return make(g, g->t->tokens * dim(g, RVLI_DIM_INDEX_HEADS), dim(g, RVLI_DIM_INDEX_HEADS),
                RVLI_HALF);
}

/* A LayerNorm that frees the mean and scale of each row. */
static rvli_value *index_norm(rvli_graph *g, rvli_value *const *x)
{
    rvli_value *y = rvli_value_make(g, &x[0]->shape);
    rvli_value *mean = make(g, g->t->tokens, 1, RVLI_FULL);
    rvli_value *scale = make(g, g->t->tokens, 1, RVLI_FULL);
    rvli_value_release(g, mean);
    rvli_value_release(g, scale);
    return y;
}

/* Products for every head. With several sequences, keys are copied for each token. */
static rvli_value *index_products(rvli_graph *g, rvli_value *const *arguments)
{
    bool several = g->t->options->micro_batch > 1;
    uint64_t head = dim(g, RVLI_DIM_INDEX_HEAD);
    (void)arguments;
    rvli_value *copies = several ? make(g, pairs(g) * head, head, RVLI_FULL) : NULL;
    rvli_value *products = make(g, pairs(g) * dim(g, RVLI_DIM_INDEX_HEADS), 1, RVLI_FULL);
    rvli_value_release(g, copies);
    return products;
}

static rvli_value *sum_of_heads(rvli_graph *g, rvli_value *const *arguments)
{
    (void)arguments;
    return make(g, pairs(g), g->t->options->seq_len, RVLI_FULL);
}

/* The positions of the best. */
static rvli_value *index_topk(rvli_graph *g, rvli_value *const *x)
{
    uint64_t most = dim(g, RVLI_DIM_INDEX_CHOSEN), seq_len = g->t->options->seq_len;
    uint64_t chosen = g->t->tokens * (most < seq_len ? most : seq_len);
    (void)x;
    rvli_value *values = make(g, chosen, 1, RVLI_FULL);
    rvli_value *indices = make(g, chosen, 1, CHOSEN_BYTES);
    rvli_value *digits = make(g, DIGITS_BYTES * g->t->tokens, 1, 1);
    rvli_work(g, 2 * DIGITS_BYTES * g->t->tokens);
    rvli_value_release(g, digits);
    rvli_value_release(g, values);
    return indices;
}

/* ---- Masks ---- */

static rvli_value *to_long(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.element_bytes = CHOSEN_BYTES;
    return rvli_value_make(g, &shape);
}

/* A byte for each pair of tokens. */
static rvli_value *mask(rvli_graph *g, rvli_value *const *arguments)
{
    (void)arguments;
    return make(g, pairs(g), g->t->options->seq_len, 1);
}

/* Also hands the value to the next layer. */
static rvli_value *hand_on(rvli_graph *g, rvli_value *const *x)
{
    if (g->again == NULL)
        rvli_value_assign(g, &g->handing, rvli_value_retain(x[0]));
    return rvli_value_retain(x[0]);
}

const rvli_operator rvli_indexer_operators[] = {
    RVLI_OPERATOR("index_queries", 1, index_queries),
    RVLI_OPERATOR("index_keys", 1, index_keys),
    RVLI_OPERATOR("index_weights", 1, index_weights),
    RVLI_OPERATOR("index_norm", 1, index_norm),
    RVLI_OPERATOR("index_products", 2, index_products),
    RVLI_OPERATOR("sum_of_index_heads", 2, sum_of_heads),
    RVLI_OPERATOR("index_topk", 1, index_topk),
    RVLI_OPERATOR("long", 1, to_long),
    RVLI_OPERATOR("index_ones", 1, mask),
    RVLI_OPERATOR("scatter", 2, mask),
    RVLI_OPERATOR("invert", 1, mask),
    RVLI_OPERATOR("both", 2, mask),
    RVLI_OPERATOR("hand_on", 1, hand_on),
    {.name = NULL},
};
