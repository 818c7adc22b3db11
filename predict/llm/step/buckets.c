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

/* Rank 0 sends its parameters, laid together up to a size. One alone is sent from where it lies. */
static void broadcast(rvli_training *t)
{
    uint64_t bytes = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        bytes += t->parameters[i].element_bytes * t->parameters[i].elements;
        count++;
        if (bytes < BROADCAST_BYTES && i + 1 < t->parameter_count)
            continue;
        rvli_block laid = take(t, count > 1 ? bytes : 0);
        rvli_release(t, &laid);
        bytes = 0;
        count = 0;
    }
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
    static const rvli_role order[] = {RVLI_ROLE_DOWN,   RVLI_ROLE_UP,
                                      RVLI_ROLE_GATE,   RVLI_ROLE_NORM_BEFORE_MLP,
                                      RVLI_ROLE_O,      RVLI_ROLE_V_BIAS,
                                      RVLI_ROLE_V,      RVLI_ROLE_K_NORM,
                                      RVLI_ROLE_K_BIAS, RVLI_ROLE_K,
                                      RVLI_ROLE_Q_NORM, RVLI_ROLE_Q_BIAS,
                                      RVLI_ROLE_Q,      RVLI_ROLE_NORM_BEFORE_ATTENTION};
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
