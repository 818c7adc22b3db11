/* SPDX-License-Identifier: MIT */
/*
 * A decoder layer: norm, attention, residual; norm, MLP, residual. Families have the norms before
 * the blocks, or behind them, too.
 *
 * Recomputing, the forward pass keeps its input alone, and the backward pass runs it again up to
 * the last tensor that is needed.
 */
#include "predict/llm/step/training.h"

static uint64_t width(const rvli_training *t)
{
    return t->model->dim[RVLI_DIM_HIDDEN];
}

static bool has_norms_behind(const rvli_training *t)
{
    return (t->model->features & RVLI_FOUR_NORMS) != 0;
}

/* What a block gave, through the norm behind it if there is one. */
static rvli_block behind(rvli_training *t, rvli_block given, rvli_norm *norm, bool kept)
{
    if (!has_norms_behind(t) || given == NULL)
        return given;
    rvli_block output = rvli_norm_forward(t, t->tokens, width(t), kept ? norm : NULL);
    rvli_release(t, &given);
    return output;
}

/* The gradient of what a block gave. NULL: it is that of the layer's output, which stays. */
static rvli_block behind_backward(rvli_training *t, rvli_unit *unit, rvli_norm *norm,
                                  rvli_role role)
{
    if (!has_norms_behind(t))
        return NULL;
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

/* Up to the end of the MLP, or of what the backward pass needs of it. Answers the MLP's output. */
static rvli_block run(rvli_training *t, uint32_t number, bool kept, bool partial)
{
    rvli_layer *layer = &t->layers[number];
    layer->attention_input =
        rvli_norm_forward(t, t->tokens, width(t), kept ? &layer->before_attention : NULL);
    attend(t, number, kept);
    layer->mlp_input = rvli_norm_forward(t, t->tokens, width(t), kept ? &layer->before_mlp : NULL);
    rvli_block given = rvli_mlp_forward(t, number, kept, partial && !has_norms_behind(t));
    given = rvli_beside_forward(t, number, given, kept);
    return behind(t, given, &layer->behind_mlp, kept);
}

/* Between attention and MLP. */
static void done_with_middle(rvli_training *t, rvli_layer *layer)
{
    rvli_release(t, &layer->middle);
}

void rvli_layer_forward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    t->at = number;
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    rvli_block given = run(t, number, !recompute, false);
    rvli_leave(t, &layer->softmax, !recompute); /* plain attention's, which has a name till then */
    rvli_block output = rvli_activation(t, RVLI_HALF * t->tokens * width(t));
    rvli_release(t, &given);
    done_with_middle(t, layer);
    rvli_beside_done(t, number, !recompute);
    output = rvli_per_layer_forward(t, number, output, !recompute);
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

/* of_given: of what the MLP gave; NULL: as behind_backward() works it out. */
static void backward(rvli_training *t, uint32_t number, rvli_block of_given)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    if (of_given == NULL)
        of_given = behind_backward(t, unit, &layer->behind_mlp, RVLI_ROLE_NORM_BEHIND_MLP);
    of_given = rvli_beside_backward(t, number, of_given);
    rvli_block gradient = rvli_mlp_backward(t, number, of_given);
    rvli_gradient_others(t, unit);
    gradient = rvli_norm_backward(t, t->tokens, width(t), &layer->before_mlp, unit,
                                  RVLI_ROLE_NORM_BEFORE_MLP, gradient);
    rvli_release(t, &gradient); /* added to that of the residual, in place */
    gradient = attention_backward(t, number);
    rvli_release(t, &layer->input);
    rvli_release(t, &gradient);
}

/* Gemma 4's number is kept, which autograd asks for first. So the whole layer is computed again
 * before its backward pass begins. */
static void scaled_backward(rvli_training *t, uint32_t number)
{
    uint64_t hidden = RVLI_HALF * t->tokens * width(t);
    if (t->options->flags & RVL_MODEL_RECOMPUTE) {
        rvli_fetch(t, RVL_MODEL_ACTIVATIONS, hidden);
        rvli_block given = run(t, number, true, false);
        rvli_block output = rvli_activation(t, hidden);
        rvli_release(t, &given);
        done_with_middle(t, &t->layers[number]);
        rvli_beside_done(t, number, true);
        output = rvli_per_layer_forward(t, number, output, true);
        rvli_release(t, &output);
    }
    t->flow = rvli_next(t, hidden, &t->flow);
    rvli_per_layer_layer_backward(t, number);
    backward(t, number, NULL);
}

void rvli_layer_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_block of_given = NULL;
    t->at = number;
    if (rvli_is_scaled(t)) {
        scaled_backward(t, number);
        return;
    }
    if (t->options->flags & RVL_MODEL_RECOMPUTE) {
        if (rvli_layer_is(t->model, number, RVLI_LAYER_SPARSE))
            rvli_experts_backward_early(t, number, &of_given);
        rvli_fetch(t, RVL_MODEL_ACTIVATIONS, RVLI_HALF * t->tokens * width(t));
        rvli_block nothing = run(t, number, true, true);
        rvli_release(t, &nothing);
        done_with_middle(t, layer);
    }
    backward(t, number, of_given);
}
