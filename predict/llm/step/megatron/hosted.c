/* SPDX-License-Identifier: MIT */
/*
 * The optimizer, or a part of it, on the host: --optimizer-cpu-offload with
 * --optimizer-offload-fraction (megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py).
 *
 * Parameters go to the host, matrices before vectors, until they are the given fraction. It comes
 * with the precision-aware optimizer, which has no main weights besides those of this optimizer.
 * The class is built twice: over whole parameters, before a rank knows its shares, and then over
 * the shares. The first is in a cycle of references. Here it is freed before the first step, since
 * Megatron-LM collects garbage there with --manual-gc. Without that option it is freed when
 * Python's collector finds it.
 */
#include "predict/llm/step/megatron/rank.h"

#define PPM 1000000

/* ---- Choosing what is on the host ---- */

typedef uint64_t (*size_fn)(const rvli_rank_parameter *parameter);

static uint64_t whole(const rvli_rank_parameter *parameter)
{
    return parameter->elements;
}

static uint64_t share(const rvli_rank_parameter *parameter)
{
    return parameter->share_elements;
}

typedef struct chooser {
    size_fn size;
    double threshold;
    uint64_t chosen;
} chooser;

static chooser begin(const rvli_rank *r, bool is_expert, size_fn size)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < r->parameter_count; i++)
        elements += r->parameters[i].is_expert == is_expert ? size(&r->parameters[i]) : 0;
    double fraction = (double)r->options->optimizer_offload_ppm / PPM;
    return (chooser){.size = size, .threshold = (double)elements * fraction};
}

static void choose(chooser *c, rvli_rank_parameter *parameter)
{
    parameter->is_hosted = (double)c->chosen < c->threshold;
    c->chosen += parameter->is_hosted ? c->size(parameter) : 0;
}

static bool is_of(const rvli_rank_parameter *parameter, bool is_expert, bool is_vector)
{
    return parameter->is_expert == is_expert && parameter->is_vector == is_vector;
}

/* Chooses by shares, in the order of the buffers. */
static void choose_shares(rvli_rank *r, bool is_expert)
{
    chooser c = begin(r, is_expert, share);
    for (int is_vector = 0; is_vector < 2; is_vector++) {
        for (uint32_t part = 0; part < r->parts; part++) {
            for (uint32_t i = r->parameter_count; i > 0; i--) {
                rvli_rank_parameter *parameter = &r->parameters[i - 1];
                if (parameter->part == part && parameter->share_elements > 0 &&
                    is_of(parameter, is_expert, is_vector != 0))
                    choose(&c, parameter);
            }
        }
    }
}

void rvli_rank_choose_hosted(rvli_rank *r)
{
    if (!rvli_rank_offloads(r))
        return;
    choose_shares(r, false);
    choose_shares(r, true);
}

/* ---- Loading ---- */

/* There is a copy in bf16 for a moment. */
static rvli_block copied(rvli_rank *r, const rvli_rank_parameter *parameter, uint64_t elements)
{
    rvli_block half = rvli_take(&r->tape, RVL_MODEL_MASTER_WEIGHTS, RVLI_HALF * elements);
    rvli_block full = NULL;
    if (!parameter->is_hosted)
        full = rvli_take(&r->tape, RVL_MODEL_MASTER_WEIGHTS, RVLI_FULL * elements);
    rvli_rank_drop(r, &half);
    return full;
}

/* Chooses by whole parameters, in the order of the model. */
static void load_whole(rvli_rank *r, bool is_expert)
{
    chooser c = begin(r, is_expert, whole);
    for (int is_vector = 0; is_vector < 2; is_vector++) {
        for (uint32_t i = 0; i < r->parameter_count; i++) {
            rvli_rank_parameter *parameter = &r->parameters[i];
            if (!is_of(parameter, is_expert, is_vector != 0))
                continue;
            choose(&c, parameter);
            parameter->passing = copied(r, parameter, parameter->elements);
        }
    }
}

static void load_share(rvli_rank *r, rvli_rank_parameter *parameter)
{
    parameter->main = copied(r, parameter, parameter->share_elements);
}

void rvli_rank_load_hybrid(rvli_rank *r)
{
    for (int is_expert = 0; is_expert < 2; is_expert++) {
        load_whole(r, is_expert != 0);
        choose_shares(r, is_expert != 0);
        rvli_rank_for_each(r, is_expert != 0, load_share);
    }
    for (uint32_t i = 0; i < r->parameter_count; i++)
        rvli_rank_drop(r, &r->parameters[i].passing);
}

/* ---- A step ---- */

/* In fp32. A gradient for the device stays. One for the host is freed when it has arrived there. */
static void convert_gradient(rvli_rank *r, rvli_rank_parameter *parameter)
{
    rvli_block full =
        rvli_take(&r->tape, RVL_MODEL_GRADIENTS, RVLI_FULL * parameter->share_elements);
    rvli_rank_drop(r, &parameter->gradient);
    parameter->gradient = full;
    if (parameter->is_hosted)
        rvli_rank_drop(r, &parameter->gradient);
}

static void make_states(rvli_rank *r, rvli_rank_parameter *parameter)
{
    if (!parameter->is_hosted)
        rvli_rank_make_states(r, parameter);
}

/* New weights arrive in fp32, and are converted to bf16 here. */
static void copy_back(rvli_rank *r, rvli_rank_parameter *parameter)
{
    if (!parameter->is_hosted)
        return;
    rvli_block full =
        rvli_take(&r->tape, RVL_MODEL_OPTIMIZER_TEMPORARIES, RVLI_FULL * parameter->share_elements);
    rvli_rank_drop(r, &full);
}

void rvli_rank_update_hybrid(rvli_rank *r)
{
    for (int is_expert = 0; is_expert < 2; is_expert++) {
        if (r->options->flags & RVL_MODEL_BF16_GRADIENTS)
            rvli_rank_for_each(r, is_expert != 0, convert_gradient);
        rvli_rank_for_each(r, is_expert != 0, make_states);
        rvli_rank_for_each(r, is_expert != 0, copy_back);
    }
}

/* Weights, two moments, and pinned gradients. */
uint64_t rvli_rank_host_bytes(const rvli_rank *r)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->parameter_count; i++) {
        const rvli_rank_parameter *parameter = &r->parameters[i];
        uint64_t each = RVLI_FULL * parameter->share_elements;
        if (parameter->is_hosted)
            bytes += 3 * each + rvli_pinned_bytes(each);
    }
    return bytes;
}
