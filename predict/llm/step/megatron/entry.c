/* SPDX-License-Identifier: MIT */
/*
 * A norm and the matrix after it, which tensor parallelism splits by columns.
 *
 * Megatron's own layers have two modules. With sequence parallelism they gather into one buffer for
 * all layers. TransformerEngine has one module (pytorch/module/layernorm_linear.py). It gathers
 * into a separate tensor, and again in the backward pass. Its weight's gradient is freed after the
 * input's gradient has been added to the one between layers.
 */
#include "predict/llm/step/megatron/rank.h"

rvli_block rvli_rank_enter(rvli_rank *r, const rvli_entry *entry, bool kept)
{
    rvli_block whole = NULL;
    *entry->normed = rvli_rank_norm(r, entry->scale, kept);
    if (rvli_rank_is_local(r))
        rvli_rank_gather(r);
    else
        whole = rvli_rank_take(r, r->splits_sequence ? r->hidden_bytes : 0);
    rvli_block output = rvli_rank_take(r, entry->output_bytes);
    rvli_rank_drop(r, &whole);
    if (!kept && !rvli_rank_is_local(r))
        rvli_rank_drop(r, entry->normed);
    return output;
}

/* Returns the gradient of the norm's output. */
static rvli_block columns_backward(rvli_rank *r, const rvli_entry *entry, rvli_block *gradient)
{
    rvli_block whole = rvli_rank_take(r, r->hidden_bytes);
    rvli_block part = rvli_rank_take(r, r->splits_sequence ? r->part_bytes : 0);
    rvli_block of_weight = rvli_rank_weight_gradient(r, entry->weight_elements);
    if (r->splits_sequence)
        rvli_rank_drop(r, &whole);
    rvli_rank_drop(r, gradient);
    rvli_rank_drop(r, entry->normed);
    rvli_rank_drop(r, &of_weight);
    return r->splits_sequence ? part : whole;
}

static void add(rvli_rank *r, rvli_block *of_input, bool in_place)
{
    if (in_place)
        rvli_rank_drop(r, of_input);
    else
        rvli_rank_join(r, of_input);
}

static void local_backward(rvli_rank *r, const rvli_entry *entry, rvli_block *gradient,
                           rvli_block *input, bool in_place)
{
    rvli_block of_normed = columns_backward(r, entry, gradient);
    rvli_block of_input = rvli_rank_norm_backward(r, &of_normed, input, entry->scale);
    add(r, &of_input, in_place);
}

void rvli_rank_enter_backward(rvli_rank *r, const rvli_entry *entry, rvli_block *gradient,
                              rvli_block *input, bool in_place)
{
    if (rvli_rank_is_local(r)) {
        local_backward(r, entry, gradient, input, in_place);
        return;
    }
    rvli_block gathered = rvli_rank_take(r, r->splits_sequence ? r->hidden_bytes : 0);
    rvli_block whole = rvli_rank_take(r, r->hidden_bytes);
    rvli_block part = rvli_rank_take(r, r->splits_sequence ? r->part_bytes : 0);
    rvli_block of_weight = rvli_rank_weight_gradient(r, entry->weight_elements);
    rvli_rank_drop(r, entry->normed);
    rvli_rank_drop(r, &gathered);
    rvli_block of_input = rvli_rank_take(r, r->part_bytes);
    rvli_rank_norm_parts(r, r->model->dim[RVLI_DIM_HIDDEN]);
    rvli_rank_drop(r, &part);
    rvli_rank_drop(r, &whole);
    rvli_rank_drop(r, gradient);
    if (input != NULL)
        rvli_rank_drop(r, input);
    rvli_rank_drop(r, entry->scale);
    add(r, &of_input, in_place);
    rvli_rank_drop(r, &of_weight);
}
