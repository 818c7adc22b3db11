/* SPDX-License-Identifier: MIT */
/*
 * Reads an engine's weights and cache from quantization_config: how many bits an element has, how
 * many elements share a scale, and which modules are not quantised.
 *
 * There are many methods. Only those with known sizes are read. Any other leaves the type AUTO, and
 * the options of a step then have to give it.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "predict/llm/llm_internal.h"

#define GROUP_DEFAULT 128
#define BLOCK_DEFAULT 128
#define ANYWHERE_MAX 256 /* entries that are not of one layer: each is tried on every module */

rvli_scales rvli_scales_of(rvl_model_dtype dtype)
{
    if (dtype == RVL_MODEL_FP8)
        return (rvli_scales){.rows = BLOCK_DEFAULT, .columns = BLOCK_DEFAULT, .bytes = 4};
    return (rvli_scales){.rows = 1, .columns = GROUP_DEFAULT, .bytes = 2, .zeros = true};
}

/* ---- Values ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static json_int_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static bool is_dimension(json_int_t n)
{
    return n >= 1 && n <= (json_int_t)RVLI_MODEL_DIM_MAX;
}

/* [rows, columns] of a block. Missing: keeps the default. null: all elements share one scale. */
static bool read_block(const json_t *value, rvli_scales *scales)
{
    if (value == NULL)
        return true;
    if (json_is_null(value)) {
        scales->rows = scales->columns = 0;
        return true;
    }
    json_int_t rows = json_integer_value(json_array_get(value, 0));
    json_int_t columns = json_integer_value(json_array_get(value, 1));
    scales->rows = (uint64_t)rows;
    scales->columns = (uint64_t)columns;
    return json_array_size(value) == 2 && is_dimension(rows) && is_dimension(columns);
}

/* Inputs of a row that share a scale. Missing: keeps the default. -1: the whole row. */
static bool read_group(const json_t *value, rvli_scales *scales)
{
    json_int_t group = json_integer_value(value);
    if (value == NULL || json_is_null(value))
        return true;
    scales->columns = group == -1 ? 0 : (uint64_t)group;
    return json_is_integer(value) && (group == -1 || is_dimension(group));
}

/* ---- Methods ---- */

/* Each reads dtype and scales; false: not known. */
typedef bool (*method_fn)(const json_t *config, rvl_model *model);

static bool read_fp8(const json_t *config, rvl_model *model)
{
    model->weights_dtype = RVL_MODEL_FP8;
    model->scales = rvli_scales_of(RVL_MODEL_FP8);
    return read_block(json_object_get(config, "weight_block_size"), &model->scales);
}

/* One scale for each row. */
static bool read_fbgemm(const json_t *config, rvl_model *model)
{
    (void)config;
    model->weights_dtype = RVL_MODEL_FP8;
    model->scales = (rvli_scales){.rows = 1, .columns = 0, .bytes = 4};
    return true;
}

static bool read_awq(const json_t *config, rvl_model *model)
{
    model->weights_dtype = RVL_MODEL_INT4;
    model->scales = rvli_scales_of(RVL_MODEL_INT4);
    return number_of(config, "bits") == 4 &&
           read_group(json_object_get(config, "group_size"), &model->scales);
}

/* "dynamic" gives modules different bits. */
static bool read_gptq(const json_t *config, rvl_model *model)
{
    json_int_t bits = number_of(config, "bits");
    model->weights_dtype = bits == 8 ? RVL_MODEL_INT8 : RVL_MODEL_INT4;
    model->scales = rvli_scales_of(model->weights_dtype);
    return (bits == 4 || bits == 8) && json_object_size(json_object_get(config, "dynamic")) == 0 &&
           read_group(json_object_get(config, "group_size"), &model->scales);
}

/* gpt-oss: 4-bit floats; 32 elements of a row share an exponent of 8 bits. */
static bool read_mxfp4(const json_t *config, rvl_model *model)
{
    (void)config;
    model->weights_dtype = RVL_MODEL_INT4;
    model->scales = (rvli_scales){.rows = 1, .columns = 32, .bytes = 1};
    return true;
}

/* Reads which elements share a scale from the name of the strategy. */
static bool read_strategy(const json_t *weights, rvli_scales *scales)
{
    const char *strategy = text_of(weights, "strategy");
    bool grouped = number_of(weights, "group_size") > 0;
    if (*strategy == '\0')
        strategy = grouped ? "group" : "tensor";
    if (strcmp(strategy, "block") == 0)
        return json_is_array(json_object_get(weights, "block_structure")) &&
               read_block(json_object_get(weights, "block_structure"), scales);
    scales->rows = strcmp(strategy, "tensor") == 0 ? 0 : 1;
    scales->columns = 0;
    if (strcmp(strategy, "group") == 0)
        return grouped && read_group(json_object_get(weights, "group_size"), scales);
    return scales->rows == 0 || strcmp(strategy, "channel") == 0;
}

/* Reads one group, with one kind of modules. Scales of `group` have 2 bytes, others 4. */
static bool read_compressed(const json_t *config, rvl_model *model)
{
    json_t *groups = json_object_get(config, "config_groups");
    const json_t *weights =
        json_object_get(json_object_iter_value(json_object_iter(groups)), "weights");
    json_int_t bits = number_of(weights, "num_bits");
    bool is_float = strcmp(text_of(weights, "type"), "float") == 0;
    const json_t *symmetric = json_object_get(weights, "symmetric");
    if (json_object_size(groups) != 1 || (bits != 8 && (bits != 4 || is_float)))
        return false;
    model->weights_dtype = bits == 4 ? RVL_MODEL_INT4 : is_float ? RVL_MODEL_FP8 : RVL_MODEL_INT8;
    if (!read_strategy(weights, &model->scales))
        return false;
    bool grouped = model->scales.rows == 1 && model->scales.columns > 0;
    model->scales.bytes = grouped ? 2 : 4;
    model->scales.zeros = json_is_false(symmetric);
    return true;
}

static const struct {
    const char *name;
    method_fn read;
} methods[] = {
    {"fp8", read_fp8},
    {"fbgemm_fp8", read_fbgemm},
    {"awq", read_awq},
    {"gptq", read_gptq},
    {"compressed-tensors", read_compressed},
    {"mxfp4", read_mxfp4},
};

/* ---- Modules that are not quantised ---- */

/* A character of a pattern, and whether it may repeat (*). */
typedef struct sign {
    char wanted; /* 0: any character */
    bool many;
} sign;

#define SIGNS_MAX 64

/* Splits a regular expression into signs. -1: too long, or not supported. */
static int read_pattern(const char *pattern, sign signs[SIGNS_MAX])
{
    int count = 0;
    for (const char *c = pattern; *c != '\0'; c++) {
        bool escaped = *c == '\\';
        c += escaped;
        if (*c == '$' && !escaped && c[1] == '\0')
            return count;
        if (count == SIGNS_MAX || *c == '\0' ||
            (escaped ? *c != '.' : strchr("()[]{}|?+*^$", *c) != NULL))
            return -1;
        bool many = c[1] == '*';
        signs[count++] = (sign){.wanted = *c == '.' && !escaped ? '\0' : *c, .many = many};
        c += many;
    }
    return count;
}

/* Splits a name in which * stands for any text into signs. -1: too long. */
static int read_glob(const char *text, sign signs[SIGNS_MAX])
{
    int count = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (count == SIGNS_MAX)
            return -1;
        signs[count++] = (sign){.wanted = *c == '*' ? '\0' : *c, .many = *c == '*'};
    }
    return count;
}

/* Adds the places that are reached without reading a character, since a sign that may repeat may be
 * left out. */
static uint64_t spread(const sign *signs, int count, uint64_t places)
{
    for (int i = 0; i < count; i++) {
        if ((places >> i & 1) != 0 && signs[i].many && i + 1 < SIGNS_MAX)
            places |= UINT64_C(1) << (i + 1);
    }
    return places;
}

/* Matches from the beginning of the name, like Python's re.match(); up to its end if the pattern
 * ends in $. */
static bool pattern_matches(const char *pattern, const sign *signs, int count, const char *name)
{
    bool whole = pattern[0] != '\0' && pattern[strlen(pattern) - 1] == '$';
    uint64_t places = spread(signs, count, 1), end = UINT64_C(1) << count;
    for (; *name != '\0' && (whole || (places & end) == 0); name++) {
        uint64_t next = 0;
        for (int i = 0; i < count; i++) {
            if ((places >> i & 1) == 0 || (signs[i].wanted != '\0' && signs[i].wanted != *name))
                continue;
            next |= UINT64_C(1) << (signs[i].many ? i : i + 1);
        }
        places = spread(signs, count, next);
    }
    return (places & end) != 0;
}

/* Whether the entry is one or more whole parts of the name: "self_attn", "layers.0.mlp.up_proj". */
static bool has_part(const char *name, const char *entry)
{
    size_t length = strlen(entry);
    for (const char *at = name; length > 0 && (at = strstr(at, entry)) != NULL; at++) {
        char before = at > name ? at[-1] : '.', after = at[length];
        if (before == '.' && (after == '.' || after == '\0'))
            return true;
    }
    return false;
}

typedef struct entry {
    const char *text;
    bool is_pattern;
    sign signs[SIGNS_MAX];
    int sign_count;
} entry;

static bool entry_matches(void *user, const char *name)
{
    const entry *e = user;
    return e->is_pattern ? pattern_matches(e->text, e->signs, e->sign_count, name)
                         : has_part(name, e->text);
}

/* The layer in an entry; -1: the entry names none. */
static int layer_of(const char *text)
{
    const char *at = strstr(text, "layers.");
    unsigned layer;
    return at != NULL && sscanf(at, "layers.%4u.", &layer) == 1 ? (int)layer : -1;
}

/* Models with more than text put this prefix before names of the language model. */
static const char *without_prefix(const char *text)
{
    static const char prefix[] = "language_model.";
    return strncmp(text, prefix, sizeof prefix - 1) == 0 ? text + sizeof prefix - 1 : text;
}

static bool keep_entry(rvl_model *model, const char *text, int *anywhere)
{
    entry e = {.text = without_prefix(text)};
    bool is_regex = strncmp(text, "re:", 3) == 0;
    if (is_regex)
        e.text = text + 3;
    e.is_pattern = is_regex || strchr(e.text, '*') != NULL;
    if (e.is_pattern)
        e.sign_count = is_regex ? read_pattern(e.text, e.signs) : read_glob(e.text, e.signs);
    if (e.sign_count < 0 || e.sign_count == SIGNS_MAX)
        return false;
    int layer = e.is_pattern ? -1 : layer_of(e.text);
    if (layer < 0 && ++*anywhere > ANYWHERE_MAX)
        return false;
    uint32_t first = layer < 0 ? 0 : (uint32_t)layer;
    uint32_t end = layer < 0 ? model->layers : first + 1;
    for (uint32_t i = first; i < end && i < model->layers; i++)
        rvli_model_keep(model, i, entry_matches, &e);
    return true;
}

static bool keep_list(rvl_model *model, const json_t *list)
{
    int anywhere = 0;
    if (list == NULL || json_is_null(list))
        return true;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text == NULL || !keep_entry(model, text, &anywhere))
            return false;
    }
    return json_is_array(list);
}

/* ---- The config ---- */

static bool read_method(const json_t *config, rvl_model *model)
{
    const char *name = text_of(config, "quant_method");
    size_t i = 0;
    while (i < sizeof methods / sizeof methods[0] && strcmp(methods[i].name, name) != 0)
        i++;
    return i < sizeof methods / sizeof methods[0] && methods[i].read(config, model) &&
           keep_list(model, json_object_get(config, "modules_to_not_convert")) &&
           keep_list(model, json_object_get(config, "ignore"));
}

void rvli_quantisation_read(const json_t *config, rvl_model *model)
{
    model->weights_dtype = RVL_MODEL_BF16;
    model->kv_dtype = RVL_MODEL_BF16;
    if (config == NULL)
        return;
    if (!read_method(config, model))
        model->weights_dtype = RVL_MODEL_DTYPE_AUTO;
    const json_t *cache = json_object_get(config, "kv_cache_scheme");
    const char *type = text_of(cache, "type");
    if (cache == NULL || json_is_null(cache))
        return;
    bool known = number_of(cache, "num_bits") == 8 && (*type == '\0' || strcmp(type, "float") == 0);
    model->kv_dtype = known ? RVL_MODEL_FP8 : RVL_MODEL_DTYPE_AUTO;
}
