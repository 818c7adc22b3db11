/* SPDX-License-Identifier: MIT */
/*
 * A frozen base in four bits: how it is loaded, and what its products take.
 *
 * transformers (modeling_utils.py, caching_allocator_warmup) first asks for as much as the model
 * will take without its scales, and frees it: later tensors are cut from that segment. Then each
 * weight comes to the device in bf16 and is quantised there. A product makes bf16 of the whole
 * weight, forward and again backward, and keeps nothing of it (bitsandbytes,
 * backends/cuda/ops.py, autograd/_functions.py).
 */
#include <stdlib.h>
#include <string.h>

#include "predict/llm/step/training.h"

static bool is_double(const rvli_training *t)
{
    return t->options->base_dtype == RVL_MODEL_BASE_NF4;
}

static rvli_block weights(rvli_training *t, uint64_t bytes)
{
    return rvli_take(&t->tape, RVL_MODEL_SHARDED_WEIGHTS, bytes);
}

static rvli_block passing(rvli_training *t, uint64_t bytes)
{
    return rvli_take(&t->tape, RVL_MODEL_DEQUANTISED, bytes);
}

/* ---- Loading ---- */

static bool is_adapter(const rvli_parameter *parameter)
{
    return parameter->role == RVLI_ROLE_ADAPTER;
}

static void warm_up(rvli_training *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        const rvli_parameter *parameter = &t->parameters[i];
        if (parameter->is_quantised)
            bytes += parameter->elements / 2;
        else if (!is_adapter(parameter))
            bytes += RVLI_HALF * parameter->elements;
    }
    rvli_block all = weights(t, bytes);
    rvli_release(t, &all);
}

static void quantise(rvli_training *t, uint64_t elements)
{
    uint64_t parts[RVLI_NF4_PARTS], wide = rvli_nf4_scales_bytes(elements);
    rvli_nf4_parts(t->options->base_dtype, elements, parts);
    rvli_block half = passing(t, RVLI_HALF * elements);
    rvli_block scales = is_double(t) ? passing(t, wide) : weights(t, parts[0]);
    for (size_t i = 1; i < 4; i++)
        weights(t, parts[i]);
    if (is_double(t)) {
        rvli_block centred = passing(t, wide);
        weights(t, parts[4]);
        weights(t, parts[0]);
        weights(t, parts[5]);
        rvli_release(t, &centred);
        rvli_release(t, &scales);
    }
    rvli_release(t, &half);
}

static void load_one(rvli_training *t, rvli_parameter *parameter)
{
    if (parameter->is_quantised)
        quantise(t, parameter->elements);
    else
        parameter->share = weights(t, RVLI_HALF * parameter->elements);
}

/* What is sorted by name. */
typedef struct entry {
    rvli_parameter *parameter;
} entry;

/* As transformers sorts the names of a checkpoint: layers by their number. */
static int by_name(const void *a, const void *b)
{
    const rvli_parameter *one = ((const entry *)a)->parameter;
    const rvli_parameter *two = ((const entry *)b)->parameter;
    bool in_layers = one->layer != RVL_MODEL_NO_LAYER && two->layer != RVL_MODEL_NO_LAYER;
    if (in_layers && one->layer != two->layer)
        return one->layer < two->layer ? -1 : 1;
    return strcmp(one->pattern, two->pattern);
}

static void load_base(rvli_training *t)
{
    uint32_t count = 0;
    entry *sorted = calloc(t->parameter_count, sizeof *sorted);
    if (sorted == NULL) {
        t->tape.failed = true;
        return;
    }
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        if (!is_adapter(&t->parameters[i]))
            sorted[count++].parameter = &t->parameters[i];
    }
    qsort(sorted, count, sizeof *sorted, by_name);
    for (uint32_t i = 0; i < count; i++)
        load_one(t, sorted[i].parameter);
    free(sorted);
}

/* PEFT makes all in bf16, as the model, and then fp32 of one after the other. */
static void load_adapters(rvli_training *t)
{
    for (uint64_t each = RVLI_HALF; each <= RVLI_FULL; each *= 2) {
        for (uint32_t i = 0; i < t->parameter_count; i++) {
            rvli_parameter *parameter = &t->parameters[i];
            if (!is_adapter(parameter))
                continue;
            rvli_block made = weights(t, each * parameter->elements);
            rvli_release(t, &parameter->share);
            parameter->share = made;
        }
    }
}

void rvli_nf4_load(rvli_training *t)
{
    warm_up(t);
    load_base(t);
    load_adapters(t);
}

/* ---- Products ---- */

rvli_nf4 rvli_nf4_forward(rvli_training *t, uint64_t elements)
{
    rvli_nf4 nf4 = {0};
    for (int i = 0; i < 2 && is_double(t); i++) /* without their mean, and with it */
        nf4.scales[i] = passing(t, rvli_nf4_scales_bytes(elements));
    nf4.weight = passing(t, RVLI_HALF * elements);
    return nf4;
}

rvli_nf4 rvli_nf4_backward(rvli_training *t, uint64_t elements)
{
    rvli_nf4 nf4 = {0};
    rvli_block scales = passing(t, is_double(t) ? rvli_nf4_scales_bytes(elements) : 0);
    nf4.weight = passing(t, RVLI_HALF * elements);
    rvli_release(t, &scales);
    return nf4;
}

void rvli_nf4_done(rvli_training *t, rvli_nf4 *nf4)
{
    rvli_release(t, &nf4->scales[1]);
    rvli_release(t, &nf4->scales[0]);
    rvli_release(t, &nf4->weight);
}
