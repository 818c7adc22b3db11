/* SPDX-License-Identifier: MIT */
/*
 * Values kept by the forward pass are sent to the host, as by TRL's OffloadActivations
 * (trl/models/activation_offloading.py, with streams). This needs layers that are computed again.
 *
 * In the forward pass this is a rule of graph/checkpoint.c: it copies the inputs of layers, and
 * what is kept before and behind the layers. What autograd keeps twice stays on the device as well.
 *
 * The backward pass fetches each tensor on a separate stream, for the node that needs it. The
 * tensor is freed after the next node that fetches one.
 */
#include "predict/llm/step/training.h"

void rvli_offload_begin(rvli_training *t)
{
    /* TRL empties the cache if bitsandbytes is loaded. */
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
