/* SPDX-License-Identifier: MIT */
/*
 * The parameters of every family, as one table of rules.
 *
 * A rule names a tensor, and says which layers have it, which features it depends on, its shape,
 * and how an engine splits it over its ranks. The trainer and the checkpoint have the tensor as it
 * is. An engine fuses tensors of one group that have the same input (q, k, v; gate, up; the experts
 * of a layer) into one, and may store its matrices in fewer bits.
 */
#include <stdio.h>
#include <string.h>

#include "predict/llm/llm_internal.h"

#define BF16_BYTES 2
#define NAME_BYTES 96

/* Where a tensor is: before the layers, in all layers, in layers of one kind, for each expert, or
 * behind the layers. */
typedef enum scope {
    FIRST,
    EVERY_LAYER,
    ATTENTION_LAYER,
    KEYS_LAYER,
    VALUES_LAYER, /* keys, and values from their own projection */
    DELTA_LAYER,
    MAMBA_LAYER,
    CONV_LAYER,
    DENSE_LAYER,
    SPARSE_LAYER,
    EXPERT,
    LAST
} scope;

static const unsigned kind_of_scope[] = {[EVERY_LAYER] = ~0u,
                                         [ATTENTION_LAYER] = RVLI_LAYER_ATTENTION,
                                         [KEYS_LAYER] = RVLI_LAYER_KEYS,
                                         [VALUES_LAYER] = RVLI_LAYER_KEYS,
                                         [DELTA_LAYER] = RVLI_LAYER_DELTA,
                                         [MAMBA_LAYER] = RVLI_LAYER_MAMBA,
                                         [CONV_LAYER] = RVLI_LAYER_CONV,
                                         [DENSE_LAYER] = RVLI_LAYER_DENSE,
                                         [SPARSE_LAYER] = RVLI_LAYER_SPARSE,
                                         [EXPERT] = RVLI_LAYER_SPARSE,
                                         [LAST] = 0};

/* How a tensor is split over ranks. KV heads and Mamba's groups are copied if there are fewer of
 * them than ranks. */
typedef enum split { WHOLE, BY_ROWS, BY_COLUMNS, BY_KV_HEADS, BY_GROUPS, BY_VOCABULARY } split;

/* An engine fuses the tensors of a group into one. */
typedef enum group {
    ALONE,
    QKV,
    QKV_BIAS,
    LATENT_DOWN,
    GATE_UP,
    GATE_UP_BIAS,
    EXPERT_UP,
    EXPERT_UP_BIAS,
    SHARED_UP,
    DELTA_IN,
    DELTA_RATES,
    GROUP_COUNT
} group;

/* Groups that some families store as one parameter: the features of these families, and the
 * parameter's name. */
static const struct {
    uint64_t features;
    const char *pattern;
} fused[GROUP_COUNT] = {
    [QKV] = {RVLI_FUSED_QKV, "model.layers.%L.self_attn.qkv_proj.weight"},
    [GATE_UP] = {RVLI_FUSED_UP, "model.layers.%L.mlp.gate_up_proj.weight"},
    [SHARED_UP] = {RVLI_FUSED_UP, "model.layers.%L.shared_mlp.input_linear.weight"},
};

typedef struct rule {
    const char *pattern;
    scope scope;
    uint64_t needs;  /* all of these features */
    uint64_t unless; /* none of these features */
    rvli_dim rows;
    rvli_dim columns;
    split split;
    group group;
    bool quantised; /* if the engine's weights are */
} rule;

#define D(name) RVLI_DIM_##name
#define ATTENTION "model.layers.%L.self_attn."
#define DELTA "model.layers.%L.linear_attn."
#define MAMBA "model.layers.%L.mamba."
#define CONV "model.layers.%L.conv."
#define INDEXER "model.layers.%L.self_attn.indexer."
#define MLP "model.layers.%L.mlp."
#define MOE_EXPERT "model.layers.%L.mlp.experts.%E."
#define SHARED "model.layers.%L.mlp.shared_experts."
#define LAYER "model.layers.%L."

static const rule rules[] = {
    {"model.embed_tokens.weight", FIRST, 0, 0, D(VOCABULARY), D(HIDDEN), BY_VOCABULARY, ALONE, 0},

    {ATTENTION "q_proj.weight", ATTENTION_LAYER, RVLI_GQA, 0, D(Q_OUT), D(HIDDEN), BY_ROWS, QKV, 1},
    {ATTENTION "q_proj.bias", ATTENTION_LAYER, RVLI_QKV_BIAS, 0, D(Q_OUT), D(ONE), BY_ROWS,
     QKV_BIAS, 0},
    {ATTENTION "k_proj.weight", KEYS_LAYER, RVLI_GQA, 0, D(KV), D(HIDDEN), BY_KV_HEADS, QKV, 1},
    {ATTENTION "k_proj.bias", KEYS_LAYER, RVLI_QKV_BIAS, 0, D(KV), D(ONE), BY_KV_HEADS, QKV_BIAS,
     0},
    {ATTENTION "v_proj.weight", VALUES_LAYER, RVLI_GQA, 0, D(KV), D(HIDDEN), BY_KV_HEADS, QKV, 1},
    {ATTENTION "v_proj.bias", VALUES_LAYER, RVLI_QKV_BIAS, 0, D(KV), D(ONE), BY_KV_HEADS, QKV_BIAS,
     0},

    {ATTENTION "q_proj.weight", ATTENTION_LAYER, RVLI_MLA, RVLI_Q_LORA, D(Q), D(HIDDEN), BY_ROWS,
     ALONE, 1},
    {ATTENTION "q_a_proj.weight", ATTENTION_LAYER, RVLI_MLA | RVLI_Q_LORA, 0, D(Q_LORA), D(HIDDEN),
     WHOLE, LATENT_DOWN, 1},
    {ATTENTION "q_a_layernorm.weight", ATTENTION_LAYER, RVLI_MLA | RVLI_Q_LORA, 0, D(Q_LORA),
     D(ONE), WHOLE, ALONE, 0},
    {ATTENTION "q_b_proj.weight", ATTENTION_LAYER, RVLI_MLA | RVLI_Q_LORA, 0, D(Q), D(Q_LORA),
     BY_ROWS, ALONE, 1},
    {ATTENTION "kv_a_proj_with_mqa.weight", ATTENTION_LAYER, RVLI_MLA, 0, D(KV_DOWN), D(HIDDEN),
     WHOLE, LATENT_DOWN, 1},
    {ATTENTION "kv_a_layernorm.weight", ATTENTION_LAYER, RVLI_MLA, 0, D(KV_LORA), D(ONE), WHOLE,
     ALONE, 0},
    {ATTENTION "kv_b_proj.weight", ATTENTION_LAYER, RVLI_MLA, 0, D(KV_UP), D(KV_LORA), BY_ROWS,
     ALONE, 1},

    {ATTENTION "o_proj.weight", ATTENTION_LAYER, 0, 0, D(HIDDEN), D(ATTENDED), BY_COLUMNS, ALONE,
     1},
    {ATTENTION "o_proj.bias", ATTENTION_LAYER, RVLI_O_BIAS, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},

    {INDEXER "wq_b.weight", ATTENTION_LAYER, RVLI_INDEXER, 0, D(INDEX), D(Q_LORA), WHOLE, ALONE, 1},
    {INDEXER "wk.weight", ATTENTION_LAYER, RVLI_INDEXER, 0, D(INDEX_HEAD), D(HIDDEN), WHOLE, ALONE,
     1},
    {INDEXER "k_norm.weight", KEYS_LAYER, RVLI_INDEXER, 0, D(INDEX_HEAD), D(ONE), WHOLE, ALONE, 0},
    {INDEXER "k_norm.bias", KEYS_LAYER, RVLI_INDEXER, 0, D(INDEX_HEAD), D(ONE), WHOLE, ALONE, 0},
    {INDEXER "weights_proj.weight", ATTENTION_LAYER, RVLI_INDEXER, 0, D(INDEX_HEADS), D(HIDDEN),
     WHOLE, ALONE, 0},

    {ATTENTION "q_norm.weight", ATTENTION_LAYER, RVLI_QK_NORM, 0, D(HEAD), D(ONE), WHOLE, ALONE, 0},
    {ATTENTION "k_norm.weight", KEYS_LAYER, RVLI_QK_NORM, 0, D(HEAD), D(ONE), WHOLE, ALONE, 0},
    {ATTENTION "q_norm.weight", ATTENTION_LAYER, RVLI_WIDE_QK_NORM, 0, D(Q), D(ONE), BY_ROWS, ALONE,
     0},
    {ATTENTION "k_norm.weight", KEYS_LAYER, RVLI_WIDE_QK_NORM, 0, D(KV), D(ONE), BY_KV_HEADS, ALONE,
     0},
    {ATTENTION "sinks", ATTENTION_LAYER, RVLI_SINKS, 0, D(HEADS), D(ONE), BY_ROWS, ALONE, 0},

    /* In the order of transformers' modules: a trainer loads and gathers them in this order. */
    {DELTA "conv1d.weight", DELTA_LAYER, 0, 0, D(DELTA_CONV), D(CONV_KERNEL), BY_ROWS, ALONE, 0},
    {DELTA "in_proj_qkvz.weight", DELTA_LAYER, 0, RVLI_SPLIT_DELTA, D(DELTA_IN), D(HIDDEN), BY_ROWS,
     DELTA_IN, 1},
    {DELTA "in_proj_ba.weight", DELTA_LAYER, 0, RVLI_SPLIT_DELTA, D(DELTA_RATES), D(HIDDEN),
     BY_ROWS, DELTA_RATES, 1},
    {DELTA "norm.weight", DELTA_LAYER, 0, 0, D(DELTA_HEAD), D(ONE), WHOLE, ALONE, 0},
    {DELTA "out_proj.weight", DELTA_LAYER, 0, 0, D(HIDDEN), D(DELTA_VALUE), BY_COLUMNS, ALONE, 1},
    {DELTA "in_proj_qkv.weight", DELTA_LAYER, RVLI_SPLIT_DELTA, 0, D(DELTA_CONV), D(HIDDEN),
     BY_ROWS, DELTA_IN, 1},
    {DELTA "in_proj_z.weight", DELTA_LAYER, RVLI_SPLIT_DELTA, 0, D(DELTA_VALUE), D(HIDDEN), BY_ROWS,
     DELTA_IN, 1},
    {DELTA "in_proj_b.weight", DELTA_LAYER, RVLI_SPLIT_DELTA, 0, D(DELTA_HEADS), D(HIDDEN), BY_ROWS,
     DELTA_RATES, 1},
    {DELTA "in_proj_a.weight", DELTA_LAYER, RVLI_SPLIT_DELTA, 0, D(DELTA_HEADS), D(HIDDEN), BY_ROWS,
     DELTA_RATES, 1},
    {DELTA "dt_bias", DELTA_LAYER, 0, 0, D(DELTA_HEADS), D(ONE), BY_ROWS, ALONE, 0},
    {DELTA "A_log", DELTA_LAYER, 0, 0, D(DELTA_HEADS), D(ONE), BY_ROWS, ALONE, 0},

    {MAMBA "in_proj.weight", MAMBA_LAYER, 0, 0, D(MAMBA_IN), D(HIDDEN), BY_GROUPS, ALONE, 1},
    {MAMBA "conv1d.weight", MAMBA_LAYER, 0, 0, D(MAMBA_CONV), D(CONV_KERNEL), BY_GROUPS, ALONE, 0},
    {MAMBA "conv1d.bias", MAMBA_LAYER, RVLI_CONV_BIAS, 0, D(MAMBA_CONV), D(ONE), BY_GROUPS, ALONE,
     0},
    {MAMBA "dt_bias", MAMBA_LAYER, 0, 0, D(MAMBA_HEADS), D(ONE), BY_ROWS, ALONE, 0},
    {MAMBA "A_log", MAMBA_LAYER, 0, 0, D(MAMBA_HEADS), D(ONE), BY_ROWS, ALONE, 0},
    {MAMBA "D", MAMBA_LAYER, 0, 0, D(MAMBA_HEADS), D(ONE), BY_ROWS, ALONE, 0},
    {MAMBA "norm.weight", MAMBA_LAYER, 0, RVLI_HYBRID, D(MAMBA_INNER), D(ONE), BY_ROWS, ALONE, 0},
    {MAMBA "out_proj.weight", MAMBA_LAYER, 0, 0, D(HIDDEN), D(MAMBA_INNER), BY_COLUMNS, ALONE, 1},

    {CONV "conv.weight", CONV_LAYER, 0, 0, D(HIDDEN), D(CONV_KERNEL), BY_ROWS, ALONE, 0},
    {CONV "in_proj.weight", CONV_LAYER, 0, 0, D(THREE_HIDDEN), D(HIDDEN), BY_ROWS, ALONE, 1},
    {CONV "out_proj.weight", CONV_LAYER, 0, 0, D(HIDDEN), D(HIDDEN), BY_COLUMNS, ALONE, 1},

    {MLP "gate_proj.weight", DENSE_LAYER, 0, RVLI_NO_GATE, D(INTERMEDIATE), D(HIDDEN), BY_ROWS,
     GATE_UP, 1},
    {MLP "gate_proj.bias", DENSE_LAYER, RVLI_MLP_BIAS, RVLI_NO_GATE, D(INTERMEDIATE), D(ONE),
     BY_ROWS, GATE_UP_BIAS, 0},
    {MLP "up_proj.weight", DENSE_LAYER, 0, 0, D(INTERMEDIATE), D(HIDDEN), BY_ROWS, GATE_UP, 1},
    {MLP "up_proj.bias", DENSE_LAYER, RVLI_MLP_BIAS, 0, D(INTERMEDIATE), D(ONE), BY_ROWS,
     GATE_UP_BIAS, 0},
    {MLP "down_proj.weight", DENSE_LAYER, 0, 0, D(HIDDEN), D(INTERMEDIATE), BY_COLUMNS, ALONE, 1},
    {MLP "down_proj.bias", DENSE_LAYER, RVLI_MLP_BIAS, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},

    {MLP "act_fn.alpha_p", DENSE_LAYER, RVLI_XIELU, 0, D(ONE), D(ONE), WHOLE, ALONE, 0},
    {MLP "act_fn.alpha_n", DENSE_LAYER, RVLI_XIELU, 0, D(ONE), D(ONE), WHOLE, ALONE, 0},
    {MLP "act_fn.beta", DENSE_LAYER, RVLI_XIELU, 0, D(ONE), D(ONE), WHOLE, ALONE, 0},
    {MLP "act_fn.eps", DENSE_LAYER, RVLI_XIELU, 0, D(ONE), D(ONE), WHOLE, ALONE, 0},

    {MLP "gate.weight", SPARSE_LAYER, 0, 0, D(EXPERTS), D(HIDDEN), WHOLE, ALONE, 0},
    {MLP "gate.e_score_correction_bias", SPARSE_LAYER, RVLI_ROUTER_BIAS, 0, D(EXPERTS), D(ONE),
     WHOLE, ALONE, 0},
    {MLP "gate.bias", SPARSE_LAYER, RVLI_EXPERT_BIAS, 0, D(EXPERTS), D(ONE), WHOLE, ALONE, 0},
    {MOE_EXPERT "gate_proj.weight", EXPERT, 0, RVLI_NO_GATE, D(EXPERT_INTERMEDIATE), D(HIDDEN),
     BY_ROWS, EXPERT_UP, 1},
    {MOE_EXPERT "gate_proj.bias", EXPERT, RVLI_EXPERT_BIAS, 0, D(EXPERT_INTERMEDIATE), D(ONE),
     BY_ROWS, EXPERT_UP_BIAS, 0},
    {MOE_EXPERT "up_proj.weight", EXPERT, 0, 0, D(EXPERT_INTERMEDIATE), D(HIDDEN), BY_ROWS,
     EXPERT_UP, 1},
    {MOE_EXPERT "up_proj.bias", EXPERT, RVLI_EXPERT_BIAS, 0, D(EXPERT_INTERMEDIATE), D(ONE),
     BY_ROWS, EXPERT_UP_BIAS, 0},
    {MOE_EXPERT "down_proj.weight", EXPERT, 0, 0, D(HIDDEN), D(EXPERT_INTERMEDIATE), BY_COLUMNS,
     ALONE, 1},
    {MOE_EXPERT "down_proj.bias", EXPERT, RVLI_EXPERT_BIAS, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {SHARED "gate_proj.weight", SPARSE_LAYER, RVLI_SHARED, RVLI_NO_GATE, D(SHARED_INTERMEDIATE),
     D(HIDDEN), BY_ROWS, SHARED_UP, 1},
    {SHARED "up_proj.weight", SPARSE_LAYER, RVLI_SHARED, 0, D(SHARED_INTERMEDIATE), D(HIDDEN),
     BY_ROWS, SHARED_UP, 1},
    {SHARED "down_proj.weight", SPARSE_LAYER, RVLI_SHARED, 0, D(HIDDEN), D(SHARED_INTERMEDIATE),
     BY_COLUMNS, ALONE, 1},
    {MLP "shared_expert_gate.weight", SPARSE_LAYER, RVLI_SHARED_GATE, 0, D(ONE), D(HIDDEN), WHOLE,
     ALONE, 0},

    {LAYER "norm.weight", EVERY_LAYER, RVLI_ONE_NORM, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {LAYER "input_layernorm.weight", EVERY_LAYER, 0,
     RVLI_ONE_NORM | RVLI_NORMS_BEHIND | RVLI_PLAIN_NORM, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {LAYER "input_layernorm.bias", EVERY_LAYER, RVLI_LAYER_NORM, 0, D(HIDDEN), D(ONE), WHOLE, ALONE,
     0},
    {LAYER "post_attention_layernorm.weight", EVERY_LAYER, 0,
     RVLI_ONE_NORM | RVLI_PARALLEL | RVLI_PLAIN_NORM, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {LAYER "post_attention_layernorm.bias", EVERY_LAYER, RVLI_LAYER_NORM, 0, D(HIDDEN), D(ONE),
     WHOLE, ALONE, 0},
    {LAYER "pre_feedforward_layernorm.weight", EVERY_LAYER, RVLI_FOUR_NORMS, 0, D(HIDDEN), D(ONE),
     WHOLE, ALONE, 0},
    {LAYER "post_feedforward_layernorm.weight", EVERY_LAYER, RVLI_FOUR_NORMS, 0, D(HIDDEN), D(ONE),
     WHOLE, ALONE, 0},
    {LAYER "post_feedforward_layernorm.weight", EVERY_LAYER, RVLI_NORMS_BEHIND, 0, D(HIDDEN),
     D(ONE), WHOLE, ALONE, 0},
    {LAYER "post_self_attn_layernorm.weight", EVERY_LAYER, RVLI_GLM_NORMS, 0, D(HIDDEN), D(ONE),
     WHOLE, ALONE, 0},
    {LAYER "post_mlp_layernorm.weight", EVERY_LAYER, RVLI_GLM_NORMS, 0, D(HIDDEN), D(ONE), WHOLE,
     ALONE, 0},

    {LAYER "altup.correct_output_scale", EVERY_LAYER, RVLI_ALTUP, 0, D(HIDDEN), D(ONE), WHOLE,
     ALONE, 0},
    {LAYER "altup.correction_coefs.weight", EVERY_LAYER, RVLI_ALTUP, 0, D(ALTUP_COUNT),
     D(ALTUP_COUNT), WHOLE, ALONE, 0},
    {LAYER "altup.prediction_coefs.weight", EVERY_LAYER, RVLI_ALTUP, 0, D(ALTUP_SQUARED),
     D(ALTUP_COUNT), WHOLE, ALONE, 0},
    {LAYER "altup.modality_router.weight", EVERY_LAYER, RVLI_ALTUP, 0, D(ALTUP_COUNT), D(HIDDEN),
     WHOLE, ALONE, 0},
    {LAYER "altup.router_norm.weight", EVERY_LAYER, RVLI_ALTUP, 0, D(HIDDEN), D(ONE), WHOLE, ALONE,
     0},
    {LAYER "laurel.linear_left.weight", EVERY_LAYER, RVLI_ALTUP, 0, D(LAUREL), D(HIDDEN), WHOLE,
     ALONE, 1},
    {LAYER "laurel.linear_right.weight", EVERY_LAYER, RVLI_ALTUP, 0, D(HIDDEN), D(LAUREL), WHOLE,
     ALONE, 1},
    {LAYER "laurel.post_laurel_norm.weight", EVERY_LAYER, RVLI_ALTUP, 0, D(HIDDEN), D(ONE), WHOLE,
     ALONE, 0},
    {LAYER "per_layer_input_gate.weight", EVERY_LAYER, RVLI_PER_LAYER, 0, D(PER_LAYER), D(HIDDEN),
     WHOLE, ALONE, 1},
    {LAYER "per_layer_projection.weight", EVERY_LAYER, RVLI_PER_LAYER, 0, D(HIDDEN), D(PER_LAYER),
     WHOLE, ALONE, 1},
    {LAYER "post_per_layer_input_norm.weight", EVERY_LAYER, RVLI_PER_LAYER, 0, D(HIDDEN), D(ONE),
     WHOLE, ALONE, 0},

    {LAYER "layer_scalar", EVERY_LAYER, RVLI_LAYER_SCALE, 0, D(ONE), D(ONE), WHOLE, ALONE, 0},
    {MLP "gate.scale", SPARSE_LAYER, RVLI_LAYER_SCALE, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {MLP "gate.per_expert_scale", SPARSE_LAYER, RVLI_LAYER_SCALE, 0, D(EXPERTS), D(ONE), WHOLE,
     ALONE, 0},
    {LAYER "post_feedforward_layernorm_1.weight", SPARSE_LAYER, RVLI_LAYER_SCALE, 0, D(HIDDEN),
     D(ONE), WHOLE, ALONE, 0},
    {LAYER "post_feedforward_layernorm_2.weight", SPARSE_LAYER, RVLI_LAYER_SCALE, 0, D(HIDDEN),
     D(ONE), WHOLE, ALONE, 0},
    {LAYER "pre_feedforward_layernorm_2.weight", SPARSE_LAYER, RVLI_LAYER_SCALE, 0, D(HIDDEN),
     D(ONE), WHOLE, ALONE, 0},

    {"model.norm.weight", LAST, 0, RVLI_PLAIN_NORM, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {"model.norm.bias", LAST, RVLI_LAYER_NORM, 0, D(HIDDEN), D(ONE), WHOLE, ALONE, 0},
    {"lm_head.weight", LAST, RVLI_HEAD, 0, D(VOCABULARY), D(HIDDEN), BY_VOCABULARY, ALONE, 0},
    {"lm_head.bias", LAST, RVLI_HEAD_BIAS, 0, D(VOCABULARY), D(ONE), BY_VOCABULARY, ALONE, 0},
    {"model.embed_tokens_per_layer.weight", LAST, RVLI_PER_LAYER, 0, D(PER_LAYER_VOCABULARY),
     D(PER_LAYER_ALL), BY_ROWS, ALONE, 0},
    {"model.per_layer_model_projection.weight", LAST, RVLI_PER_LAYER, 0, D(PER_LAYER_ALL),
     D(HIDDEN), WHOLE, ALONE, 0},
    {"model.per_layer_projection_norm.weight", LAST, RVLI_PER_LAYER, 0, D(PER_LAYER), D(ONE), WHOLE,
     ALONE, 0},
    {"model.altup_projections.weight", LAST, RVLI_ALTUP, 0, D(ALTUP_OTHERS), D(HIDDEN), WHOLE,
     ALONE, 0},
    {"model.altup_unembed_projections.weight", LAST, RVLI_ALTUP, 0, D(ALTUP_OTHERS), D(HIDDEN),
     WHOLE, ALONE, 0},
};

#define RULE_COUNT (sizeof rules / sizeof rules[0])
_Static_assert(RULE_COUNT <= RVLI_MODEL_RULES_MAX, "rvl_model.kept has a bit for each");

static bool applies(const rule *r, const rvl_model *model)
{
    return (model->features & r->needs) == r->needs && (model->features & r->unless) == 0;
}

static bool in_layer_of_engine(const rule *r, const rvl_model *model, uint32_t layer)
{
    return applies(r, model) && (model->kinds[layer] & kind_of_scope[r->scope]) != 0;
}

/* If keys are also the values, an engine has two copies of their projection. */
static bool in_layer(const rule *r, const rvl_model *model, uint32_t layer)
{
    bool copied =
        r->scope == VALUES_LAYER && rvli_layer_is(model, layer, RVLI_LAYER_KEYS_AS_VALUES);
    return !copied && in_layer_of_engine(r, model, layer);
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

/* The experts of a layer are one matrix: what matches the first expert applies to all. */
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
            model->kept[layer][i / 64] |= UINT64_C(1) << i % 64;
    }
}

/* ---- Groups ---- */

typedef uint64_t (*rows_fn)(const rule *r, uint32_t layer, const void *user);
typedef bool (*there_fn)(const rule *r, const rvl_model *model, uint32_t layer);

/* How to find a rule's rows, and which rules a layer has. */
typedef struct rows_of {
    rows_fn fn;
    there_fn is_there;
    const void *user;
} rows_of;

/* Rows of a rule. A group's first member in the layer has those of the whole group, the others
 * 0. */
static uint64_t group_rows(size_t index, const rvl_model *model, uint32_t layer, rows_of of)
{
    const rule *r = &rules[index];
    uint64_t rows = of.fn(r, layer, of.user);
    for (size_t i = 0; r->group != ALONE && i < RULE_COUNT; i++) {
        const rule *other = &rules[i];
        if (i == index || other->group != r->group || !of.is_there(other, model, layer))
            continue;
        if (i < index)
            return 0;
        rows += of.fn(other, layer, of.user);
    }
    return rows;
}

uint64_t rvli_tensor_share(const rvli_tensor *tensor, uint64_t ranks)
{
    bool stacked = tensor->stack > 1;
    uint64_t length = stacked ? tensor->stack : tensor->rows;
    uint64_t each = stacked ? tensor->rows * tensor->columns : tensor->columns;
    return (length + ranks - 1) / ranks * each;
}

bool rvli_tensor_learns(const rvli_tensor *tensor)
{
    return strncmp(tensor->pattern, INDEXER, sizeof INDEXER - 1) != 0 &&
           strcmp(tensor->pattern, MLP "gate.e_score_correction_bias") != 0 &&
           strcmp(tensor->pattern, LAYER "layer_scalar") != 0;
}

/* ---- As in the checkpoint ---- */

typedef struct walk {
    const rvl_model *model;
    bool stacked; /* the experts of a layer are stacks */
    rvli_tensor_fn fn;
    void *user;
} walk;

static uint64_t whole_rows(const rule *r, uint32_t layer, const void *user)
{
    return rvli_layer_dim(user, layer, r->rows);
}

static uint64_t whole_group_rows(size_t index, const rvl_model *model, uint32_t layer)
{
    return group_rows(index, model, layer, (rows_of){whole_rows, in_layer, model});
}

static bool is_fused(const rule *r, const rvl_model *model)
{
    return (fused[r->group].features & model->features) != 0;
}

static void visit(const walk *w, const rule *r, uint32_t layer, uint32_t expert)
{
    rvli_tensor tensor = {r->pattern,
                          layer,
                          expert,
                          rvli_layer_dim(w->model, layer, r->rows),
                          rvli_layer_dim(w->model, layer, r->columns),
                          1};
    if (is_fused(r, w->model)) {
        tensor.pattern = fused[r->group].pattern;
        tensor.rows = whole_group_rows((size_t)(r - rules), w->model, layer);
    }
    if (tensor.rows > 0)
        w->fn(w->user, &tensor);
}

static void walk_scope(const walk *w, scope wanted)
{
    for (size_t i = 0; i < RULE_COUNT; i++) {
        if (rules[i].scope == wanted && applies(&rules[i], w->model))
            visit(w, &rules[i], RVL_MODEL_NO_LAYER, 0);
    }
}

/* Visits the experts of a layer one after the other, each with all its tensors. */
static void walk_experts(const walk *w, uint32_t layer)
{
    for (uint32_t expert = 0; expert < w->model->experts; expert++) {
        for (size_t i = 0; i < RULE_COUNT; i++) {
            if (rules[i].scope == EXPERT && applies(&rules[i], w->model))
                visit(w, &rules[i], layer, expert);
        }
    }
}

/* Visits the experts of a layer at once. The tensors of a group are one stack, visited at its first
 * member. */
static void walk_stacks(const walk *w, uint32_t layer)
{
    for (size_t i = 0; i < RULE_COUNT; i++) {
        if (rules[i].scope != EXPERT || !applies(&rules[i], w->model))
            continue;
        rvli_tensor tensor = {rules[i].pattern,
                              layer,
                              0,
                              whole_group_rows(i, w->model, layer),
                              w->model->dim[rules[i].columns],
                              w->model->experts};
        if (tensor.rows > 0)
            w->fn(w->user, &tensor);
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
            (w->stacked ? walk_stacks : walk_experts)(w, layer);
            experts_done = true;
        }
    }
}

static void walk_all(const walk *w)
{
    walk_scope(w, FIRST);
    for (uint32_t layer = 0; layer < w->model->layers; layer++)
        walk_layer(w, layer);
    walk_scope(w, LAST);
}

void rvli_model_walk(const rvl_model *model, rvli_tensor_fn fn, void *user)
{
    walk_all(&(walk){.model = model, .fn = fn, .user = user});
}

void rvli_model_walk_trained(const rvl_model *model, rvli_tensor_fn fn, void *user)
{
    walk_all(&(walk){.model = model, .stacked = true, .fn = fn, .user = user});
}

/* Elements of a rule's tensors in a layer, or outside of layers. RVLI_MODEL_PARAMETERS_MAX + 1:
 * more than the maximum. */
static uint64_t elements_of(const rule *r, const rvl_model *model, uint32_t layer)
{
    uint64_t rows = rvli_layer_dim(model, layer, r->rows);
    uint64_t elements = rows * rvli_layer_dim(model, layer, r->columns); /* at most 2^48 */
    uint64_t count = r->scope == EXPERT ? model->experts : 1;
    if (count > 0 && elements > RVLI_MODEL_PARAMETERS_MAX / count)
        return RVLI_MODEL_PARAMETERS_MAX + 1;
    return elements * count;
}

uint64_t rvli_model_count(const rvl_model *model)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const rule *r = &rules[i];
        bool outside = r->scope == FIRST || r->scope == LAST;
        if (!applies(r, model))
            continue;
        for (uint32_t layer = 0; layer < (outside ? 1 : model->layers); layer++) {
            if (outside)
                sum += elements_of(r, model, RVL_MODEL_NO_LAYER);
            else if (in_layer(r, model, layer))
                sum += elements_of(r, model, layer);
            if (sum > RVLI_MODEL_PARAMETERS_MAX)
                return RVLI_MODEL_PARAMETERS_MAX + 1;
        }
    }
    return sum;
}

/* ---- As in an engine ---- */

typedef struct engine_walk {
    const rvl_model *model;
    const rvli_plan *plan;
    rvli_bytes_fn fn;
    void *user;
} engine_walk;

/* How many ranks a matrix is split over. Experts are first distributed over ep groups of ranks. */
static uint64_t ranks_of(const rule *r, const rvli_plan *plan)
{
    return r->scope == EXPERT ? plan->options.tp / plan->options.ep : plan->options.tp;
}

/* Mamba's projection and convolution: heads are split, groups are split as KV heads are. */
static uint64_t rank_grouped(uint64_t rows, const engine_walk *w)
{
    uint64_t width = w->model->mamba_group_width;
    return (rows - w->model->mamba_groups * width) / w->plan->options.tp +
           w->plan->mamba_groups * width;
}

static uint64_t rank_rows(const rule *r, uint32_t layer, const void *user)
{
    const engine_walk *w = user;
    uint64_t rows = rvli_layer_dim(w->model, layer, r->rows);
    switch (r->split) {
    case BY_ROWS:
        return rows / ranks_of(r, w->plan);
    case BY_KV_HEADS:
        return rows / rvli_layer_kv_heads(w->model, layer) *
               rvli_rank_kv_heads(w->model, w->plan, layer);
    case BY_GROUPS:
        return rank_grouped(rows, w);
    case BY_VOCABULARY:
        return w->plan->vocabulary_rows;
    default:
        return rows;
    }
}

static uint64_t rank_columns(const rule *r, uint32_t layer, const engine_walk *w)
{
    uint64_t columns = rvli_layer_dim(w->model, layer, r->columns);
    return r->split == BY_COLUMNS ? columns / ranks_of(r, w->plan) : columns;
}

/* Number of blocks of `size`; size 0: one block. */
static uint64_t blocks(uint64_t value, uint64_t size)
{
    return size > 0 ? (value + size - 1) / size : 1;
}

/* Reports stacked matrices of one shape, with their scales and zero points. */
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

/* Whether the tensor stays bf16. The config says so, if the weights have the config's type. */
static bool is_kept(const engine_walk *w, size_t index, uint32_t layer)
{
    return w->plan->as_config && (w->model->kept[layer][index / 64] >> index % 64 & 1) != 0;
}

/* Reports a tensor, or a whole group at its first member in the layer. */
static void emit_layer_rule(const engine_walk *w, size_t index, uint32_t layer)
{
    const rule *r = &rules[index];
    uint64_t rows = group_rows(index, w->model, layer, (rows_of){rank_rows, in_layer_of_engine, w});
    uint64_t stack = r->scope == EXPERT ? w->model->experts / w->plan->options.ep : 1;
    bool quantised = r->quantised && !is_kept(w, index, layer);
    if (rows > 0)
        emit(w, quantised, stack, rows, rank_columns(r, layer, w));
}

static void emit_scope(const engine_walk *w, scope wanted)
{
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const rule *r = &rules[i];
        if (r->scope == wanted && applies(r, w->model))
            emit(w, r->quantised, 1, rank_rows(r, RVL_MODEL_NO_LAYER, w),
                 rank_columns(r, RVL_MODEL_NO_LAYER, w));
    }
}

/* The first pipeline stage has the embedding. The last has the norm and the head, or a copy of a
 * tied embedding. */
void rvli_model_walk_engine(const rvl_model *model, const rvli_plan *plan, rvli_bytes_fn fn,
                            void *user)
{
    engine_walk w = {model, plan, fn, user};
    bool first = plan->first_layer == 0;
    bool last = plan->first_layer + plan->layer_count == model->layers;
    if (first)
        emit_scope(&w, FIRST);
    if (first)
        rvli_tower_walk_engine(model, plan, fn, user);
    for (uint32_t layer = plan->first_layer; layer < plan->first_layer + plan->layer_count; layer++)
        for (size_t i = 0; i < RULE_COUNT; i++) {
            if (in_layer_of_engine(&rules[i], model, layer))
                emit_layer_rule(&w, i, layer);
        }
    if (last)
        emit_scope(&w, LAST);
    if (last && !first && (model->features & RVLI_HEAD) == 0)
        emit_scope(&w, FIRST);
}
