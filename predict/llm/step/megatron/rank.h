/* SPDX-License-Identifier: MIT */
/*
 * A training step of one rank of Megatron as a program (docs/model.md, "Megatron").
 *
 * The order of allocations and frees is that of megatron-core 0.16: its layers, its 1F1B schedule,
 * its gradient buffers and its distributed optimizer, as memory histories of such programs show it.
 * A rank has the layers of its pipeline stage, its part of each matrix, its experts, and the tokens
 * that context parallelism leaves it.
 */
#ifndef RVL_PREDICT_LLM_STEP_MEGATRON_RANK_H
#define RVL_PREDICT_LLM_STEP_MEGATRON_RANK_H

#include "predict/llm/step/training.h"

#define RVLI_ENGINE_WORKSPACE_BYTES                                                                \
    (32 * RVLI_MIB + 1024) /* TransformerEngine's, for a product                                   \
                            */

typedef struct rvli_rank_parameter {
    uint64_t elements;       /* of this rank */
    uint64_t share_elements; /* of these, what the first data-parallel rank updates */
    uint32_t part;           /* of the model: each has buffers of its own */
    bool is_expert;          /* in the second buffer */
    bool is_vector;          /* a norm's, or a bias: behind the matrices for the optimizer */
    bool is_hosted;          /* its part of the optimizer is on the host */
    rvli_block first;        /* as the module makes it, before there are buffers */
    rvli_block passing;      /* in fp32, of the optimizer that is made before parts are known */
    rvli_block main;         /* in fp32 */
    rvli_block gradient;     /* in fp32, where the buffer has bf16 */
    rvli_block states[2];
    rvli_block root; /* of the second, while the optimizer steps */
} rvli_rank_parameter;

/* What rotary positions leave of q or k. */
typedef struct rvli_rotated {
    rvli_block cosine;
    rvli_block sine;
    rvli_block output;
} rvli_rotated;

/* What the experts of a layer keep. */
typedef struct rvli_routed {
    rvli_block scores;
    rvli_block tokens;     /* that the rank got, by expert */
    rvli_block *fc1;       /* of each lot of experts */
    rvli_block *activated; /* the same */
} rvli_routed;

/* What a layer keeps of a micro-batch. */
typedef struct rvli_rank_layer {
    rvli_block input; /* of the residual; the first layer's may be the schedule's */
    rvli_block attention_scale;
    rvli_block attention_input;
    rvli_block qkv;
    rvli_block q_copy; /* laid out by heads */
    rvli_block k_copy; /* the same, where its norm keeps it */
    rvli_block q_scale;
    rvli_block k_scale;
    rvli_rotated q;
    rvli_rotated k;
    rvli_block v_copy; /* laid out by heads, where attention keeps it */
    rvli_block pair;   /* of keys and values, the last that arrived; with context parallelism */
    rvli_block attended;
    rvli_block sums;
    rvli_block middle;
    rvli_block mlp_scale;
    rvli_block mlp_input;
    rvli_block fc1;
    rvli_block activated;
    rvli_routed routed;
} rvli_rank_layer;

/* What the graph of a layer that was computed again holds, where its experts' dispatcher holds the
 * graph (self.probs), until that layer runs again. */
typedef struct rvli_held_graph {
    rvli_block input;
    rvli_block gradient; /* of that */
} rvli_held_graph;

/* A micro-batch between its passes. */
typedef struct rvli_in_flight {
    rvli_rank_layer *layers;
    rvli_block received; /* from the stage before */
} rvli_in_flight;

/* What a part of the model holds of the last micro-batch that it was given, until the next. */
typedef struct rvli_given {
    const rvli_in_flight *flight;
    rvli_block input;    /* received; here once its backward pass is over */
    rvli_block gradient; /* of that */
} rvli_given;

typedef struct rvli_rank {
    const rvl_model *model;
    const rvli_training_shape *options;
    rvli_tape tape;
    uint32_t parts; /* of the model: one, or several that are interleaved */
    uint32_t part;  /* that is at work, as of the next four */
    uint32_t first_layer;
    uint32_t layer_count;
    bool has_embedding;
    bool has_head;
    uint32_t warm_up; /* passes ahead of the first backward pass */
    bool is_tied;
    bool splits_sequence;
    uint64_t tokens;       /* of a micro-batch */
    uint64_t hidden_bytes; /* of all of these */
    uint64_t part_bytes;   /* of those that this rank keeps between its matrices */
    uint64_t q_width;
    uint64_t kv_width;
    uint64_t heads;
    uint64_t groups; /* heads of keys and values */
    uint64_t inner;
    uint64_t vocabulary; /* rows */
    uint64_t experts;    /* of this rank */
    uint64_t lots;       /* that these are taken in */
    rvli_rank_parameter *parameters;
    uint32_t parameter_count;
    uint32_t parameter_room;
    rvli_block workspaces[2];
    bool has_grouped_workspaces;
    rvli_block angles;   /* of the positions: kept for good */
    rvli_block gathered; /* the sequence of all ranks: one buffer for all layers */
    rvli_in_flight *flights;
    rvli_given *given;          /* by part */
    rvli_held_graph *graphs;    /* by part and layer */
    rvli_held_graph *graph;     /* of the layer that runs */
    rvli_rank_layer *layers;    /* of all flights */
    rvli_block *expert_blocks;  /* two for each lot of experts */
    rvli_block *expert_outputs; /* while the experts of a layer run */
    rvli_block hidden;          /* between layers, forward */
    rvli_block last_scale;
    rvli_block last_hidden;
    rvli_block last_input;
    rvli_block logits;  /* in fp32 */
    rvli_block of_head; /* the gradient of a tied head, until the embedding's is there */
    rvli_block flow;    /* the gradient between layers, backward */
    bool flow_is_lent;  /* it is the schedule's, or a graph holds it */
    rvli_block received_gradient;
    rvli_block sent_gradient; /* of the input, until the next is there; a part may hold it too */
    rvli_block used_input;    /* of the last backward pass */
    bool holds_graph;         /* of that, until the next forward pass is over */
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

/* Megatron's own layers, not TransformerEngine's. */
static inline bool rvli_rank_is_local(const rvli_rank *r)
{
    return (r->options->flags & RVL_MODEL_LOCAL_LAYERS) != 0;
}

/* All experts in one product. */
static inline bool rvli_rank_groups(const rvli_rank *r)
{
    return (r->options->flags & RVL_MODEL_GROUPED_GEMM) != 0;
}

/* By the older class, which is the only one of Megatron's own layers. */
static inline bool rvli_rank_groups_by_legacy(const rvli_rank *r)
{
    bool chosen = (r->options->flags & RVL_MODEL_LEGACY_GROUPED_GEMM) != 0;
    return rvli_rank_groups(r) && (chosen || rvli_rank_is_local(r));
}

static inline bool rvli_rank_recomputes(const rvli_rank *r)
{
    return (r->options->flags & RVL_MODEL_RECOMPUTE) != 0;
}

/* What flows is used up. */
static inline void rvli_rank_drop_flow(rvli_rank *r)
{
    if (!r->flow_is_lent)
        rvli_drop(&r->tape, r->flow);
    r->flow = NULL;
    r->flow_is_lent = false;
}

/* ---- parameters.c ---- */

void rvli_rank_make_parameters(rvli_rank *r);

/* Rows of the vocabulary of a rank, padded as Megatron-LM does. */
uint64_t rvli_rank_vocabulary(uint64_t vocabulary, uint32_t tp);

typedef void (*rvli_rank_act)(rvli_rank *rank, rvli_rank_parameter *parameter);

/* ---- state.c: buffers of weights and gradients, main weights, the optimizer ---- */

void rvli_rank_load(rvli_rank *r);
/* In a buffer. */
uint64_t rvli_rank_elements(const rvli_rank *r, uint32_t part, bool is_expert);
void rvli_rank_zero_gradients(rvli_rank *r);
void rvli_rank_update(rvli_rank *r);
/* In the order of the buffers, part by part. */
void rvli_rank_for_each(rvli_rank *r, bool is_expert, rvli_rank_act act);
void rvli_rank_make_states(rvli_rank *r, rvli_rank_parameter *parameter);

/* ---- hosted.c: what of the optimizer is on the host ---- */

static inline bool rvli_rank_offloads(const rvli_rank *r)
{
    return r->options->optimizer_offload_ppm > 0;
}

/* Which shares are on the host: is_hosted of each parameter. */
void rvli_rank_choose_hosted(rvli_rank *r);
/* Main weights in fp32 of those that are not, by two optimizers, of which the second stays. */
void rvli_rank_load_hybrid(rvli_rank *r);
void rvli_rank_update_hybrid(rvli_rank *r);
uint64_t rvli_rank_host_bytes(const rvli_rank *r);

/* ---- linear.c: matrices that are split, norms, and the sum with the residual ---- */

/* cuBLAS's workspace of autograd's forward or backward thread; the first call makes it. */
void rvli_rank_workspace(rvli_rank *r, bool backward);
/* Before a matrix that is split by columns: the whole sequence, where each rank has a part. */
void rvli_rank_gather(rvli_rank *r);
/* What a matrix that is split by rows gives: summed over ranks, and split where the sequence is. */
rvli_block rvli_rank_rows(rvli_rank *r);
/* Its backward pass: the gradient of its input; what was kept of that goes. */
rvli_block rvli_rank_rows_backward(rvli_rank *r, uint64_t input_bytes, uint64_t weight_elements,
                                   rvli_block *kept);
rvli_block rvli_rank_norm(rvli_rank *r, rvli_block *scale, bool kept);
/* Takes the gradient of what the norm gave; input: what it was of, or NULL where that stays. */
rvli_block rvli_rank_norm_backward(rvli_rank *r, rvli_block *gradient, rvli_block *input,
                                   rvli_block *scale);
/* A weight's, until it is added to the buffer. */
rvli_block rvli_rank_weight_gradient(rvli_rank *r, uint64_t elements);
/* Adds to the gradient that flows. */
void rvli_rank_join(rvli_rank *r, rvli_block *gradient);
/* The backward pass of a norm has a part of its weight's gradient for each block of threads. */
void rvli_rank_norm_parts(rvli_rank *r, uint64_t width);

/* ---- entry.c: a norm and the matrix behind it, which is split by columns ---- */

typedef struct rvli_entry {
    uint64_t output_bytes;
    uint64_t weight_elements;
    rvli_block *normed; /* what the norm gives */
    rvli_block *scale;
} rvli_entry;

rvli_block rvli_rank_enter(rvli_rank *r, const rvli_entry *entry, bool kept);
/* Takes the gradient of what the matrix gave, and adds that of the input to what flows, or in place
 * of it. input: what the norm was of, or NULL where that stays. */
void rvli_rank_enter_backward(rvli_rank *r, const rvli_entry *entry, rvli_block *gradient,
                              rvli_block *input, bool in_place);

/* ---- attention.c, experts.c, layer.c ---- */

rvli_block rvli_rank_attention(rvli_rank *r, rvli_rank_layer *layer, bool kept);
/* Answers the gradient of what the matrix of q, k and v gave. */
rvli_block rvli_rank_attention_backward(rvli_rank *r, rvli_rank_layer *layer);
/* That matrix. */
rvli_entry rvli_rank_attention_entry(const rvli_rank *r, rvli_rank_layer *layer);
/* A rank's queries, its keys (or values), and what softmax leaves for each query. */
uint64_t rvli_rank_q_bytes(const rvli_rank *r);
uint64_t rvli_rank_kv_bytes(const rvli_rank *r);
uint64_t rvli_rank_sums_bytes(const rvli_rank *r);
rvli_block rvli_rank_experts(rvli_rank *r, rvli_rank_layer *layer, bool kept);
rvli_block rvli_rank_experts_backward(rvli_rank *r, rvli_rank_layer *layer);
void rvli_rank_layer_forward(rvli_rank *r, rvli_rank_layer *layer, uint32_t number);
/* lent: its input is the schedule's. */
void rvli_rank_layer_backward(rvli_rank *r, rvli_rank_layer *layer, uint32_t number, bool lent);

/* ---- ring.c: attention with context parallelism ---- */

/* kept: for the backward pass. */
void rvli_rank_ring(rvli_rank *r, rvli_rank_layer *layer, bool kept);
/* Takes the gradient of what attention gave, and makes that of q. Answers that of k and v. */
rvli_block rvli_rank_ring_backward(rvli_rank *r, rvli_rank_layer *layer, rvli_block *of_attended,
                                   rvli_block *of_q);

/* ---- ends.c: embedding, head and loss ---- */

void rvli_rank_embed(rvli_rank *r);
void rvli_rank_embed_backward(rvli_rank *r);
void rvli_rank_loss(rvli_rank *r);
void rvli_rank_loss_backward(rvli_rank *r);

/* ---- schedule.c, interleaved.c ---- */

/* Which part of the model is at work. */
void rvli_rank_set_part(rvli_rank *r, uint32_t part);

/* Passes of one micro-batch through the part. The gradient of its output is there. */
void rvli_rank_forward(rvli_rank *r, rvli_in_flight *flight);
void rvli_rank_backward(rvli_rank *r, rvli_in_flight *flight);

/* Takes the place of the gradient that was sent. */
void rvli_rank_send(rvli_rank *r, rvli_block gradient);

/* Passes of a step through several parts in turn. */
void rvli_rank_run_interleaved(rvli_rank *r);

/* What lives from step to step: weights, main weights, the optimizer's states. false: no memory. */
bool rvli_rank_pack(const rvl_model *model, const rvli_training_shape *shape,
                    rvli_packer packers[3]);

/* As rvli_training_run(), of RVL_MODEL_TRAIN_MEGATRON. */
rvl_status rvli_rank_run(const rvl_model *model, const rvli_training_shape *shape,
                         const rvli_tape_listener *listener, rvli_trained *trained_out);

#endif
