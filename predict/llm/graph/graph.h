/* SPDX-License-Identifier: MIT */
/*
 * Derives a training step: reference-counted tensors, operators, and an autograd over shapes.
 *
 * A family is a text of its modules, written after transformers' source (texts/), which is run for
 * each layer (run.c). An operator says what it allocates, what it keeps, and what its backward pass
 * allocates, in which order (operators.c). A name's value is freed when its scope ends or when the
 * name gets another value, as in Python. What a node keeps is freed when the node has run
 * (backward.c). The order in which the tape takes and drops blocks follows from these rules.
 *
 * If host memory runs out, the tape has failed and takes nothing more. Values are then NULL, which
 * all functions in this folder accept.
 */
#ifndef RVL_PREDICT_LLM_GRAPH_GRAPH_H
#define RVL_PREDICT_LLM_GRAPH_GRAPH_H

#include "predict/llm/step/training.h"

typedef struct rvli_graph rvli_graph;
typedef struct rvli_node rvli_node;
typedef struct rvli_frame rvli_frame;
typedef struct rvli_program rvli_program;

/* ---- Values (values.c) ---- */

/* A block, shared by views and by nodes that keep it. */
typedef struct rvli_storage {
    uint32_t refs;
    bool copied; /* to the host, for the first node that kept it */
    rvli_block block;
} rvli_storage;

/* The properties of a shape that operators need. */
typedef struct rvli_shape {
    uint64_t elements;
    uint64_t width; /* size of the last dimension */
    uint8_t element_bytes;
    bool has_heads;   /* heads come before tokens in the order of dimensions */
    bool heads_first; /* heads come before tokens in memory */
    bool by_columns;  /* the last two dimensions are swapped in memory */
    bool is_rows;     /* two dimensions: a product's gradient is then not a view */
    uint16_t axes;    /* dimensions, if products add some (scan.c); 0: not tracked */
    rvl_model_term holder;
} rvli_shape;

typedef struct rvli_value {
    uint32_t refs;
    uint32_t leaf; /* index of a parameter + 1; 0: a computed value */
    bool learns;   /* has a gradient */
    bool is_view;  /* a gradient that is a view: autograd does not add to it in place */
    uint8_t part;  /* which of its node's outputs it is */
    rvli_shape shape;
    rvli_storage *storage; /* NULL: a parameter, or a value without memory */
    rvli_node *node;       /* the node that made it; NULL: none with a backward pass */
} rvli_value;

/* Takes a block. NULL: nothing more is taken, out of host memory. */
rvli_value *rvli_value_make(rvli_graph *g, const rvli_shape *shape);
/* The same block in another shape. */
rvli_value *rvli_value_view(rvli_graph *g, const rvli_value *of, const rvli_shape *shape);
/* A value with a block that was taken earlier. */
rvli_value *rvli_value_adopt(rvli_graph *g, rvli_block *block);
/* A parameter of the running unit. NULL: the unit has none of this role. */
rvli_value *rvli_value_parameter(rvli_graph *g, rvli_role role);
rvli_value *rvli_value_leaf(rvli_graph *g, uint32_t index, uint64_t width);

rvli_value *rvli_value_retain(rvli_value *value);
void rvli_value_release(rvli_graph *g, rvli_value *value);
/* Gives the variable the value, and releases its former one. */
void rvli_value_assign(rvli_graph *g, rvli_value **variable, rvli_value *value);

void rvli_storage_release(rvli_graph *g, rvli_storage *storage);

/* Temporary memory of a kernel. */
void rvli_work(rvli_graph *g, uint64_t bytes);

uint64_t rvli_shape_bytes(const rvli_shape *shape);

/* ---- Nodes (backward.c) ---- */

#define RVLI_INPUTS_MAX 3
#define RVLI_PARTS_MAX 4
#define RVLI_KEPT_MAX 6

/* Receives a gradient from a node. */
typedef struct rvli_input {
    rvli_node *node;
    uint32_t leaf; /* index of a parameter + 1 */
    bool wanted;
    uint8_t part; /* which of the node's outputs */
    rvli_shape shape;
} rvli_input;

/*
 * Computes the gradients of the wanted inputs from the gradient of the output. The caller owns each
 * result. If a result is larger than its input, it is summed afterwards.
 */
typedef void (*rvli_backward_fn)(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                                 rvli_value **of_out);

struct rvli_node {
    rvli_node *before; /* the node made before it */
    rvli_backward_fn backward;
    uint32_t unit;
    uint8_t input_count;
    uint8_t kept_count;
    uint8_t steps; /* elementwise: tensors that its backward pass makes */
    rvl_model_term host_holder;
    uint64_t host_bytes; /* that it keeps on the host; 0: none */
    uint64_t number;     /* for use by the operator */
    rvli_frame *frame;
    uint32_t first_kept;               /* index into frame->again */
    rvli_value *gradient;              /* of its output: the sum so far */
    rvli_value *parts[RVLI_PARTS_MAX]; /* the same for each of several outputs */
    uint8_t part_count;
    rvli_input input[RVLI_INPUTS_MAX];
    rvli_storage *kept[RVLI_KEPT_MAX];
};

/* Makes a node with these inputs. NULL: no input has a gradient. */
rvli_node *rvli_node_make(rvli_graph *g, rvli_backward_fn backward, rvli_value *const *inputs,
                          uint8_t input_count);
/* The node keeps the value until it has run. Does nothing if node is NULL. */
void rvli_node_keep(rvli_graph *g, rvli_node *node, const rvli_value *value);
/* Makes the value the node's output. Returns the value. */
rvli_value *rvli_node_gives(rvli_graph *g, rvli_node *node, rvli_value *value);

/* The gradient of a node's input, with the input's holder: RVL_MODEL_GRADIENTS for a parameter. */
rvli_value *rvli_gradient_make(rvli_graph *g, const rvli_node *node, int input);

/*
 * Common backward passes of operators with one input. They pass the gradient on; view it with the
 * input's dimensions; make a new tensor, such as zeros around a part; or make a new tensor that is
 * stored in the order of its dimensions.
 */
void rvli_backward_pass(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                        rvli_value **of_out);
void rvli_backward_view(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                        rvli_value **of_out);
void rvli_backward_new(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                       rvli_value **of_out);
void rvli_backward_in_order(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out);

/* Runs all nodes from the last to the first, starting from the gradient of the last one's
 * output. */
void rvli_backward_run(rvli_graph *g, rvli_value *gradient);
/* Drops the nodes that have not run. */
void rvli_backward_forget(rvli_graph *g);

/* ---- Layers that are computed again (checkpoint.c) ---- */

#define RVLI_FRAME_HELD 5

struct rvli_frame {
    uint32_t refs; /* the forward pass, and each node that keeps something */
    uint32_t layer;
    uint32_t kept_count; /* values that the layer's nodes keep */
    uint32_t again_count;
    rvli_storage **again;              /* these values, computed again; NULL: not yet */
    rvli_value *input;                 /* hidden states given to the layer */
    rvli_value *held[RVLI_FRAME_HELD]; /* the other inputs of the layer */
};

rvli_value *rvli_checkpoint_forward(rvli_graph *g, uint32_t layer, rvli_value *hidden);
/* The copies of the layers' inputs have arrived on the host. */
void rvli_checkpoint_sent(rvli_graph *g);
/* Sends a tensor to the host. It also stays on the device until the forward pass ends. */
void rvli_checkpoint_send(rvli_graph *g, rvli_storage *storage);
void rvli_checkpoint_all_sent(rvli_graph *g);
/* Gives the node what it keeps. Returns whether the layer was computed again for it. */
bool rvli_checkpoint_unpack(rvli_graph *g, rvli_node *node);
void rvli_frame_release(rvli_graph *g, rvli_frame *frame);

/* ---- Operators (operators.c): they return their output, and borrow their arguments ---- */

typedef enum rvli_elementwise {
    RVLI_OP_SQUARE,
    RVLI_OP_RSQRT,
    RVLI_OP_SQRT,
    RVLI_OP_POWER, /* to 0.5 or -0.5, computed as pow() does */
    RVLI_OP_SHIFT, /* adds a number */
    RVLI_OP_SCALE, /* multiplies by a number */
    RVLI_OP_NEGATE,
    RVLI_OP_SILU,
    RVLI_OP_GELU,
    RVLI_OP_SIGMOID,
    RVLI_OP_TANH,
    RVLI_OP_RELU,
    RVLI_OP_SOFTPLUS,
    RVLI_OP_EXP,
    RVLI_OP_EXPM1,
    RVLI_OP_LOG_SOFTMAX
} rvli_elementwise;

rvli_value *rvli_op_convert(rvli_graph *g, rvli_value *x, uint8_t element_bytes);
rvli_value *rvli_op_multiply(rvli_graph *g, rvli_value *a, rvli_value *b);
rvli_value *rvli_op_add(rvli_graph *g, rvli_value *a, rvli_value *b);
rvli_value *rvli_op_subtract(rvli_graph *g, rvli_value *a, rvli_value *b);
rvli_value *rvli_op_embed(rvli_graph *g, rvli_value *weight, uint64_t width);
rvli_value *rvli_op_slice(rvli_graph *g, rvli_value *x, uint64_t width);
/* x[indices], in rows as wide as x's. */
rvli_value *rvli_op_rows_at(rvli_graph *g, rvli_value *x, rvli_value *indices);
rvli_value *rvli_op_softmax(rvli_graph *g, rvli_value *const *x);
/* Sums groups of `count` elements. */
rvli_value *rvli_op_sum(rvli_graph *g, rvli_value *x, uint64_t count);
rvli_value *rvli_op_reshape(rvli_graph *g, rvli_value *x, const rvli_shape *shape);
/* The same elements in rows of another width: .view(..., width). */
rvli_value *rvli_op_rows(rvli_graph *g, rvli_value *x, uint64_t width);
/* Splits the last dimension in two. `first`: width of the first part. */
void rvli_op_split(rvli_graph *g, rvli_value *x, uint64_t first, rvli_value **results_out);
/* Splits the last dimension into parts of these widths. All parts have one node. */
void rvli_op_divide(rvli_graph *g, rvli_value *x, const uint64_t *widths, uint8_t count,
                    rvli_value **results_out);

/* An operator of the texts, with its name. */
typedef struct rvli_operator {
    const char *name;
    uint8_t arguments;
    rvli_value *(*run)(rvli_graph *g, rvli_value *const *arguments);
    /* for operators with several outputs; NULL: it has one, by `run` */
    void (*run_several)(rvli_graph *g, rvli_value *const *arguments, rvli_value **results_out);
} rvli_operator;

#define RVLI_OPERATOR(text, count, function)                                                       \
    {                                                                                              \
        .name = (text), .arguments = (count), .run = (function)                                    \
    }
#define RVLI_SEVERAL(text, count, function)                                                        \
    {                                                                                              \
        .name = (text), .arguments = (count), .run_several = (function)                            \
    }

const rvli_operator *rvli_operator_find(const char *name, size_t length);
/* All operators by index. NULL: past the last. */
const rvli_operator *rvli_operator_at(size_t index);
rvli_value *rvli_op_elementwise(rvli_graph *g, rvli_elementwise which, rvli_value *x);

/* ---- Products (product.c) ---- */

/* bias: may be NULL. */
rvli_value *rvli_op_product(rvli_graph *g, rvli_value *x, rvli_value *weight, rvli_value *bias,
                            rvl_model_term holder);
/* Runs an operator that torch.autocast runs in bf16: with its inputs converted, if it is active. */
rvli_value *rvli_op_autocast(rvli_graph *g, rvli_value *(*run)(rvli_graph *, rvli_value *const *),
                             rvli_value *const *inputs, int count);
/* A linear layer, with its adapter if it has one. NULL without a weight or an input. */
rvli_value *rvli_linear(rvli_graph *g, rvli_value *weight, rvli_value *x);
/* A (index 0) or B (1) of a parameter's adapter, NULL if it has none. width: as rvli_value_leaf().
 */
rvli_value *rvli_adapter_matrix(rvli_graph *g, const rvli_value *weight, uint32_t index,
                                uint64_t width);
extern const rvli_operator rvli_product_operators[];
extern const rvli_operator rvli_activation_operators[];  /* activations.c */
extern const rvli_operator rvli_expert_operators[];      /* experts.c */
extern const rvli_operator rvli_folded_operators[];      /* folded.c */
extern const rvli_operator rvli_convolution_operators[]; /* convolution.c */
extern const rvli_operator rvli_latent_operators[];      /* latent.c */
extern const rvli_operator rvli_complex_operators[];     /* complex.c */
extern const rvli_operator rvli_indexer_operators[];     /* indexer.c */
extern const rvli_operator rvli_mixer_operators[];       /* mixer.c */
extern const rvli_operator rvli_chunk_operators[];       /* chunks.c */
extern const rvli_operator rvli_delta_operators[];       /* delta.c */
extern const rvli_operator rvli_math_operators[];        /* math.c */
extern const rvli_operator rvli_scan_operators[];        /* scan.c */
extern const rvli_operator rvli_sinks_operators[];       /* sinks.c */
extern const rvli_operator rvli_shared_operators[];      /* shared.c */
extern const rvli_operator rvli_stream_operators[];      /* streams.c */
/* Chunks of a sequence in the running layer's recurrence, and the tokens of a chunk. */
uint64_t rvli_chunks_of(const rvli_graph *g);
uint64_t rvli_chunk_tokens(const rvli_graph *g);

/* Number of elements along these axes (scan.c). */
uint64_t rvli_axes_elements(const rvli_graph *g, uint16_t axes);
/* The axes of a value that is split into chunks, joined to whole sequences again, or reduced to the
 * last token of each chunk. */
uint16_t rvli_axes_chunked(uint16_t axes);
uint16_t rvli_axes_flat(uint16_t axes);
uint16_t rvli_axes_last(uint16_t axes);
/* Side of the square of pairs: tokens of a chunk, or borders of chunks. */
uint64_t rvli_axes_rows(const rvli_graph *g, uint16_t axes);

/* Releases one user's hold on the dictionary of shared keys and values. */
void rvli_dictionary_release(rvli_graph *g);

/* Releases the streams in the Python list. */
void rvli_list_release(rvli_graph *g);

/* Autocast ends: frees converted weights that no node keeps. */
void rvli_casts_release(rvli_graph *g, uint32_t down_to);

/* ---- Attention (attention.c; ring.c: of a rank that has a part of each sequence) ---- */

/* Of the output: a row for each row of q, as wide as values. */
rvli_shape rvli_attention_shape(const rvli_shape *q, const rvli_shape *v);
rvli_value *rvli_op_ring_attention(rvli_graph *g, rvli_value *const *qkv);

rvli_value *rvli_op_attention(rvli_graph *g, rvli_value *const *qkv);
/* With a mask as the fourth argument. The kernel keeps a copy of it in bf16. */
rvli_value *rvli_op_masked_attention(rvli_graph *g, rvli_value *const *arguments);
/* Whether keys and values are copied for each head of q before the kernel. */
bool rvli_repeats_heads(const rvli_graph *g);

/* ---- Head and loss (loss.c) ---- */

/* Returns the logits, before a family changes them. */
rvli_value *rvli_head(rvli_graph *g, rvli_value *hidden);
/* Returns the loss, a value that takes no memory. */
rvli_value *rvli_loss(rvli_graph *g, rvli_value *hidden);

/* ---- Texts (program.c reads them, run.c runs them) ---- */

/* NULL: out of host memory. */
rvli_program *rvli_program_make(const rvli_training *t);
void rvli_program_free(rvli_program *program);
/* Functions of a text that are called from outside of texts. */
typedef enum rvli_entry_point {
    RVLI_ENTRY_MODEL,
    RVLI_ENTRY_DECODER_LAYER,
    RVLI_ENTRY_NORM,
    RVLI_ENTRY_LOGITS,
    RVLI_ENTRY_LORA,
    RVLI_ENTRY_LORA_4BIT,
    RVLI_ENTRY_LINEAR_4BIT,
    RVLI_ENTRY_MATH,
    RVLI_ENTRY_POINT_COUNT
} rvli_entry_point;

rvli_value *rvli_program_call(rvli_graph *g, rvli_entry_point entry, rvli_value *const *arguments,
                              uint32_t count);
/* The text's norm, with the parameter of this role. */
rvli_value *rvli_program_norm(rvli_graph *g, rvli_role role, rvli_value *x);

/* ---- The model (model.c) ---- */

/* A parameter during a backward pass. */
typedef struct rvli_leaf {
    uint32_t uses;       /* nodes that have not yet given it a gradient */
    rvli_value *pending; /* sum of the gradients so far */
} rvli_leaf;

typedef struct rvli_items {
    size_t item_bytes;
    void *chunks;
    void *unused;
} rvli_items;

#define RVLI_SENDING_MAX 8
#define RVLI_STREAMS_MAX 64

struct rvli_graph {
    rvli_training *t;
    rvli_program *program;
    rvli_items values, storages, nodes, frames;
    rvli_node *last;
    rvli_node counter; /* stands in for each node of a layer that is computed again */
    rvli_frame *frame; /* of the layer running forward; NULL: nodes keep values themselves */
    rvli_frame *again; /* of the layer that is computed again; NULL: none */
    bool stopped;      /* everything kept has been computed again, or memory has run out */
    bool offloads;     /* values that nodes keep are sent to the host */
    uint32_t layer;    /* next one in the forward pass */
    uint32_t unit;     /* owner of the parameters; model->layers: the root */
    bool left;         /* backward: the unit has all its gradients */
    rvli_value *held[RVLI_FRAME_HELD]; /* inputs of the running layer besides hidden states */
    /* cosine and sine; [1]: for layers with a window, if they differ */
    rvli_value *positions[2][2];
    rvli_value *masks[2];
    rvli_value *shared[2][2]; /* keys and values for later layers; [1]: of layers with a window */
    uint32_t dictionary_users;
    rvli_value *list[RVLI_STREAMS_MAX];
    uint32_t list_count;
    uint32_t stream;                         /* in a loop over streams */
    rvli_value *embedding;                   /* of each token, for the next layer */
    rvli_value *handed;                      /* indices of tokens, from the previous layer */
    rvli_value *handing;                     /* the same, for the next layer */
    rvli_value *sent[2];                     /* inputs of layers, on their way to the host */
    rvli_storage *sending[RVLI_SENDING_MAX]; /* values from behind the layers, also on their way */
    uint32_t sending_count;
    rvli_value **casts; /* weights converted by autocast */
    uint32_t cast_count, cast_room;
    rvli_leaf *leaves;
    uint32_t *order; /* of the parameters' gradients, in the last backward pass */
    uint32_t order_count;
};

/* Index into `held`. */
enum { RVLI_HELD_COSINE, RVLI_HELD_SINE, RVLI_HELD_MASK, RVLI_HELD_HANDED, RVLI_HELD_EMBEDDING };

extern const rvli_operator rvli_model_operators[];

/* NULL: out of host memory. */
rvli_graph *rvli_graph_make(rvli_training *t);
void rvli_graph_free(rvli_graph *g);
void rvli_graph_forward(rvli_graph *g);
/* The backward pass reaches the nodes of a unit. */
void rvli_graph_enter(rvli_graph *g, uint32_t unit);
void rvli_graph_backward(rvli_graph *g);

/* leaf: index of the parameter + 1. */
static inline rvli_parameter *rvli_parameter_at(const rvli_graph *g, uint32_t leaf)
{
    return &g->t->parameters[leaf - 1];
}

#endif
