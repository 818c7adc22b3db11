/* SPDX-License-Identifier: MIT */
/*
 * The model around its layers: embedding, angles and masks before them; norm, head and loss behind
 * them.
 *
 * FSDP2 gathers a unit before it runs, forward and backward, and reduces it after its nodes have
 * run. The backward pass moves from unit to unit as it reaches their nodes.
 */
#include "predict/llm/graph/items.h"
#include "predict/llm/graph/program.h"

#include <stdlib.h>

static uint32_t root(const rvli_graph *g)
{
    return g->t->model->layers;
}

/* ---- Making and freeing ---- */

rvli_graph *rvli_graph_make(rvli_training *t)
{
    rvli_graph *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    *g = (rvli_graph){.t = t,
                      .program = rvli_program_make(t),
                      .values = {.item_bytes = sizeof(rvli_value)},
                      .storages = {.item_bytes = sizeof(rvli_storage)},
                      .nodes = {.item_bytes = sizeof(rvli_node)},
                      .frames = {.item_bytes = sizeof(rvli_frame)},
                      .leaves = calloc(t->parameter_count, sizeof *g->leaves),
                      .order = calloc(t->parameter_count, sizeof *g->order)};
    if (g->program != NULL && g->leaves != NULL && g->order != NULL)
        return g;
    rvli_graph_free(g);
    return NULL;
}

void rvli_graph_free(rvli_graph *g)
{
    if (g == NULL)
        return;
    rvli_backward_forget(g);
    rvli_program_free(g->program);
    rvli_items_free(&g->values);
    rvli_items_free(&g->storages);
    rvli_items_free(&g->nodes);
    rvli_items_free(&g->frames);
    free(g->casts);
    free(g->leaves);
    free(g->order);
    free(g);
}

/* ---- Forward ---- */

/* Cosines and sines have a value for each position and each element of a head, in the layers' type
 * or in fp32. */
static rvli_value *angles_of(rvli_graph *g, uint64_t width, rvli_block *made)
{
    rvli_value *bytes = rvli_value_adopt(g, made);
    if (bytes == NULL)
        return NULL;
    rvli_shape shape = bytes->shape;
    shape.width = width;
    bool full = rvli_is_wide(g->t) || rvli_angles_are_wide(g->t);
    shape.element_bytes = full ? RVLI_FULL : RVLI_HALF;
    shape.elements /= shape.element_bytes;
    rvli_value *angles = rvli_value_view(g, bytes, &shape);
    rvli_value_release(g, bytes);
    return angles;
}

static rvli_value *create_masks(rvli_graph *g, rvli_value *const *arguments)
{
    (void)arguments;
    rvli_masks_make(g->t);
    for (int i = 0; i < 2; i++)
        g->masks[i] = rvli_value_adopt(g, &g->t->masks[i]);
    return NULL;
}

static void make_positions(rvli_graph *g, uint64_t width, rvli_value **positions)
{
    rvli_block made[2] = {NULL, NULL};
    rvli_rotary_make(g->t, width, made);
    for (int i = 0; i < 2; i++)
        positions[i] = angles_of(g, width, &made[i]);
}

static rvli_value *rotary_emb(rvli_graph *g, rvli_value *const *arguments)
{
    (void)arguments;
    make_positions(g, rvli_rotary_width(g->t->model), g->positions[0]);
    return NULL;
}

/* For layers without a window, which may have wider heads, and for those with one. */
static rvli_value *rotary_embs(rvli_graph *g, rvli_value *const *arguments)
{
    uint64_t wide = g->t->model->dim[RVLI_DIM_WIDE_HEAD];
    (void)arguments;
    make_positions(g, wide > 0 ? wide : rvli_rotary_width(g->t->model), g->positions[0]);
    make_positions(g, rvli_rotary_width(g->t->model), g->positions[1]);
    return NULL;
}

/* With LoRA, layers that are computed again need a gradient for the first layer's input: PEFT's
 * enable_input_require_grads(). */
static rvli_value *embed_tokens(rvli_graph *g, rvli_value *const *arguments)
{
    (void)arguments;
    rvli_value *weight = rvli_value_parameter(g, RVLI_ROLE_EMBEDDING);
    rvli_value *tokens = rvli_op_embed(g, weight, g->t->model->dim[RVLI_DIM_HIDDEN]);
    rvli_value_release(g, weight);
    if (tokens != NULL && (g->t->options->flags & RVL_MODEL_RECOMPUTE))
        tokens->learns = true;
    return tokens;
}

static rvli_value *run_layer(rvli_graph *g, rvli_value *const *hidden)
{
    uint32_t layer = g->layer;
    bool windowed = rvli_layer_is(g->t->model, layer, RVLI_LAYER_WINDOW);
    rvli_gather_forward(g->t, &g->t->units[layer]);
    g->unit = g->t->at = layer;
    rvli_value **positions = g->positions[windowed && g->positions[1][0] != NULL];
    g->held[RVLI_HELD_COSINE] = positions[0];
    g->held[RVLI_HELD_SINE] = positions[1];
    g->held[RVLI_HELD_MASK] = g->masks[windowed];
    g->held[RVLI_HELD_HANDED] = g->handed;
    g->held[RVLI_HELD_EMBEDDING] = g->embedding;
    rvli_value *given = rvli_checkpoint_forward(g, layer, hidden[0]);
    rvli_value_assign(g, &g->handed, g->handing);
    g->handing = NULL;
    rvli_reshard_forward(g->t, &g->t->units[layer]);
    g->unit = root(g);
    return given;
}

/* A layer that also gets an embedding of each token. */
static rvli_value *run_layer_with(rvli_graph *g, rvli_value *const *arguments)
{
    g->embedding = arguments[1];
    rvli_value *given = run_layer(g, arguments);
    g->embedding = NULL;
    return given;
}

static rvli_value *last_norm(rvli_graph *g, rvli_value *const *hidden)
{
    return rvli_program_norm(g, RVLI_ROLE_LAST_NORM, hidden[0]);
}

static rvli_value *lm_head(rvli_graph *g, rvli_value *const *hidden)
{
    return rvli_head(g, hidden[0]);
}

const rvli_operator rvli_model_operators[] = {
    RVLI_OPERATOR("create_masks", 0, create_masks),
    RVLI_OPERATOR("rotary_emb", 0, rotary_emb),
    RVLI_OPERATOR("embed_tokens", 0, embed_tokens),
    RVLI_OPERATOR("rotary_embs", 0, rotary_embs),
    RVLI_OPERATOR("layer", 1, run_layer),
    RVLI_OPERATOR("layer_with", 2, run_layer_with),
    RVLI_OPERATOR("last_norm", 1, last_norm),
    RVLI_OPERATOR("lm_head", 1, lm_head),
    {.name = NULL},
};

/* Releases the names of the model's forward pass. Layers that are computed again hold their own
 * inputs. */
static void drop_before_layers(rvli_graph *g)
{
    rvli_value_assign(g, &g->handed, NULL);
    for (int i = 0; i < 2; i++) {
        rvli_value_assign(g, &g->masks[i], NULL);
        for (int kind = 0; kind < 2; kind++)
            rvli_value_assign(g, &g->positions[kind][i], NULL);
    }
    rvli_dictionary_release(g);
    rvli_list_release(g);
}

/* Runs the model up to the input of the head. */
static rvli_value *hidden_forward(rvli_graph *g)
{
    rvli_gather_forward(g->t, rvli_root(g->t));
    g->unit = root(g);
    g->dictionary_users = 1;
    rvli_value *hidden = rvli_program_call(g, RVLI_ENTRY_MODEL, NULL, 0);
    rvli_checkpoint_sent(g);
    drop_before_layers(g);
    return hidden;
}

void rvli_graph_forward(rvli_graph *g)
{
    rvli_training *t = g->t;
    g->stopped = t->tape.failed;
    g->offloads = rvli_is_offloaded(t);
    rvli_offload_begin(t);
    rvli_value *hidden = hidden_forward(g);
    rvli_value *loss = rvli_loss(g, hidden);
    rvli_value_release(g, hidden);
    rvli_reshard_forward(t, rvli_root(t));
    rvli_release(t, &t->gather_buffer);
    rvli_value_release(g, loss);
    rvli_checkpoint_all_sent(g);
    rvli_casts_release(g, 0);
    rvli_tape_between(&t->tape);
}

/* ---- Backward ---- */

/* The unit has all its gradients: reduces them. */
static void leave(rvli_graph *g, uint32_t unit)
{
    if (unit == root(g) || g->left)
        return;
    g->left = true;
    rvli_reduce(g->t, &g->t->units[unit]);
    rvli_tape_between(&g->t->tape);
}

void rvli_graph_enter(rvli_graph *g, uint32_t unit)
{
    rvli_training *t = g->t;
    bool between = unit == root(g) && g->unit != root(g) && g->unit > 0 && g->last != NULL;
    if (between) { /* a node of the root lies between two layers */
        leave(g, g->unit);
        t->at = unit;
        return;
    }
    while (g->unit != unit && !g->stopped) {
        leave(g, g->unit);
        g->left = false;
        /* after the first layer comes the root again, for the embedding */
        g->unit = g->unit > 0 ? g->unit - 1 : root(g);
        if (g->unit != root(g))
            rvli_gather_backward(t, &t->units[g->unit],
                                 g->unit > 0 ? &t->units[g->unit - 1] : NULL);
    }
    t->at = unit;
}

void rvli_graph_backward(rvli_graph *g)
{
    const rvli_shape number = {.width = 1, .holder = RVL_MODEL_LOGITS};
    rvli_training *t = g->t;
    g->order_count = 0;
    g->unit = root(g);
    rvli_gather_backward(t, rvli_root(t), &t->units[t->model->layers - 1]);
    rvli_backward_run(g, rvli_value_make(g, &number));
    rvli_graph_enter(g, root(g));
    rvli_fetch_end(t);
    rvli_reduce(t, rvli_root(t));
    rvli_release(t, &t->reduce_input);
    rvli_buckets_release(t);
}
