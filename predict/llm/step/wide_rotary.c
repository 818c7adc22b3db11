/* SPDX-License-Identifier: MIT */
/*
 * Cohere's positions: q and k are converted to fp32, rotated with neighbours as pairs by angles in
 * bf16, and converted back (modeling_cohere2.py, apply_rotary_pos_emb).
 */
#include "predict/llm/step/training.h"

bool rvli_rotates_wide(const rvli_training *t)
{
    return (t->model->features & RVLI_WIDE_ROTARY) != 0;
}

/* ---- Forward ---- */

void rvli_wide_rotary_forward(rvli_training *t, rvli_block *q, rvli_block *k)
{
    rvli_block *each[] = {q, k};
    rvli_block wide[2], sums[2], outputs[2];
    for (int i = 0; i < 2; i++)
        wide[i] = rvli_activation(t, 2 * rvli_bytes_of(*each[i]));
    for (int i = 0; i < 2; i++)
        sums[i] = rvli_rotate_halves(t, rvli_bytes_of(wide[i]));
    for (int i = 0; i < 2; i++)
        outputs[i] = rvli_activation(t, rvli_bytes_of(*each[i]));
    for (int i = 0; i < 2; i++) {
        rvli_release(t, &wide[i]);
        rvli_release(t, &sums[i]);
        rvli_release(t, each[i]);
        *each[i] = outputs[i];
    }
}

/* ---- Backward ---- */

/* Takes the gradient of what was rotated, and answers that of what it was. The last frees the
 * angles. */
static rvli_block rotate_backward(rvli_training *t, rvli_block of_sum, bool last)
{
    uint64_t full = rvli_bytes_of(of_sum);
    rvli_block by_sine = rvli_activation(t, full);
    if (last)
        rvli_release(t, &t->rotary[RVLI_ROTARY_SINE]);
    rvli_block negated = rvli_activation(t, full / 2);
    rvli_block gradient = rvli_next(t, full, &negated);
    rvli_block second = rvli_next(t, full, &by_sine);
    rvli_release(t, &second); /* added in place */
    rvli_block by_cosine = rvli_activation(t, full);
    if (last)
        rvli_release(t, &t->rotary[RVLI_ROTARY_COSINE]);
    rvli_release(t, &of_sum);
    rvli_release(t, &by_cosine);
    return gradient;
}

void rvli_wide_rotary_backward(rvli_training *t, bool last, rvli_attention_gradients *of)
{
    uint64_t q_bytes = rvli_bytes_of(of->q), k_bytes = rvli_bytes_of(of->k);
    rvli_block of_k = rvli_next(t, 2 * k_bytes, &of->k);
    rvli_block of_q = rvli_next(t, 2 * q_bytes, &of->q);
    of_k = rotate_backward(t, of_k, false);
    of_q = rotate_backward(t, of_q, last);
    of->k = rvli_next(t, k_bytes, &of_k);
    of->q = rvli_next(t, q_bytes, &of_q);
}
