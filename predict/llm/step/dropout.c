/* SPDX-License-Identifier: MIT */
/*
 * Dropout of what a block gave, and of embeddings (aten/src/ATen/native/cuda/Dropout.cu): it keeps
 * a byte for each element.
 */
#include "predict/llm/step/training.h"

static uint64_t elements(const rvli_training *t)
{
    return t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

rvli_block rvli_dropout_forward(rvli_training *t, bool kept, rvli_block *mask_out)
{
    *mask_out = rvli_activation(t, elements(t));
    rvli_block output = rvli_activation(t, RVLI_HALF * elements(t));
    rvli_leave(t, mask_out, kept);
    return output;
}

rvli_block rvli_dropout_backward(rvli_training *t, rvli_block *mask)
{
    rvli_block of_input = rvli_activation(t, RVLI_HALF * elements(t));
    rvli_release(t, mask);
    return of_input;
}
