/* SPDX-License-Identifier: MIT */
/*
 * RMSNorm where the weight multiplies in fp32, before it goes back to bf16: what it multiplies is
 * kept in fp32.
 */
#include "predict/llm/step/training.h"

rvli_block rvli_norm_forward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept)
{
    uint64_t elements = rows * width;
    rvli_block input = rvli_activation(t, RVLI_FULL * elements);
    rvli_block squares = rvli_activation(t, RVLI_FULL * elements);
    rvli_block variance = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &squares);
    rvli_block above_zero = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &variance);
    rvli_block scale = rvli_activation(t, RVLI_FULL * rows);
    rvli_block scaled = rvli_activation(t, RVLI_FULL * elements);
    if (kept == NULL) {
        rvli_release(t, &scale);
        rvli_release(t, &above_zero);
        rvli_release(t, &input);
    }
    rvli_block weighed = rvli_activation(t, RVLI_FULL * elements);
    if (kept == NULL)
        rvli_release(t, &scaled); /* its name is given to the product */
    rvli_block output = rvli_next(t, RVLI_HALF * elements, &weighed);
    if (kept != NULL)
        *kept = (rvli_norm){.input = input, .mean = above_zero, .scale = scale, .normed = scaled};
    return output;
}

/* What it gives, before its weight. */
static rvli_block scale_forward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept)
{
    rvli_block input = rvli_activation(t, RVLI_FULL * rows * width);
    rvli_block squares = rvli_activation(t, RVLI_FULL * rows * width);
    rvli_block variance = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &squares);
    rvli_block mean = rvli_next(t, RVLI_FULL * rows, &variance);
    rvli_block scale = rvli_activation(t, RVLI_FULL * rows);
    rvli_block scaled = rvli_activation(t, RVLI_FULL * rows * width);
    if (kept != NULL) {
        *kept = (rvli_norm){.input = input, .mean = mean, .scale = scale};
        return scaled;
    }
    rvli_release(t, &mean);
    rvli_release(t, &scale);
    rvli_release(t, &input);
    return scaled;
}

void rvli_norm_partial_forward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept)
{
    rvli_block scaled = scale_forward(t, rows, width, kept);
    kept->normed = scaled;
}

rvli_block rvli_norm_plain_forward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept)
{
    rvli_block scaled = scale_forward(t, rows, width, kept);
    rvli_block output = rvli_activation(t, RVLI_HALF * rows * width);
    rvli_release(t, &scaled);
    return output;
}

/* The last norm's are on the host, those of a layer that is computed again are not. */
static bool is_fetched(const rvli_training *t, const rvli_norm *kept)
{
    return rvli_is_offloaded(t) && kept == &t->last_norm;
}

static void fetch(rvli_training *t, const rvli_norm *kept, uint64_t bytes)
{
    if (is_fetched(t, kept))
        rvli_fetch(t, RVL_MODEL_ACTIVATIONS, bytes);
}

static void release_begin(rvli_training *t, uint32_t number)
{
    rvli_release(t, &t->layers[number].input);
    rvli_masks_layer_done(t, number);
}

/* With the last tensor of a layer that was computed again, what it began with goes. */
static void recomputed(rvli_training *t, const rvli_norm *kept)
{
    for (uint32_t i = 0; (t->options->flags & RVL_MODEL_RECOMPUTE) && i < t->model->layers; i++) {
        if (kept == &t->layers[i].before_attention)
            release_begin(t, i);
    }
}

/* Through the scale back to what it was worked out from. */
static void scale_backward(rvli_training *t, uint64_t rows, uint64_t elements, rvli_norm *kept,
                           rvli_block of_scale)
{
    fetch(t, kept, RVLI_FULL * rows);
    rvli_block cube = rvli_activation(t, RVLI_FULL * rows);
    rvli_block halved = rvli_activation(t, RVLI_FULL * rows);
    rvli_block of_variance = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &halved);
    rvli_release(t, &cube);
    rvli_fetched(t);
    rvli_release(t, &of_scale);
    rvli_release(t, &kept->mean);
    rvli_release(t, &kept->scale);
    rvli_block of_squares = rvli_activation(t, RVLI_FULL * elements);
    rvli_release(t, &of_variance);
    fetch(t, kept, RVLI_FULL * elements);
    rvli_block power = rvli_activation(t, RVLI_FULL * elements);
    rvli_block doubled = rvli_activation(t, RVLI_FULL * elements);
    rvli_block added = rvli_activation(t, RVLI_FULL * elements);
    rvli_release(t, &doubled);
    rvli_release(t, &power);
    rvli_fetched(t);
    rvli_release(t, &of_squares);
    rvli_release(t, &kept->input);
    recomputed(t, kept);
    rvli_release(t, &added);
}

static rvli_block scaled_backward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept,
                                  rvli_block of_scaled)
{
    uint64_t elements = rows * width;
    rvli_block by_scale = rvli_activation(t, RVLI_FULL * elements);
    rvli_block of_input = rvli_activation(t, RVLI_FULL * elements);
    if (is_fetched(t, kept)) {
        rvli_release(t, &kept->input);
        rvli_release(t, &kept->scale);
    }
    rvli_block of_scale = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &by_scale);
    rvli_release(t, &of_scaled);
    if (kept->mean != NULL) /* of which the scale was a power */
        rvli_release(t, &kept->scale);
    scale_backward(t, rows, elements, kept, of_scale);
    return of_input;
}

/* Takes the gradient of the output, and answers that of what was scaled. */
static rvli_block weigh_backward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept,
                                 rvli_unit *unit, rvli_role role, rvli_block gradient)
{
    uint64_t full = RVLI_FULL * rows * width;
    rvli_block of_output = rvli_activation(t, full);
    rvli_release(t, &gradient);
    if (kept->input == NULL)
        rvli_streams_again(t, unit);
    fetch(t, kept, full);
    rvli_block of_weight = rvli_activation(t, full);
    rvli_block of_scaled = rvli_activation(t, full);
    rvli_gradient_summed(t, unit, role, rows, width);
    rvli_release(t, &of_weight);
    rvli_fetched(t);
    rvli_release(t, &of_output);
    rvli_release(t, &kept->normed);
    return of_scaled;
}

rvli_block rvli_norm_backward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept,
                              rvli_unit *unit, rvli_role role, rvli_block gradient)
{
    rvli_block of_scaled = weigh_backward(t, rows, width, kept, unit, role, gradient);
    rvli_block of_input = scaled_backward(t, rows, width, kept, of_scaled);
    rvli_block answer = rvli_activation(t, RVLI_HALF * rows * width);
    rvli_release(t, &of_input);
    return answer;
}

rvli_block rvli_norm_plain_backward(rvli_training *t, uint64_t rows, uint64_t width,
                                    rvli_norm *kept, rvli_block gradient)
{
    rvli_block of_scaled = rvli_activation(t, RVLI_FULL * rows * width);
    rvli_release(t, &gradient);
    rvli_block of_input = scaled_backward(t, rows, width, kept, of_scaled);
    rvli_block answer = rvli_activation(t, RVLI_HALF * rows * width);
    rvli_release(t, &of_input);
    return answer;
}
