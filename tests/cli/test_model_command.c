/* SPDX-License-Identifier: MIT */
/*
 * `reveille model` as a user meets it: what it prints, what it writes, and that bad input of every
 * kind ends in status 2 with one line that names its place, and writes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define CONFIGS SOURCE_WORD "/tests/data/configs/"
static void remove_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void prints_its_terms_and_writes_a_trace(void **state)
{
    (void)state;
    assert_int_equal(run_command("model " CONFIGS "qwen2.5-32b.json --tp 2 -o x.rvt"), 0);
    check_printed("x.rvt: qwen2, 32763876352 parameters; 402 events; the KV cache holds "
                  "775393 tokens\n");
    check_printed("weights           30.7 GiB   32969326592");
    check_printed("update_bucket      2.9 GiB    3116367872");
    assert_null(strstr(answer.out, "training_copy"));
    check_printed(
        "\nin doubt: trainer_context 460.8 MiB, trainer_residue 563.2 MiB, asleep 3.3 GiB, as "
        "other programs had; --given says yours\n"
        "in doubt: without engine_nccl; --nccl counts it\n");
    assert_int_equal(run_command("replay x.rvt"), 0);
    check_printed("kv_cache_awake");
    remove_file("x.rvt");
}

/* The new weights of the engine, all at once or in buckets. */
static void updates_in_buckets(void **state)
{
    (void)state;
    assert_int_equal(run_command("model " CONFIGS "qwen2.5-32b.json --tp 2 --update-bucket whole"),
                     0);
    check_printed("training_copy     61.0 GiB   65531805696");
    assert_null(strstr(answer.out, "update_bucket"));
    /* Twice the vocabulary, which is a bucket of its own: 152064 x 5120 x 2 bytes, up to 2 MiB. */
    assert_int_equal(run_command("model " CONFIGS "qwen2.5-32b.json --tp 2 --update-bucket 1B"), 0);
    check_printed("update_bucket      2.9 GiB    3116367872            2\n");
    assert_int_equal(run_command("model " CONFIGS "qwen2.5-32b.json --tp 2 --update-bucket 4GiB"),
                     0);
    check_printed("update_bucket      7.9 GiB");
    assert_int_equal(run_command("model " CONFIGS "deepseek-v3.json --tp 8"), 0);
    check_printed("fits, with 10.1 GiB to spare\n");
    assert_int_equal(run_command("model " CONFIGS "qwen2.5-7b.json --train ddp --optimizer sgd"),
                     0);
    check_printed("update_bucket");
}

/* One half of a step alone. */
static void serves_and_fine_tunes(void **state)
{
    (void)state;
    assert_int_equal(run_command("model --serve --tp 2 " CONFIGS "qwen2.5-32b.json"), 0);
    check_printed("qwen2, 32763876352 parameters; ");
    check_printed("weights          30.7 GiB   32969326592");
    assert_null(strstr(answer.out, "trainer"));
    check_printed("\n  serve  ");
    assert_int_equal(
        run_command("model --fine-tune --micro-batch 2 --seq-len 2048 -o x.rvt " CONFIGS
                    "llama-3.2-1b.json"),
        0);
    assert_null(strstr(answer.out, "engine"));
    assert_null(strstr(answer.out, "gradient_buckets"));
    check_printed("training_weights");
    assert_int_equal(run_command("--version; head -n 2 x.rvt"), 0);
    check_printed("\n# One step of fine-tuning llama on h200, plain PyTorch; GPU 0.\n");
    assert_int_equal(run_command("replay x.rvt"), 0);
    check_printed("\n  load  ");
    check_printed("\n  train  ");
    remove_file("x.rvt");
}

static void takes_every_option(void **state)
{
    (void)state;
    assert_int_equal(
        run_command(
            "model --output x.rvt --device 80GiB --tp 2 --pp 2 --pp-rank 1 --ep 2 "
            "--mem-fraction 0.875 --weights-dtype fp8 --kv-dtype fp8 --train fsdp:16 --reshard "
            "--micro-batch 2 --seq-len 1024 --accumulate 2 --recompute --attention flash "
            "--loss chunked:4 --optimizer adamw --reduce-fp32 --fused --strategy v3 "
            "--wake together --given cuda_graph=2GiB --given buffers=0 --name Mine "
            "--note 'a note' " CONFIGS "qwen3-30b-a3b.json"),
        0);
    check_printed("cuda_graph         2.0 GiB");
    assert_null(strstr(answer.out, "buffers"));
    assert_int_equal(run_command("--version; head -n 60 x.rvt"), 0);
    check_printed("\n# One full step of Mine on 80GiB, FSDP over 16 GPUs and an engine of tensor "
                  "parallel 2; GPU 0.\n# Strategy v2: the engine sleeps");
    check_printed("\n# a note\n");
    check_printed("\n#   cuda_graph          2147483648  given\n");
    check_printed("\ndevice 0 profile=- capacity_bytes=85899345920 granularity_bytes=2097152\n");
    assert_int_equal(run_command("replay x.rvt"), 0);
    remove_file("x.rvt");
}

static void trains_by_megatron(void **state)
{
    (void)state;
    assert_int_equal(
        run_command("model -o x.rvt --train megatron:32 --train-tp 2 --train-pp 4 --train-stage 3 "
                    "--train-cp 2 --train-ep 4 --sequence-parallel --recompute-attention "
                    "--bf16-gradients --nccl --accumulate 8 --seq-len 2048 " CONFIGS
                    "qwen3-30b-a3b.json"),
        0);
    check_printed("training_weights");
    check_printed("master_weights");
    check_printed("3.7 GiB   4020240384"); /* trainer_nccl */
    assert_null(strstr(answer.out, "optimizer_temporaries"));
    assert_int_equal(run_command("--version; head -n 60 x.rvt"), 0);
    check_printed(
        "# One full step of qwen3_moe on h200, Megatron over 32 GPUs (tensor parallel 2, "
        "pipeline 4,\n# context 2, expert 4; stage 3) and an engine of tensor parallel 1");
    assert_int_equal(run_command("replay x.rvt"), 0);
    remove_file("x.rvt");
}

/* Without a trace the answer is that of a replay of the trace. */
static void answers_without_a_trace(void **state)
{
    (void)state;
    static char table[ANSWER_BYTES];
    assert_int_equal(run_command("model -o x.rvt " CONFIGS "llama-3.2-1b.json"), 0);
    assert_int_equal(run_command("replay x.rvt"), 0);
    memcpy(table, answer.out, sizeof table);
    remove_file("x.rvt");
    assert_int_equal(run_command("model " CONFIGS "llama-3.2-1b.json"), 0);
    assert_int_equal(strncmp(answer.out, "llama, 1235814400 parameters; ", 30), 0);
    check_printed("\n  kv_cache         123.1 GiB  132137353216           32\n");
    assert_string_equal(strstr(answer.out, "device 0: "), table);
    assert_int_equal(run_command("model --headroom 8% " CONFIGS "llama-3.2-1b.json"), 0);
    check_printed("\ntight: 10.1 GiB to spare on device 0, less than the headroom of 11.2 GiB\n");
    assert_int_equal(run_command("model --device 100GiB --train fsdp:8 --strategy v0 " CONFIGS
                                 "llama-3.2-1b.json"),
                     3);
    check_printed("\nout of memory: trainer/cached asked for 64.0 MiB of device 0 with ");
}

static void helps(void **state)
{
    (void)state;
    assert_int_equal(run_command("model --help"), 0);
    check_printed("usage: reveille model [OPTION]... CONFIG.json [-o TRACE]\n");
    assert_int_equal(run_command("help model"), 0);
    check_printed("--optimizer NAME     what the trainer steps with: adamw");
    assert_int_equal(run_command("--help"), 0);
    check_printed("  model       predict the memory peaks of a step from a model's config.json\n");
}

static void bad_usage_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *message;
    } cases[] = {
        {"", "model: name one config.json"},
        {"a b -o x.rvt", "model: name one config.json"},
        {"--headroom 2% a -o x.rvt", "--headroom: only without -o"},
        {"a -o", "option -o needs a value"},
        {"a --tp", "option --tp needs a value"},
        {"a --what", "unknown option --what"},
        {"a --tp 0", "--tp 0: expected a whole number from 1 to 4096"},
        {"a --tp x", "--tp x: expected a whole number"},
        {"a --tp 2x", "--tp 2x: expected a whole number"},
        {"a --pp 99999999999999999999", "expected a whole number"},
        {"a --ep -1", "--ep -1: expected a whole number"},
        {"a --pp-rank -1", "--pp-rank -1: expected a whole number from 0"},
        {"a --micro-batch 0", "--micro-batch 0: expected"},
        {"a --seq-len 0", "--seq-len 0: expected"},
        {"a --mem-fraction 0", "--mem-fraction 0: expected more than 0 and at most 1"},
        {"a --mem-fraction 1.1", "--mem-fraction 1.1: expected"},
        {"a --mem-fraction 2", "--mem-fraction 2: expected"},
        {"a --mem-fraction 0.", "--mem-fraction 0.: expected"},
        {"a --mem-fraction .9", "--mem-fraction .9: expected"},
        {"a --mem-fraction ''", "--mem-fraction : expected"},
        {"a --mem-fraction 0.1234567", "at most six decimals"},
        {"a --weights-dtype fp16", "--weights-dtype fp16: expected bf16, fp8, int4 or int8"},
        {"a --weights-dtype ''", "expected bf16, fp8, int4 or int8"},
        {"a --kv-dtype int4", "--kv-dtype int4: expected bf16 or fp8"},
        {"a --train fsdp", "--train fsdp: expected fsdp:N, ddp, plain, megatron:N or none"},
        {"a --train fsdp:0", "--train fsdp:0: expected fsdp:N, ddp, plain, megatron:N or none"},
        {"a --train megatron", "--train megatron: expected fsdp:N, ddp, plain, megatron:N or"},
        {"a --train megatron:0", "--train megatron:0: expected fsdp:N, ddp, plain, megatron:N or"},
        {"a --update-bucket 0", "--update-bucket 0: expected a size such as 512MiB, or whole"},
        {"a --update-bucket all", "--update-bucket all: expected a size such as 512MiB, or whole"},
        {"a --serve --train ddp", "--train changes nothing with --serve, which has no trainer"},
        {"a --serve --micro-batch 2", "--micro-batch changes nothing with --train none"},
        {"a --serve --strategy v2", "--strategy changes nothing where engine and trainer do not"},
        {"a --fine-tune --tp 2", "--tp is a setting of the engine, which --fine-tune has none of"},
        {"a --fine-tune --update-bucket 1GiB", "--update-bucket changes nothing where engine and"},
        {"a --train ddp --strategy v1 --update-bucket 1GiB",
         "--update-bucket changes nothing with this --strategy: v2 and v3"},
        {"a --train-tp 0", "--train-tp 0: expected a whole number from 1"},
        {"a --train-stage x", "--train-stage x: expected a whole number from 0"},
        {"a --optimizer adam", "--optimizer adam: expected adamw, adamw-bf16"},
        {"a --strategy v4", "--strategy v4: expected v0, v1, v2 or v3"},
        {"a --wake up", "--wake up: expected staged or together"},
        {"a --given x", "--given x: expected TERM=SIZE"},
        {"a --given x=3", "--given x: no such term"},
        {"a --given weights=lots", "--given weights=lots: expected a size such as 2.5GiB, or 0"},
        {"a --note 'x\ny'", "expected one line"},
        {"a --weights-dtype", "option --weights-dtype needs a value: bf16, fp8, int4 or int8"},
        {"a -o x.rvt --tq 2", "unknown option --tq: did you mean --tp?"},
        {"a -o x.json", "-o x.json: this writes .rvt, and the name says .json: end it in .rvt"},
        {"a -o x.rvt.gz", "the name says .gz"},
        {"a -o x.rvt --micro-batch 2", "--micro-batch changes nothing with --train none: leave"},
        {"a -o x.rvt --recompute", "--recompute changes nothing with --train none"},
        {"a -o x.rvt --reshard", "--reshard changes nothing with --train none"},
        {"a -o x.rvt --train ddp --mixed-precision", "--mixed-precision is a policy of FSDP"},
        {"a -o x.rvt --train ddp --train-tp 2",
         "--train-tp is a setting of Megatron: leave it out"},
        {"a -o x.rvt --train fsdp:2 --train-pp 2", "--train-pp is a setting of Megatron"},
        {"a -o x.rvt --train fsdp:2 --train-stage 1", "--train-stage is a setting of Megatron"},
        {"a -o x.rvt --train ddp --train-cp 2", "--train-cp is a setting of Megatron and FSDP"},
        {"a -o x.rvt --train fsdp:2 --train-cp 2 --given activations=1GiB",
         "--train-cp changes nothing where --given says"},
        {"a -o x.rvt --train-ep 2", "--train-ep is a setting of Megatron"},
        {"a -o x.rvt --sequence-parallel", "--sequence-parallel is a setting of Megatron"},
        {"a -o x.rvt --train ddp --recompute-attention",
         "--recompute-attention is a setting of Megatron"},
        {"a -o x.rvt --train ddp --bf16-gradients", "--bf16-gradients is a setting of Megatron"},
        {"a -o x.rvt --train ddp --transformer-impl local",
         "--transformer-impl is a setting of Megatron"},
        {"a -o x.rvt --train fsdp:2 --moe-grouped-gemm",
         "--moe-grouped-gemm is a setting of Megatron"},
        {"a -o x.rvt --moe-use-legacy-grouped-gemm",
         "--moe-use-legacy-grouped-gemm is a setting of Megatron"},
        {"a -o x.rvt --train fsdp:2 --optimizer-offload 0.5",
         "--optimizer-offload is a setting of Megatron: leave it out, or say --train megatron:N"},
        {"a -o x.rvt --optimizer-offload 0", "--optimizer-offload 0: expected more than 0 and at"},
        {"a -o x.rvt --optimizer-offload 1.5", "--optimizer-offload 1.5: expected more than 0"},
        {"a -o x.rvt --transformer-impl apex",
         "--transformer-impl apex: expected transformer_engine or local"},
        {"a -o x.rvt --train megatron:2 --fused",
         "--fused changes nothing with TransformerEngine's layers: its Adam is fused. Leave it"},
        {"a -o x.rvt --train megatron:2 --transformer-impl local --optimizer-offload 1 --fused",
         "--fused changes nothing with --optimizer-offload: its optimizers are fused. Leave"},
        {"a -o x.rvt --train megatron:2 --transformer-impl local --moe-grouped-gemm "
         "--moe-use-legacy-grouped-gemm",
         "changes nothing with --transformer-impl local, which has no other: leave it out"},
        {"a -o x.rvt --train megatron:2 --reshard",
         "--reshard changes nothing with --train megatr"},
        {"a -o x.rvt --train megatron:2 --mixed-precision",
         "--mixed-precision is a policy of FSDP"},
        {"a -o x.rvt --train ddp --reduce-fp32", "--reduce-fp32 is a policy of FSDP"},
        {"a -o x.rvt --train fsdp:2 --mixed-precision --reduce-fp32",
         "--reduce-fp32 changes nothing with --mixed-precision"},
        {"a -o x.rvt --reduce-fp32", "--reduce-fp32 changes nothing with --train none"},
        {"a -o x.rvt --attention math", "--attention changes nothing with --train none"},
        {"a -o x.rvt --loss fused", "--loss changes nothing with --train none"},
        {"a -o x.rvt --train ddp --loss fused --given cached=0",
         "--loss changes nothing where --given says the size of one of the trainer's terms"},
        {"a -o x.rvt --train ddp --accumulate 2 --given sharded_weights=0",
         "--accumulate changes nothing where --given"},
        {"a -o x.rvt --train ddp --attention flash --given logits=1GiB",
         "--attention changes nothing where --given"},
        {"a -o x.rvt --train megatron:2 --loss fused", "--loss changes nothing with --train megat"},
        {"a -o x.rvt --train megatron:2 --lora 8", "--lora changes nothing with --train megat"},
        {"a --lora 0", "--lora 0: expected a whole number from 1 to 65536"},
        {"a -o x.rvt --lora 8", "--lora changes nothing with --train none"},
        {"a -o x.rvt --train ddp --lora-targets all-linear",
         "--lora-targets changes nothing without --lora: say --lora RANK"},
        {"a -o x.rvt --base-dtype nf4", "--base-dtype changes nothing with --train none"},
        {"a -o x.rvt --train ddp --base-dtype nf4",
         "--base-dtype changes nothing without --lora, for weights of 4 bits are not trained"},
        {"a -o x.rvt --train megatron:2 --lora 8 --base-dtype nf4",
         "--lora changes nothing with --train megatr"},
        {"a --adapter-dtype fp16", "--adapter-dtype fp16: expected fp32 or bf16"},
        {"a -o x.rvt --adapter-dtype bf16", "--adapter-dtype changes nothing with --train none"},
        {"a -o x.rvt --train ddp --adapter-dtype bf16", "--adapter-dtype goes with adapters"},
        {"a -o x.rvt --train ddp --prepare-kbit", "--prepare-kbit goes with adapters: say --lora"},
        {"a -o x.rvt --train ddp --autocast", "--autocast goes with adapters: say --lora RANK"},
        {"a -o x.rvt --train ddp --lora 8 --base-dtype nf4 --autocast --given cached=0",
         "--autocast changes nothing where --given"},
        {"a --base-dtype int4", "--base-dtype int4: expected bf16, nf4 or nf4-single"},
        {"a -o x.rvt --cpu-offload", "--cpu-offload changes nothing with --train none"},
        {"a -o x.rvt --train ddp --cpu-offload", "--cpu-offload is a policy of FSDP: leave it out"},
        {"a -o x.rvt --train fsdp:2 --bucket-freed",
         "--bucket-freed is of DDP's buckets: leave it out"},
        {"a -o x.rvt --bucket-freed", "--bucket-freed changes nothing with --train none"},
        {"a -o x.rvt --train fsdp:2 --cpu-offload --fused",
         "--fused changes nothing with --cpu-offload, where the optimizer runs on the host"},
        {"a -o x.rvt --recompute --offload-activations", "changes nothing with --train none"},
        {"a -o x.rvt --train ddp --offload-activations",
         "--offload-activations is predicted for layers that are computed again: say --recompute"},
        {"a -o x.rvt --train megatron:2 --recompute --offload-activations",
         "--offload-activations changes nothing with --train megatron"},
        {"a -o x.rvt --train ddp --recompute --offload-activations --given cached=0",
         "--offload-activations changes nothing where --given"},
        {"a --lora-targets q", "--lora-targets q: expected peft or all-linear"},
        {"a --attention eager", "--attention eager: expected cudnn, flash, efficient or math"},
        {"a --loss chunked:0", "--loss chunked:0: expected plain, chunked, chunked:N with N from"},
        {"a --loss chunks", "--loss chunks: expected plain, chunked, chunked:N with N from 1 to"},
        {"a -o x.rvt --fused", "--fused changes nothing with --train none"},
        {"a -o x.rvt --accumulate 2", "--accumulate changes nothing with --train none"},
        {"a --accumulate 0", "--accumulate 0: expected a whole number from 1"},
        {"a -o x.rvt --train ddp --optimizer sgd --fused",
         "--fused changes nothing with this --optimizer: only adamw and adamw-bf16"},
        {"a -o x.rvt --optimizer sgd", "--optimizer changes nothing with --train none"},
        {"a -o x.rvt --train ddp --reshard", "--reshard changes nothing with --train ddp"},
        {"a -o x.rvt --strategy v2 --wake together", "--wake changes nothing with this --strategy"},
        {"a -o x.rvt --mem-fraction 0.8 --given kv_cache=1GiB",
         "--mem-fraction changes nothing where --given says the size of kv_cache"},
        {"a --name 'x\ny'", "expected one line"},
    };
    char words[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(words, sizeof words, "model %s", cases[i].words);
        assert_int_equal(run_command(words), 2);
        check_printed(cases[i].message);
        check_printed("\nTry `reveille model --help`.\n");
        assert_false(folder_has("x.rvt"));
    }
}

static void bad_input_names_file_key_and_remedy(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *message;
    } cases[] = {
        {"none.json -o x.rvt",
         "reveille: none.json: the config cannot be opened: No such file or directory\n"},
        {CONFIGS "qwen2.5-7b.json --tp 3 -o x.rvt",
         "qwen2.5-7b.json: num_attention_heads: 28 does not divide by tp = 3: choose another tp\n"},
        {CONFIGS "qwen2.5-7b.json --mem-fraction 0.1 -o x.rvt",
         "qwen2.5-7b.json: --mem-fraction: no room for a KV cache"},
        {CONFIGS "qwen2.5-7b.json --device h900 -o x.rvt",
         "--device h900: neither a size nor a profile"},
        {"/dev/stdin -o x.rvt <<END\n{\n]\nEND\n", "reveille: /dev/stdin:2: not a JSON object"},
        {"/dev/stdin -o x.rvt <<END\n{\"model_type\":\"llama\"}\nEND\n",
         "reveille: /dev/stdin: num_hidden_layers: missing: take the config.json"},
    };
    char words[512];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* The here-document stands first in its line, so that stderr is still redirected. */
        snprintf(words, sizeof words, "model 2>&1 %s", cases[i].words);
        run_command(words);
        check_printed(cases[i].message);
        assert_false(folder_has("x.rvt"));
    }
    assert_int_equal(run_command("model none.json -o x.rvt"), 2);
    assert_int_equal(run_command("model " CONFIGS "qwen2.5-7b.json --tp 3 -o x.rvt"), 2);
}

/* Bad input is 2; a disk that is full is not the input's fault. */
static void a_write_that_fails_is_status_1(void **state)
{
    (void)state;
    static const char *const words[] = {
        "model " CONFIGS "qwen2.5-7b.json -o /dev/full",
        "report " SOURCE_WORD "/traces/qwen2.5-7b-fsdp8-v3.rvt --chrome /dev/full",
    };
    static const char *const messages[] = {
        ("reveille: /dev/full: no space for the trace: free some, or name a file on another disk: "
         "ENOSPC\n"),
        "reveille: /dev/full: No space left on device: free some, or name a file on another disk\n",
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        assert_int_equal(run_command(words[i]), 1);
        check_printed(messages[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_its_terms_and_writes_a_trace),
        cmocka_unit_test(updates_in_buckets),
        cmocka_unit_test(serves_and_fine_tunes),
        cmocka_unit_test(takes_every_option),
        cmocka_unit_test(trains_by_megatron),
        cmocka_unit_test(answers_without_a_trace),
        cmocka_unit_test(helps),
        cmocka_unit_test(bad_usage_is_named),
        cmocka_unit_test(bad_input_names_file_key_and_remedy),
        cmocka_unit_test(a_write_that_fails_is_status_1),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove_empty);
}
