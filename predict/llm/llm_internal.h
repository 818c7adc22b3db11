/* SPDX-License-Identifier: MIT */
/*
 * What the files of predict/llm share.
 *
 * A config becomes a shape: dimensions, features, and which layers are sparse. One table of tensor
 * rules (tensors.c), picked from by features, gives every parameter; all terms of a step follow
 * from walks over it.
 */
#ifndef RVL_PREDICT_LLM_LLM_INTERNAL_H
#define RVL_PREDICT_LLM_LLM_INTERNAL_H

#include "reveille/model.h"

#define RVLI_MODEL_LAYERS_MAX 1024
#define RVLI_MODEL_EXPERTS_MAX 4096
#define RVLI_MODEL_ALL_EXPERTS_MAX 131072 /* of all layers together */
#define RVLI_MODEL_DIM_MAX (UINT64_C(1) << 24)
#define RVLI_MODEL_PARAMETERS_MAX (UINT64_C(1) << 48)
#define RVLI_MODEL_RULES_MAX 192
#define RVLI_MIB (UINT64_C(1) << 20)

/* What a rule or a formula may depend on. */
#define RVLI_GQA (UINT64_C(1) << 0) /* q, k, v projections */
#define RVLI_MLA (UINT64_C(1) << 1) /* DeepSeek's latent attention */
#define RVLI_Q_LORA (UINT64_C(1) << 2)
#define RVLI_QKV_BIAS (UINT64_C(1) << 3)
#define RVLI_O_BIAS (UINT64_C(1) << 4)
#define RVLI_QK_NORM (UINT64_C(1) << 5) /* of each head */
#define RVLI_MLP_BIAS (UINT64_C(1) << 6)
#define RVLI_FOUR_NORMS (UINT64_C(1) << 7) /* Gemma: before and after both blocks */
#define RVLI_SHARED (UINT64_C(1) << 8)     /* an expert for all tokens */
#define RVLI_SHARED_GATE (UINT64_C(1) << 9)
#define RVLI_ROUTER_BIAS (UINT64_C(1) << 10)  /* added to the scores for the choice alone */
#define RVLI_HEAD (UINT64_C(1) << 11)         /* not tied to the embedding */
#define RVLI_INDEXER (UINT64_C(1) << 12)      /* DeepSeek's choice of the tokens attention sees */
#define RVLI_WIDE_QK_NORM (UINT64_C(1) << 13) /* over all heads at once */
#define RVLI_NORMS_BEHIND (UINT64_C(1) << 14) /* OLMo 2: after both blocks, none before */
#define RVLI_GLM_NORMS (UINT64_C(1) << 15)    /* GLM 4: as Gemma's, under other names */
#define RVLI_ONE_NORM (UINT64_C(1) << 16)     /* a layer is one block, with a norm before it */
#define RVLI_NO_GATE (UINT64_C(1) << 17)      /* MLP and experts: up and down alone */
#define RVLI_EXPERT_BIAS (UINT64_C(1) << 18)  /* the experts' and the router's */
#define RVLI_SINKS (UINT64_C(1) << 19)        /* a logit for each head that attends to nothing */
#define RVLI_FUSED_QKV (UINT64_C(1) << 20)    /* one parameter, in the checkpoint as well */
#define RVLI_FUSED_UP (UINT64_C(1) << 21)     /* the same of gate and up */
#define RVLI_GATED_Q (UINT64_C(1) << 22)      /* q_proj gives a gate for the output, too */
#define RVLI_SPLIT_DELTA                                                                           \
    (UINT64_C(1) << 23) /* Qwen3.5: four projections into the state, not two                       \
                         */
#define RVLI_CONV_BIAS (UINT64_C(1) << 24)
#define RVLI_HEAD_BIAS (UINT64_C(1) << 25)
#define RVLI_ALTUP (UINT64_C(1) << 26) /* Gemma 3n: four streams, embeddings for each layer */
/* What a step of training does beside its parameters. */
#define RVLI_NORM_IN_FULL (UINT64_C(1) << 27)  /* the norm's weight multiplies in fp32 */
#define RVLI_JOINED_ROTARY (UINT64_C(1) << 28) /* rotated and other parts of a head are joined */
#define RVLI_SCALED_INPUT (UINT64_C(1) << 29)  /* embeddings are multiplied by a number */
#define RVLI_CAPPED_LOGITS (UINT64_C(1) << 30) /* divided, tanh, multiplied */
#define RVLI_ALL_EXPERTS (UINT64_C(1) << 31)   /* each token goes to all of them, weighed before */
#define RVLI_QK_L2_NORM (UINT64_C(1) << 32)    /* behind the rotation, without a weight */
#define RVLI_FULL_ROUTER (UINT64_C(1) << 33)   /* it takes hidden states in fp32 */
#define RVLI_NO_ROTARY (UINT64_C(1) << 35)     /* attention knows no positions */
#define RVLI_NUMBERS                                                                               \
    (UINT64_C(1) << 36) /* Granite: numbers multiply what a block gives, and divide logits */

#define RVLI_SHARED_FIRST (UINT64_C(1) << 38)  /* RVLI_SHARED runs before the router */
#define RVLI_XIELU (UINT64_C(1) << 39)         /* RVLI_NO_GATE: an activation with parameters */
#define RVLI_CENTRED_NORM (UINT64_C(1) << 44)  /* Cohere: norms take the mean away, in fp32 */
#define RVLI_PARALLEL (UINT64_C(1) << 45)      /* attention and MLP take what one norm gives */
#define RVLI_LAYER_NORM (UINT64_C(1) << 49)    /* norms are PyTorch's, with a bias */
#define RVLI_DROPOUT (UINT64_C(1) << 51)       /* of what each block gives */
#define RVLI_INPUT_DROPOUT (UINT64_C(1) << 52) /* of embeddings */
#define RVLI_SPARSE_MIXER (UINT64_C(1) << 53)  /* Phi's router: two draws while it trains */
#define RVLI_JITTER (UINT64_C(1) << 54)        /* noise multiplies what experts and router get */
#define RVLI_HYBRID (UINT64_C(1) << 55)        /* Mamba and attention in one layer, and numbers */
#define RVLI_PLAIN_NORM (UINT64_C(1) << 56)    /* norms have no weights, one stands before layers */

#define RVLI_PER_LAYER (UINT64_C(1) << 58) /* an embedding of each token for each layer */
#define RVLI_LAYER_SCALE                                                                           \
    (UINT64_C(1) << 60) /* a number in a buffer multiplies what a layer gives */

/* Tokens of a chunk of the gated delta rule: the default of chunk_size. */
#define RVLI_DELTA_CHUNK UINT64_C(64)

/* What a layer is made of. */
enum {
    RVLI_LAYER_ATTENTION = 1 << 0,
    RVLI_LAYER_KEYS = 1 << 1,   /* makes its own keys and values, and caches them */
    RVLI_LAYER_WINDOW = 1 << 2, /* attention sees the last tokens alone */
    RVLI_LAYER_DELTA = 1 << 3,  /* a gated delta net */
    RVLI_LAYER_MAMBA = 1 << 4,  /* Mamba 2 */
    RVLI_LAYER_DENSE = 1 << 5,  /* an MLP */
    RVLI_LAYER_SPARSE = 1 << 6, /* experts */
    RVLI_LAYER_CUT = 1 << 7,    /* an MLP with a gate that is cut off */
    RVLI_LAYER_CONV = 1 << 8,   /* LFM2's short convolution */
};

/* The same where sizes differ from layer to layer (layer_sizes.c). */
enum {
    RVLI_LAYER_WIDE_HEADS = 1 << 12, /* heads of another size */
    RVLI_LAYER_WIDE_MLP = 1 << 13,
    RVLI_LAYER_KEYS_AS_VALUES = 1 << 14, /* one projection for both */
};

/* Has a state in the place of attention. */
#define RVLI_LAYER_STATE (RVLI_LAYER_DELTA | RVLI_LAYER_MAMBA | RVLI_LAYER_CONV)

typedef enum rvli_dim {
    RVLI_DIM_ONE,
    RVLI_DIM_HIDDEN,
    RVLI_DIM_VOCABULARY,
    RVLI_DIM_HEAD,
    RVLI_DIM_HEADS,
    RVLI_DIM_Q,        /* of all heads */
    RVLI_DIM_Q_OUT,    /* of q_proj: with its gate */
    RVLI_DIM_KV,       /* of all KV heads */
    RVLI_DIM_ATTENDED, /* input of the output projection */
    RVLI_DIM_ROTARY,   /* of each head, with positions */
    RVLI_DIM_INTERMEDIATE,
    RVLI_DIM_EXPERT_INTERMEDIATE,
    RVLI_DIM_SHARED_INTERMEDIATE,
    RVLI_DIM_EXPERTS,
    RVLI_DIM_EXPERT_GROUPS, /* that a router chooses from first; 1: it does not */
    RVLI_DIM_Q_LORA,
    RVLI_DIM_KV_LORA,
    RVLI_DIM_KV_DOWN, /* compressed KV and the rotary part */
    RVLI_DIM_KV_UP,
    RVLI_DIM_INDEX_HEADS,
    RVLI_DIM_INDEX_HEAD,
    RVLI_DIM_INDEX,        /* of all the indexer's heads */
    RVLI_DIM_INDEX_CHOSEN, /* tokens that attention sees, at most */
    RVLI_DIM_CONV_KERNEL,
    RVLI_DIM_THREE_HIDDEN, /* what a short convolution is made of */
    RVLI_DIM_DELTA_HEADS,  /* of values */
    RVLI_DIM_DELTA_HEAD,
    RVLI_DIM_DELTA_VALUE, /* of all heads */
    RVLI_DIM_DELTA_CONV,  /* q, k and v of all heads */
    RVLI_DIM_DELTA_IN,    /* the same and the gate */
    RVLI_DIM_DELTA_RATES, /* two for each head */
    RVLI_DIM_MAMBA_HEADS,
    RVLI_DIM_MAMBA_INNER,
    RVLI_DIM_MAMBA_CONV,
    RVLI_DIM_MAMBA_IN,
    RVLI_DIM_ALTUP_COUNT,
    RVLI_DIM_ALTUP_SQUARED,
    RVLI_DIM_ALTUP_OTHERS, /* hidden size of all streams but the first */
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

/* Kinds of towers, by the families that have them. */
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

/* Dimensions of what turns images or sound into embeddings. towers.c has its parameters. */
typedef enum rvli_tower_dim {
    RVLI_TOWER_ONE,
    RVLI_TOWER_HIDDEN,
    RVLI_TOWER_THREE_HIDDEN, /* q, k, v in one */
    RVLI_TOWER_INTERMEDIATE,
    RVLI_TOWER_PATCH,     /* values of a patch of the image */
    RVLI_TOWER_POSITIONS, /* that have embeddings */
    RVLI_TOWER_MERGED,    /* hidden size of the patches that become one token */
    RVLI_TOWER_OUT,
    RVLI_TOWER_TEXT, /* hidden size of the language model */
    RVLI_TOWER_ADAPTER,
    RVLI_TOWER_PROJECTED, /* what the projector takes */
    RVLI_TOWER_DIM_COUNT
} rvli_tower_dim;

typedef struct rvli_tower {
    uint32_t kind; /* 0: none */
    bool pools;    /* SigLIP: with a head that makes one vector of an image */
    uint32_t layers;
    uint32_t deep; /* layers that also feed the language model, each with a merger */
    uint64_t dim[RVLI_TOWER_DIM_COUNT];
} rvli_tower;

/* How many elements of a matrix share a scale. */
typedef struct rvli_scales {
    uint64_t rows; /* 0: all */
    uint64_t columns;
    uint64_t bytes; /* of a scale */
    bool zeros;     /* beside each scale a zero point, of as many bits as an element */
} rvli_scales;

struct json_t;

/* What was worked out for a model before (step/remembered.c). */
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
    uint64_t mamba_chunk;       /* tokens that its scan takes at once */
    uint64_t mamba_group_width; /* rows of a group in Mamba's projection and convolution */
    uint64_t state_elements;    /* of a sequence, in a layer with a state; of all ranks */
    uint64_t state_bytes;       /* of one of the latter */
    uint64_t window;            /* tokens that layers with a window see */
    uint32_t experts;           /* 0: a dense model */
    uint32_t experts_per_token;
    rvl_model_dtype weights_dtype; /* as quantization_config says; AUTO: one that is not known */
    rvl_model_dtype kv_dtype;      /* the same */
    rvli_scales scales;            /* of weights_dtype */
    uint64_t dim[RVLI_DIM_COUNT];
    uint64_t parameters;
    uint16_t kinds[RVLI_MODEL_LAYERS_MAX];                           /* RVLI_LAYER_* */
    uint64_t kept[RVLI_MODEL_LAYERS_MAX][RVLI_MODEL_RULES_MAX / 64]; /* rules for tensors that stay
                                                                        bf16, a bit each */
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

/* Options with their defaults filled in, checked. */
typedef struct rvli_plan {
    rvl_model_options options;
    rvl_profile device;
    uint32_t first_layer; /* of the pipeline stage */
    uint32_t layer_count;
    uint32_t mamba_groups; /* the same */
    uint64_t vocabulary_rows;
    rvli_scales scales; /* of the engine's weights */
    bool as_config;     /* they are quantised as the config says, some of them kept */
} rvli_plan;

/* A list of sizes in bytes; failed: there was no memory, and sizes are missing. */
typedef struct rvli_sizes {
    uint64_t *items;
    size_t count;
    size_t room;
    uint64_t total;
    bool failed;
} rvli_sizes;

void rvli_sizes_add(rvli_sizes *sizes, uint64_t bytes);
void rvli_sizes_free(rvli_sizes *sizes);

/* Remainders of segments by size: few sizes differ, since layers are alike. */
typedef struct rvli_remainders {
    uint64_t segment_bytes;
    uint64_t useless_bytes; /* no request of this pool is as small */
    uint64_t *sizes;        /* rising */
    uint64_t *counts;
    size_t count;
    size_t room;
} rvli_remainders;

/* Packs tensors that live on into the segments that PyTorch's caching allocator asks for. */
typedef struct rvli_packer {
    rvli_sizes *segments;
    rvli_remainders small;
    rvli_remainders large;
} rvli_packer;

void rvli_packer_begin(rvli_packer *packer, rvli_sizes *segments);
void rvli_packer_add(rvli_packer *packer, uint64_t bytes);
void rvli_packer_end(rvli_packer *packer);

uint64_t rvli_round_up(uint64_t value, uint64_t step);

/* A parameter, before it has a name. */
typedef struct rvli_tensor {
    const char *pattern; /* of its name: %L is the layer, %E the expert */
    uint32_t layer;
    uint32_t expert;
    uint64_t rows;
    uint64_t columns;
    uint64_t stack; /* how many matrices of this shape are one parameter */
} rvli_tensor;

/* Elements of a rank's part, padded: FSDP2 splits a matrix by its rows, a stack by its matrices. */
uint64_t rvli_tensor_share(const rvli_tensor *tensor, uint64_t ranks);

/* Whether a loss gives it a gradient: an indexer and a bias of the choice of experts have none. */
bool rvli_tensor_learns(const rvli_tensor *tensor);

typedef void (*rvli_tensor_fn)(void *user, const rvli_tensor *tensor);
typedef void (*rvli_bytes_fn)(void *user, uint64_t bytes);

/* Every parameter of the language model, as the checkpoint has it. */
void rvli_model_walk(const rvl_model *model, rvli_tensor_fn fn, void *user);

/* The same as transformers trains it: the experts of a layer are two stacks, and so are their
 * biases.
 */
void rvli_model_walk_trained(const rvl_model *model, rvli_tensor_fn fn, void *user);

/* The parameters of the tower; its layers are not those of the language model. */
void rvli_tower_walk(const rvl_model *model, rvli_tensor_fn fn, void *user);

/* The same of one rank of an engine. */
void rvli_tower_walk_engine(const rvl_model *model, const rvli_plan *plan, rvli_bytes_fn fn,
                            void *user);

/* Their number. */
uint64_t rvli_tower_count(const rvl_model *model);

/* Whether PEFT knows which layers of the model's family get adapters if nobody says it. */
bool rvli_has_lora_default(const rvl_model *model);

/* Whether LoRA has an adapter beside a parameter, and its two matrices. A rank of 0 has none. */
bool rvli_adapter_of(uint32_t rank, rvl_model_lora_targets targets, const rvli_tensor *tensor,
                     rvli_tensor parts_out[2]);

/* ---- nf4.c ---- */

/* Packed elements, scales, and what belongs to them: tensors of a quantised weight. */
#define RVLI_NF4_PARTS 6
#define RVLI_NF4_PACKED 1 /* the part that has the elements: FSDP2 splits it alone */

/* Whether a parameter of a frozen base is quantised: linear layers but the head. */
bool rvli_is_quantised(rvl_model_base_dtype base, const rvli_tensor *tensor);

/* Bytes of each of its tensors; 0: there is none. */
void rvli_nf4_parts(rvl_model_base_dtype base, uint64_t elements,
                    uint64_t bytes_out[RVLI_NF4_PARTS]);

/* Elements of two bytes of a rank's part of a parameter, padded: a quantised one lies in a column
 * of bf16, four elements in each, so that FSDP2 can split it (bnb_4bit_quant_storage). */
uint64_t rvli_base_share(rvl_model_base_dtype base, const rvli_tensor *tensor, uint64_t ranks);

/* Of its scales in fp32. */
uint64_t rvli_nf4_scales_bytes(uint64_t elements);

/* Every tensor of one rank of an engine: fused, split, quantised. */
void rvli_model_walk_engine(const rvl_model *model, const rvli_plan *plan, rvli_bytes_fn fn,
                            void *user);

typedef bool (*rvli_module_fn)(void *user, const char *name);

/* Keeps a layer's matrices in bf16 if their module ("model.layers.0.mlp.up_proj") matches. */
void rvli_model_keep(rvl_model *model, uint32_t layer, rvli_module_fn matches, void *user);

/* Scales where no config says how they are. */
rvli_scales rvli_scales_of(rvl_model_dtype dtype);

/* Types, scales and kept modules of a quantization_config; NULL: none. */
void rvli_quantisation_read(const struct json_t *config, rvl_model *model);

/* Writes a name as a pattern has it, cut where the room ends. */
void rvli_tensor_name(const char *pattern, uint32_t layer, uint32_t expert, char *name,
                      size_t size);

/* Their number, by multiplication; PARAMETERS_MAX + 1 where there are more. */
uint64_t rvli_model_count(const rvl_model *model);

/* The layers of a pipeline stage, in *plan. */
void rvli_plan_set_stage(const rvl_model *model, uint32_t stage, rvli_plan *plan);

/* ---- layer_sizes.c ---- */

/* A dimension as this layer has it. */
uint64_t rvli_layer_dim(const rvl_model *model, uint32_t layer, rvli_dim dim);
uint32_t rvli_layer_kv_heads(const rvl_model *model, uint32_t layer);

/* Of a rank of an engine. */
uint64_t rvli_rank_kv_heads(const rvl_model *model, const rvli_plan *plan, uint32_t layer);

/* ---- cache.c ---- */

/* Bytes that a sequence of --seq-len tokens takes on the plan's stage. */
uint64_t rvli_cache_sequence_bytes(const rvl_model *model, const rvli_plan *plan);

/* Tokens of such sequences that fit; UINT64_MAX: the stage keeps nothing of them. */
uint64_t rvli_cache_tokens(const rvl_model *model, const rvli_plan *plan, uint64_t room);

/* The buffers for so many tokens. */
void rvli_cache_add(const rvl_model *model, const rvli_plan *plan, uint64_t tokens,
                    rvli_sizes *sizes);

/* Fills in and checks options. */
rvl_status rvli_plan_make(const rvl_model *model, const rvl_model_options *options,
                          rvli_plan *plan_out);

/* Communicators of NCCL that a rank has: those for collectives, and those that only send. */
typedef struct rvli_communicators {
    uint64_t collective;
    uint64_t sending;
} rvli_communicators;

rvli_communicators rvli_nccl_of_engine(const rvl_model_options *options);
rvli_communicators rvli_nccl_of_trainer(const rvl_model *model, const rvl_model_options *options);
uint64_t rvli_plan_nccl_bytes(rvli_communicators count);

/* ---- settings.c ---- */

/* Puts what a setting stands for if nobody sets it, where the model and the device do not say. */
void rvli_model_settings_fill(rvl_model_options *options);

/* The flags that are settings. */
uint64_t rvli_model_settings_flags(void);

/* Whether each is in its range, and has what it needs of the others. They are filled in. */
rvl_status rvli_model_settings_check(const rvl_model_options *options);

/* What megatron-core refuses. */
rvl_status rvli_plan_check_megatron(const rvl_model *model, const rvl_model_options *options);

/* bitsandbytes: states of smaller tensors stay in fp32; a scale for each block. */
#define RVLI_STATE_BLOCK 256
#define RVLI_STATE_8BIT_ELEMENTS_MIN 4096
#define RVLI_STATE_PAGED_ELEMENTS_MIN 100000

typedef struct rvli_optimizer_kind {
    unsigned states; /* of a parameter */
    unsigned bytes;  /* of each, for an element */
    bool blocks;     /* of 8 bits, with scales */
    bool master;     /* and a copy of the parameter in fp32 */
    bool paged;      /* states of many elements are in managed memory */
} rvli_optimizer_kind;

extern const rvli_optimizer_kind rvli_optimizer_kinds[]; /* by rvl_model_optimizer */

/* The shards are in fp32 and are themselves what the optimizer updates. */
static inline bool rvli_is_mixed(uint64_t flags)
{
    return (flags & RVL_MODEL_MIXED) != 0;
}

/* One term: its allocations, and whether it was given. */
typedef struct rvli_term {
    rvli_sizes sizes;
    bool given;
    bool assumed; /* a size that other programs had */
} rvli_term;

/* Moments of training that a trace shows: the fullest of both passes, and that of the update. */
enum { RVLI_MOMENT_PASSES, RVLI_MOMENT_UPDATE, RVLI_MOMENT_COUNT };

struct rvli_shown;

typedef struct rvli_terms {
    rvli_term term[RVL_MODEL_TERM_COUNT];
    bool by_program; /* training is what the program of a step has shown; else terms add up */
    uint64_t moments[RVLI_MOMENT_COUNT][RVL_MODEL_TERM_COUNT];
    struct rvli_shown *shown;                 /* NULL: only the moments are */
    rvli_sizes forward[RVL_MODEL_TERM_COUNT]; /* of ALL_GATHER, LOGITS: without gradients */
    uint64_t tokens;
    bool without_nccl[RVL_MODEL_TERM_COUNT]; /* ranks communicate, and it is not counted */
} rvli_terms;

/* All terms of a step. On failure nothing is left to free. */
rvl_status rvli_terms_make(const rvl_model *model, const rvli_plan *plan, rvli_terms *terms_out);
void rvli_terms_free(rvli_terms *terms);

/* Bytes a token that attention, or the experts of a layer, keep for the backward pass. */
uint64_t rvli_attention_kept_bytes(const rvl_model *model, uint32_t layer);
uint64_t rvli_experts_kept_bytes(const rvl_model *model);
const char *rvli_term_tag(rvl_model_term term, rvl_model_train train);

/* A comment that stands before an event. */
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
    char *header; /* comment lines of the header */
    bool failed;  /* no memory */
};

/* The events of a step. Its terms are there. */
void rvli_step_play(rvl_model_step *step, const rvli_plan *plan);

/* The comment lines of its header. NULL: no memory. */
char *rvli_step_describe(const rvl_model_step *step, const rvl_model *model, const rvli_plan *plan);

/* Fills the thread's error record. Returns status. */
rvl_status rvli_model_fail(rvl_status status, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
