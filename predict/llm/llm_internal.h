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
#define RVLI_MIB (UINT64_C(1) << 20)

/* What a rule or a formula may depend on. */
enum {
    RVLI_GQA = 1 << 0, /* q, k, v projections */
    RVLI_MLA = 1 << 1, /* DeepSeek's latent attention */
    RVLI_Q_LORA = 1 << 2,
    RVLI_QKV_BIAS = 1 << 3,
    RVLI_O_BIAS = 1 << 4,
    RVLI_QK_NORM = 1 << 5,
    RVLI_MLP_BIAS = 1 << 6,
    RVLI_FOUR_NORMS = 1 << 7, /* Gemma: before and after both blocks */
    RVLI_SHARED = 1 << 8,     /* an expert for all tokens */
    RVLI_SHARED_GATE = 1 << 9,
    RVLI_ROUTER_BIAS = 1 << 10,
    RVLI_HEAD = 1 << 11,    /* not tied to the embedding */
    RVLI_INDEXER = 1 << 12, /* DeepSeek's choice of the tokens that attention sees */
};

typedef enum rvli_dim {
    RVLI_DIM_ONE,
    RVLI_DIM_HIDDEN,
    RVLI_DIM_VOCABULARY,
    RVLI_DIM_HEAD,
    RVLI_DIM_Q,        /* of all heads */
    RVLI_DIM_KV,       /* of all KV heads */
    RVLI_DIM_ATTENDED, /* input of the output projection */
    RVLI_DIM_INTERMEDIATE,
    RVLI_DIM_EXPERT_INTERMEDIATE,
    RVLI_DIM_SHARED_INTERMEDIATE,
    RVLI_DIM_EXPERTS,
    RVLI_DIM_Q_LORA,
    RVLI_DIM_KV_LORA,
    RVLI_DIM_KV_DOWN, /* compressed KV and the rotary part */
    RVLI_DIM_KV_UP,
    RVLI_DIM_INDEX_HEADS,
    RVLI_DIM_INDEX_HEAD,
    RVLI_DIM_INDEX, /* of all the indexer's heads */
    RVLI_DIM_COUNT
} rvli_dim;

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
    uint32_t features;
    uint32_t layers;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t experts; /* 0: a dense model */
    uint32_t experts_per_token;
    rvl_model_dtype weights_dtype; /* as quantization_config says; AUTO: one that is not known */
    rvl_model_dtype kv_dtype;      /* the same */
    rvli_scales scales;            /* of weights_dtype */
    uint64_t dim[RVLI_DIM_COUNT];
    uint64_t parameters;
    uint8_t sparse[RVLI_MODEL_LAYERS_MAX]; /* the layer has experts */
    uint64_t kept[RVLI_MODEL_LAYERS_MAX];  /* rules for tensors that stay bf16, a bit each */
};

/* Options with their defaults filled in, checked. */
typedef struct rvli_plan {
    rvl_model_options options;
    rvl_profile device;
    uint32_t first_layer; /* of the pipeline stage */
    uint32_t layer_count;
    uint32_t kv_heads; /* of a rank */
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
} rvli_tensor;

typedef void (*rvli_tensor_fn)(void *user, const rvli_tensor *tensor);
typedef void (*rvli_bytes_fn)(void *user, uint64_t bytes);

/* Every parameter, whole and unfused. */
void rvli_model_walk(const rvl_model *model, rvli_tensor_fn fn, void *user);

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

/* Fills in and checks options. */
rvl_status rvli_plan_make(const rvl_model *model, const rvl_model_options *options,
                          rvli_plan *plan_out);

/* The shards are in fp32 and are themselves what the optimizer updates. */
static inline bool rvli_is_mixed(uint64_t flags)
{
    return (flags & RVL_MODEL_MIXED) != 0;
}

/* One term: its allocations, and whether it was given. */
typedef struct rvli_term {
    rvli_sizes sizes;
    bool given;
} rvli_term;

/* Moments of training that a trace shows: the fullest of both passes, and that of the update. */
enum { RVLI_MOMENT_PASSES, RVLI_MOMENT_UPDATE, RVLI_MOMENT_COUNT };

typedef struct rvli_terms {
    rvli_term term[RVL_MODEL_TERM_COUNT];
    bool by_program; /* training is what the program of a step has shown; else terms add up */
    uint64_t moments[RVLI_MOMENT_COUNT][RVL_MODEL_TERM_COUNT];
    rvli_sizes forward[RVL_MODEL_TERM_COUNT]; /* of ALL_GATHER, LOGITS: without gradients */
    uint64_t tokens;
} rvli_terms;

/* All terms of a step. On failure nothing is left to free. */
rvl_status rvli_terms_make(const rvl_model *model, const rvli_plan *plan, rvli_terms *terms_out);
void rvli_terms_free(rvli_terms *terms);

/* Bytes a token that attention, or the experts of a layer, keep for the backward pass. */
uint64_t rvli_attention_kept_bytes(const rvl_model *model);
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
