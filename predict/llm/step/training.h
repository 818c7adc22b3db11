/* SPDX-License-Identifier: MIT */
/*
 * A training step of one rank as a program (docs/model.md, "A step as a program").
 *
 * The order of allocations and frees is that of transformers' decoder layers, of PyTorch's
 * autograd, and of FSDP2 or DDP around them, as memory histories of such programs show it. What a
 * function frees it frees where Python drops the name, or where autograd releases what it kept.
 */
#ifndef RVL_PREDICT_LLM_STEP_TRAINING_H
#define RVL_PREDICT_LLM_STEP_TRAINING_H

#include "predict/llm/llm_internal.h"
#include "predict/llm/step/tape.h"

#define RVLI_HALF UINT64_C(2) /* bytes of bf16 */
#define RVLI_FULL UINT64_C(4) /* bytes of fp32 */

/* What a parameter is for. Experts of a layer are two parameters, as transformers 5 stacks them. */
typedef enum rvli_role {
    RVLI_ROLE_OTHER,
    RVLI_ROLE_EMBEDDING,
    RVLI_ROLE_HEAD,
    RVLI_ROLE_HEAD_BIAS,
    RVLI_ROLE_EMBEDDINGS, /* Gemma 3n: of tokens for each layer, and what belongs to them */
    RVLI_ROLE_EMBEDDINGS_PROJECTION,
    RVLI_ROLE_EMBEDDINGS_NORM,
    RVLI_ROLE_PER_LAYER_GATE, /* in a layer: around its embedding */
    RVLI_ROLE_PER_LAYER_PROJECTION,
    RVLI_ROLE_PER_LAYER_NORM,
    RVLI_ROLE_EXPERTS_UP, /* beside an MLP, with norms around both */
    RVLI_ROLE_EXPERTS_DOWN,
    RVLI_ROLE_EXPERT_SCALE,
    RVLI_ROLE_ROUTER_SCALE,
    RVLI_ROLE_NORM_BEHIND_MLP_ALONE,
    RVLI_ROLE_NORM_BEFORE_EXPERTS,
    RVLI_ROLE_NORM_BEHIND_EXPERTS,
    RVLI_ROLE_ROUTER_NORM, /* Gemma 3n: of what predicts and corrects streams */
    RVLI_ROLE_MODALITIES,
    RVLI_ROLE_PREDICTION,
    RVLI_ROLE_CORRECTION,
    RVLI_ROLE_CORRECT_SCALE,
    RVLI_ROLE_LAUREL_LEFT, /* and around attention */
    RVLI_ROLE_LAUREL_RIGHT,
    RVLI_ROLE_LAUREL_NORM,
    RVLI_ROLE_EMBED_STREAMS, /* the last of several, one after the other */
    RVLI_ROLE_UNEMBED_STREAMS,
    RVLI_ROLE_Q,
    RVLI_ROLE_Q_BIAS,
    RVLI_ROLE_K,
    RVLI_ROLE_K_BIAS,
    RVLI_ROLE_V,
    RVLI_ROLE_V_BIAS,
    RVLI_ROLE_QKV,    /* the three in one parameter */
    RVLI_ROLE_Q_DOWN, /* latent attention: compresses q. K compresses keys and values, V makes both
                       */
    RVLI_ROLE_O,
    RVLI_ROLE_O_BIAS,
    RVLI_ROLE_Q_NORM,
    RVLI_ROLE_K_NORM,
    RVLI_ROLE_GATE,
    RVLI_ROLE_UP,
    RVLI_ROLE_GATE_UP, /* both in one */
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
    RVLI_ROLE_SHARED_GATE, /* of the expert for all tokens */
    RVLI_ROLE_SHARED_UP,
    RVLI_ROLE_SHARED_DOWN,
    RVLI_ROLE_SHARED_OPEN, /* Qwen's: multiplies what it gives */
    RVLI_ROLE_MAMBA_IN,
    RVLI_ROLE_MAMBA_CONV,
    RVLI_ROLE_MAMBA_CONV_BIAS,
    RVLI_ROLE_MAMBA_RATES, /* added to the rates */
    RVLI_ROLE_MAMBA_DECAY,
    RVLI_ROLE_MAMBA_SKIP, /* what passes the state by */
    RVLI_ROLE_MAMBA_NORM,
    RVLI_ROLE_MAMBA_OUT,
    RVLI_ROLE_CONV, /* of a short convolution */
    RVLI_ROLE_CONV_IN,
    RVLI_ROLE_CONV_OUT,
    RVLI_ROLE_DELTA_QKV, /* of a gated delta net; qwen3_next: and the gate */
    RVLI_ROLE_DELTA_GATE,
    RVLI_ROLE_DELTA_BETA, /* qwen3_next: and the decay */
    RVLI_ROLE_DELTA_DECAY,
    RVLI_ROLE_DELTA_CONV,
    RVLI_ROLE_DELTA_BIAS,
    RVLI_ROLE_DELTA_RATE,
    RVLI_ROLE_DELTA_NORM,
    RVLI_ROLE_DELTA_OUT,
    RVLI_ROLE_ADAPTER, /* of LoRA: found by the role of the layer that it stands beside */
    RVLI_ROLE_COUNT
} rvli_role;

typedef struct rvli_parameter {
    const char *pattern; /* of its name */
    uint32_t layer;
    rvli_role role;
    bool is_quantised;
    bool trained;            /* has a gradient, and states of the optimizer */
    uint64_t element_bytes;  /* gathered, and of the gradient */
    uint64_t elements;       /* whole */
    uint64_t share_elements; /* of a rank, padded */
    rvli_block share;
    rvli_block whole;    /* gathered */
    rvli_block gradient; /* whole, before it is reduced */
    rvli_block states[2];
    bool has_managed_states;
    rvli_block master;
} rvli_parameter;

/* Parameters that FSDP2 gathers and reduces as one: a layer, or what is outside of layers. */
typedef struct rvli_unit {
    uint32_t first; /* index of its first parameter; the root's two parts lie apart */
    uint32_t count;
    uint32_t by_role[RVLI_ROLE_COUNT];  /* parameter + 1; 0: none */
    uint32_t adapters[RVLI_ROLE_COUNT]; /* the first of two of a role's layer, in the same way */
    uint64_t gathered_bytes;            /* in bf16, adapters in fp32 */
    uint64_t share_bytes;               /* a rank's part of these */
    uint64_t trained_elements;          /* of the part, what has a gradient */
    rvli_block reduced;                 /* the share of its gradients */
} rvli_unit;

/* What attention keeps by plain operations, or over parts of each sequence. */
typedef struct rvli_attended {
    rvli_block output;
    rvli_block sums;    /* of each row's exponentials, logarithms */
    rvli_block softmax; /* by math: of all scores */
    rvli_block wide_q;  /* and what was multiplied, for every head of q: by math in fp32 */
    rvli_block wide_k;
    rvli_block wide_v;
} rvli_attended;

/* Workspaces of cuBLAS, which stay: of each of autograd's two threads, and for biases. */
typedef enum rvli_workspace_name {
    RVLI_WORKSPACE_FORWARD,
    RVLI_WORKSPACE_BACKWARD,
    RVLI_WORKSPACE_BIAS,
    RVLI_WORKSPACE_RECOMPUTED_BIAS, /* recomputing, autograd's other thread runs the layers */
    RVLI_WORKSPACE_COUNT
} rvli_workspace_name;

/* What the program depends on, besides the model. */
typedef struct rvli_training_shape {
    rvl_model_train train;
    uint32_t train_ranks;
    uint64_t flags;
    uint32_t micro_batch;
    uint32_t seq_len;
    uint32_t accumulate; /* 0: 1 */
    rvl_model_optimizer optimizer;
    uint32_t tp, pp, cp, ep, dp, stage, vpp; /* of Megatron; FSDP: cp alone; vpp, cp 0: 1 */
    uint32_t optimizer_offload_ppm;          /* of Megatron */
    rvl_model_attention attention;           /* AUTO: as cuDNN */
    rvl_model_loss loss;
    uint32_t loss_chunks; /* of a chunked loss, at least 1 */
    uint32_t lora_rank;   /* 0: all is trained */
    rvl_model_lora_targets lora_targets;
    rvl_model_base_dtype base_dtype;
    uint64_t limit_bytes; /* what the device has for the trainer; 0: without bound */
} rvli_training_shape;

struct rvli_graph;

typedef struct rvli_training {
    struct rvli_graph *graph; /* what runs the passes */
    const rvl_model *model;
    const rvli_training_shape *options;
    rvli_tape tape;
    bool sharded;
    uint64_t tokens;
    rvli_parameter *parameters;
    uint32_t parameter_count;
    uint32_t parameter_room;
    rvli_unit *units; /* the layers, and the root behind them */
    uint32_t at;      /* the layer that runs; RVL_MODEL_NO_LAYER: none does */
    rvli_block workspaces[RVLI_WORKSPACE_COUNT];
    rvli_block first_bucket[2];          /* of DDP, until its second pass: in fp32; all others */
    rvli_block held_bucket[2];           /* the same in that pass */
    const rvli_parameter *closes_bucket; /* its gradient fills the first of the buckets that stay */
    bool bucket_reduced;                 /* and has come: held buckets go */
    rvli_block gather_buffer; /* what the last gathering left to be copied, or has fetched ahead */
    rvli_block reduce_input;
    rvli_block masks[2]; /* of full attention, and of a window */
    rvli_block *chunks;  /* of a chunked loss: gradients of their hidden states */
    rvli_block fetched;  /* from the host, for the node of autograd that runs, and the one before */
    rvli_block fetched_before;
} rvli_training;

/* What a run of the program has shown. */
typedef struct rvli_trained {
    rvli_moment passes; /* the fullest moment of forward and backward pass, steady state */
    rvli_moment update; /* of the optimizer's step */
    uint64_t reserved_bytes;
    uint64_t requested_bytes; /* the most that was live at once, as it was asked for */
    uint64_t host_bytes;
} rvli_trained;

/* ---- training.c: loading, steps ---- */

/* Cosines and sines of one sequence's positions. */
void rvli_rotary_make(rvli_training *t, uint64_t width, rvli_block *rotary);
/* Of each head, what has positions. */
uint64_t rvli_rotary_width(const rvl_model *model);
/* ERNIE's: they stay in fp32. */
bool rvli_angles_are_wide(const rvli_training *t);

/* Runs loading, and steps until one reserves no more than the last. RVL_ERR_HOST_OOM. */
rvl_status rvli_training_run(const rvl_model *model, const rvli_training_shape *shape,
                             const rvli_tape_listener *listener, rvli_trained *trained_out);

/* ---- remembered.c ---- */

/*
 * The same without being told, and only once for each shape, unless segments are wanted: shown, in
 * which nothing is yet, gets them. NULL: nobody wants them. RVL_ERR_HOST_OOM. Thread-safe.
 */
rvl_status rvli_training_recall(const rvl_model *model, const rvli_training_shape *shape,
                                rvli_shown *shown, rvli_trained *trained_out);

/* ---- What the parts share ---- */

static inline rvli_block rvli_activation(rvli_training *t, uint64_t bytes)
{
    return rvli_take(&t->tape, RVL_MODEL_ACTIVATIONS, bytes);
}

/* As it was asked for; 0 where host memory has run out. */
static inline uint64_t rvli_bytes_of(rvli_block block)
{
    return block != NULL ? block->requested : 0;
}

/* Releases what DDP's first bucket was. */
void rvli_buckets_release(rvli_training *t);

/* Autograd first frees what an operation kept. Then DDP is told of the gradients that it made. */
static inline void rvli_release(rvli_training *t, rvli_block *block)
{
    rvli_drop(&t->tape, *block);
    *block = NULL;
    if (t->bucket_reduced)
        rvli_buckets_release(t);
}

/* What is worked out from a tensor that then goes. */
static inline rvli_block rvli_next(rvli_training *t, uint64_t bytes, rvli_block *before)
{
    rvli_block made = rvli_activation(t, bytes);
    rvli_release(t, before);
    return made;
}

/* Bytes of an element of a share, and of its gradient. */
static inline uint64_t rvli_share_bytes(const rvli_training *t)
{
    return rvli_is_mixed(t->options->flags) ? RVLI_FULL : RVLI_HALF;
}

/* With LoRA all is frozen but the adapters. */
static inline bool rvli_is_frozen(const rvli_training *t)
{
    return t->options->lora_rank > 0;
}

/* Bytes of an element of an adapter, of its gradient, and of what reduces it. */
static inline uint64_t rvli_adapter_bytes(const rvli_training *t)
{
    return t->options->flags & RVL_MODEL_BF16_ADAPTERS ? RVLI_HALF : RVLI_FULL;
}

static inline bool rvli_is_base_quantised(const rvli_training *t)
{
    return t->options->base_dtype != RVL_MODEL_BASE_BF16;
}

/* Embedding, norms and head in fp32: so is what layers pass on, and what is not a product. */
static inline bool rvli_is_wide(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_PREPARE_KBIT) != 0;
}

/* Bytes of an element of what layers pass on. */
static inline uint64_t rvli_flow_bytes(const rvli_training *t)
{
    return rvli_is_wide(t) ? RVLI_FULL : RVLI_HALF;
}

/* Shards, their gradients and states. */
static inline bool rvli_is_on_host(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_CPU_OFFLOAD) != 0;
}

static inline bool rvli_is_offloaded(const rvli_training *t)
{
    return (t->options->flags & RVL_MODEL_OFFLOAD) != 0;
}

/* Hunyuan's and ERNIE's routers are in fp32 in the module. FSDP2 refuses that, so there they are
 * not. */
static inline bool rvli_is_wide_router(const rvli_training *t, rvli_role role)
{
    return role == RVLI_ROLE_ROUTER && !t->sharded && (t->model->features & RVLI_SHARED_FIRST) != 0;
}

/* As the layer that runs has it. */
static inline uint64_t rvli_dim_here(const rvli_training *t, rvli_dim dim)
{
    return rvli_layer_dim(t->model, t->at, dim);
}

static inline uint64_t rvli_kv_heads_here(const rvli_training *t)
{
    return rvli_layer_kv_heads(t->model, t->at);
}

static inline rvli_unit *rvli_root(const rvli_training *t)
{
    return &t->units[t->model->layers];
}

/* The first call makes it. */
void rvli_workspace(rvli_training *t, rvli_workspace_name name);

/* ---- parameters.c ---- */

void rvli_parameters_make(rvli_training *t);

/* The role of a module of a layer, or of the model, by the last part of its name ("q_proj"), or
 * that of a parameter. RVLI_ROLE_OTHER: there is none. */
rvli_role rvli_role_named(const rvli_training *t, const char *name, size_t length);

/* A unit's parameter: the root's stand before and behind the layers. */
rvli_parameter *rvli_parameter_of(const rvli_training *t, const rvli_unit *unit, uint32_t index);

/* ---- gradients.c ---- */

/* What the sum over rows takes for a moment. */
void rvli_rows_summed(rvli_training *t, uint64_t rows, uint64_t width);

/* ---- nf4.c ---- */

/* A weight in bf16 for one product, and its scales in fp32. */
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

typedef struct rvli_attention_gradients {
    rvli_block q, k, v;
} rvli_attention_gradients;

/* What flash attention's backward pass works in, for so many queries of each sequence. */
void rvli_flash_works(rvli_training *t, uint64_t seq_len);

/* Of the layer that runs: whether keys and values are copied for each head of q; what a mask and
 * the sums take; what kernels work in. */
bool rvli_sdpa_repeats(const rvli_training *t);
uint64_t rvli_sdpa_mask_bytes(const rvli_training *t);
uint64_t rvli_sdpa_sums_bytes(const rvli_training *t);
void rvli_sdpa_forward_works(rvli_training *t);
void rvli_sdpa_backward_works(rvli_training *t);

/* By plain operations, or over parts of each sequence: makes a->output. */
void rvli_sdpa_forward(rvli_training *t, rvli_attended *a, bool kept);
/* Takes the gradient of the output, and what is kept. */
void rvli_sdpa_backward(rvli_training *t, rvli_attended *a, rvli_block *of_output,
                        rvli_attention_gradients *gradients_out);

/* ---- wide_heads.c: what efficient kernels work in for heads of more than 256 ---- */

void rvli_wide_forward_works(rvli_training *t);
void rvli_wide_backward_works(rvli_training *t);

/* ---- ring.c: attention of a rank that has a part of each sequence ---- */

/* Whether it is so: PyTorch's context_parallel() beside FSDP2. */
bool rvli_is_ring(const rvli_training *t);
void rvli_ring_mask_make(rvli_training *t);
void rvli_ring_forward(rvli_training *t, rvli_attended *a, bool kept);
/* Of k and v there is one block, in the place of that of v. */
void rvli_ring_backward(rvli_training *t, rvli_block *of_output,
                        rvli_attention_gradients *gradients_out);

/* ---- sharding.c: FSDP2 around the units; without it nothing happens ---- */

void rvli_gather_forward(rvli_training *t, rvli_unit *unit);
void rvli_gather_backward(rvli_training *t, rvli_unit *unit, rvli_unit *next);
/* With --reshard: behind the forward pass of a unit. */
void rvli_reshard_forward(rvli_training *t, rvli_unit *unit);
void rvli_reduce(rvli_training *t, rvli_unit *unit);

/* ---- buckets.c: of DDP ---- */

void rvli_buckets_make(rvli_training *t);
/* Before the second forward pass. Returns whether there were any to make again. */
bool rvli_buckets_rebuild(rvli_training *t);
/* A gradient has come. */
void rvli_buckets_ready(rvli_training *t, const rvli_parameter *parameter);

/* ---- offload.c: without --offload-activations nothing happens ---- */

/* Before a forward pass. */
void rvli_offload_begin(rvli_training *t);

/* Brings a tensor back; when its node has run, what the node before had goes; all goes at the end.
 */
void rvli_fetch(rvli_training *t, rvl_model_term holder, uint64_t bytes);
void rvli_fetched(rvli_training *t);
void rvli_fetch_end(rvli_training *t);

/* ---- host.c ---- */

uint64_t rvli_host_bytes(const rvli_training *t);
/* What pinned memory of so many bytes takes. */
uint64_t rvli_pinned_bytes(uint64_t bytes);

/* ---- optimizer.c ---- */

void rvli_optimizer_step(rvli_training *t);

#endif
