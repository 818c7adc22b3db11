/* SPDX-License-Identifier: MIT */
/*
 * What the forward pass keeps goes to the host, as TRL's OffloadActivations has it
 * (trl/models/activation_offloading.py, with streams), where layers are computed again.
 *
 * The inputs of layers, what the last norm keeps, the tanh of capped logits, and the logarithms of
 * probabilities are copied. A copy may still run while three layers' inputs are there; the fourth
 * frees the first. What autograd keeps twice stays on the device as well: the last norm's input and
 * scale, and the logarithms. What Gemma 3n and 4 keep before and behind their layers is small, and
 * left on the device here.
 *
 * The backward pass fetches each tensor on a stream of its own, for the node that needs it. It is
 * freed behind the next node that fetches one.
 */
#include "predict/llm/step/training.h"

#define INPUTS_AT_ONCE 3

void rvli_offload_begin(rvli_training *t)
{
    /* TRL empties the cache where bitsandbytes is loaded. */
    if (rvli_is_offloaded(t) && rvli_is_base_quantised(t) &&
        rvli_allocator_empty_cache(&t->tape.allocator) != RVL_OK)
        t->tape.failed = true;
}

static void forget(rvli_training *t, rvli_layer *layer)
{
    if (layer->input != t->embedded)
        rvli_release(t, &layer->input);
    layer->input = NULL; /* the module has the embedded tokens until it ends */
}

void rvli_offload_inputs(rvli_training *t, uint32_t number)
{
    if (rvli_is_offloaded(t) && number >= INPUTS_AT_ONCE)
        forget(t, &t->layers[number - INPUTS_AT_ONCE]);
}

void rvli_offload_last_inputs(rvli_training *t)
{
    for (uint32_t i = 0; rvli_is_offloaded(t) && i < t->model->layers; i++)
        forget(t, &t->layers[i]);
}

void rvli_offload_end(rvli_training *t)
{
    if (!rvli_is_offloaded(t))
        return;
    rvli_release(t, &t->last_norm.normed);
    rvli_release(t, &t->capped);
}

void rvli_fetch(rvli_training *t, rvl_model_term holder, uint64_t bytes)
{
    if (!rvli_is_offloaded(t))
        return;
    rvli_release(t, &t->fetched_before);
    t->fetched_before = t->fetched;
    t->fetched = rvli_take_on(&t->tape, RVLI_STREAM_OFFLOAD, holder, bytes);
}

void rvli_fetched(rvli_training *t)
{
    rvli_release(t, &t->fetched_before);
}

void rvli_fetch_end(rvli_training *t)
{
    rvli_release(t, &t->fetched_before);
    rvli_release(t, &t->fetched);
}
