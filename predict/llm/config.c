/* SPDX-License-Identifier: MIT */
/*
 * Reading a config.json: one row a family says what its layers have and under which names its
 * config keeps the sizes that families call differently.
 *
 * A key that is missing, or null, takes the default of the family's own code where every published
 * model of the family shares it; where not, the config is refused.
 */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "predict/llm/llm_internal.h"

#define CONFIG_BYTES_MAX (16u << 20)

/* What a family's config says that others' do not. */
enum {
    READS_ATTENTION_BIAS = 1 << 0, /* of q, k, v and o alike */
    READS_MLP_BIAS = 1 << 1,
    TIED_BY_DEFAULT = 1 << 2,
    TEXT_CONFIG = 1 << 3, /* the language model's keys are one level down */
    SPARSE_STEP = 1 << 4, /* decoder_sparse_step, mlp_only_layers */
    DEEPSEEK = 1 << 5,
    KV_HEADS_AS_HEADS = 1 << 6, /* where the config does not give them */
    OR_FLAT = 1 << 7,           /* TEXT_CONFIG: or at the top, as older configs have them */
};

typedef struct family {
    const char *type;
    uint32_t features;
    uint32_t reads;
    uint32_t head_dim; /* default; 0: hidden size over heads */
    uint32_t heads;    /* defaults; 0: needed */
    uint32_t kv_heads;
    uint32_t vocabulary;     /* 0: needed */
    const char *experts;     /* key; NULL: a dense family */
    const char *expert_size; /* key of an expert's intermediate size */
    const char *text_types;  /* TEXT_CONFIG: model_types that may be there, each with a comma */
} family;

static const family families[] = {
    {"llama", RVLI_GQA, READS_ATTENTION_BIAS | READS_MLP_BIAS | KV_HEADS_AS_HEADS, 0, 0, 0, 0, NULL,
     NULL, NULL},
    {"mistral", RVLI_GQA, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"mixtral", RVLI_GQA, 0, 0, 0, 0, 0, "num_local_experts", "intermediate_size", NULL},
    {"qwen2", RVLI_GQA | RVLI_QKV_BIAS, 0, 0, 0, 0, 0, NULL, NULL, NULL},
    {"qwen3", RVLI_GQA | RVLI_QK_NORM, READS_ATTENTION_BIAS, 128, 0, 0, 0, NULL, NULL, NULL},
    {"qwen2_moe", RVLI_GQA | RVLI_QKV_BIAS | RVLI_SHARED | RVLI_SHARED_GATE, SPARSE_STEP, 0, 0, 0,
     0, "num_experts", "moe_intermediate_size", NULL},
    {"qwen3_moe", RVLI_GQA | RVLI_QK_NORM, READS_ATTENTION_BIAS | SPARSE_STEP, 0, 0, 0, 0,
     "num_experts", "moe_intermediate_size", NULL},
    {"gemma", RVLI_GQA, READS_ATTENTION_BIAS | TIED_BY_DEFAULT, 256, 0, 0, 0, NULL, NULL, NULL},
    {"gemma2", RVLI_GQA | RVLI_FOUR_NORMS, READS_ATTENTION_BIAS | TIED_BY_DEFAULT, 256, 0, 0, 0,
     NULL, NULL, NULL},
    {"gemma3_text", RVLI_GQA | RVLI_FOUR_NORMS | RVLI_QK_NORM,
     READS_ATTENTION_BIAS | TIED_BY_DEFAULT, 256, 8, 4, 262208, NULL, NULL, NULL},
    {"gemma3", RVLI_GQA | RVLI_FOUR_NORMS | RVLI_QK_NORM,
     READS_ATTENTION_BIAS | TIED_BY_DEFAULT | TEXT_CONFIG, 256, 8, 4, 262208, NULL, NULL,
     "gemma3_text,"},
    {"mistral3", RVLI_GQA, TEXT_CONFIG, 0, 0, 0, 0, NULL, NULL, "mistral, ministral3,"},
    {"qwen2_5_vl", RVLI_GQA | RVLI_QKV_BIAS, TEXT_CONFIG | OR_FLAT, 0, 0, 0, 0, NULL, NULL,
     "qwen2_5_vl_text,"},
    {"deepseek", RVLI_GQA, DEEPSEEK | READS_ATTENTION_BIAS, 0, 0, 0, 0, "n_routed_experts",
     "moe_intermediate_size", NULL},
    {"deepseek_v2", RVLI_MLA, DEEPSEEK, 0, 0, 0, 0, "n_routed_experts", "moe_intermediate_size",
     NULL},
    {"deepseek_v3", RVLI_MLA | RVLI_ROUTER_BIAS, DEEPSEEK, 0, 0, 0, 0, "n_routed_experts",
     "moe_intermediate_size", NULL},
    {"deepseek_v32", RVLI_MLA | RVLI_ROUTER_BIAS | RVLI_INDEXER, DEEPSEEK, 0, 0, 0, 0,
     "n_routed_experts", "moe_intermediate_size", NULL},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

const char *rvl_model_family(size_t index)
{
    return index < FAMILY_COUNT ? families[index].type : NULL;
}

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

/* ---- Values ---- */

/* The first failure stays; what is read after it means nothing. */
typedef struct reader {
    const json_t *root;
    const json_t *config; /* the root, or its text_config */
    const family *family;
    rvl_model *model;
    rvl_status status;
} reader;

static const json_t *value_of(const reader *r, const char *key)
{
    const json_t *value = json_object_get(r->config, key);
    return json_is_null(value) ? NULL : value;
}

static void refuse(reader *r, const char *key, const char *why)
{
    if (r->status == RVL_OK)
        r->status = rvli_model_fail(RVL_ERR_INVALID, key, "%s", why);
}

static bool has(const reader *r, const char *key)
{
    return value_of(r, key) != NULL;
}

/* fallback 0: the key must be there. */
static uint64_t number(reader *r, const char *key, uint64_t fallback, uint64_t max)
{
    const json_t *value = value_of(r, key);
    if (value == NULL && fallback == 0)
        refuse(r, key, "missing: take the config.json that lies beside the model's weights");
    if (value == NULL || r->status != RVL_OK)
        return fallback > 0 ? fallback : 1;
    json_int_t n = json_integer_value(value);
    if (json_is_integer(value) && n >= 1 && (uint64_t)n <= max)
        return (uint64_t)n;
    if (r->status == RVL_OK)
        r->status = rvli_model_fail(RVL_ERR_INVALID, key,
                                    "impossible: expected a whole number from 1 to %llu",
                                    (unsigned long long)max);
    return 1;
}

static uint64_t dimension(reader *r, const char *key, uint64_t fallback)
{
    return number(r, key, fallback, RVLI_MODEL_DIM_MAX);
}

/* As number() of a key that is needed, but 0 and null are fine, and 0. */
static uint64_t number_or_zero(reader *r, const char *key, uint64_t max)
{
    const json_t *value = json_object_get(r->config, key);
    if (json_is_null(value) || (json_is_integer(value) && json_integer_value(value) == 0))
        return 0;
    return number(r, key, 0, max);
}

static bool flag(reader *r, const char *key, bool fallback)
{
    const json_t *value = value_of(r, key);
    if (value == NULL)
        return fallback;
    if (!json_is_boolean(value))
        refuse(r, key, "impossible: expected true or false");
    return json_is_true(value);
}

/* ---- Parts of a config ---- */

static void read_sizes(reader *r)
{
    rvl_model *m = r->model;
    const family *f = r->family;
    m->layers = (uint32_t)number(r, "num_hidden_layers", 0, RVLI_MODEL_LAYERS_MAX);
    m->heads = (uint32_t)dimension(r, "num_attention_heads", f->heads);
    m->dim[RVLI_DIM_ONE] = 1;
    m->dim[RVLI_DIM_HIDDEN] = dimension(r, "hidden_size", 0);
    m->dim[RVLI_DIM_VOCABULARY] = dimension(r, "vocab_size", f->vocabulary);
    m->dim[RVLI_DIM_INTERMEDIATE] = dimension(r, "intermediate_size", 0);
    if (!flag(r, "tie_word_embeddings", (f->reads & TIED_BY_DEFAULT) != 0))
        m->features |= RVLI_HEAD;
    if ((f->reads & READS_ATTENTION_BIAS) && flag(r, "attention_bias", false))
        m->features |= RVLI_QKV_BIAS | RVLI_O_BIAS;
    if ((f->reads & READS_MLP_BIAS) && flag(r, "mlp_bias", false))
        m->features |= RVLI_MLP_BIAS;
}

static uint64_t product(reader *r, const char *key, uint64_t count, uint64_t size)
{
    if (count * size > RVLI_MODEL_DIM_MAX)
        refuse(r, key, "impossible: all heads together are wider than 16777216");
    return count * size;
}

static void read_grouped_attention(reader *r)
{
    rvl_model *m = r->model;
    uint64_t heads = m->heads, head = r->family->head_dim;
    bool copied = (r->family->reads & KV_HEADS_AS_HEADS) != 0;
    uint64_t kv_heads = dimension(r, "num_key_value_heads", copied ? heads : r->family->kv_heads);
    if (head == 0 && !has(r, "head_dim") && m->dim[RVLI_DIM_HIDDEN] % heads != 0)
        refuse(r, "hidden_size", "does not divide by num_attention_heads: add head_dim");
    if (head == 0)
        head = m->dim[RVLI_DIM_HIDDEN] / heads;
    head = dimension(r, "head_dim", head);
    if (heads % kv_heads != 0)
        refuse(r, "num_key_value_heads", "impossible: num_attention_heads does not divide by it");
    m->kv_heads = (uint32_t)kv_heads;
    m->dim[RVLI_DIM_HEAD] = head;
    m->dim[RVLI_DIM_Q] = product(r, "num_attention_heads", heads, head);
    m->dim[RVLI_DIM_KV] = product(r, "num_key_value_heads", kv_heads, head);
    m->dim[RVLI_DIM_ATTENDED] = m->dim[RVLI_DIM_Q];
}

static void read_latent_attention(reader *r)
{
    rvl_model *m = r->model;
    uint64_t plain = dimension(r, "qk_nope_head_dim", 0);
    uint64_t rotary = dimension(r, "qk_rope_head_dim", 0);
    uint64_t value = dimension(r, "v_head_dim", 0);
    uint64_t q_lora = number_or_zero(r, "q_lora_rank", RVLI_MODEL_DIM_MAX);
    if (flag(r, "attention_bias", false))
        refuse(r, "attention_bias", "true is not known of this family: set it to false");
    if (q_lora > 0)
        m->features |= RVLI_Q_LORA;
    m->kv_heads = m->heads;
    m->dim[RVLI_DIM_HEAD] = plain + rotary;
    m->dim[RVLI_DIM_Q_LORA] = q_lora;
    m->dim[RVLI_DIM_KV_LORA] = dimension(r, "kv_lora_rank", 0);
    m->dim[RVLI_DIM_KV_DOWN] = m->dim[RVLI_DIM_KV_LORA] + rotary;
    m->dim[RVLI_DIM_Q] = product(r, "num_attention_heads", m->heads, plain + rotary);
    m->dim[RVLI_DIM_KV_UP] = product(r, "num_attention_heads", m->heads, plain + value);
    m->dim[RVLI_DIM_ATTENDED] = product(r, "num_attention_heads", m->heads, value);
}

static void read_indexer(reader *r)
{
    rvl_model *m = r->model;
    uint64_t heads = dimension(r, "index_n_heads", 0);
    m->dim[RVLI_DIM_INDEX_HEADS] = heads;
    m->dim[RVLI_DIM_INDEX_HEAD] = dimension(r, "index_head_dim", 0);
    m->dim[RVLI_DIM_INDEX] = product(r, "index_n_heads", heads, m->dim[RVLI_DIM_INDEX_HEAD]);
    if ((m->features & RVLI_Q_LORA) == 0)
        refuse(r, "q_lora_rank", "missing: the indexer follows from the compressed query");
}

static void read_experts(reader *r)
{
    rvl_model *m = r->model;
    const family *f = r->family;
    if (f->experts == NULL)
        return;
    m->experts =
        (uint32_t)(f->reads & DEEPSEEK ? number_or_zero(r, f->experts, RVLI_MODEL_EXPERTS_MAX)
                                       : number(r, f->experts, 0, RVLI_MODEL_EXPERTS_MAX));
    if (m->experts == 0)
        return;
    m->experts_per_token = (uint32_t)number(r, "num_experts_per_tok", 0, RVLI_MODEL_EXPERTS_MAX);
    if (m->experts_per_token > m->experts)
        refuse(r, "num_experts_per_tok", "impossible: more than there are experts");
    if ((uint64_t)m->experts * m->layers > RVLI_MODEL_ALL_EXPERTS_MAX)
        refuse(r, f->experts, "impossible: more than 131072 experts in all layers together");
    m->dim[RVLI_DIM_EXPERTS] = m->experts;
    m->dim[RVLI_DIM_EXPERT_INTERMEDIATE] = dimension(r, f->expert_size, 0);
    if (f->features & RVLI_SHARED)
        m->dim[RVLI_DIM_SHARED_INTERMEDIATE] = dimension(r, "shared_expert_intermediate_size", 0);
    uint64_t shared =
        f->reads & DEEPSEEK ? number_or_zero(r, "n_shared_experts", RVLI_MODEL_EXPERTS_MAX) : 0;
    if (shared > 0) {
        m->features |= RVLI_SHARED;
        m->dim[RVLI_DIM_SHARED_INTERMEDIATE] =
            product(r, "n_shared_experts", shared, m->dim[RVLI_DIM_EXPERT_INTERMEDIATE]);
    }
}

static void read_dense_list(reader *r)
{
    const json_t *list = value_of(r, "mlp_only_layers");
    if (list != NULL && !json_is_array(list))
        refuse(r, "mlp_only_layers", "impossible: expected a list of layers");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t layer = json_integer_value(item);
        if (!json_is_integer(item) || layer < 0 || layer >= (json_int_t)r->model->layers)
            refuse(r, "mlp_only_layers", "impossible: expected numbers of layers, from 0");
        else
            r->model->sparse[layer] = 0;
    }
}

/* Which layers have experts. */
static void read_sparse_layers(reader *r)
{
    rvl_model *m = r->model;
    uint32_t reads = r->family->reads;
    uint64_t first = 0, step = 1, offset = 0;
    if (m->experts == 0)
        return;
    if (reads & DEEPSEEK) {
        first = number_or_zero(r, "first_k_dense_replace", RVLI_MODEL_LAYERS_MAX);
        step = number(r, "moe_layer_freq", 1, RVLI_MODEL_LAYERS_MAX);
    }
    if (reads & SPARSE_STEP) {
        step = number(r, "decoder_sparse_step", 1, RVLI_MODEL_LAYERS_MAX);
        offset = 1;
    }
    for (uint32_t layer = 0; layer < m->layers; layer++)
        m->sparse[layer] = layer >= first && (layer + offset) % step == 0;
    if (reads & SPARSE_STEP)
        read_dense_list(r);
}

/* It stands at the top, also where the sizes do not. */
static const json_t *quantisation_of(const reader *r)
{
    const json_t *own = value_of(r, "quantization_config");
    const json_t *top = json_object_get(r->root, "quantization_config");
    return own != NULL || json_is_null(top) ? own : top;
}

static rvl_status read_model(reader *r)
{
    rvl_model *m = r->model;
    m->type = r->family->type;
    m->features = r->family->features;
    read_sizes(r);
    if (r->status == RVL_OK && (m->features & RVLI_GQA))
        read_grouped_attention(r);
    if (r->status == RVL_OK && (m->features & RVLI_MLA))
        read_latent_attention(r);
    if (r->status == RVL_OK && (m->features & RVLI_INDEXER))
        read_indexer(r);
    if (r->status == RVL_OK)
        read_experts(r);
    if (r->status == RVL_OK)
        read_sparse_layers(r);
    if (r->status == RVL_OK)
        rvli_quantisation_read(quantisation_of(r), m);
    if (r->status != RVL_OK)
        return r->status;
    m->parameters = rvli_model_count(m);
    if (m->parameters > RVLI_MODEL_PARAMETERS_MAX)
        refuse(r, "hidden_size", "impossible: these sizes make more than 2^48 parameters");
    return r->status;
}

/* ---- The whole ---- */

static rvl_status unknown_family(const char *type)
{
    char list[208];
    size_t length = 0;
    list[0] = '\0';
    for (size_t i = 0; i < FAMILY_COUNT && length < sizeof list; i++)
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s", i > 0 ? ", " : "",
                                   families[i].type);
    return rvli_model_fail(RVL_ERR_INVALID, "model_type", "%.40s is not known: expected one of %s",
                           type, list);
}

static rvl_status find_family(reader *r)
{
    const json_t *type = json_object_get(r->config, "model_type");
    if (type == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "model_type",
                               "missing: take the config.json that lies beside the weights");
    if (!json_is_string(type))
        return rvli_model_fail(RVL_ERR_INVALID, "model_type", "impossible: expected a string");
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(json_string_value(type), families[i].type) == 0)
            r->family = &families[i];
    }
    return r->family != NULL ? RVL_OK : unknown_family(json_string_value(type));
}

/* Its model_type, if it has one, is the language model that the family is known with. */
static bool is_known_text(const reader *r, const json_t *text)
{
    const char *type = json_string_value(json_object_get(text, "model_type"));
    size_t length = type != NULL ? strlen(type) : 0;
    const char *at = type != NULL ? strstr(r->family->text_types, type) : NULL;
    bool begins = at == r->family->text_types || (at != NULL && at[-1] == ' ');
    return type == NULL || (length > 0 && begins && at[length] == ',');
}

/* From the language model's object on; what is beside it is not looked at. */
static rvl_status enter_text_config(reader *r)
{
    const json_t *text = value_of(r, "text_config");
    if (text == NULL && (r->family->reads & OR_FLAT))
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

static rvl_status read_root(reader *r)
{
    rvl_status status = find_family(r);
    r->root = r->config;
    if (status == RVL_OK && (r->family->reads & TEXT_CONFIG))
        status = enter_text_config(r);
    return status == RVL_OK ? read_model(r) : status;
}

static rvl_status no_json(const json_error_t *json)
{
    /* jansson says nothing where it is refused memory. */
    bool memory = json->text[0] == '\0' || json_error_code(json) == json_error_out_of_memory;
    rvl_status status =
        rvli_model_fail(memory ? RVL_ERR_HOST_OOM : RVL_ERR_INVALID, "",
                        "no JSON object: %.160s; expected a config.json", json->text);
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
    reader r = {.config = root, .model = model};
    rvl_status status =
        model == NULL || model->remembered == NULL
            ? rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a model")
        : !json_is_object(root)
            ? rvli_model_fail(RVL_ERR_INVALID, "", "no JSON object: expected a config.json")
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

static rvl_status read_stream(FILE *file, char **text_out, size_t *length_out)
{
    char *text = malloc(CONFIG_BYTES_MAX + 1);
    if (text == NULL)
        return rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a config");
    size_t length = fread(text, 1, CONFIG_BYTES_MAX + 1, file);
    rvl_status status = RVL_OK;
    if (ferror(file))
        status = rvli_model_fail(RVL_ERR_IO, "", "the config cannot be read");
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
    return model->type;
}

uint64_t rvl_model_parameter_count(const rvl_model *model)
{
    return model->parameters;
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
    rvli_model_walk(model, name_tensor, &n);
}
