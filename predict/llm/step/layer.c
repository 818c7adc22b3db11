/* SPDX-License-Identifier: MIT */
/*
 * A decoder layer of Gemma 4: norm, attention, norm, residual; norm, MLP, norm, residual; then what
 * stands behind them, times a number.
 *
 * That number is kept, and autograd asks for it first. So, recomputing, the whole layer runs again
 * before its backward pass begins.
 */
#include "predict/llm/step/training.h"

static uint64_t width(const rvli_training *t)
{
    return t->model->dim[RVLI_DIM_HIDDEN];
}

/* What a block gave, through the norm behind it. */
static rvli_block behind(rvli_training *t, rvli_block given, rvli_norm *norm, bool kept)
{
    rvli_block output = rvli_norm_forward(t, t->tokens, width(t), kept ? norm : NULL);
    rvli_release(t, &given);
    return output;
}

/* The gradient of what a block gave; that of the layer's output stays. */
static rvli_block behind_backward(rvli_training *t, rvli_unit *unit, rvli_norm *norm,
                                  rvli_role role)
{
    return rvli_norm_backward(t, t->tokens, width(t), norm, unit, role, NULL);
}

/* Attention and the residual: makes layer->middle. */
static void attend(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block attended = rvli_attention_forward(t, number, kept);
    attended = behind(t, attended, &layer->behind_attention, kept);
    layer->middle = rvli_activation(t, RVLI_HALF * t->tokens * width(t));
    rvli_release(t, &attended);
}

/* Answers what the layer gives. */
static rvli_block run(rvli_training *t, uint32_t number, bool kept)
{
    rvli_layer *layer = &t->layers[number];
    layer->attention_input =
        rvli_norm_forward(t, t->tokens, width(t), kept ? &layer->before_attention : NULL);
    attend(t, number, kept);
    layer->mlp_input = rvli_norm_forward(t, t->tokens, width(t), kept ? &layer->before_mlp : NULL);
    rvli_block given = rvli_mlp_forward(t, number, kept);
    given = rvli_beside_forward(t, number, given, kept);
    given = behind(t, given, &layer->behind_mlp, kept);
    rvli_block output = rvli_activation(t, RVLI_HALF * t->tokens * width(t));
    rvli_release(t, &given);
    rvli_release(t, &layer->middle);
    rvli_beside_done(t, number, kept);
    return rvli_per_layer_forward(t, number, output, kept);
}

void rvli_layer_forward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    t->at = number;
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    rvli_block output = run(t, number, !recompute);
    rvli_reshard_forward(t, &t->units[number]);
    if (recompute && t->hidden != t->streams.embedded)
        layer->input = t->hidden;
    else if (t->hidden != t->embedded)
        rvli_release(t, &t->hidden);
    t->hidden = output;
}

/* Attention and its norms, behind the MLP. Answers the gradient of the layer's input. */
static rvli_block attention_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_block gradient =
        behind_backward(t, unit, &layer->behind_attention, RVLI_ROLE_NORM_BEHIND_ATTENTION);
    gradient = rvli_attention_backward(t, number, gradient);
    if (gradient == NULL)
        return NULL;
    return rvli_norm_backward(t, t->tokens, width(t), &layer->before_attention, unit,
                              RVLI_ROLE_NORM_BEFORE_ATTENTION, gradient);
}

void rvli_layer_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    uint64_t hidden = RVLI_HALF * t->tokens * width(t);
    t->at = number;
    if (t->options->flags & RVL_MODEL_RECOMPUTE) {
        rvli_fetch(t, RVL_MODEL_ACTIVATIONS, hidden);
        rvli_block again = run(t, number, true);
        rvli_release(t, &again);
    }
    t->flow = rvli_next(t, hidden, &t->flow);
    rvli_per_layer_layer_backward(t, number);
    rvli_block gradient = behind_backward(t, unit, &layer->behind_mlp, RVLI_ROLE_NORM_BEHIND_MLP);
    gradient = rvli_beside_backward(t, number, gradient);
    gradient = rvli_mlp_backward(t, number, gradient);
    rvli_gradient_others(t, unit);
    gradient = rvli_norm_backward(t, t->tokens, width(t), &layer->before_mlp, unit,
                                  RVLI_ROLE_NORM_BEFORE_MLP, gradient);
    rvli_release(t, &gradient); /* added to that of the residual, in place */
    gradient = attention_backward(t, number);
    rvli_release(t, &layer->input);
    rvli_release(t, &gradient);
}
