/* SPDX-License-Identifier: MIT */
/*
 * A training step as a program, against PyTorch's own figures.
 *
 * Programs of FSDP2 that ran on two H200s (tests/simcuda/truth, and tests/simcuda/programs/train.py
 * makes them), and smaller ones that ran on simulated ones: the most that was allocated and
 * reserved in their last step. Then what a step says of it: its stage, its terms, and how it ends
 * without memory.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/llm/step/training.h"
#include "tests/predict/model_configs.h"
#include "tests/predict/step_memory.h"

#define GIB (UINT64_C(1) << 30)

/* ---- Against a card ---- */

typedef struct program {
    const char *config;
    rvli_training_shape shape;
    uint64_t allocated; /* the most in the last step, as PyTorch read it */
    uint64_t reserved;
} program;

#define FSDP .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 2, .optimizer = RVL_MODEL_ADAMW_BF16

static const program programs[] = {
    {"llama-3.2-1b", {FSDP, .micro_batch = 2, .seq_len = 2048}, 19741421568, 22500343808},
    {"qwen2.5-0.5b", {FSDP, .micro_batch = 4, .seq_len = 2048}, 28821134336, 36515610624},
    {"qwen3-0.6b", {FSDP, .micro_batch = 4, .seq_len = 4096}, 66033003520, 71099744256},
    {"qwen2.5-7b",
     {FSDP, .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_RESHARD, .micro_batch = 2, .seq_len = 4096},
     42400072192,
     55979278336},
};

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Small tensors of a few KiB are left out: 0.01 % of what is allocated. A block that was not split
 * counts as a whole: up to 1 MiB. */
static void assert_as_read(const rvl_model *model, const program *p)
{
    rvli_trained trained;
    assert_int_equal(rvli_training_run(model, &p->shape, NULL, &trained), RVL_OK);
    uint64_t allocated = trained.passes.allocated_bytes;
    bool near = apart(allocated, p->allocated) <= p->allocated / 10000 + RVLI_MIB;
    if (trained.reserved_bytes != p->reserved || !near)
        print_error("%s: allocated %llu, reserved %llu; read %llu, %llu\n", p->config,
                    (unsigned long long)allocated, (unsigned long long)trained.reserved_bytes,
                    (unsigned long long)p->allocated, (unsigned long long)p->reserved);
    assert_true(near);
    assert_int_equal(trained.reserved_bytes, p->reserved);
}

static void programs_have_what_a_card_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        rvl_model *model = open_model(programs[i].config);
        assert_as_read(model, &programs[i]);
        rvl_model_close(model);
    }
}

/* ---- Against simulated GPUs: the first layers of a model, for settings that no card has run ----
 */

#define LLAMA3 FSDP, .micro_batch = 2, .seq_len = 1024 /* llama-3.2-1b, three layers */
#define LORA                                                                                       \
    .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 2, .optimizer = RVL_MODEL_ADAMW,                 \
    .micro_batch = 2, .seq_len = 1024, .lora_rank = 16
#define QLORA(base)                                                                                \
    .train = RVL_MODEL_TRAIN_DDP, .train_ranks = 1, .micro_batch = 2, .seq_len = 1024,             \
    .lora_rank = 16, .base_dtype = (base)
#define PAGED                                                                                      \
    .train = RVL_MODEL_TRAIN_DDP, .train_ranks = 1, .micro_batch = 2, .seq_len = 1024,             \
    .lora_rank = 64, .lora_targets = RVL_MODEL_LORA_ALL_LINEAR, .base_dtype = RVL_MODEL_BASE_NF4,  \
    .attention = RVL_MODEL_ATTENTION_CUDNN
#define PAGED_WHOLE                                                                                \
    .train = RVL_MODEL_TRAIN_DDP, .train_ranks = 1, .micro_batch = 2, .seq_len = 1024,             \
    .optimizer = RVL_MODEL_PAGED_ADAMW_32BIT, .attention = RVL_MODEL_ATTENTION_CUDNN
#define QLORA_FSDP LORA, .base_dtype = RVL_MODEL_BASE_NF4
#define DDP                                                                                        \
    .train = RVL_MODEL_TRAIN_DDP, .train_ranks = 1, .optimizer = RVL_MODEL_ADAMW_BF16,             \
    .micro_batch = 1, .seq_len = 2048
#define LLAMA2 FSDP, .micro_batch = 2, .seq_len = 1000 /* llama-2-7b, two layers */

static const struct {
    uint32_t layers;
    program program;
} settings[] = {
    {3, {"llama-3.2-1b", {LLAMA3, .attention = RVL_MODEL_ATTENTION_FLASH}, 6147427328, 7983857664}},
    {3, {"llama-3.2-1b", {LLAMA3, .attention = RVL_MODEL_ATTENTION_MATH}, 7065190400, 9070182400}},
    {2, {"llama-2-7b", {LLAMA2, .attention = RVL_MODEL_ATTENTION_MATH}, 5884618752, 8229224448}},
    {2,
     {"llama-2-7b", {LLAMA2, .attention = RVL_MODEL_ATTENTION_EFFICIENT}, 5272537088, 7860125696}},
    {3,
     {"llama-3.2-1b",
      {LLAMA3, .loss = RVL_MODEL_LOSS_CHUNKED, .loss_chunks = 8},
      5370452480,
      6750732288}},
    {3, {"llama-3.2-1b", {LLAMA3, .loss = RVL_MODEL_LOSS_FUSED}, 3669676032, 5144313856}},
    {3, {"llama-3.2-1b", {LLAMA3, .flags = RVL_MODEL_REDUCE_FP32}, 6147427328, 8636071936}},
    {3, {"llama-3.2-1b", {LORA}, 5126913024, 6358564864}},
    {3,
     {"llama-3.2-1b", {LORA, .lora_targets = RVL_MODEL_LORA_ALL_LINEAR}, 5549472768, 6880755712}},
    {3, {"llama-3.2-1b", {LORA, .flags = RVL_MODEL_RECOMPUTE}, 4601016320, 5909774336}},
    {3, {"llama-3.2-1b", {QLORA(RVL_MODEL_BASE_NF4)}, 4412957696, 5033164800}},
    {3,
     {"llama-3.2-1b",
      {QLORA(RVL_MODEL_BASE_NF4_SINGLE), .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
      4854754816,
      5488246784}},
    {3,
     {"qwen2.5-0.5b",
      {QLORA(RVL_MODEL_BASE_NF4), .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_BUCKET_FREED,
       .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
      4137997312,
      4926210048}},
    {3,
     {"llama-3.1-8b",
      {QLORA(RVL_MODEL_BASE_NF4), .optimizer = RVL_MODEL_ADAMW_8BIT},
      6723726336,
      7568621568}},
    {3, {"llama-3.2-1b", {PAGED, .optimizer = RVL_MODEL_PAGED_ADAMW_8BIT}, 4889015296, 5502926848}},
    {3,
     {"llama-3.2-1b", {PAGED, .optimizer = RVL_MODEL_PAGED_ADAMW_32BIT}, 4889928704, 5505024000}},
    {3, {"llama-3.2-1b", {PAGED_WHOLE, .flags = RVL_MODEL_BUCKET_FREED}, 5702407168, 7314866176}},
    {3, {"llama-3.2-1b", {QLORA_FSDP}, 4719336448, 5916065792}},
    {3,
     {"llama-3.2-1b",
      {QLORA_FSDP, .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_RESHARD,
       .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
      4145229824,
      5460983808}},
    {3,
     {"llama-3.2-1b",
      {QLORA(RVL_MODEL_BASE_NF4), .optimizer = RVL_MODEL_ADAMW_BF16,
       .flags = RVL_MODEL_BF16_ADAPTERS | RVL_MODEL_BUCKET_FREED},
      4334511104,
      4947181568}},
    {3,
     {"llama-3.2-1b",
      {QLORA(RVL_MODEL_BASE_NF4), .optimizer = RVL_MODEL_ADAMW_BF16,
       .flags = RVL_MODEL_BF16_ADAPTERS | RVL_MODEL_RECOMPUTE,
       .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
      3898824704,
      4594860032}},
    {3,
     {"llama-3.2-1b",
      {QLORA(RVL_MODEL_BASE_NF4), .flags = RVL_MODEL_AUTOCAST},
      4338525184,
      4970250240}},
    {3,
     {"llama-3.2-1b",
      {QLORA(RVL_MODEL_BASE_NF4), .flags = RVL_MODEL_AUTOCAST | RVL_MODEL_PREPARE_KBIT},
      5717693440,
      6434062336}},
    {3,
     {"llama-3.2-1b",
      {QLORA(RVL_MODEL_BASE_NF4),
       .flags = RVL_MODEL_AUTOCAST | RVL_MODEL_PREPARE_KBIT | RVL_MODEL_RECOMPUTE,
       .lora_targets = RVL_MODEL_LORA_ALL_LINEAR},
      4991895552,
      5966397440}},
    {16, {"phi-4-mini", {DDP}, 27609073664, 33929822208}},
    {16, {"phi-4-mini", {DDP, .flags = RVL_MODEL_BUCKET_FREED}, 27606976512, 29829890048}},
    {3, {"llama-3.2-1b", {LLAMA3, .flags = RVL_MODEL_CPU_OFFLOAD}, 4810974208, 7541358592}},
    {3,
     {"llama-3.2-1b",
      {LLAMA3, .flags = RVL_MODEL_CPU_OFFLOAD | RVL_MODEL_RECOMPUTE | RVL_MODEL_RESHARD},
      3926177792,
      5660213248}},
    {12,
     {"llama-3.2-1b",
      {LLAMA3, .flags = RVL_MODEL_OFFLOAD | RVL_MODEL_RECOMPUTE},
      8209346560,
      10764681216}},
    {15,
     {"nemotron-nano-9b-v2",
      {FSDP, .flags = RVL_MODEL_RESHARD, .micro_batch = 1, .seq_len = 2048},
      65464388096,
      82036391936}},
    {15,
     {"nemotron-nano-9b-v2",
      {FSDP, .flags = RVL_MODEL_RECOMPUTE, .micro_batch = 1, .seq_len = 3000},
      71891620352,
      117260156928}},
    {10,
     {"granite-4.0-h-micro",
      {FSDP, .flags = RVL_MODEL_RESHARD | RVL_MODEL_RECOMPUTE, .micro_batch = 2, .seq_len = 1000},
      40206941696,
      55530487808}},
    /* Two sequences of 15 chunks and a part. */
    {4, {"qwen3_5", {FSDP, .micro_batch = 2, .seq_len = 1000}, 24454525440, 39401291776}},
};

static void settings_have_what_a_simulated_gpu_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        rvl_model *model = open_model(settings[i].program.config);
        model->layers = settings[i].layers;
        assert_as_read(model, &settings[i].program);
        rvl_model_close(model);
    }
}

/* ---- The program itself ---- */

typedef struct ledger {
    uint64_t events;
    int64_t bytes[RVL_MODEL_TERM_COUNT];
    int64_t streams[RVLI_STREAM_COUNT];
} ledger;

static void note(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder)
{
    ledger *l = user;
    l->events++;
    l->bytes[holder] += bytes;
    l->streams[stream] += bytes;
    assert_true(l->bytes[holder] >= 0);
    assert_true(l->streams[stream] >= 0);
}

typedef struct learned {
    uint64_t ranks;
    int64_t bytes;
} learned;

/* Gemma 3n's projections of streams are three matrices in the module. */
static void add_learned(void *user, const rvli_tensor *tensor)
{
    learned *l = user;
    uint64_t parts = strncmp(tensor->pattern, "model.altup_", 12) == 0 ? 3 : 1;
    rvli_tensor part = *tensor;
    part.rows /= parts;
    if (strstr(tensor->pattern, ".indexer.") == NULL &&
        strstr(tensor->pattern, "e_score_correction_bias") == NULL &&
        strstr(tensor->pattern, "layer_scalar") == NULL)
        l->bytes += (int64_t)(2 * parts * rvli_tensor_share(&part, l->ranks));
}

/* Of a rank's part of parameters that get a gradient: all but an indexer's, a bias of
 * the choice of experts, and Gemma 4's number of a layer. */
static int64_t learned_bytes(const rvl_model *model, const rvli_training_shape *shape)
{
    learned l = {.ranks = shape->train == RVL_MODEL_TRAIN_FSDP ? shape->train_ranks : 1};
    rvli_model_walk_trained(model, add_learned, &l);
    return l.bytes;
}

static void assert_nothing_left(const rvl_model *model, const rvli_training_shape *shape)
{
    ledger l = {0};
    rvli_trained trained;
    assert_int_equal(
        rvli_training_run(model, shape, &(rvli_tape_listener){.told = note, .user = &l}, &trained),
        RVL_OK);
    assert_true(l.events > 1000);
    assert_int_equal(l.bytes[RVL_MODEL_ACTIVATIONS], 8 * 64); /* the tokens */
    assert_int_equal(l.bytes[RVL_MODEL_LOGITS], 0);
    assert_int_equal(l.bytes[RVL_MODEL_GRADIENTS], 0);
    assert_int_equal(l.bytes[RVL_MODEL_ALL_GATHER], 0);
    assert_int_equal(l.bytes[RVL_MODEL_OPTIMIZER_TEMPORARIES], 0);
    assert_int_equal(l.streams[RVLI_STREAM_GATHER], 0);
    assert_int_equal(l.streams[RVLI_STREAM_REDUCE], 0);
    assert_int_equal(l.bytes[RVL_MODEL_OPTIMIZER], 4 * learned_bytes(model, shape));
    assert_int_equal(l.bytes[RVL_MODEL_MASTER_WEIGHTS], 2 * learned_bytes(model, shape));
}

/* Each attention and each loss once; chunks that do not divide the tokens, and more than these. */
static const struct {
    rvl_model_attention attention;
    rvl_model_loss loss;
    uint32_t chunks;
    uint64_t flags;
} kinds[] = {{RVL_MODEL_ATTENTION_CUDNN, RVL_MODEL_LOSS_PLAIN, 0, 0},
             {RVL_MODEL_ATTENTION_FLASH, RVL_MODEL_LOSS_CHUNKED, 7, RVL_MODEL_REDUCE_FP32},
             {RVL_MODEL_ATTENTION_EFFICIENT, RVL_MODEL_LOSS_FUSED, 0, 0},
             {RVL_MODEL_ATTENTION_MATH, RVL_MODEL_LOSS_CHUNKED, 1000, 0}};

#define LAYERS 6  /* each kind of layer is among the first */
#define WINDOW 48 /* ends before the sequence */

/* Of a rank that has a part of each sequence, too. */
static void a_ring_leaves_nothing(void **state)
{
    (void)state;
    static const rvl_model_attention ways[] = {RVL_MODEL_ATTENTION_CUDNN,
                                               RVL_MODEL_ATTENTION_FLASH};
    rvl_model *model = open_model("qwen3-0.6b");
    model->layers = 3;
    for (uint64_t flags = 0; flags < 4; flags++) {
        for (uint32_t i = 0; i < 4; i++) {
            const rvli_training_shape shape = {.train = RVL_MODEL_TRAIN_FSDP,
                                               .train_ranks = 4,
                                               .flags = flags,
                                               .micro_batch = 1 + i % 2,
                                               .seq_len = 64 / (1 + i % 2),
                                               .cp = 2 + i / 2,
                                               .optimizer = RVL_MODEL_ADAMW,
                                               .attention = ways[i / 2]};
            assert_nothing_left(model, &shape);
        }
    }
    rvl_model_close(model);
}

/* CWM's first layer sees all tokens, as does each fourth behind it. */
static void windows_may_begin_behind_the_first_layer(void **state)
{
    (void)state;
    rvl_model *model = open_model("cwm");
    assert_int_equal(model->window, 8192);
    for (uint32_t layer = 0; layer < model->layers; layer++)
        assert_int_equal(rvli_layer_is(model, layer, RVLI_LAYER_WINDOW), layer % 4 != 0);
    rvl_model_close(model);
}

/* Of every family, with every setting: what is left is what lives from step to step. */
static void nothing_is_left_but_states(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-3.1-8b",
                                        "gemma-3-1b",
                                        "qwen3-30b-a3b",
                                        "deepseek-v3",
                                        "qwen1.5-moe-a2.7b",
                                        "deepseek-v3.2-exp",
                                        "phi-4-mini",
                                        "olmo-2-7b",
                                        "glm-4-9b-0414",
                                        "exaone-4.0-32b",
                                        "gpt-oss-20b",
                                        "llama4-text",
                                        "minimax-m2",
                                        "gemma-2-2b",
                                        "nemotron-3-nano-30b-a3b",
                                        "nemotron-nano-9b-v2",
                                        "granite-4.0-h-tiny",
                                        "granitemoeshared",
                                        "qwen3-next-80b-a3b",
                                        "qwen3_5",
                                        "glm-moe-dsa",
                                        "glm-4.5-air",
                                        "hunyuan-a13b",
                                        "ernie-4.5-21b-a3b",
                                        "gemma-3n-e4b-text",
                                        "mistral4",
                                        "afm-4.5b",
                                        "vaultgemma-1b",
                                        "k-exaone-236b-a23b",
                                        "flex-olmo-7x7b",
                                        "lfm2-1.2b",
                                        "lfm2-8b-a1b",
                                        "apertus-8b",
                                        "gemma-4-e2b-text",
                                        "gemma-4-12b-text",
                                        "command-r7b",
                                        "nanochat-d32",
                                        "falcon-h1-1.5b",
                                        "phi-3.5-moe",
                                        "phi-mini-moe",
                                        "starcoder2-3b",
                                        "starcoder2-7b",
                                        "command-r-plus",
                                        "gemma-4-26b-a4b-text",
                                        "bamba-9b",
                                        "youtu-llm-2b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        rvl_model *model = open_model(names[i]);
        model->layers = model->layers < LAYERS ? model->layers : LAYERS;
        model->window = model->window < WINDOW ? model->window : WINDOW;
        for (uint64_t flags = 0; flags < 4; flags++) {
            for (int train = RVL_MODEL_TRAIN_FSDP; train <= RVL_MODEL_TRAIN_DDP; train++) {
                for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
                    const rvli_training_shape shape = {.train = (rvl_model_train)train,
                                                       .train_ranks = 3,
                                                       .flags = flags | kinds[kind].flags,
                                                       .micro_batch = 1,
                                                       .seq_len = 64,
                                                       .accumulate = 1 + (uint32_t)kind % 2,
                                                       .optimizer = RVL_MODEL_ADAMW,
                                                       .attention = kinds[kind].attention,
                                                       .loss = kinds[kind].loss,
                                                       .loss_chunks = kinds[kind].chunks};
                    assert_nothing_left(model, &shape);
                }
            }
        }
        rvl_model_close(model);
    }
}

#define ROTARY                                                                                     \
    "{\"model_type\":\"glm4\",\"hidden_size\":512,\"num_hidden_layers\":2,\"num_attention_"        \
    "heads\":8,"                                                                                   \
    "\"num_key_value_heads\":2,\"intermediate_size\":1024,\"vocab_size\":1000,\"tie_word_"         \
    "embeddings\":"                                                                                \
    "false,\"head_dim\":64"

/* Wherever a config says it; half of it, where one of GLM does not. */
static void the_rotated_part_of_a_head_is_read(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint64_t rotary;
    } cases[] = {{"", 32},
                 {",\"partial_rotary_factor\":0.5", 32},
                 {",\"rope_parameters\":{\"partial_rotary_factor\":0.75}", 48},
                 {",\"rope_scaling\":{\"partial_rotary_factor\":1}", 64},
                 {",\"rotary_dim\":16", 16}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        rvl_model *model = NULL;
        int length = snprintf(text, sizeof text, ROTARY "%s}", cases[i].key);
        assert_int_equal(rvl_model_parse(text, (size_t)length, &model), RVL_OK);
        assert_int_equal(model->dim[RVLI_DIM_ROTARY], cases[i].rotary);
        rvl_model_close(model);
    }
}

/* A quarter of a head, where a config of Qwen3.5 does not say it. */
static void some_families_rotate_a_quarter_of_a_head(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen3_5");
    assert_int_equal(model->dim[RVLI_DIM_HEAD], 256);
    assert_int_equal(model->dim[RVLI_DIM_ROTARY], 64);
    rvl_model_close(model);
}

/* Of a sequence in Qwen3.5: 32 heads of 128 x 128 in fp32. No other tensor is as large. */
#define STATE_BYTES (4 * 32 * 128 * 128)

typedef struct states {
    int live, most; /* at once */
} states;

static void count_states(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder)
{
    states *s = user;
    (void)stream;
    (void)holder;
    if (bytes == STATE_BYTES || bytes == -STATE_BYTES)
        s->live += bytes > 0 ? 1 : -1;
    s->most = s->live > s->most ? s->live : s->most;
}

/* Of the first four layers three have a state. Beside what they keep, the last chunk makes three.
 */
static void a_delta_net_keeps_a_state_for_each_chunk(void **state)
{
    (void)state;
    static const struct {
        uint32_t seq_len;
        uint64_t flags;
        int most;
    } cases[] = {{64, 0, 3 * 1 + 3},
                 {640, 0, 3 * 10 + 3},
                 {641, 0, 3 * 11 + 3},
                 {640, RVL_MODEL_RECOMPUTE, 10 + 3}};
    rvl_model *model = open_model("qwen3_5");
    model->layers = 4;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rvli_training_shape shape = {FSDP, .flags = cases[i].flags, .micro_batch = 1,
                                           .seq_len = cases[i].seq_len};
        states s = {0};
        rvli_trained trained;
        assert_int_equal(rvli_training_run(model, &shape,
                                           &(rvli_tape_listener){.told = count_states, .user = &s},
                                           &trained),
                         RVL_OK);
        assert_int_equal(s.most, cases[i].most);
        assert_int_equal(s.live, 0);
    }
    rvl_model_close(model);
}

#define MASKED 1000 /* tokens: no other tensor has the size of their mask */

/* Blocks of one size: how many there are at most, in the passes. */
typedef struct counted {
    int64_t bytes;
    int live, most, made;
} counted;

static void count_blocks(void *user, int64_t bytes, rvli_stream stream, rvl_model_term holder)
{
    counted *c = user;
    (void)stream;
    (void)holder;
    if (bytes != c->bytes && bytes != -c->bytes)
        return;
    c->made += bytes > 0;
    c->live += bytes > 0 ? 1 : -1;
    c->most = c->live > c->most ? c->live : c->most;
}

/* Each layer with a window keeps one in bf16; the first six of Gemma 3 are five and one without. */
static void a_window_that_ends_before_the_sequence_is_a_mask(void **state)
{
    (void)state;
    const rvli_training_shape shape = {FSDP, .micro_batch = 1, .seq_len = MASKED};
    rvl_model *model = open_model("gemma-3-1b");
    rvli_trained trained;
    counted with = {.bytes = 2 * MASKED * MASKED}, without = with;
    model->layers = LAYERS;
    model->window = MASKED;
    assert_int_equal(rvli_training_run(model, &shape,
                                       &(rvli_tape_listener){.told = count_blocks, .user = &with},
                                       &trained),
                     RVL_OK);
    model->window = MASKED + 1;
    assert_int_equal(
        rvli_training_run(model, &shape,
                          &(rvli_tape_listener){.told = count_blocks, .user = &without}, &trained),
        RVL_OK);
    assert_int_equal(with.most, 5);
    assert_int_equal(with.made % 5, 0);
    assert_int_equal(with.live, 0);
    assert_int_equal(without.made, 0);
    rvl_model_close(model);
}

/* Keys by queries of all pairs of a chunk: 300 tokens are two chunks of 256, or three of 128. Each
 * step has the product once in each forward pass, and two gradients of it in the backward pass. */
static void mamba_multiplies_all_pairs_of_a_chunk(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint64_t padded, chunk, heads;
        uint64_t flags;
        int each; /* a layer and step */
    } cases[] = {{"granite-4.0-h-micro", 512, 256, 64, 0, 3},
                 {"granite-4.0-h-micro", 512, 256, 64, RVL_MODEL_RECOMPUTE, 4},
                 {"nemotron-nano-9b-v2", 384, 128, 128, 0, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = open_model(cases[i].config);
        const rvli_training_shape shape = {FSDP, .flags = cases[i].flags, .micro_batch = 3,
                                           .seq_len = 300};
        const uint64_t state_elements = 128;
        counted c = {.bytes = (int64_t)(4 * 3 * cases[i].padded * cases[i].chunk * cases[i].heads *
                                        state_elements)};
        rvli_trained trained;
        model->layers = 1;
        assert_int_equal(rvli_training_run(model, &shape,
                                           &(rvli_tape_listener){.told = count_blocks, .user = &c},
                                           &trained),
                         RVL_OK);
        assert_int_equal(c.most, 2);
        assert_true(c.made > 0);
        assert_int_equal(c.made % cases[i].each, 0);
        assert_int_equal(c.live, 0);
        assert_true(trained.passes.allocated_bytes > (uint64_t)(2 * c.bytes));
        rvl_model_close(model);
    }
}

/* Every layer keeps the mask of what its indexer chose, and, recomputing, one does at a time. */
static void an_indexer_leaves_each_layer_a_mask(void **state)
{
    (void)state;
    static const char *const names[] = {"glm-moe-dsa", "deepseek-v3.2-exp"};
    for (size_t i = 0; i < 2; i++) {
        rvli_trained trained;
        rvl_model *model = open_model(names[i]);
        model->layers = LAYERS;
        for (uint64_t flags = 0; flags <= RVL_MODEL_RECOMPUTE; flags += RVL_MODEL_RECOMPUTE) {
            counted m = {.bytes = 2 * MASKED * MASKED};
            const rvli_training_shape shape = {FSDP, .flags = flags, .micro_batch = 1,
                                               .seq_len = MASKED};
            assert_int_equal(rvli_training_run(
                                 model, &shape,
                                 &(rvli_tape_listener){.told = count_blocks, .user = &m}, &trained),
                             RVL_OK);
            assert_int_equal(m.most, flags == 0 ? LAYERS : 1);
            assert_int_equal(m.made % LAYERS, 0);
            assert_int_equal(m.live, 0);
        }
        rvl_model_close(model);
    }
}

static rvli_trained run_text(const char *text, uint32_t seq_len)
{
    const rvli_training_shape shape = {FSDP, .micro_batch = 1, .seq_len = seq_len};
    rvl_model *model = NULL;
    rvli_trained trained;
    assert_int_equal(rvl_model_parse(text, strlen(text), &model), RVL_OK);
    assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
    rvl_model_close(model);
    return trained;
}

#define GRANITE                                                                                    \
    "{\"model_type\":\"granitemoehybrid\",\"hidden_size\":512,\"num_hidden_layers\":2,"            \
    "\"num_attention_heads\":8,\"num_key_value_heads\":2,\"shared_intermediate_size\":1024,"       \
    "\"num_local_experts\":0,\"num_experts_per_tok\":0,\"vocab_size\":1000,"                       \
    "\"tie_word_embeddings\":true,\"mamba_n_heads\":16,\"mamba_d_head\":64,"                       \
    "\"mamba_n_groups\":1,\"mamba_d_state\":128,\"mamba_d_conv\":4,\"layer_types\":"

/* Granite's attention has positions only where the config says so; its chunk counts, too. */
static void a_hybrid_is_trained_as_its_config_says(void **state)
{
    (void)state;
    static const char attention[] = GRANITE "[\"attention\",\"attention\"]";
    static const char mamba[] = GRANITE "[\"mamba\",\"mamba\"]";
    char text[1024];
    snprintf(text, sizeof text, "%s}", attention);
    uint64_t without = run_text(text, 2048).passes.allocated_bytes;
    snprintf(text, sizeof text, "%s,\"position_embedding_type\":\"nope\"}", attention);
    assert_int_equal(run_text(text, 2048).passes.allocated_bytes, without);
    snprintf(text, sizeof text, "%s,\"position_embedding_type\":\"rope\"}", attention);
    /* cosines and sines of 2048 positions and 64 elements of a head, in bf16 */
    assert_int_equal(run_text(text, 2048).passes.allocated_bytes, without + 2 * 2 * 2048 * 64);
    snprintf(text, sizeof text, "%s}", mamba);
    uint64_t by_256 = run_text(text, 2048).passes.allocated_bytes;
    snprintf(text, sizeof text, "%s,\"mamba_chunk_size\":512}", mamba);
    uint64_t wider = run_text(text, 2048).passes.allocated_bytes - by_256;
    const uint64_t pairs = UINT64_C(4) * 2048 * 256 * 16; /* of the 256 more */
    assert_true(wider > 2 * pairs * 128);                 /* two whole products at once */
    assert_true(wider < 2 * pairs * 128 + 16 * pairs);
}

/* Gemma 3n: a layer keeps the streams that it got, and what changes them; recomputing, the former
 * alone. Those that the last layer gave stay, and three more are there for a moment. */
static void layers_keep_streams(void **state)
{
    (void)state;
    rvli_trained trained;
    rvl_model *model = open_model("gemma-3n-e4b-text");
    static const struct {
        uint64_t flags;
        int most;
    } cases[] = {{0, 2 * 35 + 1 + 3}, {RVL_MODEL_RECOMPUTE, 35 + 1 + 3}};
    for (size_t i = 0; i < 2; i++) {
        counted s = {.bytes = 4 * 2 * 72 * 2048};
        const rvli_training_shape shape = {FSDP, .flags = cases[i].flags, .micro_batch = 1,
                                           .seq_len = 72};
        assert_int_equal(rvli_training_run(model, &shape,
                                           &(rvli_tape_listener){.told = count_blocks, .user = &s},
                                           &trained),
                         RVL_OK);
        assert_int_equal(s.live, 0);
        assert_int_equal(s.most, cases[i].most);
    }
    rvl_model_close(model);
}

/* As many as PEFT's print_trainable_parameters() says. */
static void adapters_alone_have_gradients_and_states(void **state)
{
    (void)state;
    static const struct {
        rvl_model_lora_targets targets;
        int64_t adapters;
    } cases[] = {{RVL_MODEL_LORA_PEFT, 1703936}, {RVL_MODEL_LORA_ALL_LINEAR, 11272192}};
    rvl_model *model = open_model("llama-3.2-1b");
    for (size_t i = 0; i < 2; i++) {
        for (uint64_t flags = 0; flags < 4; flags++) {
            ledger l = {0};
            rvli_trained trained;
            const rvli_training_shape shape = {
                .train = (flags & RVL_MODEL_RESHARD) ? RVL_MODEL_TRAIN_FSDP : RVL_MODEL_TRAIN_DDP,
                .train_ranks = 1,
                .flags = flags,
                .micro_batch = 1,
                .seq_len = 64,
                .accumulate = 2,
                .optimizer = RVL_MODEL_ADAMW,
                .lora_rank = 16,
                .lora_targets = cases[i].targets};
            assert_int_equal(rvli_training_run(model, &shape,
                                               &(rvli_tape_listener){.told = note, .user = &l},
                                               &trained),
                             RVL_OK);
            assert_int_equal(l.bytes[RVL_MODEL_OPTIMIZER], 2 * 4 * cases[i].adapters);
            assert_int_equal(l.bytes[RVL_MODEL_SHARDED_WEIGHTS],
                             2 * (int64_t)rvl_model_parameter_count(model) + 4 * cases[i].adapters);
            assert_int_equal(l.bytes[RVL_MODEL_MASTER_WEIGHTS], 0);
            assert_int_equal(l.bytes[RVL_MODEL_GRADIENTS], 0);
            assert_int_equal(l.bytes[RVL_MODEL_ALL_GATHER], 0);
            assert_int_equal(l.bytes[RVL_MODEL_ACTIVATIONS], 8 * 64); /* the tokens */
            assert_int_equal(l.bytes[RVL_MODEL_LOGITS], 0);
        }
    }
    rvl_model_close(model);
}

/* The tanh of capped logits, streams, and embeddings for each layer: what PyTorch had of pinned
 * memory in runs on simulated GPUs. */
static void the_host_has_what_gemma_keeps(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t layers;
        uint64_t pinned; /* as torch.cuda.host_memory_stats() says */
    } cases[] = {{"gemma-2-2b", 8, 3429130241},
                 {"gemma-3n-e2b", 30, 7887037441},
                 {"gemma-4-e2b-text", 35, 3897811969}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = open_model(cases[i].name);
        const rvli_training_shape shape = {FSDP, .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_OFFLOAD,
                                           .micro_batch = 1, .seq_len = 2048};
        rvli_trained trained;
        model->layers = cases[i].layers;
        assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
        assert_true(apart(trained.host_bytes, cases[i].pinned) <= cases[i].pinned / 100);
        rvl_model_close(model);
    }
}

/* What PyTorch has of pinned memory, 0.2 % of which is not the step's; states are beside it. */
static void the_host_has_what_is_not_on_the_device(void **state)
{
    (void)state;
    static const struct {
        uint64_t flags;
        uint32_t layers;
        uint64_t pinned; /* as torch.cuda.host_memory_stats() says */
        uint64_t states; /* of a rank's 222609408 parameters, in bf16 */
    } cases[] = {{RVL_MODEL_CPU_OFFLOAD, 3, 903213057, UINT64_C(4) * 222609408},
                 {RVL_MODEL_OFFLOAD | RVL_MODEL_RECOMPUTE, 12, 1201020929, 0},
                 {RVL_MODEL_RECOMPUTE, 12, 0, 0}};
    rvl_model *model = open_model("llama-3.2-1b");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const rvli_training_shape shape = {LLAMA3, .flags = cases[i].flags};
        rvli_trained trained;
        model->layers = cases[i].layers;
        assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
        uint64_t read = cases[i].pinned + cases[i].states;
        assert_true(apart(trained.host_bytes, read) <= cases[i].pinned / 500);
    }
    rvl_model_close(model);
}

/* Nothing of the trainer's is left on the device but tokens and workspaces. */
static void shards_on_the_host_leave_nothing_behind(void **state)
{
    (void)state;
    static const uint64_t flags[] = {
        RVL_MODEL_CPU_OFFLOAD, RVL_MODEL_CPU_OFFLOAD | RVL_MODEL_MIXED | RVL_MODEL_RESHARD,
        RVL_MODEL_CPU_OFFLOAD | RVL_MODEL_OFFLOAD | RVL_MODEL_RECOMPUTE};
    static const char *const names[] = {"llama-3.2-1b", "qwen3-30b-a3b", "deepseek-v3",
                                        "nemotron-3-nano-30b-a3b"};
    for (size_t i = 0; i < 12; i++) {
        rvl_model *model = open_model(names[i / 3]);
        const rvli_training_shape shape = {.train = RVL_MODEL_TRAIN_FSDP,
                                           .train_ranks = 3,
                                           .flags = flags[i % 3],
                                           .micro_batch = 1,
                                           .seq_len = 64,
                                           .accumulate = 2,
                                           .optimizer = RVL_MODEL_ADAMW};
        ledger l = {0};
        rvli_trained trained;
        assert_int_equal(rvli_training_run(model, &shape,
                                           &(rvli_tape_listener){.told = note, .user = &l},
                                           &trained),
                         RVL_OK);
        for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++) {
            if (term != RVL_MODEL_BLAS_WORKSPACES && term != RVL_MODEL_ACTIVATIONS)
                assert_int_equal(l.bytes[term], 0);
        }
        assert_int_equal(l.bytes[RVL_MODEL_ACTIVATIONS], 8 * 64); /* the tokens */
        assert_int_equal(l.streams[RVLI_STREAM_OFFLOAD], 0);
        rvl_model_close(model);
    }
}

/* A weight of n elements in four bits: n / 2 bytes, n / 64 scales of one byte, of which 256 share
 * one of four, and their mean and two tables; or n / 64 scales of four bytes and one table. */
static void a_base_of_four_bits_is_as_large_as_its_parts(void **state)
{
    (void)state;
    static const struct {
        rvl_model_base_dtype base;
        int64_t bytes; /* of 2048 x 8192 elements */
    } cases[] = {{RVL_MODEL_BASE_NF4, 8388608 + 262144 + 4096 + 4 + 64 + 1024},
                 {RVL_MODEL_BASE_NF4_SINGLE, 8388608 + 1048576 + 64}};
    rvl_model *model = open_model("llama-3.2-1b");
    for (size_t i = 0; i < 2; i++) {
        uint64_t parts[RVLI_NF4_PARTS];
        int64_t sum = 0;
        rvli_nf4_parts(cases[i].base, UINT64_C(2048) * 8192, parts);
        for (size_t part = 0; part < RVLI_NF4_PARTS; part++)
            sum += (int64_t)parts[part];
        assert_int_equal(sum, cases[i].bytes);
        static const uint64_t flags[] = {
            0,
            RVL_MODEL_RECOMPUTE,
            RVL_MODEL_AUTOCAST,
            RVL_MODEL_AUTOCAST | RVL_MODEL_RECOMPUTE,
            RVL_MODEL_AUTOCAST | RVL_MODEL_PREPARE_KBIT,
            RVL_MODEL_AUTOCAST | RVL_MODEL_PREPARE_KBIT | RVL_MODEL_RECOMPUTE,
            RVL_MODEL_AUTOCAST | RVL_MODEL_PREPARE_KBIT | RVL_MODEL_BF16_ADAPTERS};
        for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++) {
            ledger l = {0};
            rvli_trained trained;
            const rvli_training_shape shape = {QLORA(cases[i].base), .flags = flags[f]};
            assert_int_equal(rvli_training_run(model, &shape,
                                               &(rvli_tape_listener){.told = note, .user = &l},
                                               &trained),
                             RVL_OK);
            assert_int_equal(l.bytes[RVL_MODEL_DEQUANTISED], 0);
            assert_int_equal(l.bytes[RVL_MODEL_LOGITS], 0);
            assert_int_equal(l.bytes[RVL_MODEL_GRADIENTS], 0);
            assert_int_equal(l.bytes[RVL_MODEL_ACTIVATIONS], INT64_C(8) * 2048); /* the tokens */
        }
    }
    rvl_model_close(model);
}

static rvli_trained run(rvl_model *model, rvli_training_shape shape)
{
    rvli_trained trained;
    assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
    return trained;
}

/* Fused, AdamW has no temporaries; nothing else changes in the passes. */
static void a_fused_optimizer_has_no_temporaries(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.2-1b");
    rvli_training_shape shape = programs[0].shape;
    rvli_trained foreach = run(model, shape);
    shape.flags |= RVL_MODEL_FUSED;
    rvli_trained fused = run(model, shape);
    uint64_t roots = foreach.update.held[RVL_MODEL_OPTIMIZER_TEMPORARIES];
    /* Blocks that are not split count as a whole. */
    assert_true(apart(roots, foreach.update.held[RVL_MODEL_OPTIMIZER] / 2) < RVLI_MIB);
    assert_int_equal(fused.update.held[RVL_MODEL_OPTIMIZER_TEMPORARIES], 0);
    assert_int_equal(fused.update.allocated_bytes, foreach.update.allocated_bytes - roots);
    assert_int_equal(fused.passes.allocated_bytes, foreach.passes.allocated_bytes);
    rvl_model_close(model);
}

/* Shards in fp32 are twice as large, and so are their gradients; there is no other master copy. */
static void mixed_precision_keeps_shards_in_fp32(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.2-1b");
    rvli_training_shape shape = programs[0].shape;
    rvli_trained half = run(model, shape);
    shape.optimizer = RVL_MODEL_ADAMW;
    shape.flags |= RVL_MODEL_MIXED;
    rvli_trained mixed = run(model, shape);
    static const rvl_model_term doubled[] = {RVL_MODEL_SHARDED_WEIGHTS, RVL_MODEL_OPTIMIZER,
                                             RVL_MODEL_GRADIENTS};
    for (size_t i = 0; i < sizeof doubled / sizeof doubled[0]; i++) {
        uint64_t twice = 2 * half.update.held[doubled[i]];
        assert_true(apart(mixed.update.held[doubled[i]], twice) < twice / 100);
    }
    assert_int_equal(mixed.update.held[RVL_MODEL_MASTER_WEIGHTS], 0);
    assert_int_equal(mixed.passes.held[RVL_MODEL_LOGITS], half.passes.held[RVL_MODEL_LOGITS]);
    rvl_model_close(model);
}

/* From the second micro-batch on the passes find gradients: shares with FSDP2, whole ones with DDP.
 */
static void gradients_stay_for_the_next_micro_batch(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.2-1b");
    rvli_training_shape shape = programs[0].shape;
    uint64_t share = rvl_model_parameter_count(model); /* half of them, 2 bytes each */
    uint64_t once = run(model, shape).passes.allocated_bytes;
    shape.accumulate = 2;
    rvli_trained twice = run(model, shape);
    assert_true(apart(twice.passes.allocated_bytes, once + share) < share / 100);
    shape.accumulate = 3;
    assert_int_equal(run(model, shape).passes.allocated_bytes, twice.passes.allocated_bytes);
    shape.train = RVL_MODEL_TRAIN_DDP;
    rvli_trained whole = run(model, shape);
    shape.accumulate = 1;
    once = run(model, shape).passes.allocated_bytes;
    assert_true(whole.passes.allocated_bytes > once + share);
    rvl_model_close(model);
}

/* What a device has for the trainer bounds the cache, and not what is allocated. */
static void the_cache_goes_before_the_device_is_full(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen2.5-7b");
    rvli_training_shape shape = programs[3].shape;
    rvli_trained unbound, bound, tight;
    assert_int_equal(rvli_training_run(model, &shape, NULL, &unbound), RVL_OK);
    shape.limit_bytes = 48 * GIB;
    assert_int_equal(rvli_training_run(model, &shape, NULL, &bound), RVL_OK);
    assert_true(unbound.reserved_bytes > shape.limit_bytes);
    assert_true(bound.reserved_bytes <= shape.limit_bytes);
    assert_int_equal(bound.passes.allocated_bytes, unbound.passes.allocated_bytes);
    shape.limit_bytes = 32 * GIB;
    assert_int_equal(rvli_training_run(model, &shape, NULL, &tight), RVL_OK);
    /* A block that is not split off counts as a whole. */
    assert_true(apart(tight.passes.allocated_bytes, unbound.passes.allocated_bytes) < GIB / 10);
    assert_true(tight.reserved_bytes > shape.limit_bytes);
    rvl_model_close(model);
}

/* ---- As a step shows it ---- */

static rvl_model_options options_of(const program *p)
{
    return (rvl_model_options){.struct_size = sizeof(rvl_model_options),
                               .flags = p->shape.flags,
                               .train = p->shape.train,
                               .train_ranks = p->shape.train_ranks,
                               .micro_batch = p->shape.micro_batch,
                               .seq_len = p->shape.seq_len,
                               .optimizer = p->shape.optimizer};
}

/* Bytes of the trainer that are live before each event; the most between two stages. */
static uint64_t peak_of_train(const rvl_model_step *step)
{
    size_t count;
    uint64_t live = 0, peak = 0;
    bool in_train = false;
    assert_int_equal(rvl_model_step_get_events(step, NULL, 0, 0, &count), RVL_OK);
    rvl_trace_event *events = calloc(count, sizeof *events);
    uint64_t *sizes = calloc(count, sizeof *sizes);
    assert_non_null(events);
    assert_non_null(sizes);
    assert_int_equal(rvl_model_step_get_events(step, events, sizeof *events, count, &count),
                     RVL_OK);
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == RVL_EVENT_STAGE)
            in_train = strcmp(events[i].name, "train") == 0;
        if (strcmp(events[i].process, "trainer") != 0)
            continue;
        if (events[i].kind == RVL_EVENT_ALLOC) {
            sizes[events[i].id] = events[i].bytes;
            live += events[i].bytes;
        }
        if (events[i].kind == RVL_EVENT_FREE)
            live -= sizes[events[i].id];
        peak = in_train && live > peak ? live : peak;
    }
    free(sizes);
    free(events);
    return peak;
}

static void a_step_trains_with_what_is_reserved(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        const program *p = &programs[i];
        rvl_model *model = open_model(p->config);
        rvl_model_options options = options_of(p);
        rvl_model_step *step;
        assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
        assert_int_equal(peak_of_train(step), p->reserved);
        assert_true(rvl_model_step_bytes(step, RVL_MODEL_CACHED) > 0);
        assert_int_equal(rvl_model_step_bytes(step, RVL_MODEL_GRADIENT_BUCKETS), 0);
        rvl_model_step_close(step);
        rvl_model_close(model);
    }
}

/* Bytes of all allocations and parts of segments with a tag. */
static uint64_t shown_as(const rvl_model_step *step, const char *tag)
{
    size_t count;
    uint64_t bytes = 0;
    assert_int_equal(rvl_model_step_get_events(step, NULL, 0, 0, &count), RVL_OK);
    rvl_trace_event *events = calloc(count, sizeof *events);
    assert_non_null(events);
    assert_int_equal(rvl_model_step_get_events(step, events, sizeof *events, count, &count),
                     RVL_OK);
    for (size_t i = 0; i < count; i++) {
        bool shown = events[i].kind == RVL_EVENT_ALLOC || events[i].kind == RVL_EVENT_PART;
        if (shown && strcmp(events[i].tag, tag) == 0)
            bytes += events[i].bytes;
    }
    free(events);
    return bytes;
}

/* What simulated GPUs had in use beyond PyTorch's segments, less what they had with an optimizer
 * that has none. */
static void paged_states_are_what_a_simulated_gpu_read(void **state)
{
    (void)state;
    static const struct {
        rvli_training_shape shape;
        uint64_t bytes;
    } cases[] = {{{PAGED, .optimizer = RVL_MODEL_PAGED_ADAMW_8BIT}, 268435456},
                 {{PAGED, .optimizer = RVL_MODEL_PAGED_ADAMW_32BIT}, 268435456},
                 {{PAGED_WHOLE}, 3623878656}};
    rvl_model *model = open_model("llama-3.2-1b");
    model->layers = 3;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model_options options = options_of(&(program){.shape = cases[i].shape});
        options.lora_rank = cases[i].shape.lora_rank;
        options.lora_targets = cases[i].shape.lora_targets;
        options.base_dtype = cases[i].shape.base_dtype;
        rvl_model_step *step;
        assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
        assert_int_equal(rvl_model_step_bytes(step, RVL_MODEL_PAGED_OPTIMIZER), cases[i].bytes);
        assert_int_equal(rvl_model_step_bytes(step, RVL_MODEL_TRAINER_HOST), 0);
        rvl_model_step_close(step);
    }
    rvl_model_close(model);
}

/* On a device that has no room for all of them, some are on the host, and the step still fits. */
static void paged_states_give_way(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.2-1b");
    model->layers = 3;
    rvl_model_options options = options_of(&(program){.shape = {PAGED_WHOLE}});
    options.device = "10GiB";
    options.mem_fraction_ppm = 300000; /* for the engine that runs before */
    rvl_model_step *step;
    rvl_replay *replay;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
    uint64_t there = rvl_model_step_bytes(step, RVL_MODEL_PAGED_OPTIMIZER);
    assert_true(there > GIB && there < UINT64_C(3623878656));
    assert_int_equal(there + rvl_model_step_bytes(step, RVL_MODEL_TRAINER_HOST), 3623878656);
    assert_int_equal(rvl_model_step_replay(step, NULL, &replay), RVL_OK);
    rvl_replay_device device = {.struct_size = sizeof device};
    assert_int_equal(rvl_replay_get_device(replay, 0, &device), RVL_OK);
    assert_true(device.fits);
    assert_true(device.capacity_bytes - device.peak_bytes < UINT64_C(2) * RVLI_MIB);
    rvl_replay_close(replay);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

/* Few tokens: the fullest moment is that of the largest weight in bf16. */
static void a_step_shows_weights_in_bf16_for_a_product(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.1-8b");
    const rvli_training_shape shape = {.train = RVL_MODEL_TRAIN_DDP,
                                       .micro_batch = 1,
                                       .seq_len = 16,
                                       .attention = RVL_MODEL_ATTENTION_CUDNN,
                                       .lora_rank = 8,
                                       .base_dtype = RVL_MODEL_BASE_NF4};
    rvli_trained trained;
    assert_int_equal(rvli_training_run(model, &shape, NULL, &trained), RVL_OK);
    rvl_model_options options = options_of(&(program){.shape = shape});
    options.lora_rank = shape.lora_rank;
    options.base_dtype = shape.base_dtype;
    rvl_model_step *step;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
    uint64_t largest = UINT64_C(2) * 4096 * 14336;
    assert_true(rvl_model_step_bytes(step, RVL_MODEL_DEQUANTISED) >= largest);
    assert_true(shown_as(step, "dequantised") >= largest);
    assert_int_equal(peak_of_train(step), trained.reserved_bytes);
    rvl_model_step_close(step);
    rvl_model_close(model);
}

static uint64_t peak_of_program(size_t index, const char *device)
{
    rvl_model *model = open_model(programs[index].config);
    rvl_model_options options = options_of(&programs[index]);
    rvl_model_step *step;
    options.device = device;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
    uint64_t peak = peak_of_train(step);
    rvl_model_step_close(step);
    rvl_model_close(model);
    return peak;
}

/* A smaller device has a smaller cache. Where that is not enough, the step shows what it needs. */
static void a_step_gives_its_cache_back(void **state)
{
    (void)state;
    uint64_t peak = peak_of_program(3, "50GiB");
    assert_true(peak < programs[3].reserved);
    assert_true(peak <= 50 * GIB - UINT64_C(552402944) - 483183820);
    assert_int_equal(peak_of_program(3, "30GiB"), programs[3].reserved);
}

/* The same shape is run once, and another is not taken for it. */
static void shapes_are_remembered_apart(void **state)
{
    (void)state;
    rvl_model *model = open_model("qwen2.5-0.5b");
    rvli_training_shape shape = programs[1].shape;
    rvli_trained first, again, other, alone;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &first), RVL_OK);
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &again), RVL_OK);
    assert_memory_equal(&first, &again, sizeof first);
    shape.micro_batch = 3;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &other), RVL_OK);
    assert_int_equal(rvli_training_run(model, &shape, NULL, &alone), RVL_OK);
    assert_memory_equal(&other, &alone, sizeof other);
    assert_true(other.reserved_bytes < first.reserved_bytes);
    shape = programs[1].shape;
    shape.attention = RVL_MODEL_ATTENTION_MATH;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &other), RVL_OK);
    assert_true(other.passes.allocated_bytes > first.passes.allocated_bytes);
    shape.loss = RVL_MODEL_LOSS_CHUNKED;
    shape.loss_chunks = 2;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &alone), RVL_OK);
    shape.loss_chunks = 64;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &again), RVL_OK);
    assert_true(alone.passes.held[RVL_MODEL_LOGITS] < other.passes.held[RVL_MODEL_LOGITS]);
    assert_true(again.passes.held[RVL_MODEL_LOGITS] < alone.passes.held[RVL_MODEL_LOGITS]);
    shape = programs[1].shape;
    shape.lora_rank = 8;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &alone), RVL_OK);
    shape.lora_rank = 64;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &again), RVL_OK);
    shape.lora_targets = RVL_MODEL_LORA_ALL_LINEAR;
    assert_int_equal(rvli_training_recall(model, &shape, NULL, &other), RVL_OK);
    assert_true(alone.update.held[RVL_MODEL_OPTIMIZER] < again.update.held[RVL_MODEL_OPTIMIZER]);
    assert_true(again.update.held[RVL_MODEL_OPTIMIZER] < other.update.held[RVL_MODEL_OPTIMIZER]);
    rvl_model_close(model);
}

static uint64_t attended_on(const char *device, rvl_model_attention attention)
{
    rvl_model *model = open_model("llama-3.2-1b");
    rvl_model_options options = options_of(&programs[0]);
    rvl_model_step *step;
    options.device = device;
    options.attention = attention;
    assert_int_equal(rvl_model_step_make(model, &options, &step), RVL_OK);
    uint64_t peak = peak_of_train(step);
    rvl_model_step_close(step);
    rvl_model_close(model);
    return peak;
}

/* As PyTorch: cuDNN from Hopper on, flash before it, and on what is no data centre's. */
static void the_device_chooses_the_attention(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        rvl_model_attention first;
    } cases[] = {{"h200", RVL_MODEL_ATTENTION_CUDNN},
                 {"h100-80g", RVL_MODEL_ATTENTION_CUDNN},
                 {"b200", RVL_MODEL_ATTENTION_CUDNN},
                 {"100GiB", RVL_MODEL_ATTENTION_CUDNN},
                 {"a100-80g", RVL_MODEL_ATTENTION_FLASH}};
    assert_int_not_equal(attended_on("h200", RVL_MODEL_ATTENTION_CUDNN),
                         attended_on("h200", RVL_MODEL_ATTENTION_MATH));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(attended_on(cases[i].device, RVL_MODEL_ATTENTION_AUTO),
                         attended_on(cases[i].device, cases[i].first));
}

static void no_memory_is_told(void **state)
{
    (void)state;
    rvl_model *model = open_model("llama-3.2-1b");
    rvl_model_options options = options_of(&programs[0]);
    options.loss = RVL_MODEL_LOSS_CHUNKED;
    check_step_without_memory(model, &options);
    rvl_model_close(model);
    model = open_model("qwen3_5"); /* its chunks have room of their own */
    model->layers = 4;
    options.seq_len = 128;
    check_step_without_memory(model, &options);
    rvl_model_close(model);
}

/* Wherever it runs out: in nodes, in what is computed again, in what autocast has converted. */
static void no_memory_is_told_where_a_step_is_derived(void **state)
{
    (void)state;
    const uint64_t flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_AUTOCAST | RVL_MODEL_PREPARE_KBIT;
    const rvl_model_options qlora = {.struct_size = sizeof qlora,
                                     .train = RVL_MODEL_TRAIN_DDP,
                                     .train_ranks = 1,
                                     .seq_len = 128,
                                     .flags = flags,
                                     .lora_rank = 8,
                                     .lora_targets = RVL_MODEL_LORA_ALL_LINEAR,
                                     .base_dtype = RVL_MODEL_BASE_NF4};
    const rvl_model_options math = {.struct_size = sizeof math,
                                    .train = RVL_MODEL_TRAIN_DDP,
                                    .train_ranks = 1,
                                    .seq_len = 128,
                                    .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_OFFLOAD,
                                    .attention = RVL_MODEL_ATTENTION_MATH};
    const rvl_model_options plain = {
        .struct_size = sizeof plain, .train = RVL_MODEL_TRAIN_DDP, .seq_len = 128};
    const struct {
        const char *config;
        const rvl_model_options *options;
    } cases[] = {{"qwen2.5-0.5b", &qlora},
                 {"phi-4-mini", &math},
                 {"apertus-8b", &math},
                 {"command-r7b", &plain}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = open_model(cases[i].config);
        model->layers = 2;
        check_step_without_memory(model, cases[i].options);
        rvl_model_close(model);
    }
}

/* Wherever it runs out: in scaled embeddings, experts, squared relus, the scan. */
static void no_memory_is_told_in_hybrids(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t layers;
    } cases[] = {
        {"nemotron-3-nano-30b-a3b", 2}, {"nemotron-nano-9b-v2", 2}, {"granite-4.0-h-tiny", 1},
        {"gemma-3n-e4b-text", 2},       {"glm-moe-dsa", 4},         {"qwen1.5-moe-a2.7b", 1},
        {"gemma-4-26b-a4b-text", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rvl_model *model = open_model(cases[i].config);
        rvl_model_options options = options_of(&programs[0]);
        model->layers = cases[i].layers;
        check_step_without_memory(model, &options);
        rvl_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_have_what_a_card_read),
        cmocka_unit_test(settings_have_what_a_simulated_gpu_read),
        cmocka_unit_test(a_ring_leaves_nothing),
        cmocka_unit_test(windows_may_begin_behind_the_first_layer),
        cmocka_unit_test(nothing_is_left_but_states),
        cmocka_unit_test(the_rotated_part_of_a_head_is_read),
        cmocka_unit_test(some_families_rotate_a_quarter_of_a_head),
        cmocka_unit_test(a_delta_net_keeps_a_state_for_each_chunk),
        cmocka_unit_test(a_window_that_ends_before_the_sequence_is_a_mask),
        cmocka_unit_test(mamba_multiplies_all_pairs_of_a_chunk),
        cmocka_unit_test(a_hybrid_is_trained_as_its_config_says),
        cmocka_unit_test(an_indexer_leaves_each_layer_a_mask),
        cmocka_unit_test(layers_keep_streams),
        cmocka_unit_test(adapters_alone_have_gradients_and_states),
        cmocka_unit_test(the_host_has_what_is_not_on_the_device),
        cmocka_unit_test(the_host_has_what_gemma_keeps),
        cmocka_unit_test(shards_on_the_host_leave_nothing_behind),
        cmocka_unit_test(a_base_of_four_bits_is_as_large_as_its_parts),
        cmocka_unit_test(paged_states_are_what_a_simulated_gpu_read),
        cmocka_unit_test(paged_states_give_way),
        cmocka_unit_test(a_fused_optimizer_has_no_temporaries),
        cmocka_unit_test(mixed_precision_keeps_shards_in_fp32),
        cmocka_unit_test(gradients_stay_for_the_next_micro_batch),
        cmocka_unit_test(the_cache_goes_before_the_device_is_full),
        cmocka_unit_test(a_step_trains_with_what_is_reserved),
        cmocka_unit_test(a_step_shows_weights_in_bf16_for_a_product),
        cmocka_unit_test(a_step_gives_its_cache_back),
        cmocka_unit_test(shapes_are_remembered_apart),
        cmocka_unit_test(the_device_chooses_the_attention),
        cmocka_unit_test(no_memory_is_told),
        cmocka_unit_test(no_memory_is_told_where_a_step_is_derived),
        cmocka_unit_test(no_memory_is_told_in_hybrids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
