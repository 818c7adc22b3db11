/* SPDX-License-Identifier: MIT */
/* Models with heads and MLPs of several sizes (Gemma 4): what configs say of them, and may not. */
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

#include "predict/llm/llm_internal.h"
#include "tests/predict/model_configs.h"

#define HIDDEN UINT64_C(64)
#define TEXT_BYTES 2048

/* Four layers, of which the third and the last see all tokens. */
#define SIZES                                                                                      \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":8,"                        \
    "\"num_key_value_heads\":4,\"head_dim\":16,\"intermediate_size\":96,\"vocab_size\":128,"       \
    "\"vocab_size_per_layer_input\":128,\"layer_types\":[\"sliding_attention\","                   \
    "\"sliding_attention\",\"full_attention\",\"sliding_attention\"]"
#define GEMMA4 "{\"model_type\":\"gemma4_text\"," SIZES

static uint64_t count_of(const char *text)
{
    rvl_model *model = parse_model(text);
    uint64_t count = rvl_model_parameter_count(model);
    rvl_model_close(model);
    return count;
}

/* A layer's norms, q and k with theirs, v, o, an MLP, its number. */
static uint64_t layer_count(uint64_t head, uint64_t kv_heads, uint64_t values, uint64_t inner)
{
    return 4 * HIDDEN + 2 * 8 * head * HIDDEN + (1 + values) * kv_heads * head * HIDDEN + 2 * head +
           3 * inner * HIDDEN + 1;
}

/* Embedding and last norm. */
static const uint64_t ends = 128 * HIDDEN + HIDDEN;
/* Embeddings for four layers, and what belongs to them. */
static const uint64_t per_layer =
    4 * 256 * (128 + HIDDEN) + 256 + 4 * (2 * UINT64_C(256) * HIDDEN + HIDDEN);

static void sizes_differ_from_layer_to_layer(void **state)
{
    (void)state;
    const uint64_t sliding = layer_count(16, 4, 1, 96);
    const struct {
        const char *text;
        uint64_t parameters;
    } cases[] = {
        {GEMMA4 "}", ends + per_layer + 2 * sliding + 2 * layer_count(512, 4, 1, 96)},
        {GEMMA4 ",\"hidden_size_per_layer_input\":0,\"global_head_dim\":32}",
         ends + 2 * sliding + 2 * layer_count(32, 4, 1, 96)},
        {GEMMA4 ",\"hidden_size_per_layer_input\":null,\"global_head_dim\":32,"
                "\"num_global_key_value_heads\":2}", /* which counts with attention_k_eq_v alone */
         ends + 2 * sliding + 2 * layer_count(32, 4, 1, 96)},
        {GEMMA4 ",\"hidden_size_per_layer_input\":0,\"global_head_dim\":32,"
                "\"num_global_key_value_heads\":2,\"attention_k_eq_v\":true}",
         ends + 2 * sliding + 2 * layer_count(32, 2, 0, 96)},
        {"{\"model_type\":\"gemma4_unified_text\",\"hidden_size_per_layer_input\":256," SIZES
         ",\"global_head_dim\":32}", /* its class has no such embeddings */
         ends + 2 * sliding + 2 * layer_count(32, 4, 1, 96)},
        {GEMMA4 ",\"hidden_size_per_layer_input\":0,\"global_head_dim\":32,"
                "\"num_kv_shared_layers\":1,\"use_double_wide_mlp\":true}",
         ends + 2 * sliding + layer_count(32, 4, 1, 96) + layer_count(32, 0, 1, 192) - 32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(count_of(cases[i].text), cases[i].parameters);
}

/* transformers 5.17 writes sizes by the numbers of layers. */
static void saved_configs_are_read_as_published_ones(void **state)
{
    (void)state;
    static const char published[] = GEMMA4 ",\"global_head_dim\":32,\"attention_k_eq_v\":true,"
                                           "\"num_global_key_value_heads\":2}";
    static const char saved[] = GEMMA4 ",\"attention_k_eq_v\":true,\"per_layer_config\":{"
                                       "\"02\":{\"head_dim\":32,\"num_key_value_heads\":2},"
                                       "\"03\":{\"head_dim\":32,\"num_key_value_heads\":2}}}";
    assert_int_equal(count_of(published), count_of(saved));
    assert_int_equal(count_of(GEMMA4 ",\"per_layer_config\":{}}"),
                     count_of(GEMMA4 ",\"global_head_dim\":16}"));
}

static void experts_stand_beside_an_mlp(void **state)
{
    (void)state;
    static const char experts[] = ",\"hidden_size_per_layer_input\":0,\"num_experts\":8,"
                                  "\"top_k_experts\":2,\"moe_intermediate_size\":24";
    char text[TEXT_BYTES];
    /* Router and its two scales, experts, three more norms. */
    const uint64_t more = 4 * (8 * HIDDEN + HIDDEN + 8 + 8 * 3 * 24 * HIDDEN + 3 * HIDDEN);
    snprintf(text, sizeof text, "%s%s}", GEMMA4, experts);
    const uint64_t dense = count_of(text);
    snprintf(text, sizeof text, "%s%s,\"enable_moe_block\":true}", GEMMA4, experts);
    assert_int_equal(count_of(text), dense + more);
    rvl_model *model = parse_model(text);
    for (uint32_t layer = 0; layer < 4; layer++) {
        assert_true(rvli_layer_is(model, layer, RVLI_LAYER_DENSE));
        assert_true(rvli_layer_is(model, layer, RVLI_LAYER_SPARSE));
    }
    rvl_model_close(model);
}

/* The config around the language model's decides, and says so by default. */
static void the_outer_tie_counts(void **state)
{
    (void)state;
    static const char *const outer[] = {"", "\"tie_word_embeddings\":true,",
                                        "\"tie_word_embeddings\":false,"};
    char text[TEXT_BYTES];
    const uint64_t tied = count_of(GEMMA4 "}");
    for (size_t i = 0; i < 3; i++) {
        snprintf(text, sizeof text,
                 "{\"model_type\":\"gemma4\",%s\"text_config\":{\"tie_word_embeddings\":%s,%s}}",
                 outer[i], i == 2 ? "true" : "false", SIZES);
        assert_int_equal(count_of(text), i == 2 ? tied + 128 * HIDDEN : tied);
    }
}

/* An engine loads the projection of keys twice, so its weights are as large as with one for each.
 */
static void engines_have_keys_as_values_twice(void **state)
{
    (void)state;
    uint64_t bytes[2], parameters[2];
    for (int i = 0; i < 2; i++) {
        char text[TEXT_BYTES];
        snprintf(text, sizeof text, "%s,\"global_head_dim\":32,\"attention_k_eq_v\":%s}", GEMMA4,
                 i == 0 ? "false" : "true");
        rvl_model *model = parse_model(text);
        rvl_model_step *step = NULL;
        const rvl_model_options options = {.struct_size = sizeof options, .tp = 2};
        assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
        bytes[i] = rvl_model_step_bytes(step, RVL_MODEL_WEIGHTS);
        parameters[i] = rvl_model_parameter_count(model);
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_int_equal(parameters[0], parameters[1] + 2 * UINT64_C(4) * 32 * HIDDEN);
}

static void assert_step_refused(const char *text, rvl_model_options options, const char *key)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model_step *step = NULL;
    rvl_model *model = parse_model(text);
    options.struct_size = sizeof options;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_ERR_INVALID);
    rvl_last_error(&error);
    assert_string_equal(error.key, key);
    assert_null(step);
    rvl_model_close(model);
}

static void what_is_not_worked_out_is_refused(void **state)
{
    (void)state;
    const rvl_model_options ddp = {.train = RVL_MODEL_TRAIN_DDP};
    rvl_model_options attention = ddp;
    attention.attention = RVL_MODEL_ATTENTION_FLASH;
    assert_step_refused(GEMMA4 "}", attention, "attention");
}

static void ranks_must_divide_the_heads_of_all_layers(void **state)
{
    (void)state;
    assert_step_refused("{\"model_type\":\"gemma4_text\",\"hidden_size\":96,"
                        "\"num_hidden_layers\":1,\"num_attention_heads\":24,"
                        "\"num_key_value_heads\":8,\"head_dim\":16,\"intermediate_size\":96,"
                        "\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3}",
                        (rvl_model_options){.tp = 4}, "num_global_key_value_heads");
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    static const char entries[] = "expected an object for numbers of layers";
    assert_refused(GEMMA4 ",\"per_layer_config\":[]}", "per_layer_config", entries);
    assert_refused(GEMMA4 ",\"per_layer_config\":{\"4\":{}}}", "per_layer_config", entries);
    assert_refused(GEMMA4 ",\"per_layer_config\":{\"-1\":{}}}", "per_layer_config", entries);
    assert_refused(GEMMA4 ",\"per_layer_config\":{\"2x\":{}}}", "per_layer_config", entries);
    assert_refused(GEMMA4 ",\"per_layer_config\":{\"2\":7}}", "per_layer_config", entries);
    assert_refused(GEMMA4 ",\"per_layer_config\":{\"2\":{\"head_dim\":32}}}", "per_layer_config",
                   "the same sizes for all layers of full attention");
    assert_refused(GEMMA4 ",\"per_layer_config\":{\"0\":{\"head_dim\":32}}}", "per_layer_config",
                   "the same sizes for all layers of full attention");
    assert_refused(GEMMA4 ",\"per_layer_config\":{\"2\":{\"head_dim\":0},\"3\":{}}}", "head_dim",
                   "from 1");
    assert_refused(GEMMA4 ",\"global_head_dim\":0}", "global_head_dim", "from 1");
    assert_refused(GEMMA4 ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3}",
                   "num_global_key_value_heads", "num_attention_heads does not divide by it");
    assert_refused(GEMMA4 ",\"use_bidirectional_attention\":\"all\"}",
                   "use_bidirectional_attention", "expected null or vision");
    assert_refused(GEMMA4 ",\"enable_moe_block\":true}", "num_experts", "missing");
    assert_refused(GEMMA4 ",\"num_kv_shared_layers\":4}", "num_kv_shared_layers",
                   "no layer is left that has keys");
    assert_refused("{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"num_hidden_layers\":2,"
                   "\"intermediate_size\":16777216,\"use_double_wide_mlp\":true}",
                   "intermediate_size", "impossible");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_differ_from_layer_to_layer),
        cmocka_unit_test(saved_configs_are_read_as_published_ones),
        cmocka_unit_test(experts_stand_beside_an_mlp),
        cmocka_unit_test(the_outer_tie_counts),
        cmocka_unit_test(engines_have_keys_as_values_twice),
        cmocka_unit_test(what_is_not_worked_out_is_refused),
        cmocka_unit_test(ranks_must_divide_the_heads_of_all_layers),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
