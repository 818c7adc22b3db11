/* SPDX-License-Identifier: MIT */
/*
 * Inputs of layers besides hidden states (Gemma 3n and 4): an embedding of each token for each
 * layer, and keys and values of other layers.
 *
 * A dictionary has the keys and values made by the last layers of each kind. The model's forward
 * pass holds it until it returns. Each layer that is computed again holds it until the layer is
 * done. The dictionary then has the keys and values that were computed again.
 */
#include "predict/llm/graph/graph.h"

/* ---- Embeddings for each layer ---- */

static rvli_value *embed_tokens_per_layer(rvli_graph *g, rvli_value *const *arguments)
{
    (void)arguments;
    rvli_value *weight = rvli_value_parameter(g, RVLI_ROLE_EMBEDDINGS);
    rvli_value *tokens = rvli_op_embed(g, weight, g->t->model->dim[RVLI_DIM_PER_LAYER_ALL]);
    rvli_value_release(g, weight);
    return tokens;
}

/* The embeddings for all layers, one after the other. */
static rvli_value *by_layers(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], g->t->model->dim[RVLI_DIM_PER_LAYER]);
}

/* The embedding for the next layer: a view. Its gradient is as large as the whole tensor. */
static rvli_value *of_layer(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements = g->t->tokens * shape.width;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

/* ---- Keys and values of other layers ---- */

static rvli_value **shared_of(rvli_graph *g)
{
    return g->shared[rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_WINDOW)];
}

static rvli_value *store_kv(rvli_graph *g, rvli_value *const *kv)
{
    rvli_value **shared = shared_of(g);
    for (int i = 0; i < 2; i++)
        rvli_value_assign(g, &shared[i], rvli_value_retain(kv[i]));
    return NULL;
}

static void shared_kv_states(rvli_graph *g, rvli_value *const *arguments, rvli_value **results_out)
{
    (void)arguments;
    rvli_value **shared = shared_of(g);
    for (int i = 0; i < 2; i++)
        results_out[i] = rvli_value_retain(shared[i]);
}

void rvli_dictionary_release(rvli_graph *g)
{
    if (--g->dictionary_users > 0)
        return;
    for (int kind = 0; kind < 2; kind++) {
        for (int i = 0; i < 2; i++)
            rvli_value_assign(g, &g->shared[kind][i], NULL);
    }
}

/* ---- Others ---- */

/* Multiplies by a buffer of one number, in place. The node keeps the buffer, so it is the node that
 * has its layer computed again. */
static void scale_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    (void)node;
    of_out[0] = rvli_value_make(g, &gradient->shape);
}

static rvli_value *scale_in_place(rvli_graph *g, rvli_value *const *x)
{
    const rvli_value buffer = {.refs = 1};
    rvli_node *node = rvli_node_make(g, scale_backward, x, 1);
    rvli_node_keep(g, node, &buffer);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &x[0]->shape));
}

/* The numbers of the chosen experts. */
static rvli_value *per_expert_scale(rvli_graph *g, rvli_value *const *indices)
{
    uint32_t index = g->t->units[g->unit].by_role[RVLI_ROLE_EXPERT_SCALE];
    rvli_value *scale = index > 0 ? rvli_value_leaf(g, index - 1, 1) : NULL;
    rvli_value *chosen = scale != NULL ? rvli_op_rows_at(g, scale, indices[0]) : NULL;
    rvli_value_release(g, scale);
    return chosen;
}

const rvli_operator rvli_shared_operators[] = {
    RVLI_OPERATOR("embed_tokens_per_layer", 0, embed_tokens_per_layer),
    RVLI_OPERATOR("by_layers", 1, by_layers),
    RVLI_OPERATOR("of_layer", 1, of_layer),
    RVLI_OPERATOR("store_kv", 2, store_kv),
    RVLI_SEVERAL("shared_kv_states", 0, shared_kv_states),
    RVLI_OPERATOR("scale_", 1, scale_in_place),
    RVLI_OPERATOR("per_expert_scale", 1, per_expert_scale),
    {.name = NULL},
};
