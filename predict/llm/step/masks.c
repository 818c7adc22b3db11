/* SPDX-License-Identifier: MIT */
/*
 * Masks for kernels that cannot compute what tokens see (transformers/masking_utils.py): a byte for
 * each pair of tokens, or bf16 for all sequences if attention is plain operations. Layers with a
 * window have a separate mask. Qwen's sparse models make it even if no layer has a window.
 */
#include <string.h>

#include "predict/llm/step/training.h"

static uint64_t pairs(const rvli_training *t)
{
    return (uint64_t)t->options->seq_len * t->options->seq_len;
}

static bool is_plain(const rvli_training *t)
{
    return (t->model->features & RVLI_SINKS) != 0;
}

/* Layers with an indexer select from this mask. */
static bool is_indexed(const rvli_training *t)
{
    return (t->model->features & RVLI_INDEXER) != 0;
}

static bool has_window(const rvli_training *t)
{
    if (strcmp(t->model->type, "qwen2_moe") == 0)
        return true;
    bool ends_before = t->options->seq_len >= t->model->window;
    return rvli_has_layers(t->model, RVLI_LAYER_WINDOW) && (is_plain(t) || ends_before);
}

/* Tokens inside the window and not later. */
static rvli_block window_mask(rvli_training *t)
{
    rvli_block inside = rvli_activation(t, pairs(t));
    rvli_block seen = rvli_next(t, pairs(t), &inside);
    rvli_block earlier = rvli_activation(t, pairs(t));
    rvli_block both = rvli_activation(t, pairs(t));
    rvli_release(t, &earlier);
    rvli_release(t, &seen);
    return both;
}

/* Masks other sequences, too: positions that are not consecutive are taken for several
 * sequences. */
static rvli_block packed_mask(rvli_training *t, rvli_block seen)
{
    const uint64_t all_pairs = t->options->micro_batch * pairs(t);
    rvli_block inside = rvli_next(t, pairs(t), &seen);
    rvli_block same = rvli_activation(t, all_pairs);
    rvli_block both = rvli_activation(t, all_pairs);
    rvli_release(t, &same);
    rvli_release(t, &inside);
    return both;
}

static bool have_all_windows(const rvl_model *model)
{
    for (uint32_t i = 0; i < model->layers; i++) {
        if (!rvli_layer_is(model, i, RVLI_LAYER_WINDOW))
            return false;
    }
    return true;
}

/* For a rank with a part of each sequence. No kernel reads these masks. */
static void make_packed_masks(rvli_training *t)
{
    if (!have_all_windows(t->model))
        t->masks[0] = packed_mask(t, rvli_activation(t, pairs(t)));
    if (rvli_has_layers(t->model, RVLI_LAYER_WINDOW))
        t->masks[1] = packed_mask(t, window_mask(t));
}

void rvli_masks_make(rvli_training *t)
{
    if (rvli_is_ring(t)) {
        make_packed_masks(t);
        return;
    }
    rvli_block earlier = rvli_activation(t, is_plain(t) || is_indexed(t) ? pairs(t) : 0);
    uint64_t plain = RVLI_HALF * pairs(t) * t->options->micro_batch;
    t->masks[0] = is_plain(t) ? rvli_next(t, plain, &earlier) : earlier;
    if (!has_window(t))
        return;
    rvli_block inside = window_mask(t);
    t->masks[1] = is_plain(t) ? rvli_next(t, plain, &inside) : inside;
}
