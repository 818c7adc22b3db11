/* SPDX-License-Identifier: MIT */
/*
 * The ends of the pipeline: the embedding, and the head with the loss. Both are split by rows of
 * the vocabulary (megatron/core/tensor_parallel/layers.py and cross_entropy.py).
 */
#include "predict/llm/step/megatron/rank.h"

/* aten/src/ATen/native/cuda/Embedding.cu: many tokens are sorted and summed in pieces. */
#define SORTED_TOKENS_MIN 3073
#define PIECE_TOKENS 10

static bool is_turned(const rvli_rank *r)
{
    return r->options->micro_batch > 1; /* copied to put positions before sequences */
}

/* ---- Embedding ---- */

static void make_angles(rvli_rank *r)
{
    uint64_t elements = (uint64_t)r->options->seq_len * r->model->dim[RVLI_DIM_HEAD];
    if (r->angles != NULL)
        return;
    rvli_block half = rvli_rank_take(r, RVLI_FULL * elements / 2);
    r->angles = rvli_rank_take(r, RVLI_FULL * elements);
    rvli_rank_drop(r, &half);
}

static void turn(rvli_rank *r)
{
    rvli_block turned = rvli_rank_take(r, is_turned(r) ? r->hidden_bytes : 0);
    if (turned == NULL)
        return;
    rvli_rank_drop(r, &r->hidden);
    r->hidden = turned;
}

/* With a split sequence, the sum is split and then copied, so that the whole can be freed. */
static void split(rvli_rank *r)
{
    rvli_block part = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &r->hidden);
    rvli_block copied = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &part);
    r->hidden = copied;
}

void rvli_rank_embed(rvli_rank *r)
{
    if (r->has_embedding) {
        r->hidden = rvli_rank_take(r, r->hidden_bytes);
        turn(r);
        if (r->splits_sequence)
            split(r);
    }
    make_angles(r);
}

/* Brings the gradient to the table. */
static void reach_table(rvli_rank *r)
{
    rvli_block whole = rvli_rank_take(r, r->splits_sequence ? r->hidden_bytes : 0);
    if (whole != NULL) {
        rvli_rank_drop_flow(r);
        r->flow = whole;
    }
    rvli_block masked =
        rvli_rank_take(r, r->options->tp > 1 && !r->splits_sequence ? r->hidden_bytes : 0);
    if (masked != NULL) {
        rvli_rank_drop_flow(r);
        r->flow = masked;
    }
}

void rvli_rank_embed_backward(rvli_rank *r)
{
    uint64_t hidden = r->model->dim[RVLI_DIM_HIDDEN], elements = r->vocabulary * hidden;
    reach_table(r);
    rvli_block turned = rvli_rank_take(r, is_turned(r) ? r->hidden_bytes : 0);
    rvli_block table = rvli_take(&r->tape, RVL_MODEL_GRADIENTS, RVLI_HALF * elements);
    uint64_t pieces = r->tokens / PIECE_TOKENS + r->tokens;
    rvli_block sums =
        rvli_rank_take(r, r->tokens >= SORTED_TOKENS_MIN ? RVLI_FULL * pieces * hidden : 0);
    rvli_rank_drop(r, &sums);
    rvli_rank_drop(r, &turned);
    rvli_rank_drop_flow(r);
    rvli_block sum =
        rvli_take(&r->tape, RVL_MODEL_GRADIENTS, r->of_head != NULL ? RVLI_HALF * elements : 0);
    rvli_rank_drop(r, &r->of_head);
    rvli_rank_drop(r, &table);
    rvli_rank_drop(r, &sum);
}

/* ---- Head and loss ---- */

static rvli_block logits(rvli_rank *r, uint64_t element_bytes)
{
    return rvli_take(&r->tape, RVL_MODEL_LOGITS, element_bytes * r->tokens * r->vocabulary);
}

void rvli_rank_loss(rvli_rank *r)
{
    r->last_input = r->hidden;
    r->hidden = NULL;
    r->last_hidden = rvli_rank_norm(r, &r->last_scale, true);
    rvli_rank_gather(r);
    rvli_block half = logits(r, RVLI_HALF);
    rvli_rank_workspace(r, false);
    r->logits = logits(r, RVLI_FULL);
    rvli_rank_drop(r, &half);
}

/* The gradient of a tied head waits for the embedding's, if this rank has the embedding. */
void rvli_rank_loss_backward(rvli_rank *r)
{
    uint64_t elements = r->vocabulary * r->model->dim[RVLI_DIM_HIDDEN];
    rvli_block half = logits(r, RVLI_HALF);
    rvli_rank_drop(r, &r->logits);
    rvli_block whole = rvli_rank_take(r, r->hidden_bytes);
    rvli_rank_workspace(r, true);
    rvli_block part = rvli_rank_take(r, r->splits_sequence ? r->part_bytes : 0);
    r->of_head = rvli_take(&r->tape, RVL_MODEL_GRADIENTS, RVLI_HALF * elements);
    if (r->splits_sequence)
        rvli_rank_drop(r, &whole);
    rvli_rank_drop(r, &half);
    rvli_rank_drop(r, &r->last_hidden);
    if (!r->is_tied || !r->has_embedding)
        rvli_rank_drop(r, &r->of_head);
    rvli_block gradient = r->splits_sequence ? part : whole;
    r->flow = rvli_rank_norm_backward(r, &gradient, &r->last_input, &r->last_scale);
    r->flow_is_lent = false;
}
