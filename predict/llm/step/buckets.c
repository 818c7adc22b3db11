/* SPDX-License-Identifier: MIT */
/*
 * DDP's buckets. Gradients are copied into them to be summed over ranks, and stay there
 * (torch/csrc/distributed/c10d/reducer.cpp).
 *
 * The first backward pass has one bucket for all gradients, or one for each type. It shows the
 * order of the gradients. In that order the second forward pass makes the permanent buckets: the
 * first with at least 1 MiB, the others with at least 25 MiB.
 *
 * When the bucket for all is freed is a matter of time. A watchdog thread looks every 100 ms
 * whether a reduction is done. NCCL's input is held until the next call of NCCL after that
 * (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, shelvesToUnstash_). If the watchdog looked
 * during the optimizer's step, that call comes with the new buckets, before the second forward pass
 * (RVL_MODEL_BUCKET_FREED). If not, it comes with the sum of the first new bucket, in the backward
 * pass. This differs between ranks and runs. The default is the case that reserves more.
 */
#include <stdlib.h>
#include <string.h>

#include "predict/llm/graph/graph.h"
#include "predict/llm/step/training.h"

#define FIRST_BUCKET_BYTES RVLI_MIB
#define BUCKET_BYTES (25 * RVLI_MIB)
#define BROADCAST_BYTES (250 * RVLI_MIB)

static rvli_block take(rvli_training *t, uint64_t bytes)
{
    return rvli_take(&t->tape, RVL_MODEL_GRADIENT_BUCKETS, bytes);
}

/* Parameters of one type that are sent together. */
typedef struct parcel {
    uint64_t bytes;
    uint32_t count;
    uint32_t first;
} parcel;

/* Two parcels are on their way at once. A single parameter is sent without a copy. */
static void send(rvli_training *t, const parcel *parcels)
{
    rvli_block before = NULL;
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        if (parcels[i].count == 0)
            continue;
        rvli_block laid = take(t, parcels[i].count > 1 ? parcels[i].bytes : 0);
        rvli_release(t, &before);
        before = laid;
    }
    rvli_release(t, &before);
}

static void close_parcel(parcel *open, parcel *parcels)
{
    if (open->count > 0)
        parcels[open->first] = *open;
    *open = (parcel){0};
}

/* Rank 0 sends its parameters. Those of one type are copied together, up to a size. */
static void broadcast(rvli_training *t)
{
    enum { BYTES, BF16, FP32, TYPES };
    parcel open[TYPES] = {0};
    /* indexed by their first parameter */
    parcel *parcels = calloc(t->parameter_count, sizeof *parcels);
    if (parcels == NULL) {
        t->tape.failed = true;
        return;
    }
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        const rvli_parameter *parameter = &t->parameters[i];
        bool wide = parameter->element_bytes == RVLI_FULL;
        parcel *mine = &open[parameter->is_quantised ? BYTES : wide ? FP32 : BF16];
        mine->first = mine->count == 0 ? i : mine->first;
        mine->bytes += parameter->is_quantised ? parameter->elements / 2
                                               : parameter->element_bytes * parameter->elements;
        mine->count++;
        if (mine->bytes >= BROADCAST_BYTES)
            close_parcel(mine, parcels);
    }
    for (int type = 0; type < TYPES; type++)
        close_parcel(&open[type], parcels);
    send(t, parcels);
    free(parcels);
}

static uint64_t gradient_bytes(const rvli_parameter *parameter)
{
    return parameter->trained ? parameter->element_bytes * parameter->elements : 0;
}

void rvli_buckets_make(rvli_training *t)
{
    uint64_t bytes[2] = {0};
    broadcast(t);
    for (uint32_t i = 0; i < t->parameter_count; i++)
        bytes[!rvli_is_wide_router(t, t->parameters[i].role)] += gradient_bytes(&t->parameters[i]);
    for (int i = 0; i < 2; i++)
        t->first_bucket[i] = take(t, bytes[i]);
}

typedef struct bucket {
    uint64_t bytes;
    uint64_t least_bytes;
} bucket;

/* Gradients of each type have separate buckets. */
typedef struct filling {
    rvli_training *t;
    bucket usual;
    bucket in_full; /* fp32, if the others are bf16 */
} filling;

static void close_bucket(filling *f, bucket *b)
{
    take(f->t, b->bytes);
    *b = (bucket){.least_bytes = BUCKET_BYTES};
}

static void fill(filling *f, const rvli_parameter *parameter)
{
    bucket *b = rvli_is_wide_router(f->t, parameter->role) ? &f->in_full : &f->usual;
    b->bytes += gradient_bytes(parameter);
    if (b->bytes < b->least_bytes)
        return;
    close_bucket(f, b);
    if (f->t->closes_bucket == NULL)
        f->t->closes_bucket = parameter;
}

/* In the order of the first backward pass. */
static void fill_in_order(filling *f)
{
    const rvli_graph *g = f->t->graph;
    for (uint32_t i = 0; i < g->order_count; i++)
        fill(f, &f->t->parameters[g->order[i]]);
}

bool rvli_buckets_rebuild(rvli_training *t)
{
    filling f = {.t = t, .usual = {0, FIRST_BUCKET_BYTES}, .in_full = {0, FIRST_BUCKET_BYTES}};
    if (t->first_bucket[1] == NULL)
        return false;
    memcpy(t->held_bucket, t->first_bucket, sizeof t->held_bucket);
    memset(t->first_bucket, 0, sizeof t->first_bucket);
    if (t->options->flags & RVL_MODEL_BUCKET_FREED)
        rvli_buckets_release(t);
    fill_in_order(&f);
    close_bucket(&f, &f.usual); /* the rest */
    close_bucket(&f, &f.in_full);
    return true;
}

void rvli_buckets_ready(rvli_training *t, const rvli_parameter *parameter)
{
    if (t->held_bucket[1] != NULL && parameter == t->closes_bucket)
        t->bucket_reduced = true;
}

void rvli_buckets_release(rvli_training *t)
{
    t->bucket_reduced = false;
    for (int i = 0; i < 2; i++) {
        rvli_drop(&t->tape, t->held_bucket[i]);
        t->held_bucket[i] = NULL;
    }
}
