/* SPDX-License-Identifier: MIT */
/*
 * Model configs to traces: reads a Hugging Face config.json and computes, to the byte, the memory
 * of one GPU in one step of reinforcement learning with that model (libreveille-replay).
 * docs/model.md has the formulas and their sources.
 */
#ifndef REVEILLE_MODEL_H
#define REVEILLE_MODEL_H

#include "reveille/replay.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rvl_model rvl_model;
typedef struct rvl_model_step rvl_model_step;

/* ---- Models ---- */

/*
 * Reads a config from a file, or from length bytes of text. Missing values take the default of the
 * family's own code, if it has one. On failure rvl_last_error() has the line or the key. Returns
 * RVL_OK; RVL_ERR_INVALID (an argument is NULL, the text is not JSON, the family is unknown, a key
 * is missing, or a value is impossible); RVL_ERR_IO (the file cannot be read); RVL_ERR_HOST_OOM.
 * The caller frees *model_out with rvl_model_close(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_model_open(const char *path, rvl_model **model_out);
RVL_API rvl_status rvl_model_parse(const char *text, size_t length, rvl_model **model_out);

/* Frees a model. NULL is fine. Since 0.1. */
RVL_API void rvl_model_close(rvl_model *model);

/* Returns its model_type: the name of its family. Lives as long as the model. Since 0.1. */
RVL_API const char *rvl_model_type(const rvl_model *model);

/* Number of parameters: exact, tied embeddings counted once. Thread-safe. Since 0.1. */
RVL_API uint64_t rvl_model_parameter_count(const rvl_model *model);

#define RVL_MODEL_NO_LAYER UINT32_MAX

/* A parameter, whole and unfused, under the name that most families use. */
typedef struct rvl_model_tensor {
    size_t struct_size; /* of this library: later fields do not exist */
    char name[96];
    uint32_t layer; /* RVL_MODEL_NO_LAYER: embedding, last norm, head */
    uint32_t reserved;
    uint64_t rows;
    uint64_t columns; /* 1 for vectors */
} rvl_model_tensor;

typedef void (*rvl_model_tensor_fn)(void *user, const rvl_model_tensor *tensor);

/* Calls fn for every parameter, in the order of the layers. Thread-safe. Since 0.1. */
RVL_API void rvl_model_visit_tensors(const rvl_model *model, rvl_model_tensor_fn fn, void *user);

/* Returns the supported families, in the order of the table. NULL after the last. Since 0.1. */
RVL_API const char *rvl_model_family(size_t index);

/* ---- What a step holds ---- */

/*
 * X(NAME, tag or cause, meaning): the terms. Those up to LOGITS are memory of engine or trainer.
 * TRAINING_COPY is present without a trainer. The others are outside PyTorch's allocator.
 */
#define RVL_MODEL_TERM_MAP(X)                                                                      \
    X(WEIGHTS, "weights", "the engine's share of the weights, fused")                              \
    X(KV_CACHE, "kv_cache", "what the memory fraction leaves, in whole tokens")                    \
    X(CUDA_GRAPH, "cuda_graph", "pools of captured graphs")                                        \
    X(BUFFERS, "buffers", "the engine's working set of one prefill, and its workspace")            \
    X(SHARDED_WEIGHTS, "sharded_weights", "the trainer's bf16 weights")                            \
    X(MASTER_WEIGHTS, "master_weights", "fp32 weights that the optimizer updates")                 \
    X(OPTIMIZER, "optimizer", "states of the optimizer")                                           \
    X(GRADIENTS, "gradients", "bf16 gradients")                                                    \
    X(GRADIENT_BUCKETS, "gradient_buckets", "DDP's copies of the gradients, for the reduction")    \
    X(ALL_GATHER, "all_gather", "whole weights gathered from the shards, bf16")                    \
    X(ACTIVATIONS, "activations", "what the forward pass keeps for the backward pass")             \
    X(LOGITS, "logits", "logits of a micro-batch, their fp32 copy and its gradient")               \
    X(TRAINING_COPY, "training_copy", "all parameters in bf16, as a trainer allocates them")       \
    X(ENGINE_CONTEXT, "engine_context", "CUDA context of the engine")                              \
    X(TRAINER_CONTEXT, "trainer_context", "CUDA context of the trainer")                           \
    X(TRAINER_RESIDUE, "trainer_residue", "what the trainer leaves behind")                        \
    X(ASLEEP, "asleep", "in use while the engine sleeps")                                          \
    X(OPTIMIZER_TEMPORARIES, "optimizer_temporaries",                                              \
      "what the optimizer's step has for a moment")                                                \
    X(BLAS_WORKSPACES, "blas_workspaces", "what the trainer's matrix products work in")            \
    X(CACHED, "cached", "free in PyTorch's segments while the trainer trains")                     \
    X(ENGINE_NCCL, "engine_nccl", "NCCL's buffers for the engine's communicators")                 \
    X(TRAINER_NCCL, "trainer_nccl", "NCCL's buffers for the trainer's communicators")              \
    X(DEQUANTISED, "dequantised", "weights of 4 bits in bf16, for one product")                    \
    X(TRAINER_HOST, "trainer_host", "what the trainer keeps in the host's memory, not this GPU's") \
    X(PAGED_OPTIMIZER, "paged_optimizer", "states in managed memory, as far as there is room")     \
    X(UPDATE_BUCKET, "update_bucket", "new weights on their way to the engine, a bucket at a time")

typedef enum rvl_model_term {
#define RVL_MODEL_TERM_ENUM(name, tag, meaning) RVL_MODEL_##name,
    RVL_MODEL_TERM_MAP(RVL_MODEL_TERM_ENUM)
#undef RVL_MODEL_TERM_ENUM
        RVL_MODEL_TERM_COUNT
} rvl_model_term;

/* How this GPU trains. */
typedef enum rvl_model_train {
    RVL_MODEL_TRAIN_NONE = 0, /* the trainer runs elsewhere; its weights arrive as training_copy */
    RVL_MODEL_TRAIN_FSDP,     /* weights, gradients, optimizer sharded over train_ranks GPUs */
    RVL_MODEL_TRAIN_DDP,      /* each of them is whole on this GPU */
    RVL_MODEL_TRAIN_MEGATRON, /* split over train_ranks GPUs by tensors, layers, tokens, experts */
    RVL_MODEL_TRAIN_PLAIN     /* each of them is whole, in one process without reductions */
} rvl_model_train;

/* What the GPU is for. */
typedef enum rvl_model_use {
    RVL_MODEL_USE_RL = 0,   /* a step of reinforcement learning: trainer and engine share it */
    RVL_MODEL_USE_SERVE,    /* an engine alone */
    RVL_MODEL_USE_FINE_TUNE /* a trainer alone; RVL_MODEL_TRAIN_NONE means PLAIN */
} rvl_model_use;

/* How engine and trainer share the GPU: docs/strategies.md. */
typedef enum rvl_model_strategy {
    RVL_MODEL_V3 = 0, /* the engine wakes in stages */
    RVL_MODEL_V0,     /* nothing is released */
    RVL_MODEL_V1,     /* one process at a time */
    RVL_MODEL_V2      /* the engine sleeps and wakes as a whole */
} rvl_model_strategy;

typedef enum rvl_model_dtype {
    RVL_MODEL_DTYPE_AUTO = 0, /* from quantization_config, else bf16 */
    RVL_MODEL_BF16,
    RVL_MODEL_FP8,
    RVL_MODEL_INT4, /* weights only, as INT8 */
    RVL_MODEL_INT8
} rvl_model_dtype;

/*
 * X(NAME, word, number of states, bytes of a state for each parameter, whether states are in blocks
 * of 256 with a scale, whether there is an fp32 master, whether states are in managed memory)
 */
#define RVL_MODEL_OPTIMIZER_MAP(X)                                                                 \
    X(ADAMW, "adamw", 2, 4, false, true, false)                                                    \
    X(ADAMW_BF16, "adamw-bf16", 2, 2, false, false, false)                                         \
    X(ADAMW_8BIT, "adamw-8bit", 2, 1, true, false, false)                                          \
    X(SGD_MOMENTUM, "sgd-momentum", 1, 4, false, true, false)                                      \
    X(SGD, "sgd", 0, 0, false, false, false)                                                       \
    X(PAGED_ADAMW_8BIT, "paged-adamw-8bit", 2, 1, true, false, true)                               \
    X(PAGED_ADAMW_32BIT, "paged-adamw-32bit", 2, 4, false, false, true)

typedef enum rvl_model_optimizer {
#define RVL_MODEL_OPTIMIZER_ENUM(name, word, states, bytes, blocks, master, paged) RVL_MODEL_##name,
    RVL_MODEL_OPTIMIZER_MAP(RVL_MODEL_OPTIMIZER_ENUM)
#undef RVL_MODEL_OPTIMIZER_ENUM
        RVL_MODEL_OPTIMIZER_COUNT
} rvl_model_optimizer;

/* Which of its implementations PyTorch uses for attention in training. */
typedef enum rvl_model_attention {
    RVL_MODEL_ATTENTION_AUTO = 0, /* as PyTorch: cuDNN on Hopper and B200, else flash */
    RVL_MODEL_ATTENTION_CUDNN,
    RVL_MODEL_ATTENTION_FLASH,
    RVL_MODEL_ATTENTION_EFFICIENT,
    RVL_MODEL_ATTENTION_MATH
} rvl_model_attention;

/* How training computes the head and the loss. */
typedef enum rvl_model_loss {
    RVL_MODEL_LOSS_PLAIN = 0, /* all logits at once */
    RVL_MODEL_LOSS_CHUNKED,   /* in loss_chunks parts of the tokens, one after the other */
    RVL_MODEL_LOSS_FUSED      /* Liger's fused linear cross entropy */
} rvl_model_loss;

/* Which linear layers get LoRA adapters. */
typedef enum rvl_model_lora_targets {
    RVL_MODEL_LORA_PEFT = 0,  /* PEFT's default: q and v */
    RVL_MODEL_LORA_ALL_LINEAR /* all linear layers, and experts where PEFT adapts them */
} rvl_model_lora_targets;

/* The data type of frozen weights next to adapters. */
typedef enum rvl_model_base_dtype {
    RVL_MODEL_BASE_BF16 = 0,
    RVL_MODEL_BASE_NF4,       /* 4 bits, scales of 64 in 8 bits (bitsandbytes, double quantised) */
    RVL_MODEL_BASE_NF4_SINGLE /* 4 bits, scales of 64 in fp32 */
} rvl_model_base_dtype;

/* A term of known size, which replaces the formula's. 0 bytes omit the term. */
typedef struct rvl_model_given {
    rvl_model_term term;
    uint32_t reserved; /* 0 */
    uint64_t bytes;
} rvl_model_given;

/* Flags of a step. */
#define RVL_MODEL_RECOMPUTE 1u /* activations are computed again, layer by layer */
#define RVL_MODEL_RESHARD 2u   /* FSDP: frees gathered layers after use; without: keeps all */
#define RVL_MODEL_MIXED                                                                            \
    8u /* FSDP: shards and their gradients in fp32, forward and backward                           \
          in bf16 */
#define RVL_MODEL_REDUCE_FP32 16u /* FSDP: bf16 gradients are summed over ranks in fp32 */
/*
 * FSDP: shards, their gradients and the optimizer's states are on the host, which also runs the
 * optimizer.
 */
#define RVL_MODEL_CPU_OFFLOAD 32u
#define RVL_MODEL_OFFLOAD 64u /* activations kept for backward go to the host, as in TRL */
/* DDP: the first bucket is freed before the second forward pass. Without: in the backward pass. */
#define RVL_MODEL_BUCKET_FREED 128u
#define RVL_MODEL_BF16_ADAPTERS 256u /* LoRA: adapters in bf16; without: in fp32 */
#define RVL_MODEL_AUTOCAST 512u      /* LoRA: the forward pass in torch.autocast, bf16 */
/*
 * LoRA: weights that are not in four bits are in fp32, as prepare_model_for_kbit_training() leaves
 * them.
 */
#define RVL_MODEL_PREPARE_KBIT 1024u
#define RVL_MODEL_FUSED 4u /* AdamW in one kernel, without temporaries; without: foreach */
/* Megatron: between the matrices that tp splits, each rank keeps a part of the sequence. */
#define RVL_MODEL_SEQUENCE_PARALLEL 0x10000u
#define RVL_MODEL_SELECTIVE 0x20000u      /* Megatron: only attention is computed again */
#define RVL_MODEL_BF16_GRADIENTS 0x40000u /* Megatron: the buffer of gradients is not fp32 */
/* Megatron: its own layers. Without: TransformerEngine's layers and its Adam. */
#define RVL_MODEL_LOCAL_LAYERS 0x200000u
/* Megatron: the experts of a rank are computed in one product. */
#define RVL_MODEL_GROUPED_GEMM 0x400000u
/* With RVL_MODEL_GROUPED_GEMM: by Megatron's older class instead of TransformerEngine's. */
#define RVL_MODEL_LEGACY_GROUPED_GEMM 0x800000u
#define RVL_MODEL_SEGMENTS 0x100000u /* the trainer's segments, with their contents */
#define RVL_MODEL_NCCL 0x80000u      /* NCCL's buffers are counted, by communicator */

#define RVL_MODEL_UPDATE_WHOLE UINT64_MAX

typedef struct rvl_model_options {
    size_t struct_size;
    uint64_t flags;     /* RVL_MODEL_RECOMPUTE and the other flags of a step */
    const char *device; /* profile or size; NULL: "h200" */
    uint32_t tp;        /* engine: tensor parallel; 0: 1 */
    uint32_t pp;        /* engine: pipeline stages; 0: 1 */
    uint32_t pp_rank;   /* the stage that is predicted */
    uint32_t ep;        /* engine: expert parallel, within tp; 0: 1 */
    rvl_model_train train;
    uint32_t train_ranks;      /* FSDP, Megatron: ranks of all kinds together; 0: 1 */
    uint32_t mem_fraction_ppm; /* engine: weights and KV cache, in millionths; 0: 900000 */
    rvl_model_strategy strategy;
    rvl_wake wake;        /* RVL_WAKE_TOGETHER: v3 resumes the whole engine at its first resume */
    uint32_t micro_batch; /* sequences; 0: 1 */
    uint32_t seq_len;     /* tokens of a sequence; 0: 4096 */
    rvl_model_optimizer optimizer;
    rvl_model_dtype weights_dtype; /* of the engine */
    rvl_model_dtype kv_dtype;
    const char *name;         /* of the model, for comments; NULL: its model_type */
    const char *const *notes; /* comment lines */
    size_t note_count;
    const rvl_model_given *given;
    size_t given_count;
    size_t given_size;   /* sizeof(rvl_model_given) */
    uint32_t accumulate; /* micro-batches before the optimizer's step; 0: 1 */
    rvl_model_attention attention;
    uint32_t train_tp;    /* Megatron: tensor parallel; 0: 1, also for the next three */
    uint32_t train_pp;    /* pipeline stages, by 1F1B */
    uint32_t train_cp;    /* context parallel, for FSDP as well */
    uint32_t train_ep;    /* expert parallel, over the ranks of a stage */
    uint32_t train_stage; /* the pipeline stage that is predicted */
    rvl_model_loss loss;
    uint32_t loss_chunks; /* for RVL_MODEL_LOSS_CHUNKED; 0: 8 */
    uint32_t lora_rank;   /* only adapters are trained, all else is frozen; 0: everything is
                             trained */
    rvl_model_lora_targets lora_targets;
    rvl_model_base_dtype base_dtype; /* with lora_rank: type of linear layers except the head */
    uint32_t train_vpp; /* Megatron: parts of the model on each stage (interleaved 1F1B); 0: 1 */
    /* Megatron: the share of the optimizer that is on the host and steps there, in millionths. 0:
       none. */
    uint32_t optimizer_offload_ppm;
    rvl_model_use use;
    uint32_t reserved; /* 0 */
    /* The size of a bucket of new weights on their way to the engine; if the largest tensor is
       larger, buckets have its size. 0: 512 MiB. RVL_MODEL_UPDATE_WHOLE: all weights at once. */
    uint64_t update_bucket_bytes;
} rvl_model_options;

/* ---- Settings by name ---- */

/* A setting of a step. Its strings are static. */
typedef struct rvl_model_setting {
    size_t struct_size;   /* set by the caller */
    const char *name;     /* "micro-batch" */
    const char *group;    /* its heading in a help text */
    const char *values;   /* accepted values: "N", "bf16|fp8"; NULL: it is a switch, yes or no */
    const char *expected; /* accepted values as a phrase */
    const char *usual;    /* the default */
    const char *help;     /* what it does; names of other settings are in quotes: 'train' */
} rvl_model_setting;

/*
 * The setting at an index, from 0, in the order of a help text. Returns RVL_OK, RVL_ERR_NOT_FOUND
 * (there are no more settings. The error record is unchanged) or RVL_ERR_INVALID. Thread-safe.
 * Since 0.1.
 */
RVL_API rvl_status rvl_model_setting_get(size_t index, rvl_model_setting *setting_out);

/*
 * Sets an option by name to a value in words, such as "train" to "fsdp:8". The string of a device
 * is not copied. Returns RVL_OK; RVL_ERR_NOT_FOUND (there is no such setting); RVL_ERR_INVALID (the
 * value is wrong. The message says what is expected); RVL_ERR_VERSION (struct_size is that of an
 * older version, which lacks the option). On failure the options are unchanged. Since 0.1.
 */
RVL_API rvl_status rvl_model_options_set(rvl_model_options *options, const char *name,
                                         const char *value);

/*
 * Checks whether a setting has any effect with the other settings. rvl_model_step_make() refuses
 * some settings without effect, and ignores the rest. Returns RVL_OK; RVL_ERR_INVALID (the setting
 * has no effect. The message says why, and the remedy); RVL_ERR_NOT_FOUND (there is no such
 * setting); RVL_ERR_VERSION. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_model_options_check(const rvl_model_options *options, const char *name);

/* ---- A step ---- */

/*
 * Computes a step for one GPU and makes its trace in memory. On failure the key of rvl_last_error()
 * is a key of the config or the name of a setting ("micro-batch"). The message has other settings
 * in quotes ('train'). Returns RVL_OK; RVL_ERR_INVALID (an option is wrong, sizes do not divide, or
 * there is no room for a KV cache); RVL_ERR_VERSION; RVL_ERR_HOST_OOM. The caller frees *step_out
 * with rvl_model_step_close(). Many threads may make steps of one model. Since 0.1.
 */
RVL_API rvl_status rvl_model_step_make(const rvl_model *model, const rvl_model_options *options,
                                       rvl_model_step **step_out);

/* Frees a step. NULL is fine. Since 0.1. */
RVL_API void rvl_model_step_close(rvl_model_step *step);

/*
 * Bytes of a term as requested from the device, or for TRAINER_HOST from the host. 0: it is not
 * part of the step. Since 0.1.
 */
RVL_API uint64_t rvl_model_step_bytes(const rvl_model_step *step, rvl_model_term term);

/* Number of allocations of a term. Since 0.1. */
RVL_API size_t rvl_model_step_allocation_count(const rvl_model_step *step, rvl_model_term term);

/* Tag or cause of a term in the trace. Static string. Since 0.1. */
RVL_API const char *rvl_model_step_tag(const rvl_model_step *step, rvl_model_term term);

/* Why the size of a term may differ in a real program. */
typedef enum rvl_model_doubt {
    RVL_MODEL_DOUBT_NONE = 0, /* computed, or given; or the term is not part of the step */
    RVL_MODEL_DOUBT_ASSUMED,  /* a size measured in other programs (docs/model.md) */
    RVL_MODEL_DOUBT_LEFT_OUT  /* not counted, although a program has it: 0 bytes */
} rvl_model_doubt;

/* Returns what is in doubt about the size of a term. Since 0.1. */
RVL_API rvl_model_doubt rvl_model_step_doubt(const rvl_model_step *step, rvl_model_term term);

/* Tokens that fit in the KV cache. 0 if its size was given. Since 0.1. */
RVL_API uint64_t rvl_model_step_token_count(const rvl_model_step *step);

/*
 * The device, as the trace's header declares it. device_size: sizeof(rvl_trace_device). Its strings
 * live as long as the step. Returns RVL_OK or RVL_ERR_INVALID. Since 0.1.
 */
RVL_API rvl_status rvl_model_step_get_device(const rvl_model_step *step,
                                             rvl_trace_device *device_out, size_t device_size);

/*
 * Writes up to capacity events to events_out, in order and in the form that a writer takes, and
 * stores their full number in *count_out. event_size: sizeof(rvl_trace_event). Their strings live
 * as long as the step. Returns RVL_OK or RVL_ERR_INVALID. Since 0.1.
 */
RVL_API rvl_status rvl_model_step_get_events(const rvl_model_step *step,
                                             rvl_trace_event *events_out, size_t event_size,
                                             size_t capacity, size_t *count_out);

/*
 * Replays the step without a file, as rvl_replay_run_events() does. You may close the step before
 * the result. Returns as rvl_replay_run_events(). Since 0.1.
 */
RVL_API rvl_status rvl_model_step_replay(const rvl_model_step *step,
                                         const rvl_replay_options *options,
                                         rvl_replay **replay_out);

/*
 * Writes the step as a trace. An existing file is replaced when the new one is complete. A file
 * that is not regular (a pipe) is written directly. Returns RVL_OK, RVL_ERR_INVALID, RVL_ERR_IO
 * (the trace cannot be written. Nothing is left behind) or RVL_ERR_HOST_OOM. Since 0.1.
 */
RVL_API rvl_status rvl_model_step_write(const rvl_model_step *step, const char *path);

#ifdef __cplusplus
}
#endif
#endif
