/* SPDX-License-Identifier: MIT */
/*
 * What each layer is made of: attention over all tokens or over the last ones, a state instead of
 * attention, an MLP or experts.
 *
 * A config says it with a list that has a word for each layer, or with a step (every fourth layer
 * sees all tokens). The list takes precedence.
 */
#include <string.h>

#include "predict/llm/config_values.h"

#define ATTENTION (RVLI_LAYER_ATTENTION | RVLI_LAYER_KEYS)
#define EITHER_MLP (RVLI_LAYER_DENSE | RVLI_LAYER_SPARSE)
#define CUT_LAYERS 10 /* default, for a model with more layers */

/* ---- Attention, or a state instead of it ---- */

/* Words of layer_types, older ones included. An unknown word means attention over all tokens. */
static unsigned kind_of_word(const rvli_reader *r, const char *word)
{
    if (strcmp(word, "sliding_attention") == 0 || strcmp(word, "chunked_attention") == 0)
        return ATTENTION | RVLI_LAYER_WINDOW;
    if (strcmp(word, "linear_attention") == 0 || strcmp(word, "mamba") == 0 ||
        strcmp(word, "conv") == 0)
        return r->family->state;
    return ATTENTION;
}

/* A list with an item for each layer. NULL: no list, or an empty one. */
static const json_t *list_of(rvli_reader *r, const char *key)
{
    const json_t *list = rvli_read_value(r, key);
    if (json_is_array(list) && json_array_size(list) == 0)
        return NULL;
    if (list != NULL && json_array_size(list) != r->model->layers)
        rvli_read_refuse(r, key, "impossible: expected a list with an item for each layer");
    return r->status == RVL_OK ? list : NULL;
}

/* A list of layer numbers. Clears the kinds `no_longer` in these layers, and sets `now`. */
static void read_numbers(rvli_reader *r, const char *key, unsigned no_longer, unsigned now)
{
    const json_t *list = rvli_read_value(r, key);
    if (list != NULL && !json_is_array(list))
        rvli_read_refuse(r, key, "impossible: expected a list of layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0 || layer >= (json_int_t)r->model->layers)
            rvli_read_refuse(r, key, "impossible: expected numbers of layers, from 0");
        else
            r->model->kinds[layer] = (uint16_t)((r->model->kinds[layer] & ~no_longer) | now);
    }
}

static const char *word_of(rvli_reader *r, const char *key, const json_t *list, uint32_t layer)
{
    const char *word = json_string_value(json_array_get(list, layer));
    if (word == NULL)
        rvli_read_refuse(r, key, "impossible: expected a list with a word for each layer");
    return word != NULL ? word : "";
}

static void read_words(rvli_reader *r, const json_t *list)
{
    for (uint32_t layer = 0; layer < r->model->layers; layer++) {
        unsigned kind = kind_of_word(r, word_of(r, "layer_types", list, layer));
        if (kind == 0)
            rvli_read_refuse(r, "layer_types",
                             "not known: a layer with a state, which this family does not have");
        r->model->kinds[layer] = (uint16_t)kind;
    }
}

/* Llama 4: a layer with rotary positions sees one chunk. 0 in the list: no positions, all
 * tokens. */
static void read_rotary(rvli_reader *r, const json_t *list)
{
    for (uint32_t layer = 0; layer < r->model->layers; layer++) {
        const json_t *rotary = json_array_get(list, layer);
        if (!json_is_integer(rotary))
            rvli_read_refuse(r, "no_rope_layers",
                             "impossible: expected a list with 0 or 1 for each layer");
        r->model->kinds[layer] =
            (uint16_t)(json_integer_value(rotary) != 0 ? ATTENTION | RVLI_LAYER_WINDOW : ATTENTION);
    }
}

/* One layer in `step` sees all tokens. */
static void read_step(rvli_reader *r)
{
    const rvli_family *f = r->family;
    uint64_t step = f->full_every;
    if (f->step_key != NULL && step > 0)
        step = rvli_read_number(r, f->step_key, step, RVLI_MODEL_LAYERS_MAX);
    unsigned other = f->state != 0 ? f->state : ATTENTION | RVLI_LAYER_WINDOW;
    uint32_t offset = f->reads & RVLI_FULL_FIRST ? 0 : 1;
    for (uint32_t layer = 0; layer < r->model->layers; layer++)
        r->model->kinds[layer] =
            (uint16_t)(step > 0 && (layer + offset) % step != 0 ? other : (unsigned)ATTENTION);
}

static void read_window(rvli_reader *r)
{
    rvl_model *m = r->model;
    const rvli_family *f = r->family;
    const char *key = f->window_key != NULL ? f->window_key : "sliding_window";
    bool none = json_is_null(json_object_get(r->config, key)) ||
                (rvli_read_value(r, key) == NULL && f->window == 0);
    if (!none && rvli_has_layers(m, RVLI_LAYER_WINDOW))
        m->window = rvli_read_number(r, key, f->window, RVLI_MODEL_DIM_MAX);
    for (uint32_t layer = 0; none && layer < m->layers; layer++)
        m->kinds[layer] &= (uint16_t)~RVLI_LAYER_WINDOW;
}

/* Whether an earlier layer has keys and is of the same type: with a window, or without one. */
static bool finds_keys(const rvl_model *m, uint32_t layer)
{
    for (uint32_t i = 0; i < layer; i++) {
        bool same = ((m->kinds[i] ^ m->kinds[layer]) & RVLI_LAYER_WINDOW) == 0;
        if (same && rvli_layer_is(m, i, RVLI_LAYER_KEYS))
            return true;
    }
    return false;
}

/* Gemma 3n and 4: the last layers use the keys and values of earlier ones. */
static void read_shared_keys(rvli_reader *r)
{
    rvl_model *m = r->model;
    bool none = (r->family->reads & RVLI_SIZED_LAYERS) != 0 &&
                rvli_read_value(r, "num_kv_shared_layers") == NULL;
    uint64_t shared =
        none ? 0 : rvli_read_number_or_zero(r, "num_kv_shared_layers", RVLI_MODEL_LAYERS_MAX);
    if (shared >= m->layers)
        rvli_read_refuse(r, "num_kv_shared_layers", "impossible: no layer is left that has keys");
    for (uint64_t i = 0; i < shared && r->status == RVL_OK; i++)
        m->kinds[m->layers - 1 - i] &= (uint16_t)~RVLI_LAYER_KEYS;
    for (uint64_t i = 0; i < shared && r->status == RVL_OK; i++) {
        uint32_t layer = m->layers - 1 - (uint32_t)i;
        if (!finds_keys(m, layer))
            rvli_read_refuse(r, "num_kv_shared_layers",
                             "impossible: no layer of the same kind has keys for the last ones");
    }
}

/* Gemma 3n: which layers zero gate values below a cutoff. */
static void read_cuts(rvli_reader *r)
{
    rvl_model *m = r->model;
    const json_t *list = list_of(r, "activation_sparsity_pattern");
    for (uint32_t layer = 0; layer < m->layers && r->status == RVL_OK; layer++) {
        const json_t *share = json_array_get(list, layer);
        if (list != NULL && !json_is_number(share))
            rvli_read_refuse(r, "activation_sparsity_pattern",
                             "impossible: expected a list with a number for each layer");
        bool first = m->layers > CUT_LAYERS && layer < CUT_LAYERS;
        if (list != NULL ? json_number_value(share) > 0 : first)
            m->kinds[layer] |= (uint16_t)RVLI_LAYER_CUT;
    }
}

/* Bamba and LFM2 list the numbers of the layers with attention. NULL: the config has no such
 * list. */
static const char *find_attention_numbers(const rvli_reader *r)
{
    static const char *const keys[] = {"attn_layer_indices", "full_attn_idxs"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if ((r->family->reads & RVLI_ATTENTION_NUMBERS) && rvli_read_value(r, keys[i]) != NULL)
            return keys[i];
    }
    return NULL;
}

static void read_attention_numbers(rvli_reader *r, const char *key)
{
    for (uint32_t layer = 0; layer < r->model->layers; layer++)
        r->model->kinds[layer] = (uint16_t)r->family->state;
    read_numbers(r, key, UINT16_MAX, ATTENTION);
}

static void read_attention(rvli_reader *r)
{
    const json_t *words = list_of(r, "layer_types");
    const json_t *rotary = r->family->reads & RVLI_MOE_LIST ? list_of(r, "no_rope_layers") : NULL;
    const char *numbers = find_attention_numbers(r);
    if (words != NULL)
        read_words(r, words);
    else if (numbers != NULL)
        read_attention_numbers(r, numbers);
    else if (rotary != NULL)
        read_rotary(r, rotary);
    else
        read_step(r);
    read_window(r);
    if (r->family->reads &
        RVLI_SIZED_LAYERS) /* Gemma 4's class never gives the last layer a window */
        r->model->kinds[r->model->layers - 1] &= (uint16_t)~RVLI_LAYER_WINDOW;
    for (uint32_t layer = 0; (r->model->features & RVLI_HYBRID) && layer < r->model->layers;
         layer++)
        r->model->kinds[layer] = (uint16_t)(ATTENTION | r->family->state);
    if (r->family->reads & RVLI_SHARED_KEYS)
        read_shared_keys(r);
    if (r->model->features & RVLI_ALTUP)
        read_cuts(r);
}

/* ---- MLP or experts ---- */

static void set_sparse(rvl_model *m, uint32_t layer, bool sparse)
{
    m->kinds[layer] &= (uint16_t)~EITHER_MLP;
    m->kinds[layer] |= sparse ? RVLI_LAYER_SPARSE : RVLI_LAYER_DENSE;
}

static void read_sparse_words(rvli_reader *r, const json_t *list)
{
    for (uint32_t layer = 0; layer < r->model->layers; layer++)
        set_sparse(r->model, layer,
                   strcmp(word_of(r, "mlp_layer_types", list, layer), "sparse") == 0);
}

/* From layer `first` to `last`, those with (layer + offset) % step == 0 have experts. */
typedef struct sparse_step {
    uint64_t first;
    uint64_t last;
    uint64_t step;
    uint64_t offset;
} sparse_step;

static sparse_step read_sparse_step(rvli_reader *r)
{
    uint32_t reads = r->family->reads, max = RVLI_MODEL_LAYERS_MAX;
    sparse_step s = {.last = max, .step = 1};
    if (reads & RVLI_DEEPSEEK) {
        s.first = rvli_read_number_or_zero(r, "first_k_dense_replace", max);
        s.step = rvli_read_number(r, "moe_layer_freq", 1, max);
    } else if (reads & RVLI_SPARSE_STEP) {
        s.step = rvli_read_number(r, "decoder_sparse_step", 1, max);
        s.offset = 1;
    } else if (reads & RVLI_MOE_LIST) {
        s.step = rvli_read_number(r, "interleave_moe_layer_step", 0, max);
        s.offset = 1;
    } else if (reads & RVLI_DENSE_FIRST) {
        s.first = rvli_read_number_or_zero(r, "num_dense_layers", max);
    } else if (reads & RVLI_ERNIE_LAYERS) {
        s.first = rvli_read_number_or_zero(r, "moe_layer_start_index", max);
        s.last = rvli_read_number(r, "moe_layer_end_index", max, max);
        s.step = rvli_read_number(r, "moe_layer_interval", 1, max);
        s.offset = 1;
    }
    return s;
}

static void read_mlp(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint32_t reads = r->family->reads;
    bool worded = (reads & (RVLI_DEEPSEEK | RVLI_MLP_WORDS)) != 0;
    const json_t *words = worded ? list_of(r, "mlp_layer_types") : NULL;
    bool listed = (reads & RVLI_MOE_LIST) != 0 && rvli_read_value(r, "moe_layers") != NULL;
    if (m->experts > 0 && words != NULL) {
        read_sparse_words(r, words);
        return;
    }
    sparse_step s = {.last = 0, .step = 1};
    if (m->experts > 0 && !listed)
        s = read_sparse_step(r);
    for (uint32_t layer = 0; layer < m->layers; layer++)
        set_sparse(m, layer,
                   m->experts > 0 && !listed && layer >= s.first && layer <= s.last &&
                       (layer + s.offset) % s.step == 0);
    for (uint32_t layer = 0; m->experts > 0 && (reads & RVLI_SIZED_LAYERS) && layer < m->layers;
         layer++)
        m->kinds[layer] |= RVLI_LAYER_DENSE; /* beside the experts */
    if (m->experts > 0 && listed)
        read_numbers(r, "moe_layers", EITHER_MLP, RVLI_LAYER_SPARSE);
    else if (m->experts > 0 && (reads & RVLI_SPARSE_STEP))
        read_numbers(r, "mlp_only_layers", EITHER_MLP, RVLI_LAYER_DENSE);
}

/* ---- Layers of one block each ---- */

/* Nemotron-H uses words, or one string with a sign for each block. */
static const struct {
    const char *words[2];
    char sign;
    uint16_t kind;
} blocks[] = {{{"linear_attention", "mamba"}, 'M', RVLI_LAYER_MAMBA},
              {{"full_attention", "attention"}, '*', ATTENTION},
              {{"mlp", "mlp"}, '-', RVLI_LAYER_DENSE},
              {{"moe", "moe"}, 'E', RVLI_LAYER_SPARSE}};

#define BLOCKS "layers_block_type"
#define SIGNS "hybrid_override_pattern"

static uint16_t block_of_word(const char *word)
{
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (strcmp(word, blocks[i].words[0]) == 0 || strcmp(word, blocks[i].words[1]) == 0)
            return blocks[i].kind;
    }
    return 0;
}

static uint16_t block_of_sign(char sign)
{
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (sign == blocks[i].sign)
            return blocks[i].kind;
    }
    return 0;
}

static void read_blocks(rvli_reader *r)
{
    const json_t *list = rvli_read_value(r, BLOCKS);
    const char *signs = json_string_value(rvli_read_value(r, SIGNS));
    for (uint32_t layer = 0; layer < r->model->layers && r->status == RVL_OK; layer++) {
        uint16_t kind = list != NULL ? block_of_word(word_of(r, BLOCKS, list, layer))
                                     : block_of_sign(signs[layer]);
        if (kind == 0)
            rvli_read_refuse(
                r, list != NULL ? BLOCKS : SIGNS,
                "not known: expected blocks of Mamba 2 (M), attention (*), MLP (-) and "
                "experts (E)");
        r->model->kinds[layer] = kind;
    }
    if (r->status == RVL_OK && !rvli_has_layers(r->model, ATTENTION | RVLI_LAYER_MAMBA))
        rvli_read_refuse(r, list != NULL ? BLOCKS : SIGNS,
                         "impossible: no block that keeps anything of a sequence");
}

/* ---- All layers ---- */

void rvli_layers_count(rvli_reader *r)
{
    const char *signs = json_string_value(rvli_read_value(r, SIGNS));
    size_t count = json_array_size(rvli_read_value(r, BLOCKS));
    if ((r->family->reads & RVLI_BLOCK_LIST) == 0) {
        r->model->layers =
            (uint32_t)rvli_read_number(r, "num_hidden_layers", 0, RVLI_MODEL_LAYERS_MAX);
        return;
    }
    if (rvli_read_value(r, BLOCKS) == NULL)
        count = signs != NULL ? strlen(signs) : 0;
    if (count < 1 || count > RVLI_MODEL_LAYERS_MAX)
        rvli_read_refuse(r, SIGNS,
                         "missing: expected the blocks of all layers, 1024 at most, here "
                         "or in " BLOCKS);
    else
        r->model->layers = (uint32_t)count;
}

void rvli_layers_read(rvli_reader *r)
{
    if (r->family->reads & RVLI_BLOCK_LIST)
        read_blocks(r);
    else
        read_attention(r);
}

void rvli_layers_read_mlp(rvli_reader *r)
{
    if ((r->family->reads & RVLI_BLOCK_LIST) == 0)
        read_mlp(r);
}
