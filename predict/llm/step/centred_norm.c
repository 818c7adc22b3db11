/* SPDX-License-Identifier: MIT */
/*
 * Cohere's norm, as transformers writes it (modeling_cohere2.py, Cohere2LayerNorm): all in fp32,
 * without a bias. The mean is taken away twice, once for the variance and once for what is scaled,
 * and both differences are kept.
 */
#include "predict/llm/step/training.h"

/* Of the weight, which q and k have for all their heads. */
static uint64_t weight_bytes(const rvli_training *t, uint64_t rows, uint64_t width)
{
    return RVLI_FULL * rows * width / t->tokens;
}

/* ---- Forward ---- */

/* Answers the variance, which has a name. *kept_out gets both differences and the scale. */
static rvli_block scale(rvli_training *t, uint64_t rows, uint64_t width, bool kept,
                        rvli_norm *kept_out)
{
    uint64_t full = RVLI_FULL * rows * width;
    kept_out->centred[0] = rvli_activation(t, full);
    rvli_block squares = rvli_activation(t, full);
    rvli_leave(t, &kept_out->centred[0], kept);
    rvli_block variance = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &squares);
    kept_out->centred[1] = rvli_activation(t, full);
    rvli_block above_zero = rvli_activation(t, RVLI_FULL * rows);
    kept_out->scale = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &above_zero);
    return variance;
}

rvli_block rvli_centred_norm_forward(rvli_training *t, uint64_t rows, uint64_t width,
                                     rvli_norm *kept)
{
    rvli_norm made = {0};
    uint64_t full = RVLI_FULL * rows * width;
    rvli_block input = rvli_activation(t, full);
    rvli_block mean = rvli_activation(t, RVLI_FULL * rows);
    rvli_block variance = scale(t, rows, width, kept != NULL, &made);
    made.normed = rvli_activation(t, full);
    rvli_leave(t, &made.scale, kept != NULL);
    rvli_leave(t, &made.centred[1], kept != NULL);
    rvli_release(t, &input);
    made.weight = rvli_activation(t, weight_bytes(t, rows, width));
    rvli_block weighed = rvli_activation(t, full);
    rvli_leave(t, &made.weight, kept != NULL);
    rvli_leave(t, &made.normed, kept != NULL);
    rvli_block output = rvli_activation(t, full / 2);
    rvli_release(t, &weighed);
    rvli_release(t, &variance);
    rvli_release(t, &mean);
    if (kept != NULL)
        *kept = made;
    return output;
}

/* ---- Backward ---- */

static void drop_weighed(rvli_training *t, rvli_norm *kept)
{
    rvli_release(t, &kept->normed);
    rvli_release(t, &kept->weight);
}

/* Takes the gradient of what was given, and answers that of what was scaled. */
static rvli_block weigh_backward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept,
                                 rvli_unit *unit, rvli_role role, rvli_block gradient)
{
    uint64_t full = RVLI_FULL * rows * width;
    uint64_t weight = weight_bytes(t, rows, width);
    rvli_block of_output = rvli_next(t, full, &gradient);
    rvli_block of_scaled = rvli_activation(t, full);
    rvli_block products = rvli_activation(t, full);
    bool again = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0 && kept != &t->last_norm;
    if (again) /* nodes of a layer that was computed again hold nothing themselves */
        drop_weighed(t, kept);
    rvli_block of_weight = rvli_activation(t, weight);
    rvli_rows_summed(t, t->tokens, weight / RVLI_FULL);
    rvli_release(t, &products);
    rvli_release(t, &of_output);
    drop_weighed(t, kept);
    rvli_gradient(t, unit, role);
    rvli_release(t, &of_weight);
    return of_scaled;
}

/* Of each row's variance, from that of its scale. */
static rvli_block scale_backward(rvli_training *t, uint64_t rows, rvli_norm *kept,
                                 rvli_block of_scale)
{
    rvli_block cube = rvli_activation(t, RVLI_FULL * rows);
    rvli_block halved = rvli_activation(t, RVLI_FULL * rows);
    rvli_block of_variance = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &halved);
    rvli_release(t, &cube);
    rvli_release(t, &of_scale);
    rvli_release(t, &kept->scale);
    return of_variance;
}

/* Of the mean, as the negative of what it was taken from. */
static rvli_block mean_backward(rvli_training *t, uint64_t rows, uint64_t width)
{
    rvli_block negative = rvli_activation(t, RVLI_FULL * rows * width);
    return rvli_next(t, RVLI_FULL * rows, &negative);
}

/* Through the square of the first difference. The parts are added to the gradient that is there. */
static void variance_backward(rvli_training *t, uint64_t rows, uint64_t width, rvli_norm *kept,
                              rvli_block of_variance)
{
    uint64_t full = RVLI_FULL * rows * width;
    rvli_block of_mean = mean_backward(t, rows, width);
    rvli_block of_squares = rvli_next(t, full, &of_variance);
    rvli_block power = rvli_activation(t, full);
    rvli_block doubled = rvli_activation(t, full);
    rvli_block of_centred = rvli_activation(t, full);
    rvli_release(t, &doubled);
    rvli_release(t, &power);
    rvli_release(t, &of_squares);
    rvli_release(t, &kept->centred[0]);
    rvli_norm_recomputed(t, kept);
    rvli_block part = mean_backward(t, rows, width);
    rvli_release(t, &part);
    rvli_release(t, &of_centred);
    rvli_block by_mean = rvli_next(t, full, &of_mean);
    rvli_release(t, &by_mean);
}

rvli_block rvli_centred_norm_backward(rvli_training *t, uint64_t rows, uint64_t width,
                                      rvli_norm *kept, rvli_unit *unit, rvli_role role,
                                      rvli_block gradient)
{
    uint64_t full = RVLI_FULL * rows * width;
    rvli_block of_scaled = weigh_backward(t, rows, width, kept, unit, role, gradient);
    rvli_block by_scale = rvli_activation(t, full);
    rvli_block of_input = rvli_activation(t, full);
    rvli_block of_scale = rvli_activation(t, RVLI_FULL * rows);
    rvli_release(t, &by_scale);
    rvli_release(t, &of_scaled);
    rvli_release(t, &kept->centred[1]);
    rvli_block of_variance = scale_backward(t, rows, kept, of_scale);
    variance_backward(t, rows, width, kept, of_variance);
    return rvli_next(t, full / 2, &of_input);
}
