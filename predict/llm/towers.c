/* SPDX-License-Identifier: MIT */
/*
 * Towers turn images into embeddings. One table of rules has the parameters of every kind of tower.
 *
 * An engine has the whole tower on its first pipeline stage, split over the tensor-parallel ranks
 * as vLLM splits it, and never quantised. A trainer of text does not use it.
 */
#include <string.h>

#include "predict/llm/config_values.h"

#define BF16_BYTES 2
#define TOWER_LAYERS_MAX 256
#define IMAGE_MAX 16384

#define SIGLIP RVLI_TOWER_SIGLIP
#define PIXTRAL RVLI_TOWER_PIXTRAL
#define QWEN25 RVLI_TOWER_QWEN25
#define QWEN3 RVLI_TOWER_QWEN3
#define LLAMA4 RVLI_TOWER_LLAMA4
#define KIMI RVLI_TOWER_KIMI
#define QWEN2 RVLI_TOWER_QWEN2
#define GLM RVLI_TOWER_GLM
#define POOLING (1 << 16) /* SIGLIP with a pooling head */

/* How many: one, one for each layer, or one for each deep layer. */
typedef enum scope { ONCE, LAYER, DEEP } scope;
typedef enum split { WHOLE, BY_ROWS, BY_COLUMNS } split;

typedef struct rule {
    const char *pattern;
    scope scope;
    uint32_t kinds;
    rvli_tower_dim rows;
    rvli_tower_dim columns;
    split split;
} rule;

#define D(name) RVLI_TOWER_##name
#define BLOCK "visual.blocks.%E."
/* with LayerNorm, and an MLP of two matrices */
#define BIASED (SIGLIP | QWEN2 | QWEN3 | LLAMA4 | KIMI)
#define GATED (PIXTRAL | QWEN25 | GLM)
#define ALL (BIASED | GATED)
#define POSITIONED (SIGLIP | QWEN3 | LLAMA4 | KIMI | GLM)
#define SPLIT_QKV (SIGLIP | LLAMA4 | KIMI)
#define ONE_QKV (QWEN2 | QWEN25 | QWEN3)
#define MERGING (ONE_QKV | KIMI)

static const rule rules[] = {
    {"visual.patch_embed.weight", ONCE, ALL, D(HIDDEN), D(PATCH), WHOLE},
    {"visual.patch_embed.bias", ONCE, SIGLIP | QWEN3 | KIMI | GLM, D(HIDDEN), D(ONE), WHOLE},
    {"visual.pos_embed.weight", ONCE, POSITIONED, D(POSITIONS), D(HIDDEN), WHOLE},
    {"visual.class_embedding", ONCE, LLAMA4, D(HIDDEN), D(ONE), WHOLE},
    {"visual.pre_norm.weight", ONCE, LLAMA4 | PIXTRAL | GLM, D(HIDDEN), D(ONE), WHOLE},
    {"visual.pre_norm.bias", ONCE, LLAMA4, D(HIDDEN), D(ONE), WHOLE},

    {BLOCK "norm1.weight", LAYER, ALL, D(HIDDEN), D(ONE), WHOLE},
    {BLOCK "norm1.bias", LAYER, BIASED, D(HIDDEN), D(ONE), WHOLE},
    {BLOCK "norm2.weight", LAYER, ALL, D(HIDDEN), D(ONE), WHOLE},
    {BLOCK "norm2.bias", LAYER, BIASED, D(HIDDEN), D(ONE), WHOLE},
    {BLOCK "attn.qkv.weight", LAYER, ONE_QKV | GLM, D(THREE_HIDDEN), D(HIDDEN), BY_ROWS},
    {BLOCK "attn.qkv.bias", LAYER, ONE_QKV, D(THREE_HIDDEN), D(ONE), BY_ROWS},
    {BLOCK "attn.q_proj.weight", LAYER, SPLIT_QKV | PIXTRAL, D(HIDDEN), D(HIDDEN), BY_ROWS},
    {BLOCK "attn.q_proj.bias", LAYER, SPLIT_QKV, D(HIDDEN), D(ONE), BY_ROWS},
    {BLOCK "attn.k_proj.weight", LAYER, SPLIT_QKV | PIXTRAL, D(HIDDEN), D(HIDDEN), BY_ROWS},
    {BLOCK "attn.k_proj.bias", LAYER, SPLIT_QKV, D(HIDDEN), D(ONE), BY_ROWS},
    {BLOCK "attn.v_proj.weight", LAYER, SPLIT_QKV | PIXTRAL, D(HIDDEN), D(HIDDEN), BY_ROWS},
    {BLOCK "attn.v_proj.bias", LAYER, SPLIT_QKV, D(HIDDEN), D(ONE), BY_ROWS},
    {BLOCK "attn.proj.weight", LAYER, ALL, D(HIDDEN), D(HIDDEN), BY_COLUMNS},
    {BLOCK "attn.proj.bias", LAYER, BIASED | QWEN25, D(HIDDEN), D(ONE), WHOLE},
    {BLOCK "mlp.fc1.weight", LAYER, BIASED, D(INTERMEDIATE), D(HIDDEN), BY_ROWS},
    {BLOCK "mlp.fc1.bias", LAYER, BIASED, D(INTERMEDIATE), D(ONE), BY_ROWS},
    {BLOCK "mlp.fc2.weight", LAYER, BIASED, D(HIDDEN), D(INTERMEDIATE), BY_COLUMNS},
    {BLOCK "mlp.fc2.bias", LAYER, BIASED, D(HIDDEN), D(ONE), WHOLE},
    {BLOCK "mlp.gate_proj.weight", LAYER, GATED, D(INTERMEDIATE), D(HIDDEN), BY_ROWS},
    {BLOCK "mlp.gate_proj.bias", LAYER, QWEN25, D(INTERMEDIATE), D(ONE), BY_ROWS},
    {BLOCK "mlp.up_proj.weight", LAYER, GATED, D(INTERMEDIATE), D(HIDDEN), BY_ROWS},
    {BLOCK "mlp.up_proj.bias", LAYER, QWEN25, D(INTERMEDIATE), D(ONE), BY_ROWS},
    {BLOCK "mlp.down_proj.weight", LAYER, GATED, D(HIDDEN), D(INTERMEDIATE), BY_COLUMNS},
    {BLOCK "mlp.down_proj.bias", LAYER, QWEN25, D(HIDDEN), D(ONE), WHOLE},

    {"visual.post_norm.weight", ONCE, SIGLIP | LLAMA4 | KIMI | GLM, D(HIDDEN), D(ONE), WHOLE},
    {"visual.post_norm.bias", ONCE, SIGLIP | LLAMA4 | KIMI, D(HIDDEN), D(ONE), WHOLE},
    {"visual.head.probe", ONCE, POOLING, D(ONE), D(HIDDEN), WHOLE},
    {"visual.head.attention.in_proj.weight", ONCE, POOLING, D(THREE_HIDDEN), D(HIDDEN), WHOLE},
    {"visual.head.attention.in_proj.bias", ONCE, POOLING, D(THREE_HIDDEN), D(ONE), WHOLE},
    {"visual.head.attention.out_proj.weight", ONCE, POOLING, D(HIDDEN), D(HIDDEN), WHOLE},
    {"visual.head.attention.out_proj.bias", ONCE, POOLING, D(HIDDEN), D(ONE), WHOLE},
    {"visual.head.layernorm.weight", ONCE, POOLING, D(HIDDEN), D(ONE), WHOLE},
    {"visual.head.layernorm.bias", ONCE, POOLING, D(HIDDEN), D(ONE), WHOLE},
    {"visual.head.mlp.fc1.weight", ONCE, POOLING, D(INTERMEDIATE), D(HIDDEN), BY_ROWS},
    {"visual.head.mlp.fc1.bias", ONCE, POOLING, D(INTERMEDIATE), D(ONE), BY_ROWS},
    {"visual.head.mlp.fc2.weight", ONCE, POOLING, D(HIDDEN), D(INTERMEDIATE), BY_COLUMNS},
    {"visual.head.mlp.fc2.bias", ONCE, POOLING, D(HIDDEN), D(ONE), WHOLE},

    {"visual.merger.norm.weight", ONCE, MERGING, D(HIDDEN), D(ONE), WHOLE},
    {"visual.merger.norm.bias", ONCE, QWEN2 | QWEN3 | KIMI, D(HIDDEN), D(ONE), WHOLE},
    {"visual.merger.linear_fc1.weight", ONCE, MERGING, D(MERGED), D(MERGED), BY_ROWS},
    {"visual.merger.linear_fc1.bias", ONCE, MERGING, D(MERGED), D(ONE), BY_ROWS},
    {"visual.merger.linear_fc2.weight", ONCE, MERGING, D(OUT), D(MERGED), BY_COLUMNS},
    {"visual.merger.linear_fc2.bias", ONCE, MERGING, D(OUT), D(ONE), WHOLE},
    {"visual.deepstack_merger_list.%E.norm.weight", DEEP, QWEN3, D(MERGED), D(ONE), WHOLE},
    {"visual.deepstack_merger_list.%E.norm.bias", DEEP, QWEN3, D(MERGED), D(ONE), WHOLE},
    {"visual.deepstack_merger_list.%E.linear_fc1.weight", DEEP, QWEN3, D(MERGED), D(MERGED),
     BY_ROWS},
    {"visual.deepstack_merger_list.%E.linear_fc1.bias", DEEP, QWEN3, D(MERGED), D(ONE), BY_ROWS},
    {"visual.deepstack_merger_list.%E.linear_fc2.weight", DEEP, QWEN3, D(OUT), D(MERGED),
     BY_COLUMNS},
    {"visual.deepstack_merger_list.%E.linear_fc2.bias", DEEP, QWEN3, D(OUT), D(ONE), WHOLE},
    {"visual.downsample.weight", ONCE, GLM, D(OUT), D(MERGED), WHOLE},
    {"visual.downsample.bias", ONCE, GLM, D(OUT), D(ONE), WHOLE},
    {"visual.merger.proj.weight", ONCE, GLM, D(OUT), D(OUT), WHOLE},
    {"visual.merger.post_projection_norm.weight", ONCE, GLM, D(OUT), D(ONE), WHOLE},
    {"visual.merger.post_projection_norm.bias", ONCE, GLM, D(OUT), D(ONE), WHOLE},
    {"visual.merger.gate_proj.weight", ONCE, GLM, D(ADAPTER), D(OUT), BY_ROWS},
    {"visual.merger.up_proj.weight", ONCE, GLM, D(ADAPTER), D(OUT), BY_ROWS},
    {"visual.merger.down_proj.weight", ONCE, GLM, D(OUT), D(ADAPTER), BY_COLUMNS},
    {"projector.weight", ONCE, SIGLIP, D(HIDDEN), D(TEXT), WHOLE},
    {"projector.norm.weight", ONCE, SIGLIP | PIXTRAL, D(HIDDEN), D(ONE), WHOLE},
    {"projector.patch_merger.weight", ONCE, PIXTRAL, D(HIDDEN), D(MERGED), WHOLE},
    {"projector.linear_1.weight", ONCE, PIXTRAL, D(TEXT), D(HIDDEN), BY_ROWS},
    {"projector.linear_2.weight", ONCE, PIXTRAL, D(TEXT), D(TEXT), BY_COLUMNS},
    {"visual.adapter.fc1.weight", ONCE, LLAMA4, D(ADAPTER), D(INTERMEDIATE), BY_ROWS},
    {"visual.adapter.fc2.weight", ONCE, LLAMA4, D(OUT), D(OUT), WHOLE},
    {"projector.linear.weight", ONCE, LLAMA4, D(TEXT), D(PROJECTED), WHOLE},
};

#define RULE_COUNT (sizeof rules / sizeof rules[0])

static uint32_t times(const rule *r, const rvli_tower *tower)
{
    uint32_t kinds = tower->kind | (tower->pools ? POOLING : 0);
    if ((r->kinds & kinds) == 0)
        return 0;
    return r->scope == ONCE ? 1 : r->scope == DEEP ? tower->deep : tower->layers;
}

/* ---- Reading ---- */

typedef void (*read_fn)(rvli_reader *r, rvli_tower *tower);

static uint64_t dimension(rvli_reader *r, const char *key, uint64_t fallback)
{
    return rvli_read_number(r, key, fallback, IMAGE_MAX);
}

static void read_usual(rvli_reader *r, rvli_tower *tower, const char *layers)
{
    tower->layers = (uint32_t)rvli_read_number(r, layers, 0, TOWER_LAYERS_MAX);
    tower->dim[D(HIDDEN)] = dimension(r, "hidden_size", 0);
    tower->dim[D(INTERMEDIATE)] = dimension(r, "intermediate_size", 0);
}

/* Square images of three colours, cut into patches. */
static void read_patches(rvli_reader *r, rvli_tower *tower, uint64_t more)
{
    uint64_t patch = dimension(r, "patch_size", 0), image = dimension(r, "image_size", 0);
    tower->dim[D(PATCH)] = 3 * patch * patch;
    tower->dim[D(POSITIONS)] = image / patch * (image / patch) + more;
}

static void read_siglip(rvli_reader *r, rvli_tower *tower)
{
    read_usual(r, tower, "num_hidden_layers");
    read_patches(r, tower, 0);
    tower->pools = rvli_read_flag(r, "vision_use_head", true);
}

static void read_pixtral(rvli_reader *r, rvli_tower *tower)
{
    uint64_t patch = dimension(r, "patch_size", 0);
    read_usual(r, tower, "num_hidden_layers");
    tower->dim[D(PATCH)] = 3 * patch * patch;
    tower->dim[D(MERGED)] = 4 * tower->dim[D(HIDDEN)]; /* spatial_merge_size 2 */
}

static void read_qwen25(rvli_reader *r, rvli_tower *tower)
{
    uint64_t patch = dimension(r, "patch_size", 14), merge = dimension(r, "spatial_merge_size", 2);
    read_usual(r, tower, "depth");
    tower->dim[D(PATCH)] = 3 * patch * patch * dimension(r, "temporal_patch_size", 2);
    tower->dim[D(MERGED)] =
        rvli_read_product(r, "spatial_merge_size", merge * merge, tower->dim[D(HIDDEN)]);
    tower->dim[D(OUT)] = dimension(r, "out_hidden_size", 0);
}

/* Qwen2-VL: hidden_size is that of the language model. */
static void read_qwen2(rvli_reader *r, rvli_tower *tower)
{
    uint64_t patch = dimension(r, "patch_size", 14), merge = dimension(r, "spatial_merge_size", 2);
    uint64_t hidden = dimension(r, "embed_dim", 1280);
    tower->layers = (uint32_t)rvli_read_number(r, "depth", 32, TOWER_LAYERS_MAX);
    tower->dim[D(HIDDEN)] = hidden;
    tower->dim[D(INTERMEDIATE)] =
        rvli_read_product(r, "mlp_ratio", dimension(r, "mlp_ratio", 4), hidden);
    tower->dim[D(PATCH)] = 3 * patch * patch * dimension(r, "temporal_patch_size", 2);
    tower->dim[D(MERGED)] = rvli_read_product(r, "spatial_merge_size", merge * merge, hidden);
    tower->dim[D(OUT)] = dimension(r, "hidden_size", 0);
}

/* The MLP of a block is as wide as the tower's output. intermediate_size is that of the merger. */
static void read_glm(rvli_reader *r, rvli_tower *tower)
{
    uint64_t merge = dimension(r, "spatial_merge_size", 2);
    read_usual(r, tower, "depth");
    read_patches(r, tower, 0);
    tower->dim[D(PATCH)] *= dimension(r, "temporal_patch_size", 2);
    tower->dim[D(ADAPTER)] = tower->dim[D(INTERMEDIATE)];
    tower->dim[D(OUT)] = dimension(r, "out_hidden_size", 0);
    tower->dim[D(INTERMEDIATE)] = tower->dim[D(OUT)];
    tower->dim[D(MERGED)] =
        rvli_read_product(r, "spatial_merge_size", merge * merge, tower->dim[D(HIDDEN)]);
    if (rvli_read_flag(r, "attention_bias", false))
        rvli_read_refuse(r, "attention_bias", "true is not known for this tower: set it to false");
}

static void read_qwen3(rvli_reader *r, rvli_tower *tower)
{
    read_qwen25(r, tower);
    tower->dim[D(POSITIONS)] = rvli_read_dimension(r, "num_position_embeddings", 0);
    tower->deep = (uint32_t)json_array_size(rvli_read_value(r, "deepstack_visual_indexes"));
    if (tower->deep > tower->layers)
        rvli_read_refuse(r, "deepstack_visual_indexes", "impossible: more than there are layers");
}

static void read_llama4(rvli_reader *r, rvli_tower *tower)
{
    read_usual(r, tower, "num_hidden_layers");
    read_patches(r, tower, 1);
    tower->dim[D(ADAPTER)] = dimension(r, "projector_input_dim", 0);
    tower->dim[D(OUT)] = dimension(r, "projector_output_dim", 0);
    tower->dim[D(PROJECTED)] = dimension(r, "vision_output_dim", 0);
}

/* Published configs have other keys ("vt_..."), for which transformers uses its defaults. */
static uint64_t of_kimi(rvli_reader *r, const char *key, const char *published, uint64_t fallback)
{
    return dimension(r, key, dimension(r, published, fallback));
}

static void read_kimi(rvli_reader *r, rvli_tower *tower)
{
    uint64_t patch = dimension(r, "patch_size", 14);
    uint64_t height = of_kimi(r, "pos_emb_height", "init_pos_emb_height", 64);
    uint64_t width = of_kimi(r, "pos_emb_width", "init_pos_emb_width", 64);
    uint64_t layers = rvli_read_number(r, "vt_num_hidden_layers", 27, TOWER_LAYERS_MAX);
    tower->layers = (uint32_t)rvli_read_number(r, "num_hidden_layers", layers, TOWER_LAYERS_MAX);
    tower->dim[D(HIDDEN)] = of_kimi(r, "hidden_size", "vt_hidden_size", 1152);
    tower->dim[D(INTERMEDIATE)] = of_kimi(r, "intermediate_size", "vt_intermediate_size", 4304);
    tower->dim[D(PATCH)] = 3 * patch * patch;
    tower->dim[D(POSITIONS)] = height * width;
    tower->dim[D(MERGED)] = 4 * tower->dim[D(HIDDEN)];
    tower->dim[D(OUT)] = tower->dim[D(TEXT)];
}

static const struct {
    uint32_t kind;
    read_fn read;
} readers[] = {{SIGLIP, read_siglip}, {PIXTRAL, read_pixtral}, {QWEN25, read_qwen25},
               {QWEN3, read_qwen3},   {LLAMA4, read_llama4},   {KIMI, read_kimi},
               {QWEN2, read_qwen2},   {GLM, read_glm}};

void rvli_tower_read(rvli_reader *r)
{
    const json_t *vision = json_object_get(r->root, "vision_config"), *text = r->config;
    rvli_tower *tower = &r->model->tower;
    if (r->family->tower == 0 || vision == NULL || json_is_null(vision))
        return;
    if (!json_is_object(vision)) {
        rvli_read_refuse(r, "vision_config",
                         "impossible: expected an object with the tower's sizes");
        return;
    }
    r->config = vision;
    tower->kind = r->family->tower;
    tower->dim[D(ONE)] = 1;
    tower->dim[D(TEXT)] = r->model->dim[RVLI_DIM_HIDDEN];
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (readers[i].kind == tower->kind)
            readers[i].read(r, tower);
    }
    tower->dim[D(THREE_HIDDEN)] = 3 * tower->dim[D(HIDDEN)];
    r->config = text;
}

/* ---- Visiting ---- */

void rvli_tower_walk(const rvl_model *model, rvli_tensor_fn fn, void *user)
{
    const rvli_tower *tower = &model->tower;
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const rule *r = &rules[i];
        for (uint32_t n = 0; n < times(r, tower); n++) {
            rvli_tensor tensor = {r->pattern,          RVL_MODEL_NO_LAYER,     n,
                                  tower->dim[r->rows], tower->dim[r->columns], 1};
            fn(user, &tensor);
        }
    }
}

uint64_t rvli_tower_count(const rvl_model *model)
{
    const rvli_tower *tower = &model->tower;
    uint64_t sum = 0;
    for (size_t i = 0; i < RULE_COUNT; i++)
        sum += times(&rules[i], tower) * tower->dim[rules[i].rows] * tower->dim[rules[i].columns];
    return sum;
}

/* Rounded up. */
static uint64_t share(uint64_t size, uint64_t ranks)
{
    return (size + ranks - 1) / ranks;
}

void rvli_tower_walk_engine(const rvl_model *model, const rvli_plan *plan, rvli_bytes_fn fn,
                            void *user)
{
    const rvli_tower *tower = &model->tower;
    uint64_t tp = plan->options.tp;
    for (size_t i = 0; i < RULE_COUNT; i++) {
        const rule *r = &rules[i];
        uint64_t rows = tower->dim[r->rows], columns = tower->dim[r->columns];
        rows = r->split == BY_ROWS ? share(rows, tp) : rows;
        columns = r->split == BY_COLUMNS ? share(columns, tp) : columns;
        for (uint32_t n = 0; n < times(r, tower); n++)
            fn(user, rows * columns * BF16_BYTES);
    }
}
