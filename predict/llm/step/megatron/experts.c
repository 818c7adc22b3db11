/* SPDX-License-Identifier: MIT */
/*
 * Experts of a layer, distributed over ranks (megatron/core/transformer/moe: alltoall dispatcher;
 * SequentialMLP, TEGroupedMLP, GroupedMLP).
 *
 * Routing is assumed to be even: a rank sends and receives the same number of tokens. Tokens are
 * ordered by destination rank, sent, and ordered by expert if a rank has several. The outputs of
 * experts go back in the same way. Many experts of a rank are processed in lots, each like one
 * large expert. Grouped products have one lot.
 */
#include "predict/llm/step/megatron/rank.h"

#define INDEX_BYTES UINT64_C(8)
#define GROUPED_STREAMS 4 /* for TransformerEngine's grouped products, each with a workspace */

/* Tokens that this rank sends, once for each expert that they chose. */
static uint64_t sent_tokens(const rvli_rank *r)
{
    uint64_t tokens = r->part_bytes / RVLI_HALF / r->model->dim[RVLI_DIM_HIDDEN];
    return tokens * r->model->experts_per_token;
}

static uint64_t sent_bytes(const rvli_rank *r)
{
    return RVLI_HALF * sent_tokens(r) * r->model->dim[RVLI_DIM_HIDDEN];
}

/* Bytes of one element for each intermediate value of a lot. */
static uint64_t inner_bytes(const rvli_rank *r)
{
    return RVLI_HALF * sent_tokens(r) / r->lots * r->model->dim[RVLI_DIM_EXPERT_INTERMEDIATE];
}

static bool sorts(const rvli_rank *r)
{
    return r->experts > 1;
}

/* Puts tokens into another order. */
static void move(rvli_rank *r, rvli_block *tokens)
{
    rvli_block moved = rvli_rank_take(r, sent_bytes(r));
    rvli_rank_drop(r, tokens);
    *tokens = moved;
}

/* Probabilities of all experts in bf16; indices and weights of the chosen ones. */
static void route(rvli_rank *r, rvli_routed *routed, bool kept)
{
    uint64_t tokens = sent_tokens(r) / r->model->experts_per_token;
    routed->scores = rvli_rank_take(r, RVLI_HALF * tokens * r->model->experts +
                                           (INDEX_BYTES + RVLI_FULL) * sent_tokens(r));
    if (!kept)
        rvli_rank_drop(r, &routed->scores);
}

static void make_grouped_workspaces(rvli_rank *r)
{
    bool grouped = rvli_rank_groups(r) && !rvli_rank_groups_by_legacy(r);
    for (int i = 0; grouped && !r->has_grouped_workspaces && i < GROUPED_STREAMS; i++)
        (void)rvli_take(&r->tape, RVL_MODEL_BLAS_WORKSPACES, RVLI_ENGINE_WORKSPACE_BYTES);
    r->has_grouped_workspaces = true;
}

static void dispatch(rvli_rank *r, rvli_routed *routed, rvli_block *sent)
{
    *sent = rvli_rank_take(r, sent_bytes(r));
    routed->tokens = rvli_rank_take(r, sent_bytes(r));
}

static rvli_block run_experts(rvli_rank *r, rvli_routed *routed, bool kept)
{
    for (uint64_t i = 0; i < r->lots; i++) {
        routed->fc1[i] = rvli_rank_take(r, 2 * inner_bytes(r));
        make_grouped_workspaces(r);
        routed->activated[i] = rvli_rank_take(r, inner_bytes(r));
        if (!kept &&
            !rvli_rank_groups(r)) /* these modules hold it until both products have ended */
            rvli_rank_drop(r, &routed->fc1[i]);
        r->expert_outputs[i] = rvli_rank_take(r, sent_bytes(r) / r->lots);
        if (!kept) {
            rvli_rank_drop(r, &routed->fc1[i]);
            rvli_rank_drop(r, &routed->activated[i]);
        }
    }
    if (r->lots == 1) {
        rvli_block output = r->expert_outputs[0];
        r->expert_outputs[0] = NULL;
        return output;
    }
    rvli_block output = rvli_rank_take(r, sent_bytes(r));
    for (uint64_t i = 0; i < r->lots; i++)
        rvli_rank_drop(r, &r->expert_outputs[i]);
    return output;
}

rvli_block rvli_rank_experts(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    rvli_routed *routed = &layer->routed;
    rvli_block sent, received = NULL;
    rvli_rank_workspace(r, false); /* for the router's product, if no layer had one before */
    route(r, routed, kept);
    rvli_rank_drop(r, &r->graph->gradient);
    rvli_rank_drop(r, &r->graph->input);
    dispatch(r, routed, &sent);
    if (sorts(r)) {
        received = routed->tokens;
        routed->tokens = rvli_rank_take(r, sent_bytes(r));
    }
    rvli_block output = run_experts(r, routed, kept);
    if (sorts(r))
        move(r, &output);
    move(r, &output);
    rvli_block summed = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &output);
    rvli_rank_drop(r, &sent);
    rvli_rank_drop(r, &received);
    if (!kept)
        rvli_rank_drop(r, &routed->tokens);
    return summed;
}

/* The older class makes views of its weights before both products, so their gradients wait until
 * the second backward pass has ended. Its activation is compiled with its backward pass, which
 * frees the input of the activation first. */
static void expert_backward(rvli_rank *r, rvli_routed *routed, uint64_t i, rvli_block *gradient)
{
    bool legacy = rvli_rank_groups_by_legacy(r);
    uint64_t elements = r->experts / r->lots * r->model->dim[RVLI_DIM_EXPERT_INTERMEDIATE] *
                        r->model->dim[RVLI_DIM_HIDDEN];
    rvli_block of_activated = rvli_rank_take(r, inner_bytes(r));
    rvli_block of_down = rvli_rank_weight_gradient(r, elements);
    if (i == 0)
        rvli_rank_drop(r, gradient);
    rvli_rank_drop(r, &routed->activated[i]);
    if (!legacy)
        rvli_rank_drop(r, &of_down);
    rvli_block of_fc1 = rvli_rank_take(r, 2 * inner_bytes(r));
    rvli_rank_drop(r, legacy ? &routed->fc1[i] : &of_activated);
    rvli_rank_drop(r, legacy ? &of_activated : &routed->fc1[i]);
    r->expert_outputs[i] = rvli_rank_take(r, sent_bytes(r) / r->lots);
    rvli_block of_up = rvli_rank_weight_gradient(r, 2 * elements);
    rvli_rank_drop(r, &of_fc1);
    if (i == 0)
        rvli_rank_drop(r, &routed->tokens);
    rvli_rank_drop(r, &of_down);
    rvli_rank_drop(r, &of_up);
}

static rvli_block run_experts_backward(rvli_rank *r, rvli_routed *routed, rvli_block *gradient)
{
    for (uint64_t i = r->lots; i > 0; i--)
        expert_backward(r, routed, i - 1, gradient);
    if (r->lots == 1) {
        rvli_block output = r->expert_outputs[0];
        r->expert_outputs[0] = NULL;
        return output;
    }
    rvli_block output = rvli_rank_take(r, sent_bytes(r));
    for (uint64_t i = r->lots; i > 0; i--)
        rvli_rank_drop(r, &r->expert_outputs[i - 1]);
    return output;
}

static void copy_sum(rvli_rank *r, rvli_block *sum)
{
    rvli_block copied = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, sum);
    *sum = copied;
}

rvli_block rvli_rank_experts_backward(rvli_rank *r, rvli_rank_layer *layer)
{
    rvli_block gradient = rvli_rank_take(r, sent_bytes(r));
    move(r, &gradient);
    if (sorts(r))
        move(r, &gradient);
    gradient = run_experts_backward(r, &layer->routed, &gradient);
    if (sorts(r))
        move(r, &gradient);
    move(r, &gradient);
    rvli_block of_input = rvli_rank_take(r, r->part_bytes);
    if (!rvli_rank_recomputes(r)) /* which adds in place */
        copy_sum(r, &of_input);
    rvli_rank_drop(r, &gradient);
    rvli_rank_drop(r, &layer->routed.scores);
    rvli_rank_workspace(r, true);
    rvli_block of_router = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &layer->mlp_input);
    rvli_block sum = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &of_input);
    rvli_rank_drop(r, &of_router);
    return sum;
}
