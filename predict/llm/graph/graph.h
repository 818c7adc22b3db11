/* SPDX-License-Identifier: MIT */
/*
 * A training step derived: tensors with counted references, operators, and an autograd over shapes.
 *
 * A family is a text of its modules as transformers' source has them (texts/), and is run for each
 * layer (run.c). An operator says what it allocates, what it keeps, and what its backward pass
 * allocates, in which order (operators.c). What a name holds goes when its scope ends or when it
 * gets another value, as in Python; what a node keeps goes when the node has run (backward.c). The
 * order in which the tape takes and drops blocks follows from these.
 *
 * Where host memory runs out, the tape has failed and nothing more is taken: values are NULL, which
 * every function of this room takes.
 */
#ifndef RVL_PREDICT_LLM_GRAPH_GRAPH_H
#define RVL_PREDICT_LLM_GRAPH_GRAPH_H

#include "predict/llm/step/training.h"

typedef struct rvli_graph rvli_graph;
typedef struct rvli_node rvli_node;
typedef struct rvli_frame rvli_frame;
typedef struct rvli_program rvli_program;

/* ---- Values (values.c) ---- */

/* A block that values share: views, and what nodes keep. */
typedef struct rvli_storage {
    uint32_t refs;
    bool copied; /* to the host: the first node that kept it has it there */
    rvli_block block;
} rvli_storage;

/* What operators need to know of a shape. */
typedef struct rvli_shape {
    uint64_t elements;
    uint64_t width; /* of the last dimension */
    uint8_t element_bytes;
    bool has_heads;   /* heads come before tokens in its dimensions */
    bool heads_first; /* and in memory */
    bool by_columns;  /* its last two dimensions change places in memory */
    bool is_rows;     /* of two dimensions: a product's gradient is no view then */
    uint16_t axes;    /* which dimensions it has, where products add some (scan.c); 0: not told */
    rvl_model_term holder;
} rvli_shape;

typedef struct rvli_value {
    uint32_t refs;
    uint32_t leaf; /* index of a parameter + 1; 0: it was worked out */
    bool learns;   /* has a gradient */
    bool is_view;  /* a gradient that is one: autograd does not add to it in place */
    uint8_t part;  /* of what its node gives, if that is several */
    rvli_shape shape;
    rvli_storage *storage; /* NULL: a parameter, or nothing that takes memory */
    rvli_node *node;       /* that made it; NULL: none that has a backward pass */
} rvli_value;

/* Takes a block. NULL: nothing more is taken. */
rvli_value *rvli_value_make(rvli_graph *g, const rvli_shape *shape);
/* Another shape of the same block. */
rvli_value *rvli_value_view(rvli_graph *g, const rvli_value *of, const rvli_shape *shape);
/* Of a block that was taken before. */
rvli_value *rvli_value_adopt(rvli_graph *g, rvli_block *block);
/* A parameter of the unit that runs. NULL: it has none of this role. */
rvli_value *rvli_value_parameter(rvli_graph *g, rvli_role role);
rvli_value *rvli_value_leaf(rvli_graph *g, uint32_t index, uint64_t width);

rvli_value *rvli_value_retain(rvli_value *value);
void rvli_value_release(rvli_graph *g, rvli_value *value);
/* Releases what the variable had, and lets it have the value. */
void rvli_value_assign(rvli_graph *g, rvli_value **variable, rvli_value *value);

void rvli_storage_release(rvli_graph *g, rvli_storage *storage);

/* Memory for a moment, as a kernel works in. */
void rvli_work(rvli_graph *g, uint64_t bytes);

uint64_t rvli_shape_bytes(const rvli_shape *shape);

/* ---- Nodes (backward.c) ---- */

#define RVLI_INPUTS_MAX 3
#define RVLI_PARTS_MAX 4
#define RVLI_KEPT_MAX 6

/* What a node hands a gradient to. */
typedef struct rvli_input {
    rvli_node *node;
    uint32_t leaf; /* index of a parameter + 1 */
    bool wanted;
    uint8_t part; /* of what the node gave */
    rvli_shape shape;
} rvli_input;

/*
 * Works out gradients of inputs that are wanted, from that of the output. Each answer is the
 * caller's; one that is larger than its input is summed behind it.
 */
typedef void (*rvli_backward_fn)(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                                 rvli_value **of_out);

struct rvli_node {
    rvli_node *before; /* that was made before it */
    rvli_backward_fn backward;
    uint32_t unit;
    uint8_t input_count;
    uint8_t kept_count;
    uint8_t steps; /* of an elementwise backward pass: tensors that it makes */
    rvl_model_term host_holder;
    uint64_t host_bytes; /* of what it keeps on the host; 0: nothing */
    uint64_t number;     /* of an operator's own */
    rvli_frame *frame;
    uint32_t first_kept;               /* in what the frame computes again */
    rvli_value *gradient;              /* of what it gave, as far as it has come */
    rvli_value *parts[RVLI_PARTS_MAX]; /* the same, of a node that gives several */
    uint8_t part_count;
    rvli_input input[RVLI_INPUTS_MAX];
    rvli_storage *kept[RVLI_KEPT_MAX];
};

/* A node of these inputs; NULL: none has a gradient. */
rvli_node *rvli_node_make(rvli_graph *g, rvli_backward_fn backward, rvli_value *const *inputs,
                          uint8_t input_count);
/* The node keeps the value until it has run. NULL as a node: nothing happens. */
void rvli_node_keep(rvli_graph *g, rvli_node *node, const rvli_value *value);
/* The value is what the node gives. Answers the value. */
rvli_value *rvli_node_gives(rvli_graph *g, rvli_node *node, rvli_value *value);

/* A gradient of a node's input: of a parameter, it is held as such. */
rvli_value *rvli_gradient_make(rvli_graph *g, const rvli_node *node, int input);

/*
 * What many operators of one input do backward: pass on what came; make a view of it with the
 * input's dimensions; make a new one, such as zeros around a part; or a new one that lies in memory
 * in the order of its dimensions.
 */
void rvli_backward_pass(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                        rvli_value **of_out);
void rvli_backward_view(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                        rvli_value **of_out);
void rvli_backward_new(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                       rvli_value **of_out);
void rvli_backward_in_order(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out);

/* Runs all nodes, the last first, from the gradient of what the last one gave. */
void rvli_backward_run(rvli_graph *g, rvli_value *gradient);
/* Drops nodes that did not run. */
void rvli_backward_forget(rvli_graph *g);

/* ---- Layers that are computed again (checkpoint.c) ---- */

#define RVLI_FRAME_HELD 5

struct rvli_frame {
    uint32_t refs; /* of the forward pass, and of each node that keeps something */
    uint32_t layer;
    uint32_t kept_count; /* by all nodes of the layer */
    uint32_t again_count;
    rvli_storage **again;              /* the same, computed again; NULL: not yet */
    rvli_value *input;                 /* hidden states that the layer got */
    rvli_value *held[RVLI_FRAME_HELD]; /* all else that it got */
};

rvli_value *rvli_checkpoint_forward(rvli_graph *g, uint32_t layer, rvli_value *hidden);
/* The inputs of layers that go to the host have arrived there. */
void rvli_checkpoint_sent(rvli_graph *g);
/* A tensor goes to the host, and is here until the forward pass is over. */
void rvli_checkpoint_send(rvli_graph *g, rvli_storage *storage);
void rvli_checkpoint_all_sent(rvli_graph *g);
/* Puts what a node keeps into it. Answers whether the layer ran again. */
bool rvli_checkpoint_unpack(rvli_graph *g, rvli_node *node);
void rvli_frame_release(rvli_graph *g, rvli_frame *frame);

/* ---- Operators (operators.c): each answers what it gives, and takes no reference ---- */

typedef enum rvli_elementwise {
    RVLI_OP_SQUARE,
    RVLI_OP_RSQRT,
    RVLI_OP_SQRT,
    RVLI_OP_POWER, /* of 0.5 or -0.5, as pow() has it */
    RVLI_OP_SHIFT, /* plus a number */
    RVLI_OP_SCALE, /* times a number */
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
/* x[indices]: of rows as wide as x has them. */
rvli_value *rvli_op_rows_at(rvli_graph *g, rvli_value *x, rvli_value *indices);
/* Of so many each. */
rvli_value *rvli_op_sum(rvli_graph *g, rvli_value *x, uint64_t count);
rvli_value *rvli_op_reshape(rvli_graph *g, rvli_value *x, const rvli_shape *shape);
/* The same elements in rows of another width: .view(..., width). */
rvli_value *rvli_op_rows(rvli_graph *g, rvli_value *x, uint64_t width);
/* The last dimension in two; the width of the first part. */
void rvli_op_split(rvli_graph *g, rvli_value *x, uint64_t first, rvli_value **results_out);
/* The same in parts of these widths, of which one node has all. */
void rvli_op_divide(rvli_graph *g, rvli_value *x, const uint64_t *widths, uint8_t count,
                    rvli_value **results_out);

/* An operator of the texts by its name. */
typedef struct rvli_operator {
    const char *name;
    uint8_t arguments;
    rvli_value *(*run)(rvli_graph *g, rvli_value *const *arguments);
    /* NULL: it gives one value; else `run` is NULL */
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
/* All of them, from 0 on. NULL: there are no more. */
const rvli_operator *rvli_operator_at(size_t index);
rvli_value *rvli_op_elementwise(rvli_graph *g, rvli_elementwise which, rvli_value *x);

/* ---- Products (product.c) ---- */

/* bias: NULL: none. */
rvli_value *rvli_op_product(rvli_graph *g, rvli_value *x, rvli_value *weight, rvli_value *bias,
                            rvl_model_term holder);
/* A linear layer of the unit that runs, with its adapter if it has one. */
rvli_value *rvli_linear(rvli_graph *g, rvli_role role, rvli_value *x);
extern const rvli_operator rvli_product_operators[];
extern const rvli_operator rvli_activation_operators[];  /* activations.c */
extern const rvli_operator rvli_expert_operators[];      /* experts.c */
extern const rvli_operator rvli_convolution_operators[]; /* convolution.c */
extern const rvli_operator rvli_latent_operators[];      /* latent.c */
extern const rvli_operator rvli_complex_operators[];     /* complex.c */
extern const rvli_operator rvli_indexer_operators[];     /* indexer.c */
extern const rvli_operator rvli_mixer_operators[];       /* mixer.c */
extern const rvli_operator rvli_chunk_operators[];       /* chunks.c */
extern const rvli_operator rvli_delta_operators[];       /* delta.c */
extern const rvli_operator rvli_scan_operators[];        /* scan.c */
extern const rvli_operator rvli_sinks_operators[];       /* sinks.c */
extern const rvli_operator rvli_shared_operators[];      /* shared.c */
extern const rvli_operator rvli_stream_operators[];      /* streams.c */
/* Of the recurrence of the layer that runs. */
uint64_t rvli_chunks_of(const rvli_graph *g);
uint64_t rvli_chunk_tokens(const rvli_graph *g);

/* Dimensions that products add (scan.c): how many elements there are along these, */
uint64_t rvli_axes_elements(const rvli_graph *g, uint16_t axes);
/* and which there are in chunks, in whole sequences again, of the last token of each chunk; */
uint16_t rvli_axes_chunked(uint16_t axes);
uint16_t rvli_axes_flat(uint16_t axes);
uint16_t rvli_axes_last(uint16_t axes);
/* the side of the square of its pairs. */
uint64_t rvli_axes_rows(const rvli_graph *g, uint16_t axes);

/* One of those that hold the dictionary of keys and values lets it go. */
void rvli_dictionary_release(rvli_graph *g);

/* Streams lose what a list in Python holds. */
void rvli_list_release(rvli_graph *g);

/* Autocast ends: converted weights go that nothing keeps. */
void rvli_casts_release(rvli_graph *g, uint32_t down_to);

/* ---- Attention (attention.c) ---- */

rvli_value *rvli_op_attention(rvli_graph *g, rvli_value *const *qkv);
/* Under a mask, the fourth argument, of which the kernel has a copy in bf16. */
rvli_value *rvli_op_masked_attention(rvli_graph *g, rvli_value *const *arguments);
/* Whether keys and values are copied for each head of q before the kernel. */
bool rvli_repeats_heads(const rvli_graph *g);

/* ---- Head and loss (loss.c) ---- */

/* Answers logits, before a family changes them. */
rvli_value *rvli_head(rvli_graph *g, rvli_value *hidden);
/* Answers the loss, which takes no memory. */
rvli_value *rvli_loss(rvli_graph *g, rvli_value *hidden);

/* ---- Texts (program.c reads them, run.c runs them) ---- */

/* NULL: no host memory. */
rvli_program *rvli_program_make(const rvli_training *t);
void rvli_program_free(rvli_program *program);
/* Functions of a text that others than texts call. */
typedef enum rvli_entry_point {
    RVLI_ENTRY_MODEL,
    RVLI_ENTRY_DECODER_LAYER,
    RVLI_ENTRY_NORM,
    RVLI_ENTRY_LOGITS,
    RVLI_ENTRY_LORA,
    RVLI_ENTRY_LORA_4BIT,
    RVLI_ENTRY_LINEAR_4BIT,
    RVLI_ENTRY_POINT_COUNT
} rvli_entry_point;

rvli_value *rvli_program_call(rvli_graph *g, rvli_entry_point entry, rvli_value *const *arguments,
                              uint32_t count);
/* The text's norm, with the parameter of a role. */
rvli_value *rvli_program_norm(rvli_graph *g, rvli_role role, rvli_value *x);

/* ---- The model (model.c) ---- */

/* A parameter, while a pass runs. */
typedef struct rvli_leaf {
    uint32_t uses;       /* nodes that will still hand it a gradient */
    rvli_value *pending; /* what they have handed so far */
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
    rvli_node counter; /* stands for each node of a layer that is computed again */
    rvli_frame *frame; /* of the layer that runs forward; NULL: nodes keep things themselves */
    rvli_frame *again; /* of the layer that is computed again; NULL: none is */
    bool stopped;      /* all is there that was kept, or memory has run out */
    bool offloads;     /* what nodes keep goes to the host */
    uint32_t layer;    /* that comes next, forward */
    uint32_t unit;     /* of which parameters are taken; model->layers: the root */
    bool left;         /* backward: the unit has all its gradients */
    rvli_value *held[RVLI_FRAME_HELD]; /* angles and masks of the layer that runs */
    rvli_value *positions[2][2]; /* cosine and sine; of layers with a window, if they have others */
    rvli_value *masks[2];
    rvli_value *shared[2][2]; /* keys and values for later layers: without a window, with one */
    uint32_t dictionary_users;
    rvli_value *list[RVLI_STREAMS_MAX];
    uint32_t list_count;
    uint32_t stream;       /* of which a loop over streams is */
    rvli_value *embedding; /* of each token, for the layer that comes next */
    rvli_value *handed;    /* by the layer before: indices of tokens */
    rvli_value *handing;   /* the same for the next one */
    rvli_value *sent[2];   /* inputs of layers that are on their way to the host */
    rvli_storage *sending[RVLI_SENDING_MAX]; /* what comes behind the layers is, too */
    uint32_t sending_count;
    rvli_value **casts; /* weights that autocast has converted */
    uint32_t cast_count, cast_room;
    rvli_leaf *leaves;
    uint32_t *order; /* in which parameters have had their gradients, in the first pass */
    uint32_t order_count;
};

/* What is held for the layer that runs. */
enum { RVLI_HELD_COSINE, RVLI_HELD_SINE, RVLI_HELD_MASK, RVLI_HELD_HANDED, RVLI_HELD_EMBEDDING };

extern const rvli_operator rvli_model_operators[];

/* NULL: no host memory. */
rvli_graph *rvli_graph_make(rvli_training *t);
void rvli_graph_free(rvli_graph *g);
void rvli_graph_forward(rvli_graph *g);
/* The backward pass comes to the nodes of a unit. */
void rvli_graph_enter(rvli_graph *g, uint32_t unit);
void rvli_graph_backward(rvli_graph *g);

/* The parameter of a value that has one. */
static inline rvli_parameter *rvli_parameter_at(const rvli_graph *g, uint32_t leaf)
{
    return &g->t->parameters[leaf - 1];
}

#endif
