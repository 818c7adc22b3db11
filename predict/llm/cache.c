/* SPDX-License-Identifier: MIT */
/*
 * What each layer of an engine keeps for the sequences in progress.
 *
 * Attention over all tokens keeps the keys and values of each token. Attention through a window
 * keeps those of the last tokens. A layer with a state instead of attention keeps the same amount
 * for every sequence, however long. So the number of tokens that a cache holds depends on the
 * length of the sequences, unless all layers see all tokens.
 */
#include "predict/llm/llm_internal.h"

#define BF16_BYTES UINT64_C(2)
#define FP32_BYTES UINT64_C(4)
#define INDEX_BLOCK 128 /* elements of an indexer's fp8 key that share a scale */

__extension__ typedef unsigned __int128 wide;

/* What one token takes in a layer that keeps keys. */
typedef struct token_shape {
    uint64_t buffers; /* K and V; 1 for latent attention, which stores both in one */
    uint64_t bytes;   /* in each buffer */
    uint64_t index_bytes;
} token_shape;

static token_shape shape_of_token(const rvl_model *model, const rvli_plan *plan, uint32_t layer)
{
    const uint64_t *d = model->dim;
    bool latent = (model->features & RVLI_MLA) != 0;
    uint64_t width = latent ? d[RVLI_DIM_KV_DOWN]
                            : rvli_rank_kv_heads(model, plan, layer) *
                                  rvli_layer_dim(model, layer, RVLI_DIM_HEAD);
    uint64_t each = plan->options.kv_dtype == RVL_MODEL_FP8 ? 1 : BF16_BYTES;
    token_shape shape = {.buffers = latent ? 1 : 2, .bytes = width * each};
    if (model->features & RVLI_INDEXER)
        shape.index_bytes = d[RVLI_DIM_INDEX_HEAD] +
                            (d[RVLI_DIM_INDEX_HEAD] + INDEX_BLOCK - 1) / INDEX_BLOCK * FP32_BYTES;
    return shape;
}

/* Width of the convolution's input on one rank, in a layer with a state. */
static uint64_t convolved(const rvl_model *model, const rvli_plan *plan)
{
    uint64_t tp = plan->options.tp;
    if (rvli_has_layers(model, RVLI_LAYER_CONV))
        return model->dim[RVLI_DIM_HIDDEN] / tp;
    if (rvli_has_layers(model, RVLI_LAYER_DELTA))
        return model->dim[RVLI_DIM_DELTA_CONV] / tp;
    return model->dim[RVLI_DIM_MAMBA_INNER] / tp + plan->mamba_groups * model->mamba_group_width;
}

/* The state itself, and the last inputs of the convolution. */
static uint64_t state_bytes(const rvl_model *model, const rvli_plan *plan)
{
    return (model->dim[RVLI_DIM_CONV_KERNEL] - 1) * convolved(model, plan) * BF16_BYTES +
           model->state_elements / plan->options.tp * model->state_bytes;
}

/* How many of a sequence's tokens a layer keeps. */
static uint64_t kept_tokens(const rvl_model *model, uint32_t layer, uint64_t sequence_tokens)
{
    bool all = !rvli_layer_is(model, layer, RVLI_LAYER_WINDOW) || model->window > sequence_tokens;
    return all ? sequence_tokens : model->window;
}

uint64_t rvli_cache_sequence_bytes(const rvl_model *model, const rvli_plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t i = plan->first_layer; i < plan->first_layer + plan->layer_count; i++) {
        token_shape shape = shape_of_token(model, plan, i);
        uint64_t token_bytes = shape.buffers * shape.bytes + shape.index_bytes;
        if (rvli_layer_is(model, i, RVLI_LAYER_KEYS))
            sum += kept_tokens(model, i, plan->options.seq_len) * token_bytes;
        if (rvli_layer_is(model, i, RVLI_LAYER_STATE))
            sum += state_bytes(model, plan);
    }
    return sum;
}

uint64_t rvli_cache_tokens(const rvl_model *model, const rvli_plan *plan, uint64_t room)
{
    uint64_t sequence = rvli_cache_sequence_bytes(model, plan);
    if (sequence == 0)
        return UINT64_MAX;
    wide tokens = (wide)room * plan->options.seq_len / sequence;
    return tokens < UINT64_MAX ? (uint64_t)tokens : UINT64_MAX - 1;
}

static void add(const rvli_plan *plan, uint64_t count, uint64_t bytes, rvli_sizes *sizes)
{
    bytes = rvli_round_up(bytes, plan->device.granularity_bytes);
    for (uint64_t i = 0; i < count && bytes > 0; i++)
        rvli_sizes_add(sizes, bytes);
}

/* A state belongs to a whole sequence: rounds down, to 1 at least. */
static uint64_t sequences_of(const rvli_plan *plan, uint64_t tokens)
{
    uint64_t sequences = tokens / plan->options.seq_len;
    return sequences > 0 ? sequences : 1;
}

void rvli_cache_add(const rvl_model *model, const rvli_plan *plan, uint64_t tokens,
                    rvli_sizes *sizes)
{
    uint32_t end = plan->first_layer + plan->layer_count;
    for (uint32_t i = plan->first_layer; i < end; i++) {
        token_shape shape = shape_of_token(model, plan, i);
        uint64_t length = plan->options.seq_len;
        uint64_t kept = (uint64_t)((wide)tokens * kept_tokens(model, i, length) / length);
        if (rvli_layer_is(model, i, RVLI_LAYER_KEYS))
            add(plan, shape.buffers, kept * shape.bytes, sizes);
        if (rvli_layer_is(model, i, RVLI_LAYER_STATE))
            add(plan, 1, sequences_of(plan, tokens) * state_bytes(model, plan), sizes);
    }
    for (uint32_t i = plan->first_layer; i < end; i++) {
        if (rvli_layer_is(model, i, RVLI_LAYER_KEYS))
            add(plan, 1, tokens * shape_of_token(model, plan, i).index_bytes, sizes);
    }
}
