/* SPDX-License-Identifier: MIT */
/*
 * Gemma 3n (modeling_gemma3n.py): hidden states are several streams, and each layer has an
 * embedding of each token of its own.
 *
 * A layer predicts all streams from all, runs its blocks on the first, and corrects the streams by
 * what came out (AltUp). Beside attention a narrow product goes around it (Laurel). At last the
 * token's embedding for this layer is added to all streams but the first.
 *
 * Gradients of the streams add up in one tensor. A part of it, the first stream or the others, has
 * a gradient as large as the whole, which is added in place and goes at once.
 */
#include "predict/llm/step/training.h"

bool rvli_has_streams(const rvli_training *t)
{
    return (t->model->features & RVLI_ALTUP) != 0;
}

static uint64_t hidden_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_HIDDEN];
}

static uint64_t others(const rvli_training *t)
{
    return t->model->dim[RVLI_DIM_ALTUP_COUNT] - 1;
}

static uint64_t stream_bytes(const rvli_training *t)
{
    return hidden_bytes(t) * t->model->dim[RVLI_DIM_ALTUP_COUNT];
}

/* Of a layer's embeddings. */
static uint64_t embedding_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_PER_LAYER];
}

static uint64_t laurel_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_LAUREL];
}

/* What is there for a moment. */
static void pass(rvli_training *t, uint64_t bytes)
{
    rvli_block made = rvli_activation(t, bytes);
    rvli_release(t, &made);
}

static rvli_norm *if_kept(rvli_norm *norm, bool kept)
{
    return kept ? norm : NULL;
}

static rvli_block normed(rvli_training *t, rvli_norm *norm, bool kept)
{
    return rvli_norm_forward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN], if_kept(norm, kept));
}

static rvli_block normed_backward(rvli_training *t, rvli_unit *unit, rvli_norm *norm,
                                  rvli_role role, rvli_block gradient)
{
    return rvli_norm_backward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN], norm, unit, role,
                              gradient);
}

/* ---- A stream of its own size: at both ends of the model ---- */

/* A projection of one stream, made as large as the first one is. */
static rvli_block scaled_forward(rvli_training *t, rvli_scaled *kept)
{
    kept->projected = rvli_activation(t, hidden_bytes(t));
    pass(t, hidden_bytes(t)); /* squares */
    kept->product = rvli_activation(t, hidden_bytes(t));
    return rvli_activation(t, hidden_bytes(t));
}

/* Answers the gradient of what was projected. */
static rvli_block scaled_backward(rvli_training *t, rvli_scaled *kept)
{
    rvli_block parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = rvli_activation(t, hidden_bytes(t));
    rvli_block of_product = rvli_activation(t, hidden_bytes(t));
    for (int i = 2; i >= 0; i--)
        rvli_release(t, &parts[i]);
    rvli_block by_size = rvli_next(t, hidden_bytes(t), &of_product);
    rvli_release(t, &kept->product);
    rvli_block of_size = rvli_activation(t, hidden_bytes(t));
    rvli_block of_projected = rvli_next(t, hidden_bytes(t), &of_size);
    rvli_release(t, &by_size);
    for (int i = 0; i < 3; i++)
        parts[i] = rvli_activation(t, hidden_bytes(t));
    rvli_block of_squares = rvli_activation(t, hidden_bytes(t));
    for (int i = 2; i >= 0; i--)
        rvli_release(t, &parts[i]);
    rvli_release(t, &kept->projected);
    rvli_release(t, &of_squares); /* added in place */
    return of_projected;
}

/* Through the size of the first stream. */
static void size_backward(rvli_training *t)
{
    rvli_block parts[4];
    for (int i = 0; i < 4; i++)
        parts[i] = rvli_activation(t, hidden_bytes(t));
    for (int i = 3; i >= 0; i--)
        rvli_release(t, &parts[i]);
}

/* ---- Forward: from embedded tokens to streams ---- */

void rvli_streams_begin(rvli_training *t)
{
    rvli_streams *s = &t->streams;
    rvli_per_layer_make(t);
    rvli_masks_make(t);
    pass(t, hidden_bytes(t));
    for (uint64_t i = 0; i < others(t); i++)
        s->spread[i] = scaled_forward(t, &s->first[i]);
    t->hidden = rvli_activation(t, stream_bytes(t));
}

/* Of the streams that the last layer gave, the mean. */
void rvli_streams_end(rvli_training *t)
{
    rvli_streams *s = &t->streams;
    if (!rvli_has_streams(t))
        return;
    pass(t, hidden_bytes(t));
    for (uint64_t i = 0; i < others(t); i++) {
        rvli_release(t, &s->spread[i]);
        s->spread[i] = scaled_forward(t, &s->last[i]);
    }
    rvli_block stacked = rvli_activation(t, stream_bytes(t));
    s->streams = t->hidden;
    t->hidden = rvli_next(t, hidden_bytes(t), &stacked);
}

void rvli_streams_done(rvli_training *t)
{
    rvli_streams *s = &t->streams;
    for (uint64_t i = 0; rvli_has_streams(t) && i < others(t); i++)
        rvli_release(t, &s->spread[i]);
    for (int i = 0; rvli_is_in_turn(t) && i < 2 && (t->options->flags & RVL_MODEL_RECOMPUTE) == 0;
         i++) {
        rvli_release(t, &s->keys[i]);
        rvli_release(t, &s->values[i]);
    }
}

/* ---- Backward: the same ---- */

static void projections_gradient(rvli_training *t, rvli_role role)
{
    rvli_gradient(t, rvli_root(t), role);
}

void rvli_streams_end_backward(rvli_training *t)
{
    rvli_streams *s = &t->streams;
    if (!rvli_has_streams(t))
        return;
    rvli_block of_stacked = rvli_next(t, stream_bytes(t), &t->flow);
    projections_gradient(t, RVLI_ROLE_UNEMBED_STREAMS);
    for (uint64_t i = others(t); i > 0; i--) {
        rvli_block of_projected = scaled_backward(t, &s->last[i - 1]);
        rvli_block of_stream = rvli_next(t, hidden_bytes(t), &of_projected);
        rvli_block of_all = rvli_next(t, stream_bytes(t), &of_stream);
        if (t->flow == NULL)
            t->flow = of_all;
        else
            rvli_release(t, &of_all);
    }
    rvli_block of_first = rvli_activation(t, stream_bytes(t));
    rvli_release(t, &of_stacked);
    if (t->flow == NULL)
        t->flow = of_first;
    else
        rvli_release(t, &of_first);
    size_backward(t);
    rvli_release(t, &s->streams);
    pass(t, stream_bytes(t));
}

void rvli_streams_begin_backward(rvli_training *t)
{
    rvli_streams *s = &t->streams;
    rvli_block of_embedded = NULL;
    if (!rvli_has_streams(t))
        return;
    rvli_release(t, &s->embeddings);
    for (int i = 0; i < 2; i++)
        rvli_release(t, &s->rotary[i]);
    projections_gradient(t, RVLI_ROLE_EMBED_STREAMS);
    for (uint64_t i = others(t); i > 0; i--) {
        rvli_block of_projected = scaled_backward(t, &s->first[i - 1]);
        rvli_block part = rvli_next(t, hidden_bytes(t), &of_projected);
        if (of_embedded == NULL)
            of_embedded = rvli_next(t, hidden_bytes(t), &part);
        else
            rvli_release(t, &part);
    }
    rvli_release(t, &t->flow);
    size_backward(t);
    t->flow = of_embedded != NULL ? of_embedded : rvli_activation(t, hidden_bytes(t));
    rvli_per_layer_backward(t);
}

/* ---- A layer ---- */

/* What a router of streams works in: its norm, what is multiplied by a number. */
static rvli_block route(rvli_training *t, rvli_norm *norm, bool kept)
{
    rvli_block given = normed(t, norm, kept);
    rvli_block scaled = rvli_next(t, hidden_bytes(t), &given);
    if (!kept)
        rvli_release(t, &scaled);
    return scaled;
}

/* Its gradient: takes what it kept, and is added to that of what it saw. */
static void route_backward(rvli_training *t, rvli_unit *unit, rvli_norm *norm, rvli_block *scaled,
                           uint64_t seen_bytes)
{
    rvli_block of_scaled = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, scaled);
    rvli_block of_normed = rvli_next(t, hidden_bytes(t), &of_scaled);
    rvli_block of_seen = normed_backward(t, unit, norm, RVLI_ROLE_OTHER, of_normed);
    rvli_block whole = rvli_activation(t, seen_bytes > hidden_bytes(t) ? seen_bytes : 0);
    rvli_release(t, &of_seen);
    rvli_release(t, &whole);
}

static rvli_block predict(rvli_training *t, rvli_layer_streams *s, bool kept)
{
    s->predicts = route(t, &s->before, kept);
    rvli_block made = rvli_activation(t, stream_bytes(t));
    return rvli_next(t, stream_bytes(t), &made);
}

/* Takes the gradient of what was predicted (t->flow), and leaves that of the layer's input. */
static void predict_backward(rvli_training *t, rvli_unit *unit, rvli_layer *layer,
                             rvli_layer_streams *s)
{
    rvli_block of_predicted = rvli_next(t, stream_bytes(t), &t->flow);
    rvli_block permuted = rvli_activation(t, stream_bytes(t));
    t->flow = rvli_next(t, stream_bytes(t), &of_predicted);
    rvli_block of_input = rvli_next(t, stream_bytes(t), &permuted);
    rvli_release(t, &layer->input);
    rvli_release(t, &of_input);
    route_backward(t, unit, &s->before, &s->predicts, stream_bytes(t));
}

static rvli_block laurel(rvli_training *t, rvli_layer_streams *s, bool kept)
{
    s->narrow = rvli_activation(t, laurel_bytes(t));
    rvli_block wide = rvli_activation(t, hidden_bytes(t));
    if (!kept)
        rvli_release(t, &s->narrow);
    rvli_block given = normed(t, &s->behind_laurel, kept);
    rvli_block sum = rvli_activation(t, hidden_bytes(t));
    rvli_release(t, &wide);
    rvli_release(t, &given);
    return sum;
}

/* of_given stays; its part is added to *of_input in place. */
static void laurel_backward(rvli_training *t, rvli_unit *unit, rvli_layer *layer,
                            rvli_layer_streams *s)
{
    rvli_block of_wide = normed_backward(t, unit, &s->behind_laurel, RVLI_ROLE_OTHER, NULL);
    rvli_block of_narrow = rvli_next(t, laurel_bytes(t), &of_wide);
    rvli_release(t, &s->narrow);
    rvli_block part = rvli_next(t, hidden_bytes(t), &of_narrow);
    rvli_release(t, &layer->attention_input);
    rvli_release(t, &part);
}

/* Answers the corrected streams. */
static rvli_block correct(rvli_training *t, rvli_layer_streams *s, bool kept)
{
    s->corrects = route(t, &s->behind, kept);
    rvli_block change = rvli_activation(t, hidden_bytes(t));
    s->changes = rvli_next(t, stream_bytes(t), &change);
    rvli_block corrected = rvli_activation(t, stream_bytes(t));
    if (!kept)
        rvli_release(t, &s->changes);
    return corrected;
}

/* Answers the gradient of what the blocks gave. */
static rvli_block correct_backward(rvli_training *t, rvli_unit *unit, rvli_layer_streams *s)
{
    rvli_block by_weights = rvli_activation(t, stream_bytes(t));
    rvli_block of_changes = rvli_next(t, stream_bytes(t), &by_weights);
    rvli_release(t, &s->changes);
    rvli_block of_change = rvli_next(t, hidden_bytes(t), &of_changes);
    rvli_block negated = rvli_activation(t, hidden_bytes(t));
    rvli_block of_first = rvli_next(t, stream_bytes(t), &negated);
    rvli_release(t, &of_first);
    route_backward(t, unit, &s->behind, &s->corrects, 0);
    return of_change;
}

/* A token's embedding for this layer, gated by the first stream. */
static void embed(rvli_training *t, rvli_layer_streams *s, bool kept, bool partial)
{
    s->first = rvli_activation(t, hidden_bytes(t));
    s->scaled = rvli_activation(t, hidden_bytes(t));
    if (!kept)
        rvli_release(t, &s->first);
    s->gate = rvli_next(t, embedding_bytes(t), kept ? &(rvli_block){NULL} : &s->scaled);
    s->activated = rvli_next(t, embedding_bytes(t), kept ? &(rvli_block){NULL} : &s->gate);
    s->product = rvli_next(t, embedding_bytes(t), kept ? &(rvli_block){NULL} : &s->activated);
    rvli_block projected = rvli_next(t, hidden_bytes(t), kept ? &(rvli_block){NULL} : &s->product);
    rvli_block given = NULL;
    if (partial)
        rvli_norm_partial_forward(t, t->tokens, t->model->dim[RVLI_DIM_HIDDEN],
                                  &s->behind_embedding);
    else
        given = normed(t, &s->behind_embedding, kept);
    rvli_release(t, &projected);
    rvli_release(t, &given); /* added in place */
}

/* From t->flow, the gradient of the streams that the layer gave, to that of those corrected. */
static void embed_backward(rvli_training *t, rvli_unit *unit, rvli_layer_streams *s)
{
    uint64_t rest = hidden_bytes(t) * others(t);
    rvli_block of_given = rvli_activation(t, stream_bytes(t));
    rvli_block of_rest = rvli_activation(t, rest);
    pass(t, rest);
    rvli_release(t, &t->flow);
    rvli_block copy = rvli_activation(t, stream_bytes(t));
    rvli_release(t, &of_rest);
    rvli_release(t, &copy);
    t->flow = rvli_activation(t, stream_bytes(t));
    of_rest = rvli_activation(t, rest);
    rvli_block of_normed = rvli_next(t, hidden_bytes(t), &of_rest);
    rvli_release(t, &of_given);
    rvli_block of_projected =
        normed_backward(t, unit, &s->behind_embedding, RVLI_ROLE_OTHER, of_normed);
    rvli_gradient(t, unit, RVLI_ROLE_PER_LAYER_PROJECTION);
    rvli_block of_product = rvli_next(t, embedding_bytes(t), &of_projected);
    rvli_release(t, &s->product);
    rvli_block of_embedding = rvli_activation(t, embedding_bytes(t));
    rvli_block of_activated = rvli_next(t, embedding_bytes(t), &of_product);
    rvli_release(t, &s->activated);
    rvli_block of_gate = rvli_next(t, embedding_bytes(t), &of_activated);
    rvli_release(t, &s->gate);
    rvli_gradient(t, unit, RVLI_ROLE_PER_LAYER_GATE);
    rvli_block of_scaled = rvli_next(t, hidden_bytes(t), &of_gate);
    rvli_release(t, &s->scaled);
    rvli_block of_scale = rvli_activation(t, hidden_bytes(t));
    rvli_block of_first = rvli_next(t, hidden_bytes(t), &of_scale);
    rvli_release(t, &of_scaled);
    rvli_release(t, &s->first);
    rvli_block whole = rvli_next(t, stream_bytes(t), &of_first);
    rvli_release(t, &whole);
    rvli_per_layer_part_backward(t);
    rvli_release(t, &of_embedding);
}

/* What has names until the layer returns. */
typedef struct names {
    rvli_block predicted, around, attended, gated, middle, given, normed, sum;
} names;

static rvli_block blocks(rvli_training *t, uint32_t number, bool kept, names *n)
{
    rvli_layer *layer = &t->layers[number];
    uint64_t hidden = hidden_bytes(t);
    layer->attention_input = normed(t, &layer->before_attention, kept);
    n->around = laurel(t, &layer->streams, kept);
    rvli_block given = rvli_attention_forward(t, number, kept);
    n->attended = normed(t, &layer->behind_attention, kept);
    rvli_release(t, &given);
    n->gated = rvli_activation(t, hidden);
    rvli_block sum = rvli_activation(t, hidden);
    n->middle = rvli_next(t, hidden, &sum);
    layer->mlp_input = normed(t, &layer->before_mlp, kept);
    n->given = rvli_mlp_forward(t, number, kept);
    n->normed = normed(t, &layer->behind_mlp, kept);
    n->sum = rvli_activation(t, hidden);
    return correct(t, &layer->streams, kept);
}

/* Answers the streams that a layer gives. partial: up to the last tensor that is kept. */
static rvli_block run(rvli_training *t, uint32_t number, bool kept, bool partial)
{
    rvli_layer *layer = &t->layers[number];
    names n = {.predicted = predict(t, &layer->streams, kept)};
    rvli_block corrected = blocks(t, number, kept, &n);
    embed(t, &layer->streams, kept, partial);
    rvli_block *all[] = {&n.predicted, &n.around, &n.attended, &n.gated,
                         &n.middle,    &n.given,  &n.normed,   &n.sum};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        rvli_release(t, all[i]);
    if (!kept) {
        rvli_release(t, &layer->attention_input);
        rvli_release(t, &layer->mlp_input);
    }
    return corrected;
}

void rvli_streams_layer_forward(rvli_training *t, uint32_t number)
{
    bool recompute = (t->options->flags & RVL_MODEL_RECOMPUTE) != 0;
    t->at = number;
    rvli_block output = run(t, number, !recompute, false);
    rvli_reshard_forward(t, &t->units[number]);
    t->layers[number].input = t->hidden;
    t->hidden = output;
}

void rvli_streams_again(rvli_training *t, const rvli_unit *unit)
{
    uint32_t number = (uint32_t)(unit - t->units);
    if (!rvli_has_streams(t) ||
        number >= t->model->layers) /* a block is missing for want of memory */
        return;
    rvli_fetch(t, RVL_MODEL_ACTIVATIONS, stream_bytes(t));
    rvli_block nothing = run(t, number, true, true);
    rvli_release(t, &nothing);
}

static rvli_block blocks_backward(rvli_training *t, uint32_t number, rvli_block of_given)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    rvli_block gradient =
        normed_backward(t, unit, &layer->behind_mlp, RVLI_ROLE_NORM_BEHIND_MLP, NULL);
    gradient = rvli_mlp_backward(t, number, gradient);
    rvli_gradient_others(t, unit);
    gradient = normed_backward(t, unit, &layer->before_mlp, RVLI_ROLE_NORM_BEFORE_MLP, gradient);
    rvli_release(t, &gradient); /* added in place */
    rvli_block of_sum = rvli_next(t, hidden_bytes(t), &of_given);
    gradient =
        normed_backward(t, unit, &layer->behind_attention, RVLI_ROLE_NORM_BEHIND_ATTENTION, NULL);
    gradient = rvli_attention_backward(t, number, gradient);
    gradient = rvli_next(t, hidden_bytes(t), &gradient); /* with what went around */
    laurel_backward(t, unit, layer, &layer->streams);
    gradient = normed_backward(t, unit, &layer->before_attention, RVLI_ROLE_NORM_BEFORE_ATTENTION,
                               gradient);
    rvli_release(t, &gradient);
    return of_sum;
}

void rvli_streams_layer_backward(rvli_training *t, uint32_t number)
{
    rvli_layer *layer = &t->layers[number];
    rvli_unit *unit = &t->units[number];
    t->at = number;
    embed_backward(t, unit, &layer->streams);
    rvli_block of_given = correct_backward(t, unit, &layer->streams);
    rvli_block of_first = blocks_backward(t, number, of_given);
    rvli_block whole = rvli_next(t, stream_bytes(t), &of_first);
    rvli_release(t, &whole);
    predict_backward(t, unit, layer, &layer->streams);
}
