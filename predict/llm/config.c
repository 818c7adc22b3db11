/* SPDX-License-Identifier: MIT */
/*
 * Reads a config.json as the row of its family (families.c) says.
 *
 * A missing or null key takes the default of the family's own code, if every published model of the
 * family shares it. Otherwise the config is refused.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "predict/llm/config_values.h"

#define CONFIG_BYTES_MAX (16u << 20)
#define CHUNK_MAX 65536

rvl_status rvli_model_fail(rvl_status status, const char *key, const char *format, ...)
{
    char message[sizeof rvli_error_get()->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    rvli_error(status, message);
    rvli_error_key(key);
    return status;
}

/* ---- Parts of a config ---- */

/* A config may have two tie_word_embeddings. Returns the one that the family's class uses: only the
 * outer one in families where it is true by default. */
static bool is_tied(rvli_reader *r)
{
    const json_t *outer = json_object_get(r->root, "tie_word_embeddings");
    bool usual = (r->family->reads & RVLI_TIED_BY_DEFAULT) != 0;
    if ((r->family->reads & RVLI_OUTER_TIE) && (usual || json_is_boolean(outer)))
        return outer == NULL || json_is_true(outer);
    usual = rvli_read_flag(r, "tie_word_embeddings", usual);
    return r->family->tie_key != NULL ? rvli_read_flag(r, r->family->tie_key, usual) : usual;
}

static void read_sizes(rvli_reader *r)
{
    rvl_model *m = r->model;
    const rvli_family *f = r->family;
    rvli_layers_count(r);
    m->heads = (uint32_t)rvli_read_dimension(r, "num_attention_heads", f->heads);
    m->dim[RVLI_DIM_ONE] = 1;
    m->dim[RVLI_DIM_HEADS] = m->heads;
    m->dim[RVLI_DIM_HIDDEN] = rvli_read_dimension(r, "hidden_size", 0);
    m->dim[RVLI_DIM_VOCABULARY] = rvli_read_dimension(r, "vocab_size", f->vocabulary);
    if (!is_tied(r))
        m->features |= RVLI_HEAD;
}

/* Keys that add tensors to layers, and the families that read them. */
static const struct {
    uint32_t reads;
    const char *key;
    uint64_t features;
} feature_keys[] = {
    {RVLI_READS_ATTENTION_BIAS, "attention_bias", RVLI_QKV_BIAS | RVLI_O_BIAS},
    {RVLI_READS_QKV_BIAS, "attention_bias", RVLI_QKV_BIAS},
    {RVLI_READS_OUT_BIAS, "attention_out_bias", RVLI_O_BIAS},
    {RVLI_READS_MLP_BIAS, "mlp_bias", RVLI_MLP_BIAS},
    {RVLI_READS_USE_BIAS, "use_bias", RVLI_QKV_BIAS | RVLI_O_BIAS | RVLI_MLP_BIAS},
    {RVLI_READS_HEAD_BIAS, "lm_head_bias", RVLI_HEAD_BIAS},
    {RVLI_READS_QK_NORM, "use_qk_norm", RVLI_QK_NORM},
    {RVLI_READS_WIDE_QK_NORM, "use_qk_norm", RVLI_WIDE_QK_NORM},
};

static void read_features(rvli_reader *r)
{
    uint32_t reads = r->family->reads;
    for (size_t i = 0; i < sizeof feature_keys / sizeof feature_keys[0]; i++) {
        const char *key = feature_keys[i].key;
        bool usual = (reads & RVLI_BIASED) != 0 &&
                     (strcmp(key, "attention_bias") == 0 || strcmp(key, "use_bias") == 0);
        if ((reads & feature_keys[i].reads) != 0 && rvli_read_flag(r, key, usual))
            r->model->features |= feature_keys[i].features;
    }
}

/* How many of a head's elements are rotated. */
static uint64_t read_rotary(rvli_reader *r, uint64_t head)
{
    static const char *const places[] = {"rope_parameters", "rope_scaling"};
    const json_t *factor = rvli_read_value(r, "partial_rotary_factor");
    for (size_t i = 0; factor == NULL && i < sizeof places / sizeof places[0]; i++)
        factor = json_object_get(rvli_read_value(r, places[i]), "partial_rotary_factor");
    uint64_t part = rvli_read_dimension(r, "rotary_dim", head);
    uint32_t percent = r->family->rotary_percent;
    double usual = percent > 0 && part == head ? percent / 100.0 : 1;
    double share = json_is_number(factor) ? json_number_value(factor) : usual;
    if (!(share > 0 && share <= 1))
        rvli_read_refuse(r, "partial_rotary_factor", "impossible: expected more than 0, 1 at most");
    else if (part > head)
        rvli_read_refuse(r, "rotary_dim", "impossible: more than a head has");
    else if (share < 1)
        part = (uint64_t)(share * (double)head);
    return part;
}

static void read_grouped_attention(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint64_t heads = m->heads, head = r->family->head_dim;
    bool copied = (r->family->reads & RVLI_KV_HEADS_AS_HEADS) != 0;
    uint64_t kv_heads =
        rvli_read_dimension(r, "num_key_value_heads", copied ? heads : r->family->kv_heads);
    if (head == 0 && rvli_read_value(r, "head_dim") == NULL && m->dim[RVLI_DIM_HIDDEN] % heads != 0)
        rvli_read_refuse(r, "hidden_size", "does not divide by num_attention_heads: add head_dim");
    if (head == 0)
        head = m->dim[RVLI_DIM_HIDDEN] / heads;
    head = rvli_read_dimension(r, "head_dim", head > 0 ? head : 1);
    if (heads % kv_heads != 0)
        rvli_read_refuse(r, "num_key_value_heads",
                         "impossible: num_attention_heads does not divide by it");
    m->kv_heads = (uint32_t)kv_heads;
    m->dim[RVLI_DIM_HEAD] = head;
    if (m->features & RVLI_JOINED_ROTARY)
        m->dim[RVLI_DIM_ROTARY] = read_rotary(r, head);
    m->dim[RVLI_DIM_Q] = rvli_read_product(r, "num_attention_heads", heads, head);
    m->dim[RVLI_DIM_Q_OUT] =
        m->features & RVLI_GATED_Q ? 2 * m->dim[RVLI_DIM_Q] : m->dim[RVLI_DIM_Q];
    m->dim[RVLI_DIM_KV] = rvli_read_product(r, "num_key_value_heads", kv_heads, head);
    m->dim[RVLI_DIM_ATTENDED] = m->dim[RVLI_DIM_Q];
}

static void read_latent_attention(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint64_t plain = rvli_read_dimension(r, "qk_nope_head_dim", 0);
    uint64_t rotary = rvli_read_dimension(r, "qk_rope_head_dim", 0);
    uint64_t value = rvli_read_dimension(r, "v_head_dim", 0);
    uint64_t q_lora = rvli_read_number_or_zero(r, "q_lora_rank", RVLI_MODEL_DIM_MAX);
    if (rvli_read_flag(r, "attention_bias", false))
        rvli_read_refuse(r, "attention_bias", "true is not known for this family: set it to false");
    if (q_lora > 0)
        m->features |= RVLI_Q_LORA;
    m->kv_heads = m->heads;
    m->dim[RVLI_DIM_HEAD] = plain + rotary;
    m->dim[RVLI_DIM_Q_LORA] = q_lora;
    m->dim[RVLI_DIM_KV_LORA] = rvli_read_dimension(r, "kv_lora_rank", 0);
    m->dim[RVLI_DIM_KV_DOWN] = m->dim[RVLI_DIM_KV_LORA] + rotary;
    m->dim[RVLI_DIM_Q] = rvli_read_product(r, "num_attention_heads", m->heads, plain + rotary);
    m->dim[RVLI_DIM_Q_OUT] = m->dim[RVLI_DIM_Q];
    m->dim[RVLI_DIM_KV_UP] = rvli_read_product(r, "num_attention_heads", m->heads, plain + value);
    m->dim[RVLI_DIM_ATTENDED] = rvli_read_product(r, "num_attention_heads", m->heads, value);
}

static void read_indexer(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint64_t heads = rvli_read_dimension(r, "index_n_heads", 0);
    m->dim[RVLI_DIM_INDEX_HEADS] = heads;
    m->dim[RVLI_DIM_INDEX_HEAD] = rvli_read_dimension(r, "index_head_dim", 0);
    m->dim[RVLI_DIM_INDEX] =
        rvli_read_product(r, "index_n_heads", heads, m->dim[RVLI_DIM_INDEX_HEAD]);
    m->dim[RVLI_DIM_INDEX_CHOSEN] = rvli_read_dimension(r, "index_topk", 2048);
    if ((m->features & RVLI_Q_LORA) == 0)
        rvli_read_refuse(r, "q_lora_rank",
                         "missing: the indexer follows from the compressed query");
}

static void read_heads(rvli_reader *r)
{
    if (r->model->features & RVLI_GQA)
        read_grouped_attention(r);
    if (r->model->features & RVLI_MLA)
        read_latent_attention(r);
    if (r->status == RVL_OK && (r->model->features & RVLI_INDEXER))
        read_indexer(r);
}

/* ---- Layers with a state instead of attention ---- */

/* The state's type, under either key. A config without one uses the model's type. */
static void read_state_type(rvli_reader *r)
{
    static const char *const keys[] = {"mamba_ssm_dtype", "mamba_ssm_cache_dtype"};
    r->model->state_bytes = 2;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *type = json_string_value(rvli_read_value(r, keys[i]));
        if (type != NULL && strcmp(type, "float32") == 0)
            r->model->state_bytes = 4;
    }
}

static void read_delta_net(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint64_t key_heads = rvli_read_dimension(r, "linear_num_key_heads", 0);
    uint64_t heads = rvli_read_dimension(r, "linear_num_value_heads", 0);
    uint64_t key = rvli_read_dimension(r, "linear_key_head_dim", 0);
    uint64_t value = rvli_read_dimension(r, "linear_value_head_dim", 0);
    uint64_t kernel = rvli_read_dimension(r, "linear_conv_kernel_dim", 0);
    uint64_t keys = rvli_read_product(r, "linear_num_key_heads", key_heads, key);
    uint64_t values = rvli_read_product(r, "linear_num_value_heads", heads, value);
    m->delta_key_heads = (uint32_t)key_heads;
    m->dim[RVLI_DIM_CONV_KERNEL] = kernel;
    m->dim[RVLI_DIM_DELTA_HEADS] = heads;
    m->dim[RVLI_DIM_DELTA_HEAD] = value;
    m->dim[RVLI_DIM_DELTA_VALUE] = values;
    m->dim[RVLI_DIM_DELTA_CONV] = 2 * keys + values;
    m->dim[RVLI_DIM_DELTA_IN] = 2 * keys + 2 * values;
    m->dim[RVLI_DIM_DELTA_RATES] = 2 * heads;
    (void)rvli_read_product(r, "linear_conv_kernel_dim", kernel, m->dim[RVLI_DIM_DELTA_CONV]);
    m->state_elements = rvli_read_product(r, "linear_key_head_dim", values, key);
}

/* Names of Mamba 2's sizes: Granite's, and Nemotron's for models with one block in each layer. */
typedef struct mamba_keys {
    const char *heads;
    const char *head;
    const char *groups;
    const char *state;
    const char *kernel;
    const char *conv_bias;
    const char *bias;
    const char *chunk;
    uint32_t chunk_default;
} mamba_keys;

static const mamba_keys granite_keys = {"mamba_n_heads",   "mamba_d_head",     "mamba_n_groups",
                                        "mamba_d_state",   "mamba_d_conv",     "mamba_conv_bias",
                                        "mamba_proj_bias", "mamba_chunk_size", 256};
static const mamba_keys nemotron_keys = {"mamba_num_heads", "mamba_head_dim", "n_groups",
                                         "ssm_state_size",  "conv_kernel",    "use_conv_bias",
                                         "use_bias",        "chunk_size",     128};

static void read_mamba(rvli_reader *r)
{
    rvl_model *m = r->model;
    const mamba_keys *k = r->family->reads & RVLI_BLOCK_LIST ? &nemotron_keys : &granite_keys;
    uint64_t heads = rvli_read_dimension(r, k->heads, 0);
    uint64_t inner = rvli_read_product(r, k->heads, heads, rvli_read_dimension(r, k->head, 0));
    uint64_t groups = rvli_read_dimension(r, k->groups, 0);
    uint64_t state = rvli_read_dimension(r, k->state, 0);
    uint64_t kernel = rvli_read_dimension(r, k->kernel, 0);
    uint64_t shared = rvli_read_product(r, k->groups, 2 * groups, state);
    m->mamba_groups = (uint32_t)groups;
    m->dim[RVLI_DIM_CONV_KERNEL] = kernel;
    m->dim[RVLI_DIM_MAMBA_HEADS] = heads;
    m->dim[RVLI_DIM_MAMBA_INNER] = inner;
    m->dim[RVLI_DIM_MAMBA_CONV] = inner + shared;
    m->dim[RVLI_DIM_MAMBA_IN] = 2 * inner + shared + heads;
    m->mamba_group_width = 2 * state;
    m->mamba_chunk = rvli_read_number(r, k->chunk, k->chunk_default, CHUNK_MAX);
    (void)rvli_read_product(r, k->kernel, kernel, inner + shared);
    m->state_elements = rvli_read_product(r, k->state, inner, state);
    if (rvli_read_flag(r, k->conv_bias, true))
        m->features |= RVLI_CONV_BIAS;
    if (rvli_read_flag(r, k->bias, false))
        rvli_read_refuse(r, k->bias, "true is not known for this family: set it to false");
}

/* Falcon-H1 gives Mamba's width a second time, and has options for a norm and biases that are not
 * supported. */
static void check_hybrid(rvli_reader *r)
{
    static const char *const unknown[] = {"mamba_rms_norm", "projectors_bias"};
    uint64_t inner = r->model->dim[RVLI_DIM_MAMBA_INNER];
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        if (rvli_read_flag(r, unknown[i], false))
            rvli_read_refuse(r, unknown[i], "true is not known for this family: set it to false");
    }
    if (r->status == RVL_OK && rvli_read_dimension(r, "mamba_d_ssm", (uint32_t)inner) != inner)
        rvli_read_refuse(r, "mamba_d_ssm", "impossible: not mamba_n_heads times mamba_d_head");
}

static void read_short_conv(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint64_t kernel = rvli_read_dimension(r, "conv_L_cache", 3);
    m->dim[RVLI_DIM_CONV_KERNEL] = kernel;
    m->dim[RVLI_DIM_THREE_HIDDEN] = rvli_read_product(r, "hidden_size", 3, m->dim[RVLI_DIM_HIDDEN]);
    (void)rvli_read_product(r, "conv_L_cache", kernel, m->dim[RVLI_DIM_HIDDEN]);
    if (rvli_read_flag(r, "conv_bias", false))
        rvli_read_refuse(r, "conv_bias", "true is not known for this family: set it to false");
}

static void read_state(rvli_reader *r)
{
    read_state_type(r);
    if (rvli_has_layers(r->model, RVLI_LAYER_CONV))
        read_short_conv(r);
    if (rvli_has_layers(r->model, RVLI_LAYER_DELTA))
        read_delta_net(r);
    if (rvli_has_layers(r->model, RVLI_LAYER_MAMBA))
        read_mamba(r);
    if (r->model->features & RVLI_HYBRID)
        check_hybrid(r);
}

/* ---- Experts ---- */

static void read_shared_expert(rvli_reader *r)
{
    rvl_model *m = r->model;
    const rvli_family *f = r->family;
    uint64_t size = 0, expert = m->dim[RVLI_DIM_EXPERT_INTERMEDIATE];
    if (f->reads & RVLI_SHARED_AS_ONE)
        size = expert;
    else if (f->shared_size != NULL && (f->features & RVLI_SHARED))
        size = rvli_read_dimension(r, f->shared_size, 0);
    else if (f->shared_size != NULL)
        size = rvli_read_number_or_zero(r, f->shared_size, RVLI_MODEL_DIM_MAX);
    else if (f->shared != NULL)
        size = rvli_read_product(
            r, f->shared, rvli_read_number_or_zero(r, f->shared, RVLI_MODEL_EXPERTS_MAX), expert);
    m->dim[RVLI_DIM_SHARED_INTERMEDIATE] = size;
    if (size > 0)
        m->features |= RVLI_SHARED;
}

/* DeepSeek's routers first choose groups of experts. */
static void read_groups(rvli_reader *r)
{
    rvl_model *m = r->model;
    const uint64_t grouped = RVLI_FULL_ROUTER | RVLI_ROUTER_BIAS;
    uint64_t usual = r->family->groups > 0 ? r->family->groups : 1;
    m->dim[RVLI_DIM_EXPERT_GROUPS] = 1;
    if ((m->features & grouped) != grouped || (m->features & RVLI_SHARED_FIRST) != 0)
        return;
    bool said = rvli_read_value(r, "n_group") != NULL;
    uint64_t groups = said ? rvli_read_number_or_zero(r, "n_group", RVLI_MODEL_EXPERTS_MAX) : usual;
    m->dim[RVLI_DIM_EXPERT_GROUPS] = groups > 0 ? groups : 1;
    if (said && m->experts % m->dim[RVLI_DIM_EXPERT_GROUPS] != 0)
        rvli_read_refuse(r, "n_group", "impossible: the experts do not divide by it");
}

static void read_experts(rvli_reader *r)
{
    rvl_model *m = r->model;
    const rvli_family *f = r->family;
    const char *chosen = f->chosen != NULL ? f->chosen : "num_experts_per_tok";
    bool blocks = (f->reads & RVLI_BLOCK_LIST) != 0, sized = (f->reads & RVLI_SIZED_LAYERS) != 0;
    if (f->experts == NULL || (blocks && !rvli_has_layers(m, RVLI_LAYER_SPARSE)))
        return;
    if (sized && !rvli_read_flag(r, "enable_moe_block", false))
        return;
    m->experts = (uint32_t)(f->reads & RVLI_OR_DENSE
                                ? rvli_read_number_or_zero(r, f->experts, RVLI_MODEL_EXPERTS_MAX)
                                : rvli_read_number(r, f->experts, 0, RVLI_MODEL_EXPERTS_MAX));
    if (m->experts == 0)
        return;
    m->experts_per_token = (uint32_t)rvli_read_number(r, chosen, 0, RVLI_MODEL_EXPERTS_MAX);
    if (m->experts_per_token > m->experts)
        rvli_read_refuse(r, chosen, "impossible: more than there are experts");
    if ((uint64_t)m->experts * m->layers > RVLI_MODEL_ALL_EXPERTS_MAX)
        rvli_read_refuse(r, f->experts,
                         "impossible: more than 131072 experts in all layers together");
    if (rvli_read_value(r, "moe_latent_size") != NULL)
        rvli_read_refuse(r, "moe_latent_size", "not known: experts of a latent size");
    m->dim[RVLI_DIM_EXPERTS] = m->experts;
    if ((f->reads & RVLI_EXPERT_CHOICE_BIAS) && rvli_read_flag(r, "use_expert_bias", true))
        m->features |= RVLI_ROUTER_BIAS;
    m->dim[RVLI_DIM_EXPERT_INTERMEDIATE] = rvli_read_dimension(r, f->expert_size, 0);
    read_shared_expert(r);
    read_groups(r);
}

/* ---- What only some models have ---- */

/* LFM2's MLP has two thirds of the configured size, times a factor, rounded up to a multiple. */
static uint64_t read_adjusted_size(rvli_reader *r)
{
    uint64_t plain = rvli_read_value(r, "block_ff_dim") != NULL
                         ? rvli_read_dimension(r, "block_ff_dim", 0)
                         : rvli_read_dimension(r, "intermediate_size", 0);
    const json_t *factor = rvli_read_value(r, "block_ffn_dim_multiplier");
    uint64_t step = rvli_read_dimension(r, "block_multiple_of", 256);
    double times = json_is_number(factor) ? json_number_value(factor) : 1;
    uint64_t two_thirds = 2 * plain / 3;
    if (!rvli_read_flag(r, "block_auto_adjust_ff_dim", true))
        return plain;
    if (!(times > 0 && times <= 16))
        rvli_read_refuse(r, "block_ffn_dim_multiplier",
                         "impossible: expected more than 0, 16 at most");
    else
        plain = rvli_round_up((uint64_t)(times * (double)two_thirds), step);
    if (plain == 0 || plain > RVLI_MODEL_DIM_MAX)
        rvli_read_refuse(r, "block_multiple_of", "impossible: the MLP has no width that is known");
    return plain;
}

static void read_dense_size(rvli_reader *r)
{
    const char *key = r->family->dense_size;
    if (r->family->reads & RVLI_LFM_SIZES)
        r->model->dim[RVLI_DIM_INTERMEDIATE] = read_adjusted_size(r);
    else if (rvli_has_layers(r->model, RVLI_LAYER_DENSE))
        r->model->dim[RVLI_DIM_INTERMEDIATE] =
            rvli_read_dimension(r, key != NULL ? key : "intermediate_size", 0);
}

void rvli_read_per_layer(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint64_t each = rvli_read_dimension(r, "hidden_size_per_layer_input", 256);
    m->dim[RVLI_DIM_PER_LAYER] = each;
    m->dim[RVLI_DIM_PER_LAYER_ALL] =
        rvli_read_product(r, "hidden_size_per_layer_input", m->layers, each);
    m->dim[RVLI_DIM_PER_LAYER_VOCABULARY] =
        rvli_read_dimension(r, "vocab_size_per_layer_input", 262144);
}

/* Gemma 3n has several streams of hidden states, and an embedding of each token for each layer. */
static void read_streams(rvli_reader *r)
{
    rvl_model *m = r->model;
    uint64_t streams = rvli_read_number(r, "altup_num_inputs", 4, 64);
    m->dim[RVLI_DIM_ALTUP_COUNT] = streams;
    m->dim[RVLI_DIM_ALTUP_SQUARED] = streams * streams;
    m->dim[RVLI_DIM_ALTUP_OTHERS] =
        rvli_read_product(r, "altup_num_inputs", streams - 1, m->dim[RVLI_DIM_HIDDEN]);
    m->dim[RVLI_DIM_LAUREL] = rvli_read_dimension(r, "laurel_rank", 64);
    rvli_read_per_layer(r);
}

/* A share from 0 to 1. */
static bool is_above_zero(rvli_reader *r, const char *key)
{
    const json_t *share = rvli_read_value(r, key);
    bool known = share == NULL || (json_is_number(share) && json_number_value(share) >= 0 &&
                                   json_number_value(share) <= 1);
    if (!known)
        rvli_read_refuse(r, key, "impossible: expected a number from 0 to 1");
    return known && json_number_value(share) > 0;
}

static void read_dropout(rvli_reader *r)
{
    if (is_above_zero(r, "residual_dropout"))
        r->model->features |= RVLI_DROPOUT;
    if (is_above_zero(r, "embedding_dropout"))
        r->model->features |= RVLI_INPUT_DROPOUT;
}

static void read_rest(rvli_reader *r)
{
    rvl_model *m = r->model;
    read_dense_size(r);
    if (r->family->reads & RVLI_READS_DROPOUT)
        read_dropout(r);
    if ((m->features & RVLI_PLAIN_NORM) &&
        json_is_null(json_object_get(r->config, "final_logit_softcapping")))
        m->features &= ~RVLI_CAPPED_LOGITS;
    if ((m->features & RVLI_SPARSE_MIXER) && is_above_zero(r, "input_jitter_noise"))
        m->features |= RVLI_JITTER;
    if ((m->features & RVLI_SPARSE_MIXER) && m->experts_per_token != 2)
        rvli_read_refuse(r, "num_experts_per_tok", "not known for this family: expected 2");
    if (m->features & RVLI_ALTUP)
        read_streams(r);
    if ((m->features & RVLI_QK_L2_NORM) && !rvli_read_flag(r, "use_qk_norm", true))
        m->features &= ~RVLI_QK_L2_NORM;
    const char *activation = json_string_value(rvli_read_value(r, "hidden_act"));
    if ((m->features & RVLI_XIELU) && activation != NULL && strcmp(activation, "xielu") != 0)
        rvli_read_refuse(r, "hidden_act", "not known for this family: expected xielu");
    const char *positions = json_string_value(rvli_read_value(r, "position_embedding_type"));
    bool rotary = positions != NULL && strcmp(positions, "rope") == 0;
    if ((r->family->reads & RVLI_ROTARY_IF_SAID) && !rotary)
        m->features |= RVLI_NO_ROTARY;
    /* With biases, ERNIE's class with experts also has a bias in the head. */
    if ((r->family->reads & RVLI_ERNIE_LAYERS) && (m->features & RVLI_MLP_BIAS))
        m->features |= RVLI_HEAD_BIAS;
}

/* ---- The model ---- */

/* The quantization_config beside the sizes, else the one at the top level. */
static const json_t *quantisation_of(const rvli_reader *r)
{
    const json_t *own = rvli_read_value(r, "quantization_config");
    const json_t *top = json_object_get(r->root, "quantization_config");
    return own != NULL || json_is_null(top) ? own : top;
}

/* In order: each part uses the results of those before it. */
static void (*const parts[])(rvli_reader *r) = {
    read_sizes,   read_features,        read_heads, rvli_layers_read,      read_state,
    read_experts, rvli_layers_read_mlp, read_rest,  rvli_layer_sizes_read, rvli_tower_read};

static rvl_status read_model(rvli_reader *r)
{
    rvl_model *m = r->model;
    m->type = r->family->type;
    m->features = r->family->features;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && r->status == RVL_OK; i++)
        parts[i](r);
    if (r->status == RVL_OK)
        rvli_quantisation_read(quantisation_of(r), m);
    if (r->status != RVL_OK)
        return r->status;
    m->parameters = rvli_model_count(m) + rvli_tower_count(m);
    if (m->parameters > RVLI_MODEL_PARAMETERS_MAX)
        rvli_read_refuse(r, "hidden_size",
                         "impossible: these sizes make more than 2^48 parameters");
    return r->status;
}

/* ---- The family ---- */

static rvl_status unknown_family(const char *type)
{
    size_t count = 0;
    while (rvl_model_family(count) != NULL)
        count++;
    return rvli_model_fail(
        RVL_ERR_INVALID, "model_type",
        "%.40s is not known: expected one of the %zu families that docs/model.md "
        "lists, such as llama, qwen3 or deepseek_v3; `reveille run` and `reveille "
        "snapshot` need no family",
        type, count);
}

static rvl_status find_family(rvli_reader *r)
{
    const json_t *type = json_object_get(r->config, "model_type");
    if (type == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "model_type",
                               "missing: take the config.json that lies beside the weights");
    if (!json_is_string(type))
        return rvli_model_fail(RVL_ERR_INVALID, "model_type", "impossible: expected a string");
    r->family = rvli_family_find(json_string_value(type));
    return r->family != NULL ? RVL_OK : unknown_family(json_string_value(type));
}

/* Whether the text's model_type, if there is one, is a language model that the family may
 * contain. */
static bool is_known_text(const rvli_reader *r, const json_t *text)
{
    const char *type = json_string_value(json_object_get(text, "model_type"));
    size_t length = type != NULL ? strlen(type) : 0;
    const char *at = type != NULL ? strstr(r->family->text_types, type) : NULL;
    bool begins = at == r->family->text_types || (at != NULL && at[-1] == ' ');
    return type == NULL || (length > 0 && begins && at[length] == ',');
}

/* Continues in the language model's object. The rest of the config is ignored. */
static rvl_status enter_text_config(rvli_reader *r)
{
    const json_t *text = rvli_read_value(r, "text_config");
    if (text == NULL && (r->family->reads & RVLI_OR_FLAT))
        return RVL_OK;
    if (!json_is_object(text))
        return rvli_model_fail(RVL_ERR_INVALID, "text_config",
                               "missing: expected an object with the language model's sizes");
    if (!is_known_text(r, text))
        return rvli_model_fail(RVL_ERR_INVALID, "text_config",
                               "its model_type is not known in a %s: expected one of %.*s",
                               r->family->type, (int)strlen(r->family->text_types) - 1,
                               r->family->text_types);
    r->config = text;
    return RVL_OK;
}

static rvl_status read_root(rvli_reader *r)
{
    rvl_status status = find_family(r);
    r->root = r->config;
    if (status == RVL_OK && (r->family->reads & RVLI_TEXT_CONFIG))
        status = enter_text_config(r);
    return status == RVL_OK ? read_model(r) : status;
}

static rvl_status no_json(const json_error_t *json)
{
    /* jansson leaves the text empty when it is out of memory. */
    bool memory = json->text[0] == '\0' || json_error_code(json) == json_error_out_of_memory;
    rvl_status status =
        rvli_model_fail(memory ? RVL_ERR_HOST_OOM : RVL_ERR_INVALID, "",
                        "not a JSON object: %.160s; expected a config.json", json->text);
    if (json->line > 0)
        rvli_error_place("", (uint32_t)json->line, 0);
    return status;
}

rvl_status rvl_model_parse(const char *text, size_t length, rvl_model **model_out)
{
    json_error_t json;
    if (text == NULL || model_out == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "", "the text or the output is NULL");
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &json);
    if (root == NULL)
        return no_json(&json);
    rvl_model *model = calloc(1, sizeof *model);
    if (model != NULL)
        model->remembered = rvli_remembered_new();
    rvli_reader r = {.config = root, .model = model};
    rvl_status status =
        model == NULL || model->remembered == NULL
            ? rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a model")
        : !json_is_object(root)
            ? rvli_model_fail(RVL_ERR_INVALID, "", "not a JSON object: expected a config.json")
            : read_root(&r);
    json_decref(root);
    if (status != RVL_OK) {
        rvl_model_close(model);
        return status;
    }
    *model_out = model;
    return RVL_OK;
}

/* ---- Files ---- */

static rvl_status cannot_read(int number)
{
    char why[128];
    rvl_status status =
        number == EISDIR ? rvli_model_fail(RVL_ERR_IO, "", "a folder: name the config.json in it")
                         : rvli_model_fail(RVL_ERR_IO, "", "the config cannot be read: %s",
                                           strerror_r(number, why, sizeof why));
    rvli_error_errno(number);
    return status;
}

static rvl_status read_stream(FILE *file, char **text_out, size_t *length_out)
{
    char *text = malloc(CONFIG_BYTES_MAX + 1);
    if (text == NULL)
        return rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a config");
    size_t length = fread(text, 1, CONFIG_BYTES_MAX + 1, file);
    rvl_status status = RVL_OK;
    if (ferror(file))
        status = cannot_read(errno);
    else if (length > CONFIG_BYTES_MAX)
        status = rvli_model_fail(RVL_ERR_INVALID, "",
                                 "more than 16 MiB: no config is; name a config.json");
    if (status != RVL_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    *length_out = length;
    return RVL_OK;
}

static rvl_status read_file(const char *path, char **text_out, size_t *length_out)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        int number = errno;
        char why[128];
        rvl_status status = rvli_model_fail(RVL_ERR_IO, "", "the config cannot be opened: %s",
                                            strerror_r(number, why, sizeof why));
        rvli_error_errno(number);
        return status;
    }
    rvl_status status = read_stream(file, text_out, length_out);
    fclose(file);
    return status;
}

rvl_status rvl_model_open(const char *path, rvl_model **model_out)
{
    char *text = NULL;
    size_t length = 0;
    if (path == NULL || model_out == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "", "the path or the output is NULL");
    rvl_status status = read_file(path, &text, &length);
    if (status == RVL_OK)
        status = rvl_model_parse(text, length, model_out);
    free(text);
    if (status != RVL_OK)
        rvli_error_place(path, rvli_error_get()->line, 0);
    return status;
}

void rvl_model_close(rvl_model *model)
{
    if (model == NULL)
        return;
    rvli_remembered_free(model->remembered);
    free(model);
}

const char *rvl_model_type(const rvl_model *model)
{
    return model != NULL ? model->type : "?";
}

uint64_t rvl_model_parameter_count(const rvl_model *model)
{
    return model != NULL ? model->parameters : 0;
}

/* ---- Tensors by name ---- */

typedef struct naming {
    rvl_model_tensor_fn fn;
    void *user;
} naming;

static void name_tensor(void *user, const rvli_tensor *tensor)
{
    const naming *n = user;
    rvl_model_tensor named = {.struct_size = sizeof named,
                              .layer = tensor->layer,
                              .rows = tensor->rows,
                              .columns = tensor->columns};
    rvli_tensor_name(tensor->pattern, tensor->layer, tensor->expert, named.name, sizeof named.name);
    n->fn(n->user, &named);
}

void rvl_model_visit_tensors(const rvl_model *model, rvl_model_tensor_fn fn, void *user)
{
    naming n = {fn, user};
    if (model == NULL || fn == NULL)
        return;
    rvli_model_walk(model, name_tensor, &n);
    rvli_tower_walk(model, name_tensor, &n);
}
