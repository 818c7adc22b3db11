/* SPDX-License-Identifier: MIT */
/*
 * A decoder layer: norm, attention, residual; norm, MLP, residual.
 *
 * Recomputing, the forward pass keeps its input alone, and the backward pass runs it again up to
 * the last tensor that is needed.
 */
#include "predict/llm/step/training.h"

static uint64_t width(const rvli_training *t)
{
    return t->model->dim[RVLI_DIM_HIDDEN];
}

/* Up to the end of the MLP, or of what the backward pass needs of it. Answers the MLP's output. */
static rvli_block run(rvli_training *t, uint32_t number, bool kept, bool partial)
{
    rvli_layer *layer = &t->layers[number];
    bool norm_kept = kept && rvli_wants_gradient(t, number, RVLI_ROLE_Q);
    layer->attention_input =
        rvli_norm_forward(t, t->tokens, width(t), norm_kept ? &layer->before_attention : NULL);
    rvli_block attended = rvli_attention_forward(t, number, kept);
    layer->middle = rvli_activation(t, RVLI_HALF * t->tokens * width(t));
    rvli_release(t, &attended);
    layer->mlp_input = rvli_norm_forward(t, t->tokens, width(t), kept ? &layer->before_mlp : NULL);
    return rvli_mlp_forward(t, number, kept, partial);
}

void rvli_layer_forward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    rvli_block mlp = run(t, number, !recompute, false);
    rvli_block output = rvli_activation(t, RVLI_HALF * t->tokens * width(t));
    rvli_release(t, &mlp);
    rvli_release(t, &layer->middle);
    rvli_reshard_forward(t, &t->units[number]);
    if (recompute)
        layer->input = t->hidden;
    else if (t->hidden != t->embedded)
        rvli_release(t, &t->hidden);
    t->hidden = output;
}

void rvli_layer_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    if (t->options->flags & RVL_MODEL_RECOMPUTE) {
        rvli_down_backward_early(t, number);
        rvli_block nothing = run(t, number, true, true);
        rvli_release(t, &nothing);
        rvli_release(t, &layer->middle);
    }
    rvli_block gradient = rvli_mlp_backward(t, number);
    rvli_gradient_others(t, unit);
    gradient = rvli_norm_backward(t, t->tokens, width(t), &layer->before_mlp, unit,
                                  RVLI_ROLE_NORM_BEFORE_MLP, gradient);
    rvli_release(t, &gradient); /* added to that of the residual, in place */
    gradient = rvli_attention_backward(t, number);
    if (gradient != NULL)
        gradient = rvli_norm_backward(t, t->tokens, width(t), &layer->before_attention, unit,
                                      RVLI_ROLE_NORM_BEFORE_ATTENTION, gradient);
    rvli_release(t, &layer->input);
    rvli_release(t, &gradient);
}
