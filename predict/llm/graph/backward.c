/* SPDX-License-Identifier: MIT */
/*
 * Autograd (torch/csrc/autograd/engine.cpp, input_buffer.cpp): a node runs once all gradients of
 * its outputs have come.
 *
 * Of the nodes that are ready, PyTorch runs the one that was made last. The users of a node are
 * made after it, so the last node that has not run is always ready. So nodes run from the last to
 * the first.
 *
 * After a node has run, the gradient that it received is freed, and then what it kept. Its results
 * are added to the gradients that its inputs have so far. This is done in place if nothing else
 * holds that gradient and it is not a transposed view. A parameter's gradient is complete when all
 * nodes that use the parameter have run.
 */
#include "predict/llm/graph/graph.h"
#include "predict/llm/graph/items.h"

#include <string.h>

/* ---- Making nodes in the forward pass ---- */

static void connect(rvli_graph *g, rvli_node *node, int i, const rvli_value *value)
{
    node->input[i] = (rvli_input){.node = value->node,
                                  .leaf = value->leaf,
                                  .wanted = value->learns,
                                  .part = value->part,
                                  .shape = value->shape};
    if (value->leaf != 0 && value->learns)
        g->leaves[value->leaf - 1].uses++;
}

/* There are thousands of nodes. Elements of arrays are set when they are counted, and not cleared
 * here. */
static void begin(rvli_node *node, rvli_backward_fn backward, uint8_t input_count)
{
    node->backward = backward;
    node->input_count = input_count;
    node->kept_count = 0;
    node->part_count = 0;
    node->steps = 1;
    node->host_bytes = 0;
    node->number = 0;
    node->frame = NULL;
    node->gradient = NULL;
    for (int i = 0; i < input_count; i++)
        node->input[i] = (rvli_input){0};
}

rvli_node *rvli_node_make(rvli_graph *g, rvli_backward_fn backward, rvli_value *const *inputs,
                          uint8_t input_count)
{
    bool learns = false;
    for (int i = 0; i < input_count; i++)
        learns = learns || (inputs[i] != NULL && inputs[i]->learns);
    if (!learns || g->stopped)
        return NULL;
    rvli_node *node = &g->counter;
    if (g->again == NULL) {
        node = rvli_items_take(&g->nodes, &g->t->tape.failed);
        g->stopped = node == NULL;
    }
    if (node == NULL)
        return NULL;
    begin(node, backward, input_count);
    node->before = g->last;
    node->unit = g->unit;
    if (g->again != NULL)
        return node;
    g->last = node;
    for (int i = 0; i < input_count; i++) {
        if (inputs[i] != NULL)
            connect(g, node, i, inputs[i]);
    }
    return node;
}

/* Keeps a value outside of layers that are computed again. If an earlier node already has it on the
 * host, this one keeps it on the device. */
static void keep_here(rvli_graph *g, rvli_node *node, const rvli_value *value)
{
    rvli_storage *storage = value->storage;
    if (storage == NULL)
        return;
    if (g->offloads && !storage->copied) {
        storage->copied = true;
        rvli_checkpoint_send(g, storage);
        node->host_holder = value->shape.holder;
        node->host_bytes = rvli_bytes_of(storage->block);
        return;
    }
    storage->refs++;
    node->kept[node->kept_count++] = storage;
}

void rvli_node_keep(rvli_graph *g, rvli_node *node, const rvli_value *value)
{
    if (node == NULL || value == NULL || g->stopped)
        return;
    if (g->again != NULL) {
        rvli_frame *frame = g->again;
        if (value->storage != NULL)
            value->storage->refs++;
        frame->again[frame->again_count++] = value->storage;
        g->stopped = frame->again_count == frame->kept_count;
    } else if (g->frame != NULL) {
        if (node->frame == NULL) {
            node->frame = g->frame;
            node->first_kept = g->frame->kept_count;
            g->frame->refs++;
        }
        g->frame->kept_count++;
        node->kept[node->kept_count++] = NULL;
    } else {
        keep_here(g, node, value);
    }
}

rvli_value *rvli_node_gives(rvli_graph *g, rvli_node *node, rvli_value *value)
{
    if (node == NULL || value == NULL)
        return value;
    value->learns = true;
    value->node = g->again == NULL ? node : NULL;
    return value;
}

/* ---- Common backward passes ---- */

void rvli_backward_pass(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                        rvli_value **of_out)
{
    (void)g;
    (void)node;
    of_out[0] = rvli_value_retain(gradient);
}

void rvli_backward_view(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                        rvli_value **of_out)
{
    of_out[0] = rvli_value_view(g, gradient, &node->input[0].shape);
    if (of_out[0] != NULL)
        of_out[0]->is_view = true;
}

void rvli_backward_new(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                       rvli_value **of_out)
{
    (void)gradient;
    of_out[0] = rvli_gradient_make(g, node, 0);
}

void rvli_backward_in_order(rvli_graph *g, const rvli_node *node, rvli_value *gradient,
                            rvli_value **of_out)
{
    rvli_backward_new(g, node, gradient, of_out);
    if (of_out[0] != NULL)
        of_out[0]->shape.heads_first = of_out[0]->shape.has_heads;
}

/* ---- Running nodes ---- */

rvli_value *rvli_gradient_make(rvli_graph *g, const rvli_node *node, int input)
{
    rvli_shape shape = node->input[input].shape;
    shape.heads_first = false;
    return rvli_value_make(g, &shape);
}

/* Fits a gradient to the shape and type of the input (validate_outputs()). An operator that repeats
 * its input returns a gradient for each repetition. They are summed. */
static rvli_value *fitted(rvli_graph *g, const rvli_node *node, int i, rvli_value *whole)
{
    const rvli_shape *input = &node->input[i].shape;
    if (whole == NULL || (whole->shape.elements == input->elements &&
                          whole->shape.element_bytes == input->element_bytes))
        return whole;
    rvli_value *fits = rvli_gradient_make(g, node, i);
    uint64_t rows = input->elements > 0 ? whole->shape.elements / input->elements : 0;
    if (rows > 1 && input->width > 1 && !g->stopped)
        rvli_rows_summed(g->t, rows, input->elements);
    rvli_value_release(g, whole);
    return fits;
}

static void add(rvli_graph *g, rvli_value **sum, rvli_value *part)
{
    rvli_value *before = *sum;
    if (before == NULL || part == NULL) {
        *sum = part;
        return;
    }
    bool in_place = before->refs == 1 && before->storage->refs == 1 && !before->is_view;
    if (!in_place)
        rvli_value_assign(g, sum, rvli_value_make(g, &part->shape));
    rvli_value_release(g, part);
}

/* Gives the parameter its gradient, or adds it to that of earlier micro-batches. */
static void accumulate(rvli_graph *g, uint32_t leaf, rvli_value *gradient)
{
    rvli_parameter *parameter = rvli_parameter_at(g, leaf);
    if (gradient == NULL)
        return;
    if (parameter->gradient == NULL) {
        parameter->gradient = gradient->storage->block;
        gradient->storage->block = NULL;
    }
    rvli_value_release(g, gradient);
    if (g->order_count < g->t->parameter_count)
        g->order[g->order_count++] = leaf - 1;
    rvli_buckets_ready(g->t, parameter);
    if (g->t->bucket_reduced)
        rvli_buckets_release(g->t);
}

static void hand_to_leaf(rvli_graph *g, uint32_t leaf, rvli_value *gradient)
{
    rvli_leaf *at = &g->leaves[leaf - 1];
    add(g, &at->pending, gradient);
    if (--at->uses > 0)
        return;
    accumulate(g, leaf, at->pending);
    at->pending = NULL;
}

static void hand_on(rvli_graph *g, const rvli_input *input, rvli_value *gradient)
{
    if (input->leaf != 0 && input->wanted)
        hand_to_leaf(g, input->leaf, gradient);
    else if (input->node != NULL && gradient != NULL)
        add(g,
            input->node->part_count > 0 ? &input->node->parts[input->part] : &input->node->gradient,
            gradient);
    else
        rvli_value_release(g, gradient);
}

static void release_kept(rvli_graph *g, rvli_node *node)
{
    for (int i = 0; i < node->kept_count; i++) {
        rvli_storage_release(g, node->kept[i]);
        node->kept[i] = NULL;
    }
}

static void release_gradients(rvli_graph *g, rvli_node *node)
{
    rvli_value_assign(g, &node->gradient, NULL);
    for (int i = 0; i < node->part_count; i++)
        rvli_value_assign(g, &node->parts[i], NULL);
}

static void run(rvli_graph *g, rvli_node *node)
{
    rvli_value *of[RVLI_INPUTS_MAX] = {NULL};
    bool fetched = rvli_checkpoint_unpack(g, node) || node->host_bytes > 0;
    if (node->host_bytes > 0)
        rvli_fetch(g->t, node->host_holder, node->host_bytes);
    node->backward(g, node, node->gradient, of);
    if (node->frame != NULL ||
        g->offloads) /* saved-tensor hooks: only the function holds the values */
        release_kept(g, node);
    for (int i = 0; i < node->input_count; i++)
        of[i] = fitted(g, node, i, of[i]);
    if (fetched)
        rvli_fetched(g->t);
    release_gradients(g, node);
    release_kept(g, node);
    for (int i = 0; i < node->input_count; i++)
        hand_on(g, &node->input[i], of[i]);
}

static void discard(rvli_graph *g, rvli_node *node)
{
    release_gradients(g, node);
    if (node->frame == NULL)
        release_kept(g, node);
    else
        rvli_frame_release(g, node->frame);
    rvli_items_give(&g->nodes, node);
}

static bool is_reached(const rvli_node *node)
{
    bool reached = node->gradient != NULL;
    for (int i = 0; i < node->part_count; i++)
        reached = reached || node->parts[i] != NULL;
    return reached;
}

void rvli_backward_run(rvli_graph *g, rvli_value *gradient)
{
    if (g->last != NULL)
        g->last->gradient = gradient;
    while (g->last != NULL && !g->stopped) {
        rvli_node *node = g->last;
        if (is_reached(node)) {
            rvli_graph_enter(g, node->unit);
            run(g, node);
        }
        g->last = node->before;
        discard(g, node);
    }
    rvli_backward_forget(g);
}

void rvli_backward_forget(rvli_graph *g)
{
    while (g->last != NULL) {
        rvli_node *node = g->last;
        g->last = node->before;
        discard(g, node);
    }
}
