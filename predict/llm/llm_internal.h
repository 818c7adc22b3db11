/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of predict/llm.
 *
 * A config becomes an rvl_model: dimensions, features, and the kind of each layer. One table of
 * tensor rules (tensors.c), selected by features, gives every parameter. All terms of a step follow
 * from walks over the parameters.
 */
#ifndef RVL_PREDICT_LLM_LLM_INTERNAL_H
#define RVL_PREDICT_LLM_LLM_INTERNAL_H

#include "reveille/model.h"

#define RVLI_MODEL_LAYERS_MAX 1024
#define RVLI_MODEL_EXPERTS_MAX 4096
#define RVLI_MODEL_ALL_EXPERTS_MAX 131072 /* in all layers together */
#define RVLI_MODEL_DIM_MAX (UINT64_C(1) << 24)
#define RVLI_MODEL_PARAMETERS_MAX (UINT64_C(1) << 48)
#define RVLI_MODEL_RULES_MAX 192
#define RVLI_MIB (UINT64_C(1) << 20)

/* Features that rules and formulas depend on. */
#define RVLI_GQA (UINT64_C(1) << 0) /* q, k, v projections */
#define RVLI_MLA (UINT64_C(1) << 1) /* DeepSeek's latent attention */
#define RVLI_Q_LORA (UINT64_C(1) << 2)
#define RVLI_QKV_BIAS (UINT64_C(1) << 3)
#define RVLI_O_BIAS (UINT64_C(1) << 4)
#define RVLI_QK_NORM (UINT64_C(1) << 5) /* for each head */
#define RVLI_MLP_BIAS (UINT64_C(1) << 6)
#define RVLI_FOUR_NORMS (UINT64_C(1) << 7) /* Gemma: norms before and after both blocks */
#define RVLI_SHARED (UINT64_C(1) << 8)     /* an expert that all tokens go through */
#define RVLI_SHARED_GATE (UINT64_C(1) << 9)
#define RVLI_ROUTER_BIAS (UINT64_C(1) << 10)  /* added to scores only to choose experts */
#define RVLI_HEAD (UINT64_C(1) << 11)         /* not tied to the embedding */
#define RVLI_INDEXER (UINT64_C(1) << 12)      /* DeepSeek: selects the tokens for attention */
#define RVLI_WIDE_QK_NORM (UINT64_C(1) << 13) /* one norm over all heads */
#define RVLI_NORMS_BEHIND (UINT64_C(1) << 14) /* OLMo 2: norms only after both blocks */
#define RVLI_GLM_NORMS (UINT64_C(1) << 15)    /* GLM 4: as Gemma's, with other names */
#define RVLI_ONE_NORM (UINT64_C(1) << 16)     /* a layer is one block with a norm before it */
#define RVLI_NO_GATE (UINT64_C(1) << 17)      /* MLP and experts have only up and down */
#define RVLI_EXPERT_BIAS (UINT64_C(1) << 18)  /* biases of experts and router */
#define RVLI_SINKS (UINT64_C(1) << 19)        /* a logit for each head that attends to no token */
#define RVLI_FUSED_QKV (UINT64_C(1) << 20)    /* one parameter, in the checkpoint as well */
#define RVLI_FUSED_UP (UINT64_C(1) << 21)     /* as RVLI_FUSED_QKV, for gate and up */
#define RVLI_GATED_Q (UINT64_C(1) << 22)      /* q_proj also gives a gate for the output */
#define RVLI_SPLIT_DELTA (UINT64_C(1) << 23)  /* Qwen3.5: four input projections, not two */
#define RVLI_CONV_BIAS (UINT64_C(1) << 24)
#define RVLI_HEAD_BIAS (UINT64_C(1) << 25)
#define RVLI_ALTUP (UINT64_C(1) << 26) /* Gemma 3n: four streams of hidden states */
/* How a training step computes. */
#define RVLI_NORM_IN_FULL (UINT64_C(1) << 27)  /* norms multiply by their weight in fp32 */
#define RVLI_JOINED_ROTARY (UINT64_C(1) << 28) /* a head's rotated and other parts are joined */
#define RVLI_SCALED_INPUT (UINT64_C(1) << 29)  /* embeddings are multiplied by a number */
#define RVLI_CAPPED_LOGITS (UINT64_C(1) << 30) /* logits: divide, tanh, multiply */
#define RVLI_ALL_EXPERTS (UINT64_C(1) << 31)   /* each token goes to all, weighted before */
#define RVLI_QK_L2_NORM (UINT64_C(1) << 32)    /* after the rotation, without a weight */
#define RVLI_FULL_ROUTER (UINT64_C(1) << 33)   /* the router takes hidden states in fp32 */
#define RVLI_NO_ROTARY (UINT64_C(1) << 35)     /* attention has no positions */
#define RVLI_NUMBERS                                                                               \
    (UINT64_C(1) << 36) /* Granite: numbers multiply each block's output and divide the logits */

#define RVLI_SHARED_FIRST (UINT64_C(1) << 38)  /* RVLI_SHARED runs before the router */
#define RVLI_XIELU (UINT64_C(1) << 39)         /* RVLI_NO_GATE: the activation has parameters */
#define RVLI_CENTRED_NORM (UINT64_C(1) << 44)  /* Cohere: norms subtract the mean, in fp32 */
#define RVLI_PARALLEL (UINT64_C(1) << 45)      /* attention and MLP share one norm's output */
#define RVLI_LAYER_NORM (UINT64_C(1) << 49)    /* norms are PyTorch's LayerNorm, with a bias */
#define RVLI_DROPOUT (UINT64_C(1) << 51)       /* on each block's output */
#define RVLI_INPUT_DROPOUT (UINT64_C(1) << 52) /* on embeddings */
#define RVLI_SPARSE_MIXER (UINT64_C(1) << 53)  /* Phi's router: two random draws in training */
#define RVLI_JITTER (UINT64_C(1) << 54)        /* noise on the input of experts and router */
#define RVLI_HYBRID (UINT64_C(1) << 55)        /* Falcon-H1: Mamba and attention, multipliers */
#define RVLI_PLAIN_NORM (UINT64_C(1) << 56)    /* norms without weights, one before the layers */

#define RVLI_PER_LAYER (UINT64_C(1) << 58)   /* an embedding of each token for each layer */
#define RVLI_LAYER_SCALE (UINT64_C(1) << 60) /* a number in a buffer scales the output */

/* Tokens in a chunk of the gated delta rule: the default of chunk_size. */
#define RVLI_DELTA_CHUNK UINT64_C(64)

/* Parts of a layer. */
enum {
    RVLI_LAYER_ATTENTION = 1 << 0,
    RVLI_LAYER_KEYS = 1 << 1,   /* makes and caches its own keys and values */
    RVLI_LAYER_WINDOW = 1 << 2, /* attention sees only the last tokens */
    RVLI_LAYER_DELTA = 1 << 3,  /* a gated delta net */
    RVLI_LAYER_MAMBA = 1 << 4,  /* Mamba 2 */
    RVLI_LAYER_DENSE = 1 << 5,  /* an MLP */
    RVLI_LAYER_SPARSE = 1 << 6, /* experts */
    RVLI_LAYER_CUT = 1 << 7,    /* an MLP that zeroes gate values below a cutoff */
    RVLI_LAYER_CONV = 1 << 8,   /* LFM2's short convolution */
};

/* Layers with other sizes than the rest (layer_sizes.c). */
enum {
    RVLI_LAYER_WIDE_HEADS = 1 << 12, /* heads of the other size */
    RVLI_LAYER_WIDE_MLP = 1 << 13,
    RVLI_LAYER_KEYS_AS_VALUES = 1 << 14, /* one projection for keys and values */
};

/* The layer has a state instead of attention. */
#define RVLI_LAYER_STATE (RVLI_LAYER_DELTA | RVLI_LAYER_MAMBA | RVLI_LAYER_CONV)

typedef enum rvli_dim {
    RVLI_DIM_ONE,
    RVLI_DIM_HIDDEN,
    RVLI_DIM_VOCABULARY,
    RVLI_DIM_HEAD,
    RVLI_DIM_HEADS,
    RVLI_DIM_Q,        /* of all heads */
    RVLI_DIM_Q_OUT,    /* q_proj's rows, with its gate */
    RVLI_DIM_KV,       /* of all KV heads */
    RVLI_DIM_ATTENDED, /* input of the output projection */
    RVLI_DIM_ROTARY,   /* the rotated elements of each head */
    RVLI_DIM_INTERMEDIATE,
    RVLI_DIM_EXPERT_INTERMEDIATE,
    RVLI_DIM_SHARED_INTERMEDIATE,
    RVLI_DIM_EXPERTS,
    RVLI_DIM_EXPERT_GROUPS, /* that a router chooses from first; 1: it does not */
    RVLI_DIM_Q_LORA,
    RVLI_DIM_KV_LORA,
    RVLI_DIM_KV_DOWN, /* compressed KV with the rotary part */
    RVLI_DIM_KV_UP,
    RVLI_DIM_INDEX_HEADS,
    RVLI_DIM_INDEX_HEAD,
    RVLI_DIM_INDEX,        /* of all the indexer's heads */
    RVLI_DIM_INDEX_CHOSEN, /* tokens that attention sees at most */
    RVLI_DIM_CONV_KERNEL,
    RVLI_DIM_THREE_HIDDEN, /* input projection of a short convolution */
    RVLI_DIM_DELTA_HEADS,  /* of values */
    RVLI_DIM_DELTA_HEAD,
    RVLI_DIM_DELTA_VALUE, /* of all heads */
    RVLI_DIM_DELTA_CONV,  /* q, k, v of all heads */
    RVLI_DIM_DELTA_IN,    /* q, k, v and gate of all heads */
    RVLI_DIM_DELTA_RATES, /* two for each head */
    RVLI_DIM_MAMBA_HEADS,
    RVLI_DIM_MAMBA_INNER,
    RVLI_DIM_MAMBA_CONV,
    RVLI_DIM_MAMBA_IN,
    RVLI_DIM_ALTUP_COUNT,
    RVLI_DIM_ALTUP_SQUARED,
    RVLI_DIM_ALTUP_OTHERS, /* hidden size of all streams except the first */
    RVLI_DIM_LAUREL,
    RVLI_DIM_PER_LAYER,
    RVLI_DIM_PER_LAYER_ALL, /* of all layers */
    RVLI_DIM_PER_LAYER_VOCABULARY,
    RVLI_DIM_WIDE_HEAD, /* of layers with RVLI_LAYER_WIDE_HEADS */
    RVLI_DIM_WIDE_Q,
    RVLI_DIM_WIDE_KV,
    RVLI_DIM_WIDE_INTERMEDIATE,
    RVLI_DIM_COUNT
} rvli_dim;

/* Kinds of towers, with the families that have them. */
enum {
    RVLI_TOWER_SIGLIP = 1 << 0,  /* gemma3 */
    RVLI_TOWER_PIXTRAL = 1 << 1, /* mistral3 */
    RVLI_TOWER_QWEN25 = 1 << 2,
    RVLI_TOWER_QWEN3 = 1 << 3,
    RVLI_TOWER_LLAMA4 = 1 << 4,
    RVLI_TOWER_KIMI = 1 << 5,
    RVLI_TOWER_QWEN2 = 1 << 6,
    RVLI_TOWER_GLM = 1 << 7, /* glm4v, glm4v_moe */
};

/* Dimensions of a tower, which turns images or sound into embeddings. towers.c has its
 * parameters. */
typedef enum rvli_tower_dim {
    RVLI_TOWER_ONE,
    RVLI_TOWER_HIDDEN,
    RVLI_TOWER_THREE_HIDDEN, /* q, k, v in one parameter */
    RVLI_TOWER_INTERMEDIATE,
    RVLI_TOWER_PATCH,     /* values in a patch of the image */
    RVLI_TOWER_POSITIONS, /* positions with embeddings */
    RVLI_TOWER_MERGED,    /* hidden size of the patches that are merged into one token */
    RVLI_TOWER_OUT,
    RVLI_TOWER_TEXT, /* hidden size of the language model */
    RVLI_TOWER_ADAPTER,
    RVLI_TOWER_PROJECTED, /* input of the projector */
    RVLI_TOWER_DIM_COUNT
} rvli_tower_dim;

typedef struct rvli_tower {
    uint32_t kind; /* 0: none */
    bool pools;    /* SigLIP: has a head that makes one vector from an image */
    uint32_t layers;
    uint32_t deep; /* layers that also feed the language model, each through a merger */
    uint64_t dim[RVLI_TOWER_DIM_COUNT];
} rvli_tower;

/* The elements of a matrix that share a scale: a block of rows x columns. */
typedef struct rvli_scales {
    uint64_t rows; /* 0: all */
    uint64_t columns;
    uint64_t bytes; /* of one scale */
    bool zeros;     /* each scale has a zero point, with as many bits as an element */
} rvli_scales;

struct json_t;

/* Results that were worked out for a model earlier (step/remembered.c). */
typedef struct rvli_remembered rvli_remembered;

rvli_remembered *rvli_remembered_new(void);
void rvli_remembered_free(rvli_remembered *memory);

struct rvl_model {
    const char *type;
    rvli_remembered *remembered;
    uint64_t features;
    uint32_t layers;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t wide_kv_heads; /* of layers with RVLI_LAYER_WIDE_HEADS */
    uint32_t delta_key_heads;
    uint32_t mamba_groups;
    uint64_t mamba_chunk;       /* tokens in a chunk of its scan */
    uint64_t mamba_group_width; /* rows of one group in Mamba's projection and convolution */
    uint64_t state_elements;    /* for one sequence, in one layer with a state, over all ranks */
    uint64_t state_bytes;       /* of one of these elements */
    uint64_t window;            /* tokens that a layer with a window sees */
    uint32_t experts;           /* 0: a dense model */
    uint32_t experts_per_token;
    rvl_model_dtype weights_dtype; /* from quantization_config; AUTO: not known */
    rvl_model_dtype kv_dtype;      /* from quantization_config; AUTO: not known */
    rvli_scales scales;            /* of weights_dtype */
    uint64_t dim[RVLI_DIM_COUNT];
    uint64_t parameters;
    uint16_t kinds[RVLI_MODEL_LAYERS_MAX]; /* RVLI_LAYER_* */
    /* a bit for each rule with a tensor that stays bf16 */
    uint64_t kept[RVLI_MODEL_LAYERS_MAX][RVLI_MODEL_RULES_MAX / 64];
    rvli_tower tower;
};

static inline bool rvli_layer_is(const rvl_model *model, uint32_t layer, unsigned kind)
{
    return (model->kinds[layer] & kind) != 0;
}

static inline bool rvli_has_layers(const rvl_model *model, unsigned kind)
{
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        if (rvli_layer_is(model, layer, kind))
            return true;
    }
    return false;
}

/* Options with defaults filled in, checked. */
typedef struct rvli_plan {
    rvl_model_options options;
    rvl_profile device;
    uint32_t first_layer; /* of the pipeline stage */
    uint32_t layer_count;
    uint32_t mamba_groups; /* of the rank */
    uint64_t vocabulary_rows;
    rvli_scales scales; /* of the engine's weights */
    bool as_config;     /* the config's own type: its scales and kept modules apply */
} rvli_plan;

/* A list of sizes in bytes. failed: out of memory, sizes are missing. */
typedef struct rvli_sizes {
    uint64_t *items;
    size_t count;
    size_t room;
    uint64_t total;
    bool failed;
} rvli_sizes;

void rvli_sizes_add(rvli_sizes *sizes, uint64_t bytes);
void rvli_sizes_free(rvli_sizes *sizes);

/* Remainders of segments by size. There are few sizes, since layers are alike. */
typedef struct rvli_remainders {
    uint64_t segment_bytes;
    uint64_t useless_bytes; /* a remainder of this size or less fits no request of this pool */
    uint64_t *sizes;        /* ascending */
    uint64_t *counts;
    size_t count;
    size_t room;
} rvli_remainders;

/* Packs long-lived tensors into the segments that PyTorch's caching allocator requests. */
typedef struct rvli_packer {
    rvli_sizes *segments;
    rvli_remainders small;
    rvli_remainders large;
} rvli_packer;

void rvli_packer_begin(rvli_packer *packer, rvli_sizes *segments);
void rvli_packer_add(rvli_packer *packer, uint64_t bytes);
void rvli_packer_end(rvli_packer *packer);

uint64_t rvli_round_up(uint64_t value, uint64_t step);

/* A parameter. Its name is made from the pattern. */
typedef struct rvli_tensor {
    const char *pattern; /* %L is the layer, %E the expert */
    uint32_t layer;
    uint32_t expert;
    uint64_t rows;
    uint64_t columns;
    uint64_t stack; /* how many matrices of this shape make one parameter */
} rvli_tensor;

/* Elements of a rank's padded share. FSDP2 splits a matrix by rows, and a stack by matrices. */
uint64_t rvli_tensor_share(const rvli_tensor *tensor, uint64_t ranks);

/* Whether the loss gives the parameter a gradient. An indexer, the bias of the choice of experts
 * and Gemma 4's layer_scalar get none. */
bool rvli_tensor_learns(const rvli_tensor *tensor);

typedef void (*rvli_tensor_fn)(void *user, const rvli_tensor *tensor);
typedef void (*rvli_bytes_fn)(void *user, uint64_t bytes);

/* Visits every parameter of the language model, as in the checkpoint. */
void rvli_model_walk(const rvl_model *model, rvli_tensor_fn fn, void *user);

/* Visits every parameter as transformers trains it: the experts of a layer are two stacks, and so
 * are their biases. */
void rvli_model_walk_trained(const rvl_model *model, rvli_tensor_fn fn, void *user);

/* Visits the parameters of the tower. Their layers are not those of the language model. */
void rvli_tower_walk(const rvl_model *model, rvli_tensor_fn fn, void *user);

/* Visits the tower's tensors on one rank of an engine. */
void rvli_tower_walk_engine(const rvl_model *model, const rvli_plan *plan, rvli_bytes_fn fn,
                            void *user);

/* Number of the tower's parameters. */
uint64_t rvli_tower_count(const rvl_model *model);

/* Whether PEFT has default targets for the model's family. */
bool rvli_has_lora_default(const rvl_model *model);

/* What PEFT makes of "all-linear" for a family. */
typedef enum rvli_lora_rule {
    RVLI_LORA_LINEAR,     /* adapters of each nn.Linear */
    RVLI_LORA_PARAMETERS, /* adapters of experts and routers, which are parameters, not of MLPs */
    RVLI_LORA_REFUSED,    /* PEFT refuses it */
    RVLI_LORA_FAILS,      /* it adapts the router, with which the forward pass fails */
    RVLI_LORA_UNKNOWN,    /* no run has shown it */
} rvli_lora_rule;

rvli_lora_rule rvli_all_linear_rule(const rvl_model *model);

/* Whether the tensor is the weight of an nn.Linear other than the head. */
bool rvli_is_linear(const rvl_model *model, const rvli_tensor *tensor);

/* Whether LoRA adds an adapter to a parameter; if so, its two matrices. A rank of 0 adds none. */
bool rvli_adapter_of(const rvl_model *model, uint32_t rank, rvl_model_lora_targets targets,
                     const rvli_tensor *tensor, rvli_tensor parts_out[2]);

/* ---- nf4.c ---- */

/* Tensors of a quantised weight: packed elements, scales, and their tables. */
#define RVLI_NF4_PARTS 6
#define RVLI_NF4_PACKED 1 /* the packed elements: the only part that FSDP2 splits */

/* Whether a parameter of a frozen base is quantised: linear layers, except the head. */
bool rvli_is_quantised(const rvl_model *model, rvl_model_base_dtype base,
                       const rvli_tensor *tensor);

/* Bytes of each of a weight's tensors; 0: it has no such tensor. */
void rvli_nf4_parts(rvl_model_base_dtype base, uint64_t elements,
                    uint64_t bytes_out[RVLI_NF4_PARTS]);

/* Elements of two bytes in a rank's padded share of a parameter. A quantised parameter is stored
 * as a column of bf16 with four elements in each, so that FSDP2 can split it
 * (bnb_4bit_quant_storage). */
uint64_t rvli_base_share(const rvl_model *model, rvl_model_base_dtype base,
                         const rvli_tensor *tensor, uint64_t ranks);

/* Bytes of a weight's scales in fp32. */
uint64_t rvli_nf4_scales_bytes(uint64_t elements);

/* Visits every tensor of one rank of an engine: fused, split, quantised. */
void rvli_model_walk_engine(const rvl_model *model, const rvli_plan *plan, rvli_bytes_fn fn,
                            void *user);

typedef bool (*rvli_module_fn)(void *user, const char *name);

/* Keeps a layer's matrices in bf16 if their module name ("model.layers.0.mlp.up_proj") matches. */
void rvli_model_keep(rvl_model *model, uint32_t layer, rvli_module_fn matches, void *user);

/* Default scales of a type, if the config does not give them. */
rvli_scales rvli_scales_of(rvl_model_dtype dtype);

/* Reads types, scales and kept modules from a quantization_config. NULL: there is none. */
void rvli_quantisation_read(const struct json_t *config, rvl_model *model);

/* Writes a tensor's name from its pattern. Cut to `size`. */
void rvli_tensor_name(const char *pattern, uint32_t layer, uint32_t expert, char *name,
                      size_t size);

/* Number of the language model's parameters, by multiplication. RVLI_MODEL_PARAMETERS_MAX + 1: more
 * than the maximum. */
uint64_t rvli_model_count(const rvl_model *model);

/* Sets the layers of a pipeline stage in *plan. */
void rvli_plan_set_stage(const rvl_model *model, uint32_t stage, rvli_plan *plan);

/* ---- layer_sizes.c ---- */

/* The size of a dimension in this layer. */
uint64_t rvli_layer_dim(const rvl_model *model, uint32_t layer, rvli_dim dim);
uint32_t rvli_layer_kv_heads(const rvl_model *model, uint32_t layer);

/* KV heads of a layer on one rank of an engine. */
uint64_t rvli_rank_kv_heads(const rvl_model *model, const rvli_plan *plan, uint32_t layer);

/* ---- cache.c ---- */

/* Bytes of a sequence of --seq-len tokens on the plan's stage. */
uint64_t rvli_cache_sequence_bytes(const rvl_model *model, const rvli_plan *plan);

/* Tokens of such sequences that fit in `room` bytes. UINT64_MAX: the stage caches nothing. */
uint64_t rvli_cache_tokens(const rvl_model *model, const rvli_plan *plan, uint64_t room);

/* Adds the cache's buffers for this many tokens. */
void rvli_cache_add(const rvl_model *model, const rvli_plan *plan, uint64_t tokens,
                    rvli_sizes *sizes);

/* Fills in and checks options. */
rvl_status rvli_plan_make(const rvl_model *model, const rvl_model_options *options,
                          rvli_plan *plan_out);

/* Number of a rank's NCCL communicators: those with collectives, and those that only send. */
typedef struct rvli_communicators {
    uint64_t collective;
    uint64_t sending;
} rvli_communicators;

rvli_communicators rvli_nccl_of_engine(const rvl_model_options *options);
rvli_communicators rvli_nccl_of_trainer(const rvl_model *model, const rvl_model_options *options);
uint64_t rvli_plan_nccl_bytes(rvli_communicators count);

/* ---- settings.c ---- */

/* Gives settings at 0 their default, unless the default depends on the model or the device. */
void rvli_model_settings_fill(rvl_model_options *options);

/* All flags that are settings. */
uint64_t rvli_model_settings_flags(void);

/* Checks that each setting is in its range, and has what it needs of the others. Defaults are
 * filled in. */
rvl_status rvli_model_settings_check(const rvl_model_options *options);

/* Refuses what megatron-core refuses. */
rvl_status rvli_plan_check_megatron(const rvl_model *model, const rvl_model_options *options);

/* bitsandbytes: states of smaller tensors stay in fp32. Each block has a scale. */
#define RVLI_STATE_BLOCK 256
#define RVLI_STATE_8BIT_ELEMENTS_MIN 4096
#define RVLI_STATE_PAGED_ELEMENTS_MIN 100000

typedef struct rvli_optimizer_kind {
    unsigned states; /* number of states of a parameter */
    unsigned bytes;  /* of each state, for each element */
    bool blocks;     /* states have 8 bits, with scales */
    bool master;     /* with a copy of the parameter in fp32 */
    bool paged;      /* states of large tensors are in managed memory */
} rvli_optimizer_kind;

extern const rvli_optimizer_kind rvli_optimizer_kinds[]; /* index: rvl_model_optimizer */

/* Whether the shards are in fp32: the optimizer updates them without a separate copy. */
static inline bool rvli_is_mixed(uint64_t flags)
{
    return (flags & RVL_MODEL_MIXED) != 0;
}

/* One term: its allocations, and whether its size was given. */
typedef struct rvli_term {
    rvli_sizes sizes;
    bool given;
    bool assumed; /* a size measured with other programs */
} rvli_term;

/* Moments of training that a trace shows: the fullest moment of forward and backward pass, and that
 * of the optimizer's step. */
enum { RVLI_MOMENT_PASSES, RVLI_MOMENT_UPDATE, RVLI_MOMENT_COUNT };

struct rvli_shown;

typedef struct rvli_terms {
    rvli_term term[RVL_MODEL_TERM_COUNT];
    bool by_program; /* training is what the step's program showed; else terms add up */
    uint64_t moments[RVLI_MOMENT_COUNT][RVL_MODEL_TERM_COUNT];
    struct rvli_shown *shown; /* NULL: only the moments are shown */
    /* ALL_GATHER and LOGITS in a pass without gradients */
    rvli_sizes forward[RVL_MODEL_TERM_COUNT];
    uint64_t tokens;
    bool without_nccl[RVL_MODEL_TERM_COUNT]; /* ranks communicate, but NCCL is not counted */
} rvli_terms;

/* Makes all terms of a step. On failure there is nothing to free. */
rvl_status rvli_terms_make(const rvl_model *model, const rvli_plan *plan, rvli_terms *terms_out);
void rvli_terms_free(rvli_terms *terms);

/* Bytes per token that attention, or the experts of a layer, keep for the backward pass. */
uint64_t rvli_attention_kept_bytes(const rvl_model *model, uint32_t layer);
uint64_t rvli_experts_kept_bytes(const rvl_model *model);
const char *rvli_term_tag(rvl_model_term term, rvl_model_train train);

/* A comment before an event. */
typedef struct rvli_comment {
    size_t event;
    const char *text;
} rvli_comment;

#define RVLI_COMMENTS_MAX 8

struct rvl_model_step {
    rvli_terms terms;
    rvl_trace_device device;
    rvl_model_train train;
    uint64_t time_ns;
    uint64_t last_id[2];
    rvl_trace_event *events;
    size_t event_count;
    size_t event_room;
    rvli_comment comments[RVLI_COMMENTS_MAX];
    size_t comment_count;
    char *header; /* comment lines of the trace's header */
    bool failed;  /* out of memory */
};

/* Makes the events of a step from its terms. */
void rvli_step_play(rvl_model_step *step, const rvli_plan *plan);

/* Returns the comment lines of a step's header. NULL: out of memory. */
char *rvli_step_describe(const rvl_model_step *step, const rvl_model *model, const rvli_plan *plan);

/* Fills the thread's error record. Returns status. */
rvl_status rvli_model_fail(rvl_status status, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
