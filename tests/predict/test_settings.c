/* SPDX-License-Identifier: MIT */
/* Settings of a step by their names: what they set, what they refuse, and what they need. */
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

#include "reveille/model.h"

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

static void assert_refused(rvl_status status, const char *key, const char *part)
{
    rvl_error error = last_error();
    assert_int_equal(status, error.status);
    assert_string_equal(error.key, key);
    if (strstr(error.message, part) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", key, error.message, part);
}

/* Of "tp=2 train=fsdp:8". They live as long as the text. */
static rvl_model_options options_of(const char *words)
{
    static char text[256];
    rvl_model_options options = {.struct_size = sizeof options};
    snprintf(text, sizeof text, "%s", words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (rvl_model_options_set(&options, word, value) != RVL_OK)
            fail_msg("%s=%s: %s", word, value, last_error().message);
    }
    return options;
}

static void each_is_listed_and_can_be_set(void **state)
{
    (void)state;
    rvl_model_setting setting = {.struct_size = sizeof setting};
    size_t count = 0;
    assert_int_equal(rvl_model_setting_get(0, NULL), RVL_ERR_INVALID);
    for (; rvl_model_setting_get(count, &setting) == RVL_OK; count++) {
        rvl_model_options options = {.struct_size = sizeof options};
        char expected[256];
        const char *const texts[] = {setting.group, setting.expected, setting.usual, setting.help};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
            assert_true(texts[i] != NULL && texts[i][0] != '\0');
        assert_int_equal(rvl_model_options_check(&options, setting.name) == RVL_ERR_NOT_FOUND, 0);
        if (strcmp(setting.name, "device") == 0)
            continue;
        snprintf(expected, sizeof expected, "expected %s", setting.expected);
        assert_refused(rvl_model_options_set(&options, setting.name, "no such value"), setting.name,
                       expected);
        assert_refused(rvl_model_options_set(&options, setting.name, ""), setting.name, expected);
    }
    assert_true(count > 40);
    assert_refused(rvl_model_options_set(NULL, "tp", "2"), "", "is NULL");
    assert_int_equal(rvl_model_setting_get(count, &setting), RVL_ERR_NOT_FOUND);
    assert_string_equal(last_error().message, "the options, the name or the value is NULL");
}

/* What an older program has room for is all that it gets. */
static void results_are_as_long_as_the_caller_says(void **state)
{
    (void)state;
    rvl_model_setting setting = {.struct_size = offsetof(rvl_model_setting, group), .group = "x"};
    assert_int_equal(rvl_model_setting_get(1, &setting), RVL_OK);
    assert_string_equal(setting.name, "serve");
    assert_string_equal(setting.group, "x");
    setting.struct_size = 1;
    assert_int_equal(rvl_model_setting_get(1, &setting), RVL_ERR_INVALID);
}

static void values_become_fields(void **state)
{
    (void)state;
    rvl_model_options o =
        options_of("tp=8 pp-rank=0 mem-fraction=0.85 weights-dtype=int8 train=megatron:64 "
                   "optimizer-offload=1.0 attention=math loss=chunked:12 lora=16");
    assert_int_equal(o.tp, 8);
    assert_int_equal(o.pp_rank, 0);
    assert_int_equal(o.mem_fraction_ppm, 850000);
    assert_int_equal(o.weights_dtype, RVL_MODEL_INT8);
    assert_int_equal(o.train, RVL_MODEL_TRAIN_MEGATRON);
    assert_int_equal(o.train_ranks, 64);
    assert_int_equal(o.optimizer_offload_ppm, 1000000);
    assert_int_equal(o.attention, RVL_MODEL_ATTENTION_MATH);
    assert_int_equal(o.loss, RVL_MODEL_LOSS_CHUNKED);
    assert_int_equal(o.loss_chunks, 12);
    assert_int_equal(o.lora_rank, 16);
    o = options_of(
        "train=fsdp:4 train=plain loss=chunked:3 loss=chunked optimizer=paged-adamw-32bit "
        "base-dtype=nf4-single strategy=v2 wake=together update-bucket=whole");
    assert_int_equal(o.train, RVL_MODEL_TRAIN_PLAIN);
    assert_int_equal(o.train_ranks, 0);
    assert_int_equal(o.loss_chunks, 0);
    assert_int_equal(o.optimizer, RVL_MODEL_PAGED_ADAMW_32BIT);
    assert_int_equal(o.base_dtype, RVL_MODEL_BASE_NF4_SINGLE);
    assert_int_equal(o.strategy, RVL_MODEL_V2);
    assert_int_equal(o.wake, RVL_WAKE_TOGETHER);
    assert_true(o.update_bucket_bytes == RVL_MODEL_UPDATE_WHOLE);
    o = options_of("update-bucket=1GiB recompute=yes fused=yes fused=no transformer-impl=local "
                   "adapter-dtype=bf16 adapter-dtype=fp32 device=h100-80g");
    assert_true(o.update_bucket_bytes == UINT64_C(1) << 30);
    assert_true(o.flags == (RVL_MODEL_RECOMPUTE | RVL_MODEL_LOCAL_LAYERS));
    assert_string_equal(o.device, "h100-80g");
}

/* No takes back what yes has said, and nothing else. */
static void uses_exclude_each_other(void **state)
{
    (void)state;
    assert_int_equal(options_of("serve=yes").use, RVL_MODEL_USE_SERVE);
    assert_int_equal(options_of("serve=yes serve=no").use, RVL_MODEL_USE_RL);
    assert_int_equal(options_of("serve=yes fine-tune=no").use, RVL_MODEL_USE_SERVE);
    assert_int_equal(options_of("serve=yes fine-tune=yes").use, RVL_MODEL_USE_FINE_TUNE);
}

static void values_out_of_range_change_nothing(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"tp", "0"},           {"tp", "4097"},           {"tp", "-1"},
        {"tp", "1x"},          {"mem-fraction", "0"},    {"mem-fraction", "1.1"},
        {"mem-fraction", "."}, {"mem-fraction", "1."},   {"train", "fsdp"},
        {"train", "fsdp:"},    {"train", "fsdp:0"},      {"train", "fsdp:4097"},
        {"train", "ddp:2"},    {"loss", "chunked:4097"}, {"loss", "chunked:"},
        {"loss", "plain:2"},   {"optimizer", "adam"},    {"optimizer", "adamw-"},
        {"kv-dtype", "int4"},  {"update-bucket", "0"},   {"fused", "maybe"},
        {"lora", "65537"},
    };
    const rvl_model_options before = {.struct_size = sizeof before, .tp = 3, .flags = 1};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model_options options = before;
        assert_refused(rvl_model_options_set(&options, cases[i][0], cases[i][1]), cases[i][0],
                       "expected ");
        assert_memory_equal(&options, &before, sizeof before);
    }
}

static void names_and_structs_that_are_not_known(void **state)
{
    (void)state;
    rvl_model_options options = {.struct_size = sizeof options};
    assert_refused(rvl_model_options_set(&options, "tpp", "2"), "tpp", "no such setting");
    assert_refused(rvl_model_options_check(&options, "tpp"), "tpp", "no such setting");
    assert_refused(rvl_model_options_set(&options, "tp", NULL), "", "is NULL");
    assert_refused(rvl_model_options_check(NULL, "tp"), "", "is NULL");
    options.struct_size = 0;
    assert_int_equal(rvl_model_options_check(&options, "tp"), RVL_ERR_INVALID);
    options.struct_size = offsetof(rvl_model_options, loss_chunks);
    assert_int_equal(rvl_model_options_set(&options, "train", "fsdp:2"), RVL_OK);
    assert_refused(rvl_model_options_set(&options, "loss", "fused"), "loss", "no such field");
    assert_refused(rvl_model_options_set(&options, "lora", "8"), "lora", "no such field");
    assert_int_equal(options.lora_rank, 0);
}

/* Every need that is not met, with its reason, and the same need where it is. */
static void says_what_a_setting_needs(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        const char *name;
        const char *part; /* NULL: it matters */
    } cases[] = {
        {"serve=yes strategy=v2", "strategy", "do not share the GPU"},
        {"strategy=v2", "strategy", NULL},
        {"serve=yes", "update-bucket", "do not share the GPU"},
        {"train=ddp strategy=v1", "update-bucket", "v2 and v3 send new weights in buckets"},
        {"train=ddp strategy=v2", "update-bucket", NULL},
        {"fine-tune=yes", "tp", "which 'fine-tune' has none of"},
        {"serve=yes train=ddp", "train", "which has no trainer"},
        {"", "recompute", "changes nothing with 'train' none"},
        {"fine-tune=yes", "recompute", NULL},
        {"", "lora", "changes nothing with 'train' none"},
        {"train=ddp", "train-cp", "is a setting of Megatron and FSDP"},
        {"train=fsdp:2", "train-cp", NULL},
        {"train=fsdp:2", "train-tp", "is a setting of Megatron: leave it out"},
        {"train=megatron:2", "train-tp", NULL},
        {"train=megatron:2", "attention", "which has other layers"},
        {"train=ddp", "attention", NULL},
        {"train=ddp", "reshard", "where every rank has all layers"},
        {"train=plain", "reshard", "where every rank has all layers"},
        {"train=megatron:2", "reshard", "which gathers no layers"},
        {"train=fsdp:2", "reshard", NULL},
        {"train=ddp", "mixed-precision", "is a policy of FSDP"},
        {"train=fsdp:2", "bucket-freed", "is of DDP's buckets"},
        {"train=ddp", "bucket-freed", NULL},
        {"train=fsdp:2 mixed-precision=yes", "reduce-fp32", "which reduces in fp32"},
        {"train=fsdp:2", "reduce-fp32", NULL},
        {"train=ddp", "offload-activations", "say 'recompute' too"},
        {"train=ddp recompute=yes", "offload-activations", NULL},
        {"train=megatron:2 transformer-impl=local", "moe-use-legacy-grouped-gemm",
         "which has no other"},
        {"train=fsdp:2 cpu-offload=yes", "fused", "runs on the host"},
        {"train=megatron:2", "fused", "its Adam is fused"},
        {"train=megatron:2 transformer-impl=local optimizer-offload=0.5", "fused",
         "its optimizers are fused"},
        {"train=ddp optimizer=sgd", "fused", "only adamw and adamw-bf16"},
        {"train=ddp optimizer=adamw-bf16", "fused", NULL},
        {"train=ddp", "lora-targets", "changes nothing without 'lora'"},
        {"train=ddp", "base-dtype", "weights of 4 bits are not trained"},
        {"train=ddp", "autocast", "goes with adapters"},
        {"train=ddp lora=8", "autocast", NULL},
        {"strategy=v2", "wake", "only v3 wakes in stages"},
        {"", "wake", NULL},
        {"", "mem-fraction", NULL},
        {"", "nccl", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rvl_model_options options = options_of(cases[i].options);
        rvl_status status = rvl_model_options_check(&options, cases[i].name);
        if (cases[i].part != NULL)
            assert_refused(status, cases[i].name, cases[i].part);
        else if (status != RVL_OK)
            fail_msg("%s: %s", cases[i].options, last_error().message);
    }
}

/* Sizes that are given take the place of the program of a step, or of the cache. */
static void given_sizes_leave_settings_idle(void **state)
{
    (void)state;
    rvl_model_given given[] = {{.term = RVL_MODEL_WEIGHTS}, {.term = RVL_MODEL_KV_CACHE}};
    rvl_model_options options = options_of("train=ddp");
    options.given = given;
    options.given_size = sizeof *given;
    options.given_count = 2;
    assert_refused(rvl_model_options_check(&options, "mem-fraction"), "mem-fraction",
                   "says the size of kv_cache");
    assert_int_equal(rvl_model_options_check(&options, "accumulate"), RVL_OK);
    for (int i = 0; i < 2; i++) {
        given[0].term = i == 0 ? RVL_MODEL_LOGITS : RVL_MODEL_CACHED;
        assert_refused(rvl_model_options_check(&options, "accumulate"), "accumulate",
                       "one of the trainer's terms");
        assert_refused(rvl_model_options_check(&options, "attention"), "attention",
                       "one of the trainer's terms");
    }
    options.attention = RVL_MODEL_ATTENTION_MATH; /* the formulas know that one */
    assert_int_equal(rvl_model_options_check(&options, "attention"), RVL_OK);
    options.train = RVL_MODEL_TRAIN_MEGATRON; /* which has no formulas */
    assert_int_equal(rvl_model_options_check(&options, "accumulate"), RVL_OK);
    options.given = NULL; /* the step refuses it */
    assert_int_equal(rvl_model_options_check(&options, "mem-fraction"), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_listed_and_can_be_set),
        cmocka_unit_test(results_are_as_long_as_the_caller_says),
        cmocka_unit_test(values_become_fields),
        cmocka_unit_test(uses_exclude_each_other),
        cmocka_unit_test(values_out_of_range_change_nothing),
        cmocka_unit_test(names_and_structs_that_are_not_known),
        cmocka_unit_test(says_what_a_setting_needs),
        cmocka_unit_test(given_sizes_leave_settings_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
