/* SPDX-License-Identifier: MIT */
/*
 * The texts of each family, and the conditions in them.
 *
 * All families have texts/decoder.txt. A family's own texts come after it and redefine what
 * differs.
 */
#include "predict/llm/graph/program.h"

static const char decoder[] = {
#include "predict/llm/graph/decoder.inc"
    0};
static const char qwen3[] = {
#include "predict/llm/graph/qwen3.inc"
    0};
static const char gemma[] = {
#include "predict/llm/graph/gemma.inc"
    0};
static const char four_norms[] = {
#include "predict/llm/graph/four_norms.inc"
    0};
static const char vaultgemma[] = {
#include "predict/llm/graph/vaultgemma.inc"
    0};
static const char softcap[] = {
#include "predict/llm/graph/softcap.inc"
    0};
static const char granite[] = {
#include "predict/llm/graph/granite.inc"
    0};
static const char norms_behind[] = {
#include "predict/llm/graph/norms_behind.inc"
    0};
static const char olmo2[] = {
#include "predict/llm/graph/olmo2.inc"
    0};
static const char exaone4[] = {
#include "predict/llm/graph/exaone4.inc"
    0};
static const char gate_up[] = {
#include "predict/llm/graph/gate_up.inc"
    0};
static const char phi3[] = {
#include "predict/llm/graph/phi3.inc"
    0};
static const char glm[] = {
#include "predict/llm/graph/glm.inc"
    0};
static const char glm4[] = {
#include "predict/llm/graph/glm4.inc"
    0};
static const char arcee[] = {
#include "predict/llm/graph/arcee.inc"
    0};
static const char apertus[] = {
#include "predict/llm/graph/apertus.inc"
    0};
static const char starcoder2[] = {
#include "predict/llm/graph/starcoder2.inc"
    0};
static const char cohere[] = {
#include "predict/llm/graph/cohere.inc"
    0};
static const char nanochat[] = {
#include "predict/llm/graph/nanochat.inc"
    0};
static const char ernie[] = {
#include "predict/llm/graph/ernie.inc"
    0};
static const char hunyuan[] = {
#include "predict/llm/graph/hunyuan.inc"
    0};
static const char experts[] = {
#include "predict/llm/graph/experts.inc"
    0};
static const char mixtral[] = {
#include "predict/llm/graph/mixtral.inc"
    0};
static const char qwen2_moe[] = {
#include "predict/llm/graph/qwen2_moe.inc"
    0};
static const char olmoe[] = {
#include "predict/llm/graph/olmoe.inc"
    0};
static const char sigmoid[] = {
#include "predict/llm/graph/sigmoid.inc"
    0};
static const char partial_rotary[] = {
#include "predict/llm/graph/partial_rotary.inc"
    0};
static const char glm4_moe[] = {
#include "predict/llm/graph/glm4_moe.inc"
    0};
static const char minimax[] = {
#include "predict/llm/graph/minimax.inc"
    0};
static const char ernie_moe[] = {
#include "predict/llm/graph/ernie_moe.inc"
    0};
static const char hunyuan_moe[] = {
#include "predict/llm/graph/hunyuan_moe.inc"
    0};
static const char deepseek[] = {
#include "predict/llm/graph/deepseek.inc"
    0};
static const char lfm2[] = {
#include "predict/llm/graph/lfm2.inc"
    0};
static const char lfm2_moe[] = {
#include "predict/llm/graph/lfm2_moe.inc"
    0};
static const char granitemoe[] = {
#include "predict/llm/graph/granitemoe.inc"
    0};
static const char latent[] = {
#include "predict/llm/graph/latent.inc"
    0};
static const char mistral4[] = {
#include "predict/llm/graph/mistral4.inc"
    0};
static const char complex_rotary[] = {
#include "predict/llm/graph/complex_rotary.inc"
    0};
static const char deepseek_v2[] = {
#include "predict/llm/graph/deepseek_v2.inc"
    0};
static const char delta[] = {
#include "predict/llm/graph/delta.inc"
    0};
static const char qwen3_next[] = {
#include "predict/llm/graph/qwen3_next.inc"
    0};
static const char indexer[] = {
#include "predict/llm/graph/indexer.inc"
    0};
static const char glm_moe_dsa[] = {
#include "predict/llm/graph/glm_moe_dsa.inc"
    0};
static const char llama4[] = {
#include "predict/llm/graph/llama4.inc"
    0};
static const char mamba[] = {
#include "predict/llm/graph/mamba.inc"
    0};
static const char nemotron_h[] = {
#include "predict/llm/graph/nemotron_h.inc"
    0};
static const char granitemoehybrid[] = {
#include "predict/llm/graph/granitemoehybrid.inc"
    0};
static const char bamba[] = {
#include "predict/llm/graph/bamba.inc"
    0};
static const char falcon_h1[] = {
#include "predict/llm/graph/falcon_h1.inc"
    0};
static const char gpt_oss[] = {
#include "predict/llm/graph/gpt_oss.inc"
    0};
static const char per_layer[] = {
#include "predict/llm/graph/per_layer.inc"
    0};
static const char gemma4[] = {
#include "predict/llm/graph/gemma4.inc"
    0};
static const char gemma3n[] = {
#include "predict/llm/graph/gemma3n.inc"
    0};
static const char phimoe[] = {
#include "predict/llm/graph/phimoe.inc"
    0};

/* own: texts after the decoder's. */
static const struct {
    const char *type;
    const char *own[RVLI_TEXTS_MAX - 1];
} families[] = {
    {"llama", {NULL}},
    {"mistral", {NULL}},
    {"ministral", {NULL}},
    {"ministral3", {NULL}},
    {"mistral3", {NULL}},
    {"qwen2", {NULL}},
    {"qwen2_vl", {NULL}},
    {"qwen2_vl_text", {NULL}},
    {"qwen2_5_vl", {NULL}},
    {"qwen2_5_vl_text", {NULL}},
    {"smollm3", {NULL}},
    {"seed_oss", {NULL}},
    {"cwm", {NULL}},
    {"qwen3", {qwen3}},
    {"qwen3_vl", {qwen3}},
    {"qwen3_vl_text", {qwen3}},
    {"gemma", {gemma}},
    {"gemma2", {gemma, four_norms, softcap}},
    {"gemma3", {gemma, four_norms, qwen3}},
    {"gemma3_text", {gemma, four_norms, qwen3}},
    {"vaultgemma", {gemma, vaultgemma, softcap}},
    {"granite", {granite}},
    {"olmo2", {norms_behind, olmo2}},
    {"olmo3", {norms_behind, olmo2}},
    {"exaone4", {norms_behind, exaone4}},
    {"phi3", {gate_up, phi3}},
    {"glm", {gate_up, glm}},
    {"glm4", {gate_up, glm, glm4}},
    {"glm4v", {gate_up, glm, glm4}},
    {"glm4v_text", {gate_up, glm, glm4}},
    {"arcee", {arcee}},
    {"apertus", {qwen3, apertus}},
    {"starcoder2", {starcoder2}},
    {"cohere", {cohere}},
    {"cohere2", {cohere}},
    {"nanochat", {nanochat, softcap}},
    {"ernie4_5", {ernie}},
    {"hunyuan_v1_dense", {hunyuan}},
    {"deepseek", {experts, deepseek}},
    {"glm4_moe", {partial_rotary, glm4_moe, experts, sigmoid}},
    {"glm4v_moe", {partial_rotary, glm4_moe, experts, sigmoid}},
    {"glm4v_moe_text", {partial_rotary, glm4_moe, experts, sigmoid}},
    {"solar_open", {experts, sigmoid}},
    {"dots1", {qwen3, experts, sigmoid}},
    {"exaone_moe", {exaone4, experts, sigmoid}},
    {"minimax_m2", {olmoe, partial_rotary, experts, minimax}},
    {"ernie4_5_moe", {ernie, experts, ernie_moe}},
    {"hunyuan_v1_moe", {hunyuan, experts, hunyuan_moe}},
    {"lfm2", {qwen3, lfm2}},
    {"lfm2_moe", {qwen3, experts, lfm2, lfm2_moe}},
    {"granitemoe", {granite, experts, granitemoe}},
    {"granitemoeshared", {granite, experts, granitemoe}},
    {"mixtral", {experts, mixtral}},
    {"qwen2_moe", {experts, qwen2_moe}},
    {"qwen3_moe", {qwen3, experts}},
    {"qwen3_vl_moe", {qwen3, experts}},
    {"qwen3_vl_moe_text", {qwen3, experts}},
    {"qwen3_next", {partial_rotary, experts, qwen2_moe, delta, qwen3_next}},
    {"qwen3_5", {partial_rotary, delta}},
    {"qwen3_5_text", {partial_rotary, delta}},
    {"qwen3_5_moe", {partial_rotary, experts, qwen2_moe, delta}},
    {"qwen3_5_moe_text", {partial_rotary, experts, qwen2_moe, delta}},
    {"mellum", {qwen3, experts}},
    {"olmoe", {olmoe, experts}},
    {"youtu", {latent}},
    {"deepseek_v3", {latent, experts, sigmoid}},
    {"kimi_k2", {latent, experts, sigmoid}},
    {"kimi_k25", {latent, experts, sigmoid}},
    {"glm4_moe_lite", {latent, experts, sigmoid}},
    {"deepseek_v32", {latent, experts, sigmoid, indexer}},
    {"glm_moe_dsa", {latent, experts, sigmoid, indexer, glm_moe_dsa}},
    {"phimoe", {experts, phimoe}},
    {"llama4", {complex_rotary, llama4}},
    {"llama4_text", {complex_rotary, llama4}},
    {"deepseek_v2", {latent, complex_rotary, experts, deepseek_v2}},
    {"mistral4", {latent, experts, sigmoid, mistral4}},
    {"flex_olmo", {norms_behind, olmo2, experts}},
    {"nemotron_h", {experts, sigmoid, mamba, nemotron_h}},
    {"granitemoehybrid", {granite, experts, granitemoe, mamba, granitemoehybrid}},
    {"bamba", {partial_rotary, mamba, bamba}},
    {"falcon_h1", {granite, mamba, falcon_h1}},
    {"gpt_oss", {experts, gpt_oss}},
    {"gemma3n", {gemma, softcap, per_layer, gemma3n}},
    {"gemma3n_text", {gemma, softcap, per_layer, gemma3n}},
    {"gemma4", {experts, gemma, softcap, per_layer, gemma4}},
    {"gemma4_text", {experts, gemma, softcap, per_layer, gemma4}},
    {"gemma4_unified", {experts, gemma, softcap, per_layer, gemma4}},
    {"gemma4_unified_text", {experts, gemma, softcap, per_layer, gemma4}},
};

size_t rvli_texts_of(const char *type, const char **texts_out)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].type, type) != 0)
            continue;
        size_t count = 0;
        texts_out[count++] = decoder;
        for (int n = 0; n < RVLI_TEXTS_MAX - 1 && families[i].own[n] != NULL; n++)
            texts_out[count++] = families[i].own[n];
        return count;
    }
    return 0;
}

/* ---- Conditions ---- */

/* If some layers see all tokens and some a window, only those with a window have positions. */
static bool rotates(const rvli_graph *g)
{
    const rvl_model *model = g->t->model;
    return !rvli_has_layers(model, RVLI_LAYER_WINDOW) ||
           rvli_layer_is(model, g->t->at, RVLI_LAYER_WINDOW);
}

static bool has_qk_norm(const rvli_graph *g)
{
    return g->t->units[g->unit].by_role[RVLI_ROLE_Q_NORM] != 0;
}

static bool drops_embeddings(const rvli_graph *g)
{
    return (g->t->model->features & RVLI_INPUT_DROPOUT) != 0;
}

static bool is_sparse(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_SPARSE);
}

static bool has_shared(const rvli_graph *g)
{
    return g->t->model->dim[RVLI_DIM_SHARED_INTERMEDIATE] > 0;
}

static bool is_convolution(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_CONV);
}

static bool is_delta(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_DELTA);
}

static bool is_mamba(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_MAMBA);
}

static bool has_attention(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_ATTENTION);
}

static bool has_positions(const rvli_graph *g)
{
    return (g->t->model->features & RVLI_NO_ROTARY) == 0;
}

static bool caps_logits(const rvli_graph *g)
{
    return (g->t->model->features & RVLI_CAPPED_LOGITS) != 0;
}

static bool has_input_noise(const rvli_graph *g)
{
    return (g->t->model->features & RVLI_JITTER) != 0;
}

static bool is_windowed(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_WINDOW);
}

static bool compresses_q(const rvli_graph *g)
{
    return (g->t->model->features & RVLI_Q_LORA) != 0;
}

static bool has_keys(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_KEYS);
}

static bool has_keys_as_values(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_KEYS_AS_VALUES);
}

/* Whether no later layer of the same kind has its own keys. */
static bool stores_keys(const rvli_graph *g)
{
    const rvl_model *model = g->t->model;
    for (uint32_t later = g->t->at + 1; later < model->layers; later++) {
        if (rvli_layer_is(model, later, RVLI_LAYER_KEYS) &&
            rvli_layer_is(model, later, RVLI_LAYER_WINDOW) == is_windowed(g))
            return false;
    }
    return true;
}

static bool cuts_gate(const rvli_graph *g)
{
    return rvli_layer_is(g->t->model, g->t->at, RVLI_LAYER_CUT);
}

static bool has_embedding(const rvli_graph *g)
{
    return (g->t->model->features & RVLI_PER_LAYER) != 0;
}

static bool adapts_parameters(const rvli_graph *g)
{
    return g->t->options->lora_targets == RVL_MODEL_LORA_ALL_LINEAR && rvli_is_frozen(g->t) &&
           rvli_all_linear_rule(g->t->model) == RVLI_LORA_PARAMETERS;
}

static bool shares_heads(const rvli_graph *g)
{
    return rvli_shares_heads(g->t);
}

static const struct {
    const char *name;
    bool (*holds)(const rvli_graph *g);
} conditions[] = {
    {"repeats_heads", rvli_repeats_heads},
    {"shares_heads", shares_heads},
    {"rotates", rotates},
    {"use_qk_norm", has_qk_norm},
    {"embeddings_drop_out", drops_embeddings},
    {"final_logit_softcapping", caps_logits},
    {"is_sparse", is_sparse},
    {"is_convolution", is_convolution},
    {"is_delta", is_delta},
    {"is_mamba", is_mamba},
    {"has_attention", has_attention},
    {"has_positions", has_positions},
    {"has_shared_experts", has_shared},
    {"compresses_q", compresses_q},
    {"is_windowed", is_windowed},
    {"has_keys", has_keys},
    {"keys_are_values", has_keys_as_values},
    {"store_full_length_kv", stores_keys},
    {"has_per_layer_input", has_embedding},
    {"has_activation_sparsity", cuts_gate},
    {"input_jitter_noise", has_input_noise},
    {"adapts_parameters", adapts_parameters},
};

bool (*rvli_condition_find(rvli_text_word name))(const rvli_graph *g)
{
    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        if (rvli_word_is(name, conditions[i].name))
            return conditions[i].holds;
    }
    return NULL;
}
