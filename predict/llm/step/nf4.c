/* SPDX-License-Identifier: MIT */
/*
 * A frozen base in four bits: its loading, and the memory of its products.
 *
 * transformers (modeling_utils.py, caching_allocator_warmup) first allocates as much as the model
 * will take without its scales, and frees it. Later tensors are cut from that segment. Then each
 * weight comes to the device in bf16 and is quantised there. A product makes the whole weight in
 * bf16, forward and again backward, and keeps none of it (bitsandbytes, backends/cuda/ops.py,
 * autograd/_functions.py).
 */
#include <stdlib.h>
#include <string.h>

#include "predict/llm/step/training.h"

#define LAYER "model.layers.%L."

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

/* With several ranks, transformers assumes that linear layers and the head are split. They are
 * not. */
static uint64_t warmed_up(const rvli_training *t, const rvli_parameter *parameter)
{
    uint64_t ranks = t->sharded ? t->options->train_ranks : 1;
    if (is_adapter(parameter))
        return 0;
    if (parameter->is_quantised)
        return parameter->elements / 2 / ranks;
    bool tied = (t->model->features & RVLI_HEAD) == 0;
    uint64_t bytes = RVLI_HALF * parameter->elements;
    return parameter->role == (tied ? RVLI_ROLE_EMBEDDING : RVLI_ROLE_HEAD) ? bytes / ranks : bytes;
}

static void warm_up(rvli_training *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->parameter_count; i++)
        bytes += warmed_up(t, &t->parameters[i]);
    rvli_block all = weights(t, bytes);
    rvli_release(t, &all);
}

static void quantise(rvli_training *t, rvli_parameter *parameter)
{
    uint64_t elements = parameter->elements;
    uint64_t parts[RVLI_NF4_PARTS], wide = rvli_nf4_scales_bytes(elements);
    rvli_nf4_parts(t->options->base_dtype, elements, parts);
    rvli_block half = passing(t, RVLI_HALF * elements);
    rvli_block scales = is_double(t) ? passing(t, wide) : weights(t, parts[0]);
    parameter->share = weights(t, parts[RVLI_NF4_PACKED]);
    for (size_t i = 2; i < 4; i++)
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
        quantise(t, parameter);
    else
        parameter->share = weights(t, RVLI_HALF * parameter->elements);
}

typedef struct renamed {
    const char *ours, *name; /* how both begin */
} renamed;

/* A name in the checkpoint. Most sort like the table's (tensors.c), but not beside Mamba in Bamba,
 * and in Granite's models with fused projections. */
static const char *checkpoint_name(const rvl_model *model, const char *pattern)
{
    static const renamed bamba[] = {{LAYER "mlp.", LAYER "feed_forward."}, {NULL, NULL}};
    static const renamed granite[] = {
        {LAYER "mlp.shared_experts.", LAYER "shared_mlp.output_linear"},
        {LAYER "mlp.gate_up_proj.", LAYER "shared_mlp.input_linear"},
        {LAYER "mlp.down_proj.", LAYER "shared_mlp.output_linear"},
        {LAYER "mlp.", LAYER "block_sparse_moe."},
        {NULL, NULL}};
    const uint64_t fused = RVLI_NUMBERS | RVLI_FUSED_UP;
    const renamed *each = (model->features & fused) == fused         ? granite
                          : rvli_has_layers(model, RVLI_LAYER_MAMBA) ? bamba
                                                                     : NULL;
    for (; each != NULL && each->ours != NULL; each++)
        if (strncmp(pattern, each->ours, strlen(each->ours)) == 0)
            return each->name;
    return pattern;
}

typedef struct entry {
    rvli_parameter *parameter;
    const char *name;
} entry;

/* As transformers sorts the names of a checkpoint, with layers by number. */
static int by_name(const void *a, const void *b)
{
    const entry *one = a, *two = b;
    const rvli_parameter *first = one->parameter, *second = two->parameter;
    bool in_layers = first->layer != RVL_MODEL_NO_LAYER && second->layer != RVL_MODEL_NO_LAYER;
    if (in_layers && first->layer != second->layer)
        return first->layer < second->layer ? -1 : 1;
    int order = strcmp(one->name, two->name);
    return order != 0 ? order : strcmp(first->pattern, second->pattern);
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
        rvli_parameter *parameter = &t->parameters[i];
        if (!is_adapter(parameter))
            sorted[count++] = (entry){parameter, checkpoint_name(t->model, parameter->pattern)};
    }
    qsort(sorted, count, sizeof *sorted, by_name);
    for (uint32_t i = 0; i < count; i++)
        load_one(t, sorted[i].parameter);
    free(sorted);
}

/* Bytes of each element: of most adapters, and of those beside a weight in fp32 (0: these stay). */
static void make_adapters(rvli_training *t, uint64_t most, uint64_t beside_full)
{
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        rvli_parameter *parameter = &t->parameters[i];
        uint64_t each = parameter->is_beside_full ? beside_full : most;
        if (!is_adapter(parameter) || each == 0)
            continue;
        rvli_block made = weights(t, each * parameter->elements);
        rvli_release(t, &parameter->share);
        parameter->share = made;
    }
}

/* PEFT makes adapters in bf16, like the model, or in fp32 beside a weight in fp32. Then it converts
 * them to fp32 one by one. TRL converts them back to bf16. */
static void load_adapters(rvli_training *t)
{
    make_adapters(t, RVLI_HALF, RVLI_FULL);
    make_adapters(t, RVLI_FULL, 0);
    if (rvli_adapter_bytes(t) == RVLI_HALF)
        make_adapters(t, RVLI_HALF, RVLI_HALF);
}

/* Each GPU has loaded the whole model. FSDP2 makes the shares of a unit, and then frees the whole
 * parameters. */
static void shard(rvli_training *t)
{
    rvli_block *whole = calloc(t->parameter_count, sizeof(rvli_block));
    if (whole == NULL) {
        t->tape.failed = true;
        return;
    }
    for (uint32_t number = 0; number <= t->model->layers; number++) {
        const rvli_unit *unit = &t->units[number];
        for (uint32_t i = 0; i < unit->count; i++) {
            rvli_parameter *parameter = rvli_parameter_of(t, unit, i);
            whole[i] = parameter->share;
            parameter->share = weights(t, parameter->element_bytes * parameter->share_elements);
        }
        for (uint32_t i = 0; i < unit->count; i++)
            rvli_release(t, &whole[i]);
    }
    free(whole);
}

/* prepare_model_for_kbit_training() converts everything that is not in four bits to fp32, and
 * empties the cache. */
static void prepare(rvli_training *t)
{
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        rvli_parameter *parameter = &t->parameters[i];
        if (parameter->is_quantised || is_adapter(parameter))
            continue;
        rvli_block full = weights(t, RVLI_FULL * parameter->elements);
        rvli_release(t, &parameter->share);
        parameter->share = full;
    }
    rvli_tape_empty_cache(&t->tape);
}

void rvli_nf4_load(rvli_training *t)
{
    warm_up(t);
    load_base(t);
    if (rvli_is_wide(t))
        prepare(t);
    load_adapters(t);
    if (t->sharded)
        shard(t);
}

/* ---- Products ---- */

rvli_nf4 rvli_nf4_forward(rvli_training *t, uint64_t elements)
{
    rvli_nf4 nf4 = {0};
    for (int i = 0; i < 2 && is_double(t); i++) /* [0]: without their mean, [1]: with it */
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
