/* SPDX-License-Identifier: MIT */
/*
 * Values and the blocks that they share, with reference counts. Thousands of them are made and
 * freed, so they come from pools.
 */
#include "predict/llm/graph/graph.h"
#include "predict/llm/graph/items.h"

uint64_t rvli_shape_bytes(const rvli_shape *shape)
{
    return shape->elements * shape->element_bytes;
}

static rvli_value *take(rvli_graph *g, const rvli_shape *shape, rvli_storage *storage)
{
    rvli_value *value = rvli_items_take(&g->values, &g->t->tape.failed);
    if (value == NULL) {
        g->stopped = true;
        rvli_storage_release(g, storage);
        return NULL;
    }
    *value = (rvli_value){.refs = 1, .shape = *shape, .storage = storage};
    return value;
}

/* Takes over the block, and drops it if there is no host memory for the storage. */
static rvli_storage *store(rvli_graph *g, rvli_block block)
{
    rvli_storage *storage = rvli_items_take(&g->storages, &g->t->tape.failed);
    if (storage == NULL)
        rvli_drop(&g->t->tape, block);
    else
        *storage = (rvli_storage){.refs = 1, .block = block};
    return storage;
}

rvli_value *rvli_value_make(rvli_graph *g, const rvli_shape *shape)
{
    if (g->stopped)
        return NULL;
    rvli_storage *storage =
        store(g, rvli_take(&g->t->tape, shape->holder, rvli_shape_bytes(shape)));
    g->stopped = storage == NULL || g->t->tape.failed;
    return storage != NULL ? take(g, shape, storage) : NULL;
}

rvli_value *rvli_value_view(rvli_graph *g, const rvli_value *of, const rvli_shape *shape)
{
    if (g->stopped || of == NULL)
        return NULL;
    if (of->storage != NULL)
        of->storage->refs++;
    rvli_value *view = take(g, shape, of->storage);
    if (view != NULL)
        view->is_view = of->is_view;
    return view;
}

rvli_value *rvli_value_adopt(rvli_graph *g, rvli_block *block)
{
    const rvli_shape bytes = {
        .elements = rvli_bytes_of(*block), .element_bytes = 1, .holder = RVL_MODEL_ACTIVATIONS};
    if (*block == NULL)
        return NULL;
    rvli_storage *storage = store(g, *block);
    *block = NULL;
    return storage != NULL ? take(g, &bytes, storage) : NULL;
}

rvli_value *rvli_value_leaf(rvli_graph *g, uint32_t index, uint64_t width)
{
    const rvli_parameter *parameter = &g->t->parameters[index];
    const rvli_shape shape = {.elements = parameter->elements,
                              .width = width != 0 ? width : parameter->elements,
                              .element_bytes = (uint8_t)parameter->element_bytes,
                              .holder = RVL_MODEL_GRADIENTS};
    rvli_value *value = g->stopped ? NULL : take(g, &shape, NULL);
    if (value == NULL)
        return NULL;
    value->leaf = index + 1;
    value->learns = parameter->trained;
    return value;
}

rvli_value *rvli_value_parameter(rvli_graph *g, rvli_role role)
{
    uint32_t index = g->t->units[g->unit].by_role[role];
    return index != 0 ? rvli_value_leaf(g, index - 1, 0) : NULL;
}

rvli_value *rvli_value_retain(rvli_value *value)
{
    if (value != NULL)
        value->refs++;
    return value;
}

void rvli_value_release(rvli_graph *g, rvli_value *value)
{
    if (value == NULL || --value->refs > 0)
        return;
    rvli_storage_release(g, value->storage);
    rvli_items_give(&g->values, value);
}

void rvli_value_assign(rvli_graph *g, rvli_value **variable, rvli_value *value)
{
    rvli_value *before = *variable;
    *variable = value;
    rvli_value_release(g, before);
}

void rvli_storage_release(rvli_graph *g, rvli_storage *storage)
{
    if (storage == NULL || --storage->refs > 0)
        return;
    rvli_release(g->t, &storage->block);
    rvli_items_give(&g->storages, storage);
}

void rvli_work(rvli_graph *g, uint64_t bytes)
{
    if (g->stopped)
        return;
    rvli_block works = rvli_activation(g->t, bytes);
    rvli_release(g->t, &works);
}
