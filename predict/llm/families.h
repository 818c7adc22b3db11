/* SPDX-License-Identifier: MIT */
/*
 * What distinguishes families of models: one row for each in families.c.
 *
 * A row says what the layers have, which sizes a config may omit, and the names of keys that differ
 * between families. Everything else is read in the same way for all families.
 */
#ifndef RVL_PREDICT_LLM_FAMILIES_H
#define RVL_PREDICT_LLM_FAMILIES_H

#include "predict/llm/llm_internal.h"

/* Keys that only some families' configs have, and how they are read. */
enum {
    RVLI_READS_QKV_BIAS = 1 << 0,       /* attention_bias: q, k, v */
    RVLI_READS_ATTENTION_BIAS = 1 << 1, /* attention_bias: q, k, v and o */
    RVLI_READS_OUT_BIAS = 1 << 2,       /* attention_out_bias */
    RVLI_READS_MLP_BIAS = 1 << 3,
    RVLI_READS_USE_BIAS = 1 << 4, /* use_bias: attention and MLP */
    RVLI_READS_QK_NORM = 1 << 5,  /* use_qk_norm */
    RVLI_BIASED = 1 << 6,         /* attention_bias and use_bias default to true */
    RVLI_TIED_BY_DEFAULT = 1 << 7,
    RVLI_TEXT_CONFIG = 1 << 8,    /* the language model's keys are one level down, in text_config */
    RVLI_OR_FLAT = 1 << 9,        /* RVLI_TEXT_CONFIG: older configs have them at the top */
    RVLI_OUTER_TIE = 1 << 10,     /* RVLI_TEXT_CONFIG: tie_word_embeddings at the top counts */
    RVLI_SPARSE_STEP = 1 << 11,   /* decoder_sparse_step, mlp_only_layers */
    RVLI_DEEPSEEK = 1 << 12,      /* first_k_dense_replace, moe_layer_freq, mlp_layer_types */
    RVLI_ERNIE_LAYERS = 1 << 13,  /* moe_layer_start_index, _end_index, _interval */
    RVLI_MOE_LIST = 1 << 14,      /* moe_layers, interleave_moe_layer_step */
    RVLI_OR_DENSE = 1 << 15,      /* the model may have no experts */
    RVLI_SHARED_AS_ONE = 1 << 16, /* the shared expert has the size of a routed one */
    RVLI_KV_HEADS_AS_HEADS = 1 << 17, /* num_key_value_heads defaults to the heads */
    RVLI_BLOCK_LIST = 1 << 18,  /* layers_block_type, hybrid_override_pattern: one-block layers */
    RVLI_SHARED_KEYS = 1 << 19, /* num_kv_shared_layers: the last layers use keys of earlier ones */
    RVLI_FULL_FIRST = 1 << 20,  /* the first of full_every layers sees all tokens, not the last */
    RVLI_ROTARY_IF_SAID = 1 << 21, /* position_embedding_type: rotary only if it says so */
    RVLI_MLP_WORDS = 1 << 22,      /* only mlp_layer_types says it; else all layers have experts */
    RVLI_DENSE_FIRST = 1 << 25,    /* num_dense_layers */
    RVLI_EXPERT_CHOICE_BIAS = 1 << 26, /* use_expert_bias: the router's bias, true by default */
    RVLI_LFM_SIZES = 1 << 24,          /* block_auto_adjust_ff_dim and related keys */
    RVLI_ATTENTION_NUMBERS = 1 << 23,  /* attn_layer_indices, full_attn_idxs */
    RVLI_READS_HEAD_BIAS = 1 << 27,    /* lm_head_bias */
    RVLI_READS_DROPOUT = 1 << 28,      /* residual_dropout, embedding_dropout */
    RVLI_READS_WIDE_QK_NORM = 1 << 29, /* use_qk_norm: weights for all heads together */
    RVLI_SIZED_LAYERS = 1 << 30,       /* Gemma 4: global_head_dim and related keys */
};

/* Strings are names of keys. NULL: the usual name; or no key, if there is no usual name. */
typedef struct rvli_family {
    const char *type;
    uint64_t features;
    uint32_t reads;
    uint32_t head_dim; /* default; 0: hidden size / heads */
    uint32_t heads;    /* default; 0: the key is required */
    uint32_t kv_heads;
    uint32_t vocabulary;     /* default; 0: the key is required */
    uint32_t window;         /* default size */
    uint32_t full_every;     /* default; N: one layer in N sees all tokens; 0: all do */
    uint32_t state;          /* RVLI_LAYER_* of layers with a state instead of attention */
    const char *experts;     /* NULL: a dense family */
    const char *expert_size; /* an expert's intermediate size */
    const char *chosen;      /* experts per token; NULL: num_experts_per_tok */
    const char *shared;      /* number of shared experts */
    const char *shared_size; /* of all shared experts together */
    const char *dense_size;  /* intermediate size of layers without experts */
    const char *window_key;  /* NULL: sliding_window */
    const char *step_key;    /* key of full_every */
    const char *text_types;  /* values of model_type allowed in text_config, each with a comma */
    const char *tie_key;     /* takes precedence over tie_word_embeddings */
    uint32_t groups;         /* default of n_group; 0: 1 */
    uint32_t rotary_percent; /* default percentage of a head that is rotated; 0: all */
    uint32_t tower;          /* RVLI_TOWER_* in vision_config; 0: none that is known */
} rvli_family;

/* NULL: unknown type. */
const rvli_family *rvli_family_find(const char *type);

#endif
