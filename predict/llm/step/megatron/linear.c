/* SPDX-License-Identifier: MIT */
/*
 * Matrices that tensor parallelism splits by columns or rows, and the operations between them
 * (megatron/core/tensor_parallel/layers.py and mappings.py).
 *
 * With sequence parallelism each rank keeps a part of the sequence between matrices. The whole
 * sequence is gathered into one buffer for all layers before a matrix by columns. After a matrix by
 * rows the output is summed and split again.
 */
#include "predict/llm/step/megatron/rank.h"

#define MULTIPROCESSORS 132 /* of an H100 or H200 */
#define OTHER_BLOCKS 3

void rvli_rank_workspace(rvli_rank *r, bool backward)
{
    if (r->workspaces[backward] == NULL)
        r->workspaces[backward] = rvli_take(&r->tape, RVL_MODEL_BLAS_WORKSPACES, 32 * RVLI_MIB);
}

void rvli_rank_gather(rvli_rank *r)
{
    if (r->splits_sequence && r->gathered == NULL)
        r->gathered = rvli_rank_take(r, r->hidden_bytes);
}

rvli_block rvli_rank_rows(rvli_rank *r)
{
    rvli_block whole = rvli_rank_take(r, r->hidden_bytes);
    if (!r->splits_sequence)
        return whole;
    rvli_block part = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &whole);
    return part;
}

rvli_block rvli_rank_weight_gradient(rvli_rank *r, uint64_t elements)
{
    return rvli_take(&r->tape, RVL_MODEL_GRADIENTS, RVLI_HALF * elements);
}

rvli_block rvli_rank_rows_backward(rvli_rank *r, uint64_t input_bytes, uint64_t weight_elements,
                                   rvli_block *kept)
{
    rvli_block whole = rvli_rank_take(r, r->splits_sequence ? r->hidden_bytes : 0);
    rvli_block of_input = rvli_rank_take(r, input_bytes);
    rvli_block of_weight = rvli_rank_weight_gradient(r, weight_elements);
    rvli_rank_drop(r, &whole);
    if (kept != NULL)
        rvli_rank_drop(r, kept);
    rvli_rank_drop(r, &of_weight);
    return of_input;
}

/*
 * Blocks of threads for each multiprocessor in TransformerEngine's kernel, by the width of the
 * norm. Read from memory histories. Other widths: the most frequent number.
 */
static uint64_t norm_blocks(uint64_t width)
{
    static const struct {
        uint32_t width;
        uint32_t blocks;
    } known[] = {{128, 12}, {1024, 3}, {2048, 5}, {3584, 3}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].width == width)
            return known[i].blocks;
    }
    return OTHER_BLOCKS;
}

void rvli_rank_norm_parts(rvli_rank *r, uint64_t width)
{
    if (rvli_rank_is_local(r))
        return;
    rvli_block parts = rvli_rank_take(r, RVLI_FULL * width * norm_blocks(width) * MULTIPROCESSORS);
    rvli_rank_drop(r, &parts);
}

rvli_block rvli_rank_norm(rvli_rank *r, rvli_block *scale, bool kept)
{
    uint64_t rows = r->part_bytes / RVLI_HALF / r->model->dim[RVLI_DIM_HIDDEN];
    rvli_block output = rvli_rank_take(r, r->part_bytes);
    *scale = rvli_rank_take(r, RVLI_FULL * rows);
    if (!kept)
        rvli_rank_drop(r, scale);
    return output;
}

rvli_block rvli_rank_norm_backward(rvli_rank *r, rvli_block *gradient_, rvli_block *input,
                                   rvli_block *scale)
{
    rvli_block of_input = rvli_rank_take(r, r->part_bytes);
    rvli_rank_norm_parts(r, r->model->dim[RVLI_DIM_HIDDEN]);
    rvli_rank_drop(r, gradient_);
    if (input != NULL)
        rvli_rank_drop(r, input);
    rvli_rank_drop(r, scale);
    return of_input;
}

void rvli_rank_join(rvli_rank *r, rvli_block *gradient_)
{
    rvli_block sum = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop_flow(r);
    rvli_rank_drop(r, gradient_);
    r->flow = sum;
}
