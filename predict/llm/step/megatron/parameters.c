/* SPDX-License-Identifier: MIT */
/*
 * The parameters of a rank, in the order of megatron-core's modules.
 *
 * The buffers of a part have them in reverse order, each aligned to 64 elements. A buffer is
 * divided evenly among data-parallel ranks, wherever its parameters are (megatron/core/distributed/
 * param_and_grad_buffer.py). Shares here are those of the first rank.
 */
#include <stdlib.h>

#include "base/grow.h"

#include "predict/llm/step/megatron/rank.h"

#define START_ELEMENTS 64
#define END_ELEMENTS 128
#define PADDING 128 /* of the vocabulary, for each tensor-parallel rank */

uint64_t rvli_rank_vocabulary(uint64_t vocabulary, uint32_t tp)
{
    return rvli_round_up(vocabulary, (uint64_t)PADDING * tp) / tp;
}

static void add(rvli_rank *r, uint64_t elements, bool is_expert)
{
    if (elements == 0 || r->tape.failed)
        return;
    if (!RVLI_ROOM(r->parameters, r->parameter_count, r->parameter_room, 256)) {
        r->tape.failed = true;
        return;
    }
    r->parameters[r->parameter_count++] =
        (rvli_rank_parameter){.elements = elements, .part = r->part, .is_expert = is_expert};
}

static void add_vector(rvli_rank *r, uint64_t elements)
{
    uint32_t count = r->parameter_count;
    add(r, elements, false);
    if (r->parameter_count > count)
        r->parameters[count].is_vector = true;
}

/* elements: of one matrix of one expert. In the older class all experts are two parameters. */
static void add_experts(rvli_rank *r, uint64_t elements)
{
    if (rvli_rank_groups_by_legacy(r)) {
        add(r, 2 * elements * r->experts, true);
        add(r, elements * r->experts, true);
        return;
    }
    uint64_t runs = rvli_rank_groups(r) ? 1 : r->experts, each = r->experts / runs;
    for (uint64_t run = 0; run < runs; run++) {
        for (uint64_t i = 0; i < each; i++)
            add(r, 2 * elements, true);
        for (uint64_t i = 0; i < each; i++)
            add(r, elements, true);
    }
}

static void add_layer(rvli_rank *r, uint32_t number)
{
    const rvl_model *model = r->model;
    uint64_t hidden = model->dim[RVLI_DIM_HIDDEN], qkv = r->q_width + 2 * r->kv_width;
    uint64_t head = model->features & RVLI_QK_NORM ? model->dim[RVLI_DIM_HEAD] : 0;
    add_vector(r, hidden);
    add(r, hidden * r->q_width, false);
    add(r, qkv * hidden, false);
    add_vector(r, model->features & RVLI_QKV_BIAS ? qkv : 0);
    add_vector(r, head);
    add_vector(r, head);
    add_vector(r, hidden);
    if (!rvli_layer_is(model, r->first_layer + number, RVLI_LAYER_SPARSE)) {
        add(r, 2 * r->inner * hidden, false);
        add(r, r->inner * hidden, false);
        return;
    }
    uint64_t expert = model->dim[RVLI_DIM_EXPERT_INTERMEDIATE] * hidden;
    add(r, model->experts * hidden, false);
    add_experts(r, expert);
}

/* How much of [start, end) is in the first share. */
static uint64_t overlap(uint64_t start, uint64_t end, uint64_t share)
{
    uint64_t last = end < share ? end : share;
    return last > start ? last - start : 0;
}

/* Lays out a buffer. Returns its elements, padded. */
static uint64_t lay(rvli_rank *r, uint32_t part, bool is_expert, uint64_t share)
{
    uint64_t at = 0;
    for (uint32_t i = r->parameter_count; i > 0; i--) {
        rvli_rank_parameter *parameter = &r->parameters[i - 1];
        if (parameter->part != part || parameter->is_expert != is_expert)
            continue;
        at = rvli_round_up(at, START_ELEMENTS);
        parameter->share_elements = overlap(at, at + parameter->elements, share);
        at += parameter->elements;
    }
    return at;
}

static void divide(rvli_rank *r, uint32_t part, bool is_expert)
{
    uint64_t ranks = (uint64_t)r->options->dp * r->options->cp;
    if (is_expert)
        ranks = ranks * r->options->tp / r->options->ep;
    uint64_t elements = rvli_round_up(lay(r, part, is_expert, 0), END_ELEMENTS);
    elements = rvli_round_up(elements, ranks);
    lay(r, part, is_expert, elements / ranks);
}

void rvli_rank_make_parameters(rvli_rank *r)
{
    uint64_t hidden = r->model->dim[RVLI_DIM_HIDDEN];
    for (uint32_t part = 0; part < r->parts; part++) {
        rvli_rank_set_part(r, part);
        add(r, r->has_embedding ? r->vocabulary * hidden : 0, false);
        for (uint32_t layer = 0; layer < r->layer_count; layer++)
            add_layer(r, layer);
        add_vector(r, r->has_head ? hidden : 0);
        add(r, r->has_head && !(r->is_tied && r->has_embedding) ? r->vocabulary * hidden : 0,
            false);
    }
    rvli_rank_set_part(r, 0);
    for (uint32_t part = 0; part < r->parts; part++) {
        divide(r, part, false);
        divide(r, part, true);
    }
    rvli_rank_choose_hosted(r);
}
