/* SPDX-License-Identifier: MIT */
/*
 * Operators of the texts: what each allocates, what it keeps, and what its backward pass makes.
 *
 * Most are elementwise and have a row in a table. A backward pass of several steps
 * (aten/src/ATen/native, torch/csrc/autograd/FunctionsManual.cpp) holds its intermediate tensors
 * until it ends. An operator keeps its inputs before it runs and its output afterwards: a layer
 * that is computed again may stop between the two.
 */
#include "predict/llm/graph/graph.h"

#include <string.h>

/* ---- Elementwise ---- */

typedef enum kept { NOTHING, INPUT, OUTPUT } kept;

typedef struct elementwise {
    kept keeps;
    /* tensors that its backward pass makes, the last of them the gradient; 0: passes the gradient
     * on */
    uint8_t steps;
} elementwise;

static const elementwise table[] = {
    [RVLI_OP_SQUARE] = {INPUT, 3}, /* power of one less, times two, times the gradient */
    [RVLI_OP_RSQRT] = {OUTPUT, 3}, /* cube, half of the gradient, their product */
    [RVLI_OP_SQRT] = {OUTPUT, 2},  /* twice the output, the gradient divided by it */
    [RVLI_OP_POWER] = {INPUT, 3},  /* as SQUARE, with its exponent instead of two */
    [RVLI_OP_SHIFT] = {NOTHING, 0},      [RVLI_OP_SCALE] = {NOTHING, 1},
    [RVLI_OP_NEGATE] = {NOTHING, 1},     [RVLI_OP_SILU] = {INPUT, 1},
    [RVLI_OP_GELU] = {INPUT, 1},         [RVLI_OP_SIGMOID] = {OUTPUT, 1},
    [RVLI_OP_TANH] = {OUTPUT, 1},        [RVLI_OP_RELU] = {OUTPUT, 1},
    [RVLI_OP_SOFTPLUS] = {INPUT, 1},     [RVLI_OP_EXP] = {OUTPUT, 1},
    [RVLI_OP_EXPM1] = {OUTPUT, 2}, /* the output plus one, the gradient times that */
    [RVLI_OP_LOG_SOFTMAX] = {OUTPUT, 1},
};

/* Each tensor has the shape of the input. Returns the last. */
static rvli_value *steps(rvli_graph *g, const rvli_node *node, const rvli_value *gradient)
{
    rvli_value *made[3] = {NULL};
    for (int i = 0; i < node->steps; i++) {
        made[i] = rvli_gradient_make(g, node, 0);
        if (made[i] != NULL)
            made[i]->shape.heads_first = gradient->shape.heads_first;
    }
    for (int i = 0; i + 1 < node->steps; i++)
        rvli_value_release(g, made[i]);
    return made[node->steps - 1];
}

static void elementwise_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                                 rvli_value **of_out)
{
    of_out[0] = node->steps == 0 ? rvli_value_retain(gradient) : steps(g, node, gradient);
}

rvli_value *rvli_op_elementwise(rvli_graph *g, rvli_elementwise which, rvli_value *x)
{
    const elementwise *e = &table[which];
    if (x == NULL)
        return NULL;
    rvli_node *node = rvli_node_make(g, elementwise_backward, &x, 1);
    if (node != NULL)
        node->steps = e->steps;
    if (e->keeps == INPUT)
        rvli_node_keep(g, node, x);
    rvli_shape shape = x->shape;
    if (x->leaf != 0)
        shape.holder = RVL_MODEL_ACTIVATIONS;
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &shape));
    if (e->keeps == OUTPUT)
        rvli_node_keep(g, node, y);
    return y;
}

/* Converts to another type. The backward pass converts the gradient back. */
rvli_value *rvli_op_convert(rvli_graph *g, rvli_value *x, uint8_t element_bytes)
{
    if (x == NULL || x->shape.element_bytes == element_bytes)
        return rvli_value_retain(x);
    rvli_shape shape = x->shape;
    shape.element_bytes = element_bytes;
    if (x->leaf != 0)
        shape.holder = RVL_MODEL_ACTIVATIONS;
    rvli_node *node = rvli_node_make(g, elementwise_backward, &x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* ---- Two inputs ---- */

/* The shape of the larger input. If both track their axes: the union of these. */
static rvli_shape joint(const rvli_graph *g, const rvli_value *a, const rvli_value *b)
{
    bool b_is_larger = a->leaf != 0 || (b->leaf == 0 && b->shape.elements > a->shape.elements);
    rvli_shape shape = b_is_larger ? b->shape : a->shape;
    uint8_t a_bytes = a->shape.element_bytes, b_bytes = b->shape.element_bytes;
    shape.element_bytes = a_bytes > b_bytes ? a_bytes : b_bytes;
    shape.axes = a->shape.axes | b->shape.axes;
    if (a->shape.axes != 0 && b->shape.axes != 0)
        shape.elements = rvli_axes_elements(g, shape.axes);
    return shape;
}

/* The gradient of the second factor comes first. Both have the size of the product. */
static void multiply_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                              rvli_value **of_out)
{
    for (int i = 1; i >= 0; i--) {
        if (node->input[i].wanted)
            of_out[i] = rvli_value_make(g, &gradient->shape);
    }
}

rvli_value *rvli_op_multiply(rvli_graph *g, rvli_value *a, rvli_value *b)
{
    if (a == NULL || b == NULL)
        return NULL;
    rvli_value *const factors[] = {a, b};
    const rvli_shape shape = joint(g, a, b);
    rvli_node *node = rvli_node_make(g, multiply_backward, factors, 2);
    if (a->learns)
        rvli_node_keep(g, node, b);
    if (b->learns)
        rvli_node_keep(g, node, a);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static void add_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                         rvli_value **of_out)
{
    (void)g;
    for (int i = 0; i < 2; i++) {
        if (node->input[i].wanted)
            of_out[i] = rvli_value_retain(gradient);
    }
}

static void subtract_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                              rvli_value **of_out)
{
    if (node->input[0].wanted)
        of_out[0] = rvli_value_retain(gradient);
    if (node->input[1].wanted)
        of_out[1] = rvli_value_make(g, &gradient->shape);
}

static rvli_value *combine(rvli_graph *g, rvli_backward_fn backward, rvli_value *a, rvli_value *b)
{
    if (a == NULL || b == NULL)
        return NULL;
    rvli_value *const parts[] = {a, b};
    const rvli_shape shape = joint(g, a, b);
    rvli_node *node = rvli_node_make(g, backward, parts, 2);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

rvli_value *rvli_op_add(rvli_graph *g, rvli_value *a, rvli_value *b)
{
    return combine(g, add_backward, a, b);
}

rvli_value *rvli_op_subtract(rvli_graph *g, rvli_value *a, rvli_value *b)
{
    return combine(g, subtract_backward, a, b);
}

/* ---- Shapes ---- */

/* Views the gradient in the input's shape. Copies it if heads come first in memory, but not in the
 * shape. */
static void reshape_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                             rvli_value **of_out)
{
    rvli_shape shape = node->input[0].shape;
    shape.heads_first = gradient->shape.heads_first;
    if (shape.heads_first && !shape.has_heads)
        of_out[0] = rvli_gradient_make(g, node, 0);
    else
        of_out[0] = rvli_value_view(g, gradient, &shape);
    if (of_out[0] != NULL)
        of_out[0]->is_view = of_out[0]->storage == gradient->storage;
}

rvli_value *rvli_op_reshape(rvli_graph *g, rvli_value *x, const rvli_shape *shape)
{
    rvli_node *node = rvli_node_make(g, reshape_backward, &x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x, shape));
}

rvli_value *rvli_op_rows(rvli_graph *g, rvli_value *x, uint64_t width)
{
    rvli_shape shape = x->shape;
    shape.width = width;
    return rvli_op_reshape(g, x, &shape);
}

/* Splits rows into heads, as .view(hidden_shape) does. */
static rvli_value *view(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], rvli_dim_here(g->t, RVLI_DIM_HEAD));
}

/* Splits rows into heads with two parts. */
static rvli_value *view_pairs(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_rows(g, x[0], 2 * rvli_dim_here(g->t, RVLI_DIM_HEAD));
}

static rvli_value *flatten(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.width = shape.elements / g->t->tokens;
    shape.axes = 0;
    return rvli_op_reshape(g, x[0], &shape);
}

/* Tokens of all sequences as rows; unrows() goes back. */
static rvli_value *rows(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.is_rows = true;
    return rvli_op_reshape(g, x[0], &shape);
}

static rvli_value *unrows(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.is_rows = false;
    return rvli_op_reshape(g, x[0], &shape);
}

static void transpose_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                               rvli_value **of_out)
{
    rvli_shape shape = node->input[0].shape;
    shape.heads_first = gradient->shape.heads_first;
    of_out[0] = rvli_value_view(g, gradient, &shape);
}

/* Moves heads before tokens, or back. The order in memory stays. */
static rvli_value *transpose(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.has_heads = !shape.has_heads;
    rvli_node *node = rvli_node_make(g, transpose_backward, x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x[0], &shape));
}

/* Copies a value if its order in memory differs from the order of its dimensions. */
static rvli_value *contiguous(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    if (shape.heads_first == shape.has_heads)
        return rvli_value_retain(x[0]);
    shape.heads_first = shape.has_heads;
    rvli_node *node = rvli_node_make(g, rvli_backward_pass, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static rvli_value *clone(rvli_graph *g, rvli_value *const *x)
{
    rvli_node *node = rvli_node_make(g, rvli_backward_pass, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &x[0]->shape));
}

rvli_value *rvli_op_slice(rvli_graph *g, rvli_value *x, uint64_t width)
{
    if (x == NULL)
        return NULL;
    rvli_shape shape = x->shape;
    if (shape.width > 0) /* 0: the half of a head with one element */
        shape.elements = shape.elements / shape.width * width;
    shape.width = width;
    rvli_node *node = rvli_node_make(g, rvli_backward_in_order, &x, 1);
    return rvli_node_gives(g, node, rvli_value_view(g, x, &shape));
}

static rvli_value *half_of(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_slice(g, x[0], x[0]->shape.width / 2);
}

/* The rotated part of each head; other_part() is the rest. */
static rvli_value *rotary_part(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_slice(g, x[0], g->t->model->dim[RVLI_DIM_ROTARY]);
}

static rvli_value *other_part(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_slice(g, x[0], x[0]->shape.width - g->t->model->dim[RVLI_DIM_ROTARY]);
}

static rvli_value *q_part(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_slice(g, x[0], rvli_dim_here(g->t, RVLI_DIM_Q));
}

static rvli_value *kv_part(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_slice(g, x[0], rvli_dim_here(g->t, RVLI_DIM_KV));
}

static void cat_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                         rvli_value **of_out)
{
    for (int i = 0; i < node->input_count; i++) {
        rvli_shape shape = node->input[i].shape;
        shape.heads_first = gradient->shape.heads_first;
        if (node->input[i].wanted)
            of_out[i] = rvli_value_view(g, gradient, &shape);
    }
}

/* Concatenates, and stores the result in the order of its dimensions. */
static rvli_value *join(rvli_graph *g, rvli_value *const *parts, uint8_t count)
{
    rvli_shape shape = parts[0]->shape;
    for (uint8_t i = 1; i < count; i++) {
        shape.elements += parts[i]->shape.elements;
        shape.width += parts[i]->shape.width;
    }
    shape.heads_first = shape.has_heads;
    rvli_node *node = rvli_node_make(g, cat_backward, parts, count);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

static rvli_value *cat(rvli_graph *g, rvli_value *const *parts)
{
    return join(g, parts, 2);
}

static rvli_value *cat_3(rvli_graph *g, rvli_value *const *parts)
{
    return join(g, parts, 3);
}

/* One node has all parts. */
void rvli_op_divide(rvli_graph *g, rvli_value *x, const uint64_t *widths, uint8_t count,
                    rvli_value **results_out)
{
    const uint64_t rows = x->shape.elements / x->shape.width;
    rvli_node *node = rvli_node_make(g, rvli_backward_in_order, &x, 1);
    for (uint8_t i = 0; i < count && node != NULL; i++)
        node->parts[i] = NULL;
    if (node != NULL)
        node->part_count = count;
    for (uint8_t i = 0; i < count; i++) {
        rvli_shape shape = x->shape;
        shape.elements = rows * widths[i];
        shape.width = widths[i];
        results_out[i] = rvli_node_gives(g, node, rvli_value_view(g, x, &shape));
        if (results_out[i] != NULL)
            results_out[i]->part = i;
    }
}

void rvli_op_split(rvli_graph *g, rvli_value *x, uint64_t first, rvli_value **results_out)
{
    rvli_op_divide(g, x, (const uint64_t[]){first, x->shape.width - first}, 2, results_out);
}

/* .chunk(2, dim=-1) */
static void chunk(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    rvli_op_split(g, x[0], x[0]->shape.width / 2, results_out);
}

static void chunk_3(rvli_graph *g, rvli_value *const *x, rvli_value **results_out)
{
    const uint64_t third = x[0]->shape.width / 3;
    rvli_op_divide(g, x[0], (const uint64_t[]){third, third, third}, 3, results_out);
}

static void sum_heads_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                               rvli_value **of_out)
{
    (void)gradient;
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (of_out[0] == NULL)
        return;
    of_out[0]->shape.heads_first = rvli_kv_heads_here(g->t) > 1;
    of_out[0]->is_view = true; /* a view of a sum with one dimension more */
}

/* Keys or values for each head of q. A single head is repeated as a view. */
static rvli_value *repeat_kv(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    if (rvli_kv_heads_here(g->t) == g->t->model->heads)
        return rvli_value_retain(x[0]);
    shape.elements = g->t->tokens * rvli_dim_here(g->t, RVLI_DIM_Q);
    shape.heads_first = shape.has_heads;
    rvli_node *node = rvli_node_make(g, sum_heads_backward, x, 1);
    bool copied = rvli_kv_heads_here(g->t) > 1;
    return rvli_node_gives(g, node,
                           copied ? rvli_value_make(g, &shape) : rvli_value_view(g, x[0], &shape));
}

/* ---- Others ---- */

/* Angles, each repeated for two neighbouring elements. */
static rvli_value *repeat_interleave(rvli_graph *g, rvli_value *const *x)
{
    return rvli_value_make(g, &x[0]->shape);
}

/* Expands the gradient to the size of the input, as a view of its memory. */
static void sum_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                         rvli_value **of_out)
{
    rvli_shape shape = node->input[0].shape;
    shape.heads_first = gradient->shape.heads_first;
    of_out[0] = rvli_value_view(g, gradient, &shape);
    if (of_out[0] != NULL)
        of_out[0]->is_view = true;
}

rvli_value *rvli_op_sum(rvli_graph *g, rvli_value *x, uint64_t count)
{
    rvli_shape shape = x->shape;
    shape.elements /= count;
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, sum_backward, &x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* Over the last dimension. */
static rvli_value *sum(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_sum(g, x[0], x[0]->shape.width);
}

static void mean_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (of_out[0] != NULL)
        of_out[0]->shape.heads_first = gradient->shape.heads_first;
}

/* Over the last dimension. */
static rvli_value *mean(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    shape.elements /= shape.width;
    shape.width = 1;
    rvli_node *node = rvli_node_make(g, mean_backward, x, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

#define EMBEDDED_UNSORTED_MAX 3072
#define EMBEDDED_ROWS_OF_THREAD 10

/* Many tokens are sorted, and summed in segments. Memory is taken for the largest possible number
 * of segments (aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu). */
static void embed_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    uint64_t rows = g->t->model->dim[RVLI_DIM_VOCABULARY], tokens = g->t->tokens;
    uint64_t segments = (tokens < rows ? tokens : rows) + tokens / EMBEDDED_ROWS_OF_THREAD;
    of_out[0] = rvli_gradient_make(g, node, 0);
    if (tokens > EMBEDDED_UNSORTED_MAX)
        rvli_work(g, RVLI_FULL * segments * gradient->shape.width);
}

rvli_value *rvli_op_embed(rvli_graph *g, rvli_value *weight, uint64_t width)
{
    if (weight == NULL)
        return NULL;
    const rvli_shape shape = {.elements = g->t->tokens * width,
                              .width = width,
                              .element_bytes = (uint8_t)rvli_flow_bytes(g->t),
                              .holder = RVL_MODEL_ACTIVATIONS};
    rvli_node *node = rvli_node_make(g, embed_backward, &weight, 1);
    return rvli_node_gives(g, node, rvli_value_make(g, &shape));
}

/* Keeps a byte for each element that says whether it is left
 * (aten/src/ATen/native/cuda/Dropout.cu). */
static rvli_value *dropout(rvli_graph *g, rvli_value *const *x)
{
    rvli_shape shape = x[0]->shape;
    if ((g->t->model->features & RVLI_DROPOUT) == 0)
        return rvli_value_retain(x[0]);
    shape.element_bytes = 1;
    rvli_node *node = rvli_node_make(g, elementwise_backward, x, 1);
    rvli_value *mask = rvli_value_make(g, &shape);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &x[0]->shape));
    rvli_node_keep(g, node, mask);
    rvli_value_release(g, mask);
    return y;
}

static void layer_norm_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                                rvli_value **of_out)
{
    (void)gradient;
    for (int i = 0; i < 3; i++)
        of_out[i] = node->input[i].wanted ? rvli_gradient_make(g, node, i) : NULL;
}

/* One kernel each way (aten/src/ATen/native/cuda/layer_norm_kernel.cu). It keeps the input as it
 * is, and the mean and scale of each row. */
static rvli_value *layer_norm(rvli_graph *g, rvli_value *const *arguments)
{
    rvli_value *x = arguments[0], *weight = arguments[1];
    rvli_role role = rvli_parameter_at(g, weight->leaf)->role;
    rvli_value *bias = rvli_value_parameter(
        g, role == RVLI_ROLE_LAST_NORM         ? RVLI_ROLE_LAST_NORM_BIAS
           : role == RVLI_ROLE_NORM_BEFORE_MLP ? RVLI_ROLE_NORM_BEFORE_MLP_BIAS
                                               : RVLI_ROLE_NORM_BEFORE_ATTENTION_BIAS);
    rvli_value *const inputs[] = {x, weight, bias};
    const rvli_shape row = {.elements = x->shape.elements / x->shape.width,
                            .width = 1,
                            .element_bytes = RVLI_FULL,
                            .holder = RVL_MODEL_ACTIVATIONS};
    rvli_node *node = rvli_node_make(g, layer_norm_backward, inputs, 3);
    rvli_node_keep(g, node, x);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_make(g, &x->shape));
    for (int i = 0; i < 2; i++) {
        rvli_value *each = rvli_value_make(g, &row);
        rvli_node_keep(g, node, each);
        rvli_value_release(g, each);
    }
    rvli_value_release(g, bias);
    return y;
}

/* ---- By name ---- */

static rvli_value *to_float(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_convert(g, x[0], RVLI_FULL);
}

static rvli_value *to_bf16(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_convert(g, x[0], RVLI_HALF);
}

/* .to(dtype) of the values between layers */
static rvli_value *to_hidden_dtype(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_convert(g, x[0], (uint8_t)rvli_flow_bytes(g->t));
}

static rvli_value *type_as(rvli_graph *g, rvli_value *const *x)
{
    return rvli_op_convert(g, x[0], x[1]->shape.element_bytes);
}

#define ELEMENTWISE(function, which)                                                               \
    static rvli_value *function(rvli_graph *g, rvli_value *const *x)                               \
    {                                                                                              \
        return rvli_op_elementwise(g, which, x[0]);                                                \
    }

ELEMENTWISE(square, RVLI_OP_SQUARE)
ELEMENTWISE(rsqrt, RVLI_OP_RSQRT)
ELEMENTWISE(power, RVLI_OP_POWER)
ELEMENTWISE(silu, RVLI_OP_SILU)
ELEMENTWISE(gelu, RVLI_OP_GELU)
ELEMENTWISE(relu, RVLI_OP_RELU)
ELEMENTWISE(tanh_of, RVLI_OP_TANH)
ELEMENTWISE(sigmoid, RVLI_OP_SIGMOID)
ELEMENTWISE(exp_of, RVLI_OP_EXP)

static const rvli_operator operators[] = {
    RVLI_OPERATOR("float", 1, to_float),
    RVLI_OPERATOR("bfloat16", 1, to_bf16),
    RVLI_OPERATOR("hidden_dtype", 1, to_hidden_dtype),
    RVLI_OPERATOR("type_as", 2, type_as),
    RVLI_OPERATOR("square", 1, square),
    RVLI_OPERATOR("rsqrt", 1, rsqrt),
    RVLI_OPERATOR("power", 1, power),
    RVLI_OPERATOR("silu", 1, silu),
    RVLI_OPERATOR("gelu", 1, gelu),
    RVLI_OPERATOR("relu", 1, relu),
    RVLI_OPERATOR("tanh", 1, tanh_of),
    RVLI_OPERATOR("sigmoid", 1, sigmoid),
    RVLI_OPERATOR("mean", 1, mean),
    RVLI_OPERATOR("sum", 1, sum),
    RVLI_OPERATOR("exp", 1, exp_of),
    RVLI_OPERATOR("view", 1, view),
    RVLI_OPERATOR("view_pairs", 1, view_pairs),
    RVLI_OPERATOR("flatten", 1, flatten),
    RVLI_OPERATOR("transpose", 1, transpose),
    RVLI_OPERATOR("contiguous", 1, contiguous),
    RVLI_OPERATOR("clone", 1, clone),
    RVLI_OPERATOR("first_half", 1, half_of),
    RVLI_OPERATOR("second_half", 1, half_of),
    RVLI_OPERATOR("cat", 2, cat),
    RVLI_OPERATOR("cat_3", 3, cat_3),
    RVLI_OPERATOR("repeat_kv", 1, repeat_kv),
    RVLI_OPERATOR("rotary_part", 1, rotary_part),
    RVLI_OPERATOR("other_part", 1, other_part),
    RVLI_OPERATOR("q_part", 1, q_part),
    RVLI_OPERATOR("kv_part", 1, kv_part),
    RVLI_SEVERAL("chunk", 1, chunk),
    RVLI_SEVERAL("chunk_3", 1, chunk_3),
    RVLI_OPERATOR("rows", 1, rows),
    RVLI_OPERATOR("unrows", 1, unrows),
    RVLI_OPERATOR("dropout", 1, dropout),
    RVLI_OPERATOR("layer_norm", 2, layer_norm),
    RVLI_OPERATOR("repeat_interleave", 1, repeat_interleave),
    RVLI_OPERATOR("scaled_dot_product_attention", 3, rvli_op_attention),
    RVLI_OPERATOR("masked_dot_product_attention", 4, rvli_op_masked_attention),
    {.name = NULL},
};

static bool is(const char *name, const char *text, size_t length)
{
    return strncmp(name, text, length) == 0 && name[length] == '\0';
}

static const rvli_operator *const tables[] = {
    operators,
    rvli_product_operators,
    rvli_activation_operators,
    rvli_expert_operators,
    rvli_folded_operators,
    rvli_convolution_operators,
    rvli_latent_operators,
    rvli_complex_operators,
    rvli_indexer_operators,
    rvli_mixer_operators,
    rvli_chunk_operators,
    rvli_math_operators,
    rvli_delta_operators,
    rvli_scan_operators,
    rvli_sinks_operators,
    rvli_shared_operators,
    rvli_stream_operators,
    rvli_model_operators,
};

const rvli_operator *rvli_operator_at(size_t index)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const rvli_operator *o = tables[t]; o->name != NULL; o++) {
            if (index-- == 0)
                return o;
        }
    }
    return NULL;
}

const rvli_operator *rvli_operator_find(const char *name, size_t length)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const rvli_operator *o = tables[t]; o->name != NULL; o++) {
            if (is(o->name, name, length))
                return o;
        }
    }
    return NULL;
}
