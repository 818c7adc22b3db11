/* SPDX-License-Identifier: MIT */
/* Rotary positions of q or k: x * cos + rotated(x) * sin, as PyTorch's programs work it out. */
#include "predict/llm/step/training.h"

rvli_block rvli_rotate_pairs(rvli_training *t, uint64_t bytes)
{
    rvli_block halves[2];
    for (int i = 0; i < 2; i++) {
        rvli_block by_cosine = rvli_activation(t, bytes / 2);
        rvli_block by_sine = rvli_activation(t, bytes / 2);
        halves[i] = rvli_activation(t, bytes / 2);
        rvli_release(t, &by_cosine);
        rvli_release(t, &by_sine);
    }
    rvli_block whole = rvli_activation(t, bytes);
    rvli_release(t, &halves[1]);
    rvli_release(t, &halves[0]);
    return whole;
}

rvli_block rvli_rotate_halves(rvli_training *t, uint64_t bytes)
{
    rvli_block by_cosine = rvli_activation(t, bytes);
    rvli_block negated = rvli_activation(t, bytes / 2);
    rvli_block rotated = rvli_next(t, bytes, &negated);
    rvli_block by_sine = rvli_next(t, bytes, &rotated);
    rvli_block sum = rvli_activation(t, bytes);
    rvli_release(t, &by_cosine);
    rvli_release(t, &by_sine);
    return sum;
}
