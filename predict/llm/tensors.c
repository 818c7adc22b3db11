/* SPDX-License-Identifier: MIT */
/*
 * The parameters of every family, as one table of rules.
 *
 * A rule names a tensor, says in which layers it stands, on which features it depends, its shape,
 * and how an engine splits it over its ranks. A trainer and the checkpoint have it as it is; an
 * engine fuses the tensors of one group that follow from one input (q, k, v; gate, up; the experts
 * of a layer) into one, and may hold its matrices in fewer bits.
 */
#include <stdio.h>
#include <string.h>

#include "predict/llm/llm_internal.h"

#define BF16_BYTES 2
#define NAME_BYTES 96

typedef enum scope { FIRST, EVERY_LAYER, DENSE_LAYER, SPARSE_LAYER, EXPERT, LAST } scope;

/* By what a rank's share is smaller. KV heads are copied where there are fewer than ranks. */
typedef enum split { WHOLE, BY_ROWS, BY_COLUMNS, BY_KV_HEADS, BY_VOCABULARY } split;

/* Tensors of a group are one tensor in an engine. */
typedef enum group { ALONE, QKV, QKV_BIAS, LATENT_DOWN, GATE_UP, GATE_UP_BIAS, SHARED_UP } group;

typedef struct rule {
    const char *pattern;
    scope scope;
    uint32_t needs;  /* all of these features */
    uint32_t unless; /* none of these */
    rvli_dim rows;
    rvli_dim columns;
    split split;
    group group;
    bool quantised; /* where the engine's weights are */
} rule;

#define D(name) RVLI_DIM_##name
#define ATTENTION "model.layers.%L.self_attn."
#define INDEXER "model.layers.%L.self_attn.indexer."
#define MLP "model.layers.%L.mlp."
#define MOE_EXPERT "model.layers.%L.mlp.experts.%E."
#define SHARED "model.layers.%L.mlp.shared_experts."
#define LAYER "model.layers.%L."

static const rule rules[] = {
    {"model.embed_tokens.weight", FIRST, 0, 0, D(VOCABULARY), D(HIDDEN), BY_VOCABULARY, ALONE, 0},

    {ATTENTION "q_proj.weight", EVERY_LAYER, RVLI_GQA, 0, D(Q), D(HIDDEN), BY_ROWS, QKV, 1},
    {ATTENTION "q_proj.bias", EVERY_LAYER, RVLI_QKV_BIAS, 0, D(Q), D(ONE), BY_ROWS, QKV_BIAS, 0},
    {ATTENTION "k_proj.weight", EVERY_LAYER, RVLI_GQA, 0, D(KV), D(HIDDEN), BY_KV_HEADS, QKV, 1},
    {ATTENTION "k_proj.bias", EVERY_LAYER, RVLI_QKV_BIAS, 0, D(KV), D(ONE), BY_KV_HEADS, QKV_BIAS,
     0},
    {ATTENTION "v_proj.weight", EVERY_LAYER, RVLI_GQA, 0, D(KV), D(HIDDEN), BY_KV_HEADS, QKV, 1},
    {ATTENTION "v_proj.bias", EVERY_LAYER, RVLI_QKV_BIAS, 0, D(KV), D(ONE), BY_KV_HEADS, QKV_BIAS,
     0},

    {ATTENTION "q_proj.weight", EVERY_LAYER, RVLI_MLA, RVLI_Q_LORA, D(Q), D(HIDDEN), BY_ROWS, ALONE,
     1},
    {ATTENTION "q_a_proj.weight", EVERY_LAYER, RVLI_MLA | RVLI_Q_LORA, 0, D(Q_LORA), D(HIDDEN),
     WHOLE, LATENT_DOWN, 1},
    {ATTENTION "q_a_layernorm.weight", EVERY_LAYER, RVLI_MLA | RVLI_Q_LORA, 0, D(Q_LORA), D(ONE),
     WHOLE, ALONE, 0},
    {ATTENTION "q_b_proj.weight", EVERY_LAYER, RVLI_MLA | RVLI_Q_LORA, 0, D(Q), D(Q_LORA), BY_ROWS,
     ALONE, 1},
    {ATTENTION "kv_a_proj_with_mqa.weight", EVERY_LAYER, RVLI_MLA, 0, D(KV_DOWN), D(HIDDEN), WHOLE,
     LATENT_DOWN, 1},
    {ATTENTION "kv_a_layernorm.weight", EVERY_LAYER, RVLI_MLA, 0, D(KV_LORA), D(ONE), WHOLE, ALONE,
     0},
    {ATTENTION "kv_b_proj.weight", EVERY_LAYER, RVLI_MLA, 0, D(KV_UP), D(KV_LORA), BY_ROWS, ALONE,
     1},

    {INDEXER "wq_b.weight", EVERY_LAYER, RVLI_INDEXER, 0, D(INDEX), D(Q_LORA), WHOLE, ALONE, 1},
    {INDEXER "wk.weight", EVERY_LAYER, RVLI_INDEXER, 0, D(INDEX_HEAD), D(HIDDEN), WHOLE, ALONE, 1},
    {INDEXER "k_norm.weight", EVERY_LAYER, RVLI_INDEXER, 0, D(INDEX_HEAD), D(ONE), WHOLE, ALONE, 0},
    {INDEXER "k_norm.bias", EVERY_LAYER, RVLI_INDEXER, 0, D(INDEX_HEAD), D(ONE), WHOLE, ALONE, 0},
    {INDEXER "weights_proj.weight", EVERY_LAYER, RVLI_INDEXER, 0, D(INDEX_HEADS), D(HIDDEN), WHOLE,
     ALONE, 0},

    {ATTENTION "o_proj.weight", EVERY_LAYER, 0, 0, D(HIDDEN), D(ATTENDED), BY_COLUMNS, ALONE, 1},
    {ATTENTION "o_proj.bias", EVERY_LAYER, RVLI_O_BIAS, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {ATTENTION "q_norm.weight", EVERY_LAYER, RVLI_QK_NORM, 0, D(HEAD), D(ONE), WHOLE, ALONE, 0},
    {ATTENTION "k_norm.weight", EVERY_LAYER, RVLI_QK_NORM, 0, D(HEAD), D(ONE), WHOLE, ALONE, 0},

    {MLP "gate_proj.weight", DENSE_LAYER, 0, 0, D(INTERMEDIATE), D(HIDDEN), BY_ROWS, GATE_UP, 1},
    {MLP "gate_proj.bias", DENSE_LAYER, RVLI_MLP_BIAS, 0, D(INTERMEDIATE), D(ONE), BY_ROWS,
     GATE_UP_BIAS, 0},
    {MLP "up_proj.weight", DENSE_LAYER, 0, 0, D(INTERMEDIATE), D(HIDDEN), BY_ROWS, GATE_UP, 1},
    {MLP "up_proj.bias", DENSE_LAYER, RVLI_MLP_BIAS, 0, D(INTERMEDIATE), D(ONE), BY_ROWS,
     GATE_UP_BIAS, 0},
    {MLP "down_proj.weight", DENSE_LAYER, 0, 0, D(HIDDEN), D(INTERMEDIATE), BY_COLUMNS, ALONE, 1},
    {MLP "down_proj.bias", DENSE_LAYER, RVLI_MLP_BIAS, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},

    {MLP "gate.weight", SPARSE_LAYER, 0, 0, D(EXPERTS), D(HIDDEN), WHOLE, ALONE, 0},
    {MLP "gate.e_score_correction_bias", SPARSE_LAYER, RVLI_ROUTER_BIAS, 0, D(EXPERTS), D(ONE),
     WHOLE, ALONE, 0},
    {MOE_EXPERT "gate_proj.weight", EXPERT, 0, 0, D(EXPERT_INTERMEDIATE), D(HIDDEN), BY_ROWS,
     GATE_UP, 1},
    {MOE_EXPERT "up_proj.weight", EXPERT, 0, 0, D(EXPERT_INTERMEDIATE), D(HIDDEN), BY_ROWS, GATE_UP,
     1},
    {MOE_EXPERT "down_proj.weight", EXPERT, 0, 0, D(HIDDEN), D(EXPERT_INTERMEDIATE), BY_COLUMNS,
     ALONE, 1},
    {SHARED "gate_proj.weight", SPARSE_LAYER, RVLI_SHARED, 0, D(SHARED_INTERMEDIATE), D(HIDDEN),
     BY_ROWS, SHARED_UP, 1},
    {SHARED "up_proj.weight", SPARSE_LAYER, RVLI_SHARED, 0, D(SHARED_INTERMEDIATE), D(HIDDEN),
     BY_ROWS, SHARED_UP, 1},
    {SHARED "down_proj.weight", SPARSE_LAYER, RVLI_SHARED, 0, D(HIDDEN), D(SHARED_INTERMEDIATE),
     BY_COLUMNS, ALONE, 1},
    {MLP "shared_expert_gate.weight", SPARSE_LAYER, RVLI_SHARED_GATE, 0, D(ONE), D(HIDDEN), WHOLE,
     ALONE, 0},

    {LAYER "input_layernorm.weight", EVERY_LAYER, 0, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {LAYER "post_attention_layernorm.weight", EVERY_LAYER, 0, 0, D(HIDDEN), D(ONE), WHOLE, ALONE,
     0},
    {LAYER "pre_feedforward_layernorm.weight", EVERY_LAYER, RVLI_FOUR_NORMS, 0, D(HIDDEN), D(ONE),
     WHOLE, ALONE, 0},
    {LAYER "post_feedforward_layernorm.weight", EVERY_LAYER, RVLI_FOUR_NORMS, 0, D(HIDDEN), D(ONE),
     WHOLE, ALONE, 0},

    {"model.norm.weight", LAST, 0, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {"lm_head.weight", LAST, RVLI_HEAD, 0, D(VOCABULARY), D(HIDDEN), BY_VOCABULARY, ALONE, 0},
};

#define RULE_COUNT (sizeof rules / sizeof rules[0])
_Static_assert(RULE_COUNT <= 64, "rvl_model.kept has a bit for each");

static bool applies(const rule *r, const rvl_model *model)
{
    return (model->features & r->needs) == r->needs && (model->features & r->unless) == 0;
}

static bool in_layer(const rule *r, const rvl_model *model, uint32_t layer)
{
    if (!applies(r, model))
        return false;
    bool sparse = model->sparse[layer] != 0;
    return r->scope == EVERY_LAYER || (r->scope == DENSE_LAYER && !sparse) ||
           ((r->scope == SPARSE_LAYER || r->scope == EXPERT) && sparse);
}

/* ---- Names ---- */

void rvli_tensor_name(const char *pattern, uint32_t layer, uint32_t expert, char *name, size_t size)
{
    size_t length = 0;
    name[0] = '\0';
    for (const char *c = pattern; *c != '\0' && length + 12 < size; c++) {
        if (*c == '%')
            length +=
                (size_t)snprintf(name + length, size - length, "%u", *++c == 'L' ? layer : expert);
        else
            length += (size_t)snprintf(name + length, size - length, "%c", *c);
    }
}

/* The experts of a layer are one matrix: what is said of the first is said of all. */
void rvli_model_keep(rvl_model *model, uint32_t layer, rvli_module_fn matches, void *user)
{
    static const char weight[] = ".weight";
    char name[NAME_BYTES];
    for (size_t i = 0; i < RULE_COUNT; i++) {
        if (!rules[i].quantised || !in_layer(&rules[i], model, layer))
            continue;
        rvli_tensor_name(rules[i].pattern, layer, 0, name, sizeof name);
        name[strlen(name) - (sizeof weight - 1)] = '\0';
        if (matches(user, name))
            model->kept[layer] |= UINT64_C(1) << i;
    }
}

/* ---- As the checkpoint has them ---- */

typedef struct walk {
    const rvl_model *model;
    rvli_tensor_fn fn;
    void *user;
} walk;

static void visit(const walk *w, const rule *r, uint32_t layer, uint32_t expert)
{
    rvli_tensor tensor = {r->pattern, layer, expert, w->model->dim[r->rows],
                          w->model->dim[r->columns]};
    w->fn(w->user, &tensor);
}

static void walk_scope(const walk *w, scope wanted)
{
    for (size_t i = 0; i < RULE_COUNT; i++) {
        if (rules[i].scope == wanted && applies(&rules[i], w->model))
            visit(w, &rules[i], RVL_MODEL_NO_LAYER, 0);
    }
}

/* The experts of a layer one after the other, each with all its tensors. */
static void walk_experts(const walk *w, uint32_t layer)
{
    for (uint32_t expert = 0; expert < w->model->experts; expert++) {
        for (size_t i = 0; i < RULE_COUNT; i++) {
            if (rules[i].scope == EXPERT)
                visit(w, &rules[i], layer, expert);
        }
    }
}

static void walk_layer(const walk *w, uint32_t layer)
{
    bool experts_done = false;
    for (size_t i = 0; i < RULE_COUNT; i++) {
        if (!in_layer(&rules[i], w->model, layer))
            continue;
        if (rules[i].scope != EXPERT) {
            visit(w, &rules[i], layer, 0);
        } else if (!experts_done) {
            walk_experts(w, layer);
            experts_done = true;
        }
    }
}

void rvli_model_walk(const rvl_model *model, rvli_tensor_fn fn, void *user)
{
    walk w = {model, fn, user};
    walk_scope(&w, FIRST);
    for (uint32_t layer = 0; layer < model->layers; layer++)
        walk_layer(&w, layer);
    walk_scope(&w, LAST);
}

/* How often a rule's tensor is there. */
static uint64_t times(const rule *r, const rvl_model *model, uint32_t sparse_layers)
{
    switch (r->scope) {
    case EVERY_LAYER:
        return model->layers;
    case DENSE_LAYER:
        return model->layers - sparse_layers;
    case SPARSE_LAYER:
        return sparse_layers;
    case EXPERT:
        return (uint64_t)sparse_layers * model->experts;
    default:
        return 1;
    }
}

uint64_t rvli_model_count(const rvl_model *model)
{
    uint64_t sum = 0;
    uint32_t sparse_layers = 0;
    for (uint32_t layer = 0; layer < model->layers; layer++)
        sparse_layers += model->sparse[layer];
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const rule *r = &rules[i];
        uint64_t elements = model->dim[r->rows] * model->dim[r->columns]; /* at most 2^48 */
        uint64_t count = times(r, model, sparse_layers);
        if (!applies(r, model) || elements == 0 || count == 0)
            continue;
        if (elements > RVLI_MODEL_PARAMETERS_MAX / count)
            return RVLI_MODEL_PARAMETERS_MAX + 1;
        sum += elements * count;
        if (sum > RVLI_MODEL_PARAMETERS_MAX)
            return RVLI_MODEL_PARAMETERS_MAX + 1;
    }
    return sum;
}

/* ---- As an engine has them ---- */

typedef struct engine_walk {
    const rvl_model *model;
    const rvli_plan *plan;
    rvli_bytes_fn fn;
    void *user;
} engine_walk;

/* Over how many ranks a matrix is split: experts are dealt out first. */
static uint64_t ranks_of(const rule *r, const rvli_plan *plan)
{
    return r->scope == EXPERT ? plan->options.tp / plan->options.ep : plan->options.tp;
}

static uint64_t rank_rows(const rule *r, const engine_walk *w)
{
    uint64_t rows = w->model->dim[r->rows];
    switch (r->split) {
    case BY_ROWS:
        return rows / ranks_of(r, w->plan);
    case BY_KV_HEADS:
        return rows / w->model->kv_heads * w->plan->kv_heads;
    case BY_VOCABULARY:
        return w->plan->vocabulary_rows;
    default:
        return rows;
    }
}

static uint64_t rank_columns(const rule *r, const engine_walk *w)
{
    uint64_t columns = w->model->dim[r->columns];
    return r->split == BY_COLUMNS ? columns / ranks_of(r, w->plan) : columns;
}

/* Of so many each, 0: of all. */
static uint64_t blocks(uint64_t value, uint64_t size)
{
    return size > 0 ? (value + size - 1) / size : 1;
}

/* Stacked matrices of one shape, and the scales that stand beside them. */
static void emit(const engine_walk *w, bool quantised, uint64_t stack, uint64_t rows,
                 uint64_t columns)
{
    rvl_model_dtype dtype = quantised ? w->plan->options.weights_dtype : RVL_MODEL_BF16;
    const rvli_scales *scales = &w->plan->scales;
    if (dtype == RVL_MODEL_BF16) {
        w->fn(w->user, stack * rows * columns * BF16_BYTES);
        return;
    }
    uint64_t in_a_byte = dtype == RVL_MODEL_INT4 ? 2 : 1;
    uint64_t groups = stack * blocks(rows, scales->rows) * blocks(columns, scales->columns);
    w->fn(w->user, blocks(stack * rows * columns, in_a_byte));
    w->fn(w->user, groups * scales->bytes);
    if (scales->zeros)
        w->fn(w->user, blocks(groups, in_a_byte));
}

/* As the config of the model says, if it is that which counts. */
static bool is_kept(const engine_walk *w, size_t index, uint32_t layer)
{
    return w->plan->as_config && (w->model->kept[layer] >> index & 1) != 0;
}

/* A tensor alone, or a whole group at its first member in the layer. */
static void emit_layer_rule(const engine_walk *w, size_t index, uint32_t layer)
{
    const rule *r = &rules[index];
    uint64_t rows = rank_rows(r, w);
    for (size_t i = 0; r->group != ALONE && i < RULE_COUNT; i++) {
        const rule *other = &rules[i];
        if (i == index || other->group != r->group || !in_layer(other, w->model, layer))
            continue;
        if (i < index)
            return;
        rows += rank_rows(other, w);
    }
    uint64_t stack = r->scope == EXPERT ? w->model->experts / w->plan->options.ep : 1;
    bool quantised = r->quantised && !is_kept(w, index, layer);
    emit(w, quantised, stack, rows, rank_columns(r, w));
}

static void emit_scope(const engine_walk *w, scope wanted)
{
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const rule *r = &rules[i];
        if (r->scope == wanted && applies(r, w->model))
            emit(w, r->quantised, 1, rank_rows(r, w), rank_columns(r, w));
    }
}

/* The first pipeline stage has the embedding, the last the norm and the head, or its twin. */
void rvli_model_walk_engine(const rvl_model *model, const rvli_plan *plan, rvli_bytes_fn fn,
                            void *user)
{
    engine_walk w = {model, plan, fn, user};
    bool first = plan->first_layer == 0;
    bool last = plan->first_layer + plan->layer_count == model->layers;
    if (first)
        emit_scope(&w, FIRST);
    for (uint32_t layer = plan->first_layer; layer < plan->first_layer + plan->layer_count; layer++)
        for (size_t i = 0; i < RULE_COUNT; i++) {
            if (in_layer(&rules[i], model, layer))
                emit_layer_rule(&w, i, layer);
        }
    if (last)
        emit_scope(&w, LAST);
    if (last && !first && (model->features & RVLI_HEAD) == 0)
        emit_scope(&w, FIRST);
}
