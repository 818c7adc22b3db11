/* SPDX-License-Identifier: MIT */
/* RMSNorm as transformers writes it: in fp32, then bf16, then times the weight. */
#include "predict/llm/step/training.h"

rvli_block rvli_norm_forward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept)
{
    uint64_t elements = rows * width;
    rvli_block input = rvli_activation(t, RVLI_FULL * elements);
    rvli_block squares = rvli_activation(t, RVLI_FULL * elements);
    rvli_block variance = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &squares);
    rvli_block above_zero = rvli_activation(t, RVLI_FULL * rows);
    rvli_block scale = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &above_zero);
    rvli_block scaled = rvli_activation(t, RVLI_FULL * elements);
    if (kept == NULL) {
        rvli_release(t, &scale);
        rvli_release(t, &input);
    }
    rvli_block normed = rvli_activation(t, RVLI_HALF * elements);
    rvli_block output = rvli_activation(t, RVLI_HALF * elements);
    if (kept == NULL || rvli_is_frozen(t))
        rvli_release(t, &normed);
    rvli_release(t, &scaled);
    rvli_release(t, &variance);
    if (kept != NULL)
        *kept = (rvli_norm){.input = input, .scale = scale, .normed = normed};
    return output;
}

/* Through the scale back to what it was worked out from. */
static void scale_backward(rvli_training *t, uint64_t rows, uint64_t elements, rvli_norm *kept,
                           rvli_block of_scale)
{
    rvli_block cube = rvli_activation(t, RVLI_FULL * rows);
    rvli_block halved = rvli_activation(t, RVLI_FULL * rows);
    rvli_block of_variance = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &halved);
    rvli_release(t, &cube);
    rvli_release(t, &of_scale);
    rvli_release(t, &kept->scale);
    rvli_block of_squares = rvli_activation(t, RVLI_FULL * elements);
    rvli_release(t, &of_variance);
    rvli_block power = rvli_activation(t, RVLI_FULL * elements);
    rvli_block doubled = rvli_activation(t, RVLI_FULL * elements);
    rvli_block added = rvli_activation(t, RVLI_FULL * elements);
    rvli_release(t, &doubled);
    rvli_release(t, &power);
    rvli_release(t, &of_squares);
    rvli_release(t, &kept->input);
    rvli_release(t, &added);
}

rvli_block rvli_norm_backward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept,
                              rvli_unit *unit, rvli_role role, rvli_block gradient)
{
    uint64_t elements = rows * width;
    rvli_block of_normed = rvli_activation(t, RVLI_HALF * elements);
    rvli_block of_weight = rvli_activation(t, rvli_is_frozen(t) ? 0 : RVLI_HALF * elements);
    rvli_gradient_summed(t, unit, role, rows, width);
    rvli_release(t, &of_weight);
    rvli_release(t, &gradient);
    rvli_release(t, &kept->normed);
    rvli_block of_scaled = rvli_activation(t, RVLI_FULL * elements);
    rvli_release(t, &of_normed);
    rvli_block by_scale = rvli_activation(t, RVLI_FULL * elements);
    rvli_block of_input = rvli_activation(t, RVLI_FULL * elements);
    rvli_block of_scale = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &by_scale);
    rvli_release(t, &of_scaled);
    scale_backward(t, rows, elements, kept, of_scale);
    rvli_block answer = rvli_activation(t, RVLI_HALF * elements);
    rvli_release(t, &of_input);
    return answer;
}
