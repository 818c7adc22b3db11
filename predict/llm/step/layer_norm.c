/* SPDX-License-Identifier: MIT */
/*
 * PyTorch's LayerNorm, one kernel each way (aten/src/ATen/native/cuda/layer_norm_kernel.cu): it
 * keeps its input as it was given, and mean and scale of each row.
 */
#include "predict/llm/step/training.h"

bool rvli_is_layer_norm(const rvli_training *t)
{
    return (t->model->features & RVLI_LAYER_NORM) != 0;
}

rvli_block rvli_layer_norm_forward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept)
{
    rvli_block output = rvli_activation(t, RVLI_HALF * rows * width);
    rvli_block mean = rvli_activation(t, RVLI_FULL * rows);
    rvli_block scale = rvli_activation(t, RVLI_FULL * rows);
    if (kept != NULL) {
        *kept = (rvli_norm){.mean = mean, .scale = scale};
        return output;
    }
    rvli_release(t, &mean);
    rvli_release(t, &scale);
    return output;
}

static rvli_role bias_of(rvli_role weight)
{
    if (weight == RVLI_ROLE_LAST_NORM)
        return RVLI_ROLE_LAST_NORM_BIAS;
    return weight == RVLI_ROLE_NORM_BEFORE_MLP ? RVLI_ROLE_NORM_BEFORE_MLP_BIAS
                                               : RVLI_ROLE_NORM_BEFORE_ATTENTION_BIAS;
}

rvli_block rvli_layer_norm_backward(rvli_training *t, uint64_t rows, uint64_t width,
                                    rvli_norm *kept, rvli_unit *unit, rvli_role role,
                                    rvli_block gradient)
{
    rvli_block of_input = rvli_activation(t, RVLI_HALF * rows * width);
    rvli_gradient(t, unit, role);
    rvli_gradient(t, unit, bias_of(role));
    rvli_release(t, &gradient);
    rvli_release(t, &kept->mean);
    rvli_release(t, &kept->scale);
    rvli_release(t, &kept->input);
    rvli_norm_recomputed(t, kept);
    return of_input;
}
