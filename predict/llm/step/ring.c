/* SPDX-License-Identifier: MIT */
/*
 * Attention of a rank with a part of each sequence, as in PyTorch's context_parallel()
 * (torch/distributed/tensor/experimental/_context_parallel/_attention.py, with its defaults: a
 * causal mask balanced by halves, keys and values gathered at once, sums in fp32).
 *
 * The first rank is shown. It attends to its own keys and values first. Of the other ranks' keys,
 * only the second half of its queries sees any. That part of the result is joined with the rest.
 * The backward pass sends the gradients of keys and values from rank to rank.
 */
#include "predict/llm/step/training.h"

#define SEEDS_BYTES 256

static uint64_t q_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_Q];
}

static uint64_t kv_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_KV];
}

static uint64_t sums_bytes(const rvli_training *t)
{
    return RVLI_FULL * t->tokens * t->model->heads;
}

bool rvli_is_ring(const rvli_training *t)
{
    return t->options->cp > 1;
}

/* Positions that are not consecutive make transformers build a mask of packed sequences. Nobody
 * reads it. */
void rvli_ring_mask_make(rvli_training *t)
{
    uint64_t pairs = t->tokens * t->options->seq_len;
    if (!rvli_is_ring(t))
        return;
    rvli_block causal = rvli_activation(t, pairs);
    rvli_block inside = rvli_activation(t, pairs);
    rvli_release(t, &causal);
    rvli_block same = rvli_activation(t, pairs);
    t->masks[0] = rvli_activation(t, pairs);
    rvli_release(t, &same);
    rvli_release(t, &inside);
}

/* ---- Forward ---- */

/* The result so far, and its last part. */
typedef struct answer {
    rvli_block whole; /* in fp32 */
    rvli_block sums;
    rvli_block part;
    rvli_block part_sums;
} answer;

/* Joins the second half with the result so far. Takes over `full`, that half in fp32. */
static void join(rvli_training *t, answer *a, rvli_block full)
{
    uint64_t half_sums = sums_bytes(t) / 2;
    rvli_block apart = rvli_activation(t, half_sums);
    rvli_block share = rvli_next(t, half_sums, &apart);
    rvli_block difference = rvli_activation(t, q_bytes(t));
    rvli_block change = rvli_activation(t, q_bytes(t));
    rvli_release(t, &share);
    rvli_release(t, &difference);
    rvli_block changed = rvli_next(t, q_bytes(t), &change);
    apart = rvli_activation(t, half_sums);
    share = rvli_next(t, half_sums, &apart);
    rvli_block changed_sums = rvli_next(t, half_sums, &share);
    a->sums = rvli_next(t, sums_bytes(t), &a->sums);
    a->whole = rvli_next(t, 2 * q_bytes(t), &a->whole);
    rvli_release(t, &full);
    rvli_release(t, &changed);
    rvli_release(t, &changed_sums);
}

static void attend(rvli_training *t, answer *a, uint64_t step)
{
    uint64_t part = step == 0 ? 1 : 2;
    rvli_block output = rvli_activation(t, q_bytes(t) / part);
    rvli_block sums = rvli_activation(t, sums_bytes(t) / part);
    rvli_release(t, &a->part);
    rvli_release(t, &a->part_sums);
    a->part = output;
    rvli_block full = rvli_activation(t, 2 * q_bytes(t) / part);
    if (step == 0) {
        a->whole = full;
        a->sums = sums;
        return;
    }
    a->part_sums = sums;
    join(t, a, full);
}

rvli_block rvli_ring_forward(rvli_training *t, rvli_block *sums_out)
{
    uint64_t ranks = t->options->cp;
    answer a = {0};
    rvli_block k = rvli_activation(t, kv_bytes(t)); /* laid out by heads */
    rvli_block v = rvli_activation(t, kv_bytes(t));
    rvli_block sent = rvli_activation(t, 2 * kv_bytes(t));
    rvli_block gathered = rvli_activation(t, ranks * 2 * kv_bytes(t));
    attend(t, &a, 0);
    rvli_release(t, &sent);
    rvli_release(t, &k);
    rvli_release(t, &v);
    for (uint64_t step = 1; step < ranks; step++) {
        rvli_block again = rvli_activation(t, step + 1 < ranks ? 2 * kv_bytes(t) : 0);
        rvli_release(t, &again); /* not needed: everything has been gathered */
        attend(t, &a, step);
    }
    rvli_block output = rvli_activation(t, q_bytes(t));
    rvli_release(t, &gathered);
    rvli_release(t, &a.part);
    rvli_release(t, &a.part_sums);
    rvli_release(t, &a.whole);
    *sums_out = a.sums;
    return output;
}

/* ---- Backward ---- */

/* Frees the gradients from the kernel of one step. */
static void drop(rvli_training *t, rvli_attention_gradients *of)
{
    rvli_release(t, &of->q);
    rvli_release(t, &of->k);
    rvli_release(t, &of->v);
}

/* cuDNN's workspace: the gradient of q in fp32, and those of k and v for every head of q. */
static void cudnn_works(rvli_training *t, uint64_t part)
{
    rvli_block work = rvli_activation(t, 2 * q_bytes(t) / part + 2 * q_bytes(t) +
                                             sums_bytes(t) / part + SEEDS_BYTES);
    rvli_release(t, &work);
}

/* Flash attention needs tokens first: values stored by heads are copied, and so are halves of
 * sequences. */
static rvli_attention_gradients run_backward(rvli_training *t, uint64_t part)
{
    bool flash = t->options->attention == RVL_MODEL_ATTENTION_FLASH;
    bool halves = flash && part > 1 && t->options->micro_batch > 1;
    rvli_block of_answer = rvli_activation(t, halves ? q_bytes(t) / part : 0);
    rvli_block copy = rvli_activation(t, flash ? q_bytes(t) / part : 0);
    rvli_attention_gradients of = {.q = rvli_activation(t, q_bytes(t) / part),
                                   .k = rvli_activation(t, kv_bytes(t)),
                                   .v = rvli_activation(t, kv_bytes(t))};
    if (flash)
        rvli_flash_works(t, t->options->seq_len / part);
    else
        cudnn_works(t, part);
    rvli_release(t, &copy);
    rvli_release(t, &of_answer);
    return of;
}

/* Gradients of keys and values in fp32, which travel from rank to rank. */
typedef struct travelling {
    rvli_block sent;
    rvli_block arrived;
    rvli_block before; /* arrived earlier; a step adds to it */
} travelling;

static void send(rvli_training *t, travelling *g)
{
    g->sent = rvli_activation(t, 4 * kv_bytes(t));
    rvli_release(t, &g->before);
    g->before = g->arrived;
    g->arrived = rvli_activation(t, 4 * kv_bytes(t));
}

static void first_step(rvli_training *t, travelling *g, rvli_attention_gradients *of)
{
    *of = run_backward(t, 1);
    rvli_block flat_k = rvli_activation(t, 2 * kv_bytes(t));
    rvli_block flat_v = rvli_activation(t, 2 * kv_bytes(t));
    g->sent = rvli_activation(t, 4 * kv_bytes(t));
    rvli_release(t, &flat_k);
    rvli_release(t, &flat_v);
    g->arrived = rvli_activation(t, 4 * kv_bytes(t));
}

void rvli_ring_backward(rvli_training *t, rvli_attention_gradients *gradients_out)
{
    uint64_t ranks = t->options->cp;
    rvli_attention_gradients sum = {.q = rvli_activation(t, 2 * q_bytes(t)),
                                    .k = rvli_activation(t, 2 * kv_bytes(t)),
                                    .v = rvli_activation(t, 2 * kv_bytes(t))};
    rvli_attention_gradients of;
    rvli_block k = rvli_activation(t, kv_bytes(t)), v = rvli_activation(t, kv_bytes(t));
    rvli_block asked = rvli_activation(t, 2 * kv_bytes(t)), half_sums = NULL;
    rvli_block gathered = rvli_activation(t, ranks * 2 * kv_bytes(t));
    travelling g = {0};
    first_step(t, &g, &of);
    for (uint64_t step = 1; step < ranks; step++) {
        if (step + 1 < ranks)
            asked = rvli_next(t, 2 * kv_bytes(t), &asked);
        half_sums = rvli_next(t, sums_bytes(t) / 2, &half_sums);
        rvli_release(t, &k);
        rvli_release(t, &v);
        rvli_attention_gradients next = run_backward(t, 2);
        drop(t, &of);
        of = next;
        rvli_release(t, &sum.k);
        rvli_release(t, &sum.v);
        rvli_release(t, &g.sent);
        send(t, &g);
        sum.q = rvli_next(t, 2 * q_bytes(t), &sum.q);
    }
    gradients_out->q = rvli_next(t, q_bytes(t), &sum.q);
    /* with the gradient of k in the same block */
    gradients_out->v = rvli_activation(t, 2 * kv_bytes(t));
    drop(t, &of);
    rvli_block *all[] = {&asked, &half_sums, &gathered, &g.sent, &g.arrived, &g.before};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}
