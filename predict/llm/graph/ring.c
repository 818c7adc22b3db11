/* SPDX-License-Identifier: MIT */
/*
 * Attention of a rank with a part of each sequence, as in PyTorch's context_parallel()
 * (torch/distributed/tensor/experimental/_context_parallel/_attention.py, with its defaults: a
 * causal mask balanced by halves, keys and values gathered at once, sums in fp32). PyTorch wrote
 * its backward pass by hand, and so it is one operator here.
 *
 * The first rank is shown. It attends to its own keys and values first. Of the other ranks' keys,
 * only the second half of its queries sees any. That part of the result is joined with the rest.
 * The backward pass sends the gradients of keys and values from rank to rank.
 */
#include "predict/llm/graph/graph.h"

/* Bytes. */
typedef struct attended {
    uint64_t q, k, v, output, sums;
    uint64_t k_copy, v_copy; /* what .contiguous() copies */
    uint64_t k_flat, v_flat; /* what .flatten() copies of the gradients in fp32 */
} attended;

/* Bits of a node's number. */
enum { COPIES_K = 1, COPIES_V = 2 };

/* A part of wider rows, and one head for several, are copied even if heads come first. */
static bool is_contiguous(const rvli_value *x)
{
    const rvli_storage *storage = x->storage;
    return x->shape.heads_first && storage != NULL && storage->block != NULL &&
           storage->block->requested == rvli_shape_bytes(&x->shape);
}

static uint64_t copies_of(rvli_value *const *qkv)
{
    return (is_contiguous(qkv[1]) ? 0 : COPIES_K) | (is_contiguous(qkv[2]) ? 0 : COPIES_V);
}

/* Zeros for a gradient have the order of its input's dimensions in memory, without gaps. */
static uint64_t flat_bytes(const rvli_shape *shape)
{
    return shape->heads_first ? 0 : 2 * rvli_shape_bytes(shape);
}

static attended attended_of(const rvli_training *t, const rvli_shape *q, const rvli_shape *k,
                            const rvli_shape *v, uint64_t copies)
{
    const rvli_shape output = rvli_attention_shape(q, v);
    return (attended){.q = rvli_shape_bytes(q),
                      .k = rvli_shape_bytes(k),
                      .v = rvli_shape_bytes(v),
                      .output = rvli_shape_bytes(&output),
                      .sums = rvli_sdpa_sums_bytes(t),
                      .k_copy = copies & COPIES_K ? rvli_shape_bytes(k) : 0,
                      .v_copy = copies & COPIES_V ? rvli_shape_bytes(v) : 0,
                      .k_flat = flat_bytes(k),
                      .v_flat = flat_bytes(v)};
}

/* Keys and values travel in one tensor. */
static uint64_t kv_bytes(const attended *of)
{
    return of->k + of->v;
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
static void join(rvli_training *t, const attended *of, answer *a, rvli_block full)
{
    uint64_t half_sums = of->sums / 2;
    rvli_block apart = rvli_activation(t, half_sums);
    rvli_block share = rvli_next(t, half_sums, &apart);
    rvli_block difference = rvli_activation(t, of->output);
    rvli_block change = rvli_activation(t, of->output);
    rvli_release(t, &share);
    rvli_release(t, &difference);
    rvli_block changed = rvli_next(t, of->output, &change);
    apart = rvli_activation(t, half_sums);
    share = rvli_next(t, half_sums, &apart);
    rvli_block changed_sums = rvli_next(t, half_sums, &share);
    a->sums = rvli_next(t, of->sums, &a->sums);
    a->whole = rvli_next(t, 2 * of->output, &a->whole);
    rvli_release(t, &full);
    rvli_release(t, &changed);
    rvli_release(t, &changed_sums);
}

static void attend(rvli_training *t, const attended *of, answer *a, uint64_t step)
{
    uint32_t part = step == 0 ? 1 : 2;
    rvli_block output = rvli_activation(t, of->output / part);
    rvli_block sums = rvli_activation(t, of->sums / part);
    rvli_sdpa_forward_works(t, part);
    rvli_release(t, &a->part);
    rvli_release(t, &a->part_sums);
    a->part = output;
    rvli_block full = rvli_activation(t, 2 * of->output / part);
    if (step == 0) {
        a->whole = full;
        a->sums = sums;
        return;
    }
    a->part_sums = sums;
    join(t, of, a, full);
}

static rvli_block run_forward(rvli_training *t, const attended *of, rvli_block *sums_out)
{
    uint64_t ranks = t->options->cp;
    answer a = {0};
    rvli_block k = rvli_activation(t, of->k_copy);
    rvli_block v = rvli_activation(t, of->v_copy);
    rvli_block sent = rvli_activation(t, kv_bytes(of));
    rvli_block gathered = rvli_activation(t, ranks * kv_bytes(of));
    attend(t, of, &a, 0);
    rvli_release(t, &sent);
    rvli_release(t, &k);
    rvli_release(t, &v);
    for (uint64_t step = 1; step < ranks; step++) {
        rvli_block again = rvli_activation(t, step + 1 < ranks ? kv_bytes(of) : 0);
        rvli_release(t, &again); /* not needed: everything has been gathered */
        attend(t, of, &a, step);
    }
    rvli_block output = rvli_activation(t, of->output);
    rvli_release(t, &gathered);
    rvli_release(t, &a.part);
    rvli_release(t, &a.part_sums);
    rvli_release(t, &a.whole);
    *sums_out = a.sums;
    return output;
}

/* ---- Backward ---- */

typedef struct gradients {
    rvli_block q, k, v;
} gradients;

/* Frees the gradients from the kernel of one step. */
static void drop(rvli_training *t, gradients *of)
{
    rvli_release(t, &of->q);
    rvli_release(t, &of->k);
    rvli_release(t, &of->v);
}

/* Flash attention needs tokens first: values stored by heads are copied, and so are halves of
 * sequences. */
static gradients run_kernel_backward(rvli_training *t, const attended *in, uint32_t part)
{
    bool flash = t->options->attention == RVL_MODEL_ATTENTION_FLASH;
    bool halves = flash && part > 1 && t->options->micro_batch > 1;
    rvli_block of_answer = rvli_activation(t, halves ? in->output / part : 0);
    rvli_block copy = rvli_activation(t, flash ? in->output / part : 0);
    gradients of = {.q = rvli_activation(t, in->q / part),
                    .k = rvli_activation(t, in->k),
                    .v = rvli_activation(t, in->v)};
    rvli_sdpa_backward_works(t, part);
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

static void send(rvli_training *t, const attended *in, travelling *g)
{
    g->sent = rvli_activation(t, 2 * kv_bytes(in));
    rvli_release(t, &g->before);
    g->before = g->arrived;
    g->arrived = rvli_activation(t, 2 * kv_bytes(in));
}

static void first_step(rvli_training *t, const attended *in, travelling *g, gradients *of)
{
    *of = run_kernel_backward(t, in, 1);
    rvli_block flat_k = rvli_activation(t, in->k_flat);
    rvli_block flat_v = rvli_activation(t, in->v_flat);
    g->sent = rvli_activation(t, 2 * kv_bytes(in));
    rvli_release(t, &flat_k);
    rvli_release(t, &flat_v);
    g->arrived = rvli_activation(t, 2 * kv_bytes(in));
}

/* The gradients of k and v are one block, out->v. */
static void run_backward(rvli_training *t, const attended *in, gradients *out)
{
    uint64_t ranks = t->options->cp;
    gradients sum = {.q = rvli_activation(t, 2 * in->q),
                     .k = rvli_activation(t, 2 * in->k),
                     .v = rvli_activation(t, 2 * in->v)};
    gradients of;
    rvli_block k = rvli_activation(t, in->k_copy), v = rvli_activation(t, in->v_copy);
    rvli_block asked = rvli_activation(t, kv_bytes(in)), half_sums = NULL;
    rvli_block gathered = rvli_activation(t, ranks * kv_bytes(in));
    travelling g = {0};
    first_step(t, in, &g, &of);
    for (uint64_t step = 1; step < ranks; step++) {
        if (step + 1 < ranks)
            asked = rvli_next(t, kv_bytes(in), &asked);
        half_sums = rvli_next(t, in->sums / 2, &half_sums);
        rvli_release(t, &k);
        rvli_release(t, &v);
        gradients next = run_kernel_backward(t, in, 2);
        drop(t, &of);
        of = next;
        rvli_release(t, &sum.k);
        rvli_release(t, &sum.v);
        rvli_release(t, &g.sent);
        send(t, in, &g);
        sum.q = rvli_next(t, 2 * in->q, &sum.q);
    }
    out->q = rvli_next(t, in->q, &sum.q);
    out->v = rvli_activation(t, kv_bytes(in));
    drop(t, &of);
    rvli_block *all[] = {&asked, &half_sums, &gathered, &g.sent, &g.arrived, &g.before};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
}

/* ---- The operator ---- */

static rvli_value *gradient_of(rvli_graph *g, const rvli_node *node, int input, rvli_block *block)
{
    rvli_value *whole = rvli_value_adopt(g, block);
    rvli_shape shape = node->input[input].shape;
    shape.heads_first = true;
    rvli_value *gradient = rvli_value_view(g, whole, &shape);
    rvli_value_release(g, whole);
    return gradient;
}

static void ring_backward(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                          rvli_value **of_out)
{
    const rvli_input *in = node->input;
    gradients of = {0};
    (void)gradient;
    if (g->stopped)
        return;
    const attended bytes =
        attended_of(g->t, &in[0].shape, &in[1].shape, &in[2].shape, node->number);
    run_backward(g->t, &bytes, &of);
    of_out[0] = gradient_of(g, node, 0, &of.q);
    of_out[2] = gradient_of(g, node, 2, &of.v);
    of_out[1] = rvli_value_view(g, of_out[2], &in[1].shape);
}

/* In a layer that is computed again, nothing is kept forward: its nodes only count. */
rvli_value *rvli_op_ring_attention(rvli_graph *g, rvli_value *const *qkv)
{
    rvli_block sums = NULL;
    rvli_node *node = rvli_node_make(g, ring_backward, qkv, 3);
    bool kept = node != NULL && g->frame == NULL;
    for (int i = 0; i < 3; i++)
        rvli_node_keep(g, node, qkv[i]);
    if (g->stopped)
        return NULL;
    const uint64_t copies = copies_of(qkv);
    const attended of = attended_of(g->t, &qkv[0]->shape, &qkv[1]->shape, &qkv[2]->shape, copies);
    if (node != NULL)
        node->number = copies;
    rvli_block output = run_forward(g->t, &of, &sums);
    if (!kept)
        rvli_release(g->t, &sums);
    rvli_shape shape = rvli_attention_shape(&qkv[0]->shape, &qkv[2]->shape);
    shape.heads_first = true;
    rvli_value *whole = rvli_value_adopt(g, &output);
    rvli_value *y = rvli_node_gives(g, node, rvli_value_view(g, whole, &shape));
    rvli_value *kept_sums = kept ? rvli_value_adopt(g, &sums) : rvli_value_retain(y);
    rvli_value_release(g, whole);
    rvli_node_keep(g, node, kept_sums);
    rvli_value_release(g, kept_sums);
    rvli_node_keep(g, node, y);
    return y;
}
