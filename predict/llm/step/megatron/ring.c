/* SPDX-License-Identifier: MIT */
/*
 * Attention of a rank with a part of each sequence. Pairs of keys and values go from rank to rank,
 * and each that arrives gives a part of the result (TransformerEngine's AttnFuncWithCPAndKVP2P,
 * 2.20, with cuDNN and a causal mask).
 *
 * The first rank is shown. Its own pair comes first. Of the pairs that arrive later, only the
 * second half of its queries sees any. Steps alternate between two streams, and the last two
 * results stay.
 */
#include "predict/llm/step/megatron/rank.h"

#define SEEDS_BYTES 256
#define SLOTS 2

typedef struct ring {
    rvli_block
        pairs[2 * SLOTS]; /* of the last steps; the oldest is dropped when another is requested */
    rvli_block outputs[SLOTS];
    rvli_block sums[SLOTS];
    rvli_block old_sums;
} ring;

static rvli_stream stream_of(uint64_t step)
{
    return step % SLOTS == 0 ? RVLI_STREAM_COMPUTE : RVLI_STREAM_RING;
}

static rvli_block take_at(rvli_rank *r, uint64_t step, uint64_t bytes)
{
    return rvli_take_on(&r->tape, stream_of(step), RVL_MODEL_ACTIVATIONS, bytes);
}

static void replace(rvli_rank *r, rvli_block *block, rvli_block by)
{
    rvli_rank_drop(r, block);
    *block = by;
}

/* Requests the pair of the next step. Then drops the one before the last. */
static void fetch(rvli_rank *r, ring *it, uint64_t step)
{
    if (step + 1 < r->options->cp)
        it->pairs[(step + 1) % 4] = take_at(r, step, 2 * rvli_rank_kv_bytes(r));
    if (step >= 2)
        rvli_rank_drop(r, &it->pairs[(step - 2) % 4]);
}

static void answer(rvli_rank *r, ring *it, uint64_t step)
{
    uint64_t part = step == 0 ? 1 : 2;
    rvli_block output = take_at(r, step, rvli_rank_q_bytes(r) / part);
    rvli_block sums = take_at(r, step, rvli_rank_sums_bytes(r) / part);
    replace(r, &it->outputs[step % SLOTS], output);
    replace(r, &it->sums[step % SLOTS], sums);
}

/* Adds a step's result to that of the steps before, with half of the queries in fp32 for a
 * moment. */
static void join(rvli_rank *r, ring *it, uint64_t step)
{
    uint64_t half = rvli_rank_q_bytes(r) / 2;
    replace(r, &it->old_sums, take_at(r, step, rvli_rank_sums_bytes(r)));
    rvli_block scaled = take_at(r, step, half);
    rvli_block whole = take_at(r, step, 2 * half);
    rvli_rank_drop(r, &scaled);
    rvli_rank_drop(r, &whole);
}

void rvli_rank_ring(rvli_rank *r, rvli_rank_layer *layer, bool kept)
{
    uint64_t ranks = r->options->cp;
    ring it = {0};
    rvli_block values = rvli_rank_take(r, rvli_rank_kv_bytes(r)); /* stored separately */
    it.pairs[0] = rvli_rank_take(r, 2 * rvli_rank_kv_bytes(r));
    for (uint64_t step = 0; step < ranks; step++) {
        fetch(r, &it, step);
        answer(r, &it, step);
        if (step == 1) {
            layer->sums = rvli_rank_take(r, rvli_rank_sums_bytes(r));
            layer->attended = rvli_rank_take(r, rvli_rank_q_bytes(r));
        } else if (step > 1) {
            join(r, &it, step - 1);
        }
    }
    join(r, &it, ranks - 1);
    for (int i = 0; i < SLOTS; i++) {
        rvli_rank_drop(r, &it.outputs[i]);
        rvli_rank_drop(r, &it.sums[i]);
    }
    layer->pair = it.pairs[(ranks - 1) % 4];
    it.pairs[(ranks - 1) % 4] = NULL;
    for (int i = 0; i < 2 * SLOTS; i++)
        rvli_rank_drop(r, &it.pairs[i]);
    rvli_rank_drop(r, &it.old_sums);
    rvli_rank_drop(r, &values);
    if (kept)
        return;
    rvli_rank_drop(r, &layer->pair);
    rvli_rank_drop(r, &layer->sums);
}

/* Gradients of one step. cuDNN's workspace has those of q in fp32, and those of k and v for each
 * head. */
static void answer_backward(rvli_rank *r, uint64_t part)
{
    uint64_t q_bytes = rvli_rank_q_bytes(r);
    rvli_block of_q = rvli_rank_take(r, q_bytes / part);
    rvli_block of_k = rvli_rank_take(r, rvli_rank_kv_bytes(r));
    rvli_block of_v = rvli_rank_take(r, rvli_rank_kv_bytes(r));
    rvli_block workspace = rvli_rank_take(r, 2 * q_bytes / part + 2 * q_bytes +
                                                 rvli_rank_sums_bytes(r) / part + SEEDS_BYTES);
    rvli_rank_drop(r, &workspace);
    rvli_rank_drop(r, &of_q);
    rvli_rank_drop(r, &of_k);
    rvli_rank_drop(r, &of_v);
}

rvli_block rvli_rank_ring_backward(rvli_rank *r, rvli_rank_layer *layer, rvli_block *of_attended,
                                   rvli_block *of_q)
{
    rvli_block half_sums = rvli_rank_take(r, rvli_rank_sums_bytes(r) / 2);
    *of_q = rvli_rank_take(r, rvli_rank_q_bytes(r));
    /* A pair and its gradients, and below those that arrive. */
    rvli_block of_pair = rvli_rank_take(r, 4 * rvli_rank_kv_bytes(r));
    rvli_block arriving = rvli_rank_take(r, 4 * rvli_rank_kv_bytes(r));
    for (uint64_t step = 1; step < r->options->cp; step++)
        answer_backward(r, 2);
    answer_backward(r, 1);
    rvli_rank_drop(r, &half_sums);
    rvli_rank_drop(r, &arriving);
    rvli_rank_drop(r, of_attended);
    rvli_rank_drop(r, &layer->q.output);
    rvli_rank_drop(r, &layer->pair);
    rvli_rank_drop(r, &layer->attended);
    rvli_rank_drop(r, &layer->sums);
    return of_pair;
}
