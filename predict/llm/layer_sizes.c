/* SPDX-License-Identifier: MIT */
/*
 * Sizes that differ from layer to layer (Gemma 4).
 *
 * Layers that see all tokens have larger heads, and may have fewer heads for keys and values. Their
 * values may come from the projection that makes their keys. Layers that use the keys of other
 * layers may have an MLP twice as wide.
 */
#include <stdlib.h>
#include <string.h>

#include "predict/llm/config_values.h"

#define FULL_HEAD 512 /* default of the family's class */

/* ---- Looking up ---- */

static rvli_dim wide_twin(rvli_dim dim)
{
    switch (dim) {
    case RVLI_DIM_HEAD:
        return RVLI_DIM_WIDE_HEAD;
    case RVLI_DIM_Q:
    case RVLI_DIM_Q_OUT:
    case RVLI_DIM_ATTENDED:
        return RVLI_DIM_WIDE_Q;
    case RVLI_DIM_KV:
        return RVLI_DIM_WIDE_KV;
    default:
        return dim;
    }
}

uint64_t rvli_layer_dim(const rvl_model *model, uint32_t layer, rvli_dim dim)
{
    if (layer >= model->layers)
        return model->dim[dim];
    if (rvli_layer_is(model, layer, RVLI_LAYER_WIDE_HEADS))
        dim = wide_twin(dim);
    if (rvli_layer_is(model, layer, RVLI_LAYER_WIDE_MLP) && dim == RVLI_DIM_INTERMEDIATE)
        dim = RVLI_DIM_WIDE_INTERMEDIATE;
    return model->dim[dim];
}

uint32_t rvli_layer_kv_heads(const rvl_model *model, uint32_t layer)
{
    bool wide = layer < model->layers && rvli_layer_is(model, layer, RVLI_LAYER_WIDE_HEADS);
    return wide ? model->wide_kv_heads : model->kv_heads;
}

uint64_t rvli_rank_kv_heads(const rvl_model *model, const rvli_plan *plan, uint32_t layer)
{
    uint64_t heads = rvli_layer_kv_heads(model, layer), tp = plan->options.tp;
    return heads > tp ? heads / tp : 1;
}

/* ---- Reading ---- */

/* A full layer's replacement for head_dim and num_key_value_heads. */
typedef struct override {
    uint64_t head;
    uint64_t kv_heads;
} override;

static override read_override(rvli_reader *r, const json_t *entry)
{
    const json_t *outer = r->config;
    r->config = entry;
    override found = {rvli_read_dimension(r, "head_dim", r->model->dim[RVLI_DIM_HEAD]),
                      rvli_read_dimension(r, "num_key_value_heads", r->model->kv_heads)};
    r->config = outer;
    return found;
}

/* The entry of a layer. Its number may begin with zeros. NULL: the layer has no entry. */
static const json_t *entry_of(const json_t *entries, uint32_t layer)
{
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)entries, key, entry)
    {
        char *end;
        unsigned long number = strtoul(key, &end, 10);
        if (*key >= '0' && *key <= '9' && *end == '\0' && number == layer)
            return entry;
    }
    return NULL;
}

/* Reads sizes by layer number, the format in which transformers 5.17 saves a config. */
static override read_entries(rvli_reader *r, const json_t *entries)
{
    const rvl_model *m = r->model;
    override first = {m->dim[RVLI_DIM_HEAD], m->kv_heads};
    size_t known = 0;
    bool any = false;
    for (uint32_t layer = 0; layer < m->layers && r->status == RVL_OK; layer++) {
        const json_t *entry = entry_of(entries, layer);
        known += json_is_object(entry);
        override found = read_override(r, entry);
        bool full = !rvli_layer_is(m, layer, RVLI_LAYER_WINDOW);
        override expected = full && any ? first : found;
        if (full && !any)
            first = found;
        else if (!full)
            expected = (override){m->dim[RVLI_DIM_HEAD], m->kv_heads};
        any = any || full;
        if (found.head != expected.head || found.kv_heads != expected.kv_heads)
            rvli_read_refuse(r, "per_layer_config",
                             "not known: expected the same sizes for all layers of full attention, "
                             "and none for others");
    }
    if (r->status == RVL_OK && known != json_object_size(entries))
        rvli_read_refuse(r, "per_layer_config",
                         "impossible: expected an object for numbers of layers, from 0");
    return first;
}

static override read_full(rvli_reader *r)
{
    const json_t *entries = rvli_read_value(r, "per_layer_config");
    override full = {rvli_read_dimension(r, "global_head_dim", FULL_HEAD), r->model->kv_heads};
    if (json_is_object(entries))
        return read_entries(r, entries);
    if (entries != NULL)
        rvli_read_refuse(r, "per_layer_config",
                         "impossible: expected an object for numbers of layers, from 0");
    if (rvli_has_layers(r->model, RVLI_LAYER_KEYS_AS_VALUES))
        full.kv_heads = rvli_read_dimension(r, "num_global_key_value_heads", full.kv_heads);
    return full;
}

static void read_heads(rvli_reader *r)
{
    rvl_model *m = r->model;
    bool as_values = rvli_read_flag(r, "attention_k_eq_v", false);
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        if (rvli_layer_is(m, layer, RVLI_LAYER_WINDOW))
            continue;
        m->kinds[layer] |= RVLI_LAYER_WIDE_HEADS;
        if (as_values && rvli_layer_is(m, layer, RVLI_LAYER_KEYS))
            m->kinds[layer] |= RVLI_LAYER_KEYS_AS_VALUES;
    }
    override full = read_full(r);
    if (m->heads % full.kv_heads != 0)
        rvli_read_refuse(r, "num_global_key_value_heads",
                         "impossible: num_attention_heads does not divide by it");
    m->wide_kv_heads = (uint32_t)full.kv_heads;
    m->dim[RVLI_DIM_WIDE_HEAD] = full.head;
    m->dim[RVLI_DIM_WIDE_Q] = rvli_read_product(r, "global_head_dim", m->heads, full.head);
    m->dim[RVLI_DIM_WIDE_KV] = rvli_read_product(r, "global_head_dim", full.kv_heads, full.head);
}

static void read_wide_mlp(rvli_reader *r)
{
    rvl_model *m = r->model;
    if (!rvli_read_flag(r, "use_double_wide_mlp", false))
        return;
    m->dim[RVLI_DIM_WIDE_INTERMEDIATE] =
        rvli_read_product(r, "intermediate_size", 2, m->dim[RVLI_DIM_INTERMEDIATE]);
    for (uint32_t layer = 0; layer < m->layers; layer++) {
        if (!rvli_layer_is(m, layer, RVLI_LAYER_KEYS))
            m->kinds[layer] |= RVLI_LAYER_WIDE_MLP;
    }
}

/* Embeddings of each token for each layer, unless their size is 0 or null. */
static void read_embeddings(rvli_reader *r)
{
    rvl_model *m = r->model;
    const json_t *said = json_object_get(r->config, "hidden_size_per_layer_input");
    if ((m->features & RVLI_PER_LAYER) == 0)
        return;
    if (json_is_null(said) || (json_is_integer(said) && json_integer_value(said) == 0))
        m->features &= ~RVLI_PER_LAYER;
    else
        rvli_read_per_layer(r);
}

void rvli_layer_sizes_read(rvli_reader *r)
{
    const char *both = json_string_value(rvli_read_value(r, "use_bidirectional_attention"));
    if ((r->family->reads & RVLI_SIZED_LAYERS) == 0)
        return;
    if (both != NULL && strcmp(both, "all") == 0)
        rvli_read_refuse(r, "use_bidirectional_attention",
                         "not known: a model that sees later tokens; expected null or vision");
    if (rvli_read_value(r, "final_logit_softcapping") != NULL)
        r->model->features |= RVLI_CAPPED_LOGITS;
    read_heads(r);
    read_wide_mlp(r);
    read_embeddings(r);
}
