/* SPDX-License-Identifier: MIT */
/*
 * Training steps of small models with experts, against what PyTorch read on simulated GPUs
 * (tests/simcuda/programs/train.py, transformers 5.17, 2026-11-23): the most that was allocated
 * and reserved in the last step. Their sizes are those of no published model, so that blocks lie
 * otherwise than in these.
 */
#include "tests/support/support.h"

#include <stdio.h>
#include <string.h>

#include "predict/llm/step/training.h"

#define PAGE_BYTES (2 * RVLI_MIB)
#define FSDP .train = RVL_MODEL_TRAIN_FSDP, .train_ranks = 2, .optimizer = RVL_MODEL_ADAMW_BF16
#define DDP .train = RVL_MODEL_TRAIN_DDP, .train_ranks = 1, .optimizer = RVL_MODEL_ADAMW_BF16
#define RR (RVL_MODEL_RECOMPUTE | RVL_MODEL_RESHARD)

/* DeepSeek V3, with groups of experts and two shared ones. */
static const char dsv3[] =
    "{\"model_type\":\"deepseek_v3\",\"hidden_size\":1024,\"intermediate_size\":2816,\"moe_i"
    "ntermediate_size\":512,\"num_hidden_layers\":5,\"num_attention_heads\":16,\"num_key_"
    "value_heads\":16,\"n_routed_experts\":64,\"n_shared_experts\":2,\"num_experts_per_to"
    "k\":6,\"first_k_dense_replace\":2,\"n_group\":4,\"topk_group\":2,\"q_lora_rank\":384,\"k"
    "v_lora_rank\":256,\"qk_nope_head_dim\":64,\"qk_rope_head_dim\":32,\"v_head_dim\":64,\""
    "vocab_size\":8000,\"tie_word_embeddings\":false}";

/* Many small experts. */
static const char kimi[] =
    "{\"model_type\":\"deepseek_v3\",\"hidden_size\":1536,\"intermediate_size\":4096,\"moe_i"
    "ntermediate_size\":256,\"num_hidden_layers\":3,\"num_attention_heads\":8,\"num_key_v"
    "alue_heads\":8,\"n_routed_experts\":384,\"n_shared_experts\":1,\"num_experts_per_tok"
    "\":8,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1,\"q_lora_rank\":384,\"kv"
    "_lora_rank\":256,\"qk_nope_head_dim\":64,\"qk_rope_head_dim\":32,\"v_head_dim\":64,\"v"
    "ocab_size\":8000,\"tie_word_embeddings\":false}";

/* GLM 4.5. */
static const char glm[] =
    "{\"model_type\":\"glm4_moe\",\"hidden_size\":1024,\"intermediate_size\":2816,\"moe_inte"
    "rmediate_size\":704,\"num_hidden_layers\":4,\"num_attention_heads\":16,\"num_key_val"
    "ue_heads\":4,\"head_dim\":128,\"n_routed_experts\":32,\"n_shared_experts\":1,\"num_exp"
    "erts_per_tok\":4,\"first_k_dense_replace\":1,\"use_qk_norm\":true,\"attention_bias\":"
    "true,\"vocab_size\":8000,\"tie_word_embeddings\":false}";

/* Qwen 1.5, with a gate for the shared expert. */
static const char q2[] =
    "{\"model_type\":\"qwen2_moe\",\"hidden_size\":1024,\"intermediate_size\":2816,\"moe_int"
    "ermediate_size\":512,\"shared_expert_intermediate_size\":1536,\"num_hidden_layers\""
    ":4,\"num_attention_heads\":16,\"num_key_value_heads\":4,\"num_experts\":48,\"num_expe"
    "rts_per_tok\":4,\"decoder_sparse_step\":1,\"vocab_size\":8000,\"tie_word_embeddings\""
    ":false}";

/* Llama 4. */
static const char ll4[] =
    "{\"model_type\":\"llama4_text\",\"hidden_size\":1024,\"intermediate_size\":1024,\"inter"
    "mediate_size_mlp\":2048,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_"
    "value_heads\":2,\"head_dim\":128,\"num_local_experts\":8,\"num_experts_per_tok\":1,\"i"
    "nterleave_moe_layer_step\":2,\"vocab_size\":8000,\"tie_word_embeddings\":false}";

/* gpt-oss. */
static const char oss[] =
    "{\"model_type\":\"gpt_oss\",\"hidden_size\":1024,\"intermediate_size\":1024,\"num_hidde"
    "n_layers\":4,\"num_attention_heads\":16,\"num_key_value_heads\":4,\"head_dim\":64,\"nu"
    "m_local_experts\":16,\"num_experts_per_tok\":4,\"sliding_window\":128,\"vocab_size\":"
    "8000,\"tie_word_embeddings\":false}";

/* Granite with a shared expert. */
static const char gms[] =
    "{\"model_type\":\"granitemoeshared\",\"hidden_size\":1024,\"intermediate_size\":512,\"s"
    "hared_intermediate_size\":1024,\"num_hidden_layers\":4,\"num_attention_heads\":16,\""
    "num_key_value_heads\":4,\"num_local_experts\":32,\"num_experts_per_tok\":4,\"vocab_s"
    "ize\":8000,\"tie_word_embeddings\":false}";

/* ERNIE 4.5. */
static const char ern[] =
    "{\"model_type\":\"ernie4_5_moe\",\"hidden_size\":1024,\"intermediate_size\":2816,\"moe_"
    "intermediate_size\":512,\"num_hidden_layers\":4,\"num_attention_heads\":16,\"num_key"
    "_value_heads\":4,\"moe_num_experts\":64,\"moe_k\":6,\"moe_num_shared_experts\":2,\"moe"
    "_layer_start_index\":1,\"moe_layer_end_index\":3,\"moe_layer_interval\":1,\"use_bias"
    "\":false,\"vocab_size\":8000,\"tie_word_embeddings\":true}";

/* Mistral 4. */
static const char m4[] =
    "{\"model_type\":\"mistral4\",\"hidden_size\":1024,\"intermediate_size\":2816,\"moe_inte"
    "rmediate_size\":512,\"num_hidden_layers\":4,\"num_attention_heads\":16,\"num_key_val"
    "ue_heads\":16,\"n_routed_experts\":32,\"n_shared_experts\":1,\"num_experts_per_tok\":"
    "4,\"first_k_dense_replace\":0,\"q_lora_rank\":384,\"kv_lora_rank\":256,\"qk_nope_head"
    "_dim\":64,\"qk_rope_head_dim\":32,\"v_head_dim\":64,\"vocab_size\":8000,\"tie_word_emb"
    "eddings\":false}";

typedef struct program {
    const char *config;
    rvli_training_shape shape;
    uint64_t allocated; /* the most in the last step, as PyTorch read it */
    uint64_t reserved;
} program;

static const program programs[] = {
    {dsv3, {FSDP, .micro_batch = 2, .seq_len = 1500}, 3602976256, 4905238528},
    {dsv3, {FSDP, .micro_batch = 1, .seq_len = 4096, .flags = RR}, 2665093632, 3435134976},
    {dsv3,
     {DDP, .micro_batch = 1, .seq_len = 2048, .flags = RVL_MODEL_BUCKET_FREED},
     4398241280,
     4976541696},
    {kimi, {FSDP, .micro_batch = 1, .seq_len = 4096}, 7479306240, 11423186944},
    {kimi,
     {FSDP, .micro_batch = 2, .seq_len = 4096, .flags = RVL_MODEL_RECOMPUTE},
     7548522496,
     11670650880},
    {kimi,
     {DDP, .micro_batch = 1, .seq_len = 4096, .flags = RVL_MODEL_BUCKET_FREED},
     11599984128,
     14013169664},
    {glm, {FSDP, .micro_batch = 1, .seq_len = 4096}, 3351802880, 4294967296},
    {glm, {FSDP, .micro_batch = 3, .seq_len = 2500, .flags = RR}, 2550354432, 3460300800},
    {q2, {FSDP, .micro_batch = 1, .seq_len = 4096}, 3482022400, 4292870144},
    {q2,
     {FSDP, .micro_batch = 1, .seq_len = 4096, .flags = RVL_MODEL_RECOMPUTE},
     2376489472,
     3296722944},
    {ll4, {FSDP, .micro_batch = 1, .seq_len = 2048}, 1506741760, 1782579200},
    {ll4,
     {DDP, .micro_batch = 1, .seq_len = 2048,
      .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_BUCKET_FREED},
     1300098048,
     1428160512},
    {oss, {FSDP, .micro_batch = 1, .seq_len = 2048}, 2940402688, 3693084672},
    {oss,
     {FSDP, .micro_batch = 2, .seq_len = 1000, .flags = RVL_MODEL_RECOMPUTE},
     1706081792,
     2321547264},
    {gms, {FSDP, .micro_batch = 1, .seq_len = 4096}, 2779584000, 3424649216},
    {gms, {FSDP, .micro_batch = 1, .seq_len = 4096, .flags = RR}, 1657330176, 2044723200},
    {ern,
     {DDP, .micro_batch = 1, .seq_len = 4096, .flags = RVL_MODEL_BUCKET_FREED},
     4427830272,
     5177868288},
    {ern,
     {DDP, .micro_batch = 1, .seq_len = 4096,
      .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_BUCKET_FREED},
     4145298432,
     4431282176},
    {m4, {FSDP, .micro_batch = 1, .seq_len = 4096}, 2922148864, 3560964096},
    {m4,
     {DDP, .micro_batch = 2, .seq_len = 2048,
      .flags = RVL_MODEL_RECOMPUTE | RVL_MODEL_BUCKET_FREED},
     2900786176,
     3082813440},
    {dsv3, {FSDP, .micro_batch = 1, .seq_len = 2048, .accumulate = 2}, 3480390144, 4368367616},
    {kimi,
     {FSDP, .micro_batch = 1, .seq_len = 2048, .flags = RVL_MODEL_REDUCE_FP32},
     7572160512,
     12348030976},
    {glm,
     {FSDP, .micro_batch = 1, .seq_len = 4096, .loss = RVL_MODEL_LOSS_CHUNKED, .loss_chunks = 8},
     3166212096,
     4024434688},
};

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Tensors of a few KiB are left out, and a block that was not split counts as a whole: 0.01 % of
 * what is allocated and 2 MiB. Of what is reserved a page of small blocks may differ. */
static void assert_as_read(const program *p)
{
    rvl_model *model = NULL;
    rvli_trained trained;
    assert_int_equal(rvl_model_parse(p->config, strlen(p->config), &model), RVL_OK);
    assert_int_equal(rvli_training_run(model, &p->shape, NULL, &trained), RVL_OK);
    uint64_t allocated = trained.passes.allocated_bytes > trained.update.allocated_bytes
                             ? trained.passes.allocated_bytes
                             : trained.update.allocated_bytes;
    bool near = apart(allocated, p->allocated) <= p->allocated / 10000 + PAGE_BYTES &&
                apart(trained.reserved_bytes, p->reserved) <= PAGE_BYTES;
    if (!near)
        print_error("%.40s, %u tokens: allocated %llu, reserved %llu; read %llu, %llu\n", p->config,
                    p->shape.seq_len, (unsigned long long)allocated,
                    (unsigned long long)trained.reserved_bytes, (unsigned long long)p->allocated,
                    (unsigned long long)p->reserved);
    assert_true(near);
    rvl_model_close(model);
}

static void sparse_models_have_what_a_simulated_gpu_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        assert_as_read(&programs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_models_have_what_a_simulated_gpu_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
