/* SPDX-License-Identifier: MIT */
/*
 * Configs are changed as trees: a key that the reader knows gets a value of the right kind or of a
 * wrong one, at the top or nested; numbers become others that divide them, or that nothing holds.
 * "_step", which the reader passes over, has the options of the step that target_model.c makes.
 */
#include "fuzz.h"

#include <jansson.h>
#include <string.h>

#include "reveille/model.h"

#define NODES_MAX 512u

/* A place that has a value: a member of an object, or an item of a list. */
typedef struct place {
    json_t *in;
    const char *key; /* NULL: of a list */
    size_t index;
} place;

typedef struct tree {
    place places[NODES_MAX];
    uint32_t count;
    uint32_t random;
} tree;

static uint32_t pick(tree *t, uint32_t below)
{
    return fuzz_pick(&t->random, below);
}

#define ONE_OF(t, words) words[pick(t, sizeof words / sizeof words[0])]

/* ---- Places ---- */

static void list_places(tree *t, json_t *in)
{
    const char *key;
    json_t *value;
    size_t index;
    json_object_foreach(in, key, value)
    {
        if (t->count < NODES_MAX)
            t->places[t->count++] = (place){in, key, 0};
        list_places(t, value);
    }
    json_array_foreach(in, index, value)
    {
        if (t->count < NODES_MAX)
            t->places[t->count++] = (place){in, NULL, index};
        list_places(t, value);
    }
}

static json_t *value_at(const place *p)
{
    return p->key != NULL ? json_object_get(p->in, p->key) : json_array_get(p->in, p->index);
}

static void set_value(const place *p, json_t *value)
{
    if (p->key != NULL)
        json_object_set_new_nocheck(p->in, p->key, value);
    else
        json_array_set_new(p->in, p->index, value);
}

/* ---- Values ---- */

static json_t *some_number(tree *t)
{
    static const int usual[] = {0, 1, 2, 3, 4, 8, 16, 32, 64, 80, 128, 256, 1024, 4096, 32000};
    switch (pick(t, 8)) {
    case 0:
        return json_integer((json_int_t)fuzz_size(&t->random));
    case 1:
        return json_integer(-(json_int_t)pick(t, 4));
    case 2:
        return json_real(pick(t, 2) == 0 ? 0.5 : 1e300);
    default:
        return json_integer(ONE_OF(t, usual));
    }
}

static json_t *some_family(tree *t)
{
    size_t count = 0;
    while (rvl_model_family(count) != NULL)
        count++;
    return json_string(rvl_model_family(pick(t, (uint32_t)count)));
}

static json_t *some_word(tree *t)
{
    static const char *const words[] = {"mistral",
                                        "gemma3_text",
                                        "fp8",
                                        "awq",
                                        "gptq",
                                        "compressed-tensors",
                                        "e4m3",
                                        "float",
                                        "int",
                                        "tensor",
                                        "channel",
                                        "group",
                                        "block",
                                        "lm_head",
                                        "re:.*mlp.*",
                                        "model.layers.0",
                                        "self_attn",
                                        "%s%n",
                                        "",
                                        "bfloat16",
                                        "sliding_attention",
                                        "linear_attention",
                                        "full_attention",
                                        "mamba",
                                        "M*-E",
                                        "float32",
                                        "sparse"};
    return pick(t, 2) == 0 ? some_family(t) : json_string(ONE_OF(t, words));
}

static json_t *some_value(tree *t)
{
    switch (pick(t, 8)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(pick(t, 2));
    case 2:
        return some_word(t);
    case 3: {
        json_t *list = json_array();
        for (uint32_t i = pick(t, 4); i > 0; i--)
            json_array_append_new(list, pick(t, 2) == 0 ? some_number(t) : some_word(t));
        return list;
    }
    case 4:
        return pick(t, 4) == 0 ? json_object() : some_number(t);
    default:
        return some_number(t);
    }
}

/* ---- Changes ---- */

static void change_value(tree *t, json_t *root)
{
    (void)root;
    place *p = &t->places[pick(t, t->count)];
    json_t *old = value_at(p);
    json_int_t number = json_integer_value(old);
    if (!json_is_integer(old) || pick(t, 8) == 0) {
        set_value(p, json_is_string(old) && pick(t, 2) == 0 ? some_word(t) : some_value(t));
        return;
    }
    switch (pick(t, 6)) {
    case 0:
        set_value(p, some_number(t));
        break;
    case 1:
        set_value(p, json_integer(number / (1 + (json_int_t)pick(t, 4))));
        break;
    case 2:
        if (number < INT32_MAX)
            set_value(p, json_integer(number * (1 + (json_int_t)pick(t, 4))));
        break;
    case 3:
        set_value(p, json_integer(number < INT32_MAX ? number + 1 : number - 1));
        break;
    case 4:
        set_value(p, json_integer(1 + (json_int_t)pick(t, 8)));
        break;
    default:
        set_value(p, json_deep_copy(value_at(&t->places[pick(t, t->count)])));
    }
}

static void set_known(tree *t, json_t *root)
{
    static const char *const numbers[] = {"num_hidden_layers",
                                          "num_attention_heads",
                                          "num_key_value_heads",
                                          "hidden_size",
                                          "vocab_size",
                                          "intermediate_size",
                                          "head_dim",
                                          "qk_nope_head_dim",
                                          "qk_rope_head_dim",
                                          "v_head_dim",
                                          "q_lora_rank",
                                          "kv_lora_rank",
                                          "index_n_heads",
                                          "index_head_dim",
                                          "num_experts_per_tok",
                                          "num_experts",
                                          "num_local_experts",
                                          "n_routed_experts",
                                          "n_shared_experts",
                                          "moe_intermediate_size",
                                          "shared_expert_intermediate_size",
                                          "first_k_dense_replace",
                                          "moe_layer_freq",
                                          "decoder_sparse_step",
                                          "num_nextn_predict_layers",
                                          "mlp_only_layers",
                                          "sliding_window",
                                          "full_attention_interval",
                                          "num_kv_shared_layers",
                                          "linear_num_key_heads",
                                          "linear_num_value_heads",
                                          "linear_key_head_dim",
                                          "linear_value_head_dim",
                                          "linear_conv_kernel_dim",
                                          "mamba_n_heads",
                                          "mamba_d_head",
                                          "mamba_n_groups",
                                          "mamba_d_state",
                                          "mamba_d_conv",
                                          "mamba_num_heads",
                                          "mamba_head_dim",
                                          "n_groups",
                                          "ssm_state_size",
                                          "conv_kernel",
                                          "moe_layers",
                                          "interleave_moe_layer_step",
                                          "moe_layer_end_index",
                                          "shared_intermediate_size",
                                          "altup_num_inputs",
                                          "global_head_dim",
                                          "num_global_key_value_heads",
                                          "hidden_size_per_layer_input",
                                          "top_k_experts",
                                          "per_layer_config",
                                          "layer_types",
                                          "hybrid_override_pattern"};
    static const char *const flags[] = {
        "tie_word_embeddings", "attention_bias", "mlp_bias",         "use_bias",
        "use_qk_norm",         "use_conv_bias",  "attention_k_eq_v", "use_double_wide_mlp",
        "enable_moe_block"};
    json_t *nested = json_object_get(root, "text_config");
    json_t *in = json_is_object(nested) && pick(t, 4) > 0 ? nested : root;
    switch (pick(t, 8)) {
    case 0:
        json_object_set_new(in, ONE_OF(t, flags), json_boolean(pick(t, 2)));
        break;
    case 1:
        json_object_set_new(in, "model_type", some_family(t));
        break;
    case 2:
        json_object_set_new(in, ONE_OF(t, numbers), some_value(t));
        break;
    default:
        json_object_set_new(in, ONE_OF(t, numbers), some_number(t));
    }
}

static void set_quantisation(tree *t, json_t *root)
{
    static const char *const configs[] = {
        "{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":[128,128]}",
        "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"ignored_layers\":[\"lm_"
        "head\"]}",
        "{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"model.layers.*.self_attn\",\"*"
        "\"]}",
        "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,"
        "\"modules_to_not_convert\":[\"mlp\"]}",
        "{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1,\"desc_act\":true}",
        "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":64,\"dynamic\":{}}",
        "{\"quant_method\":\"compressed-tensors\",\"ignore\":[\"lm_head\",\"re:.*gate\"],"
        "\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":8,\"type\":\"float\","
        "\"strategy\":\"block\",\"block_structure\":[128,128],\"symmetric\":true}}},"
        "\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\"}}",
        "{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"weights\":"
        "{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32,"
        "\"symmetric\":false},\"targets\":[\"Linear\"]}}}"};
    json_object_set_new(root, "quantization_config", json_loads(ONE_OF(t, configs), 0, NULL));
}

/* target_model.c says what these mean. */
static void set_step(tree *t, json_t *root)
{
    static const char *const options[] = {"tp",
                                          "pp",
                                          "pp_rank",
                                          "ep",
                                          "train",
                                          "train_ranks",
                                          "strategy",
                                          "wake",
                                          "micro_batch",
                                          "seq_len",
                                          "recompute",
                                          "reshard",
                                          "optimizer",
                                          "weights_dtype",
                                          "kv_dtype",
                                          "mem_fraction_ppm",
                                          "accumulate",
                                          "fused",
                                          "train_tp",
                                          "train_pp",
                                          "train_cp",
                                          "train_ep",
                                          "train_stage",
                                          "megatron",
                                          "attention",
                                          "loss",
                                          "loss_chunks",
                                          "reduce_fp32",
                                          "lora_rank",
                                          "lora_targets",
                                          "mixed",
                                          "nccl",
                                          "device",
                                          "base_dtype",
                                          "cpu_offload",
                                          "bucket_freed",
                                          "offload_activations",
                                          "bf16_adapters",
                                          "autocast",
                                          "prepare_kbit",
                                          "train_vpp",
                                          "layers",
                                          "optimizer_offload_ppm",
                                          "use",
                                          "update_bucket_bytes"};
    json_t *step = json_object_get(root, "_step");
    if (!json_is_object(step)) {
        json_object_set_new(root, "_step", json_object());
        step = json_object_get(root, "_step");
    }
    if (pick(t, 12) == 0) {
        json_object_set_new(
            step, "given",
            json_pack("[[i, o]]", (int)pick(t, RVL_MODEL_TERM_COUNT + 1), some_number(t)));
        return;
    }
    const char *name = ONE_OF(t, options);
    uint32_t small = pick(t, 6);
    json_object_set_new(step, name, pick(t, 4) == 0 ? some_number(t) : json_integer(small));
}

/* A member goes, or all of the config moves into what a model of several parts has. */
static void change_shape(tree *t, json_t *root)
{
    const place *p = &t->places[pick(t, t->count)];
    if (pick(t, 3) > 0) {
        if (p->key != NULL)
            json_object_del(p->in, p->key);
        else
            json_array_remove(p->in, p->index);
        return;
    }
    if (pick(t, 2) == 0) {
        json_object_set_new(root, "text_config", json_deep_copy(root));
        json_object_set_new(root, "model_type",
                            json_string(pick(t, 2) == 0 ? "gemma3" : "mistral3"));
    } else {
        set_value(p, json_pack("[O, O]", value_at(p), value_at(p)));
    }
}

/* ---- What libFuzzer calls ---- */

static json_t *read_config(const uint8_t *data, size_t size)
{
    json_t *root = json_loadb((const char *)data, size, 0, NULL);
    if (json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

/* 0: it does not fit. Takes the tree. */
static size_t write_config(json_t *root, uint8_t *data, size_t size_max)
{
    size_t size = json_dumpb(root, (char *)data, size_max, JSON_COMPACT);
    json_decref(root);
    return size <= size_max ? size : 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed)
{
    static void (*const changes[])(tree *, json_t *) = {
        change_value, change_value, change_value,     set_known,   set_known,
        set_step,     set_step,     set_quantisation, change_shape};
    static tree t;
    t.random = seed;
    json_t *root = pick(&t, 32) > 0 ? read_config(data, size) : NULL;
    if (root == NULL)
        return LLVMFuzzerMutate(data, size, size_max);
    for (uint32_t times = 1 + pick(&t, 4); times > 0; times--) {
        t.count = 0;
        list_places(&t, root);
        if (t.count > 0)
            changes[pick(&t, sizeof changes / sizeof changes[0])](&t, root);
    }
    return write_config(root, data, size_max);
}

/* The first one with some of the second one's members. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t out_max, unsigned seed)
{
    const char *key;
    json_t *value, *root = read_config(first, first_size);
    json_t *other = root != NULL ? read_config(second, second_size) : NULL;
    tree t = {.random = seed};
    json_object_foreach(other, key, value)
    {
        if (pick(&t, 4) == 0)
            json_object_set_nocheck(root, key, value);
    }
    json_decref(other);
    return root != NULL ? write_config(root, out, out_max) : 0;
}
