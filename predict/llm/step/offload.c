/* SPDX-License-Identifier: MIT */
/*
 * What the forward pass keeps goes to the host, as TRL's OffloadActivations has it
 * (trl/models/activation_offloading.py, with streams), where layers are computed again.
 *
 * Forward that is a rule of the engine (graph/checkpoint.c): the inputs of layers are copied, and
 * what is kept before and behind them. What autograd keeps twice stays on the device as well.
 *
 * The backward pass fetches each tensor on a stream of its own, for the node that needs it. It is
 * freed behind the next node that fetches one.
 */
#include "predict/llm/step/training.h"

void rvli_offload_begin(rvli_training *t)
{
    /* TRL empties the cache where bitsandbytes is loaded. */
    if (rvli_is_offloaded(t) && rvli_is_base_quantised(t))
        rvli_tape_empty_cache(&t->tape);
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
