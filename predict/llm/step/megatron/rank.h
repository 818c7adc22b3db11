/* SPDX-License-Identifier: MIT */
/*
 * A training step of one rank of Megatron as a program (docs/model.md, "Megatron").
 *
 * The order of allocations and frees is that of megatron-core 0.16: its layers, its 1F1B schedule,
 * its gradient buffers and its distributed optimizer, as memory histories of such programs show. A
 * rank has the layers of its pipeline stage, its part of each matrix, its experts, and its tokens
 * after context parallelism.
 */
#ifndef RVL_PREDICT_LLM_STEP_MEGATRON_RANK_H
#define RVL_PREDICT_LLM_STEP_MEGATRON_RANK_H

#include "predict/llm/step/training.h"

/* TransformerEngine's workspace for a product. */
#define RVLI_ENGINE_WORKSPACE_BYTES (32 * RVLI_MIB + 1024)

typedef struct rvli_rank_parameter {
    uint64_t elements;       /* on this rank */
    uint64_t share_elements; /* of these, the ones that the first data-parallel rank updates */
    uint32_t part;           /* of the model; each part has separate buffers */
    bool is_expert;          /* in the second buffer */
    bool is_vector;          /* a norm's, or a bias; the optimizer takes it after the matrices */
    bool is_hosted;          /* its part of the optimizer is on the host */
    rvli_block first;        /* made by the module, before there are buffers */
    rvli_block passing;      /* in fp32; of the optimizer that is made before shares are known */
    rvli_block main;         /* in fp32 */
    rvli_block gradient;     /* in fp32, if the buffer has bf16 */
    rvli_block states[2];
    rvli_block root; /* square root of the second state, during the optimizer's step */
} rvli_rank_parameter;

/* The results of the rotation of q or k. */
typedef struct rvli_rotated {
    rvli_block cosine;
    rvli_block sine;
    rvli_block output;
} rvli_rotated;

/* What the experts of a layer keep. */
typedef struct rvli_routed {
    rvli_block scores;
    rvli_block tokens;     /* received by the rank, ordered by expert */
    rvli_block *fc1;       /* one for each lot of experts */
    rvli_block *activated; /* one for each lot of experts */
} rvli_routed;

/* What a layer keeps for a micro-batch. */
typedef struct rvli_rank_layer {
    rvli_block input; /* of the residual; the first layer's may belong to the schedule */
    rvli_block attention_scale;
    rvli_block attention_input;
    rvli_block qkv;
    rvli_block q_copy; /* stored by heads */
    rvli_block k_copy; /* stored by heads, if its norm keeps it */
    rvli_block q_scale;
    rvli_block k_scale;
    rvli_rotated q;
    rvli_rotated k;
    rvli_block v_copy; /* stored by heads, if attention keeps it */
    rvli_block pair;   /* context parallelism: the last keys and values that arrived */
    rvli_block attended;
    rvli_block sums;
    rvli_block middle;
    rvli_block mlp_scale;
    rvli_block mlp_input;
    rvli_block fc1;
    rvli_block activated;
    rvli_routed routed;
} rvli_rank_layer;

/* What the graph of a layer that was computed again holds. The dispatcher of its experts holds the
 * graph (self.probs) until the layer runs again. */
typedef struct rvli_held_graph {
    rvli_block input;
    rvli_block gradient; /* of the input */
} rvli_held_graph;

/* A micro-batch between its forward and its backward pass. */
typedef struct rvli_in_flight {
    rvli_rank_layer *layers;
    rvli_block received; /* from the previous stage */
} rvli_in_flight;

/* What a part of the model holds of its last micro-batch, until it gets the next one. */
typedef struct rvli_given {
    const rvli_in_flight *flight;
    rvli_block input;    /* received; set when its backward pass has ended */
    rvli_block gradient; /* of the input */
} rvli_given;

typedef struct rvli_rank {
    const rvl_model *model;
    const rvli_training_shape *options;
    rvli_tape tape;
    uint32_t parts; /* of the model: 1, or the number that are interleaved */
    uint32_t part;  /* the running one; the next four fields are those of this part */
    uint32_t first_layer;
    uint32_t layer_count;
    bool has_embedding;
    bool has_head;
    uint32_t warm_up; /* forward passes before the first backward pass */
    bool is_tied;
    bool splits_sequence;
    uint64_t tokens;       /* of a micro-batch */
    uint64_t hidden_bytes; /* of these tokens */
    uint64_t part_bytes;   /* of the tokens that this rank keeps between its matrices */
    uint64_t q_width;
    uint64_t kv_width;
    uint64_t heads;
    uint64_t groups; /* heads of keys and values */
    uint64_t inner;
    uint64_t vocabulary; /* rows */
    uint64_t experts;    /* on this rank */
    uint64_t lots;       /* groups in which these are processed */
    rvli_rank_parameter *parameters;
    uint32_t parameter_count;
    uint32_t parameter_room;
    rvli_block workspaces[2];
    bool has_grouped_workspaces;
    rvli_block angles;   /* of the positions; permanent */
    rvli_block gathered; /* the sequence of all ranks; one buffer for all layers */
    rvli_in_flight *flights;
    rvli_given *given;          /* by part */
    rvli_held_graph *graphs;    /* by part and layer */
    rvli_held_graph *graph;     /* of the running layer */
    rvli_rank_layer *layers;    /* of all flights */
    rvli_block *expert_blocks;  /* two for each lot of experts */
    rvli_block *expert_outputs; /* while the experts of a layer run */
    rvli_block hidden;          /* between layers, forward */
    rvli_block last_scale;
    rvli_block last_hidden;
    rvli_block last_input;
    rvli_block logits;  /* in fp32 */
    rvli_block of_head; /* gradient of a tied head, until the embedding's exists */
    rvli_block flow;    /* gradient between layers, backward */
    bool flow_is_lent;  /* it belongs to the schedule, or a graph holds it */
    rvli_block received_gradient;
    rvli_block sent_gradient; /* of the input, until there is another; a part may hold it, too */
    rvli_block used_input;    /* of the last backward pass */
    bool holds_graph;         /* of the last backward pass, until the next forward pass has ended */
} rvli_rank;

static inline rvli_block rvli_rank_take(rvli_rank *r, uint64_t bytes)
{
    return rvli_take(&r->tape, RVL_MODEL_ACTIVATIONS, bytes);
}

static inline void rvli_rank_drop(rvli_rank *r, rvli_block *block)
{
    rvli_drop(&r->tape, *block);
    *block = NULL;
}

/* Whether layers are Megatron's own, not TransformerEngine's. */
static inline bool rvli_rank_is_local(const rvli_rank *r)
{
    return (r->options->flags & RVL_MODEL_LOCAL_LAYERS) != 0;
}

/* Whether all experts are one product. */
static inline bool rvli_rank_groups(const rvli_rank *r)
{
    return (r->options->flags & RVL_MODEL_GROUPED_GEMM) != 0;
}

/* Whether they are so by the older class, the only one in Megatron's own layers. */
static inline bool rvli_rank_groups_by_legacy(const rvli_rank *r)
{
    bool chosen = (r->options->flags & RVL_MODEL_LEGACY_GROUPED_GEMM) != 0;
    return rvli_rank_groups(r) && (chosen || rvli_rank_is_local(r));
}

static inline bool rvli_rank_recomputes(const rvli_rank *r)
{
    return (r->options->flags & RVL_MODEL_RECOMPUTE) != 0;
}

/* The gradient between layers has been used. Frees it unless it is lent. */
static inline void rvli_rank_drop_flow(rvli_rank *r)
{
    if (!r->flow_is_lent)
        rvli_drop(&r->tape, r->flow);
    r->flow = NULL;
    r->flow_is_lent = false;
}

/* ---- parameters.c ---- */

void rvli_rank_make_parameters(rvli_rank *r);

/* Rows of the vocabulary on a rank, padded as by Megatron-LM. */
uint64_t rvli_rank_vocabulary(uint64_t vocabulary, uint32_t tp);

typedef void (*rvli_rank_act)(rvli_rank *rank, rvli_rank_parameter *parameter);

/* ---- state.c: buffers of weights and gradients, main weights, the optimizer ---- */

void rvli_rank_load(rvli_rank *r);
/* Number of elements in a buffer. */
uint64_t rvli_rank_elements(const rvli_rank *r, uint32_t part, bool is_expert);
void rvli_rank_zero_gradients(rvli_rank *r);
void rvli_rank_update(rvli_rank *r);
/* Visits the parameters in the order of the buffers, part by part. */
void rvli_rank_for_each(rvli_rank *r, bool is_expert, rvli_rank_act act);
void rvli_rank_make_states(rvli_rank *r, rvli_rank_parameter *parameter);

/* ---- hosted.c: the part of the optimizer on the host ---- */

static inline bool rvli_rank_offloads(const rvli_rank *r)
{
    return r->options->optimizer_offload_ppm > 0;
}

/* Sets is_hosted of each parameter. */
void rvli_rank_choose_hosted(rvli_rank *r);
/* Makes the main weights in fp32 that are not on the host, for two optimizers. The second stays. */
void rvli_rank_load_hybrid(rvli_rank *r);
void rvli_rank_update_hybrid(rvli_rank *r);
uint64_t rvli_rank_host_bytes(const rvli_rank *r);

/* ---- linear.c: matrices that are split, norms, and the sum with the residual ---- */

/* cuBLAS's workspace of autograd's forward or backward thread. Makes it at the first call. */
void rvli_rank_workspace(rvli_rank *r, bool backward);
/* Gathers the whole sequence before a matrix that is split by columns, if each rank has a part. */
void rvli_rank_gather(rvli_rank *r);
/* The output of a matrix that is split by rows: summed over ranks, and split if the sequence is. */
rvli_block rvli_rank_rows(rvli_rank *r);
/* Its backward pass. Returns the gradient of the matrix's input, and frees what was kept of the
 * input. */
rvli_block rvli_rank_rows_backward(rvli_rank *r, uint64_t input_bytes, uint64_t weight_elements,
                                   rvli_block *kept);
rvli_block rvli_rank_norm(rvli_rank *r, rvli_block *scale, bool kept);
/* Takes over the gradient of the norm's output. Frees the norm's input; NULL: it stays. */
rvli_block rvli_rank_norm_backward(rvli_rank *r, rvli_block *gradient, rvli_block *input,
                                   rvli_block *scale);
/* The gradient of a weight, until it is added to the buffer. */
rvli_block rvli_rank_weight_gradient(rvli_rank *r, uint64_t elements);
/* Adds to the gradient between layers. */
void rvli_rank_join(rvli_rank *r, rvli_block *gradient);
/* The backward pass of a norm briefly has a part of its weight's gradient for each block of
 * threads. */
void rvli_rank_norm_parts(rvli_rank *r, uint64_t width);

/* ---- entry.c: a norm and the matrix after it, which is split by columns ---- */

typedef struct rvli_entry {
    uint64_t output_bytes;
    uint64_t weight_elements;
    rvli_block *normed; /* output of the norm */
    rvli_block *scale;
} rvli_entry;

rvli_block rvli_rank_enter(rvli_rank *r, const rvli_entry *entry, bool kept);
/* Takes over the gradient of the matrix's output. Adds the gradient of the norm's input to the one
 * between layers, with a new tensor or in place. Frees the norm's input; NULL: it stays. */
void rvli_rank_enter_backward(rvli_rank *r, const rvli_entry *entry, rvli_block *gradient,
                              rvli_block *input, bool in_place);

/* ---- attention.c, experts.c, layer.c ---- */

rvli_block rvli_rank_attention(rvli_rank *r, rvli_rank_layer *layer, bool kept);
/* Returns the gradient of the output of the matrix of q, k and v. */
rvli_block rvli_rank_attention_backward(rvli_rank *r, rvli_rank_layer *layer);
/* The norm and the matrix of q, k and v. */
rvli_entry rvli_rank_attention_entry(const rvli_rank *r, rvli_rank_layer *layer);
/* Bytes of a rank's queries, of its keys (or values), and of softmax's sums for each query. */
uint64_t rvli_rank_q_bytes(const rvli_rank *r);
uint64_t rvli_rank_kv_bytes(const rvli_rank *r);
uint64_t rvli_rank_sums_bytes(const rvli_rank *r);
rvli_block rvli_rank_experts(rvli_rank *r, rvli_rank_layer *layer, bool kept);
rvli_block rvli_rank_experts_backward(rvli_rank *r, rvli_rank_layer *layer);
void rvli_rank_layer_forward(rvli_rank *r, rvli_rank_layer *layer, uint32_t number);
/* lent: its input belongs to the schedule. */
void rvli_rank_layer_backward(rvli_rank *r, rvli_rank_layer *layer, uint32_t number, bool lent);

/* ---- ring.c: attention with context parallelism ---- */

/* kept: whether the backward pass needs it. */
void rvli_rank_ring(rvli_rank *r, rvli_rank_layer *layer, bool kept);
/* Takes over the gradient of attention's output, and makes that of q. Returns that of k and v. */
rvli_block rvli_rank_ring_backward(rvli_rank *r, rvli_rank_layer *layer, rvli_block *of_attended,
                                   rvli_block *of_q);

/* ---- ends.c: embedding, head and loss ---- */

void rvli_rank_embed(rvli_rank *r);
void rvli_rank_embed_backward(rvli_rank *r);
void rvli_rank_loss(rvli_rank *r);
void rvli_rank_loss_backward(rvli_rank *r);

/* ---- schedule.c, interleaved.c ---- */

/* Sets the running part of the model. */
void rvli_rank_set_part(rvli_rank *r, uint32_t part);

/* Passes of a micro-batch through the running part. The backward pass needs the gradient of its
 * output. */
void rvli_rank_forward(rvli_rank *r, rvli_in_flight *flight);
void rvli_rank_backward(rvli_rank *r, rvli_in_flight *flight);

/* Replaces the gradient that was sent last. */
void rvli_rank_send(rvli_rank *r, rvli_block gradient);

/* Runs a step's passes through several parts in turn. */
void rvli_rank_run_interleaved(rvli_rank *r);

/* Packs what lives from step to step: weights, main weights, optimizer states. false: out of host
 * memory. */
bool rvli_rank_pack(const rvl_model *model, const rvli_training_shape *shape,
                    rvli_packer packers[3]);

/* Like rvli_training_run(), for RVL_MODEL_TRAIN_MEGATRON. */
rvl_status rvli_rank_run(const rvl_model *model, const rvli_training_shape *shape,
                         const rvli_tape_listener *listener, rvli_trained *trained_out);

#endif
