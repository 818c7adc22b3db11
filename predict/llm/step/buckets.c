/* SPDX-License-Identifier: MIT */
/*
 * DDP's buckets: gradients are copied there to be summed over ranks, and stay
 * (torch/csrc/distributed/c10d/reducer.cpp).
 *
 * The first backward pass has one bucket of all. It shows in which order gradients come, and by
 * that order the second forward pass makes the buckets that stay: the first of at least 1 MiB, the
 * others of at least 25 MiB.
 */
#include <stdlib.h>

#include "predict/llm/step/training.h"

#define FIRST_BUCKET_BYTES RVLI_MIB
#define BUCKET_BYTES (25 * RVLI_MIB)
#define BROADCAST_BYTES (250 * RVLI_MIB)

static rvli_block take(rvli_training *t, uint64_t bytes)
{
    return rvli_take(&t->tape, RVL_MODEL_GRADIENT_BUCKETS, bytes);
}

/* Parameters of one type that are sent at once. */
typedef struct parcel {
    uint64_t bytes;
    uint32_t count;
    uint32_t first;
} parcel;

/* Two are on their way at once. One parameter alone is sent from where it lies. */
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

/* Rank 0 sends its parameters, those of a type laid together up to a size. */
static void broadcast(rvli_training *t)
{
    enum { BYTES, BF16, FP32, TYPES };
    parcel open[TYPES] = {0};
    parcel *parcels = calloc(t->parameter_count, sizeof *parcels); /* by their first parameter */
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
    uint64_t bytes = 0;
    broadcast(t);
    for (uint32_t i = 0; i < t->parameter_count; i++)
        bytes += gradient_bytes(&t->parameters[i]);
    t->first_bucket = take(t, bytes);
}

typedef struct filling {
    rvli_training *t;
    uint64_t bytes;
    uint64_t least_bytes;
} filling;

static void fill(filling *f, uint64_t bytes)
{
    f->bytes += bytes;
    if (f->bytes < f->least_bytes)
        return;
    take(f->t, f->bytes);
    f->bytes = 0;
    f->least_bytes = BUCKET_BYTES;
}

static void fill_role(filling *f, const rvli_unit *unit, rvli_role role)
{
    if (unit->adapters[role] != 0) {
        fill(f, gradient_bytes(&f->t->parameters[unit->adapters[role]]));
        fill(f, gradient_bytes(&f->t->parameters[unit->adapters[role] - 1]));
    }
    if (unit->by_role[role] != 0)
        fill(f, gradient_bytes(&f->t->parameters[unit->by_role[role] - 1]));
}

/* A layer's, as the backward pass has them. */
static void fill_layer(filling *f, rvli_unit *unit)
{
    static const rvli_role order[] = {RVLI_ROLE_NORM_BEHIND_MLP,
                                      RVLI_ROLE_DOWN,
                                      RVLI_ROLE_GATE_UP,
                                      RVLI_ROLE_UP,
                                      RVLI_ROLE_GATE,
                                      RVLI_ROLE_NORM_BEFORE_MLP,
                                      RVLI_ROLE_NORM_BEHIND_ATTENTION,
                                      RVLI_ROLE_O,
                                      RVLI_ROLE_QKV,
                                      RVLI_ROLE_V_BIAS,
                                      RVLI_ROLE_V,
                                      RVLI_ROLE_K_NORM,
                                      RVLI_ROLE_K_BIAS,
                                      RVLI_ROLE_K,
                                      RVLI_ROLE_Q_NORM,
                                      RVLI_ROLE_Q_BIAS,
                                      RVLI_ROLE_Q,
                                      RVLI_ROLE_Q_DOWN,
                                      RVLI_ROLE_NORM_BEFORE_ATTENTION};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        fill_role(f, unit, order[i]);
    for (uint32_t i = 0; i < unit->count; i++) {
        const rvli_parameter *parameter = rvli_parameter_of(f->t, unit, i);
        if (parameter->role == RVLI_ROLE_OTHER)
            fill(f, gradient_bytes(parameter));
    }
}

void rvli_buckets_rebuild(rvli_training *t)
{
    filling f = {.t = t, .least_bytes = FIRST_BUCKET_BYTES};
    if (t->first_bucket == NULL)
        return;
    rvli_release(t, &t->first_bucket);
    fill_role(&f, rvli_root(t), RVLI_ROLE_HEAD);
    fill_role(&f, rvli_root(t), RVLI_ROLE_LAST_NORM);
    for (uint32_t layer = t->model->layers; layer > 0; layer--)
        fill_layer(&f, &t->units[layer - 1]);
    f.least_bytes = 0;
    fill_role(&f, rvli_root(t), RVLI_ROLE_EMBEDDING);
    if (rvli_is_frozen(t))
        fill(&f, 0); /* adapters come last then */
}
