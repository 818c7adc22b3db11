/* SPDX-License-Identifier: MIT */
/*
 * Last norm, head and loss.
 *
 * plain: transformers' ForCausalLMLoss. Logits in bf16, in fp32, their logarithms of probabilities,
 * and backward the gradients of each.
 * chunked: the same for one part of the tokens after the other, as torchtune's
 * LinearCrossEntropyLoss has it. Logarithms stay until the backward pass, the rest is of one part.
 * fused: Liger's fused linear cross entropy. The forward pass works out the gradients of the hidden
 * states and of the head, for so many tokens at once that their logits take about as much as the
 * hidden states.
 */
#include "predict/llm/step/training.h"

static rvli_block logits(rvli_training *t, uint64_t element_bytes, uint64_t tokens)
{
    return rvli_take(&t->tape, RVL_MODEL_LOGITS,
                     element_bytes * tokens * t->model->dim[RVLI_DIM_VOCABULARY]);
}

static uint64_t hidden_bytes(const rvli_training *t, uint64_t tokens)
{
    return RVLI_HALF * tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

/* The root's parameter that gives logits: its own, or the embedding's. */
static rvli_role head_role(const rvli_training *t)
{
    return rvli_root(t)->by_role[RVLI_ROLE_HEAD] != 0 ? RVLI_ROLE_HEAD : RVLI_ROLE_EMBEDDING;
}

static rvli_parameter *head(const rvli_training *t)
{
    return &t->parameters[rvli_root(t)->by_role[head_role(t)] - 1];
}

static rvli_block gradient_of_head(rvli_training *t)
{
    return rvli_take(&t->tape, RVL_MODEL_GRADIENTS, RVLI_HALF * head(t)->elements);
}

/* The head's, worked out: it stays, or is added to what an earlier micro-batch left. */
static void keep_gradient(rvli_training *t, rvli_block *of_head)
{
    if (head(t)->gradient != NULL)
        rvli_release(t, of_head);
    else
        head(t)->gradient = *of_head;
    *of_head = NULL;
    rvli_buckets_ready(t, head(t));
}

/* ---- Logits with a cap: divided by it, tanh, multiplied ---- */

static bool is_capped(const rvli_training *t)
{
    return (t->model->features & RVLI_CAPPED_LOGITS) != 0;
}

/* Takes the logits, and answers them with the cap; keeps their tanh. */
static rvli_block cap(rvli_training *t, uint64_t tokens, rvli_block half, rvli_block *tanh_out)
{
    if (!is_capped(t))
        return half;
    rvli_block divided = logits(t, RVLI_HALF, tokens);
    rvli_release(t, &half);
    *tanh_out = logits(t, RVLI_HALF, tokens);
    rvli_release(t, &divided);
    return logits(t, RVLI_HALF, tokens);
}

/* Takes the gradient of logits with the cap, and answers that of those without. */
static rvli_block cap_backward(rvli_training *t, uint64_t tokens, rvli_block gradient,
                               rvli_block *tanh)
{
    if (!is_capped(t))
        return gradient;
    rvli_block of_tanh = logits(t, RVLI_HALF, tokens);
    rvli_release(t, &gradient);
    rvli_fetch(t, RVL_MODEL_LOGITS, RVLI_HALF * tokens * t->model->dim[RVLI_DIM_VOCABULARY]);
    rvli_block of_divided = logits(t, RVLI_HALF, tokens);
    rvli_fetched(t);
    rvli_release(t, &of_tanh);
    rvli_release(t, tanh);
    rvli_block of_logits = logits(t, RVLI_HALF, tokens);
    rvli_release(t, &of_divided);
    return of_logits;
}

/* ---- plain ---- */

static void plain_forward(rvli_training *t)
{
    rvli_block half = logits(t, RVLI_HALF, t->tokens);
    half = cap(t, t->tokens, half, &t->capped);
    rvli_block full = logits(t, RVLI_FULL, t->tokens);
    t->log_probabilities = logits(t, RVLI_FULL, t->tokens);
    rvli_release(t, &full);
    rvli_reshard_forward(t, rvli_root(t));
    rvli_release(t, &t->gather_buffer);
    rvli_release(t, &half);
}

/* Answers the gradient of logits in bf16. Drops what the forward pass has kept. */
static rvli_block logits_backward(rvli_training *t, uint64_t tokens, rvli_block *log_probabilities)
{
    rvli_block of_log = logits(t, RVLI_FULL, tokens);
    if (rvli_is_offloaded(t))
        rvli_release(t, log_probabilities); /* the loss has used its own */
    rvli_fetch(t, RVL_MODEL_LOGITS, RVLI_FULL * tokens * t->model->dim[RVLI_DIM_VOCABULARY]);
    rvli_block of_full = logits(t, RVLI_FULL, tokens);
    rvli_release(t, &of_log);
    rvli_release(t, log_probabilities);
    rvli_block of_half = logits(t, RVLI_HALF, tokens);
    rvli_release(t, &of_full);
    return of_half;
}

static rvli_block plain_backward(rvli_training *t)
{
    rvli_block of_half = logits_backward(t, t->tokens, &t->log_probabilities);
    of_half = cap_backward(t, t->tokens, of_half, &t->capped);
    rvli_gradient(t, rvli_root(t), head_role(t));
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD); /* in the first product, behind what it gives */
    rvli_block of_hidden = rvli_activation(t, hidden_bytes(t, t->tokens));
    rvli_release(t, &of_half);
    rvli_release(t, &t->last_hidden);
    return of_hidden;
}

/* ---- chunked ---- */

static uint64_t chunk_tokens(const rvli_training *t)
{
    return (t->tokens + t->options->loss_chunks - 1) / t->options->loss_chunks;
}

/* Tokens of a chunk; 0: there are no more. */
static uint64_t tokens_of(const rvli_training *t, uint64_t chunk)
{
    uint64_t begin = chunk * chunk_tokens(t);
    uint64_t rest = begin < t->tokens ? t->tokens - begin : 0;
    return rest < chunk_tokens(t) ? rest : chunk_tokens(t);
}

static void chunked_forward(rvli_training *t)
{
    for (uint32_t chunk = 0; tokens_of(t, chunk) > 0; chunk++) {
        rvli_block half = logits(t, RVLI_HALF, tokens_of(t, chunk));
        rvli_block full = logits(t, RVLI_FULL, tokens_of(t, chunk));
        rvli_release(t, &half);
        t->chunks[chunk] = logits(t, RVLI_FULL, tokens_of(t, chunk));
        rvli_release(t, &full);
    }
    rvli_reshard_forward(t, rvli_root(t));
    rvli_release(t, &t->gather_buffer);
}

/* autograd adds the second to the first in a new tensor, and later ones to that in place. */
static void add_gradient(rvli_training *t, rvli_block *sum, rvli_block *of_part, bool second)
{
    if (*sum == NULL) {
        *sum = *of_part;
        *of_part = NULL;
        return;
    }
    rvli_block added = second ? gradient_of_head(t) : NULL;
    if (added != NULL) {
        rvli_release(t, sum);
        *sum = added;
    }
    rvli_release(t, of_part);
}

/* The last chunk first. What is left of each is the gradient of its hidden states. */
static rvli_block chunked_backward(rvli_training *t)
{
    rvli_block of_head = NULL;
    uint32_t count = 0;
    while (tokens_of(t, count) > 0)
        count++;
    for (uint32_t chunk = count; chunk > 0; chunk--) {
        uint64_t tokens = tokens_of(t, chunk - 1);
        rvli_block of_half = logits_backward(t, tokens, &t->chunks[chunk - 1]);
        rvli_block of_part = gradient_of_head(t);
        rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
        t->chunks[chunk - 1] = rvli_activation(t, hidden_bytes(t, tokens));
        rvli_release(t, &of_half);
        if (chunk == 1)
            rvli_release(t, &t->last_hidden);
        add_gradient(t, &of_head, &of_part, chunk + 1 == count);
    }
    keep_gradient(t, &of_head);
    rvli_block of_hidden = rvli_activation(t, hidden_bytes(t, t->tokens));
    for (uint32_t chunk = count; chunk > 0; chunk--)
        rvli_release(t, &t->chunks[chunk - 1]);
    return of_hidden;
}

/* ---- fused ---- */

static uint64_t power_of_two_above(uint64_t value)
{
    uint64_t power = 1;
    while (power < value)
        power *= 2;
    return power;
}

/* liger_kernel/ops/fused_linear_cross_entropy.py */
uint64_t rvli_loss_fused_tokens(const rvli_training *t)
{
    uint64_t width = t->model->dim[RVLI_DIM_HIDDEN];
    uint64_t parts = (t->model->dim[RVLI_DIM_VOCABULARY] + width - 1) / width;
    uint64_t tokens = power_of_two_above((t->tokens + parts - 1) / parts);
    return tokens < t->tokens ? tokens : t->tokens;
}

static void fused_forward(rvli_training *t)
{
    t->flow = rvli_activation(t, hidden_bytes(t, t->tokens));
    t->of_head = gradient_of_head(t);
    rvli_block half = logits(t, RVLI_HALF, rvli_loss_fused_tokens(t));
    rvli_release(t, &half);
    rvli_release(t, &t->last_hidden);
    rvli_reshard_forward(t, rvli_root(t));
    rvli_release(t, &t->gather_buffer);
}

static rvli_block fused_backward(rvli_training *t)
{
    rvli_block of_hidden = t->flow;
    t->flow = NULL;
    keep_gradient(t, &t->of_head);
    return of_hidden;
}

/* ---- Any ---- */

void rvli_loss_forward(rvli_training *t)
{
    static void (*const kinds[])(rvli_training *) = {[RVL_MODEL_LOSS_PLAIN] = plain_forward,
                                                     [RVL_MODEL_LOSS_CHUNKED] = chunked_forward,
                                                     [RVL_MODEL_LOSS_FUSED] = fused_forward};
    rvli_offload_inputs(t, t->model->layers);
    t->last_hidden = rvli_norm_forward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN], &t->last_norm);
    rvli_offload_last_inputs(t);
    rvli_release(t, &t->hidden);
    rvli_streams_done(t);
    rvli_masks_returned(t);
    if (t->layers[0].input != t->embedded && t->streams.embedded != t->embedded)
        rvli_release(t, &t->embedded);
    t->embedded = NULL;
    kinds[t->options->loss](t);
    rvli_offload_end(t);
}

void rvli_loss_backward(rvli_training *t)
{
    static rvli_block (*const kinds[])(rvli_training *) = {[RVL_MODEL_LOSS_PLAIN] = plain_backward,
                                                           [RVL_MODEL_LOSS_CHUNKED] =
                                                               chunked_backward,
                                                           [RVL_MODEL_LOSS_FUSED] = fused_backward};
    rvli_block of_hidden = kinds[t->options->loss](t);
    t->flow = rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN], &t->last_norm,
                                 rvli_root(t), RVLI_ROLE_LAST_NORM, of_hidden);
}
