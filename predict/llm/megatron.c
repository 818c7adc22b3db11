/* SPDX-License-Identifier: MIT */
/*
 * Refuses what Megatron refuses (megatron/core/transformer/transformer_config.py,
 * model_parallel_config.py, parallel_state.py), and what the program of its step does not support.
 */
#include <string.h>

#include "predict/llm/llm_internal.h"

static rvl_status refuse(const char *key, const char *why)
{
    return rvli_model_fail(RVL_ERR_INVALID, key, "%s", why);
}

static rvl_status check_division(uint64_t size, uint64_t by, const char *key, const char *what,
                                 const char *remedy)
{
    if (size % by == 0)
        return RVL_OK;
    return rvli_model_fail(RVL_ERR_INVALID, key, "%llu does not divide %s, %llu: %s",
                           (unsigned long long)by, what, (unsigned long long)size, remedy);
}

/* Returns from the calling function if the call fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        rvl_status try_status = (call);                                                            \
        if (try_status != RVL_OK)                                                                  \
            return try_status;                                                                     \
    } while (0)

static bool is_known(const rvl_model *model)
{
    static const char *const families[] = {"llama", "mistral", "mixtral",
                                           "qwen2", "qwen3",   "qwen3_moe"};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(model->type, families[i]) == 0)
            return true;
    }
    return false;
}

static rvl_status check_settings(const rvl_model *m, const rvl_model_options *o)
{
    if (!is_known(m))
        return refuse("train", "a Megatron step is worked out for llama, mistral, mixtral, qwen2, "
                               "qwen3 and qwen3_moe: say fsdp:N or ddp");
    if (o->optimizer != RVL_MODEL_ADAMW)
        return refuse("optimizer", "Megatron's distributed optimizer is worked out for adamw, "
                                   "with states and main weights in fp32: leave it out");
    if (o->train_vpp > 1 && o->train_pp == 1)
        return refuse("train-vpp", "interleaves parts of pipeline stages, and there is one stage: "
                                   "say 'train-pp', or leave it out");
    if (o->train_stage >= o->train_pp)
        return refuse("train-stage",
                      "there is no such stage: the first is 0, the last train-pp - 1");
    if ((o->flags & RVL_MODEL_SEQUENCE_PARALLEL) && o->train_tp == 1)
        return refuse("sequence-parallel",
                      "splits the sequence over 'train-tp', which is 1: leave it out");
    if ((o->flags & RVL_MODEL_SELECTIVE) && (o->flags & RVL_MODEL_RECOMPUTE))
        return refuse("recompute-attention", "is part of 'recompute': leave one of them out");
    return RVL_OK;
}

static rvl_status check_experts(const rvl_model *m, const rvl_model_options *o)
{
    if (m->experts == 0 && o->train_ep > 1)
        return refuse("train-ep", "this model has no experts: leave it out");
    if (m->experts == 0 && (o->flags & RVL_MODEL_GROUPED_GEMM))
        return refuse("moe-grouped-gemm", "this model has no experts: leave it out");
    if ((o->flags & RVL_MODEL_LEGACY_GROUPED_GEMM) && (o->flags & RVL_MODEL_GROUPED_GEMM) == 0)
        return refuse("moe-use-legacy-grouped-gemm",
                      "is a way of 'moe-grouped-gemm': say that too, or leave it out");
    if (m->experts == 0)
        return RVL_OK;
    if (o->train_tp > 1 && (o->flags & RVL_MODEL_SEQUENCE_PARALLEL) == 0)
        return refuse("sequence-parallel",
                      "Megatron trains experts with 'train-tp' above 1 only with it: say it");
    TRY(check_division(m->experts, o->train_ep, "train-ep", "the number of experts",
                       "choose another"));
    return check_division(o->train_ranks / o->train_pp, o->train_ep, "train-ep",
                          "the ranks of a pipeline stage", "choose another");
}

static rvl_status check_sizes(const rvl_model *m, const rvl_model_options *o)
{
    static const char another[] = "choose another";
    uint64_t split = (uint64_t)o->train_tp * o->train_pp * o->train_cp;
    TRY(check_division(o->train_ranks, split, "train",
                       "the ranks of Megatron (it is train-tp x train-pp x train-cp)",
                       "say 'train' megatron:N with a multiple of it"));
    TRY(check_division(m->heads, o->train_tp, "train-tp", "num_attention_heads", another));
    TRY(check_division(m->kv_heads, o->train_tp, "train-tp", "num_key_value_heads", another));
    if (rvli_has_layers(m, RVLI_LAYER_DENSE))
        TRY(check_division(m->dim[RVLI_DIM_INTERMEDIATE], o->train_tp, "train-tp",
                           "intermediate_size", another));
    TRY(check_division(m->layers, o->train_pp, "train-pp", "num_hidden_layers", another));
    if (o->train_vpp > 1) {
        TRY(check_division(m->layers / o->train_pp, o->train_vpp, "train-vpp",
                           "the layers of a stage", another));
        TRY(check_division(
            o->accumulate, o->train_pp, "accumulate",
            "the micro-batches of a step (train-pp of them go through a part in turn)",
            "choose a multiple of train-pp"));
    }
    if (o->train_cp > 1)
        TRY(check_division(o->seq_len, 2 * (uint64_t)o->train_cp, "seq-len",
                           "the sequence (twice train-cp parts balance a causal mask)",
                           "choose another"));
    if (o->flags & RVL_MODEL_SEQUENCE_PARALLEL)
        TRY(check_division(o->seq_len / o->train_cp, o->train_tp, "seq-len",
                           "the sequence of a rank, which 'sequence-parallel' splits",
                           "choose another"));
    return check_experts(m, o);
}

rvl_status rvli_plan_check_megatron(const rvl_model *model, const rvl_model_options *o)
{
    if (o->train != RVL_MODEL_TRAIN_MEGATRON)
        return RVL_OK;
    TRY(check_settings(model, o));
    return check_sizes(model, o);
}
