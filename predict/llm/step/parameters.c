/* SPDX-License-Identifier: MIT */
/* The parameters of a step in the order of the module, and the units that FSDP2 makes of them. */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

#include "predict/llm/step/training.h"

#define LAYER "model.layers.%L."
#define DELTA LAYER "linear_attn."
#define SHARED LAYER "mlp.shared_experts."
#define MAMBA LAYER "mamba."
#define ATTENTION LAYER "self_attn."
#define EXPERT LAYER "mlp.experts.%E."

typedef struct named_role {
    const char *pattern;
    rvli_role role;
} named_role;

static const named_role roles[] = {
    {"model.embed_tokens.weight", RVLI_ROLE_EMBEDDING},
    {"lm_head.weight", RVLI_ROLE_HEAD},
    {"lm_head.bias", RVLI_ROLE_HEAD_BIAS},
    {"model.norm.weight", RVLI_ROLE_LAST_NORM},
    {"model.norm.bias", RVLI_ROLE_LAST_NORM_BIAS},
    {LAYER "self_attn.q_proj.weight", RVLI_ROLE_Q},
    {LAYER "self_attn.q_proj.bias", RVLI_ROLE_Q_BIAS},
    {LAYER "self_attn.k_proj.weight", RVLI_ROLE_K},
    {LAYER "self_attn.k_proj.bias", RVLI_ROLE_K_BIAS},
    {LAYER "self_attn.v_proj.weight", RVLI_ROLE_V},
    {LAYER "self_attn.v_proj.bias", RVLI_ROLE_V_BIAS},
    {LAYER "self_attn.qkv_proj.weight", RVLI_ROLE_QKV},
    {LAYER "self_attn.q_a_proj.weight", RVLI_ROLE_Q_DOWN},
    {LAYER "self_attn.q_b_proj.weight", RVLI_ROLE_Q},
    {LAYER "self_attn.kv_a_proj_with_mqa.weight", RVLI_ROLE_K},
    {LAYER "self_attn.kv_b_proj.weight", RVLI_ROLE_V},
    {LAYER "self_attn.o_proj.weight", RVLI_ROLE_O},
    {LAYER "self_attn.o_proj.bias", RVLI_ROLE_O_BIAS},
    {LAYER "self_attn.q_a_layernorm.weight", RVLI_ROLE_Q_NORM},
    {LAYER "self_attn.kv_a_layernorm.weight", RVLI_ROLE_K_NORM},
    {LAYER "self_attn.q_norm.weight", RVLI_ROLE_Q_NORM},
    {LAYER "self_attn.k_norm.weight", RVLI_ROLE_K_NORM},
    {LAYER "mlp.gate_proj.weight", RVLI_ROLE_GATE},
    {LAYER "mlp.up_proj.weight", RVLI_ROLE_UP},
    {LAYER "mlp.gate_up_proj.weight", RVLI_ROLE_GATE_UP},
    {LAYER "mlp.down_proj.weight", RVLI_ROLE_DOWN},
    {LAYER "mlp.gate_proj.bias", RVLI_ROLE_GATE_BIAS},
    {LAYER "mlp.up_proj.bias", RVLI_ROLE_UP_BIAS},
    {LAYER "mlp.down_proj.bias", RVLI_ROLE_DOWN_BIAS},
    {LAYER "mlp.act_fn.alpha_p", RVLI_ROLE_ALPHA_P},
    {LAYER "mlp.act_fn.alpha_n", RVLI_ROLE_ALPHA_N},
    {LAYER "mlp.gate.weight", RVLI_ROLE_ROUTER},
    {LAYER "mlp.gate.bias", RVLI_ROLE_ROUTER_BIAS},
    {LAYER "self_attn.sinks", RVLI_ROLE_SINKS},
    {SHARED "gate_proj.weight", RVLI_ROLE_SHARED_GATE},
    {SHARED "up_proj.weight", RVLI_ROLE_SHARED_UP},
    {LAYER "shared_mlp.input_linear.weight", RVLI_ROLE_SHARED_UP},
    {SHARED "down_proj.weight", RVLI_ROLE_SHARED_DOWN},
    {LAYER "mlp.shared_expert_gate.weight", RVLI_ROLE_SHARED_OPEN},
    {EXPERT "gate_proj.weight", RVLI_ROLE_GATE},
    {EXPERT "up_proj.weight", RVLI_ROLE_GATE},
    {EXPERT "down_proj.weight", RVLI_ROLE_DOWN},
    {EXPERT "gate_proj.bias", RVLI_ROLE_EXPERTS_UP_BIAS},
    {EXPERT "down_proj.bias", RVLI_ROLE_EXPERTS_DOWN_BIAS},
    {LAYER "mamba.in_proj.weight", RVLI_ROLE_MAMBA_IN},
    {LAYER "mamba.conv1d.weight", RVLI_ROLE_MAMBA_CONV},
    {LAYER "mamba.conv1d.bias", RVLI_ROLE_MAMBA_CONV_BIAS},
    {LAYER "mamba.dt_bias", RVLI_ROLE_MAMBA_RATES},
    {LAYER "mamba.A_log", RVLI_ROLE_MAMBA_DECAY},
    {LAYER "mamba.D", RVLI_ROLE_MAMBA_SKIP},
    {LAYER "mamba.norm.weight", RVLI_ROLE_MAMBA_NORM},
    {LAYER "mamba.out_proj.weight", RVLI_ROLE_MAMBA_OUT},
    {LAYER "conv.conv.weight", RVLI_ROLE_CONV},
    {LAYER "conv.in_proj.weight", RVLI_ROLE_CONV_IN},
    {LAYER "conv.out_proj.weight", RVLI_ROLE_CONV_OUT},
    {LAYER "norm.weight", RVLI_ROLE_NORM_BEFORE_ATTENTION},
    {DELTA "in_proj_qkvz.weight", RVLI_ROLE_DELTA_QKV},
    {DELTA "in_proj_qkv.weight", RVLI_ROLE_DELTA_QKV},
    {DELTA "in_proj_z.weight", RVLI_ROLE_DELTA_GATE},
    {DELTA "in_proj_ba.weight", RVLI_ROLE_DELTA_BETA},
    {DELTA "in_proj_b.weight", RVLI_ROLE_DELTA_BETA},
    {DELTA "in_proj_a.weight", RVLI_ROLE_DELTA_DECAY},
    {DELTA "conv1d.weight", RVLI_ROLE_DELTA_CONV},
    {DELTA "dt_bias", RVLI_ROLE_DELTA_BIAS},
    {DELTA "A_log", RVLI_ROLE_DELTA_RATE},
    {DELTA "norm.weight", RVLI_ROLE_DELTA_NORM},
    {DELTA "out_proj.weight", RVLI_ROLE_DELTA_OUT},
    {LAYER "input_layernorm.weight", RVLI_ROLE_NORM_BEFORE_ATTENTION},
    {LAYER "input_layernorm.bias", RVLI_ROLE_NORM_BEFORE_ATTENTION_BIAS},
    {LAYER "post_attention_layernorm.weight", RVLI_ROLE_NORM_BEFORE_MLP},
    {LAYER "post_attention_layernorm.bias", RVLI_ROLE_NORM_BEFORE_MLP_BIAS},
    {LAYER "pre_feedforward_layernorm.weight", RVLI_ROLE_NORM_BEFORE_MLP},
    {LAYER "post_feedforward_layernorm.weight", RVLI_ROLE_NORM_BEHIND_MLP},
    {LAYER "post_self_attn_layernorm.weight", RVLI_ROLE_NORM_BEHIND_ATTENTION},
    {LAYER "post_mlp_layernorm.weight", RVLI_ROLE_NORM_BEHIND_MLP},
    {"model.embed_tokens_per_layer.weight", RVLI_ROLE_EMBEDDINGS},
    {"model.per_layer_model_projection.weight", RVLI_ROLE_EMBEDDINGS_PROJECTION},
    {"model.per_layer_projection_norm.weight", RVLI_ROLE_EMBEDDINGS_NORM},
    {LAYER "per_layer_input_gate.weight", RVLI_ROLE_PER_LAYER_GATE},
    {LAYER "per_layer_projection.weight", RVLI_ROLE_PER_LAYER_PROJECTION},
    {LAYER "post_per_layer_input_norm.weight", RVLI_ROLE_PER_LAYER_NORM},
    {LAYER "mlp.gate.scale", RVLI_ROLE_ROUTER_SCALE},
    {LAYER "mlp.gate.per_expert_scale", RVLI_ROLE_EXPERT_SCALE},
    {LAYER "post_feedforward_layernorm_1.weight", RVLI_ROLE_NORM_BEHIND_MLP_ALONE},
    {LAYER "pre_feedforward_layernorm_2.weight", RVLI_ROLE_NORM_BEFORE_EXPERTS},
    {LAYER "post_feedforward_layernorm_2.weight", RVLI_ROLE_NORM_BEHIND_EXPERTS},
    {LAYER "altup.router_norm.weight", RVLI_ROLE_ROUTER_NORM},
    {LAYER "altup.modality_router.weight", RVLI_ROLE_MODALITIES},
    {LAYER "altup.prediction_coefs.weight", RVLI_ROLE_PREDICTION},
    {LAYER "altup.correction_coefs.weight", RVLI_ROLE_CORRECTION},
    {LAYER "altup.correct_output_scale", RVLI_ROLE_CORRECT_SCALE},
    {LAYER "laurel.linear_left.weight", RVLI_ROLE_LAUREL_LEFT},
    {LAYER "laurel.linear_right.weight", RVLI_ROLE_LAUREL_RIGHT},
    {LAYER "laurel.post_laurel_norm.weight", RVLI_ROLE_LAUREL_NORM},
    {"model.altup_projections.weight", RVLI_ROLE_EMBED_STREAMS},
    {"model.altup_unembed_projections.weight", RVLI_ROLE_UNEMBED_STREAMS},
};

static bool is_of_experts(const char *pattern)
{
    return strncmp(pattern, EXPERT, sizeof EXPERT - 1) == 0;
}

static rvli_role role_of(const rvli_training *t, const char *pattern)
{
    bool behind = (t->model->features & (RVLI_FOUR_NORMS | RVLI_NORMS_BEHIND)) != 0;
    if (behind && strcmp(pattern, LAYER "post_attention_layernorm.weight") == 0)
        return RVLI_ROLE_NORM_BEHIND_ATTENTION;
    bool beside = (t->model->features & RVLI_LAYER_SCALE) != 0;
    if (beside && is_of_experts(pattern))
        return strcmp(pattern, EXPERT "down_proj.weight") == 0 ? RVLI_ROLE_EXPERTS_DOWN
                                                               : RVLI_ROLE_EXPERTS_UP;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(pattern, roles[i].pattern) == 0)
            return roles[i].role;
    }
    return RVLI_ROLE_OTHER;
}

/* Whether the pattern ends with a dot, the name and `behind`. */
static bool ends_with(const char *pattern, const char *name, size_t length, const char *behind)
{
    size_t all = strlen(pattern), tail = length + strlen(behind);
    return all > tail && pattern[all - tail - 1] == '.' &&
           strncmp(pattern + all - tail, name, length) == 0 &&
           strcmp(pattern + all - tail + length, behind) == 0;
}

rvli_role rvli_role_named(const rvli_training *t, const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        const char *pattern = roles[i].pattern;
        if (ends_with(pattern, name, length, ".weight") || ends_with(pattern, name, length, ""))
            return role_of(t, pattern);
    }
    return RVLI_ROLE_OTHER;
}

static rvli_parameter *add(rvli_training *t)
{
    if (!RVLI_ROOM(t->parameters, t->parameter_count, t->parameter_room, 256)) {
        t->tape.failed = true;
        return NULL;
    }
    t->parameters[t->parameter_count] = (rvli_parameter){0};
    return &t->parameters[t->parameter_count++];
}

static void add_to_unit(rvli_training *t, rvli_unit *unit, rvli_role role)
{
    if (unit->count++ == 0)
        unit->first = t->parameter_count - 1;
    unit->by_role[role] = t->parameter_count;
}

/* Adds the two thin matrices beside a layer's weight. */
static void take_adapter(rvli_training *t, rvli_unit *unit, rvli_role role,
                         const rvli_tensor *tensor)
{
    rvli_tensor parts[2];
    if (!rvli_adapter_of(t->model, t->options->lora_rank, t->options->lora_targets, tensor, parts))
        return;
    uint64_t ranks = t->sharded ? t->options->train_ranks : 1;
    rvli_parameter *base = &t->parameters[unit->by_role[role] - 1];
    bool is_beside_full = !base->is_quantised && base->element_bytes == RVLI_FULL;
    base->adapter = t->parameter_count + 1;
    for (int i = 0; i < 2; i++) {
        rvli_parameter *parameter = add(t);
        if (parameter == NULL)
            return;
        *parameter = (rvli_parameter){.role = RVLI_ROLE_ADAPTER,
                                      .trained = rvli_tensor_learns(tensor),
                                      .is_beside_full = is_beside_full,
                                      .element_bytes = rvli_adapter_bytes(t),
                                      .elements = parts[i].rows * parts[i].columns,
                                      .share_elements = rvli_tensor_share(&parts[i], ranks)};
        unit->count++;
    }
}

/* In PEFT's module the adapters come after weight and bias. */
static void put_before_adapter(rvli_training *t, rvli_unit *unit, rvli_role role)
{
    static const rvli_role weights[RVLI_ROLE_COUNT] = {
        [RVLI_ROLE_Q_BIAS] = RVLI_ROLE_Q,       [RVLI_ROLE_K_BIAS] = RVLI_ROLE_K,
        [RVLI_ROLE_V_BIAS] = RVLI_ROLE_V,       [RVLI_ROLE_O_BIAS] = RVLI_ROLE_O,
        [RVLI_ROLE_GATE_BIAS] = RVLI_ROLE_GATE, [RVLI_ROLE_UP_BIAS] = RVLI_ROLE_UP,
        [RVLI_ROLE_DOWN_BIAS] = RVLI_ROLE_DOWN};
    uint32_t weight = weights[role] != RVLI_ROLE_OTHER ? unit->by_role[weights[role]] : 0;
    if (weight == 0 || t->tape.failed)
        return;
    uint32_t *adapter = &t->parameters[weight - 1].adapter;
    if (*adapter == 0)
        return;
    rvli_parameter *first = &t->parameters[*adapter - 1];
    rvli_parameter bias = t->parameters[t->parameter_count - 1];
    first[2] = first[1];
    first[1] = first[0];
    first[0] = bias;
    unit->by_role[role] = (*adapter)++;
}

/* Families with the experts before the router in the module: DeepSeek's, Llama 4, and Qwen3's
 * without a shared expert. */
static bool has_experts_first(const rvl_model *model)
{
    const uint64_t deepseek = RVLI_ROUTER_BIAS | RVLI_FULL_ROUTER;
    if ((model->features & deepseek) == deepseek)
        return (model->features & RVLI_SHARED_FIRST) == 0;
    if (model->features & (RVLI_MLA | RVLI_ALL_EXPERTS))
        return true;
    if (model->features & RVLI_LAYER_SCALE)
        return false;
    return (model->features & RVLI_QK_NORM) != 0 &&
           (model->features & (RVLI_GATED_Q | RVLI_SHARED)) == 0;
}

static void swap_ranges(rvli_parameter *all, uint32_t first, uint32_t second)
{
    for (uint32_t i = 0; i < second; i++) {
        rvli_parameter moved = all[first + i];
        memmove(&all[i + 1], &all[i], first * sizeof *all);
        all[i] = moved;
    }
}

/* Moves what an expert's tensor has brought, from `from` on, before the router and its adapter, so
 * that these stay right behind the experts. */
static void put_before_router(rvli_training *t, rvli_unit *unit, uint32_t from, rvli_role role)
{
    uint32_t router = unit->by_role[RVLI_ROLE_ROUTER];
    if (t->tape.failed || router == 0 || router > from || !has_experts_first(t->model))
        return;
    uint32_t moved = t->parameter_count - from, passed = from - (router - 1);
    rvli_parameter *first = &t->parameters[router - 1];
    if (passed != (first->adapter != 0 ? 3 : 1))
        return;
    swap_ranges(first, passed, moved);
    unit->by_role[role] = router;
    unit->by_role[RVLI_ROLE_ROUTER] = router + moved;
    if (first->adapter != 0)
        first->adapter -= passed;
    if (first[moved].adapter != 0)
        first[moved].adapter += moved;
}

/* PEFT wraps the experts once for each of their two parameters, one wrapper around the other. So
 * the adapters of both come after both. */
static void put_before_experts_adapter(rvli_training *t, rvli_unit *unit, rvli_role role)
{
    uint32_t second = unit->by_role[role];
    rvli_parameter *first = second > 3 && !t->tape.failed ? &t->parameters[second - 4] : NULL;
    if (first == NULL || first->adapter != second - 2 || !is_of_experts(first->pattern))
        return;
    swap_ranges(first + 1, 2, 1);
    first->adapter++;
    unit->by_role[role] = second - 2;
}

/* Buffers of the module: the bias of the choice of experts, and Gemma 4's layer_scalar. */
static bool is_buffer(const rvli_tensor *tensor)
{
    return strcmp(tensor->pattern, LAYER "mlp.gate.e_score_correction_bias") == 0 ||
           strcmp(tensor->pattern, LAYER "layer_scalar") == 0;
}

static void take_one(rvli_training *t, const rvli_tensor *tensor)
{
    bool in_layer = tensor->layer != RVL_MODEL_NO_LAYER;
    rvli_unit *unit = in_layer ? &t->units[tensor->layer] : rvli_root(t);
    rvli_role role = role_of(t, tensor->pattern);
    uint32_t from = t->parameter_count;
    rvli_parameter *parameter = add(t);
    if (parameter == NULL)
        return;
    uint64_t ranks = t->sharded ? t->options->train_ranks : 1;
    bool quantised = rvli_is_quantised(t->model, t->options->base_dtype, tensor);
    uint64_t plain = rvli_is_wide_router(t, role) ? RVLI_FULL : rvli_flow_bytes(t);
    *parameter = (rvli_parameter){
        .pattern = tensor->pattern,
        .layer = tensor->layer,
        .role = role,
        .is_quantised = quantised,
        .trained = !rvli_is_frozen(t) && rvli_tensor_learns(tensor),
        .element_bytes = quantised ? RVLI_HALF : plain,
        .elements = tensor->stack * tensor->rows * tensor->columns,
        .share_elements = rvli_base_share(t->model, t->options->base_dtype, tensor, ranks)};
    add_to_unit(t, unit, role);
    put_before_adapter(t, unit, role);
    take_adapter(t, unit, role, tensor);
    if (is_of_experts(tensor->pattern)) {
        put_before_router(t, unit, from, role);
        put_before_experts_adapter(t, unit, role);
    }
}

/* The module has one matrix for each stream's projection. */
static uint64_t part_count(const rvli_training *t, const rvli_tensor *tensor)
{
    rvli_role role = role_of(t, tensor->pattern);
    bool streams = role == RVLI_ROLE_EMBED_STREAMS || role == RVLI_ROLE_UNEMBED_STREAMS;
    return streams ? t->model->dim[RVLI_DIM_ALTUP_COUNT] - 1 : 1;
}

static void take(void *user, const rvli_tensor *tensor)
{
    rvli_training *t = user;
    if (is_buffer(tensor))
        return;
    uint64_t parts = part_count(t, tensor);
    rvli_tensor part = *tensor;
    for (uint64_t i = 0; i < parts && !t->tape.failed; i++) {
        part.rows = tensor->rows / parts;
        take_one(t, &part);
    }
}

/* The order of Falcon-H1's modules differs from all others: MLP, Mamba, attention, norms. */
static int place_of(const rvli_parameter *parameter)
{
    static const char *const modules[] = {LAYER "mlp.", MAMBA, ATTENTION};
    const int count = sizeof modules / sizeof modules[0];
    for (int i = 0; i < count; i++) {
        if (strncmp(parameter->pattern, modules[i], strlen(modules[i])) == 0)
            return i;
    }
    return count;
}

/* Sorts the parameters by their modules, with few parameters each. */
static void put_in_order(rvli_training *t, rvli_unit *unit)
{
    rvli_parameter *all = &t->parameters[unit->first];
    for (uint32_t i = 1; i < unit->count; i++) {
        rvli_parameter moved = all[i];
        uint32_t at = i;
        for (; at > 0 && place_of(&all[at - 1]) > place_of(&moved); at--)
            all[at] = all[at - 1];
        all[at] = moved;
    }
    for (uint32_t i = 0; i < unit->count; i++)
        unit->by_role[all[i].role] = unit->first + i + 1;
}

static bool is_of_mixer(const rvli_parameter *parameter)
{
    return parameter->pattern != NULL &&
           (strncmp(parameter->pattern, MAMBA, sizeof MAMBA - 1) == 0 ||
            strncmp(parameter->pattern, ATTENTION, sizeof ATTENTION - 1) == 0);
}

/* Granite's hybrids make Mamba or attention last (GraniteMoeHybridDecoderLayer). */
static void put_mixer_last(rvli_training *t, rvli_unit *unit)
{
    rvli_parameter *all = &t->parameters[unit->first];
    uint32_t first = 0, behind = 0;
    while (first < unit->count && !is_of_mixer(&all[first]))
        first++;
    for (behind = first; behind < unit->count; behind++)
        if (!is_of_mixer(&all[behind]) && all[behind].role != RVLI_ROLE_ADAPTER)
            break;
    uint32_t mixer = behind - first, others = unit->count - behind;
    for (uint32_t i = first; i < unit->count; i++)
        if (all[i].adapter != 0)
            all[i].adapter = i < behind ? all[i].adapter + others : all[i].adapter - mixer;
    swap_ranges(&all[first], mixer, others);
    for (uint32_t i = 0; i < unit->count; i++)
        unit->by_role[all[i].role] = unit->first + i + 1;
}

static void measure(rvli_training *t)
{
    uint64_t ranks = t->sharded ? t->options->train_ranks : 1;
    for (uint32_t layer = 0; layer <= t->model->layers; layer++) {
        rvli_unit *unit = &t->units[layer];
        for (uint32_t i = 0; i < unit->count; i++) {
            const rvli_parameter *parameter = rvli_parameter_of(t, unit, i);
            unit->share_bytes += parameter->share_elements * parameter->element_bytes;
            unit->trained_elements += parameter->trained ? parameter->share_elements : 0;
        }
        unit->gathered_bytes = unit->share_bytes * ranks;
    }
}

rvli_parameter *rvli_parameter_of(const rvli_training *t, const rvli_unit *unit, uint32_t index)
{
    const rvli_unit *last = &t->units[t->model->layers - 1];
    if (unit != rvli_root(t) || index < t->units[0].first)
        return &t->parameters[unit->first + index];
    return &t->parameters[last->first + last->count + index - t->units[0].first];
}

void rvli_parameters_make(rvli_training *t)
{
    rvli_model_walk_trained(t->model, take, t);
    bool is_granite =
        (t->model->features & RVLI_NUMBERS) && rvli_has_layers(t->model, RVLI_LAYER_MAMBA);
    for (uint32_t i = 0; !t->tape.failed && i < t->model->layers; i++) {
        if (t->model->features & RVLI_HYBRID)
            put_in_order(t, &t->units[i]);
        else if (is_granite)
            put_mixer_last(t, &t->units[i]);
    }
    if (!t->tape.failed)
        measure(t);
}
