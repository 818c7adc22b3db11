/* SPDX-License-Identifier: MIT */
/*
 * What a trainer keeps in host memory.
 *
 * PyTorch rounds each pinned tensor up to a power of two
 * (aten/src/ATen/core/CachingHostAllocator.h), and keeps the memory. FSDP2's CPUOffloadPolicy has
 * shards and their gradients there. The optimizer's states are made on the CPU, and are not pinned.
 */
#include "predict/llm/step/training.h"

uint64_t rvli_pinned_bytes(uint64_t bytes)
{
    uint64_t power = bytes > 0;
    while (power < bytes)
        power *= 2;
    return power;
}

/* Bytes for a parameter's share: itself, its gradient, states, and a copy in fp32. */
static uint64_t share_on_host(const rvli_training *t, const rvli_parameter *parameter)
{
    bool mixed = rvli_is_mixed(t->options->flags);
    uint64_t elements = parameter->share_elements;
    uint64_t each = mixed ? RVLI_FULL : parameter->element_bytes;
    uint64_t bytes = rvli_pinned_bytes(each * elements);
    if (!parameter->trained)
        return bytes;
    bytes += rvli_pinned_bytes(each * elements);
    const rvli_optimizer_kind *kind = &rvli_optimizer_kinds[t->options->optimizer];
    bytes += (uint64_t)kind->states * kind->bytes * elements;
    bool copied = kind->master && !mixed && !rvli_is_frozen(t);
    return copied ? bytes + RVLI_FULL * elements : bytes;
}

static bool has(const rvli_training *t, uint64_t feature)
{
    return (t->model->features & feature) != 0;
}

/* The inputs of layers. The streams of a layer are one tensor, its embeddings another. */
static uint64_t inputs_on_host(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    uint64_t streams = has(t, RVLI_ALTUP) ? dim[RVLI_DIM_ALTUP_COUNT] : 1;
    return t->model->layers *
           (rvli_pinned_bytes(RVLI_HALF * t->tokens * streams * dim[RVLI_DIM_HIDDEN]) +
            rvli_pinned_bytes(RVLI_HALF * t->tokens * dim[RVLI_DIM_PER_LAYER]));
}

/* Embeddings for each layer: what their norm keeps, and the input of the projection. Streams, where
 * they begin and where they end: three tensors in bf16 for the input and output of each projection,
 * and the root of the magnitude in fp32. */
static uint64_t ends_on_host(const rvli_training *t)
{
    const uint64_t *dim = t->model->dim;
    uint64_t hidden = t->tokens * dim[RVLI_DIM_HIDDEN];
    uint64_t all = t->tokens * dim[RVLI_DIM_PER_LAYER_ALL];
    uint64_t others = has(t, RVLI_ALTUP) ? dim[RVLI_DIM_ALTUP_COUNT] - 1 : 0;
    uint64_t norm = has(t, RVLI_PER_LAYER) ? 2 * rvli_pinned_bytes(RVLI_FULL * all) +
                                                 rvli_pinned_bytes(RVLI_HALF * hidden)
                                           : 0;
    return norm +
           2 * others *
               (3 * rvli_pinned_bytes(RVLI_HALF * hidden) + rvli_pinned_bytes(RVLI_FULL * hidden));
}

/* Each in a separate tensor: the inputs of layers, what the last norm keeps, and the logarithms. */
static uint64_t kept_on_host(const rvli_training *t)
{
    uint64_t hidden = t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
    uint64_t logits = t->tokens * t->model->dim[RVLI_DIM_VOCABULARY];
    bool in_full = has(t, RVLI_NORM_IN_FULL);
    uint64_t normed =
        rvli_is_frozen(t) ? 0 : rvli_pinned_bytes((in_full ? RVLI_FULL : RVLI_HALF) * hidden);
    if (!rvli_is_offloaded(t))
        return 0;
    bool capped = has(t, RVLI_CAPPED_LOGITS);
    return inputs_on_host(t) + ends_on_host(t) + rvli_pinned_bytes(RVLI_FULL * hidden) + normed +
           rvli_pinned_bytes(RVLI_FULL * t->tokens) + rvli_pinned_bytes(RVLI_FULL * logits) +
           rvli_pinned_bytes(capped ? RVLI_HALF * logits : 0);
}

uint64_t rvli_host_bytes(const rvli_training *t)
{
    uint64_t bytes = kept_on_host(t);
    for (uint32_t i = 0; rvli_is_on_host(t) && i < t->parameter_count; i++)
        bytes += share_on_host(t, &t->parameters[i]);
    return bytes;
}
