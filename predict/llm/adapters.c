/* SPDX-License-Identifier: MIT */
/*
 * Which tensors get LoRA adapters, and how large the adapters are.
 *
 * The adapter of a weight with m rows and n columns is two matrices: r rows of n columns, and m
 * rows of r. Where PEFT has a default for a family, it is q and v (peft/utils/constants.py). PEFT's
 * "all-linear" means every nn.Linear except the head. Experts are parameters, and so are routers,
 * except Gemma 4's. PEFT adapts them in some families.
 */
#include <string.h>

#include "predict/llm/llm_internal.h"

#define LAYER "model.layers.%L."

static bool is_among(const rvl_model *model, const char *const *types)
{
    for (; *types != NULL; types++) {
        if (strcmp(model->type, *types) == 0)
            return true;
    }
    return false;
}

bool rvli_has_lora_default(const rvl_model *model)
{
    static const char *const types[] = {"llama", "mistral", "qwen2",       "qwen3",
                                        "gemma", "gemma2",  "gemma3_text", NULL};
    return is_among(model, types);
}

rvli_lora_rule rvli_all_linear_rule(const rvl_model *model)
{
    /* peft/tuners/tuners_utils.py, _check_lora_target_modules_mamba() */
    static const char *const refused[] = {"falcon_h1", "nemotron_h", NULL};
    /* Routers that are subclasses of nn.Linear and return two tensors. */
    static const char *const fails[] = {"llama4", "llama4_text", "phimoe", NULL};
    /* Classes that are not transformers' own. */
    static const char *const unknown[] = {"deepseek", "kimi_k2", "kimi_k25", NULL};
    /* transformers/conversion_mapping.py, with peft/utils/transformers_weight_conversion.py */
    static const char *const parameters[] = {
        "deepseek_v2", "deepseek_v3",   "deepseek_v32",   "dots1",      "ernie4_5_moe",
        "exaone_moe",  "flex_olmo",     "glm4_moe",       "glm4v_moe",  "glm4v_moe_text",
        "glm_moe_dsa", "glm4_moe_lite", "hunyuan_v1_moe", "mellum",     "minimax_m2",
        "mixtral",     "olmoe",         "qwen3_moe",      "qwen3_next", "solar_open",
        NULL};
    static const struct {
        const char *const *types;
        rvli_lora_rule rule;
    } rules[] = {{refused, RVLI_LORA_REFUSED},
                 {fails, RVLI_LORA_FAILS},
                 {unknown, RVLI_LORA_UNKNOWN},
                 {parameters, RVLI_LORA_PARAMETERS}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (is_among(model, rules[i].types))
            return rules[i].rule;
    }
    return RVLI_LORA_LINEAR;
}

static bool is_q_or_v(const rvli_tensor *tensor)
{
    return strcmp(tensor->pattern, LAYER "self_attn.q_proj.weight") == 0 ||
           strcmp(tensor->pattern, LAYER "self_attn.v_proj.weight") == 0;
}

static bool has_part(const rvli_tensor *tensor, const char *const *parts)
{
    for (; *parts != NULL; parts++) {
        if (strstr(tensor->pattern, *parts) != NULL)
            return true;
    }
    return false;
}

static bool is_router(const rvli_tensor *tensor)
{
    return strcmp(tensor->pattern, LAYER "mlp.gate.weight") == 0;
}

bool rvli_is_linear(const rvl_model *model, const rvli_tensor *tensor)
{
    static const char *const others[] = {"embed_tokens", "lm_head",       ".conv.conv.",
                                         ".conv1d.",     ".mlp.experts.", NULL};
    static const char *const routers[] = {"hunyuan_v1_moe", NULL}; /* of type nn.Linear */
    if (tensor->columns == 1 || has_part(tensor, others))
        return false;
    return !is_router(tensor) || is_among(model, routers) ||
           (model->features & RVLI_LAYER_SCALE) != 0;
}

/* PEFT takes the names of an MLP's layers for those of experts, and adapts no MLP. */
static bool is_adapted_beside_experts(const rvl_model *model, const rvli_tensor *tensor)
{
    static const char *const mlp[] = {"gate_proj.", "up_proj.", "down_proj.", NULL};
    if (has_part(tensor, mlp))
        return tensor->stack > 1;
    return is_router(tensor) || rvli_is_linear(model, tensor);
}

static bool is_adapted(const rvl_model *model, rvl_model_lora_targets targets,
                       const rvli_tensor *tensor)
{
    if (targets == RVL_MODEL_LORA_PEFT)
        return is_q_or_v(tensor);
    return rvli_all_linear_rule(model) == RVLI_LORA_PARAMETERS
               ? is_adapted_beside_experts(model, tensor)
               : rvli_is_linear(model, tensor);
}

/* Each expert has an adapter of the rank, and of twice the rank where gate and up are one
 * parameter. */
static uint64_t stacked_rank(const rvli_tensor *tensor, uint32_t rank)
{
    bool is_down = strstr(tensor->pattern, "down_proj.") != NULL;
    return tensor->stack > 1 ? tensor->stack * rank * (is_down ? 1 : 2) : rank;
}

bool rvli_adapter_of(const rvl_model *model, uint32_t rank, rvl_model_lora_targets targets,
                     const rvli_tensor *tensor, rvli_tensor parts_out[2])
{
    if (rank == 0 || !is_adapted(model, targets, tensor))
        return false;
    parts_out[0] = parts_out[1] = *tensor;
    parts_out[0].rows = stacked_rank(tensor, rank);
    parts_out[1].columns = stacked_rank(tensor, rank);
    parts_out[0].stack = parts_out[1].stack = 1;
    return true;
}
