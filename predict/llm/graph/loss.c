/* SPDX-License-Identifier: MIT */
/*
 * Head and loss.
 *
 * plain: transformers' ForCausalLMLoss. It has logits in bf16, in fp32, and the logarithms of
 * probabilities. chunked: the same for one part of the tokens after the other, like torchtune's
 * LinearCrossEntropyLoss. fused: Liger's fused linear cross entropy. Its forward pass computes the
 * gradients of hidden states and head. It takes so many tokens at a time that their logits are
 * about as large as the hidden states.
 */
#include "predict/llm/graph/graph.h"

static rvli_role head_role(const rvli_graph *g)
{
    bool own = g->t->units[g->unit].by_role[RVLI_ROLE_HEAD] != 0;
    return own ? RVLI_ROLE_HEAD : RVLI_ROLE_EMBEDDING;
}

/* The input of the head stays on the device. */
rvli_value *rvli_head(rvli_graph *g, rvli_value *hidden)
{
    bool offloads = g->offloads;
    rvli_value *weight = rvli_value_parameter(g, head_role(g));
    rvli_value *bias = rvli_value_parameter(g, RVLI_ROLE_HEAD_BIAS);
    g->offloads = false;
    rvli_value *logits = rvli_op_product(g, hidden, weight, bias, RVL_MODEL_LOGITS);
    g->offloads = offloads;
    rvli_value_release(g, weight);
    rvli_value_release(g, bias);
    return logits;
}

/* ---- The loss of logits ---- */

/* Returns the loss, one number. */
static rvli_value *cross_entropy(rvli_graph *g, rvli_value *full)
{
    const rvli_shape number = {.width = 1, .holder = RVL_MODEL_LOGITS};
    rvli_value *logarithms = rvli_op_elementwise(g, RVLI_OP_LOG_SOFTMAX, full);
    if (logarithms == NULL)
        return NULL;
    rvli_node *node = rvli_node_make(g, rvli_backward_new, &logarithms, 1);
    rvli_node_keep(g, node, logarithms);
    rvli_value *loss = rvli_node_gives(g, node, rvli_value_make(g, &number));
    rvli_value_release(g, logarithms);
    return loss;
}

static rvli_value *loss_of(rvli_graph *g, rvli_value *logits)
{
    rvli_value *full = rvli_op_convert(g, logits, RVLI_FULL);
    rvli_value *loss = cross_entropy(g, full);
    rvli_value_release(g, full);
    return loss;
}

static rvli_value *plain(rvli_graph *g, rvli_value *hidden)
{
    rvli_value *logits = rvli_program_call(g, RVLI_ENTRY_LOGITS, &hidden, 1);
    rvli_value *loss = loss_of(g, logits);
    rvli_value_release(g, logits);
    return loss;
}

/* ---- chunked ---- */

/* Collects the gradients of the chunks. The first chunk's comes last, and then all become one
 * tensor. */
static void chunks_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    uint32_t chunk = (uint32_t)node->number;
    g->t->chunks[chunk] = gradient->storage->block;
    gradient->storage->block = NULL;
    if (chunk > 0)
        return;
    of_out[0] = rvli_gradient_make(g, node, 0);
    for (uint32_t i = 0; i <= g->t->options->loss_chunks; i++)
        rvli_release(g->t, &g->t->chunks[i]);
}

static rvli_value *chunk_of(rvli_graph *g, rvli_value *hidden, uint32_t chunk, uint64_t tokens)
{
    rvli_shape shape = hidden->shape;
    shape.elements = tokens * shape.width;
    rvli_node *node = rvli_node_make(g, chunks_backward, &hidden, 1);
    if (node != NULL)
        node->number = chunk;
    return rvli_node_gives(g, node, rvli_value_view(g, hidden, &shape));
}

/* Passes the gradient to both summands. */
static void both_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    (void)g;
    for (int i = 0; i < node->input_count; i++)
        of_out[i] = node->input[i].wanted ? rvli_value_retain(gradient) : NULL;
}

static rvli_value *sum_of(rvli_graph *g, rvli_value *loss, rvli_value *part)
{
    rvli_value *const parts[] = {loss, part};
    if (loss == NULL || part == NULL)
        return loss != NULL ? loss : part;
    rvli_node *node = rvli_node_make(g, both_backward, parts, 2);
    rvli_value *sum = rvli_node_gives(g, node, rvli_value_make(g, &loss->shape));
    rvli_value_release(g, loss);
    rvli_value_release(g, part);
    return sum;
}

static rvli_value *chunked(rvli_graph *g, rvli_value *hidden)
{
    uint64_t each = (g->t->tokens + g->t->options->loss_chunks - 1) / g->t->options->loss_chunks;
    rvli_value *loss = NULL;
    for (uint64_t begin = 0; hidden != NULL && begin < g->t->tokens && !g->stopped; begin += each) {
        uint64_t rest = g->t->tokens - begin;
        rvli_value *part = chunk_of(g, hidden, (uint32_t)(begin / each), rest < each ? rest : each);
        rvli_value *logits = rvli_head(g, part);
        rvli_value *full = rvli_op_convert(g, logits, RVLI_FULL);
        rvli_value_release(g, logits);
        loss = sum_of(g, loss, cross_entropy(g, full));
        rvli_value_release(g, full);
        rvli_value_release(g, part);
    }
    return loss;
}

/* ---- fused ---- */

static uint64_t power_of_two_above(uint64_t value)
{
    uint64_t power = 1;
    while (power < value)
        power *= 2;
    return power;
}

/* Tokens in a chunk (liger_kernel/ops/fused_linear_cross_entropy.py). */
static uint64_t fused_tokens(const rvli_training *t)
{
    uint64_t width = t->model->dim[RVLI_DIM_HIDDEN];
    uint64_t parts = (t->model->dim[RVLI_DIM_VOCABULARY] + width - 1) / width;
    uint64_t tokens = power_of_two_above((t->tokens + parts - 1) / parts);
    return tokens < t->tokens ? tokens : t->tokens;
}

/* Returns the gradients that the forward pass computed. */
static void fused_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                           rvli_value **of_out)
{
    (void)gradient;
    for (int i = 0; i < node->kept_count; i++) { /* a frozen head has no gradient */
        rvli_value *block =
            rvli_value_view(g, &(rvli_value){.storage = node->kept[i]}, &node->input[i].shape);
        of_out[i] = node->input[i].wanted ? block : NULL;
        if (of_out[i] == NULL)
            rvli_value_release(g, block);
    }
}

static rvli_value *fused(rvli_graph *g, rvli_value *hidden)
{
    rvli_value *weight = rvli_value_parameter(g, head_role(g));
    if (hidden == NULL || weight == NULL)
        return NULL;
    const rvli_shape number = {.width = 1, .holder = RVL_MODEL_LOGITS};
    bool offloads = g->offloads;
    rvli_value *const inputs[] = {hidden, weight};
    rvli_node *node = rvli_node_make(g, fused_backward, inputs, 2);
    rvli_value *of_hidden = rvli_value_make(g, &hidden->shape);
    rvli_value *of_head = weight->learns ? rvli_value_make(g, &weight->shape) : NULL;
    if (!g->stopped) {
        rvli_block half =
            rvli_take(&g->t->tape, RVL_MODEL_LOGITS,
                      RVLI_HALF * fused_tokens(g->t) * g->t->model->dim[RVLI_DIM_VOCABULARY]);
        rvli_release(g->t, &half);
    }
    g->offloads = false;
    rvli_node_keep(g, node, of_hidden);
    rvli_node_keep(g, node, of_head);
    g->offloads = offloads;
    rvli_value *loss = rvli_node_gives(g, node, rvli_value_make(g, &number));
    rvli_value_release(g, of_hidden);
    rvli_value_release(g, of_head);
    rvli_value_release(g, weight);
    return loss;
}

rvli_value *rvli_loss(rvli_graph *g, rvli_value *hidden)
{
    static rvli_value *(*const kinds[])(rvli_graph *,
                                        rvli_value *) = {[RVL_MODEL_LOSS_PLAIN] = plain,
                                                         [RVL_MODEL_LOSS_CHUNKED] = chunked,
                                                         [RVL_MODEL_LOSS_FUSED] = fused};
    return kinds[g->t->options->loss](g, hidden);
}
