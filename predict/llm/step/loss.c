/* SPDX-License-Identifier: MIT */
/*
 * Last norm, head and loss, as transformers' ForCausalLMLoss has them: logits in bf16, in fp32,
 * their logarithms of probabilities, and backward the gradients of each.
 */
#include "predict/llm/step/training.h"

static rvli_block logits(rvli_training *t, uint64_t element_bytes)
{
    return rvli_take(&t->tape, RVL_MODEL_LOGITS,
                     element_bytes * t->tokens * t->model->dim[RVLI_DIM_VOCABULARY]);
}

void rvli_loss_forward(rvli_training *t)
{
    t->last_hidden = rvli_norm_forward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN], &t->last_norm);
    rvli_release(t, &t->hidden);
    if (t->layers[0].input != t->embedded)
        rvli_release(t, &t->embedded);
    t->embedded = NULL;
    rvli_block half = logits(t, RVLI_HALF);
    rvli_block full = logits(t, RVLI_FULL);
    t->log_probabilities = logits(t, RVLI_FULL);
    rvli_release(t, &full);
    rvli_reshard_forward(t, rvli_root(t));
    rvli_release(t, &t->gather_buffer);
    rvli_release(t, &half);
}

void rvli_loss_backward(rvli_training *t)
{
    rvli_unit *root = rvli_root(t);
    rvli_block of_log = logits(t, RVLI_FULL);
    rvli_block of_full = logits(t, RVLI_FULL);
    rvli_release(t, &of_log);
    rvli_release(t, &t->log_probabilities);
    rvli_block of_half = logits(t, RVLI_HALF);
    rvli_release(t, &of_full);
    rvli_gradient(t, root,
                  root->by_role[RVLI_ROLE_HEAD] != 0 ? RVLI_ROLE_HEAD : RVLI_ROLE_EMBEDDING);
    rvli_workspace(t, RVLI_WORKSPACE_BACKWARD);
    rvli_block of_hidden =
        rvli_activation(t, RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN]);
    rvli_release(t, &of_half);
    rvli_release(t, &t->last_hidden);
    t->flow = rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN], &t->last_norm, root,
                                 RVLI_ROLE_LAST_NORM, of_hidden);
}
