/* SPDX-License-Identifier: MIT */
/*
 * Fills in the defaults of options, and refuses everything that a step cannot handle. What a
 * setting needs of other settings, whatever the model, is in the table of settings.c.
 */
#include <string.h>

#include "base/options.h"
#include "predict/llm/llm_internal.h"

#define VOCABULARY_PADDING 64
#define TOKENS_MAX (1u << 24)
#define DELTA_CHUNKS_MAX (1u << 20)
#define CONTEXT_PARTS_MAX 65536 /* the program runs each part */
#define DEFAULT_CHUNKS 8

static rvl_status refuse(const char *key, const char *why)
{
    return rvli_model_fail(RVL_ERR_INVALID, key, "%s", why);
}

static void fill_defaults(const rvl_model *model, rvl_model_options *o)
{
    rvli_model_settings_fill(o);
    if (o->device == NULL)
        o->device = "h200";
    if (o->train_ranks == 0)
        o->train_ranks = 1;
    if (o->loss == RVL_MODEL_LOSS_CHUNKED && o->loss_chunks == 0)
        o->loss_chunks = DEFAULT_CHUNKS;
    if (o->name == NULL)
        o->name = model->type;
    if (o->weights_dtype == RVL_MODEL_DTYPE_AUTO)
        o->weights_dtype = model->weights_dtype;
    if (o->kv_dtype == RVL_MODEL_DTYPE_AUTO)
        o->kv_dtype = model->kv_dtype;
}

static rvl_status check_values(const rvl_model_options *o)
{
    if (o->micro_batch > TOKENS_MAX / o->seq_len)
        return refuse("seq-len", "a micro-batch of more than 16777216 tokens: lower it, "
                                 "or 'micro-batch'");
    if (rvli_is_mixed(o->flags) && o->optimizer != RVL_MODEL_ADAMW &&
        o->optimizer != RVL_MODEL_SGD_MOMENTUM)
        return refuse("mixed-precision", "its states are in fp32, as its shards: say 'optimizer' "
                                         "adamw or sgd-momentum");
    if (o->loss_chunks != 0 && o->loss != RVL_MODEL_LOSS_CHUNKED)
        return refuse("loss", "a number of chunks goes with chunked: say 'loss' chunked:N");
    if (o->pp_rank >= o->pp)
        return refuse("pp-rank", "there is no such stage: the first is 0, the last pp - 1");
    if (o->train == RVL_MODEL_TRAIN_NONE && o->strategy == RVL_MODEL_V1)
        return refuse(
            "strategy",
            "v1 ends the engine for a trainer: name one with 'train', or another strategy");
    if (o->use == RVL_MODEL_USE_FINE_TUNE) /* no engine */
        return RVL_OK;
    if (o->weights_dtype == RVL_MODEL_DTYPE_AUTO)
        return refuse("quantization_config",
                      "weights of a method or setting that is not known (docs/model.md lists "
                      "those that are): say what the engine's weights are with 'weights-dtype'");
    if (o->kv_dtype == RVL_MODEL_DTYPE_AUTO)
        return refuse("quantization_config",
                      "a kv_cache_scheme that is not known (8 bits of type float is): say what the "
                      "cache is with 'kv-dtype'");
    return RVL_OK;
}

/* Checks offloading to the host. */
static rvl_status check_host(const rvl_model_options *o)
{
    if ((o->flags & RVL_MODEL_CPU_OFFLOAD) && o->optimizer == RVL_MODEL_ADAMW_8BIT)
        return refuse("cpu-offload", "the optimizer then runs on the host, which adamw-8bit is not "
                                     "predicted for: say another 'optimizer'");
    if ((o->flags & RVL_MODEL_OFFLOAD) && o->loss != RVL_MODEL_LOSS_PLAIN)
        return refuse("offload-activations",
                      "is predicted with all logits at once: say 'loss' plain, or leave it out");
    return RVL_OK;
}

static rvl_status check_base(const rvl_model_options *o)
{
    if (o->base_dtype == RVL_MODEL_BASE_BF16 || (o->flags & RVL_MODEL_CPU_OFFLOAD) == 0)
        return RVL_OK;
    return refuse("cpu-offload", "is not predicted for weights of 4 bits: leave it out, or "
                                 "'base-dtype'");
}

/* PyTorch's context_parallel() with FSDP2: each rank has a part of every sequence. */
static rvl_status check_context(const rvl_model *m, const rvl_model_options *o)
{
    static const char key[] = "train-cp";
    const uint64_t parts = 2 * (uint64_t)o->train_cp;
    if (o->train != RVL_MODEL_TRAIN_FSDP || o->train_cp <= 1)
        return RVL_OK;
    if (o->train_ranks % o->train_cp != 0)
        return refuse(key, "does not divide the ranks of 'train' fsdp:N: choose another");
    if (o->seq_len % parts != 0)
        return refuse("seq-len", "a causal mask is balanced by twice 'train-cp' parts of each "
                                 "sequence: choose a multiple of it");
    if ((uint64_t)o->train_cp * m->layers > CONTEXT_PARTS_MAX)
        return refuse(key, "is predicted for at most 65536 parts of all layers together: choose "
                           "fewer");
    if ((m->features & (RVLI_SINKS | RVLI_INDEXER)) != 0)
        return refuse(key, "fails in transformers for sinks and indexers, which attend to tokens "
                           "by plain operations: leave it out");
    if (o->attention == RVL_MODEL_ATTENTION_MATH || o->attention == RVL_MODEL_ATTENTION_EFFICIENT)
        return refuse("attention", "math fails in PyTorch beside 'train-cp', and efficient is not "
                                   "predicted there: choose cudnn or flash");
    return RVL_OK;
}

/* Checks modules in fp32 beside weights of four bits. */
static rvl_status check_prepared(const rvl_model *m, const rvl_model_options *o)
{
    static const char key[] = "prepare-kbit";
    if ((o->flags & RVL_MODEL_PREPARE_KBIT) == 0)
        return RVL_OK;
    if (o->base_dtype == RVL_MODEL_BASE_BF16)
        return refuse(key, "is predicted beside weights of 4 bits: say 'base-dtype' nf4 too");
    if ((o->flags & RVL_MODEL_AUTOCAST) == 0)
        return refuse(key, "leaves layers that compute in fp32, which is predicted in autocast "
                           "alone: say 'autocast' too");
    if ((m->features & (RVLI_SINKS | RVLI_INDEXER | RVLI_ALTUP)) != 0)
        return refuse(key, "is not predicted for sinks and indexers, and Gemma 3n fails in 4 bits: "
                           "leave it out");
    if (o->loss != RVL_MODEL_LOSS_PLAIN || o->attention == RVL_MODEL_ATTENTION_MATH ||
        (o->flags & RVL_MODEL_OFFLOAD))
        return refuse(key, "is not predicted with 'loss', 'attention' math and "
                           "'offload-activations': leave them out");
    return RVL_OK;
}

/* Checks the type of adapters, and the type that they compute in. */
static rvl_status check_adapters(const rvl_model_options *o)
{
    bool bf16 = (o->flags & RVL_MODEL_BF16_ADAPTERS) != 0;
    bool master = rvli_optimizer_kinds[o->optimizer].master;
    if (bf16 && master)
        return refuse("adapter-dtype", "adapters in bf16 have no weights in fp32 beside them: "
                                       "say 'optimizer' adamw-bf16, one of bitsandbytes' "
                                       "(adamw-8bit, paged-adamw-8bit, paged-adamw-32bit) or sgd");
    if (!bf16 && o->optimizer == RVL_MODEL_ADAMW_BF16)
        return refuse("lora", "adapters are in fp32, and so are their states: say 'optimizer' "
                              "another one, or 'adapter-dtype' bf16");
    if ((o->flags & RVL_MODEL_AUTOCAST) == 0)
        return RVL_OK;
    if (o->base_dtype == RVL_MODEL_BASE_BF16)
        return refuse("autocast", "is predicted beside weights of 4 bits: say 'base-dtype' nf4 "
                                  "too, or leave it out");
    if (bf16 && (o->flags & RVL_MODEL_PREPARE_KBIT) == 0)
        return refuse("autocast", "changes nothing where adapters and all else are in bf16: "
                                  "leave it out");
    return RVL_OK;
}

/* Checks adapters of all linear layers against the family. */
static rvl_status check_all_linear(const rvl_model *m)
{
    static const char key[] = "lora-targets";
    switch (rvli_all_linear_rule(m)) {
    case RVLI_LORA_REFUSED:
        return refuse(key, "PEFT refuses all-linear for this family, since its Mamba kernels would "
                           "not run the adapters: leave out 'lora'");
    case RVLI_LORA_FAILS:
        return refuse(key, "PEFT's all-linear adapts this family's router, and the forward pass "
                           "then fails: leave out 'lora'");
    case RVLI_LORA_UNKNOWN:
        return refuse(key, "what PEFT's all-linear adapts beside this family's experts is not "
                           "known: leave out 'lora'");
    case RVLI_LORA_LINEAR:
    case RVLI_LORA_PARAMETERS:
        break;
    }
    return RVL_OK;
}

static rvl_status check_lora(const rvl_model *m, const rvl_model_options *o)
{
    if (o->lora_rank == 0)
        return RVL_OK;
    if (o->lora_targets == RVL_MODEL_LORA_ALL_LINEAR) {
        rvl_status status = check_all_linear(m);
        if (status != RVL_OK)
            return status;
    }
    if (o->lora_targets == RVL_MODEL_LORA_PEFT && !rvli_has_lora_default(m))
        return refuse("lora-targets", "PEFT has no default for this family, and refuses it, too: "
                                      "say 'lora-targets' all-linear");
    if (rvli_is_mixed(o->flags) || (o->flags & RVL_MODEL_REDUCE_FP32))
        return refuse("lora", "adapters are reduced in their own type: leave out "
                              "'mixed-precision' and 'reduce-fp32'");
    return check_adapters(o);
}

/* The program runs each chunk of the delta rule in each layer. */
static rvl_status check_chunks(const rvl_model *m, const rvl_model_options *o)
{
    uint64_t chunks = (o->seq_len + RVLI_DELTA_CHUNK - 1) / RVLI_DELTA_CHUNK, layers = 0;
    for (uint32_t layer = 0; layer < m->layers; layer++)
        layers += rvli_layer_is(m, layer, RVLI_LAYER_DELTA);
    if (o->train != RVL_MODEL_TRAIN_NONE && chunks * layers > DELTA_CHUNKS_MAX)
        return refuse("seq-len", "the delta rule's loop over chunks of 64 tokens is predicted for "
                                 "at most 1048576 chunks of all layers: use shorter sequences");
    return RVL_OK;
}

/* Checks Gemma 4. */
static rvl_status check_sized(const rvl_model_options *o)
{
    if (o->attention == RVL_MODEL_ATTENTION_FLASH)
        return refuse("attention", "flash has no kernel for heads of more than 256 elements, as "
                                   "Gemma 4 has: leave it out");
    if (o->attention == RVL_MODEL_ATTENTION_CUDNN || o->attention == RVL_MODEL_ATTENTION_EFFICIENT)
        return refuse("attention", "is not known for Gemma 4, of which wide heads have one kernel "
                                   "(docs/model.md): leave it out");
    return RVL_OK;
}

static rvl_status check_gemma(const rvl_model *m, const rvl_model_options *o)
{
    return (m->features & RVLI_LAYER_SCALE) != 0 ? check_sized(o) : RVL_OK;
}

/* Only bitsandbytes' managed memory is known. */
static rvl_status check_paged(const rvl_model_options *o)
{
    bool sharded = o->train == RVL_MODEL_TRAIN_FSDP || o->train == RVL_MODEL_TRAIN_MEGATRON;
    if (!sharded || !rvli_optimizer_kinds[o->optimizer].paged)
        return RVL_OK;
    return refuse("optimizer", "bitsandbytes' paged optimizers refuse sharded parameters: say "
                               "'train' ddp or plain, or another optimizer");
}

/* Checks the trainer's settings against the family. */
static rvl_status check_trainer(const rvl_model *m, const rvl_model_options *o)
{
    if (o->attention == RVL_MODEL_ATTENTION_FLASH && (m->features & RVLI_MLA))
        return refuse("attention", "flash has no kernel for latent attention, which has wider keys "
                                   "than values: leave it out");
    if (o->attention != RVL_MODEL_ATTENTION_AUTO && o->attention != RVL_MODEL_ATTENTION_MATH &&
        (m->features & RVLI_MLA))
        return refuse("attention", "is not known for latent attention, which is predicted as "
                                   "cuDNN does it (docs/model.md): leave it out");
    if (o->attention != RVL_MODEL_ATTENTION_AUTO && (m->features & RVLI_SINKS))
        return refuse("attention", "changes nothing for heads with sinks, for which PyTorch has "
                                   "plain operations alone (docs/model.md): leave it out");
    if (o->attention == RVL_MODEL_ATTENTION_EFFICIENT && m->kv_heads != m->heads)
        return refuse("attention",
                      "efficient has no kernels for heads of q that share k and v, as this "
                      "model's do: choose cudnn, flash or math");
    rvl_status status = check_gemma(m, o);
    if (status == RVL_OK)
        status = check_paged(o);
    if (status == RVL_OK)
        status = check_context(m, o);
    if (status == RVL_OK)
        status = check_lora(m, o);
    if (status == RVL_OK)
        status = check_chunks(m, o);
    if (status == RVL_OK)
        status = check_base(o);
    if (status == RVL_OK)
        status = check_prepared(m, o);
    return status == RVL_OK ? check_host(o) : status;
}

/*
 * The attention that PyTorch tries first
 * (torch/aten/src/ATen/native/transformers/cuda/sdp_utils.cpp): cuDNN on devices of compute
 * capability 9.0 and 10.0. A device given only by its size counts as an H200.
 */
static rvl_model_attention first_attention(const rvl_profile *device)
{
    static const char *const with_cudnn[] = {"h200", "h100", "b200"};
    if (device->name == NULL)
        return RVL_MODEL_ATTENTION_CUDNN;
    for (size_t i = 0; i < sizeof with_cudnn / sizeof with_cudnn[0]; i++) {
        if (strncmp(device->name, with_cudnn[i], strlen(with_cudnn[i])) == 0)
            return RVL_MODEL_ATTENTION_CUDNN;
    }
    return RVL_MODEL_ATTENTION_FLASH;
}

static rvl_status check_division(uint64_t size, uint64_t ranks, const char *key, const char *by)
{
    if (size % ranks == 0)
        return RVL_OK;
    return rvli_model_fail(RVL_ERR_INVALID, key,
                           "%llu does not divide by %s = %llu: choose another %s",
                           (unsigned long long)size, by, (unsigned long long)ranks, by);
}

/* Returns from the calling function if the call fails. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        rvl_status try_status = (call);                                                            \
        if (try_status != RVL_OK)                                                                  \
            return try_status;                                                                     \
    } while (0)

static rvl_status check_experts(const rvl_model *m, const rvl_model_options *o)
{
    if (m->experts == 0 && o->ep > 1)
        return refuse("ep", "this model has no experts: leave it out");
    if (o->tp % o->ep != 0)
        return refuse("ep", "experts are dealt out within tp: choose one that divides tp");
    if (m->experts == 0)
        return RVL_OK;
    uint64_t rest = o->tp / o->ep;
    TRY(check_division(m->experts, o->ep, "number of experts", "ep"));
    TRY(check_division(m->dim[RVLI_DIM_EXPERT_INTERMEDIATE], rest, "size of an expert", "tp / ep"));
    return check_division(m->dim[RVLI_DIM_SHARED_INTERMEDIATE], o->tp, "size of the shared experts",
                          "tp");
}

/* tp divides the heads of layers with a state like those of attention. */
static rvl_status check_states(const rvl_model *m, const rvl_model_options *o)
{
    if (rvli_has_layers(m, RVLI_LAYER_DELTA)) {
        TRY(check_division(m->delta_key_heads, o->tp, "linear_num_key_heads", "tp"));
        TRY(check_division(m->dim[RVLI_DIM_DELTA_HEADS], o->tp, "linear_num_value_heads", "tp"));
    }
    if (rvli_has_layers(m, RVLI_LAYER_CONV))
        TRY(check_division(m->dim[RVLI_DIM_HIDDEN], o->tp, "hidden_size", "tp"));
    if (!rvli_has_layers(m, RVLI_LAYER_MAMBA))
        return RVL_OK;
    if (o->tp % m->mamba_groups != 0)
        TRY(check_division(m->mamba_groups, o->tp, "number of Mamba groups", "tp"));
    return check_division(m->dim[RVLI_DIM_MAMBA_HEADS], o->tp, "number of Mamba heads", "tp");
}

/* Leftover layers go to the stages just before the last, one each. The last stage has the head. */
void rvli_plan_set_stage(const rvl_model *model, uint32_t stage, rvli_plan *plan)
{
    uint32_t stages = plan->options.pp, least = model->layers / stages;
    uint32_t over = model->layers % stages, first_larger = stages - 1 - over;
    uint32_t larger_before = stage > first_larger ? stage - first_larger : 0;
    if (larger_before > over)
        larger_before = over;
    bool larger = stage >= first_larger && stage < stages - 1;
    plan->first_layer = stage * least + larger_before;
    plan->layer_count = least + (larger && over > 0);
}

static rvl_status split(const rvl_model *m, rvli_plan *plan)
{
    const rvl_model_options *o = &plan->options;
    uint64_t padded = rvli_round_up(m->dim[RVLI_DIM_VOCABULARY], VOCABULARY_PADDING);
    TRY(check_division(m->heads, o->tp, "num_attention_heads", "tp"));
    if (o->tp % m->kv_heads != 0)
        TRY(check_division(m->kv_heads, o->tp, "num_key_value_heads", "tp"));
    if (m->wide_kv_heads > 0 && o->tp % m->wide_kv_heads != 0)
        TRY(check_division(m->wide_kv_heads, o->tp, "num_global_key_value_heads", "tp"));
    if (rvli_has_layers(m, RVLI_LAYER_DENSE))
        TRY(check_division(m->dim[RVLI_DIM_INTERMEDIATE], o->tp, "intermediate_size", "tp"));
    TRY(check_division(padded, o->tp, "vocab_size, padded to 64,", "tp"));
    if (o->pp > m->layers)
        return refuse("pp", "more stages than the model has layers: lower it");
    TRY(check_experts(m, o));
    TRY(check_states(m, o));
    plan->mamba_groups = m->mamba_groups > o->tp ? m->mamba_groups / o->tp : 1;
    plan->vocabulary_rows = padded / o->tp;
    rvli_plan_set_stage(m, o->pp_rank, plan);
    return RVL_OK;
}

static rvl_status check_nccl(const rvl_model *model, const rvl_model_options *o)
{
    bool any = rvli_plan_nccl_bytes(rvli_nccl_of_engine(o)) > 0 ||
               rvli_plan_nccl_bytes(rvli_nccl_of_trainer(model, o)) > 0;
    if ((o->flags & RVL_MODEL_NCCL) == 0 || any)
        return RVL_OK;
    return refuse("nccl", "nothing communicates: engine and trainer have one rank each; leave "
                          "it out");
}

rvl_status rvli_plan_make(const rvl_model *model, const rvl_model_options *options,
                          rvli_plan *plan_out)
{
    *plan_out = (rvli_plan){.device = {.struct_size = sizeof plan_out->device}};
    TRY(rvli_options_read(&plan_out->options, sizeof plan_out->options, options));
    TRY(rvli_flags_check(plan_out->options.flags, rvli_model_settings_flags() | RVL_MODEL_SEGMENTS,
                         plan_out->options.reserved));
    fill_defaults(model, &plan_out->options);
    TRY(rvli_model_settings_check(&plan_out->options));
    TRY(check_values(&plan_out->options));
    TRY(rvli_plan_check_megatron(model, &plan_out->options));
    TRY(check_nccl(model, &plan_out->options));
    plan_out->as_config = plan_out->options.weights_dtype == model->weights_dtype;
    plan_out->scales =
        plan_out->as_config ? model->scales : rvli_scales_of(plan_out->options.weights_dtype);
    rvl_status status = rvl_profile_load(plan_out->options.device, &plan_out->device);
    if (status == RVL_ERR_NOT_FOUND)
        return refuse("device", "neither a size nor a profile that `reveille devices` lists");
    if (status != RVL_OK)
        return status;
    TRY(check_trainer(model, &plan_out->options));
    if (plan_out->options.attention == RVL_MODEL_ATTENTION_AUTO)
        plan_out->options.attention = first_attention(&plan_out->device);
    return split(model, plan_out);
}
