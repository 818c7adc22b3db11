/* SPDX-License-Identifier: MIT */
/*
 * The families of models, a row each.
 *
 * Where models of one family differ, their configs say how; a row has what they share. Defaults
 * are those of the family's class in transformers, where all published models have them.
 */
#include <string.h>

#include "predict/llm/families.h"

#define NEVER (RVLI_MODEL_LAYERS_MAX + 1)
#define QWEN_EXPERTS .experts = "num_experts", .expert_size = "moe_intermediate_size"
#define LOCAL_EXPERTS .experts = "num_local_experts", .expert_size = "intermediate_size"
#define DEEPSEEK_EXPERTS                                                                           \
    .experts = "n_routed_experts", .expert_size = "moe_intermediate_size",                         \
    .shared = "n_shared_experts"
#define GRANITE_EXPERTS                                                                            \
    LOCAL_EXPERTS, .shared_size = "shared_intermediate_size",                                      \
                   .dense_size = "shared_intermediate_size"
#define DELTA_FEATURES                                                                             \
    RVLI_GQA | RVLI_QK_NORM | RVLI_GATED_Q | RVLI_NORM_IN_FULL | RVLI_JOINED_ROTARY
#define DELTA_NET                                                                                  \
    .state = RVLI_LAYER_DELTA, .full_every = 4, .step_key = "full_attention_interval",             \
    .head_dim = 256, .rotary_percent = 25
#define GEMMA3 RVLI_GQA | RVLI_FOUR_NORMS | RVLI_QK_NORM | RVLI_NORM_IN_FULL | RVLI_SCALED_INPUT
#define GEMMA3_SIZES                                                                               \
    .head_dim = 256, .heads = 8, .kv_heads = 4, .vocabulary = 262208, .window = 4096,              \
    .full_every = 6, .step_key = "sliding_window_pattern"
#define GEMMA3N_SIZES                                                                              \
    .head_dim = 256, .heads = 8, .kv_heads = 2, .vocabulary = 262400, .window = 512, .full_every = 5
#define LLAMA4_SIZES                                                                               \
    .head_dim = 128, .window_key = "attention_chunk_size", .window = 8192, .full_every = 4,        \
    .step_key = "no_rope_layer_interval", LOCAL_EXPERTS, .dense_size = "intermediate_size_mlp"
#define DEEPSEEK (RVLI_DEEPSEEK | RVLI_OR_DENSE)

static const rvli_family families[] = {
    {.type = "llama",
     .features = RVLI_GQA,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_READS_MLP_BIAS | RVLI_KV_HEADS_AS_HEADS},
    {.type = "mistral", .features = RVLI_GQA},
    {.type = "mixtral", .features = RVLI_GQA, LOCAL_EXPERTS},
    {.type = "qwen2", .features = RVLI_GQA | RVLI_QKV_BIAS},
    {.type = "qwen3",
     .features = RVLI_GQA | RVLI_QK_NORM,
     .reads = RVLI_READS_ATTENTION_BIAS,
     .head_dim = 128},
    {.type = "qwen2_moe",
     .features = RVLI_GQA | RVLI_QKV_BIAS | RVLI_SHARED | RVLI_SHARED_GATE,
     .reads = RVLI_SPARSE_STEP,
     QWEN_EXPERTS,
     .shared_size = "shared_expert_intermediate_size"},
    {.type = "qwen3_moe",
     .features = RVLI_GQA | RVLI_QK_NORM,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_SPARSE_STEP,
     QWEN_EXPERTS},
    {.type = "gemma",
     .features = RVLI_GQA | RVLI_NORM_IN_FULL | RVLI_SCALED_INPUT,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TIED_BY_DEFAULT,
     .head_dim = 256},
    {.type = "gemma2",
     .features =
         RVLI_GQA | RVLI_FOUR_NORMS | RVLI_NORM_IN_FULL | RVLI_SCALED_INPUT | RVLI_CAPPED_LOGITS,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TIED_BY_DEFAULT,
     .head_dim = 256,
     .window = 4096,
     .full_every = 2},
    {.type = "gemma3_text",
     .features = GEMMA3,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TIED_BY_DEFAULT,
     GEMMA3_SIZES},
    {.type = "gemma3",
     .features = GEMMA3,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TIED_BY_DEFAULT | RVLI_TEXT_CONFIG,
     GEMMA3_SIZES,
     .text_types = "gemma3_text,",
     .tower = RVLI_TOWER_SIGLIP},
    {.type = "mistral3",
     .features = RVLI_GQA,
     .reads = RVLI_TEXT_CONFIG | RVLI_OUTER_TIE,
     .text_types = "mistral, ministral3,",
     .tower = RVLI_TOWER_PIXTRAL},
    {.type = "qwen2_5_vl",
     .features = RVLI_GQA | RVLI_QKV_BIAS,
     .reads = RVLI_TEXT_CONFIG | RVLI_OR_FLAT,
     .text_types = "qwen2_5_vl_text,",
     .tower = RVLI_TOWER_QWEN25},
    {.type = "deepseek",
     .features = RVLI_GQA,
     .reads = DEEPSEEK | RVLI_READS_ATTENTION_BIAS,
     DEEPSEEK_EXPERTS},
    {.type = "deepseek_v2",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_MLA,
     .reads = DEEPSEEK,
     DEEPSEEK_EXPERTS},
    {.type = "deepseek_v3",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_MLA | RVLI_ROUTER_BIAS,
     .reads = DEEPSEEK,
     DEEPSEEK_EXPERTS},
    {.type = "deepseek_v32",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_MLA | RVLI_ROUTER_BIAS | RVLI_INDEXER,
     .reads = DEEPSEEK,
     DEEPSEEK_EXPERTS},
    /* DeepSeek V3's shape, with sizes of its own. */
    {.type = "kimi_k2",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_MLA | RVLI_ROUTER_BIAS,
     .reads = DEEPSEEK,
     DEEPSEEK_EXPERTS},
    {.type = "kimi_k25",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_MLA | RVLI_ROUTER_BIAS,
     .reads = DEEPSEEK | RVLI_TEXT_CONFIG | RVLI_OUTER_TIE,
     DEEPSEEK_EXPERTS,
     .text_types = "kimi_k2, deepseek_v3,",
     .tower = RVLI_TOWER_KIMI},
    {.type = "mistral4", .features = RVLI_MLA, .reads = DEEPSEEK, DEEPSEEK_EXPERTS},
    {.type = "glm4",
     .features = RVLI_GQA | RVLI_GLM_NORMS | RVLI_FUSED_UP | RVLI_JOINED_ROTARY,
     .reads = RVLI_READS_QKV_BIAS | RVLI_BIASED},
    {.type = "glm4_moe",
     .features =
         RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_JOINED_ROTARY | RVLI_GQA | RVLI_ROUTER_BIAS,
     .reads = DEEPSEEK | RVLI_READS_QKV_BIAS | RVLI_READS_QK_NORM,
     DEEPSEEK_EXPERTS},
    {.type = "glm4_moe_lite",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_MLA | RVLI_ROUTER_BIAS,
     .reads = DEEPSEEK,
     DEEPSEEK_EXPERTS},
    {.type = "glm_moe_dsa",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_MLA | RVLI_ROUTER_BIAS | RVLI_INDEXER,
     .reads = DEEPSEEK,
     DEEPSEEK_EXPERTS},
    {.type = "gpt_oss",
     .features = RVLI_GQA | RVLI_SINKS | RVLI_EXPERT_BIAS | RVLI_NORM_IN_FULL,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_BIASED,
     .head_dim = 64,
     .window = 128,
     .full_every = 2,
     LOCAL_EXPERTS},
    {.type = "qwen3_next",
     .features = DELTA_FEATURES | RVLI_SHARED | RVLI_SHARED_GATE,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_SPARSE_STEP,
     DELTA_NET,
     QWEN_EXPERTS,
     .shared_size = "shared_expert_intermediate_size"},
    {.type = "qwen3_5",
     .features = DELTA_FEATURES | RVLI_SPLIT_DELTA,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TEXT_CONFIG | RVLI_OUTER_TIE,
     DELTA_NET,
     .text_types = "qwen3_5_text,",
     .tower = RVLI_TOWER_QWEN3},
    {.type = "qwen3_5_text",
     .features = DELTA_FEATURES | RVLI_SPLIT_DELTA,
     .reads = RVLI_READS_ATTENTION_BIAS,
     DELTA_NET},
    {.type = "qwen3_5_moe",
     .features = DELTA_FEATURES | RVLI_SPLIT_DELTA | RVLI_SHARED | RVLI_SHARED_GATE,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TEXT_CONFIG | RVLI_OUTER_TIE,
     DELTA_NET,
     QWEN_EXPERTS,
     .shared_size = "shared_expert_intermediate_size",
     .text_types = "qwen3_5_moe_text,",
     .tower = RVLI_TOWER_QWEN3},
    {.type = "qwen3_5_moe_text",
     .features = DELTA_FEATURES | RVLI_SPLIT_DELTA | RVLI_SHARED | RVLI_SHARED_GATE,
     .reads = RVLI_READS_ATTENTION_BIAS,
     DELTA_NET,
     QWEN_EXPERTS,
     .shared_size = "shared_expert_intermediate_size"},
    {.type = "qwen3_vl",
     .features = RVLI_GQA | RVLI_QK_NORM,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TEXT_CONFIG | RVLI_OUTER_TIE,
     .head_dim = 128,
     .text_types = "qwen3_vl_text,",
     .tower = RVLI_TOWER_QWEN3},
    {.type = "qwen3_vl_moe",
     .features = RVLI_GQA | RVLI_QK_NORM,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_SPARSE_STEP | RVLI_TEXT_CONFIG | RVLI_OUTER_TIE,
     .head_dim = 128,
     QWEN_EXPERTS,
     .text_types = "qwen3_vl_moe_text,",
     .tower = RVLI_TOWER_QWEN3},
    {.type = "llama4_text",
     .features = RVLI_GQA | RVLI_SHARED | RVLI_ALL_EXPERTS | RVLI_QK_L2_NORM,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_MOE_LIST | RVLI_SHARED_AS_ONE,
     LLAMA4_SIZES},
    {.type = "llama4",
     .features = RVLI_GQA | RVLI_SHARED | RVLI_ALL_EXPERTS | RVLI_QK_L2_NORM,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_MOE_LIST | RVLI_SHARED_AS_ONE | RVLI_TEXT_CONFIG,
     LLAMA4_SIZES,
     .text_types = "llama4_text,",
     .tower = RVLI_TOWER_LLAMA4},
    {.type = "minimax_m2",
     .features =
         RVLI_FULL_WEIGHTS | RVLI_JOINED_ROTARY | RVLI_GQA | RVLI_WIDE_QK_NORM | RVLI_ROUTER_BIAS,
     LOCAL_EXPERTS},
    {.type = "gemma3n_text",
     .features = GEMMA3 | RVLI_ALTUP | RVLI_CAPPED_LOGITS,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_TIED_BY_DEFAULT | RVLI_SHARED_KEYS,
     GEMMA3N_SIZES},
    {.type = "gemma3n",
     .features = GEMMA3 | RVLI_ALTUP | RVLI_CAPPED_LOGITS,
     .reads =
         RVLI_READS_ATTENTION_BIAS | RVLI_TIED_BY_DEFAULT | RVLI_SHARED_KEYS | RVLI_TEXT_CONFIG,
     GEMMA3N_SIZES,
     .text_types = "gemma3n_text,"},
    {.type = "olmo2",
     .features = RVLI_GQA | RVLI_WIDE_QK_NORM | RVLI_NORMS_BEHIND | RVLI_NORM_IN_FULL,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_KV_HEADS_AS_HEADS},
    {.type = "olmo3",
     .features = RVLI_GQA | RVLI_WIDE_QK_NORM | RVLI_NORMS_BEHIND | RVLI_NORM_IN_FULL,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_KV_HEADS_AS_HEADS,
     .window = 4096,
     .full_every = 4},
    {.type = "olmoe",
     .features = RVLI_GQA | RVLI_WIDE_QK_NORM,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_KV_HEADS_AS_HEADS,
     .experts = "num_experts",
     .expert_size = "intermediate_size"},
    {.type = "phi3",
     .features = RVLI_GQA | RVLI_FUSED_QKV | RVLI_FUSED_UP | RVLI_JOINED_ROTARY,
     .reads = RVLI_KV_HEADS_AS_HEADS},
    {.type = "nemotron_h",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_GQA | RVLI_ONE_NORM | RVLI_NO_GATE |
                 RVLI_ROUTER_BIAS | RVLI_NO_ROTARY,
     .reads = RVLI_BLOCK_LIST,
     .state = RVLI_LAYER_MAMBA,
     .head_dim = 128,
     .experts = "n_routed_experts",
     .expert_size = "moe_intermediate_size",
     .shared_size = "moe_shared_expert_intermediate_size"},
    {.type = "granite",
     .features = RVLI_GQA | RVLI_SCALED_INPUT | RVLI_NUMBERS,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_READS_MLP_BIAS | RVLI_KV_HEADS_AS_HEADS},
    {.type = "granitemoe",
     .features = RVLI_GQA | RVLI_SCALED_INPUT | RVLI_NUMBERS,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_KV_HEADS_AS_HEADS,
     LOCAL_EXPERTS},
    {.type = "granitemoeshared",
     .features = RVLI_GQA | RVLI_FUSED_UP | RVLI_SCALED_INPUT | RVLI_NUMBERS,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_KV_HEADS_AS_HEADS,
     GRANITE_EXPERTS},
    {.type = "granitemoehybrid",
     .features = RVLI_GQA | RVLI_FUSED_UP | RVLI_SCALED_INPUT | RVLI_NUMBERS,
     .reads =
         RVLI_READS_ATTENTION_BIAS | RVLI_KV_HEADS_AS_HEADS | RVLI_OR_DENSE | RVLI_ROTARY_IF_SAID,
     .state = RVLI_LAYER_MAMBA,
     .full_every = NEVER,
     GRANITE_EXPERTS},
    {.type = "seed_oss",
     .features = RVLI_GQA,
     .reads = RVLI_READS_QKV_BIAS | RVLI_READS_OUT_BIAS | RVLI_READS_MLP_BIAS | RVLI_BIASED,
     .head_dim = 128},
    {.type = "smollm3",
     .features = RVLI_GQA,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_READS_MLP_BIAS | RVLI_TIED_BY_DEFAULT},
    {.type = "ministral", .features = RVLI_GQA},
    {.type = "ministral3", .features = RVLI_GQA},
    {.type = "exaone4",
     .features = RVLI_GQA | RVLI_QK_NORM | RVLI_NORMS_BEHIND,
     .window = 4096,
     .full_every = 4,
     .step_key = "sliding_window_pattern"},
    {.type = "ernie4_5",
     .features = RVLI_GQA,
     .reads = RVLI_READS_USE_BIAS | RVLI_TIED_BY_DEFAULT,
     .head_dim = 128},
    {.type = "ernie4_5_moe",
     .features = RVLI_FULL_ROUTER | RVLI_GQA | RVLI_ROUTER_BIAS | RVLI_SHARED_FIRST,
     .reads = RVLI_READS_USE_BIAS | RVLI_TIED_BY_DEFAULT | RVLI_ERNIE_LAYERS,
     .experts = "moe_num_experts",
     .expert_size = "moe_intermediate_size",
     .chosen = "moe_k",
     .shared = "moe_num_shared_experts"},
    {.type = "hunyuan_v1_dense",
     .features = RVLI_GQA | RVLI_QK_NORM | RVLI_QK_NORM_BEHIND,
     .reads = RVLI_READS_ATTENTION_BIAS},
    {.type = "hunyuan_v1_moe",
     .features = RVLI_FULL_ROUTER | RVLI_FULL_WEIGHTS | RVLI_GQA | RVLI_QK_NORM |
                 RVLI_QK_NORM_BEHIND | RVLI_SHARED | RVLI_SHARED_FIRST,
     .reads = RVLI_READS_ATTENTION_BIAS | RVLI_SHARED_AS_ONE,
     .experts = "num_experts",
     .expert_size = "intermediate_size",
     .chosen = "moe_topk"},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

const char *rvl_model_family(size_t index)
{
    return index < FAMILY_COUNT ? families[index].type : NULL;
}

const rvli_family *rvli_family_find(const char *type)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(type, families[i].type) == 0)
            return &families[i];
    }
    return NULL;
}
