/* SPDX-License-Identifier: MIT */
/*
 * Llama 4's positions: pairs of a head are complex numbers in fp32, which angles turn
 * (modeling_llama4.py, apply_rotary_emb). Layers without positions scale q by that of its token
 * instead.
 */
#include "predict/llm/step/training.h"

#define COMPLEX_BYTES UINT64_C(8)

bool rvli_has_complex_positions(const rvli_training *t)
{
    return (t->model->features & RVLI_QK_L2_NORM) != 0;
}

static bool is_turned(const rvli_training *t, uint32_t number)
{
    return rvli_layer_is(t->model, number, RVLI_LAYER_WINDOW);
}

static uint64_t angles_bytes(const rvli_training *t)
{
    return COMPLEX_BYTES * t->options->seq_len * t->model->dim[RVLI_DIM_HEAD] / 2;
}

void rvli_complex_make(rvli_training *t)
{
    rvli_block angles = rvli_activation(t, angles_bytes(t) / 2);
    rvli_workspace(t, RVLI_WORKSPACE_FORWARD);
    rvli_block ones = rvli_activation(t, angles_bytes(t) / 2);
    rvli_block turns = rvli_next(t, angles_bytes(t), &ones);
    t->rotary[RVLI_ROTARY_COSINE] = rvli_next(t, angles_bytes(t), &turns);
    rvli_release(t, &angles);
}

/* ---- Forward ---- */

/* The product in fp32, and what is left of it in bf16. */
static void scale(rvli_training *t, rvli_block *q)
{
    rvli_block scaled = rvli_activation(t, 2 * rvli_bytes_of(*q));
    rvli_block output = rvli_activation(t, rvli_bytes_of(*q));
    rvli_release(t, &scaled);
    rvli_release(t, q);
    *q = output;
}

void rvli_complex_forward(rvli_training *t, uint32_t number, rvli_block *q, rvli_block *k)
{
    if (!is_turned(t, number)) {
        scale(t, q);
        return;
    }
    rvli_block *each[] = {q, k};
    rvli_block full[2], turned[2], output[2];
    for (int i = 0; i < 2; i++)
        full[i] = rvli_activation(t, 2 * rvli_bytes_of(*each[i]));
    for (int i = 0; i < 2; i++)
        turned[i] = rvli_activation(t, 2 * rvli_bytes_of(*each[i]));
    for (int i = 0; i < 2; i++)
        output[i] = rvli_activation(t, rvli_bytes_of(*each[i]));
    for (int i = 0; i < 2; i++) {
        rvli_release(t, &full[i]);
        rvli_release(t, &turned[i]);
        rvli_release(t, each[i]);
        *each[i] = output[i];
    }
}

/* ---- Backward ---- */

static void scale_backward(rvli_training *t, rvli_block *of_q)
{
    uint64_t bytes = rvli_bytes_of(*of_q);
    rvli_block full = rvli_next(t, 2 * bytes, of_q);
    rvli_block of_scaled = rvli_activation(t, 2 * bytes);
    *of_q = rvli_activation(t, bytes);
    rvli_release(t, &of_scaled);
    rvli_release(t, &full);
}

void rvli_complex_backward(rvli_training *t, uint32_t number, rvli_attention_gradients *of)
{
    if (!is_turned(t, number)) {
        scale_backward(t, &of->q);
        return;
    }
    rvli_block *each[] = {&of->k, &of->q};
    for (int i = 0; i < 2; i++)
        *each[i] = rvli_next(t, 2 * rvli_bytes_of(*each[i]), each[i]);
    for (int i = 0; i < 2; i++) {
        rvli_block back = rvli_activation(t, angles_bytes(t)); /* the other way */
        *each[i] = rvli_next(t, rvli_bytes_of(*each[i]), each[i]);
        rvli_release(t, &back);
    }
    for (int i = 0; i < 2; i++)
        *each[i] = rvli_next(t, rvli_bytes_of(*each[i]) / 2, each[i]);
}
