/* SPDX-License-Identifier: MIT */
/*
 * xIELU, by which Apertus activates its MLP, in plain PyTorch: both branches for every element, and
 * a choice between them (transformers' activations.py, _xielu_python).
 *
 * Above 0 it is a x x + b x, below (exp(x) - 1 - x) c + b x. a and c are trained.
 */
#include "predict/llm/step/training.h"

static uint64_t inner_bytes(const rvli_training *t)
{
    return RVLI_HALF * t->tokens * t->model->dim[RVLI_DIM_INTERMEDIATE];
}

static rvli_block inner(rvli_training *t)
{
    return rvli_activation(t, inner_bytes(t));
}

static void unless(rvli_training *t, bool kept, rvli_block *block)
{
    if (!kept)
        rvli_release(t, block);
}

static rvli_block sum_of(rvli_training *t, rvli_block *first, rvli_block *second)
{
    rvli_block sum = inner(t);
    rvli_release(t, first);
    rvli_release(t, second);
    return sum;
}

/* Takes what up gave, which stays in layer->up, and answers what is activated. */
rvli_block rvli_xielu_forward(rvli_training *t, rvli_layer *layer, bool kept)
{
    rvli_xielu *x = &layer->xielu;
    x->above = rvli_activation(t, inner_bytes(t) / RVLI_HALF); /* a byte each */
    x->scaled = inner(t);
    rvli_block square = inner(t);
    unless(t, kept, &x->scaled);
    rvli_block linear = inner(t);
    rvli_block upper = sum_of(t, &square, &linear);
    rvli_block bounded = inner(t);
    x->exponential = rvli_next(t, inner_bytes(t), &bounded);
    x->difference = inner(t);
    unless(t, kept, &x->exponential);
    rvli_block curve = inner(t);
    unless(t, kept, &x->difference);
    linear = inner(t);
    rvli_block lower = sum_of(t, &curve, &linear);
    rvli_block output = inner(t);
    rvli_release(t, &upper);
    rvli_release(t, &lower);
    unless(t, kept, &x->above);
    unless(t, kept, &layer->up);
    return output;
}

/* What is added in place to the gradient that is there. */
static void add_part(rvli_training *t)
{
    rvli_block part = inner(t);
    rvli_release(t, &part);
}

/* Where x was the smaller one: conditions, and what passes by them. */
static void bound_backward(rvli_training *t, rvli_block *of_bounded)
{
    rvli_block passed = inner(t);
    rvli_block ties = rvli_activation(t, inner_bytes(t) / RVLI_HALF);
    rvli_block halved = inner(t);
    rvli_block smaller = rvli_activation(t, inner_bytes(t) / RVLI_HALF);
    rvli_release(t, &passed);
    rvli_release(t, &ties);
    rvli_release(t, &halved);
    rvli_release(t, &smaller);
    rvli_release(t, of_bounded);
}

static void below_backward(rvli_training *t, rvli_xielu *x, rvli_block *of_lower)
{
    rvli_block of_factor = inner(t); /* before it is summed */
    rvli_block of_difference = inner(t);
    rvli_release(t, &of_factor);
    rvli_release(t, of_lower);
    rvli_release(t, &x->difference);
    add_part(t);
    rvli_block plus_one = inner(t);
    rvli_block of_bounded = inner(t);
    rvli_release(t, &plus_one);
    rvli_release(t, &of_difference);
    rvli_release(t, &x->exponential);
    bound_backward(t, &of_bounded);
}

/* Takes the gradient of what was activated, and answers that of what up gave. */
rvli_block rvli_xielu_backward(rvli_training *t, rvli_layer *layer, rvli_block of_output)
{
    rvli_xielu *x = &layer->xielu;
    rvli_block of_lower = inner(t), of_upper = inner(t);
    rvli_release(t, &of_output);
    rvli_release(t, &x->above);
    rvli_block of_up = inner(t);
    below_backward(t, x, &of_lower);
    add_part(t);
    rvli_block by_input = inner(t);
    rvli_block of_scaled = inner(t);
    rvli_release(t, &by_input);
    rvli_release(t, &of_upper);
    rvli_release(t, &x->scaled);
    rvli_block of_factor = inner(t);
    add_part(t);
    rvli_release(t, &of_factor);
    rvli_release(t, &of_scaled);
    rvli_release(t, &layer->up);
    return of_up;
}
