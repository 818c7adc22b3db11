/* SPDX-License-Identifier: MIT */
/*
 * Which tensors get LoRA adapters, and how large the adapters are.
 *
 * The adapter of a weight with m rows and n columns is two matrices: r rows of n columns, and m
 * rows of r. Where PEFT has a default for a family, it is q and v (peft/utils/constants.py). PEFT's
 * "all-linear" means all linear layers except the head.
 */
#include <string.h>

#include "predict/llm/llm_internal.h"

#define LAYER "model.layers.%L."

bool rvli_has_lora_default(const rvl_model *model)
{
    static const char *const types[] = {"llama", "mistral", "qwen2",       "qwen3",
                                        "gemma", "gemma2",  "gemma3_text", NULL};
    for (size_t i = 0; types[i] != NULL; i++) {
        if (strcmp(model->type, types[i]) == 0)
            return true;
    }
    return false;
}

bool rvli_adapter_of(uint32_t rank, rvl_model_lora_targets targets, const rvli_tensor *tensor,
                     rvli_tensor parts_out[2])
{
    static const char *const patterns[] = {
        LAYER "self_attn.q_proj.weight", LAYER "self_attn.v_proj.weight",
        LAYER "self_attn.k_proj.weight", LAYER "self_attn.o_proj.weight",
        LAYER "mlp.gate_proj.weight",    LAYER "mlp.up_proj.weight",
        LAYER "mlp.down_proj.weight",    LAYER "self_attn.qkv_proj.weight",
        LAYER "mlp.gate_up_proj.weight"};
    size_t count = targets == RVL_MODEL_LORA_PEFT ? 2 : sizeof patterns / sizeof patterns[0];
    for (size_t i = 0; rank > 0 && i < count; i++) {
        if (strcmp(tensor->pattern, patterns[i]) != 0)
            continue;
        parts_out[0] = parts_out[1] = *tensor;
        parts_out[0].rows = rank;
        parts_out[1].columns = rank;
        return true;
    }
    return false;
}
