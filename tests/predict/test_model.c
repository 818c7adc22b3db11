/* SPDX-License-Identifier: MIT */
/*
 * Model configs: parameter counts of published models, every term of a step against arithmetic that
 * is written out here, the order of events, and every refusal.
 *
 * Linked with --wrap for what gives memory, so that each request can be made to fail.
 */
#include "tests/support/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "reveille/model.h"
#include "tests/predict/model_configs.h"
#include "tests/support/short_memory.h"

#define CONFIGS RVL_SOURCE_DIR "/tests/data/configs/"
#define PATH_BYTES 256
#define TENSORS_MAX 4096
#define H200_BYTES UINT64_C(150109880320)
#define CONTEXT_BYTES UINT64_C(552402944)

/* ---- Memory that fails ---- */

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC
SHORT_MEMORY(FILE *, open_memstream, (char **text, size_t *length), (text, length), NULL)

static bool rename_fails;

int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    if (!rename_fails)
        return __real_renameat(from_folder, from, to_folder, to);
    errno = EXDEV;
    return -1;
}

static void *failing_malloc(size_t size)
{
    return short_memory_refuses() ? NULL : __real_malloc(size);
}

/* ---- Models ---- */

/* A model of every published family; the counts are those of the safetensors files' headers, as
 * the models' pages show them. */
typedef struct published {
    const char *name;
    const char *type;
    uint64_t parameters;
    uint64_t tensors; /* 0: not checked */
} published;

static const published models[] = {
    {"llama-2-7b", "llama", 6738415616, 291},
    {"llama-3.1-8b", "llama", 8030261248, 291},
    {"llama-3.1-70b", "llama", 70553706496, 723},
    {"llama-3.1-405b", "llama", 405853388800, 1137},
    {"llama-3.2-1b", "llama", 1235814400, 146},
    {"mistral-7b-v0.1", "mistral", 7241732096, 291},
    {"mixtral-8x7b-v0.1", "mixtral", 46702792704, 995},
    {"mixtral-8x22b-v0.1", "mixtral", 140620634112, 0},
    {"qwen2.5-0.5b", "qwen2", 494032768, 290},
    {"qwen2.5-7b", "qwen2", 7615616512, 339},
    {"qwen2.5-32b", "qwen2", 32763876352, 771},
    {"qwen2.5-72b", "qwen2", 72706203648, 963},
    {"qwen3-0.6b", "qwen3", 596049920, 0},
    {"qwen3-4b", "qwen3", 4022468096, 398},
    {"qwen3-8b", "qwen3", 8190735360, 399},
    {"qwen3-30b-a3b", "qwen3_moe", 30532122624, 18867},
    {"qwen3-235b-a22b", "qwen3_moe", 235093634560, 0},
    {"qwen1.5-moe-a2.7b", "qwen2_moe", 14315784192, 4659},
    {"gemma-2b", "gemma", 2506172416, 164},
    {"gemma-7b", "gemma", 8537680896, 254},
    {"gemma-2-2b", "gemma2", 2614341888, 288},
    {"gemma-2-9b", "gemma2", 9241705984, 464},
    {"gemma-2-27b", "gemma2", 27227128320, 508},
    {"gemma-3-1b", "gemma3_text", 999885952, 340},
    /* 4300079472, less 419816304 of the vision tower and its projector. */
    {"gemma-3-4b", "gemma3", 3880263168, 444},
    /* Without what they see with. */
    {"mistral-small-3.1-24b", "mistral3", 23572403200, 363},
    {"qwen2.5-vl-7b", "qwen2_5_vl", 7615616512, 339},
    {"deepseek-moe-16b", "deepseek", 16375728128, 0},
    {"deepseek-v2-lite", "deepseek_v2", 15706484224, 5291},
    {"deepseek-v2", "deepseek_v2", 235741434880, 0},
    {"deepseek-v3", "deepseek_v3", 671026419200, 0}, /* without the layer that predicts further */
    {"deepseek-v3.2-exp", "deepseek_v32", 671026419200 + UINT64_C(61) * 13959424, 0}, /* also */
    /* From here on the counts are those of transformers 5.17 (tests/predict/model_counts.py), with
     * the towers of configs that have a vision_config. */
    {"gpt-oss-20b", "gpt_oss", 20914757184, 0},
    {"gpt-oss-120b", "gpt_oss", 116829156672, 0},
    {"glm-4.5-air", "glm4_moe", 106852251264, 0},
    {"glm-4.5", "glm4_moe", 352797829024, 0},
    {"glm-4.7-flash", "glm4_moe_lite", 29943393920, 0},
    {"glm-moe-dsa", "glm_moe_dsa", 743911218432, 0},
    {"glm-4-9b-0414", "glm4", 9400279040, 0},
    {"qwen3-next-80b-a3b", "qwen3_next", 79674391296, 0},
    {"qwen3_5", "qwen3_5", 9407453936, 0},
    {"qwen3_5_moe", "qwen3_5_moe", 35114261360, 0},
    {"qwen3_5_text", "qwen3_5_text", 8953803264, 0},
    {"qwen3_5_moe_text", "qwen3_5_moe_text", 34660610688, 0},
    {"qwen3-vl-8b", "qwen3_vl", 8767123696, 0},
    {"qwen3-vl-30b-a3b", "qwen3_vl_moe", 31070754032, 0},
    {"llama4-text", "llama4_text", 107769861120, 0},
    {"llama-4-scout-17b-16e", "llama4", 108641793536, 0},
    {"llama-4-maverick-17b-128e", "llama4", 401583781376, 0},
    {"minimax-m2", "minimax_m2", 228689764864, 0},
    {"gemma-3n-e4b-text", "gemma3n_text", 6835235568, 0},
    {"gemma-3n-e2b", "gemma3n", 4435182688, 0},
    {"olmo-2-7b", "olmo2", 7298617344, 0},
    {"olmo-3-7b", "olmo3", 7298011136, 0},
    {"olmoe-1b-7b", "olmoe", 6919161856, 0},
    {"phi-4", "phi3", 14659507200, 243},
    {"phi-4-mini", "phi3", 3836021760, 194},
    {"nemotron-nano-9b-v2", "nemotron_h", 8888227328, 0},
    {"nemotron-3-nano-30b-a3b", "nemotron_h", 31577940288, 0},
    {"granite-3.1-8b", "granite", 8170848256, 362},
    {"granite-3.1-3b-a800m", "granitemoe", 3298793472, 0},
    {"granitemoeshared", "granitemoeshared", 4808937472, 0},
    {"granite-4.0-h-tiny", "granitemoehybrid", 6939037248, 0},
    {"granite-4.0-h-micro", "granitemoehybrid", 3191396096, 0},
    {"seed-oss-36b", "seed_oss", 36151104512, 0},
    {"seed-oss-8-layers", "seed_oss", 5908911104, 0},
    {"smollm3-3b", "smollm3", 3075098624, 326},
    {"ministral-8b-2410", "ministral", 8019808256, 0},
    {"ministral3-8b", "ministral3", 8489553920, 0},
    {"mistral4", "mistral4", 118972826624, 0},
    {"exaone-4.0-32b", "exaone4", 32003216384, 0},
    {"ernie-4.5-0.3b", "ernie4_5", 360748032, 0},
    {"ernie-4.5-21b-a3b", "ernie4_5_moe", 21825437888, 0},
    {"hunyuan-7b", "hunyuan_v1_dense", 7504568320, 0},
    {"hunyuan-a13b", "hunyuan_v1_moe", 80393183232, 0},
    {"kimi-k2", "kimi_k2", 1026408232448, 0},
    {"kimi_k25", "kimi_k25", 671497563120, 0},
    {"gemma-3-4b-it", "gemma3", 4300079472, 0},
    {"gemma3-pooling", "gemma3", 2723312896, 0},
    {"mistral3", "mistral3", 23340272640, 0},
    {"qwen2.5-vl-7b-tower", "qwen2_5_vl", 8292166656, 0},
    {"qwen2.5-vl-7b-text", "qwen2_5_vl_text", 7615616512, 0},
    {"qwen2-vl-2b-text", "qwen2_vl_text", 1543714304, 0},
    {"qwen2-vl-7b", "qwen2_vl", 8291375616, 0},
    {"qwen3-vl-8b-text", "qwen3_vl_text", 8190735360, 0},
    {"qwen3-vl-30b-a3b-text", "qwen3_vl_moe_text", 30532122624, 0},
    {"glm4v-text", "glm4v_text", 9400279040, 0},
    {"glm4v-moe-text", "glm4v_moe_text", 106851202688, 0},
    {"glm-4-9b", "glm", 9399951360, 0},
    {"afm-4.5b", "arcee", 4619184640, 0},
    {"cwm", "cwm", 32581097472, 0},
    {"solar-open-100b", "solar_open", 102651799552, 0},
    {"dots.llm1", "dots1", 142774381696, 0},
    {"vaultgemma-1b", "vaultgemma", 1038741120, 0},
    {"flex-olmo-7x7b", "flex_olmo", 33270665216, 0},
    {"k-exaone-236b-a23b", "exaone_moe", 236571156352, 0},
    {"glm-4.1v-9b", "glm4v", 10292777472, 0},
    {"glm-4.5v", "glm4v_moe", 107710933120, 0},
    {"youtu-llm-2b", "youtu", 1961560064, 0},
    {"mellum", "mellum", 12149923072, 0},
    {"bamba-9b", "bamba", 9780235392, 0},
    {"lfm2-1.2b", "lfm2", 1170340608, 0},
    {"lfm2-350m", "lfm2", 354483968, 0},
    {"lfm2-8b-a1b", "lfm2_moe", 8339930560, 0},
    {"apertus-8b", "apertus", 8053338240, 0},
    {"gemma-4-e2b-text", "gemma4_text", 4628569379, 0},
    {"gemma-4-e4b-text", "gemma4_text", 7463013418, 0},
    {"gemma-4-26b-a4b-text", "gemma4_text", 25233141790, 0},
    {"gemma-4-31b", "gemma4", 30697345340, 0},
    {"gemma-4-12b-text", "gemma4_unified_text", 11907350320, 0},
    {"gemma-4-12b", "gemma4_unified", 11907350320, 0},
    {"command-r7b", "cohere2", 8028033024, 0},
    {"aya-23-8b", "cohere", 8028033024, 0},
    {"command-r-plus", "cohere", 103810674688, 0},
    {"starcoder2-3b", "starcoder2", 3030371328, 0},
    {"starcoder2-7b", "starcoder2", 7173923840, 0},
    {"phi-3.5-moe", "phimoe", 41873153344, 0},
    {"phi-mini-moe", "phimoe", 7647632704, 0},
    {"falcon-h1-1.5b", "falcon_h1", 1479292288, 0},
    {"nanochat-d32", "nanochat", 1879048192, 0},
};

typedef struct totals {
    uint64_t elements;
    uint64_t tensors;
} totals;

static void add_tensor(void *user, const rvl_model_tensor *tensor)
{
    totals *sum = user;
    sum->elements += tensor->rows * tensor->columns;
    sum->tensors++;
}

static void counts_are_those_of_published_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        rvl_model *model = open_model(models[i].name);
        totals sum = {0};
        rvl_model_visit_tensors(model, add_tensor, &sum);
        assert_string_equal(rvl_model_type(model), models[i].type);
        assert_int_equal(rvl_model_parameter_count(model), models[i].parameters);
        assert_int_equal(sum.elements, models[i].parameters);
        if (models[i].tensors > 0 && sum.tensors != models[i].tensors)
            print_error("%s: %lu tensors\n", models[i].name, (unsigned long)sum.tensors);
        if (models[i].tensors > 0)
            assert_int_equal(sum.tensors, models[i].tensors);
        rvl_model_close(model);
    }
}

/* Every family that is listed has a published model above, so that none goes unchecked. */
static void every_family_is_checked(void **state)
{
    (void)state;
    size_t count = 0;
    for (const char *family; (family = rvl_model_family(count)) != NULL; count++) {
        bool found = false;
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
            found = found || strcmp(models[i].type, family) == 0;
        assert_true(found);
    }
    assert_int_equal(count, 88);
}

typedef struct wanted {
    const char *name;
    rvl_model_tensor found;
} wanted;

static void keep_tensor(void *user, const rvl_model_tensor *tensor)
{
    wanted *w = user;
    if (strcmp(w->name, tensor->name) == 0)
        w->found = *tensor;
}

static void assert_tensor(const rvl_model *model, const char *name, uint32_t layer, uint64_t rows,
                          uint64_t columns)
{
    wanted w = {.name = name};
    rvl_model_visit_tensors(model, keep_tensor, &w);
    assert_string_equal(w.found.name, name);
    assert_int_equal(w.found.layer, layer);
    assert_int_equal(w.found.rows, rows);
    assert_int_equal(w.found.columns, columns);
}

static void tensors_have_names_and_shapes(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen2.5-7b");
    assert_tensor(model, "model.embed_tokens.weight", RVL_MODEL_NO_LAYER, 152064, 3584);
    assert_tensor(model, "model.layers.27.self_attn.k_proj.weight", 27, 512, 3584);
    assert_tensor(model, "model.layers.3.self_attn.q_proj.bias", 3, 3584, 1);
    assert_tensor(model, "lm_head.weight", RVL_MODEL_NO_LAYER, 152064, 3584);
    rvl_model_close(model);
    model = open_model("deepseek-v3");
    assert_tensor(model, "model.layers.60.mlp.experts.255.down_proj.weight", 60, 7168, 2048);
    assert_tensor(model, "model.layers.2.mlp.up_proj.weight", 2, 18432, 7168);
    assert_tensor(model, "model.layers.3.mlp.gate.e_score_correction_bias", 3, 256, 1);
    assert_tensor(model, "model.layers.0.self_attn.kv_b_proj.weight", 0, 32768, 512);
    assert_tensor(model, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight", 0, 576, 7168);
    rvl_model_close(model);
    model = open_model("deepseek-v3.2-exp");
    assert_tensor(model, "model.layers.60.self_attn.indexer.wq_b.weight", 60, 8192, 1536);
    assert_tensor(model, "model.layers.0.self_attn.indexer.wk.weight", 0, 128, 7168);
    assert_tensor(model, "model.layers.0.self_attn.indexer.k_norm.bias", 0, 128, 1);
    assert_tensor(model, "model.layers.0.self_attn.indexer.weights_proj.weight", 0, 64, 7168);
    rvl_model_close(model);
}

/* ---- Refused configs ---- */

#define LLAMA                                                                                      \
    "{\"model_type\":\"llama\",\"hidden_size\":512,\"num_hidden_layers\":2,"                       \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":1024,"              \
    "\"vocab_size\":1000"
#define MOE                                                                                        \
    "{\"model_type\":\"qwen2_moe\",\"hidden_size\":512,\"num_hidden_layers\":4,"                   \
    "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":1024,\"vocab_"      \
    "size\":1000,"                                                                                 \
    "\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":96,"                    \
    "\"shared_expert_intermediate_size\":128"
#define LATENT                                                                                     \
    "{\"model_type\":\"deepseek_v2\",\"hidden_size\":512,\"num_hidden_layers\":2,"                 \
    "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":1024,\"vocab_"      \
    "size\":1000,"                                                                                 \
    "\"kv_lora_rank\":64,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32,"       \
    "\"q_lora_rank\":null,\"n_routed_experts\":null"

static void missing_keys_are_named(void **state)
{
    (void)state;
    static const char *const llama_keys[] = {"hidden_size", "num_hidden_layers",
                                             "num_attention_heads", "intermediate_size",
                                             "vocab_size"};
    static const char *const moe_keys[] = {"num_experts", "num_experts_per_tok",
                                           "moe_intermediate_size",
                                           "shared_expert_intermediate_size"};
    static const char *const latent_keys[] = {"kv_lora_rank", "qk_nope_head_dim",
                                              "qk_rope_head_dim", "v_head_dim"};
    static const struct {
        const char *text;
        const char *const *keys;
        size_t count;
    } cases[] = {{LLAMA "}", llama_keys, 5}, {MOE "}", moe_keys, 4}, {LATENT "}", latent_keys, 4}};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < cases[i].count; k++) {
            json_t *json = json_loads(cases[i].text, 0, NULL);
            json_object_set_new(json, cases[i].keys[k], json_null());
            char *text = json_dumps(json, 0);
            assert_refused(text, cases[i].keys[k], "missing: take the config.json");
            free(text);
            json_decref(json);
        }
    }
    assert_refused("{\"model_type\":\"deepseek_v2\",\"hidden_size\":512,\"num_hidden_layers\":2,"
                   "\"num_attention_heads\":8,\"intermediate_size\":1024,\"vocab_size\":1000,"
                   "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32}",
                   "q_lora_rank", "missing");
    assert_refused("{\"model_type\":\"mistral\",\"hidden_size\":512,\"num_hidden_layers\":2,"
                   "\"num_attention_heads\":8,\"intermediate_size\":1024,\"vocab_size\":1000}",
                   "num_key_value_heads", "missing");
    assert_refused("{}", "model_type", "missing");
    assert_refused("{\"model_type\":\"gemma3\"}", "text_config", "missing");
    assert_refused("{\"model_type\":\"mistral3\",\"text_config\":7}", "text_config", "missing");
    assert_refused(
        "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral4\"}}",
        "text_config",
        "its model_type is not known in a mistral3: expected one of mistral, ministral3");
    assert_refused("{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"stral\"}}",
                   "text_config", "not known");
    assert_refused("{\"model_type\":\"qwen2_5_vl\"}", "num_hidden_layers", "missing");
    assert_refused("{\"model_type\":\"deepseek_v32\",\"hidden_size\":512,\"num_hidden_layers\":2,"
                   "\"num_attention_heads\":8,\"intermediate_size\":1024,\"vocab_size\":1000,"
                   "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32,"
                   "\"q_lora_rank\":null,\"kv_lora_rank\":64,\"index_n_heads\":4,"
                   "\"index_head_dim\":32,\"n_routed_experts\":null}",
                   "q_lora_rank", "the indexer follows from the compressed query");
}

/* Of two ties that at the top counts: so transformers 5.17 counts in these cases. */
static void what_is_beside_the_language_model_does_not_count(void **state)
{
    (void)state;
    static const struct {
        const char *top;
        const char *inner;
        uint64_t parameters;
    } cases[] = {
        {"", "", 3880263168},
        {",\"tie_word_embeddings\":false", "", 4551515648},
        {",\"tie_word_embeddings\":null", "", 4551515648},
        {",\"tie_word_embeddings\":false", ",\"tie_word_embeddings\":true", 4551515648},
        {",\"tie_word_embeddings\":true", ",\"tie_word_embeddings\":false", 3880263168},
        {"", ",\"tie_word_embeddings\":false", 3880263168},
        {",\"hidden_size\":64", ",\"tie_word_embeddings\":true", 3880263168},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"gemma3\"%s,\"text_config\":{\"hidden_size\":2560,"
                 "\"intermediate_size\":10240,\"num_hidden_layers\":34%s}}",
                 cases[i].top, cases[i].inner);
        rvl_model *model = parse_model(text);
        assert_int_equal(rvl_model_parameter_count(model), cases[i].parameters);
        rvl_model_close(model);
    }
}

/* Qwen2.5-VL has its sizes at the top, and, as newer programs write it, one level down. */
static void sizes_may_be_at_the_top_or_below(void **state)
{
    (void)state;
    rvl_model *model = parse_model(
        "{\"model_type\":\"qwen2_5_vl\",\"hidden_size\":1,\"text_config\":{\"model_type\":"
        "\"qwen2_5_vl_text\",\"hidden_size\":3584,\"num_hidden_layers\":28,"
        "\"num_attention_heads\":28,\"num_key_value_heads\":4,\"intermediate_size\":18944,"
        "\"vocab_size\":152064}}");
    assert_int_equal(rvl_model_parameter_count(model), 7615616512);
    rvl_model_close(model);
}

/* Kimi's tower is the same under the names of transformers, under those of the published config,
 * and where neither is there. */
static void names_of_a_tower_may_be_either(void **state)
{
    (void)state;
    static const char *const towers[] = {
        "{\"hidden_size\":1152,\"num_hidden_layers\":27,\"intermediate_size\":4304}",
        "{\"vt_hidden_size\":1152,\"vt_num_hidden_layers\":27,\"vt_intermediate_size\":4304}", "{}",
        "{\"vt_num_hidden_layers\":26}"};
    const uint64_t layer = 4 * 1152 * 1152 + 2 * 4304 * 1152 + 4 * 1152 + 4304 + 1152 + 4 * 1152;
    uint64_t counts[4];
    for (size_t i = 0; i < 4; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"kimi_k25\",\"text_config\":{\"model_type\":\"kimi_k2\","
                 "\"hidden_size\":512,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                 "\"intermediate_size\":1024,\"vocab_size\":1000,\"kv_lora_rank\":64,"
                 "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32,"
                 "\"q_lora_rank\":null,\"n_routed_experts\":null},\"vision_config\":%s}",
                 towers[i]);
        rvl_model *model = parse_model(text);
        counts[i] = rvl_model_parameter_count(model);
        rvl_model_close(model);
    }
    assert_int_equal(counts[0], counts[1]);
    assert_int_equal(counts[0], counts[2]);
    assert_int_equal(counts[0] - counts[3], layer);
}

static void unknown_families_are_refused_with_a_way_out(void **state)
{
    (void)state;
    assert_refused(
        "{\"model_type\":\"gpt2\"}", "model_type",
        "gpt2 is not known: expected one of the 88 families that docs/model.md lists, such "
        "as llama, qwen3 or deepseek_v3; `reveille run` and `reveille snapshot` need no "
        "family");
    assert_refused("{\"model_type\":7}", "model_type", "expected a string");
}

static void impossible_values_are_refused(void **state)
{
    (void)state;
    assert_refused(LLAMA ",\"head_dim\":0}", "head_dim", "expected a whole number from 1");
    assert_refused(LLAMA ",\"head_dim\":-3}", "head_dim", "expected a whole number from 1");
    assert_refused(LLAMA ",\"head_dim\":1.5}", "head_dim", "expected a whole number from 1");
    assert_refused(LLAMA ",\"head_dim\":\"8\"}", "head_dim", "expected a whole number from 1");
    assert_refused(LLAMA ",\"head_dim\":16777217}", "head_dim", "from 1 to 16777216");
    assert_refused(LLAMA ",\"head_dim\":16777216}", "num_attention_heads", "wider than 16777216");
    assert_refused(LLAMA ",\"mlp_bias\":1}", "mlp_bias", "expected true or false");
    assert_refused("{\"model_type\":\"llama\",\"hidden_size\":512,\"num_hidden_layers\":2,"
                   "\"num_attention_heads\":8,\"num_key_value_heads\":3,"
                   "\"intermediate_size\":1024,\"vocab_size\":1000}",
                   "num_key_value_heads", "does not divide");
    assert_refused(MOE ",\"mlp_only_layers\":3}", "mlp_only_layers", "expected a list");
    assert_refused(MOE ",\"mlp_only_layers\":[4]}", "mlp_only_layers",
                   "expected numbers of layers");
    assert_refused(MOE ",\"mlp_only_layers\":[-1]}", "mlp_only_layers", "numbers of layers");
    assert_refused(LATENT ",\"attention_bias\":true}", "attention_bias", "set it to false");
    assert_refused("{\"model_type\":\"llama\",\"hidden_size\":514,\"num_hidden_layers\":2,"
                   "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":1024,"
                   "\"vocab_size\":1000}",
                   "hidden_size", "does not divide by num_attention_heads");
    assert_refused("{\"model_type\":\"mixtral\",\"hidden_size\":16777216,\"num_hidden_layers\":16,"
                   "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":"
                   "16777216,\"vocab_size\":1000,"
                   "\"num_local_experts\":4096,\"num_experts_per_tok\":2}",
                   "hidden_size", "more than 2^48 parameters");
    assert_refused("{\"model_type\":\"mixtral\",\"hidden_size\":64,\"num_hidden_layers\":1024,"
                   "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":64,"
                   "\"vocab_size\":1000,"
                   "\"num_local_experts\":4096,\"num_experts_per_tok\":2}",
                   "num_local_experts", "more than 131072 experts");
    assert_refused("{\"model_type\":\"mixtral\",\"hidden_size\":64,\"num_hidden_layers\":2,"
                   "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":64,"
                   "\"vocab_size\":1000,"
                   "\"num_local_experts\":4,\"num_experts_per_tok\":5}",
                   "num_experts_per_tok", "more than there are experts");
}

#define HYBRID                                                                                     \
    "{\"model_type\":\"qwen3_next\",\"hidden_size\":512,\"num_hidden_layers\":4,"                  \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":64,\"vocab_size\":1000,"     \
    "\"linear_num_key_heads\":4,\"linear_num_value_heads\":8,\"linear_key_head_dim\":32,"          \
    "\"linear_value_head_dim\":16,\"linear_conv_kernel_dim\":4,\"num_experts\":4,"                 \
    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":96,"                                      \
    "\"shared_expert_intermediate_size\":128"
#define BLOCKS                                                                                     \
    "{\"model_type\":\"nemotron_h\",\"hidden_size\":512,\"num_attention_heads\":4,"                \
    "\"num_key_value_heads\":2,\"head_dim\":64,\"vocab_size\":1000,\"intermediate_size\":1024,"    \
    "\"mamba_num_heads\":8,\"mamba_head_dim\":32,\"n_groups\":2,\"ssm_state_size\":16,"            \
    "\"conv_kernel\":4,\"mamba_ssm_cache_dtype\":\"float32\""
#define SHARING                                                                                    \
    "{\"model_type\":\"gemma3n_text\",\"hidden_size\":512,\"num_hidden_layers\":4,"                \
    "\"intermediate_size\":[1024,1024,1024,1024]"
#define SEEING                                                                                     \
    "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"hidden_size\":512,\"num_hidden_layers\":2,"   \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":1024,"              \
    "\"vocab_size\":1000},\"vision_config\":"

#define WIDE_SCAN                                                                                  \
    "{\"model_type\":\"granitemoehybrid\",\"hidden_size\":64,\"num_hidden_layers\":1,"             \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"shared_intermediate_size\":64,"         \
    "\"num_local_experts\":0,\"num_experts_per_tok\":0,\"vocab_size\":8,\"layer_types\":["         \
    "\"mamba\"],"                                                                                  \
    "\"mamba_n_heads\":4096,\"mamba_d_head\":8,\"mamba_n_groups\":1,\"mamba_d_state\":512,"        \
    "\"mamba_d_conv\":4"

/* Layers of several sorts: what their lists may not say. */
static void impossible_layers_are_refused(void **state)
{
    (void)state;
    assert_refused(LLAMA ",\"layer_types\":[\"full_attention\"]}", "layer_types",
                   "expected a list with an item for each layer");
    assert_refused(LLAMA ",\"layer_types\":[1,2]}", "layer_types", "with a word for each layer");
    assert_refused(LLAMA ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}",
                   "layer_types", "a layer with a state, which this family does not have");
    assert_refused(BLOCKS ",\"hybrid_override_pattern\":\"M*\",\"chunk_size\":0}", "chunk_size",
                   "from 1 to 65536");
    assert_refused(WIDE_SCAN ",\"mamba_chunk_size\":65537}", "mamba_chunk_size", "65536");
    assert_refused(SHARING ",\"num_kv_shared_layers\":4}", "num_kv_shared_layers",
                   "no layer is left that has keys");
    assert_refused(SHARING "}", "num_kv_shared_layers", "missing");
    assert_refused(SHARING ",\"num_kv_shared_layers\":[1,2]}", "num_kv_shared_layers",
                   "layers of several sizes; expected one from 1 to 1024");
    assert_refused(SHARING ",\"num_kv_shared_layers\":1,\"layer_types\":[\"sliding_attention\","
                           "\"sliding_attention\",\"sliding_attention\",\"full_attention\"]}",
                   "num_kv_shared_layers", "no layer of the same kind has keys");
    assert_refused(SHARING ",\"num_kv_shared_layers\":0,\"activation_sparsity_pattern\":[0.95]}",
                   "activation_sparsity_pattern", "a list with an item for each layer");
    assert_refused(SHARING ",\"num_kv_shared_layers\":0,\"activation_sparsity_pattern\":"
                           "[0.95,0,0,\"0\"]}",
                   "activation_sparsity_pattern", "a list with a number for each layer");
    assert_refused(BLOCKS "}", "hybrid_override_pattern", "expected the blocks of all layers");
    assert_refused(BLOCKS ",\"hybrid_override_pattern\":\"M*X\"}", "hybrid_override_pattern",
                   "expected blocks of Mamba 2 (M)");
    assert_refused(BLOCKS ",\"hybrid_override_pattern\":\"--\"}", "hybrid_override_pattern",
                   "no block that keeps anything of a sequence");
    assert_refused(BLOCKS ",\"layers_block_type\":[\"mamba\",\"rwkv\"]}", "layers_block_type",
                   "expected blocks of Mamba 2 (M)");
    assert_refused(BLOCKS ",\"layers_block_type\":[\"mamba\",7]}", "layers_block_type",
                   "with a word for each layer");
    assert_refused(BLOCKS ",\"hybrid_override_pattern\":\"M*E\"}", "n_routed_experts", "missing");
    assert_refused(BLOCKS ",\"hybrid_override_pattern\":\"M*\",\"use_bias\":true}", "use_bias",
                   "set it to false");
    assert_refused(BLOCKS ",\"hybrid_override_pattern\":\"M*E\",\"n_routed_experts\":4,"
                          "\"num_experts_per_tok\":2,\"moe_latent_size\":64}",
                   "moe_latent_size", "experts of a latent size");
    assert_refused(BLOCKS ",\"hybrid_override_pattern\":\"M*E\",\"n_routed_experts\":4,"
                          "\"num_experts_per_tok\":2,\"moe_intermediate_size\":96,\"n_group\":3,"
                          "\"moe_shared_expert_intermediate_size\":64}",
                   "n_group", "experts do not divide by it");
    assert_refused(SEEING "7}", "vision_config", "expected an object with the tower's sizes");
    assert_refused(SEEING "{}}", "depth", "missing");
    assert_refused(SEEING "{\"depth\":1,\"hidden_size\":64,\"intermediate_size\":64,"
                          "\"out_hidden_size\":512,\"num_position_embeddings\":16,"
                          "\"deepstack_visual_indexes\":[0,1]}}",
                   "deepstack_visual_indexes", "more than there are layers");
}

static void text_that_is_no_config_is_refused(void **state)
{
    (void)state;
    rvl_error error = {.struct_size = sizeof error};
    rvl_model *model = NULL;
    assert_refused("", "", "not a JSON object");
    assert_refused("[]", "", "not a JSON object: expected a config.json");
    assert_refused("{\"a\":1,\"a\":2}", "", "duplicate");
    assert_int_equal(rvl_model_parse("{\n\"a\":\n]", 8, &model), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(error.line, 3);
    assert_int_equal(rvl_model_parse(NULL, 0, &model), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_model_parse("{}", 2, NULL), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_model_open(NULL, &model), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_model_open("x", NULL), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_int_equal(rvl_model_open("/nowhere/config.json", &model), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.message, "the config cannot be opened: No such file or directory");
    assert_string_equal(error.file, "/nowhere/config.json");
    assert_string_equal(error.native_name, "ENOENT");
    assert_int_equal(rvl_model_open("/tmp", &model), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.message, "a folder: name the config.json in it");
    assert_string_equal(error.native_name, "EISDIR");
    assert_int_equal(rvl_model_open("/proc/self/mem", &model), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.message, "the config cannot be read: Input/output error");
    assert_string_equal(error.native_name, "EIO");
    assert_int_equal(rvl_model_open("/dev/zero", &model), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_non_null(strstr(error.message, "more than 16 MiB"));
    assert_null(model);
    rvl_model_close(NULL);
}

static void parts_of_a_config_change_the_count(void **state)
{
    (void)state;
    /* Per layer: q 512 x 512, k and v 256 x 512, o, three of 1024 x 512, two norms. */
    const uint64_t layer = 512 * 512 * 2 + 2 * 256 * 512 + 3 * 1024 * 512 + 2 * 512;
    const uint64_t dense = 2 * layer + 2 * 1000 * 512 + 512;
    static const struct {
        const char *text;
        int64_t more;
    } cases[] = {
        {LLAMA "}", 0},
        {LLAMA ",\"tie_word_embeddings\":true}", -1000 * 512},
        {LLAMA ",\"attention_bias\":true}", 2 * (512 + 2 * 256 + 512)},
        {LLAMA ",\"mlp_bias\":true}", 2 * (2 * 1024 + 512)},
        {LLAMA ",\"head_dim\":256}", 2 * (2 * 512 * 512 + 2 * 256 * 512)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = parse_model(cases[i].text);
        assert_int_equal(rvl_model_parameter_count(model), dense + (uint64_t)cases[i].more);
        rvl_model_close(model);
    }
}

static void sparse_layers_are_where_the_config_says(void **state)
{
    (void)state;
    /* q, k, v, o of 512 x 512, biases of q, k, v, norms. */
    const uint64_t attention = 4 * 512 * 512 + 3 * 512 + 2 * 512;
    const uint64_t dense = attention + 3 * 1024 * 512;
    const uint64_t sparse = attention + 4 * 512 + 4 * 3 * 96 * 512 + 3 * 128 * 512 + 512;
    const uint64_t rest = 2 * 1000 * 512 + 512;
    static const struct {
        const char *text;
        uint64_t sparse;
    } cases[] = {{MOE "}", 4},
                 {MOE ",\"decoder_sparse_step\":2}", 2},
                 {MOE ",\"mlp_only_layers\":[0,3]}", 2},
                 {MOE ",\"decoder_sparse_step\":2,\"mlp_only_layers\":[0,3]}", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = parse_model(cases[i].text);
        assert_int_equal(rvl_model_parameter_count(model),
                         cases[i].sparse * sparse + (4 - cases[i].sparse) * dense + rest);
        rvl_model_close(model);
    }
}

/* ---- Terms ---- */

static rvl_model_step *make_step(const rvl_model *model, rvl_model_options options)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model_step *step = NULL;
    options.struct_size = sizeof options;
    rvl_status status = rvl_model_step_make(model, &options, &step);
    rvl_last_error(&error);
    if (status != RVL_OK)
        print_error("%s: %s\n", error.key, error.message);
    assert_non_null(step);
    return step;
}

static rvl_trace_device device_of(const rvl_model_step *step)
{
    rvl_trace_device device;
    assert_int_equal(rvl_model_step_get_device(step, &device, sizeof device), RVL_OK);
    return device;
}

/* To be freed. */
static rvl_trace_event *events_of(const rvl_model_step *step, size_t *count_out)
{
    assert_int_equal(rvl_model_step_get_events(step, NULL, 0, 0, count_out), RVL_OK);
    rvl_trace_event *events = calloc(*count_out + 1, sizeof *events);
    assert_non_null(events);
    assert_int_equal(rvl_model_step_get_events(step, events, sizeof *events, *count_out, count_out),
                     RVL_OK);
    return events;
}

/* Packs sizes the plain way: every remainder is looked at for every tensor. */
typedef struct plain_packing {
    uint64_t remainders[2][TENSORS_MAX];
    size_t counts[2];
    uint64_t bytes;
    size_t segments;
} plain_packing;

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

static void plain_pack(plain_packing *p, uint64_t bytes)
{
    uint64_t size = round_up(bytes, 512);
    int pool = size > MIB;
    size_t best = SIZE_MAX;
    if (size >= 10 * MIB) {
        p->bytes += round_up(size, 2 * MIB);
        p->segments++;
        return;
    }
    for (size_t i = 0; i < p->counts[pool]; i++) {
        if (p->remainders[pool][i] >= size &&
            (best == SIZE_MAX || p->remainders[pool][i] < p->remainders[pool][best]))
            best = i;
    }
    if (best == SIZE_MAX) {
        best = p->counts[pool]++;
        assert_true(best < TENSORS_MAX);
        p->remainders[pool][best] = pool == 0 ? 2 * MIB : 20 * MIB;
        p->bytes += p->remainders[pool][best];
        p->segments++;
    }
    p->remainders[pool][best] -= size;
}

static void assert_term(const rvl_model_step *step, rvl_model_term term, uint64_t bytes,
                        size_t allocations)
{
    if (rvl_model_step_bytes(step, term) != bytes)
        print_error("%s\n", rvl_model_step_tag(step, term));
    assert_int_equal(rvl_model_step_bytes(step, term), bytes);
    assert_int_equal(rvl_model_step_allocation_count(step, term), allocations);
}

static void assert_packed(const rvl_model_step *step, rvl_model_term term,
                          const plain_packing *packing)
{
    assert_term(step, term, packing->bytes, packing->segments);
}

/* Llama 3.1 8B over two ranks. */
static void engine_weights_are_fused_and_split(void **state)
{
    (void)state;
    static plain_packing packing;
    memset(&packing, 0, sizeof packing);
    plain_pack(&packing, UINT64_C(2) * 64128 * 4096);
    for (int layer = 0; layer < 32; layer++) {
        plain_pack(&packing, UINT64_C(2) * (16 + 2 * 4) * 128 * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096 * 2048);
        plain_pack(&packing, UINT64_C(2) * 14336 * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096 * 7168);
        plain_pack(&packing, UINT64_C(2) * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096);
    }
    plain_pack(&packing, UINT64_C(2) * 4096);
    plain_pack(&packing, UINT64_C(2) * 64128 * 4096);
    rvl_model *model = open_model("llama-3.1-8b");
    rvl_model_step *step = make_step(model, (rvl_model_options){.tp = 2});
    assert_packed(step, RVL_MODEL_WEIGHTS, &packing);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* Sixteen ranks share eight KV heads: each has one, and every one is there twice. */
static void kv_heads_are_copied_where_ranks_are_more(void **state)
{
    (void)state;
    static plain_packing packing;
    memset(&packing, 0, sizeof packing);
    plain_pack(&packing, UINT64_C(2) * 8016 * 4096);
    for (int layer = 0; layer < 32; layer++) {
        plain_pack(&packing, UINT64_C(2) * (2 + 2) * 128 * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096 * 256);
        plain_pack(&packing, UINT64_C(2) * 2 * 896 * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096 * 896);
        plain_pack(&packing, UINT64_C(2) * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096);
    }
    plain_pack(&packing, UINT64_C(2) * 4096);
    plain_pack(&packing, UINT64_C(2) * 8016 * 4096);
    rvl_model *model = open_model("llama-3.1-8b");
    rvl_model_step *step = make_step(model, (rvl_model_options){.tp = 16});
    assert_packed(step, RVL_MODEL_WEIGHTS, &packing);
    uint64_t room = (H200_BYTES - CONTEXT_BYTES) / 10 * 9 - packing.bytes;
    assert_in_range(rvl_model_step_token_count(step), room / (64 * 256) - 1, room / (64 * 256));
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* Mixtral 8x7B: four ranks, experts dealt out to two groups and split over two ranks in each; the
 * second of two pipeline stages. */
static void experts_are_dealt_out_then_split(void **state)
{
    (void)state;
    static plain_packing packing;
    memset(&packing, 0, sizeof packing);
    for (int layer = 0; layer < 16; layer++) {
        plain_pack(&packing, UINT64_C(2) * (8 + 2 * 2) * 128 * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096 * 1024);
        plain_pack(&packing, UINT64_C(2) * 8 * 4096);
        plain_pack(&packing, UINT64_C(2) * 4 * 2 * 7168 * 4096);
        plain_pack(&packing, UINT64_C(2) * 4 * 4096 * 7168);
        plain_pack(&packing, UINT64_C(2) * 4096);
        plain_pack(&packing, UINT64_C(2) * 4096);
    }
    plain_pack(&packing, UINT64_C(2) * 4096);
    plain_pack(&packing, UINT64_C(2) * 8000 * 4096);
    rvl_model *model = open_model("mixtral-8x7b-v0.1");
    rvl_model_step *step =
        make_step(model, (rvl_model_options){.tp = 4, .ep = 2, .pp = 2, .pp_rank = 1});
    assert_packed(step, RVL_MODEL_WEIGHTS, &packing);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void pack_fp8(plain_packing *packing, uint64_t stack, uint64_t rows, uint64_t columns)
{
    plain_pack(packing, stack * rows * columns);
    plain_pack(packing, stack * ((rows + 127) / 128) * ((columns + 127) / 128) * 4);
}

/* DeepSeek V3, with a config that says fp8: sixteen ranks, experts whole; its latent cache is one
 * buffer a layer. */
static void fp8_weights_have_scales(void **state)
{
    (void)state;
    static plain_packing packing;
    memset(&packing, 0, sizeof packing);
    plain_pack(&packing, UINT64_C(2) * 8080 * 7168);
    for (int layer = 0; layer < 61; layer++) {
        pack_fp8(&packing, 1, 1536 + 576, 7168);
        plain_pack(&packing, 2 * 1536);
        pack_fp8(&packing, 1, 8 * 192, 1536);
        plain_pack(&packing, 2 * 512);
        pack_fp8(&packing, 1, 8 * 256, 512);
        pack_fp8(&packing, 1, 7168, 8 * 128);
        if (layer < 3) {
            pack_fp8(&packing, 1, 2 * 1152, 7168);
            pack_fp8(&packing, 1, 7168, 1152);
        } else {
            plain_pack(&packing, 2 * 256 * 7168);
            plain_pack(&packing, 2 * 256);
            pack_fp8(&packing, 16, 2 * 2048, 7168);
            pack_fp8(&packing, 16, 7168, 2048);
            pack_fp8(&packing, 1, 2 * 128, 7168);
            pack_fp8(&packing, 1, 7168, 128);
        }
        plain_pack(&packing, 2 * 7168);
        plain_pack(&packing, 2 * 7168);
    }
    plain_pack(&packing, 2 * 7168);
    plain_pack(&packing, UINT64_C(2) * 8080 * 7168);
    rvl_model *model = open_model("deepseek-v3");
    rvl_model_step *step =
        make_step(model, (rvl_model_options){.tp = 16, .ep = 16, .kv_dtype = RVL_MODEL_FP8});
    assert_packed(step, RVL_MODEL_WEIGHTS, &packing);
    uint64_t room = (H200_BYTES - CONTEXT_BYTES) / 1000000 * 900000 +
                    (H200_BYTES - CONTEXT_BYTES) % 1000000 * 900000 / 1000000 - packing.bytes;
    uint64_t tokens = room / (61 * 576);
    assert_int_equal(rvl_model_step_token_count(step), tokens);
    assert_term(step, RVL_MODEL_KV_CACHE, 61 * round_up(tokens * 576, 2 * MIB), 61);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* ---- Caches that are not of one size a token ---- */

typedef struct sequence {
    const char *name;
    uint32_t tp;
    uint32_t tokens;
    uint64_t bytes; /* that the cache keeps of it */
    size_t buffers;
} sequence;

static const sequence sequences[] = {
    /* 4 layers see all, 22 the last 512; a KV head of 256. */
    {"gemma-3-1b", 1, 32768, UINT64_C(1024) * (4 * 32768 + 22 * 512), 52},
    {"gemma-3-1b", 1, 512, UINT64_C(1024) * 26 * 512, 52},
    /* 12 of 24 layers see all, the others the last 128; 8 heads of 64. */
    {"gpt-oss-20b", 1, 65536, UINT64_C(2048) * 12 * (65536 + 128), 48},
    {"gpt-oss-20b", 4, 65536, UINT64_C(512) * 12 * (65536 + 128), 48},
    /* 12 layers of attention; in 36 three inputs of a convolution, and 32 heads of 128 x 128. */
    {"qwen3-next-80b-a3b", 1, 8192,
     UINT64_C(2048) * 12 * 8192 + 36 * (UINT64_C(3) * 8192 * 2 + 32 * 128 * 128 * 2), 60},
    {"qwen3-next-80b-a3b", 2, 65536,
     UINT64_C(1024) * 12 * 65536 + 36 * (UINT64_C(3) * 4096 * 2 + 16 * 128 * 128 * 2), 60},
    /* Its config says float32 of the state. */
    {"qwen3_5", 1, 8192,
     UINT64_C(4096) * 8 * 8192 + 24 * (UINT64_C(3) * 8192 * 2 + 32 * 128 * 128 * 4), 40},
    /* 4 layers of attention, 27 of Mamba: 128 heads of 80, 8 groups, state 128, in float32. */
    {"nemotron-nano-9b-v2", 1, 8192,
     UINT64_C(4096) * 4 * 8192 + 27 * (UINT64_C(3) * (10240 + 2048) * 2 + 10240 * 128 * 4), 35},
    /* One group, which each rank has: 48 heads of 64. */
    {"granite-4.0-h-tiny", 1, 8192,
     UINT64_C(2048) * 4 * 8192 + 36 * (UINT64_C(3) * (3072 + 256) * 2 + 3072 * 128 * 2), 44},
    {"granite-4.0-h-tiny", 4, 8192,
     UINT64_C(512) * 4 * 8192 + 36 * (UINT64_C(3) * (768 + 256) * 2 + 768 * 128 * 2), 44},
    /* 15 layers have no cache; of the others 4 see all, 16 the last 512. */
    {"gemma-3n-e4b-text", 1, 16384, UINT64_C(2048) * (4 * 16384 + 16 * 512), 40},
    /* 10 layers see all with 4 heads of 512, 50 the last 1024 with 16 of 256. */
    {"gemma-4-31b", 1, 32768, UINT64_C(8192) * 10 * 32768 + UINT64_C(16384) * 50 * 1024, 120},
    {"gemma-4-31b", 8, 32768, UINT64_C(2048) * 10 * 32768 + UINT64_C(2048) * 50 * 1024, 120},
    /* 20 layers have no cache; of the others 3 see all, 12 the last 512. */
    {"gemma-4-e2b-text", 1, 16384, UINT64_C(2048) * 3 * 16384 + UINT64_C(1024) * 12 * 512, 30},
    /* 6 layers of attention, 8 heads of 64; in 10 two inputs of a convolution. */
    {"lfm2-1.2b", 1, 8192, UINT64_C(2048) * 6 * 8192 + 10 * UINT64_C(2) * 2048 * 2, 22},
    {"lfm2-1.2b", 4, 8192, UINT64_C(512) * 6 * 8192 + 10 * UINT64_C(2) * 512 * 2, 22},
    /* 3 layers of attention, 29 of Mamba: 128 heads of 64, 1 group, state 128. */
    {"bamba-9b", 1, 8192,
     UINT64_C(4096) * 3 * 8192 + 29 * (UINT64_C(3) * (8192 + 256) * 2 + 8192 * 128 * 2), 35},
    /* 8 layers see all, 24 the last 4096; 8 heads of 128. */
    {"command-r7b", 1, 65536, UINT64_C(4096) * (8 * 65536 + 24 * 4096), 64},
    /* 24 layers with both: 2 KV heads of 128; 48 heads of 64, 1 group, state 256. */
    {"falcon-h1-1.5b", 1, 8192,
     UINT64_C(1024) * 24 * 8192 + 24 * (UINT64_C(3) * (3072 + 512) * 2 + 3072 * 256 * 2), 72},
    /* Every layer sees the last 4096; 2 heads of 128. */
    {"starcoder2-3b", 1, 16384, UINT64_C(1024) * 30 * 4096, 60},
    /* 12 layers see all, 36 a chunk of 8192. */
    {"llama4-text", 8, 131072, UINT64_C(512) * (12 * 131072 + 36 * 8192), 96},
};

static void caches_keep_what_layers_need(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        const sequence *s = &sequences[i];
        const rvl_model_given given = {.term = RVL_MODEL_WEIGHTS, .bytes = GIB};
        rvl_model *model = open_model(s->name);
        rvl_model_step *step = make_step(model, (rvl_model_options){.device = "1TiB",
                                                                    .tp = s->tp,
                                                                    .seq_len = s->tokens,
                                                                    .mem_fraction_ppm = 1000000,
                                                                    .given = &given,
                                                                    .given_size = sizeof given,
                                                                    .given_count = 1});
        uint64_t room = 1024 * GIB - CONTEXT_BYTES - GIB;
        uint64_t held = rvl_model_step_bytes(step, RVL_MODEL_KV_CACHE);
        uint64_t tokens = rvl_model_step_token_count(step);
        __extension__ unsigned __int128 expected = room;
        if (tokens != (uint64_t)(expected * s->tokens / s->bytes))
            print_error("%s, tp %u, %u tokens\n", s->name, s->tp, s->tokens);
        assert_int_equal(tokens, (uint64_t)(expected * s->tokens / s->bytes));
        assert_int_equal(rvl_model_step_allocation_count(step, RVL_MODEL_KV_CACHE), s->buffers);
        /* Whole sequences, whole granules. */
        assert_in_range(held, room - s->bytes, room + s->buffers * 2 * MIB);
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
}

/* A sequence alone is larger than the room: part of it is there, and one state. */
static void part_of_a_sequence_may_be_all(void **state)
{
    (void)state;
    const rvl_model_given given = {.term = RVL_MODEL_WEIGHTS, .bytes = GIB};
    rvl_model *model = open_model("qwen3-next-80b-a3b");
    rvl_model_step *step = make_step(model, (rvl_model_options){.device = "4GiB",
                                                                .seq_len = 1 << 24,
                                                                .given = &given,
                                                                .given_size = sizeof given,
                                                                .given_count = 1});
    assert_in_range(rvl_model_step_token_count(step), 1, 1 << 24);
    assert_int_equal(rvl_model_step_allocation_count(step, RVL_MODEL_KV_CACHE), 60);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* A stage without a layer that keeps anything holds no cache, and bounds no other. */
static void stages_without_a_cache_bound_nothing(void **state)
{
    (void)state;
    rvl_model *model = parse_model(BLOCKS ",\"hybrid_override_pattern\":\"*M--\"}");
    rvl_model_step *first = make_step(model, (rvl_model_options){.pp = 2});
    rvl_model_step *last = make_step(model, (rvl_model_options){.pp = 2, .pp_rank = 1});
    assert_int_equal(rvl_model_step_allocation_count(first, RVL_MODEL_KV_CACHE), 3);
    assert_int_equal(rvl_model_step_allocation_count(last, RVL_MODEL_KV_CACHE), 0);
    assert_int_equal(rvl_model_step_token_count(first), rvl_model_step_token_count(last));
    rvl_model_step_close(first);
    rvl_model_step_close(last);
    rvl_model_close(model);
}

static void assert_step_refused(const rvl_model *model, rvl_model_options options, const char *key,
                                const char *part)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model_step *step = NULL;
    options.struct_size = sizeof options;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_null(step);
    assert_string_equal(error.key, key);
    assert_non_null(strstr(error.message, part));
}

static void states_are_dealt_out_by_heads(void **state)
{
    (void)state;
    rvl_model *model = parse_model(HYBRID "}");
    assert_step_refused(model, (rvl_model_options){.tp = 8}, "num_attention_heads", "tp = 8");
    rvl_model_close(model);
    model = parse_model("{\"model_type\":\"qwen3_5\",\"text_config\":{\"hidden_size\":512,"
                        "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"head_dim\":64,"
                        "\"num_key_value_heads\":2,\"vocab_size\":1000,\"intermediate_size\":1024,"
                        "\"linear_num_key_heads\":2,\"linear_num_value_heads\":8,"
                        "\"linear_key_head_dim\":32,\"linear_value_head_dim\":16,"
                        "\"linear_conv_kernel_dim\":4}}");
    assert_step_refused(model, (rvl_model_options){.tp = 4}, "linear_num_key_heads",
                        "2 does not divide by tp = 4");
    rvl_model_close(model);
    model = parse_model("{\"model_type\":\"nemotron_h\",\"hidden_size\":512,"
                        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":64,"
                        "\"vocab_size\":1000,\"intermediate_size\":1024,\"mamba_num_heads\":9,"
                        "\"mamba_head_dim\":32,\"n_groups\":3,\"ssm_state_size\":16,"
                        "\"conv_kernel\":4,\"hybrid_override_pattern\":\"M*-\"}");
    assert_step_refused(model, (rvl_model_options){.tp = 2}, "number of Mamba groups",
                        "3 does not divide by tp = 2");
    rvl_model_close(model);
}

#define ROTARY                                                                                     \
    "{\"model_type\":\"glm4\",\"hidden_size\":512,\"num_hidden_layers\":2,\"num_attention_"        \
    "heads\":8,"                                                                                   \
    "\"num_key_value_heads\":2,\"intermediate_size\":1024,\"vocab_size\":1000,\"tie_word_"         \
    "embeddings\":"                                                                                \
    "false,\"head_dim\":64"

static void a_rotated_part_that_is_no_part_is_refused(void **state)
{
    (void)state;
    assert_refused(ROTARY ",\"partial_rotary_factor\":1.5}", "partial_rotary_factor",
                   "more than 0, 1 at most");
    assert_refused(ROTARY ",\"partial_rotary_factor\":0}", "partial_rotary_factor",
                   "more than 0, 1 at most");
    assert_refused(ROTARY ",\"rotary_dim\":65}", "rotary_dim", "more than a head has");
}

#define SHORT_CONV                                                                                 \
    "{\"model_type\":\"lfm2\",\"hidden_size\":510,\"num_hidden_layers\":2,\"vocab_size\":1000,"    \
    "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":64,"                         \
    "\"full_attn_idxs\":[1]"

/* Two thirds of what is said, times a number, in steps; or as it is said. */
static void the_mlp_of_lfm2_is_adjusted(void **state)
{
    (void)state;
    static const struct {
        const char *rest;
        uint64_t rows;
    } sizes[] = {
        {",\"block_ff_dim\":12288}", 8192},
        {",\"intermediate_size\":6656}", 4608}, /* of 4437 */
        {",\"block_ff_dim\":12288,\"intermediate_size\":7}", 8192},
        {",\"block_ff_dim\":6656,\"block_ffn_dim_multiplier\":1.5,\"block_multiple_of\":64}", 6656},
        {",\"block_ff_dim\":6656,\"block_auto_adjust_ff_dim\":false}", 6656},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, SHORT_CONV "%s", sizes[i].rest);
        rvl_model *model = parse_model(text);
        assert_tensor(model, "model.layers.0.mlp.gate_proj.weight", 0, sizes[i].rows, 510);
        assert_tensor(model, "model.layers.0.conv.in_proj.weight", 0, 1530, 510);
        assert_tensor(model, "model.layers.1.self_attn.q_proj.weight", 1, 256, 510);
        rvl_model_close(model);
    }
    assert_refused(SHORT_CONV "}", "intermediate_size", "missing");
    assert_refused(SHORT_CONV ",\"intermediate_size\":64,\"block_ffn_dim_multiplier\":0}",
                   "block_ffn_dim_multiplier", "more than 0, 16 at most");
    assert_refused(SHORT_CONV ",\"intermediate_size\":1}", "block_multiple_of",
                   "the MLP has no width");
    assert_refused(SHORT_CONV ",\"intermediate_size\":64,\"conv_bias\":true}", "conv_bias",
                   "set it to false");
}

/* Its experts: the first layers have none, and the bias of their choice may be missing. */
static void experts_of_lfm2_have_a_bias_if_nothing_is_said(void **state)
{
    (void)state;
#define SPARSE_CONV                                                                                \
    "{\"model_type\":\"lfm2_moe\",\"hidden_size\":64,\"num_hidden_layers\":3,\"vocab_size\":1000," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":96,"                \
    "\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"
    rvl_model *with = parse_model(SPARSE_CONV ",\"num_dense_layers\":1}");
    rvl_model *without =
        parse_model(SPARSE_CONV ",\"num_dense_layers\":1,\"use_expert_bias\":false}");
    rvl_model *sparse = parse_model(SPARSE_CONV ",\"num_dense_layers\":0}");
    const uint64_t experts = 4 * 3 * 32 * 64 + 4 * 64 + 4; /* with their router */
    assert_int_equal(rvl_model_parameter_count(with),
                     rvl_model_parameter_count(without) + UINT64_C(2) * 4);
    assert_int_equal(rvl_model_parameter_count(sparse),
                     rvl_model_parameter_count(with) - UINT64_C(3) * 96 * 64 + experts);
    rvl_model_close(with);
    rvl_model_close(without);
    rvl_model_close(sparse);
    assert_refused(SPARSE_CONV "}", "num_dense_layers", "missing");
}

/* Apertus: four numbers of each layer's activation count. */
static void an_activation_may_have_parameters(void **state)
{
    (void)state;
#define XIELU                                                                                      \
    "{\"model_type\":\"apertus\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":1000,"  \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96"
    rvl_model *model = parse_model(XIELU ",\"hidden_act\":\"xielu\"}");
    const uint64_t layer = 2 * 64 * 64 + 2 * 32 * 64 + 2 * 16 + 2 * 96 * 64 + 4 + 2 * 64;
    assert_int_equal(rvl_model_parameter_count(model), 2 * layer + 2 * 1000 * 64 + 64);
    rvl_model_close(model);
    assert_refused(XIELU ",\"hidden_act\":\"silu\"}", "hidden_act", "expected xielu");
}

/* Cohere: a layer has one norm; q and k may have weights of all heads; three layers of four a
 * window.
 */
static void layers_may_have_one_norm_for_both_blocks(void **state)
{
    (void)state;
#define COHERE(type)                                                                               \
    "{\"model_type\":\"" type "\",\"hidden_size\":64,\"num_hidden_layers\":8,\"vocab_size\":1000," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96"
    const uint64_t layer = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 96 * 64 + 64;
    const uint64_t all = 8 * layer + 1000 * 64 + 64; /* tied */
    rvl_model *plain = parse_model(COHERE("cohere") "}");
    rvl_model *normed = parse_model(COHERE("cohere") ",\"use_qk_norm\":true}");
    rvl_model *windowed = parse_model(COHERE("cohere2") ",\"sliding_window\":100}");
    assert_int_equal(rvl_model_parameter_count(plain), all);
    assert_int_equal(rvl_model_parameter_count(normed), all + UINT64_C(8) * (64 + 32));
    assert_int_equal(rvl_model_parameter_count(windowed), all);
    rvl_model_close(plain);
    rvl_model_close(normed);
    rvl_model_close(windowed);
}

/* StarCoder 2: norms and products have biases if nothing is said, and a window is of all layers. */
static void norms_may_have_biases(void **state)
{
    (void)state;
#define STARCODER                                                                                  \
    "{\"model_type\":\"starcoder2\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":"    \
    "1000,"                                                                                        \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96"
    const uint64_t weights = 2 * 64 * 64 + 2 * 32 * 64 + 2 * 96 * 64 + 4 * 64;
    const uint64_t biases = 2 * 64 + 2 * 32 + 96 + 64;
    const uint64_t ends = 1000 * 64 + 2 * 64; /* tied */
    rvl_model *biased = parse_model(STARCODER ",\"sliding_window\":100}");
    rvl_model *plain = parse_model(STARCODER ",\"use_bias\":false}");
    assert_int_equal(rvl_model_parameter_count(biased), 2 * (weights + biases) + ends);
    assert_int_equal(rvl_model_parameter_count(plain), 2 * weights + ends);
    rvl_model_close(biased);
    rvl_model_close(plain);
    assert_refused(STARCODER ",\"residual_dropout\":2}", "residual_dropout", "from 0 to 1");
    assert_refused(STARCODER ",\"embedding_dropout\":\"a\"}", "embedding_dropout", "from 0 to 1");
}

/* Phi-3.5-MoE: attention, norms and head have biases, experts and router none. */
static void a_head_may_have_a_bias(void **state)
{
    (void)state;
#define PHI                                                                                        \
    "{\"model_type\":\"phimoe\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":1000,"   \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96,"                \
    "\"num_local_experts\":4,"
    const uint64_t layer = 2 * 64 * 64 + 2 * 32 * 64 + 4 * (3 * 96 * 64 + 64) + 4 * 64;
    const uint64_t biases = 2 * 64 + 2 * 32;
    const uint64_t ends = 2 * 1000 * 64 + 2 * 64;
    rvl_model *plain = parse_model(PHI "\"num_experts_per_tok\":2}");
    rvl_model *biased =
        parse_model(PHI "\"num_experts_per_tok\":2,\"attention_bias\":true,\"lm_head_bias\":true}");
    assert_int_equal(rvl_model_parameter_count(plain), 2 * layer + ends);
    assert_int_equal(rvl_model_parameter_count(biased), 2 * (layer + biases) + ends + 1000);
    rvl_model_close(plain);
    rvl_model_close(biased);
    assert_refused(PHI "\"num_experts_per_tok\":1}", "num_experts_per_tok", "expected 2");
    assert_refused(PHI "\"num_experts_per_tok\":2,\"input_jitter_noise\":-1}", "input_jitter_noise",
                   "from 0 to 1");
}

/* Falcon-H1: every layer has attention and Mamba 2, without a norm behind the latter. */
static void a_layer_may_have_a_state_beside_attention(void **state)
{
    (void)state;
#define FALCON                                                                                     \
    "{\"model_type\":\"falcon_h1\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":"     \
    "1000,"                                                                                        \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96,"                \
    "\"mamba_n_heads\":6,\"mamba_d_head\":16,\"mamba_n_groups\":1,\"mamba_d_state\":32,"           \
    "\"mamba_d_conv\":4"
    rvl_model *model = parse_model(FALCON ",\"mamba_d_ssm\":96}");
    const uint64_t attention = 2 * 64 * 64 + 2 * 32 * 64;
    const uint64_t convolution = 5 * (96 + 2 * 32); /* with its bias */
    const uint64_t mamba = (2 * 96 + 2 * 32 + 6) * 64 + convolution + 3 * 6 + 96 * 64;
    const uint64_t layer = attention + mamba + 3 * 96 * 64 + 2 * 64;
    assert_int_equal(rvl_model_parameter_count(model), 2 * layer + 2 * 1000 * 64 + 64);
    assert_step_refused(model,
                        (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP,
                                            .lora_rank = 8,
                                            .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
                        "lora-targets", "PEFT refuses all-linear for this family");
    rvl_model_close(model);
    assert_refused(FALCON ",\"mamba_d_ssm\":128}", "mamba_d_ssm", "not mamba_n_heads times");
    assert_refused(FALCON ",\"mamba_rms_norm\":true}", "mamba_rms_norm", "set it to false");
    assert_refused(FALCON ",\"projectors_bias\":true}", "projectors_bias", "set it to false");
}

/* nanochat: no norm has a weight, and logits may have no cap. */
static void norms_may_have_no_weights(void **state)
{
    (void)state;
#define NANO                                                                                       \
    "{\"model_type\":\"nanochat\",\"hidden_size\":64,\"num_hidden_layers\":2,\"vocab_size\":1000," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":96"
    rvl_model *capped = parse_model(NANO "}");
    rvl_model *plain = parse_model(NANO ",\"final_logit_softcapping\":null}");
    const uint64_t layer = 2 * 64 * 64 + 2 * 32 * 64 + 2 * 96 * 64;
    assert_int_equal(rvl_model_parameter_count(capped), 2 * layer + 2 * 1000 * 64);
    assert_int_equal(rvl_model_parameter_count(plain), 2 * layer + 2 * 1000 * 64);
    const rvl_model_options ddp = {.train = RVL_MODEL_TRAIN_DDP, .seq_len = 65536};
    rvl_model_step *with = make_step(capped, ddp), *without = make_step(plain, ddp);
    const uint64_t tanh = 2 * 65536 * UINT64_C(1000); /* of each logit, kept */
    uint64_t more = rvl_model_step_bytes(with, RVL_MODEL_LOGITS) -
                    rvl_model_step_bytes(without, RVL_MODEL_LOGITS);
    assert_in_range(more, tanh - 2 * MIB, tanh + 2 * MIB); /* whole segments */
    rvl_model_step_close(with);
    rvl_model_step_close(without);
    rvl_model_close(capped);
    rvl_model_close(plain);
}

/* A tie under LFM2's own name counts; so does the usual one, and true if there is none. */
static void a_tie_may_have_two_names(void **state)
{
    (void)state;
    static const struct {
        const char *rest;
        bool tied;
    } ties[] = {{"}", true},
                {",\"tie_embedding\":false}", false},
                {",\"tie_word_embeddings\":false}", false},
                {",\"tie_word_embeddings\":false,\"tie_embedding\":true}", true}};
    uint64_t counts[4];
    for (size_t i = 0; i < 4; i++) {
        char text[1024];
        snprintf(text, sizeof text, SHORT_CONV ",\"intermediate_size\":64%s", ties[i].rest);
        rvl_model *model = parse_model(text);
        counts[i] = rvl_model_parameter_count(model);
        assert_int_equal(counts[i], counts[0] + (ties[i].tied ? 0 : 1000 * 510));
        rvl_model_close(model);
    }
}

/* A list of kinds counts before a list of numbers; what is in neither has a state. */
static void layers_with_attention_may_be_numbered(void **state)
{
    (void)state;
    rvl_model *model = parse_model(
        SHORT_CONV ",\"intermediate_size\":64,\"layer_types\":[\"full_attention\",\"conv\"]}");
    assert_tensor(model, "model.layers.0.self_attn.q_proj.weight", 0, 256, 510);
    assert_tensor(model, "model.layers.1.conv.conv.weight", 1, 510, 3);
    rvl_model_close(model);
#define NUMBERED                                                                                   \
    "{\"model_type\":\"bamba\",\"hidden_size\":64,\"num_hidden_layers\":2,"                        \
    "\"vocab_size\":1000,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"attn_layer_"        \
    "indices\":"
    assert_refused(NUMBERED "1}", "attn_layer_indices", "expected a list of layers");
    assert_refused(NUMBERED "[2]}", "attn_layer_indices", "expected numbers of layers, from 0");
    assert_refused(NUMBERED "[-1]}", "attn_layer_indices", "expected numbers of layers, from 0");
    assert_refused(NUMBERED "[\"0\"]}", "attn_layer_indices", "expected numbers of layers, from 0");
}

/* transformers has no scaled_dot_product_attention for them, or fails without a mask. */
static void sinks_and_indexers_refuse_parts_of_sequences(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-oss-20b", "gpt-oss-120b", "glm-moe-dsa",
                                        "deepseek-v3.2-exp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rvl_model *model = open_model(names[i]);
        assert_step_refused(
            model,
            (rvl_model_options){
                .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 4, .train_cp = 2, .seq_len = 1024},
            "train-cp", "fails in transformers for sinks and indexers");
        rvl_model_close(model);
    }
}

/* Ranks that do not divide a short convolution. */
static void a_short_convolution_refuses_unequal_ranks(void **state)
{
    (void)state;
    rvl_model *model = parse_model(SHORT_CONV ",\"intermediate_size\":64}");
    assert_step_refused(model, (rvl_model_options){.tp = 4}, "hidden_size",
                        "510 does not divide by tp = 4");
    rvl_model_close(model);
}

/* The tower of GLM is known without biases of attention alone. */
static void a_tower_with_other_biases_is_refused(void **state)
{
    (void)state;
    assert_refused("{\"model_type\":\"glm4v\",\"text_config\":{\"model_type\":\"glm4v_text\","
                   "\"hidden_size\":512,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                   "\"num_key_value_heads\":2,\"intermediate_size\":1024,\"vocab_size\":1000},"
                   "\"vision_config\":{\"depth\":1,\"hidden_size\":64,\"intermediate_size\":64,"
                   "\"patch_size\":14,\"image_size\":336,\"out_hidden_size\":512,"
                   "\"attention_bias\":true}}",
                   "attention_bias", "not known for this tower");
}

/* A loop that would take too long. */
static void a_delta_net_refuses_endless_loops(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen3_5"); /* 24 layers have a state */
    const uint32_t longest = (1u << 20) / 24 * 64;
    assert_step_refused(model,
                        (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .seq_len = longest + 1},
                        "seq-len", "at most 1048576 chunks of all layers");
    rvl_model_step_close(make_step(model, (rvl_model_options){.seq_len = longest + 1}));
    rvl_model_close(model);
}

/* What PEFT itself makes impossible, and what no run has shown. */
static void adapters_are_refused_where_peft_refuses_them(void **state)
{
    (void)state;
    static const struct {
        const char *name, *part;
    } cases[] = {{"falcon-h1-1.5b", "PEFT refuses all-linear for this family"},
                 {"nemotron-nano-9b-v2", "PEFT refuses all-linear for this family"},
                 {"llama4-text", "adapts this family's router"},
                 {"llama-4-scout-17b-16e", "adapts this family's router"},
                 {"phi-mini-moe", "adapts this family's router"},
                 {"deepseek-moe-16b", "beside this family's experts is not known"},
                 {"kimi-k2", "beside this family's experts is not known"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = open_model(cases[i].name);
        assert_step_refused(model,
                            (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP,
                                                .lora_rank = 8,
                                                .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
                            "lora-targets", cases[i].part);
        rvl_model_close(model);
    }
}

/* Adapters of rank 4 on experts that are parameters: two stacks of 128, of which the first has
 * twice the rank, and the router. They have gradients in fp32, and nothing else has any. */
static void experts_have_adapters(void **state)
{
    (void)state;
    const rvl_model_options options = {.train = RVL_MODEL_TRAIN_FSDP,
                                       .train_ranks = 2,
                                       .seq_len = 256,
                                       .lora_rank = 4,
                                       .lora_targets = RVL_MODEL_LORA_ALL_LINEAR};
    rvl_model *model = open_model("qwen3-30b-a3b");
    rvl_model_step *step = make_step(model, options);
    const uint64_t attention = 4 * (2048 + 4096 + 2 * (2048 + 512) + 4096 + 2048);
    const uint64_t experts = 128 * 4 * (2 * (2048 + 2 * 768) + 768 + 2048);
    const uint64_t router = 4 * (2048 + 128);
    const uint64_t states = 2 * 4 * 48 * (attention + experts + router) / 2; /* of two ranks */
    assert_in_range(rvl_model_step_bytes(step, RVL_MODEL_OPTIMIZER), states, states + 64 * MIB);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void pack_mxfp4(plain_packing *packing, uint64_t stack, uint64_t rows, uint64_t columns)
{
    plain_pack(packing, stack * rows * columns / 2);
    plain_pack(packing, stack * rows * ((columns + 31) / 32));
}

/* gpt-oss 20B on two ranks: its experts alone are quantised; biases and sinks are not. */
static void mxfp4_weights_have_exponents(void **state)
{
    (void)state;
    static plain_packing packing;
    memset(&packing, 0, sizeof packing);
    plain_pack(&packing, UINT64_C(2) * 100544 * 2880);
    for (int layer = 0; layer < 24; layer++) {
        plain_pack(&packing, UINT64_C(2) * (32 + 2 * 4) * 64 * 2880);
        plain_pack(&packing, UINT64_C(2) * (32 + 2 * 4) * 64);
        plain_pack(&packing, UINT64_C(2) * 2880 * 2048);
        plain_pack(&packing, 2 * 2880);
        plain_pack(&packing, 2 * 32); /* sinks */
        plain_pack(&packing, 2 * 32 * 2880);
        plain_pack(&packing, 2 * 32);
        pack_mxfp4(&packing, 32, 2 * 1440, 2880);
        plain_pack(&packing, UINT64_C(2) * 32 * 2 * 1440);
        pack_mxfp4(&packing, 32, 2880, 1440);
        plain_pack(&packing, UINT64_C(2) * 32 * 2880);
        plain_pack(&packing, 2 * 2880);
        plain_pack(&packing, 2 * 2880);
    }
    plain_pack(&packing, 2 * 2880);
    plain_pack(&packing, UINT64_C(2) * 100544 * 2880);
    rvl_model *model = open_model("gpt-oss-20b");
    rvl_model_step *step = make_step(model, (rvl_model_options){.tp = 2});
    assert_packed(step, RVL_MODEL_WEIGHTS, &packing);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* The first stage has the tower, whole on one rank; the copy for an update has it as well. */
static void towers_are_on_the_first_stage(void **state)
{
    (void)state;
    static const char with[] =
        SEEING "{\"depth\":2,\"hidden_size\":1024,\"intermediate_size\":4096,\"patch_size\":16,"
               "\"out_hidden_size\":512,\"num_position_embeddings\":2304}}";
    const rvl_model_options first = {.pp = 2, .update_bucket_bytes = RVL_MODEL_UPDATE_WHOLE},
                            last = {.pp = 2, .pp_rank = 1};
    rvl_model *seeing = parse_model(with), *blind = parse_model(SEEING "null}");
    /* Patches, positions; twice attention, an MLP, norms; the merger of four patches. */
    uint64_t layer = 4 * 1024 * 1024 + 4 * 1024 + 2 * 4096 * 1024 + 4096 + 1024 + 4 * 1024;
    uint64_t tower = 1537 * 1024 + 2304 * 1024 + 2 * layer + 2 * 1024 + 4097 * 4096 + 4097 * 512;
    assert_int_equal(rvl_model_parameter_count(seeing), rvl_model_parameter_count(blind) + tower);
    const struct {
        rvl_model_options options;
        rvl_model_term term;
        uint64_t least;
    } cases[] = {{first, RVL_MODEL_WEIGHTS, 2 * tower},
                 {last, RVL_MODEL_WEIGHTS, 0},
                 {first, RVL_MODEL_TRAINING_COPY, 2 * tower}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model_step *a = make_step(seeing, cases[i].options);
        rvl_model_step *b = make_step(blind, cases[i].options);
        uint64_t more =
            rvl_model_step_bytes(a, cases[i].term) - rvl_model_step_bytes(b, cases[i].term);
        assert_in_range(more, cases[i].least > 40 * MIB ? cases[i].least - 40 * MIB : 0,
                        cases[i].least > 0 ? cases[i].least + 40 * MIB : 0);
        rvl_model_step_close(a);
        rvl_model_step_close(b);
    }
    rvl_model_close(seeing);
    rvl_model_close(blind);
}

static void pack_int4(plain_packing *packing, uint64_t rows, uint64_t columns)
{
    uint64_t groups = rows * ((columns + 127) / 128);
    plain_pack(packing, rows * columns / 2);
    plain_pack(packing, groups * 2);
    plain_pack(packing, (groups + 1) / 2);
}

/* Qwen 2.5 0.5B, with its embedding as its head: the last of two stages has it again. */
static void int4_weights_have_scales_and_zeros(void **state)
{
    (void)state;
    static plain_packing packing;
    memset(&packing, 0, sizeof packing);
    for (int layer = 0; layer < 12; layer++) {
        pack_int4(&packing, (14 + 2 * 2) * 64, 896);
        plain_pack(&packing, 2 * (14 + 2 * 2) * 64);
        pack_int4(&packing, 896, 896);
        pack_int4(&packing, 2 * 4864, 896);
        pack_int4(&packing, 896, 4864);
        plain_pack(&packing, 2 * 896);
        plain_pack(&packing, 2 * 896);
    }
    plain_pack(&packing, 2 * 896);
    plain_pack(&packing, UINT64_C(2) * 151936 * 896);
    rvl_model *model = open_model("qwen2.5-0.5b");
    rvl_model_step *step = make_step(
        model, (rvl_model_options){.pp = 2, .pp_rank = 1, .weights_dtype = RVL_MODEL_INT4});
    assert_packed(step, RVL_MODEL_WEIGHTS, &packing);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void quantization_config_is_taken_over(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        rvl_model_dtype same_as;
    } cases[] = {
        {LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\"}}", RVL_MODEL_FP8},
        {LLAMA ",\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4}}", RVL_MODEL_INT4},
        {LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}", RVL_MODEL_INT4},
        {LLAMA "}", RVL_MODEL_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = parse_model(cases[i].text);
        rvl_model_step *step = make_step(model, (rvl_model_options){0});
        rvl_model_step *same =
            make_step(model, (rvl_model_options){.weights_dtype = cases[i].same_as});
        assert_term(step, RVL_MODEL_WEIGHTS, rvl_model_step_bytes(same, RVL_MODEL_WEIGHTS),
                    rvl_model_step_allocation_count(same, RVL_MODEL_WEIGHTS));
        rvl_model_step_close(same);
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
}

/* Weights of the LLAMA above, by a rule for a matrix of these rows and columns. */
typedef struct wanted_scales {
    unsigned bits;
    uint64_t scale_rows; /* 0: all */
    uint64_t scale_columns;
    uint64_t scale_bytes;
    bool zeros;
} wanted_scales;

static uint64_t groups_of(uint64_t rows, uint64_t columns, wanted_scales s)
{
    uint64_t down = s.scale_rows > 0 ? (rows + s.scale_rows - 1) / s.scale_rows : 1;
    uint64_t across = s.scale_columns > 0 ? (columns + s.scale_columns - 1) / s.scale_columns : 1;
    return down * across;
}

static void pack_scaled(plain_packing *packing, uint64_t rows, uint64_t columns, wanted_scales s)
{
    uint64_t groups = groups_of(rows, columns, s);
    plain_pack(packing, rows * columns * s.bits / 8);
    if (s.bits < 16)
        plain_pack(packing, groups * s.scale_bytes);
    if (s.zeros)
        plain_pack(packing, (groups * s.bits + 7) / 8);
}

/* Attention, gate and up, down of layers 0 and 1: a bit each that stays as it was. */
static void assert_scaled(const char *quantisation, wanted_scales s, unsigned kept)
{
    static plain_packing packing;
    static const wanted_scales plain = {.bits = 16};
    char text[1024];
    memset(&packing, 0, sizeof packing);
    plain_pack(&packing, 2 * 1024 * 512);
    for (unsigned layer = 0; layer < 2; layer++) {
        unsigned bits = kept >> (4 * layer);
        pack_scaled(&packing, (4 + 2 * 2) * 128, 512, bits & 1 ? plain : s);
        pack_scaled(&packing, 512, 512, bits & 2 ? plain : s);
        pack_scaled(&packing, 2 * 1024, 512, bits & 4 ? plain : s);
        pack_scaled(&packing, 512, 1024, bits & 8 ? plain : s);
        plain_pack(&packing, 2 * 512);
        plain_pack(&packing, 2 * 512);
    }
    plain_pack(&packing, 2 * 512);
    plain_pack(&packing, 2 * 1024 * 512);
    snprintf(text, sizeof text, LLAMA ",\"quantization_config\":{\"quant_method\":%s}}",
             quantisation);
    rvl_model *model = parse_model(text);
    rvl_model_step *step = make_step(model, (rvl_model_options){0});
    assert_packed(step, RVL_MODEL_WEIGHTS, &packing);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

#define GROUP(keys)                                                                                \
    "\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"weights\":{" keys "}}}"

static void scales_are_as_the_config_says(void **state)
{
    (void)state;
    assert_scaled("\"gptq\",\"bits\":4,\"group_size\":32", (wanted_scales){4, 1, 32, 2, true}, 0);
    assert_scaled("\"gptq\",\"bits\":4,\"group_size\":-1", (wanted_scales){4, 1, 0, 2, true}, 0);
    assert_scaled("\"gptq\",\"bits\":8,\"group_size\":64,\"dynamic\":{}",
                  (wanted_scales){8, 1, 64, 2, true}, 0);
    assert_scaled("\"awq\",\"bits\":4,\"group_size\":64", (wanted_scales){4, 1, 64, 2, true}, 0);
    assert_scaled("\"fp8\",\"weight_block_size\":[64,32]", (wanted_scales){8, 64, 32, 4, false}, 0);
    assert_scaled("\"fp8\",\"weight_block_size\":null", (wanted_scales){8, 0, 0, 4, false}, 0);
    assert_scaled("\"fbgemm_fp8\"", (wanted_scales){8, 1, 0, 4, false}, 0);
    assert_scaled(GROUP("\"num_bits\":8,\"type\":\"float\""), (wanted_scales){8, 0, 0, 4, false},
                  0);
    assert_scaled(GROUP("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"channel\""),
                  (wanted_scales){8, 1, 0, 4, false}, 0);
    assert_scaled(
        GROUP("\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\",\"symmetric\":true"),
        (wanted_scales){8, 1, 0, 4, false}, 0);
    assert_scaled(GROUP("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\","
                        "\"block_structure\":[128,64]"),
                  (wanted_scales){8, 128, 64, 4, false}, 0);
    assert_scaled(GROUP("\"num_bits\":4,\"type\":\"int\",\"group_size\":64"),
                  (wanted_scales){4, 1, 64, 2, false}, 0);
    assert_scaled(GROUP("\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":128,"
                        "\"symmetric\":false"),
                  (wanted_scales){4, 1, 128, 2, true}, 0);
}

static void modules_that_are_not_converted_stay_as_they_were(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        unsigned kept;
    } cases[] = {
        {"[]", 0},
        {"[\"lm_head\",\"gate\",\"proj\",\"layers.7.mlp\",\"\"]", 0},
        {"[\"model.layers.0.self_attn.q_proj\",\"model.layers.0.self_attn.k_proj\"]", 0x01},
        {"[\"self_attn\"]", 0x33},
        {"[\"model.layers.1.mlp\",\"language_model.model.layers.0.mlp.down_proj\"]", 0xc8},
        {"[\"re:.*lm_head\",\"re:self_attn\"]", 0},
        {"[\"re:.*self_attn.o_proj$\"]", 0x22},
        {"[\"re:.*self_attn.o_pro$\"]", 0},
        {"[\"re:model\\\\.layers\\\\.1\\\\..*down_proj\"]", 0x80},
        {"[\"re:.*\"]", 0xff},
        {"[\"re:model.layers.0*.mlp.*\"]", 0x0c},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "\"fbgemm_fp8\",\"modules_to_not_convert\":%s", cases[i].list);
        assert_scaled(text, (wanted_scales){8, 1, 0, 4, false}, cases[i].kept);
        snprintf(text, sizeof text, GROUP("\"num_bits\":8,\"type\":\"float\"") ",\"ignore\":%s",
                 cases[i].list);
        assert_scaled(text, (wanted_scales){8, 0, 0, 4, false}, cases[i].kept);
    }
}

static void assert_option_refused(const char *name, rvl_model_options options, const char *key,
                                  const char *part)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model_step *step = NULL;
    rvl_model *model = name[0] == '{' ? parse_model(name) : open_model(name);
    options.struct_size = sizeof options;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_null(step);
    assert_string_equal(error.key, key);
    if (strstr(error.message, part) == NULL)
        print_error("\"%s\" is not in \"%s\"\n", part, error.message);
    assert_non_null(strstr(error.message, part));
    rvl_model_close(model);
}

/* Neither guessed nor passed over: a request for a step says what the weights are. */
static void quantisation_that_is_not_known_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "\"gptq\",\"bits\":3",
        "\"gptq\",\"bits\":4,\"group_size\":0",
        "\"gptq\",\"bits\":4,\"group_size\":\"32\"",
        "\"gptq\",\"bits\":4,\"dynamic\":{\"-:.*mlp\":{}}",
        "\"awq\",\"bits\":8",
        "\"awq\",\"bits\":4,\"modules_to_not_convert\":[3]",
        "\"awq\",\"bits\":4,\"modules_to_not_convert\":\"lm_head\"",
        "\"fp8\",\"weight_block_size\":[128]",
        "\"fp8\",\"weight_block_size\":[128,0]",
        "\"fp8\",\"ignore\":[\"re:(a|b)\"]",
        "\"fp8\",\"ignore\":[\"re:a+\"]",
        "\"fp8\",\"ignore\":[\"re:\\\\d\"]",
        "\"fp8\",\"ignore\":[\"re:"
        "0123456789012345678901234567890123456789012345678901234567890123\"]",
        "\"compressed-tensors\"",
        GROUP("\"num_bits\":4,\"type\":\"float\""),
        GROUP("\"num_bits\":2,\"type\":\"int\""),
        GROUP("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"token\""),
        GROUP("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"group\""),
        GROUP("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\""),
        "\"compressed-tensors\",\"config_groups\":{\"a\":{\"weights\":{\"num_bits\":8}},\"b\":{}}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, LLAMA ",\"quantization_config\":{\"quant_method\":%s}}",
                 cases[i]);
        assert_option_refused(text, (rvl_model_options){0}, "quantization_config", "weights-dtype");
    }
}

/* Every entry is tried on every module: there is an end to that. */
static void too_many_entries_are_not_tried(void **state)
{
    (void)state;
    static char text[65536];
    for (int count = 256; count <= 257; count++) {
        size_t length = (size_t)snprintf(
            text, sizeof text,
            LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\",\"ignore\":[\"a\"");
        for (int i = 1; i < count; i++)
            length += (size_t)snprintf(text + length, sizeof text - length, ",\"a\"");
        snprintf(text + length, sizeof text - length, "]}}");
        rvl_model *model = parse_model(text);
        rvl_model_step *step = NULL;
        assert_int_equal(rvl_model_step_make(model, NULL, &step),
                         count == 256 ? RVL_OK : RVL_ERR_INVALID);
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
}

/* What the command line says goes before the config, and then nothing of this counts. */
static void options_go_before_the_quantisation(void **state)
{
    (void)state;
    rvl_model *model = parse_model(
        LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,"
              "\"modules_to_not_convert\":[\"mlp\"],\"kv_cache_scheme\":{\"num_bits\":8,"
              "\"type\":\"float\"}}}");
    rvl_model *plain = parse_model(LLAMA "}");
    for (int dtype = RVL_MODEL_BF16; dtype <= RVL_MODEL_INT8; dtype++) {
        rvl_model_options options = {.weights_dtype = (rvl_model_dtype)dtype,
                                     .kv_dtype = RVL_MODEL_BF16};
        rvl_model_step *step = make_step(model, options), *same = make_step(plain, options);
        if (dtype == RVL_MODEL_INT4)
            assert_true(rvl_model_step_bytes(step, RVL_MODEL_WEIGHTS) >
                        rvl_model_step_bytes(same, RVL_MODEL_WEIGHTS));
        else
            assert_int_equal(rvl_model_step_token_count(step), rvl_model_step_token_count(same));
        rvl_model_step_close(same);
        rvl_model_step_close(step);
    }
    rvl_model_step *as_config = make_step(model, (rvl_model_options){0});
    rvl_model_step *as_said = make_step(model, (rvl_model_options){.kv_dtype = RVL_MODEL_FP8});
    rvl_model_step *other = make_step(model, (rvl_model_options){.kv_dtype = RVL_MODEL_BF16});
    assert_int_equal(rvl_model_step_token_count(as_config), rvl_model_step_token_count(as_said));
    assert_in_range(rvl_model_step_token_count(as_config) - 2 * rvl_model_step_token_count(other),
                    0, 1);
    rvl_model_step_close(other);
    rvl_model_step_close(as_said);
    rvl_model_step_close(as_config);
    rvl_model_close(plain);
    rvl_model_close(model);
}

/* 61 layers on 4 stages: 15, 15, 16, 15; of 126 on 4: 31, 32, 32, 31. */
static void layers_need_not_divide_by_stages(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t layers[4];
    } cases[] = {{"deepseek-v3", {15, 15, 16, 15}}, {"llama-3.1-405b", {31, 32, 32, 31}}};
    for (size_t i = 0; i < 2; i++) {
        rvl_model *model = open_model(cases[i].name);
        uint64_t tokens = 0, least = UINT64_MAX;
        for (uint32_t rank = 0; rank < 4; rank++) {
            rvl_model_step *step =
                make_step(model, (rvl_model_options){.tp = 8, .pp = 4, .pp_rank = rank});
            size_t buffers = rvl_model_step_allocation_count(step, RVL_MODEL_KV_CACHE);
            assert_int_equal(buffers, cases[i].layers[rank] * (i == 0 ? 1 : 2));
            assert_true(rank == 0 || rvl_model_step_token_count(step) == tokens);
            tokens = rvl_model_step_token_count(step);
            uint64_t weights = rvl_model_step_bytes(step, RVL_MODEL_WEIGHTS);
            rvl_trace_device device = device_of(step);
            uint64_t room = (device.capacity_bytes - CONTEXT_BYTES) / 10 * 9 - weights;
            uint64_t token_bytes = cases[i].layers[rank] * (i == 0 ? 2 * 576 : 2 * 2 * 128);
            least = room / token_bytes < least ? room / token_bytes : least;
            rvl_model_step_close(step);
        }
        assert_in_range(tokens, least - 1, least + 1);
        rvl_model_close(model);
    }
}

/* The keys of V3.2's indexer: 128 B and a scale a token and layer, whatever the cache's type. */
static void an_indexer_has_a_cache_of_its_own(void **state)
{
    (void)state;
    rvl_model *model = open_model("deepseek-v3.2-exp");
    for (int fp8 = 0; fp8 <= 1; fp8++) {
        rvl_model_options options = {.tp = 16, .ep = 16};
        options.kv_dtype = fp8 ? RVL_MODEL_FP8 : RVL_MODEL_BF16;
        rvl_model_step *step = make_step(model, options);
        uint64_t tokens = rvl_model_step_token_count(step), each = fp8 ? 576 : 2 * 576;
        uint64_t bytes = 61 * (round_up(tokens * each, 2 * MIB) + round_up(tokens * 132, 2 * MIB));
        assert_term(step, RVL_MODEL_KV_CACHE, bytes, 2 * 61);
        uint64_t room = (H200_BYTES - CONTEXT_BYTES) / 10 * 9;
        room -= rvl_model_step_bytes(step, RVL_MODEL_WEIGHTS);
        assert_in_range(tokens, room / (61 * (each + 132)) - 1, room / (61 * (each + 132)) + 1);
        rvl_model_step_close(step);
    }
    rvl_model_close(model);
}

typedef struct share_packing {
    plain_packing packing;
    uint64_t ranks;
    uint64_t bytes;
    int states;
    bool blocks;
} share_packing;

static void pack_share(void *user, const rvl_model_tensor *tensor)
{
    share_packing *p = user;
    uint64_t elements = (tensor->rows + p->ranks - 1) / p->ranks * tensor->columns;
    for (int state = 0; state < p->states; state++) {
        bool small = p->blocks && elements < 4096;
        plain_pack(&p->packing, elements * (small ? 4 : p->bytes));
        if (p->blocks && !small)
            plain_pack(&p->packing, (elements + 255) / 256 * 4);
    }
}

static void assert_shares(const rvl_model *model, const rvl_model_step *step, rvl_model_term term,
                          uint64_t ranks, int states, uint64_t bytes, bool blocks)
{
    static share_packing p;
    p = (share_packing){.ranks = ranks, .bytes = bytes, .states = states, .blocks = blocks};
    rvl_model_visit_tensors(model, pack_share, &p);
    assert_packed(step, term, &p.packing);
}

/* With a given size of the trainer's, its terms add up: no program runs. */
static rvl_model_options adding_up(rvl_model_options options)
{
    static const rvl_model_given none = {.term = RVL_MODEL_CACHED, .bytes = 0};
    options.given = &none;
    options.given_count = 1;
    options.given_size = sizeof none;
    return options;
}

static void trainers_shard_what_they_hold(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen2.5-7b");
    rvl_model_options options = {.train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 12};
    rvl_model_step *step = make_step(model, adding_up(options));
    assert_shares(model, step, RVL_MODEL_SHARDED_WEIGHTS, 12, 1, 2, false);
    assert_shares(model, step, RVL_MODEL_MASTER_WEIGHTS, 12, 1, 4, false);
    assert_shares(model, step, RVL_MODEL_OPTIMIZER, 12, 2, 4, false);
    assert_shares(model, step, RVL_MODEL_GRADIENTS, 12, 1, 2, false);
    assert_term(step, RVL_MODEL_GRADIENT_BUCKETS, 0, 0);
    assert_string_equal(rvl_model_step_tag(step, RVL_MODEL_SHARDED_WEIGHTS), "sharded_weights");
    rvl_model_step_close(step);
    options.train = RVL_MODEL_TRAIN_DDP;
    options.optimizer = RVL_MODEL_ADAMW_8BIT;
    step = make_step(model, adding_up(options));
    assert_shares(model, step, RVL_MODEL_SHARDED_WEIGHTS, 1, 1, 2, false);
    assert_shares(model, step, RVL_MODEL_OPTIMIZER, 1, 2, 1, true);
    assert_shares(model, step, RVL_MODEL_GRADIENTS, 1, 1, 2, false);
    assert_shares(model, step, RVL_MODEL_GRADIENT_BUCKETS, 1, 1, 2, false);
    assert_term(step, RVL_MODEL_MASTER_WEIGHTS, 0, 0);
    assert_term(step, RVL_MODEL_ALL_GATHER, 0, 0);
    assert_string_equal(rvl_model_step_tag(step, RVL_MODEL_SHARDED_WEIGHTS), "training_weights");
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void optimizers_differ_in_their_states(void **state)
{
    (void)state;
    static const struct {
        rvl_model_optimizer optimizer;
        int states;
        uint64_t bytes;
        bool master;
    } cases[] = {{RVL_MODEL_ADAMW, 2, 4, true},
                 {RVL_MODEL_ADAMW_BF16, 2, 2, false},
                 {RVL_MODEL_SGD_MOMENTUM, 1, 4, true},
                 {RVL_MODEL_SGD, 0, 0, false}};
    rvl_model *model = parse_model(LLAMA "}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model_step *step =
            make_step(model, (rvl_model_options){.train = RVL_MODEL_TRAIN_FSDP,
                                                 .train_ranks = 2,
                                                 .optimizer = cases[i].optimizer});
        assert_shares(model, step, RVL_MODEL_OPTIMIZER, 2, cases[i].states, cases[i].bytes, false);
        assert_int_equal(rvl_model_step_bytes(step, RVL_MODEL_MASTER_WEIGHTS) > 0, cases[i].master);
        rvl_model_step_close(step);
    }
    rvl_model_close(model);
}

/* Llama 3.1 8B over eight ranks: all sizes divide, so that nothing is padded. */
static void gathered_weights_are_whole_or_two_layers(void **state)
{
    (void)state;
    const uint64_t layer = round_up(UINT64_C(2) * 218112000, 2 * MIB);
    const uint64_t root = round_up(UINT64_C(2) * (2 * UINT64_C(128256) * 4096 + 4096), 2 * MIB);
    rvl_model *model = open_model("llama-3.1-8b");
    rvl_model_options options = {.train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 8};
    rvl_model_step *step = make_step(model, adding_up(options));
    assert_term(step, RVL_MODEL_ALL_GATHER, root + 32 * layer, 33);
    rvl_model_step_close(step);
    options.flags |= RVL_MODEL_RESHARD;
    step = make_step(model, adding_up(options));
    assert_term(step, RVL_MODEL_ALL_GATHER, root + 2 * layer, 3);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void assert_activations(const char *name, uint64_t layer_bytes, int layers, uint64_t hidden)
{
    const uint64_t tokens = 2 * 2048;
    static plain_packing kept, redone;
    memset(&kept, 0, sizeof kept);
    memset(&redone, 0, sizeof redone);
    for (int layer = 0; layer < layers; layer++) {
        plain_pack(&kept, tokens * layer_bytes);
        plain_pack(&redone, tokens * 2 * hidden);
    }
    plain_pack(&redone, tokens * layer_bytes);
    rvl_model *model = open_model(name);
    rvl_model_options options = {
        .train = RVL_MODEL_TRAIN_DDP, .micro_batch = 2, .seq_len = 2048, .device = "8TiB"};
    rvl_model_step *step = make_step(model, adding_up(options));
    assert_packed(step, RVL_MODEL_ACTIVATIONS, &kept);
    rvl_model_step_close(step);
    options.flags |= RVL_MODEL_RECOMPUTE;
    step = make_step(model, adding_up(options));
    assert_packed(step, RVL_MODEL_ACTIVATIONS, &redone);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void activations_are_what_the_backward_pass_needs(void **state)
{
    (void)state;
    /* Norms 8 h; q, k, v; attended; sums of the softmax; gate, up, act, product. */
    assert_activations("llama-3.1-8b",
                       8 * 4096 + 2 * (4096 + 2 * 1024) + 2 * 4096 + 4 * 32 + 8 * 14336, 32, 4096);
    /* Two more norms, and those of q and k. */
    assert_activations("gemma-3-1b",
                       12 * 1152 + 2 * (1024 + 2 * 256) + 2 * (1024 + 256) + 2 * 1024 + 4 * 4 +
                           8 * 6912,
                       26, 1152);
    /* Router, two experts of eight. */
    assert_activations("mixtral-8x7b-v0.1",
                       8 * 4096 + 2 * (4096 + 2 * 1024) + 2 * 4096 + 4 * 32 + 8 * 8 +
                           2 * (4 * 4096 + 8 * 14336),
                       32, 4096);
    /* An expert for all. */
    assert_activations("qwen1.5-moe-a2.7b",
                       8 * 2048 + 2 * 3 * 2048 + 2 * 2048 + 4 * 16 + 8 * 60 +
                           4 * (4 * 2048 + 8 * 1408) + 8 * 5632,
                       24, 2048);
}

static void latent_attention_keeps_its_own(void **state)
{
    (void)state;
    /* q and k, compressed KV before and after its norm, v and attended, sums. */
    const uint64_t attention = 2 * (2 * 4 * 48 + (64 + 16) + 64) + 2 * 2 * 4 * 32 + 4 * 4;
    const uint64_t bytes = 4096 * (8 * 512 + attention + 8 * 1024);
    rvl_model *model = parse_model(LATENT "}");
    rvl_model_step *step =
        make_step(model, adding_up((rvl_model_options){.train = RVL_MODEL_TRAIN_DDP}));
    assert_term(step, RVL_MODEL_ACTIVATIONS, 2 * round_up(bytes, 2 * MIB), 2);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void logits_have_a_copy_and_a_gradient(void **state)
{
    (void)state;
    const uint64_t elements = UINT64_C(3) * 1024 * 128256;
    rvl_model *model = open_model("llama-3.1-8b");
    rvl_model_step *step = make_step(
        model,
        adding_up((rvl_model_options){
            .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 8, .micro_batch = 3, .seq_len = 1024}));
    assert_term(step, RVL_MODEL_LOGITS,
                round_up(2 * elements, 2 * MIB) + 2 * round_up(4 * elements, 2 * MIB), 3);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void buffers_follow_the_widest_point(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.1-8b");
    rvl_model_options options = {.tp = 2, .train = RVL_MODEL_TRAIN_DDP};
    rvl_model_step *step = make_step(model, options);
    /* Two hidden states, gate and up and their product; logits of 256 in bf16 and fp32. */
    assert_term(step, RVL_MODEL_BUFFERS,
                round_up(UINT64_C(8192) * 2 * (2 * 4096 + 3 * 7168), 2 * MIB) +
                    round_up(UINT64_C(256) * 128256 * 6, 2 * MIB) + 384 * MIB,
                3);
    assert_term(step, RVL_MODEL_CUDA_GRAPH, 3000000000, 1);
    assert_term(step, RVL_MODEL_ENGINE_CONTEXT, CONTEXT_BYTES, 1);
    assert_term(step, RVL_MODEL_TRAINER_CONTEXT, 483183820, 1);
    assert_term(step, (rvl_model_term)99, 0, 0);
    assert_string_equal(rvl_model_step_tag(step, (rvl_model_term)99), "?");
    rvl_model_step_close(step);
    rvl_model_close(model);
    model = parse_model(LATENT "}");
    step = make_step(model, options);
    /* The MLP is wider than attention here: 3 x 512 against (128 + 192 + 256) / 2. Logits of 1.5
     * MB are in a segment for such. */
    assert_term(step, RVL_MODEL_BUFFERS,
                round_up(UINT64_C(8192) * 2 * (2 * 512 + 3 * 512), 2 * MIB) + 20 * MIB + 384 * MIB,
                3);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void given_sizes_replace_formulas(void **state)
{
    (void)state;
    static const rvl_model_given given[] = {{.term = RVL_MODEL_WEIGHTS, .bytes = 1000},
                                            {.term = RVL_MODEL_LOGITS, .bytes = 0},
                                            {.term = RVL_MODEL_ENGINE_CONTEXT, .bytes = 0}};
    rvl_model *model = parse_model(LLAMA "}");
    rvl_model_step *step = make_step(model, (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP,
                                                                .mem_fraction_ppm = 500000,
                                                                .device = "1GiB",
                                                                .given = given,
                                                                .given_count = 3,
                                                                .given_size = sizeof *given});
    assert_term(step, RVL_MODEL_WEIGHTS, 1000, 1);
    assert_term(step, RVL_MODEL_LOGITS, 0, 0);
    assert_term(step, RVL_MODEL_ENGINE_CONTEXT, 0, 0);
    /* Two layers, two heads of 128 in bf16, K and V. */
    uint64_t tokens = (GIB / 2 - 1000) / (2 * 2 * 512);
    assert_int_equal(rvl_model_step_token_count(step), tokens);
    assert_term(step, RVL_MODEL_KV_CACHE, 4 * round_up(tokens * 512, 2 * MIB), 4);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* ---- Events ---- */

static void assert_events(rvl_model_options options, const char *expected)
{
    static char text[4096];
    static const char *const words[] = {
#define WORD(name, keyword) keyword,
        RVL_EVENT_MAP(WORD)
#undef WORD
    };
    static const rvl_model_given given[] = {
        {.term = RVL_MODEL_WEIGHTS, .bytes = 16},
        {.term = RVL_MODEL_KV_CACHE, .bytes = 32},
        {.term = RVL_MODEL_ENGINE_CONTEXT, .bytes = 7},
        {.term = RVL_MODEL_ASLEEP, .bytes = 9},
        {.term = RVL_MODEL_TRAINING_COPY, .bytes = 5},
        {.term = RVL_MODEL_TRAINER_RESIDUE, .bytes = 3},
    };
    static const rvl_model_given trained[] = {
        {.term = RVL_MODEL_WEIGHTS, .bytes = 16},
        {.term = RVL_MODEL_KV_CACHE, .bytes = 32},
        {.term = RVL_MODEL_ENGINE_CONTEXT, .bytes = 7},
        {.term = RVL_MODEL_CUDA_GRAPH, .bytes = 0},
        {.term = RVL_MODEL_BUFFERS, .bytes = 2},
        {.term = RVL_MODEL_SHARDED_WEIGHTS, .bytes = 4},
        {.term = RVL_MODEL_OPTIMIZER, .bytes = 6},
        {.term = RVL_MODEL_MASTER_WEIGHTS, .bytes = 0},
        {.term = RVL_MODEL_GRADIENTS, .bytes = 0},
        {.term = RVL_MODEL_ALL_GATHER, .bytes = 8},
        {.term = RVL_MODEL_ACTIVATIONS, .bytes = 10},
    };
    bool none = options.train == RVL_MODEL_TRAIN_NONE;
    options.given = none ? given : trained;
    options.given_count = none ? 6 : 11;
    options.given_size = sizeof *given;
    rvl_model *model = parse_model(LLAMA "}");
    rvl_model_step *step = make_step(model, options);
    size_t count, length = 0;
    rvl_trace_event *events = events_of(step, &count);
    for (size_t i = 0; i < count; i++) {
        const rvl_trace_event *e = &events[i];
        const char *what = e->tag != NULL ? e->tag : e->name != NULL ? e->name : "";
        length += (size_t)snprintf(text + length, sizeof text - length, "%c %s %s", e->process[0],
                                   words[e->kind], what);
        if (e->kind == RVL_EVENT_EXTERNAL || e->kind == RVL_EVENT_FREE)
            length += (size_t)snprintf(text + length, sizeof text - length, " %lu",
                                       (unsigned long)(e->bytes + e->id));
        length += (size_t)snprintf(text + length, sizeof text - length, "%s\n",
                                   e->skip_content                ? " empty"
                                   : e->backup == RVL_BACKUP_HOST ? " host"
                                   : e->flags == RVL_ALLOC_PAUSED ? " paused"
                                                                  : "");
    }
    assert_string_equal(text, expected);
    free(events);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

#define WAKE_BEGIN                                                                                 \
    "e step \ne stage asleep\ne external asleep 9\ne alloc weights paused\n"                       \
    "e alloc kv_cache paused\ne stage weights_awake\ne resume weights empty\n"
#define WAKE_COPY                                                                                  \
    "e stage training_copy_loaded\nt external trainer_context 483183820\n"                         \
    "t alloc training_copy\ne stage training_copy_freed\nt free  1\n"                              \
    "t external trainer_residue 3\ne stage kv_cache_awake\n"

static void wakes_without_a_trainer(void **state)
{
    (void)state;
    assert_events((rvl_model_options){0}, WAKE_BEGIN WAKE_COPY "e resume kv_cache empty\n");
    assert_events((rvl_model_options){.strategy = RVL_MODEL_V2},
                  WAKE_BEGIN "e resume kv_cache empty\n" WAKE_COPY);
    assert_events((rvl_model_options){.wake = RVL_WAKE_TOGETHER},
                  WAKE_BEGIN "e resume kv_cache empty\n" WAKE_COPY);
    assert_events((rvl_model_options){.strategy = RVL_MODEL_V0},
                  "e step \ne stage asleep\ne external asleep 9\ne alloc weights\n"
                  "e alloc kv_cache\ne stage weights_awake\n" WAKE_COPY);
}

/* Ids of logits: two for the pass without gradients, three for training. */
#define UP_TO_UPDATE                                                                               \
    "t step \nt stage rollout\nt external trainer_context 483183820\n"                             \
    "t alloc sharded_weights host\nt alloc optimizer host\nt pause sharded_weights\n"              \
    "t pause optimizer\ne external engine_context 7\ne alloc weights\ne alloc kv_cache\n"          \
    "e alloc buffers\ne pause weights\ne pause kv_cache\ne pause buffers\n"                        \
    "t stage log_probabilities\nt resume sharded_weights\nt alloc all_gather\nt alloc logits\n"    \
    "t alloc logits\nt free  4\nt free  5\nt free  3\nt stage train\nt resume optimizer\n"         \
    "t alloc all_gather\nt alloc activations\nt alloc logits\nt alloc logits\nt alloc logits\n"    \
    "t free  8\nt free  9\nt free  10\nt free  7\nt free  6\nt pause optimizer\nt step \n"         \
    "t stage update_weights\n"

static void steps_follow_their_strategies(void **state)
{
    (void)state;
    rvl_model_options options = {.train = RVL_MODEL_TRAIN_FSDP};
    assert_events(options, UP_TO_UPDATE
                  "e resume weights empty\ne resume buffers empty\nt alloc all_gather\n"
                  "t free  11\nt pause sharded_weights\nt stage rollout\n"
                  "e resume kv_cache empty\n");
    options.wake = RVL_WAKE_TOGETHER;
    assert_events(options, UP_TO_UPDATE
                  "e resume weights empty\ne resume kv_cache empty\ne resume buffers empty\n"
                  "t alloc all_gather\nt free  11\nt pause sharded_weights\nt stage rollout\n");
    options.wake = RVL_WAKE_STAGED;
    options.strategy = RVL_MODEL_V2;
    assert_events(options, UP_TO_UPDATE
                  "e resume weights empty\ne resume kv_cache empty\ne resume buffers empty\n"
                  "t alloc all_gather\nt free  11\nt pause sharded_weights\nt stage rollout\n");
    options.strategy = RVL_MODEL_V0;
    assert_events(options,
                  "t step \nt stage rollout\ne external engine_context 7\n"
                  "t external trainer_context 483183820\ne alloc weights\ne alloc kv_cache\n"
                  "e alloc buffers\nt alloc sharded_weights\nt alloc optimizer\n"
                  "t alloc all_gather\nt alloc activations\nt alloc logits\nt alloc logits\n"
                  "t alloc logits\nt stage log_probabilities\nt stage train\nt step \n"
                  "t stage update_weights\nt stage rollout\n");
}

static void one_process_at_a_time(void **state)
{
    (void)state;
    assert_events(
        (rvl_model_options){.train = RVL_MODEL_TRAIN_FSDP, .strategy = RVL_MODEL_V1},
        "t step \nt stage rollout\ne external engine_context 7\ne alloc weights\n"
        "e alloc kv_cache\ne alloc buffers\ne free  1\ne free  2\ne free  3\n"
        "e external engine_context 0\nt stage log_probabilities\n"
        "t external trainer_context 483183820\nt alloc sharded_weights\nt alloc optimizer\n"
        "t alloc all_gather\nt alloc logits\nt alloc logits\nt free  4\nt free  5\nt free  3\n"
        "t stage train\nt alloc all_gather\nt alloc activations\nt alloc logits\n"
        "t alloc logits\nt alloc logits\nt free  8\nt free  9\nt free  10\nt free  7\n"
        "t free  6\nt step \nt stage update_weights\nt alloc all_gather\nt free  11\n"
        "t free  1\nt free  2\nt external trainer_context 0\ne external engine_context 7\n"
        "e alloc weights\ne alloc kv_cache\ne alloc buffers\nt stage rollout\n");
}

/* ---- Refused options ---- */

static void sizes_that_do_not_divide_are_refused(void **state)
{
    (void)state;
    assert_option_refused("qwen2.5-7b", (rvl_model_options){.tp = 8}, "num_attention_heads",
                          "28 does not divide by tp = 8: choose another tp");
    assert_option_refused("qwen2.5-32b", (rvl_model_options){.tp = 5}, "num_key_value_heads",
                          "8 does not divide by tp = 5");
    assert_option_refused(
        "{\"model_type\":\"llama\",\"hidden_size\":512,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":1022,"
        "\"vocab_size\":1000}",
        (rvl_model_options){.tp = 4}, "intermediate_size", "1022 does not divide by tp = 4");
    assert_option_refused("{\"model_type\":\"llama\",\"hidden_size\":384,\"num_hidden_layers\":2,"
                          "\"num_attention_heads\":3,\"intermediate_size\":1023,"
                          "\"vocab_size\":1000}",
                          (rvl_model_options){.tp = 3}, "vocab_size, padded to 64,",
                          "1024 does not divide by tp = 3");
    assert_option_refused("qwen2.5-7b", (rvl_model_options){.pp = 29}, "pp",
                          "more stages than the model has layers");
    assert_option_refused("qwen2.5-7b", (rvl_model_options){.tp = 2, .ep = 2}, "ep", "no experts");
    assert_option_refused("qwen3-30b-a3b", (rvl_model_options){.tp = 2, .ep = 4}, "ep",
                          "divides tp");
    assert_option_refused(
        "{\"model_type\":\"mixtral\",\"hidden_size\":512,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":1022,"
        "\"vocab_size\":1000,\"num_local_experts\":6,"
        "\"num_experts_per_tok\":2}",
        (rvl_model_options){.tp = 4, .ep = 4}, "number of experts", "6 does not divide by ep = 4");
    assert_option_refused(
        "{\"model_type\":\"mixtral\",\"hidden_size\":512,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":1023,"
        "\"vocab_size\":1000,\"num_local_experts\":6,"
        "\"num_experts_per_tok\":2}",
        (rvl_model_options){.tp = 4, .ep = 2}, "size of an expert",
        "1023 does not divide by tp / ep = 2");
    assert_option_refused(
        "{\"model_type\":\"qwen2_moe\",\"hidden_size\":512,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"intermediate_size\":1024,"
        "\"vocab_size\":1000,\"num_experts\":6,\"num_experts_per_tok\":2,"
        "\"moe_intermediate_size\":96,\"shared_expert_intermediate_size\":99}",
        (rvl_model_options){.tp = 2}, "size of the shared experts", "99 does not divide by tp = 2");
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        rvl_model_options options;
        const char *key;
        const char *part;
    } cases[] = {
        {{.train = (rvl_model_train)5}, "train", "expected fsdp:N, ddp, plain"},
        {{.use = (rvl_model_use)3}, "serve", "expected yes or no"},
        {{.use = RVL_MODEL_USE_SERVE, .train = RVL_MODEL_TRAIN_DDP}, "train", "has no trainer"},
        {{.use = RVL_MODEL_USE_SERVE, .strategy = RVL_MODEL_V2},
         "strategy",
         "do not share the GPU"},
        {{.use = RVL_MODEL_USE_FINE_TUNE, .wake = RVL_WAKE_TOGETHER},
         "wake",
         "do not share the GPU"},
        {{.strategy = (rvl_model_strategy)4}, "strategy", "expected v0, v1, v2 or v3"},
        {{.wake = (rvl_wake)2}, "wake", "expected staged or together"},
        {{.weights_dtype = (rvl_model_dtype)5},
         "weights-dtype",
         "expected bf16, fp8, int4 or int8"},
        {{.optimizer = RVL_MODEL_OPTIMIZER_COUNT}, "optimizer", "expected adamw, adamw-bf16"},
        {{.attention = (rvl_model_attention)5}, "attention", "expected cudnn, flash"},
        {{.loss = (rvl_model_loss)3}, "loss", "expected plain, chunked"},
        {{.kv_dtype = RVL_MODEL_INT4}, "kv-dtype", "bf16 or fp8"},
        {{.mem_fraction_ppm = 1000001}, "mem-fraction", "at most 1"},
        {{.tp = 4097}, "tp", "from 1 to 4096"},
        {{.pp = 4097}, "pp", "from 1 to 4096"},
        {{.train_ranks = 4097}, "train", "with N from 1 to 4096"},
        {{.micro_batch = 4097}, "seq-len", "more than 16777216 tokens"},
        {{.pp = 2, .pp_rank = 2}, "pp-rank", "the last pp - 1"},
        {{.accumulate = 4097}, "accumulate", "from 1 to 4096"},
        {{.loss = RVL_MODEL_LOSS_CHUNKED, .loss_chunks = 4097}, "loss", "with N from 1 to 4096"},
        {{.lora_targets = (rvl_model_lora_targets)2},
         "lora-targets",
         "expected peft or all-linear"},
        {{.train = RVL_MODEL_TRAIN_DDP, .lora_rank = 65537}, "lora", "from 1 to 65536"},
        {{.lora_rank = 8}, "lora", "changes nothing with 'train' none"},
        {{.train = RVL_MODEL_TRAIN_DDP, .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
         "lora-targets",
         "say 'lora' RANK, or"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .lora_rank = 8, .flags = RVL_MODEL_REDUCE_FP32},
         "lora",
         "leave out 'mixed-precision' and 'reduce-fp32'"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .lora_rank = 8, .optimizer = RVL_MODEL_ADAMW_BF16},
         "lora",
         "adapters are in fp32, and so are their states: say 'optimizer'"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .optimizer = RVL_MODEL_PAGED_ADAMW_8BIT},
         "optimizer",
         "paged optimizers refuse sharded parameters: say 'train' ddp"},
        {{.train = RVL_MODEL_TRAIN_DDP, .train_cp = 2}, "train-cp", "of Megatron and FSDP"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 4, .train_cp = 3},
         "train-cp",
         "does not divide the ranks"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 4, .train_cp = 4, .seq_len = 4100},
         "seq-len",
         "twice 'train-cp' parts"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 4096, .train_cp = 4096, .seq_len = 8192},
         "train-cp",
         "at most 65536 parts"},
        {{.train = RVL_MODEL_TRAIN_FSDP,
          .train_ranks = 4,
          .train_cp = 2,
          .attention = RVL_MODEL_ATTENTION_MATH},
         "attention",
         "math fails in PyTorch beside 'train-cp', and efficient is not predicted there"},
        {{.base_dtype = (rvl_model_base_dtype)3}, "base-dtype", "expected bf16, nf4 or nf4-single"},
        {{.train = RVL_MODEL_TRAIN_DDP, .base_dtype = RVL_MODEL_BASE_NF4},
         "base-dtype",
         "weights of 4 bits are not trained: say 'lora' RANK"},
        {{.train = RVL_MODEL_TRAIN_FSDP,
          .lora_rank = 8,
          .base_dtype = RVL_MODEL_BASE_NF4,
          .flags = RVL_MODEL_CPU_OFFLOAD},
         "cpu-offload",
         "is not predicted for weights of 4 bits"},
        {{.train = RVL_MODEL_TRAIN_DDP, .flags = RVL_MODEL_AUTOCAST},
         "autocast",
         "goes with adapters"},
        {{.train = RVL_MODEL_TRAIN_DDP, .lora_rank = 8, .flags = RVL_MODEL_AUTOCAST},
         "autocast",
         "say 'base-dtype' nf4 too"},
        {{.train = RVL_MODEL_TRAIN_DDP, .lora_rank = 8, .flags = RVL_MODEL_BF16_ADAPTERS},
         "adapter-dtype",
         "say 'optimizer' adamw-bf16"},
        {{.train = RVL_MODEL_TRAIN_DDP,
          .lora_rank = 8,
          .base_dtype = RVL_MODEL_BASE_NF4,
          .optimizer = RVL_MODEL_ADAMW_BF16,
          .flags = RVL_MODEL_BF16_ADAPTERS | RVL_MODEL_AUTOCAST},
         "autocast",
         "changes nothing where adapters and all else are in bf16"},
        {{.train = RVL_MODEL_TRAIN_DDP, .lora_rank = 8, .flags = RVL_MODEL_PREPARE_KBIT},
         "prepare-kbit",
         "say 'base-dtype' nf4 too"},
        {{.train = RVL_MODEL_TRAIN_DDP,
          .lora_rank = 8,
          .base_dtype = RVL_MODEL_BASE_NF4,
          .flags = RVL_MODEL_PREPARE_KBIT},
         "prepare-kbit",
         "say 'autocast' too"},
        {{.train = RVL_MODEL_TRAIN_DDP,
          .lora_rank = 8,
          .base_dtype = RVL_MODEL_BASE_NF4,
          .loss = RVL_MODEL_LOSS_FUSED,
          .flags = RVL_MODEL_PREPARE_KBIT | RVL_MODEL_AUTOCAST},
         "prepare-kbit",
         "is not predicted with 'loss'"},
        {{.train = RVL_MODEL_TRAIN_DDP, .flags = RVL_MODEL_CPU_OFFLOAD},
         "cpu-offload",
         "is a policy of FSDP"},
        {{.train = RVL_MODEL_TRAIN_FSDP,
          .flags = RVL_MODEL_CPU_OFFLOAD,
          .optimizer = RVL_MODEL_ADAMW_8BIT},
         "cpu-offload",
         "say another 'optimizer'"},
        {{.flags = RVL_MODEL_OFFLOAD | RVL_MODEL_RECOMPUTE},
         "offload-activations",
         "changes nothing with 'train' none"},
        {{.train = RVL_MODEL_TRAIN_MEGATRON, .flags = RVL_MODEL_OFFLOAD | RVL_MODEL_RECOMPUTE},
         "offload-activations",
         "changes nothing with 'train' megatron"},
        {{.train = RVL_MODEL_TRAIN_DDP, .flags = RVL_MODEL_OFFLOAD},
         "offload-activations",
         "say 'recompute' too"},
        {{.train = RVL_MODEL_TRAIN_DDP,
          .flags = RVL_MODEL_OFFLOAD | RVL_MODEL_RECOMPUTE,
          .loss = RVL_MODEL_LOSS_FUSED},
         "offload-activations",
         "say 'loss' plain"},
        {{.train = RVL_MODEL_TRAIN_MEGATRON, .loss = RVL_MODEL_LOSS_FUSED},
         "loss",
         "changes nothing with 'train' megatron"},
        {{.loss_chunks = 2}, "loss", "say 'loss' chunked:N"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .flags = RVL_MODEL_BUCKET_FREED},
         "bucket-freed",
         "is of DDP's buckets: leave it out, or say 'train' ddp"},
        {{.train = RVL_MODEL_TRAIN_DDP, .flags = RVL_MODEL_REDUCE_FP32},
         "reduce-fp32",
         "is a policy of FSDP"},
        {{.train = RVL_MODEL_TRAIN_FSDP, .flags = RVL_MODEL_MIXED | RVL_MODEL_REDUCE_FP32},
         "reduce-fp32",
         "changes nothing with 'mixed-precision'"},
        {{.train = RVL_MODEL_TRAIN_DDP, .attention = RVL_MODEL_ATTENTION_EFFICIENT},
         "attention",
         "heads of q that share k and v"},
        {{.train = RVL_MODEL_TRAIN_DDP, .flags = RVL_MODEL_MIXED},
         "mixed-precision",
         "is a policy of FSDP"},
        {{.train = RVL_MODEL_TRAIN_FSDP,
          .flags = RVL_MODEL_MIXED,
          .optimizer = RVL_MODEL_ADAMW_BF16},
         "mixed-precision",
         "say 'optimizer' adamw or sgd-momentum"},
        {{.strategy = RVL_MODEL_V1}, "strategy", "name one with 'train'"},
        {{.device = "h900"}, "device", "reveille devices"},
        {{.mem_fraction_ppm = 100000},
         "mem-fraction",
         "no room for a KV cache: the weights of a rank take"},
        {{.device = "100MiB"}, "mem-fraction", "of 0 B; raise it, or 'tp'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_option_refused("qwen2.5-7b", cases[i].options, cases[i].key, cases[i].part);
    assert_option_refused(
        "deepseek-v3",
        (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .attention = RVL_MODEL_ATTENTION_FLASH},
        "attention", "flash has no kernel for latent attention");
    assert_option_refused(
        "deepseek-v3",
        (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .attention = RVL_MODEL_ATTENTION_CUDNN},
        "attention", "is not known for latent attention");
    assert_option_refused(
        "gemma-4-31b",
        (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .attention = RVL_MODEL_ATTENTION_FLASH},
        "attention", "flash has no kernel for heads of more than 256 elements");
    assert_option_refused(
        "gpt-oss-20b",
        (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .attention = RVL_MODEL_ATTENTION_FLASH},
        "attention", "changes nothing for heads with sinks");
    assert_option_refused("gemma-3-4b",
                          (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .lora_rank = 8},
                          "lora-targets", "PEFT has no default for this family");
    assert_option_refused("mixtral-8x7b-v0.1", (rvl_model_options){.tp = 2, .ep = 16}, "ep",
                          "choose one that divides tp");
    static const char *const not_plain[] = {"glm-moe-dsa", "gpt-oss-20b", "gemma-3n-e2b"};
    for (size_t i = 0; i < sizeof not_plain / sizeof not_plain[0]; i++)
        assert_option_refused(
            not_plain[i],
            (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP,
                                .lora_rank = 8,
                                .lora_targets = RVL_MODEL_LORA_ALL_LINEAR,
                                .base_dtype = RVL_MODEL_BASE_NF4,
                                .flags = RVL_MODEL_PREPARE_KBIT | RVL_MODEL_AUTOCAST},
            "prepare-kbit", "is not predicted for sinks and indexers, and Gemma 3n fails");
    assert_option_refused(LLAMA ",\"quantization_config\":{\"quant_method\":\"nf4\"}}",
                          (rvl_model_options){0}, "quantization_config", "weights-dtype");
    assert_option_refused(LLAMA ",\"quantization_config\":{}}", (rvl_model_options){0},
                          "quantization_config", "weights-dtype");
    assert_option_refused(LLAMA ",\"quantization_config\":{\"quant_method\":\"fp8\","
                                "\"kv_cache_scheme\":{\"num_bits\":4}}}",
                          (rvl_model_options){0}, "quantization_config", "kv-dtype");
    assert_option_refused(
        "{\"model_type\":\"mixtral\",\"hidden_size\":16777216,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":8,"
        "\"intermediate_size\":64,\"vocab_size\":8,\"num_local_experts\":2048,"
        "\"num_experts_per_tok\":2048}",
        (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .seq_len = 16777216}, "seq-len",
        "more than 2^60 bytes");
    /* Products of Mamba's scan: of pairs of tokens in a chunk, and of pairs of chunks. */
    assert_option_refused(WIDE_SCAN ",\"mamba_chunk_size\":65536}",
                          (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .seq_len = 65536},
                          "seq-len", "more than 2^60 bytes");
    assert_option_refused(WIDE_SCAN ",\"mamba_chunk_size\":1}",
                          (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP, .seq_len = 65536},
                          "seq-len", "more than 2^60 bytes");
}

static void given_terms_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const rvl_model_given given[] = {{.term = RVL_MODEL_OPTIMIZER, .bytes = 1},
                                            {.term = RVL_MODEL_WEIGHTS, .bytes = 1},
                                            {.term = RVL_MODEL_WEIGHTS, .bytes = 1},
                                            {.term = RVL_MODEL_TERM_COUNT, .bytes = 1},
                                            {.term = RVL_MODEL_WEIGHTS, .bytes = UINT64_MAX},
                                            {.term = RVL_MODEL_ASLEEP, .bytes = 1},
                                            {.term = RVL_MODEL_ALL_GATHER, .bytes = 1},
                                            {.term = RVL_MODEL_GRADIENT_BUCKETS, .bytes = 1},
                                            {.term = RVL_MODEL_TRAINER_HOST, .bytes = 1},
                                            {.term = RVL_MODEL_DEQUANTISED, .bytes = 1}};
    static const struct {
        size_t first;
        size_t count;
        rvl_model_train train;
        const char *part;
    } cases[] = {
        {0, 1, RVL_MODEL_TRAIN_NONE, "optimizer has no place"},
        {1, 2, RVL_MODEL_TRAIN_NONE,
         "weights has no place in a step with this 'train', or is "
         "there twice"},
        {3, 1, RVL_MODEL_TRAIN_NONE, "no such term"},
        {4, 1, RVL_MODEL_TRAIN_NONE, "more than 2^60 bytes"},
        {5, 1, RVL_MODEL_TRAIN_DDP, "asleep has no place"},
        {6, 1, RVL_MODEL_TRAIN_DDP, "all_gather has no place"},
        {7, 1, RVL_MODEL_TRAIN_FSDP, "gradient_buckets has no place"},
        {8, 1, RVL_MODEL_TRAIN_FSDP, "trainer_host has no place"},
        {9, 1, RVL_MODEL_TRAIN_DDP, "dequantised has no place"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_option_refused(LLAMA "}",
                              (rvl_model_options){.train = cases[i].train,
                                                  .given = given + cases[i].first,
                                                  .given_count = cases[i].count,
                                                  .given_size = sizeof *given},
                              "given", cases[i].part);
}

static void arguments_that_are_missing_are_refused(void **state)
{
    (void)state;
    rvl_model *model = parse_model(LLAMA "}");
    rvl_model_options unset = {0};
    rvl_model_step *step = NULL;
    assert_int_equal(rvl_model_step_make(NULL, NULL, &step), RVL_ERR_INVALID);
    assert_int_equal(rvl_model_step_make(model, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_model_step_make(model, &unset, &step), RVL_ERR_INVALID);
    assert_null(step);
    assert_int_equal(rvl_model_step_make(model, NULL, &step), RVL_OK);
    assert_string_equal(device_of(step).profile, "h200");
    assert_int_equal(device_of(step).capacity_bytes, H200_BYTES);
    rvl_trace_device device;
    size_t count;
    assert_int_equal(rvl_model_step_get_device(NULL, &device, sizeof device), RVL_ERR_INVALID);
    assert_int_equal(rvl_model_step_get_device(step, NULL, sizeof device), RVL_ERR_INVALID);
    assert_int_equal(rvl_model_step_get_events(NULL, NULL, 0, 0, &count), RVL_ERR_INVALID);
    assert_int_equal(rvl_model_step_get_events(step, NULL, 0, 0, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_model_step_write(NULL, "x"), RVL_ERR_INVALID);
    assert_int_equal(rvl_model_step_write(step, NULL), RVL_ERR_INVALID);
    rvl_model_step_close(step);
    rvl_model_step_close(NULL);
    rvl_model_close(model);
}

/* ---- Memory ---- */

/* Fails the first request, then the second, and so on, until it works. */
static void no_memory_leaves_nothing_behind(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen2.5-0.5b");
    rvl_model_options options = {
        .struct_size = sizeof options, .pp = 2, .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 2};
    rvl_model_step *step = NULL;
    long requests = 0;
    for (rvl_status status = RVL_ERR_HOST_OOM; status != RVL_OK; requests++) {
        rvl_error error = {.struct_size = sizeof error};
        short_memory_left = requests;
        status = rvl_model_step_make(model, &options, &step);
        rvl_last_error(&error);
        short_memory_left = -1;
        if (status == RVL_OK)
            break;
        assert_int_equal(status, RVL_ERR_HOST_OOM);
        assert_string_equal(error.message, "no host memory for a step");
        assert_null(step);
    }
    assert_in_range(requests, 20, 200);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static void configs_without_memory_are_refused(void **state)
{
    (void)state;
    rvl_model *model = NULL;
    rvl_error error = {.struct_size = sizeof error};
    short_memory_left = 0;
    assert_int_equal(rvl_model_parse(LLAMA "}", strlen(LLAMA "}"), &model), RVL_ERR_HOST_OOM);
    rvl_last_error(&error);
    short_memory_left = 0;
    assert_int_equal(rvl_model_open(CONFIGS "qwen2.5-7b.json", &model), RVL_ERR_HOST_OOM);
    rvl_last_error(&error);
    short_memory_left = 0;
    json_set_alloc_funcs(failing_malloc, free);
    assert_int_equal(rvl_model_parse(LLAMA "}", strlen(LLAMA "}"), &model), RVL_ERR_HOST_OOM);
    rvl_last_error(&error);
    short_memory_left = -1;
    json_set_alloc_funcs(__real_malloc, free);
    assert_null(model);
}

/* ---- Writing ---- */

static void assert_same_event(const rvl_trace_event *read, const rvl_trace_event *made)
{
    assert_int_equal(read->kind, made->kind);
    assert_int_equal(read->time_ns, made->time_ns);
    assert_int_equal(read->id, made->id);
    assert_int_equal(read->bytes, made->bytes);
    assert_int_equal(read->flags, made->flags);
    assert_int_equal(read->backup, made->backup);
    assert_int_equal(read->skip_content, made->skip_content);
    assert_string_equal(read->process, made->process);
    if (made->tag != NULL)
        assert_string_equal(read->tag, made->tag);
    if (made->name != NULL)
        assert_string_equal(read->name, made->name);
}

static void what_is_written_reads_as_it_was_made(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    const char *paths = path;
    rvl_trace_event event;
    rvl_trace_reader *reader;
    rvl_model *model = open_model("qwen2.5-0.5b");
    static const char *const notes[] = {"one", "", "two"};
    for (rvl_model_strategy strategy = RVL_MODEL_V3; strategy <= RVL_MODEL_V2; strategy++) {
        rvl_model_step *step = make_step(model, (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP,
                                                                    .strategy = strategy,
                                                                    .notes = notes,
                                                                    .note_count = 3});
        snprintf(path, sizeof path, "%s/x.rvt", folder);
        assert_int_equal(rvl_model_step_write(step, path), RVL_OK);
        assert_int_equal(folder_count(), 1);
        assert_int_equal(rvl_trace_reader_open(&paths, 1, NULL, &reader), RVL_OK);
        size_t count;
        rvl_trace_event *made = events_of(step, &count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_OK);
            assert_same_event(&event, &made[i]);
        }
        assert_int_equal(rvl_trace_reader_next(reader, &event, sizeof event), RVL_ERR_NOT_FOUND);
        free(made);
        rvl_trace_reader_close(reader);
        rvl_model_step_close(step);
    }
    assert_int_equal(unlink(path), 0);
    rvl_model_close(model);
}

static void a_failed_write_leaves_what_was_there(void **state)
{
    (void)state;
    char path[PATH_BYTES];
    rvl_error error = {.struct_size = sizeof error};
    struct stat status;
    rvl_model *model = parse_model(LLAMA "}");
    rvl_model_step *step = make_step(model, (rvl_model_options){0});
    snprintf(path, sizeof path, "%s/none/x.rvt", folder);
    assert_int_equal(rvl_model_step_write(step, path), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_string_equal(error.native_name, "ENOENT");
    assert_int_equal(rvl_model_step_write(step, "/dev/full"), RVL_ERR_IO);
    assert_int_equal(stat("/dev/full", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    snprintf(path, sizeof path, "%s/folder", folder);
    assert_int_equal(rvl_model_step_write(step, folder), RVL_ERR_IO);
    snprintf(path, sizeof path, "%s/old.rvt", folder);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(file, "old", 3), 3);
    close(file);
    for (long requests = 0; requests < 2; requests++) {
        short_memory_left = requests;
        assert_int_equal(rvl_model_step_write(step, path), RVL_ERR_HOST_OOM);
        short_memory_left = -1;
    }
    rename_fails = true;
    assert_int_equal(rvl_model_step_write(step, path), RVL_ERR_IO);
    rename_fails = false;
    rvl_last_error(&error);
    assert_string_equal(error.native_name, "EXDEV");
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 3);
    assert_int_equal(folder_count(), 1);
    assert_int_equal(unlink(path), 0);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* ---- Comments of the writer ---- */

static void comments_are_lines_of_their_own(void **state)
{
    (void)state;
    char path[PATH_BYTES], text[512], line[4002];
    rvl_trace_device device = {.capacity_bytes = GIB, .granularity_bytes = 4096};
    rvl_trace_header header = {.struct_size = sizeof header,
                               .devices = &device,
                               .device_count = 1,
                               .device_size = sizeof device,
                               .comment = "one\n\ntwo\n"};
    rvl_trace_writer *writer;
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    snprintf(path, sizeof path, "%s/x.rvt", folder);
    assert_int_equal(rvl_trace_writer_open(path, &header, &writer), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_comment(writer, "three"), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_comment(writer, ""), RVL_OK);
    assert_int_equal(rvl_trace_writer_add_comment(writer, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_comment(NULL, "x"), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_add_comment(writer, line), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_close(writer), RVL_OK);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, "reveille-trace 1.0\n# one\n#\n# two\n"
                              "clock boot=- mono_ns=0 wall_ns=0\n"
                              "device 0 profile=- capacity_bytes=1073741824 "
                              "granularity_bytes=4096\n# three\n#\nend 0\n");
    assert_int_equal(unlink(path), 0);
    header.comment = line;
    assert_int_equal(rvl_trace_writer_open(path, &header, &writer), RVL_ERR_INVALID);
    assert_int_equal(rvl_trace_writer_open("/dev/full", &header, &writer), RVL_ERR_INVALID);
    header.comment = "x";
    assert_int_equal(rvl_trace_writer_open("/dev/full", &header, &writer), RVL_ERR_IO);
    assert_int_equal(folder_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_published_models),
        cmocka_unit_test(every_family_is_checked),
        cmocka_unit_test(tensors_have_names_and_shapes),
        cmocka_unit_test(missing_keys_are_named),
        cmocka_unit_test(the_mlp_of_lfm2_is_adjusted),
        cmocka_unit_test(experts_of_lfm2_have_a_bias_if_nothing_is_said),
        cmocka_unit_test(an_activation_may_have_parameters),
        cmocka_unit_test(layers_may_have_one_norm_for_both_blocks),
        cmocka_unit_test(norms_may_have_biases),
        cmocka_unit_test(a_head_may_have_a_bias),
        cmocka_unit_test(a_layer_may_have_a_state_beside_attention),
        cmocka_unit_test(norms_may_have_no_weights),
        cmocka_unit_test(a_tie_may_have_two_names),
        cmocka_unit_test(sinks_and_indexers_refuse_parts_of_sequences),
        cmocka_unit_test(layers_with_attention_may_be_numbered),
        cmocka_unit_test(a_short_convolution_refuses_unequal_ranks),
        cmocka_unit_test(a_tower_with_other_biases_is_refused),
        cmocka_unit_test(unknown_families_are_refused_with_a_way_out),
        cmocka_unit_test(impossible_values_are_refused),
        cmocka_unit_test(names_of_a_tower_may_be_either),
        cmocka_unit_test(impossible_layers_are_refused),
        cmocka_unit_test(caches_keep_what_layers_need),
        cmocka_unit_test(part_of_a_sequence_may_be_all),
        cmocka_unit_test(stages_without_a_cache_bound_nothing),
        cmocka_unit_test(states_are_dealt_out_by_heads),
        cmocka_unit_test(a_rotated_part_that_is_no_part_is_refused),
        cmocka_unit_test(a_delta_net_refuses_endless_loops),
        cmocka_unit_test(adapters_are_refused_where_peft_refuses_them),
        cmocka_unit_test(experts_have_adapters),
        cmocka_unit_test(mxfp4_weights_have_exponents),
        cmocka_unit_test(towers_are_on_the_first_stage),
        cmocka_unit_test(text_that_is_no_config_is_refused),
        cmocka_unit_test(parts_of_a_config_change_the_count),
        cmocka_unit_test(sparse_layers_are_where_the_config_says),
        cmocka_unit_test(engine_weights_are_fused_and_split),
        cmocka_unit_test(kv_heads_are_copied_where_ranks_are_more),
        cmocka_unit_test(experts_are_dealt_out_then_split),
        cmocka_unit_test(fp8_weights_have_scales),
        cmocka_unit_test(int4_weights_have_scales_and_zeros),
        cmocka_unit_test(quantization_config_is_taken_over),
        cmocka_unit_test(scales_are_as_the_config_says),
        cmocka_unit_test(modules_that_are_not_converted_stay_as_they_were),
        cmocka_unit_test(quantisation_that_is_not_known_is_refused),
        cmocka_unit_test(too_many_entries_are_not_tried),
        cmocka_unit_test(options_go_before_the_quantisation),
        cmocka_unit_test(layers_need_not_divide_by_stages),
        cmocka_unit_test(an_indexer_has_a_cache_of_its_own),
        cmocka_unit_test(what_is_beside_the_language_model_does_not_count),
        cmocka_unit_test(sizes_may_be_at_the_top_or_below),
        cmocka_unit_test(trainers_shard_what_they_hold),
        cmocka_unit_test(optimizers_differ_in_their_states),
        cmocka_unit_test(gathered_weights_are_whole_or_two_layers),
        cmocka_unit_test(activations_are_what_the_backward_pass_needs),
        cmocka_unit_test(latent_attention_keeps_its_own),
        cmocka_unit_test(logits_have_a_copy_and_a_gradient),
        cmocka_unit_test(buffers_follow_the_widest_point),
        cmocka_unit_test(given_sizes_replace_formulas),
        cmocka_unit_test(wakes_without_a_trainer),
        cmocka_unit_test(steps_follow_their_strategies),
        cmocka_unit_test(one_process_at_a_time),
        cmocka_unit_test(sizes_that_do_not_divide_are_refused),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(given_terms_that_do_not_fit_are_refused),
        cmocka_unit_test(arguments_that_are_missing_are_refused),
        cmocka_unit_test(no_memory_leaves_nothing_behind),
        cmocka_unit_test(configs_without_memory_are_refused),
        cmocka_unit_test(what_is_written_reads_as_it_was_made),
        cmocka_unit_test(a_failed_write_leaves_what_was_there),
        cmocka_unit_test(comments_are_lines_of_their_own),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove_empty);
}
