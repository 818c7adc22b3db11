/* SPDX-License-Identifier: MIT */
/*
 * ERNIE's positions: heads are rotated in fp32, neighbours as pairs, and each layer repeats the
 * angles for both (modeling_ernie4_5.py, apply_rotary_pos_emb).
 */
#include <string.h>

#include "predict/llm/step/training.h"

bool rvli_rotates_in_full(const rvli_training *t)
{
    static const char family[] = "ernie4_5";
    return strncmp(t->model->type, family, sizeof family - 1) == 0;
}

static uint64_t angles_bytes(const rvli_training *t)
{
    return RVLI_FULL * t->options->seq_len * t->model->dim[RVLI_DIM_HEAD];
}

/* ---- Forward ---- */

/* In fp32. */
static rvli_block rotate(rvli_training *t, uint64_t bytes)
{
    rvli_block full = rvli_activation(t, 2 * bytes);
    rvli_block by_cosine = rvli_next(t, 2 * bytes, &full);
    rvli_block negated = rvli_activation(t, bytes / 2);
    rvli_block rotated = rvli_next(t, bytes, &negated);
    full = rvli_next(t, 2 * bytes, &rotated);
    rvli_block by_sine = rvli_next(t, 2 * bytes, &full);
    rvli_block sum = rvli_activation(t, 2 * bytes);
    rvli_release(t, &by_cosine);
    rvli_release(t, &by_sine);
    return sum;
}

void rvli_full_rotary_forward(rvli_training *t, rvli_layer *layer, rvli_block *q, rvli_block *k,
                              bool kept)
{
    for (int i = 0; i < 2; i++)
        layer->angles[i] = rvli_activation(t, angles_bytes(t));
    rvli_block *each[] = {q, k};
    rvli_block sums[2], outputs[2];
    for (int i = 0; i < 2; i++)
        sums[i] = rotate(t, rvli_bytes_of(*each[i]));
    for (int i = 0; i < 2; i++)
        outputs[i] = rvli_activation(t, rvli_bytes_of(*each[i]));
    for (int i = 0; i < 2; i++) {
        rvli_leave(t, &layer->angles[i], kept);
        rvli_release(t, &sums[i]);
        rvli_release(t, each[i]);
        *each[i] = outputs[i];
    }
}

/* ---- Backward ---- */

/* Takes the gradient in fp32, and answers that of what was rotated. */
static rvli_block rotate_backward(rvli_training *t, rvli_block of_sum, rvli_block *sine,
                                  rvli_block *cosine)
{
    uint64_t full = rvli_bytes_of(of_sum), bytes = full / 2;
    rvli_block by_sine = rvli_activation(t, full);
    rvli_release(t, sine);
    rvli_block of_rotated = rvli_next(t, bytes, &by_sine);
    rvli_block negated = rvli_activation(t, bytes / 2);
    rvli_block gradient = rvli_next(t, bytes, &negated);
    rvli_block second = rvli_next(t, bytes, &of_rotated);
    rvli_release(t, &second); /* added in place */
    rvli_block by_cosine = rvli_activation(t, full);
    rvli_release(t, cosine);
    rvli_release(t, &of_sum);
    rvli_block part = rvli_next(t, bytes, &by_cosine);
    rvli_release(t, &part); /* added in place */
    return gradient;
}

void rvli_full_rotary_backward(rvli_training *t, rvli_layer *layer, rvli_attention_gradients *of)
{
    rvli_block none[2] = {NULL, NULL};
    rvli_block of_k = rvli_next(t, 2 * rvli_bytes_of(of->k), &of->k);
    rvli_block of_q = rvli_next(t, 2 * rvli_bytes_of(of->q), &of->q);
    of->k = rotate_backward(t, of_k, &none[0], &none[1]);
    of->q = rotate_backward(t, of_q, &layer->angles[RVLI_ROTARY_SINE],
                            &layer->angles[RVLI_ROTARY_COSINE]);
}
