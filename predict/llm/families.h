/* SPDX-License-Identifier: MIT */
/*
 * What sets a family of models apart: one row each in families.c.
 *
 * A row says what layers have, which sizes a config may leave out, and under which names it keeps
 * those that families call differently. All else is read in the same way for every family.
 */
#ifndef RVL_PREDICT_LLM_FAMILIES_H
#define RVL_PREDICT_LLM_FAMILIES_H

#include "predict/llm/llm_internal.h"

/* What a family's config says that others' do not. */
enum {
    RVLI_READS_QKV_BIAS = 1 << 0,       /* attention_bias: of q, k, v */
    RVLI_READS_ATTENTION_BIAS = 1 << 1, /* of q, k, v and o alike */
    RVLI_READS_OUT_BIAS = 1 << 2,       /* attention_out_bias */
    RVLI_READS_MLP_BIAS = 1 << 3,
    RVLI_READS_USE_BIAS = 1 << 4, /* use_bias: of attention and MLP */
    RVLI_READS_QK_NORM = 1 << 5,  /* use_qk_norm */
    RVLI_BIASED = 1 << 6, /* attention_bias and use_bias are true where the config is silent */
    RVLI_TIED_BY_DEFAULT = 1 << 7,
    RVLI_TEXT_CONFIG = 1 << 8,    /* the language model's keys are one level down */
    RVLI_OR_FLAT = 1 << 9,        /* RVLI_TEXT_CONFIG: or at the top, as older configs have them */
    RVLI_OUTER_TIE = 1 << 10,     /* RVLI_TEXT_CONFIG: the tie at the top is the one that counts */
    RVLI_SPARSE_STEP = 1 << 11,   /* decoder_sparse_step, mlp_only_layers */
    RVLI_DEEPSEEK = 1 << 12,      /* first_k_dense_replace, moe_layer_freq, mlp_layer_types */
    RVLI_ERNIE_LAYERS = 1 << 13,  /* moe_layer_start_index and what belongs to it */
    RVLI_MOE_LIST = 1 << 14,      /* moe_layers, interleave_moe_layer_step */
    RVLI_OR_DENSE = 1 << 15,      /* there may be no experts */
    RVLI_SHARED_AS_ONE = 1 << 16, /* the shared expert is as large as another */
    RVLI_KV_HEADS_AS_HEADS = 1 << 17, /* where the config does not give them */
    RVLI_BLOCK_LIST = 1 << 18,  /* layers_block_type, hybrid_override_pattern: one block a layer */
    RVLI_SHARED_KEYS = 1 << 19, /* num_kv_shared_layers: the last ones use those of others */
    RVLI_FULL_FIRST = 1 << 20,  /* full_every counts from the first layer, not up to it */
    RVLI_ROTARY_IF_SAID = 1 << 21,     /* position_embedding_type */
    RVLI_MLP_WORDS = 1 << 22,          /* mlp_layer_types alone; else all layers have experts */
    RVLI_DENSE_FIRST = 1 << 25,        /* num_dense_layers */
    RVLI_EXPERT_CHOICE_BIAS = 1 << 26, /* use_expert_bias: of the router; true if it is not said */
    RVLI_LFM_SIZES = 1 << 24,          /* block_auto_adjust_ff_dim and what belongs to it */
    RVLI_ATTENTION_NUMBERS = 1 << 23,  /* attn_layer_indices, full_attn_idxs */
    RVLI_READS_HEAD_BIAS = 1 << 27,    /* lm_head_bias */
    RVLI_READS_DROPOUT = 1 << 28,      /* residual_dropout, embedding_dropout */
    RVLI_READS_WIDE_QK_NORM = 1 << 29, /* use_qk_norm: a weight for each element of all heads */
    RVLI_SIZED_LAYERS = 1 << 30,       /* Gemma 4: global_head_dim and what belongs to it */
};

/* Names of keys; NULL: the usual one, or none where there is no usual one. */
typedef struct rvli_family {
    const char *type;
    uint64_t features;
    uint32_t reads;
    uint32_t head_dim; /* default; 0: hidden size over heads */
    uint32_t heads;    /* defaults; 0: needed */
    uint32_t kv_heads;
    uint32_t vocabulary;     /* 0: needed */
    uint32_t window;         /* default of the key of windows */
    uint32_t full_every;     /* default: one layer in so many sees all tokens; 0: all do */
    uint32_t state;          /* kind of the layers that have a state in the place of attention */
    const char *experts;     /* NULL: a dense family */
    const char *expert_size; /* an expert's intermediate size */
    const char *chosen;      /* experts of a token: num_experts_per_tok */
    const char *shared;      /* number of shared experts */
    const char *shared_size; /* of all shared experts together */
    const char *dense_size;  /* intermediate size of layers without experts */
    const char *window_key;  /* sliding_window */
    const char *step_key;    /* full_every */
    const char *text_types;  /* model_types that may be in text_config, each with a comma */
    const char *tie_key;     /* counts before tie_word_embeddings */
    uint32_t groups;         /* default of n_group; 0: 1 */
    uint32_t rotary_percent; /* default: so much of a head has positions; 0: all */
    uint32_t tower;          /* RVLI_TOWER_*: what vision_config is of; 0: none that is known */
} rvli_family;

/* NULL: not known. */
const rvli_family *rvli_family_find(const char *type);

#endif
