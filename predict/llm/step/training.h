/* SPDX-License-Identifier: MIT */
/*
 * A training step of one rank as a program (docs/model.md, "A training step as a program").
 *
 * The order of allocations and frees is that of transformers' decoder layers, PyTorch's autograd,
 * and FSDP2 or DDP around them, as memory histories of such programs show. A function frees a
 * tensor where Python drops its name, or where autograd releases what it kept.
 */
#ifndef RVL_PREDICT_LLM_STEP_TRAINING_H
#define RVL_PREDICT_LLM_STEP_TRAINING_H

#include "predict/llm/llm_internal.h"
#include "predict/llm/step/tape.h"

#define RVLI_HALF UINT64_C(2) /* bytes of bf16 */
#define RVLI_FULL UINT64_C(4) /* bytes of fp32 */

/* Purpose of a parameter. The experts of a layer are two parameters, since transformers 5 stacks
 * them. */
typedef enum rvli_role {
    RVLI_ROLE_OTHER,
    RVLI_ROLE_EMBEDDING,
    RVLI_ROLE_HEAD,
    RVLI_ROLE_HEAD_BIAS,
    RVLI_ROLE_EMBEDDINGS, /* of tokens for each layer, and related parameters (Gemma 3n, 4) */
    RVLI_ROLE_EMBEDDINGS_PROJECTION,
    RVLI_ROLE_EMBEDDINGS_NORM,
    RVLI_ROLE_PER_LAYER_GATE, /* in a layer, around its embedding */
    RVLI_ROLE_PER_LAYER_PROJECTION,
    RVLI_ROLE_PER_LAYER_NORM,
    RVLI_ROLE_EXPERTS_UP, /* experts beside an MLP, with norms around both */
    RVLI_ROLE_EXPERTS_DOWN,
    RVLI_ROLE_EXPERT_SCALE,
    RVLI_ROLE_ROUTER_SCALE,
    RVLI_ROLE_NORM_BEHIND_MLP_ALONE,
    RVLI_ROLE_NORM_BEFORE_EXPERTS,
    RVLI_ROLE_NORM_BEHIND_EXPERTS,
    RVLI_ROLE_ROUTER_NORM, /* Gemma 3n: to predict and correct streams */
    RVLI_ROLE_MODALITIES,
    RVLI_ROLE_PREDICTION,
    RVLI_ROLE_CORRECTION,
    RVLI_ROLE_CORRECT_SCALE,
    RVLI_ROLE_LAUREL_LEFT, /* around attention */
    RVLI_ROLE_LAUREL_RIGHT,
    RVLI_ROLE_LAUREL_NORM,
    RVLI_ROLE_EMBED_STREAMS, /* the last of several consecutive parameters */
    RVLI_ROLE_UNEMBED_STREAMS,
    RVLI_ROLE_Q,
    RVLI_ROLE_Q_BIAS,
    RVLI_ROLE_K,
    RVLI_ROLE_K_BIAS,
    RVLI_ROLE_V,
    RVLI_ROLE_V_BIAS,
    RVLI_ROLE_QKV, /* q, k, v in one parameter */
    /* latent attention: compresses q. K compresses keys and values, V makes both */
    RVLI_ROLE_Q_DOWN,
    RVLI_ROLE_O,
    RVLI_ROLE_O_BIAS,
    RVLI_ROLE_Q_NORM,
    RVLI_ROLE_K_NORM,
    RVLI_ROLE_GATE,
    RVLI_ROLE_UP,
    RVLI_ROLE_GATE_UP, /* gate and up in one parameter */
    RVLI_ROLE_DOWN,
    RVLI_ROLE_GATE_BIAS,
    RVLI_ROLE_UP_BIAS,
    RVLI_ROLE_DOWN_BIAS,
    RVLI_ROLE_ALPHA_P, /* xIELU's */
    RVLI_ROLE_ALPHA_N,
    RVLI_ROLE_NORM_BEFORE_ATTENTION,
    RVLI_ROLE_NORM_BEFORE_MLP,
    RVLI_ROLE_NORM_BEHIND_ATTENTION,
    RVLI_ROLE_NORM_BEHIND_MLP,
    RVLI_ROLE_LAST_NORM,
    RVLI_ROLE_NORM_BEFORE_ATTENTION_BIAS,
    RVLI_ROLE_NORM_BEFORE_MLP_BIAS,
    RVLI_ROLE_LAST_NORM_BIAS,
    RVLI_ROLE_ROUTER,
    RVLI_ROLE_ROUTER_BIAS,
    RVLI_ROLE_EXPERTS_UP_BIAS,
    RVLI_ROLE_EXPERTS_DOWN_BIAS,
    RVLI_ROLE_SINKS,
    RVLI_ROLE_SHARED_GATE, /* of the expert that all tokens go through */
    RVLI_ROLE_SHARED_UP,
    RVLI_ROLE_SHARED_DOWN,
    RVLI_ROLE_SHARED_OPEN, /* Qwen: multiplies that expert's output */
    RVLI_ROLE_MAMBA_IN,
    RVLI_ROLE_MAMBA_CONV,
    RVLI_ROLE_MAMBA_CONV_BIAS,
    RVLI_ROLE_MAMBA_RATES, /* added to the rates */
    RVLI_ROLE_MAMBA_DECAY,
    RVLI_ROLE_MAMBA_SKIP, /* bypasses the state */
    RVLI_ROLE_MAMBA_NORM,
    RVLI_ROLE_MAMBA_OUT,
    RVLI_ROLE_CONV, /* of a short convolution */
    RVLI_ROLE_CONV_IN,
    RVLI_ROLE_CONV_OUT,
    RVLI_ROLE_DELTA_QKV, /* of a gated delta net; qwen3_next: with the gate */
    RVLI_ROLE_DELTA_GATE,
    RVLI_ROLE_DELTA_BETA, /* qwen3_next: with the decay */
    RVLI_ROLE_DELTA_DECAY,
    RVLI_ROLE_DELTA_CONV,
    RVLI_ROLE_DELTA_BIAS,
    RVLI_ROLE_DELTA_RATE,
    RVLI_ROLE_DELTA_NORM,
    RVLI_ROLE_DELTA_OUT,
    RVLI_ROLE_ADAPTER, /* LoRA's: found through the role of its layer */
    RVLI_ROLE_COUNT
} rvli_role;

typedef struct rvli_parameter {
    const char *pattern; /* of its name */
    uint32_t layer;
    rvli_role role;
    uint32_t adapter; /* index + 1 of the first of its adapter's two; 0: none */
    bool is_quantised;
    bool is_beside_full;     /* an adapter of a weight in fp32 */
    bool trained;            /* has a gradient and optimizer states */
    uint64_t element_bytes;  /* gathered, and of its gradient */
    uint64_t elements;       /* of the whole parameter */
    uint64_t share_elements; /* of a rank's padded share */
    rvli_block share;
    rvli_block whole;    /* the gathered parameter */
    rvli_block gradient; /* the whole one, before it is reduced */
    rvli_block states[2];
    bool has_managed_states;
    rvli_block master;
} rvli_parameter;

/* Parameters that FSDP2 gathers and reduces together: a layer, or everything outside of layers. */
typedef struct rvli_unit {
    uint32_t first; /* index of its first parameter; the root has two separate ranges */
    uint32_t count;
    uint32_t by_role[RVLI_ROLE_COUNT]; /* index of a parameter + 1; 0: none */
    uint64_t gathered_bytes;           /* in bf16, adapters in fp32 */
    uint64_t share_bytes;              /* of a rank */
    uint64_t trained_elements;         /* elements of the share that have a gradient */
    rvli_block reduced;                /* the share of its reduced gradients */
} rvli_unit;

/* cuBLAS's permanent workspaces: for each of autograd's two threads, and for biases. */
typedef enum rvli_workspace_name {
    RVLI_WORKSPACE_FORWARD,
    RVLI_WORKSPACE_BACKWARD,
    RVLI_WORKSPACE_BIAS,
    RVLI_WORKSPACE_RECOMPUTED_BIAS, /* for autograd's other thread, which computes layers again */
    RVLI_WORKSPACE_COUNT
} rvli_workspace_name;

/* The inputs of the program besides the model. */
typedef struct rvli_training_shape {
    rvl_model_train train;
    uint32_t train_ranks;
    uint64_t flags;
    uint32_t micro_batch;
    uint32_t seq_len;
    uint32_t accumulate; /* 0: like 1 */
    rvl_model_optimizer optimizer;
    /* Megatron's; FSDP uses only cp; vpp and cp 0: like 1 */
    uint32_t tp, pp, cp, ep, dp, stage, vpp;
    uint32_t optimizer_offload_ppm; /* Megatron's */
    rvl_model_attention attention;  /* AUTO: like cuDNN */
    rvl_model_loss loss;
    uint32_t loss_chunks; /* of a chunked loss; at least 1 */
    uint32_t lora_rank;   /* 0: everything is trained */
    rvl_model_lora_targets lora_targets;
    rvl_model_base_dtype base_dtype;
    uint64_t limit_bytes; /* device memory for the trainer; 0: no limit */
} rvli_training_shape;

struct rvli_graph;

typedef struct rvli_training {
    struct rvli_graph *graph; /* runs the passes */
    const rvl_model *model;
    const rvli_training_shape *options;
    rvli_tape tape;
    bool sharded;
    uint64_t tokens;
    rvli_parameter *parameters;
    uint32_t parameter_count;
    uint32_t parameter_room;
    rvli_unit *units; /* the layers, then the root */
    uint32_t at;      /* running layer; RVL_MODEL_NO_LAYER: none */
    rvli_block workspaces[RVLI_WORKSPACE_COUNT];
    rvli_block first_bucket[2]; /* DDP's, until its second pass; [0]: in fp32, [1]: all others */
    rvli_block held_bucket[2];  /* the same buckets in that pass */
    const rvli_parameter *closes_bucket; /* its gradient fills the first permanent bucket */
    bool bucket_reduced;                 /* that gradient has come: held buckets are freed */
    rvli_block gather_buffer;            /* to copy parameters out of, or fetched ahead */
    rvli_block reduce_input;
    rvli_block masks[2]; /* [0]: of full attention, [1]: of a window */
    rvli_block *chunks;  /* gradients of hidden states, for a chunked loss */
    rvli_block fetched;  /* from the host for the running node, and below for the node before */
    rvli_block fetched_before;
} rvli_training;

/* Results of a run of the program. */
typedef struct rvli_trained {
    rvli_moment passes; /* the fullest moment of forward and backward pass, in the steady state */
    rvli_moment update; /* of the optimizer's step */
    uint64_t reserved_bytes;
    uint64_t requested_bytes; /* peak of live bytes, as requested */
    uint64_t host_bytes;
} rvli_trained;

/* ---- training.c: loading, steps ---- */

/* Makes cosines and sines for the positions of one sequence. */
void rvli_rotary_make(rvli_training *t, uint64_t width, rvli_block *rotary);
/* Number of elements of a head that are rotated. */
uint64_t rvli_rotary_width(const rvl_model *model);
/* Whether angles stay in fp32, as ERNIE's do. */
bool rvli_angles_are_wide(const rvli_training *t);

/* Runs loading, and steps until one reserves no more than the one before. RVL_ERR_HOST_OOM. */
rvl_status rvli_training_run(const rvl_model *model, const rvli_training_shape *shape,
                             const rvli_tape_listener *listener, rvli_trained *trained_out);

/* ---- remembered.c ---- */

/*
 * Like rvli_training_run() without a listener, but runs the program only once for each shape,
 * unless segments are wanted. `shown` must be empty, and receives the segments. NULL: they are not
 * wanted. RVL_ERR_HOST_OOM. Thread-safe.
 */
rvl_status rvli_training_recall(const rvl_model *model, const rvli_training_shape *shape,
                                rvli_shown *shown, rvli_trained *trained_out);

/* ---- Shared by the parts ---- */

static inline rvli_block rvli_activation(rvli_training *t, uint64_t bytes)
{
    return rvli_take(&t->tape, RVL_MODEL_ACTIVATIONS, bytes);
}

/* The requested bytes. 0: out of host memory. */
static inline uint64_t rvli_bytes_of(rvli_block block)
{
    return block != NULL ? block->requested : 0;
}

/* Frees DDP's first bucket, if it is held. */
void rvli_buckets_release(rvli_training *t);

/* Frees what an operation kept. After that DDP learns of the gradients that the operation made. */
static inline void rvli_release(rvli_training *t, rvli_block *block)
{
    rvli_drop(&t->tape, *block);
    *block = NULL;
    if (t->bucket_reduced)
        rvli_buckets_release(t);
}

/* Makes a tensor from another one, and frees the other. */
static inline rvli_block rvli_next(rvli_training *t, uint64_t bytes, rvli_block *before)
{
    rvli_block made = rvli_activation(t, bytes);
    rvli_release(t, before);
    return made;
}

/* Bytes of an element of a share and of the share's gradient. */
static inline uint64_t rvli_share_bytes(const rvli_training *t)
{
    return rvli_is_mixed(t->options->flags) ? RVLI_FULL : RVLI_HALF;
}

/* With LoRA everything except the adapters is frozen. */
static inline bool rvli_is_frozen(const rvli_training *t)
{
    return t->options->lora_rank > 0;
}

/* Bytes of an element of an adapter, also of its gradient and in the reduction. */
static inline uint64_t rvli_adapter_bytes(const rvli_training *t)
{
    return t->options->flags & RVL_MODEL_BF16_ADAPTERS ? RVLI_HALF : RVLI_FULL;
}

static inline bool rvli_is_base_quantised(const rvli_training *t)
{
    return t->options->base_dtype != RVL_MODEL_BASE_BF16;
}

/* Whether embedding, norms and head are in fp32. Then so are the values between layers, and
 * everything except products. */
static inline bool rvli_is_wide(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_PREPARE_KBIT) != 0;
}

/* Bytes of an element of the values between layers. */
static inline uint64_t rvli_flow_bytes(const rvli_training *t)
{
    return rvli_is_wide(t) ? RVLI_FULL : RVLI_HALF;
}

/* Whether the forward pass runs in torch.autocast(bfloat16). */
static inline bool rvli_is_autocast(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_AUTOCAST) != 0;
}

/* Whether shards, their gradients and states are on the host. */
static inline bool rvli_is_on_host(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_CPU_OFFLOAD) != 0;
}

/* Whether a rank has a part of each sequence: PyTorch's context_parallel() with FSDP2. */
static inline bool rvli_is_ring(const rvli_training *t)
{
    return t->options->cp > 1;
}

static inline bool rvli_is_offloaded(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_OFFLOAD) != 0;
}

/* The modules of Hunyuan and ERNIE have routers in fp32. FSDP2 refuses that, so with FSDP2 they are
 * not. */
static inline bool rvli_is_wide_router(const rvli_training *t, rvli_role role)
{
    return role == RVLI_ROLE_ROUTER && !t->sharded && (t->model->features & RVLI_SHARED_FIRST) != 0;
}

/* The dimension in the running layer. */
static inline uint64_t rvli_dim_here(const rvli_training *t, rvli_dim dim)
{
    return rvli_layer_dim(t->model, t->at, dim);
}

static inline uint64_t rvli_kv_heads_here(const rvli_training *t)
{
    return rvli_layer_kv_heads(t->model, t->at);
}

/* Whether heads of q share keys and values. */
static inline bool rvli_shares_heads(const rvli_training *t)
{
    return rvli_kv_heads_here(t) != t->model->heads;
}

static inline rvli_unit *rvli_root(const rvli_training *t)
{
    return &t->units[t->model->layers];
}

/* Makes the workspace at the first call. */
void rvli_workspace(rvli_training *t, rvli_workspace_name name);

/* ---- parameters.c ---- */

void rvli_parameters_make(rvli_training *t);

/* The role of a module of a layer or the model, by the last part of its name ("q_proj"), or of a
 * parameter. RVLI_ROLE_OTHER: none. */
rvli_role rvli_role_named(const rvli_training *t, const char *name, size_t length);

/* A parameter of a unit. The root's are before and behind those of the layers. */
rvli_parameter *rvli_parameter_of(const rvli_training *t, const rvli_unit *unit, uint32_t index);

/* ---- gradients.c ---- */

/* Temporary memory of a sum over rows. */
void rvli_rows_summed(rvli_training *t, uint64_t rows, uint64_t width);

/* ---- nf4.c ---- */

/* A weight converted to bf16 for one product, and its scales in fp32. */
typedef struct rvli_nf4 {
    rvli_block weight;
    rvli_block scales[2];
} rvli_nf4;

/* Loads all parameters. */
void rvli_nf4_load(rvli_training *t);
rvli_nf4 rvli_nf4_forward(rvli_training *t, uint64_t elements);
rvli_nf4 rvli_nf4_backward(rvli_training *t, uint64_t elements);
void rvli_nf4_done(rvli_training *t, rvli_nf4 *nf4);

/* ---- masks.c: what tokens see ---- */

void rvli_masks_make(rvli_training *t);

/* ---- sdpa.c: between the rotated q and k, and the output projection ---- */

/* For the running layer: whether keys and values are copied for each head of q; bytes of the mask
 * and of the sums; workspaces of the kernels. Of queries, 1 / `part` of each sequence is there. */
bool rvli_sdpa_repeats(const rvli_training *t);
uint64_t rvli_sdpa_mask_bytes(const rvli_training *t);
uint64_t rvli_sdpa_sums_bytes(const rvli_training *t);
void rvli_sdpa_forward_works(rvli_training *t, uint32_t part);
void rvli_sdpa_backward_works(rvli_training *t, uint32_t part);

/* ---- wide_heads.c: workspaces of efficient kernels for heads of more than 256 elements ---- */

void rvli_wide_forward_works(rvli_training *t, uint32_t part);
void rvli_wide_backward_works(rvli_training *t, uint32_t part);

/* ---- sharding.c: FSDP2 around the units; these do nothing without it ---- */

void rvli_gather_forward(rvli_training *t, rvli_unit *unit);
void rvli_gather_backward(rvli_training *t, rvli_unit *unit, rvli_unit *next);
/* After the forward pass of a unit; only with --reshard. */
void rvli_reshard_forward(rvli_training *t, rvli_unit *unit);
void rvli_reduce(rvli_training *t, rvli_unit *unit);

/* ---- buckets.c: DDP's buckets ---- */

void rvli_buckets_make(rvli_training *t);
/* Makes the permanent buckets, before the second forward pass. Returns false if it had no bucket to
 * replace. */
bool rvli_buckets_rebuild(rvli_training *t);
/* The parameter has its gradient. */
void rvli_buckets_ready(rvli_training *t, const rvli_parameter *parameter);

/* ---- offload.c: these do nothing without --offload-activations ---- */

/* Before a forward pass. */
void rvli_offload_begin(rvli_training *t);

/* rvli_fetch() brings a tensor back to the device. rvli_fetched(), after its node has run, frees
 * the tensor of the node before. rvli_fetch_end() frees all. */
void rvli_fetch(rvli_training *t, rvl_model_term holder, uint64_t bytes);
void rvli_fetched(rvli_training *t);
void rvli_fetch_end(rvli_training *t);

/* ---- host.c ---- */

uint64_t rvli_host_bytes(const rvli_training *t);
/* Bytes that pinned memory of this size takes. */
uint64_t rvli_pinned_bytes(uint64_t bytes);

/* ---- optimizer.c ---- */

void rvli_optimizer_step(rvli_training *t);

#endif
