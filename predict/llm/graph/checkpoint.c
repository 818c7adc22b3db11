/* SPDX-License-Identifier: MIT */
/*
 * Layers that are computed again (torch/utils/checkpoint.py, without re-entrance).
 *
 * In the forward pass the nodes of a layer only count what they would keep. The first of them that
 * needs something in the backward pass has the layer run again, until everything that was counted
 * exists. The rest of the layer does not run again. The hidden states and the mask given to the
 * layer stay until the last node that kept something is done. Angles are freed sooner, with the
 * nodes that keep them (as memory histories of programs show).
 */
#include "predict/llm/graph/graph.h"
#include "predict/llm/graph/items.h"

#include <stdlib.h>

static rvli_frame *make(rvli_graph *g, uint32_t layer, rvli_value *hidden)
{
    rvli_frame *frame = rvli_items_take(&g->frames, &g->t->tape.failed);
    if (frame == NULL) {
        g->stopped = true;
        return NULL;
    }
    *frame = (rvli_frame){.refs = 1, .layer = layer, .input = rvli_value_retain(hidden)};
    g->dictionary_users++;
    for (int i = 0; i < RVLI_FRAME_HELD; i++)
        frame->held[i] = rvli_value_retain(g->held[i]);
    return frame;
}

/* Sends the layer's input to the host. As in TRL, inputs of three layers may be on the device while
 * copies still run (step/offload.c). */
static void send_input(rvli_graph *g, rvli_frame *frame)
{
    if (!g->offloads || frame == NULL || g->stopped)
        return;
    rvli_shape shape = frame->input->shape;
    rvli_value *there = rvli_value_view(g, &(rvli_value){0}, &shape);
    if (there == NULL)
        return;
    there->learns = frame->input->learns;
    rvli_value_assign(g, &g->sent[0], g->sent[1]);
    g->sent[1] = frame->input;
    frame->input = there;
}

void rvli_checkpoint_sent(rvli_graph *g)
{
    for (int i = 0; i < 2; i++)
        rvli_value_assign(g, &g->sent[i], NULL);
}

void rvli_checkpoint_send(rvli_graph *g, rvli_storage *storage)
{
    if (g->sending_count == RVLI_SENDING_MAX)
        return;
    storage->refs++;
    g->sending[g->sending_count++] = storage;
}

void rvli_checkpoint_all_sent(rvli_graph *g)
{
    while (g->sending_count > 0)
        rvli_storage_release(g, g->sending[--g->sending_count]);
}

rvli_value *rvli_checkpoint_forward(rvli_graph *g, uint32_t layer, rvli_value *hidden)
{
    if ((g->t->options->flags & RVL_MODEL_RECOMPUTE) == 0)
        return rvli_program_call(g, RVLI_ENTRY_DECODER_LAYER, &hidden, 1);
    rvli_frame *frame = make(g, layer, hidden);
    g->frame = frame;
    rvli_value *given = rvli_program_call(g, RVLI_ENTRY_DECODER_LAYER, &hidden, 1);
    g->frame = NULL;
    send_input(g, frame);
    rvli_frame_release(g, frame);
    return given;
}

static void fetch(rvli_graph *g, const rvli_frame *frame)
{
    if (g->offloads)
        rvli_fetch(g->t, RVL_MODEL_ACTIVATIONS, rvli_shape_bytes(&frame->input->shape));
}

static void run_again(rvli_graph *g, rvli_frame *frame)
{
    uint32_t casts = g->cast_count;
    frame->again = calloc(frame->kept_count, sizeof(rvli_storage *));
    if (frame->again == NULL) {
        g->t->tape.failed = g->stopped = true;
        return;
    }
    fetch(g, frame);
    for (int i = 0; i < RVLI_FRAME_HELD; i++)
        g->held[i] = frame->held[i];
    g->again = frame;
    g->t->at = frame->layer;
    rvli_value_release(g, rvli_program_call(g, RVLI_ENTRY_DECODER_LAYER, &frame->input, 1));
    rvli_casts_release(g, casts);
    for (int i = 0; i <= RVLI_HELD_SINE; i++)
        rvli_value_assign(g, &frame->held[i], NULL);
    g->again = NULL;
    g->stopped = g->t->tape.failed;
}

bool rvli_checkpoint_unpack(rvli_graph *g, rvli_node *node)
{
    rvli_frame *frame = node->frame;
    if (frame == NULL)
        return false;
    bool runs = frame->again == NULL;
    if (runs)
        run_again(g, frame);
    for (int i = 0; frame->again != NULL && i < node->kept_count; i++) {
        rvli_storage **place = &frame->again[node->first_kept + (uint32_t)i];
        node->kept[i] = *place;
        *place = NULL;
    }
    return runs;
}

void rvli_frame_release(rvli_graph *g, rvli_frame *frame)
{
    if (frame == NULL || --frame->refs > 0)
        return;
    for (uint32_t i = 0; frame->again != NULL && i < frame->kept_count; i++)
        rvli_storage_release(g, frame->again[i]);
    free(frame->again);
    rvli_value_release(g, frame->input);
    for (int i = 0; i < RVLI_FRAME_HELD; i++)
        rvli_value_release(g, frame->held[i]);
    rvli_dictionary_release(g);
    rvli_items_give(&g->frames, frame);
}
