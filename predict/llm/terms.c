/* SPDX-License-Identifier: MIT */
/*
 * The terms of a step: the allocations that each asks the device for. docs/model.md has every
 * formula and its source.
 */
#include "base/element.h"
#include "base/options.h"
#include "base/text.h"
#include "predict/llm/llm_internal.h"
#include "predict/llm/step/megatron/rank.h"
#include "predict/llm/step/training.h"
#include "predict/llm/terms.h"

#define BF16_BYTES UINT64_C(2)
#define FP32_BYTES UINT64_C(4)
#define GIB (UINT64_C(1) << 30)
#define PPM UINT64_C(1000000)
#define STEP_BYTES_MAX (UINT64_C(1) << 60)
#define SCAN_BYTES_MAX (UINT64_C(1) << 56) /* of one tensor */

/* Sizes that no config has, measured or published: docs/model.md. */
#define PAGES_AT_ONCE 64 /* pages of managed memory that the driver allocates at once */
#define CONTEXT_BYTES UINT64_C(552402944)
#define TRAINER_CONTEXT_BYTES (GIB * 45 / 100)
#define TRAINER_RESIDUE_BYTES (GIB * 55 / 100)
#define CUDA_GRAPH_BYTES UINT64_C(3000000000)
#define WORKSPACE_BYTES (384 * RVLI_MIB)
#define PREFILL_TOKENS 8192
#define SAMPLED_SEQUENCES 256

const rvli_optimizer_kind rvli_optimizer_kinds[] = {
#define KIND(name, word, states, bytes, blocks, master, paged)                                     \
    {states, bytes, blocks, master, paged},
    RVL_MODEL_OPTIMIZER_MAP(KIND)
#undef KIND
};

const char *rvli_term_tag(rvl_model_term term, rvl_model_train train)
{
    static const char *const tags[] = {
#define TAG(name, tag, meaning) tag,
        RVL_MODEL_TERM_MAP(TAG)
#undef TAG
    };
    if (term == RVL_MODEL_SHARDED_WEIGHTS && train >= RVL_MODEL_TRAIN_DDP)
        return "training_weights";
    return tags[term];
}

/* ---- Weights of engine and trainer ---- */

static void pack_bytes(void *user, uint64_t bytes)
{
    rvli_packer_add(user, bytes);
}

static void make_engine_weights(const rvli_maker *m)
{
    rvli_packer packer;
    rvli_packer_begin(&packer, rvli_maker_sizes(m, RVL_MODEL_WEIGHTS));
    rvli_model_walk_engine(m->model, m->plan, pack_bytes, &packer);
    rvli_packer_end(&packer);
}

/* Packs a rank's share of each parameter: `states` tensors, with `bytes` for each element. */
typedef struct share_walk {
    rvli_packer packer;
    uint64_t ranks;
    unsigned states;
    unsigned bytes;
    bool blocks;
    const rvl_model *model;
    const rvl_model_options *options;
    bool trained_only; /* only LoRA's adapters, if there are any */
    bool learning;     /* only parameters that get a gradient */
    bool paged;
    uint64_t pages; /* of managed memory */
} share_walk;

static void pack_one(share_walk *w, const rvli_tensor *tensor, uint64_t bytes)
{
    uint64_t elements = rvli_tensor_share(tensor, w->ranks);
    bool in_blocks = w->blocks && elements >= RVLI_STATE_8BIT_ELEMENTS_MIN;
    bool paged = w->paged && elements >= RVLI_STATE_PAGED_ELEMENTS_MIN;
    uint64_t each = w->blocks && !in_blocks ? FP32_BYTES : bytes;
    for (unsigned state = 0; state < w->states; state++) {
        if (paged)
            w->pages += (elements * each + RVLI_PAGE_BYTES - 1) / RVLI_PAGE_BYTES;
        else
            rvli_packer_add(&w->packer, elements * each);
        if (in_blocks)
            rvli_packer_add(&w->packer,
                            (elements + RVLI_STATE_BLOCK - 1) / RVLI_STATE_BLOCK * FP32_BYTES);
    }
}

/* Packs a weight that is not an adapter's. */
static void pack_base(share_walk *w, const rvli_tensor *tensor)
{
    uint64_t parts[RVLI_NF4_PARTS];
    if (!rvli_is_quantised(w->model, w->options->base_dtype, tensor)) {
        bool wide = (w->options->flags & RVL_MODEL_PREPARE_KBIT) != 0;
        pack_one(w, tensor, wide ? FP32_BYTES : w->bytes);
        return;
    }
    rvli_nf4_parts(w->options->base_dtype, tensor->rows * tensor->columns, parts);
    if (w->ranks > 1)
        parts[RVLI_NF4_PACKED] =
            BF16_BYTES * rvli_base_share(w->model, w->options->base_dtype, tensor, w->ranks);
    for (size_t i = 0; i < RVLI_NF4_PARTS; i++) {
        if (parts[i] > 0)
            rvli_packer_add(&w->packer, parts[i]);
    }
}

/* Packs a parameter and its adapters. Adapters and their gradients are in fp32 unless the options
 * say bf16. */
static void pack_share(void *user, const rvli_tensor *tensor)
{
    share_walk *w = user;
    const rvl_model_options *o = w->options;
    rvli_tensor parts[2];
    if (!w->trained_only && (!w->learning || rvli_tensor_learns(tensor)))
        pack_base(w, tensor);
    bool adapted = rvli_adapter_of(w->model, o->lora_rank, o->lora_targets, tensor, parts);
    if (!adapted || (w->learning && !rvli_tensor_learns(tensor)))
        return;
    bool wide = w->bytes == BF16_BYTES && (o->flags & RVL_MODEL_BF16_ADAPTERS) == 0;
    uint64_t bytes = wide ? FP32_BYTES : w->bytes;
    pack_one(w, &parts[0], bytes);
    pack_one(w, &parts[1], bytes);
}

static void make_shares(const rvli_maker *m, rvl_model_term term, unsigned states, unsigned bytes,
                        bool blocks)
{
    bool sharded = m->plan->options.train == RVL_MODEL_TRAIN_FSDP;
    share_walk w = {
        .ranks = sharded ? m->plan->options.train_ranks : 1,
        .states = states,
        .bytes = bytes,
        .blocks = blocks,
        .model = m->model,
        .options = &m->plan->options,
        .trained_only = m->plan->options.lora_rank > 0 && term != RVL_MODEL_SHARDED_WEIGHTS,
        .learning = term != RVL_MODEL_SHARDED_WEIGHTS && term != RVL_MODEL_TRAINING_COPY,
        .paged =
            term == RVL_MODEL_OPTIMIZER && rvli_optimizer_kinds[m->plan->options.optimizer].paged};
    if (rvli_maker_is_given(m, term))
        return;
    rvli_packer_begin(&w.packer, rvli_maker_sizes(m, term));
    if (term == RVL_MODEL_TRAINING_COPY)
        rvli_model_walk(m->model, pack_share, &w);
    else
        rvli_model_walk_trained(m->model, pack_share, &w);
    if (term == RVL_MODEL_TRAINING_COPY)
        rvli_tower_walk(m->model, pack_share, &w);
    rvli_packer_end(&w.packer);
    uint64_t pages = rvli_round_up(w.pages, PAGES_AT_ONCE);
    if (pages > 0)
        rvli_sizes_add(rvli_maker_sizes(m, RVL_MODEL_PAGED_OPTIMIZER), pages * RVLI_PAGE_BYTES);
}

/* ---- New weights for the engine ---- */

/* Buckets of whole tensors, in the order of the checkpoint. A tensor larger than a bucket is one by
 * itself. */
typedef struct bucket_walk {
    uint64_t size_bytes;
    uint64_t filled_bytes;
    uint64_t largest_bytes;
} bucket_walk;

static void fill_bucket(void *user, const rvli_tensor *tensor)
{
    bucket_walk *w = user;
    uint64_t bytes = tensor->rows * tensor->columns * BF16_BYTES;
    if (w->filled_bytes + bytes > w->size_bytes)
        w->filled_bytes = 0;
    w->filled_bytes += bytes;
    if (w->filled_bytes > w->largest_bytes)
        w->largest_bytes = w->filled_bytes;
}

/* The tensors of the largest bucket, and the flat buffer in which they are sent. */
static void make_update_bucket(const rvli_maker *m)
{
    bucket_walk w = {.size_bytes = m->plan->options.update_bucket_bytes};
    rvli_packer packer;
    if (rvli_maker_is_given(m, RVL_MODEL_UPDATE_BUCKET))
        return;
    rvli_model_walk(m->model, fill_bucket, &w);
    rvli_tower_walk(m->model, fill_bucket, &w);
    rvli_packer_begin(&packer, rvli_maker_sizes(m, RVL_MODEL_UPDATE_BUCKET));
    rvli_packer_add(&packer, w.largest_bytes);
    rvli_packer_add(&packer, w.largest_bytes);
    rvli_packer_end(&packer);
}

/* Makes whole copies instead of buckets if the options ask for them, or if the size of one is
 * given. */
static void make_update(const rvli_maker *m)
{
    const rvl_model_options *o = &m->plan->options;
    bool shared = o->strategy == RVL_MODEL_V2 || o->strategy == RVL_MODEL_V3;
    bool whole = o->update_bucket_bytes == RVL_MODEL_UPDATE_WHOLE ||
                 rvli_maker_is_given(m, RVL_MODEL_TRAINING_COPY) ||
                 rvli_maker_is_given(m, RVL_MODEL_ALL_GATHER);
    if (o->train == RVL_MODEL_TRAIN_NONE && whole)
        make_shares(m, RVL_MODEL_TRAINING_COPY, 1, BF16_BYTES, false);
    else if (!whole && (shared || o->train == RVL_MODEL_TRAIN_NONE))
        make_update_bucket(m);
}

/* ---- Gathered weights ---- */

/* FSDP gathers one layer at a time. Embedding, last norm and head are one unit. */
typedef struct unit_walk {
    const rvl_model *model;
    uint64_t ranks;
    rvl_model_base_dtype base;
    uint64_t root_bytes;
    uint64_t layer_bytes[RVLI_MODEL_LAYERS_MAX];
} unit_walk;

static void sum_unit(void *user, const rvli_tensor *tensor)
{
    unit_walk *w = user;
    uint64_t bytes = rvli_base_share(w->model, w->base, tensor, w->ranks) * w->ranks * BF16_BYTES;
    if (tensor->layer == RVL_MODEL_NO_LAYER)
        w->root_bytes += bytes;
    else
        w->layer_bytes[tensor->layer] += bytes;
}

/* The first of the two adjacent layers that are largest together: one is in use while the next is
 * fetched. */
static uint32_t largest_pair(const unit_walk *w, uint32_t layers)
{
    uint64_t largest = 0;
    uint32_t at = 0;
    for (uint32_t layer = 0; layer + 1 < layers; layer++) {
        uint64_t pair = w->layer_bytes[layer] + w->layer_bytes[layer + 1];
        at = pair > largest ? layer : at;
        largest = pair > largest ? pair : largest;
    }
    return at;
}

static void make_all_gather(const rvli_maker *m)
{
    unit_walk w = {.model = m->model,
                   .ranks = m->plan->options.train_ranks,
                   .base = m->plan->options.base_dtype};
    uint32_t first = 0, end = m->model->layers;
    rvli_packer packer;
    if (rvli_maker_is_given(m, RVL_MODEL_ALL_GATHER))
        return;
    rvli_model_walk(m->model, sum_unit, &w);
    if ((m->plan->options.flags & RVL_MODEL_RESHARD) && end > 2) {
        first = largest_pair(&w, end);
        end = first + 2;
    }
    rvli_packer_begin(&packer, rvli_maker_sizes(m, RVL_MODEL_ALL_GATHER));
    rvli_packer_add(&packer, w.root_bytes);
    for (uint32_t layer = first; layer < end; layer++)
        rvli_packer_add(&packer, w.layer_bytes[layer]);
    rvli_packer_end(&packer);
}

/* ---- Activations and logits ---- */

uint64_t rvli_attention_kept_bytes(const rvl_model *m, uint32_t layer)
{
    const uint64_t *d = m->dim;
    uint64_t q = rvli_layer_dim(m, layer, RVLI_DIM_Q), kv = rvli_layer_dim(m, layer, RVLI_DIM_KV);
    uint64_t attended = BF16_BYTES * rvli_layer_dim(m, layer, RVLI_DIM_ATTENDED);
    uint64_t sums = FP32_BYTES * m->heads;
    if (m->features & RVLI_MLA)
        return BF16_BYTES * (2 * d[RVLI_DIM_Q_LORA] + 2 * d[RVLI_DIM_Q] + d[RVLI_DIM_KV_DOWN] +
                             d[RVLI_DIM_KV_LORA]) +
               2 * attended + sums;
    uint64_t normed = m->features & (RVLI_QK_NORM | RVLI_WIDE_QK_NORM) ? BF16_BYTES * (q + kv) : 0;
    return BF16_BYTES * (q + 2 * kv) + attended + sums + normed;
}

/* Bytes per token that a gated delta net keeps (graph/delta.c, graph/chunks.c). In bf16: the
 * convolution's input and output; the normed, the weighted and the gated values. In fp32: q, k and
 * v in their forms, decayed products of a chunk's tokens, inputs of norm and gate, new values, and
 * a state for each chunk. */
static uint64_t delta_kept_bytes(const rvl_model *m)
{
    const uint64_t *d = m->dim;
    uint64_t value = d[RVLI_DIM_DELTA_VALUE], heads = d[RVLI_DIM_DELTA_HEADS];
    uint64_t key = m->state_elements / value * heads, state = m->state_elements / RVLI_DELTA_CHUNK;
    return BF16_BYTES * (2 * d[RVLI_DIM_DELTA_CONV] + 3 * value) +
           FP32_BYTES * (8 * key + 6 * value + 5 * RVLI_DELTA_CHUNK * heads + state);
}

/* gate, up, the activated gate and the product. Without a gate: the activation's input, and its
 * square. */
static uint64_t mlp_activations(const rvl_model *m, uint64_t intermediate)
{
    return ((m->features & RVLI_NO_GATE) != 0 ? 2 : 4) * BF16_BYTES * intermediate;
}

uint64_t rvli_experts_kept_bytes(const rvl_model *m)
{
    const uint64_t *d = m->dim;
    uint64_t chosen =
        2 * BF16_BYTES * d[RVLI_DIM_HIDDEN] + mlp_activations(m, d[RVLI_DIM_EXPERT_INTERMEDIATE]);
    uint64_t shared =
        m->features & RVLI_SHARED ? mlp_activations(m, d[RVLI_DIM_SHARED_INTERMEDIATE]) : 0;
    return m->experts_per_token * chosen + shared + 2 * FP32_BYTES * m->experts;
}

/* math keeps the softmax of all scores, and q, k, v of every head, all in fp32. */
static uint64_t math_activations(const rvl_model *m, const rvl_model_options *o, uint32_t layer)
{
    return o->attention == RVL_MODEL_ATTENTION_MATH
               ? FP32_BYTES *
                     (m->heads * (uint64_t)o->seq_len + 3 * rvli_layer_dim(m, layer, RVLI_DIM_Q))
               : 0;
}

/* Bytes per token that Mamba keeps. In bf16: what is projected and convolved. In fp32: inputs, gate
 * and norm in nine forms, rates, keys and queries of every head, three tensors with all pairs of
 * tokens of a chunk, and two states of a chunk. */
static uint64_t mamba_activations(const rvl_model *m)
{
    const uint64_t *d = m->dim;
    uint64_t state = m->mamba_group_width / 2, heads = d[RVLI_DIM_MAMBA_HEADS];
    uint64_t half = d[RVLI_DIM_MAMBA_IN] + d[RVLI_DIM_MAMBA_CONV] + d[RVLI_DIM_MAMBA_INNER];
    uint64_t full = 9 * d[RVLI_DIM_MAMBA_INNER] + heads * (5 + 3 * state + 3 * m->mamba_chunk) +
                    2 * d[RVLI_DIM_MAMBA_INNER] * state / m->mamba_chunk;
    return BF16_BYTES * half + FP32_BYTES * full;
}

/* Bytes per token that a layer keeps for its backward pass. */
static uint64_t layer_activations(const rvl_model *m, const rvl_model_options *o, uint32_t layer)
{
    const uint64_t *d = m->dim;
    uint64_t norms = m->features & RVLI_FOUR_NORMS ? 6 : m->features & RVLI_ONE_NORM ? 2 : 4;
    uint64_t bytes = norms * BF16_BYTES * d[RVLI_DIM_HIDDEN];
    if (rvli_layer_is(m, layer, RVLI_LAYER_ATTENTION))
        bytes += rvli_attention_kept_bytes(m, layer) + math_activations(m, o, layer);
    if (rvli_layer_is(m, layer, RVLI_LAYER_MAMBA))
        bytes += mamba_activations(m);
    if (rvli_layer_is(m, layer, RVLI_LAYER_DELTA))
        bytes += delta_kept_bytes(m);
    if (rvli_layer_is(m, layer, RVLI_LAYER_CONV)) /* three parts, product, convolved, output */
        bytes += 6 * BF16_BYTES * d[RVLI_DIM_HIDDEN];
    if (rvli_layer_is(m, layer, RVLI_LAYER_DENSE))
        bytes += mlp_activations(m, rvli_layer_dim(m, layer, RVLI_DIM_INTERMEDIATE));
    if (rvli_layer_is(m, layer, RVLI_LAYER_SPARSE))
        bytes += rvli_experts_kept_bytes(m);
    return bytes;
}

/* Bytes of Mamba's scan by plain operations: the gradients of keys and queries for all pairs of
 * tokens of a chunk, which are complete before they are summed. UINT64_MAX: more than any step can
 * have. */
static uint64_t scan_bytes(const rvl_model *m, const rvl_model_options *o)
{
    if (!rvli_has_layers(m, RVLI_LAYER_MAMBA))
        return 0;
    uint64_t length = rvli_round_up(o->seq_len, m->mamba_chunk);
    uint64_t chunks = length / m->mamba_chunk + 1, tokens = o->micro_batch * length;
    uint64_t widest = FP32_BYTES * m->state_elements; /* for each pair of tokens, or of chunks */
    if (widest * m->mamba_chunk > SCAN_BYTES_MAX / tokens ||
        widest * chunks > SCAN_BYTES_MAX / (o->micro_batch * chunks))
        return UINT64_MAX;
    uint64_t state = m->mamba_group_width / 2;
    return 2 * FP32_BYTES * tokens * m->mamba_chunk * m->dim[RVLI_DIM_MAMBA_HEADS] * state;
}

static rvl_status too_many_tokens(void)
{
    return rvli_model_fail(RVL_ERR_INVALID, "seq-len",
                           "impossible: the micro-batch takes more than 2^60 bytes; lower it");
}

/* With --recompute: the input of every layer, and the whole largest layer while it is computed
 * again. */
static rvl_status make_activations(const rvli_maker *m)
{
    const rvl_model_options *o = &m->plan->options;
    rvli_packer packer;
    uint64_t tokens = (uint64_t)o->micro_batch * o->seq_len, largest = 0;
    if (rvli_maker_is_given(m, RVL_MODEL_ACTIVATIONS))
        return RVL_OK;
    for (uint32_t layer = 0; layer < m->model->layers; layer++) {
        uint64_t each = layer_activations(m->model, o, layer);
        largest = each > largest ? each : largest;
    }
    uint64_t scan = scan_bytes(m->model, o);
    if (largest > STEP_BYTES_MAX / tokens / m->model->layers || scan == UINT64_MAX)
        return too_many_tokens();
    rvli_packer_begin(&packer, rvli_maker_sizes(m, RVL_MODEL_ACTIVATIONS));
    for (uint32_t layer = 0; layer < m->model->layers; layer++) {
        uint64_t each = (o->flags & RVL_MODEL_RECOMPUTE)
                            ? BF16_BYTES * m->model->dim[RVLI_DIM_HIDDEN]
                            : layer_activations(m->model, o, layer);
        rvli_packer_add(&packer, tokens * each);
    }
    if (o->flags & RVL_MODEL_RECOMPUTE)
        rvli_packer_add(&packer, tokens * largest);
    if (scan > 0)
        rvli_packer_add(&packer, scan);
    rvli_packer_end(&packer);
    return RVL_OK;
}

/* The head's logits, their copy in fp32 for the loss, and the gradient of that copy. Only training
 * has the gradient. */
static void make_logits(const rvli_maker *m, uint64_t context_ranks, uint64_t vocabulary)
{
    const rvl_model_options *o = &m->plan->options;
    rvli_packer packer;
    uint64_t elements = (uint64_t)o->micro_batch * o->seq_len / context_ranks * vocabulary;
    if (rvli_maker_is_given(m, RVL_MODEL_LOGITS))
        return;
    rvli_packer_begin(&packer, rvli_maker_sizes(m, RVL_MODEL_LOGITS));
    rvli_packer_add(&packer, BF16_BYTES * elements);
    rvli_packer_add(&packer, FP32_BYTES * elements);
    rvli_packer_add(&packer, FP32_BYTES * elements);
    rvli_packer_end(&packer);
}

/* ---- The engine ---- */

/* Bytes per token of attention in a layer, on this rank. */
static uint64_t prefill_attention(const rvli_maker *m, uint32_t layer)
{
    const rvl_model *model = m->model;
    uint64_t tp = m->plan->options.tp;
    uint64_t each = rvli_layer_dim(model, layer, RVLI_DIM_ATTENDED) / tp +
                    rvli_layer_dim(model, layer, RVLI_DIM_Q) / tp;
    if (model->features & RVLI_MLA)
        return each + model->dim[RVLI_DIM_KV_UP] / tp;
    return each +
           2 * (rvli_layer_dim(model, layer, RVLI_DIM_KV) / rvli_layer_kv_heads(model, layer) *
                rvli_rank_kv_heads(model, m->plan, layer));
}

/* Bytes per token at the widest point of any layer. */
static uint64_t prefill_bytes(const rvli_maker *m)
{
    const rvl_model *model = m->model;
    const uint64_t *d = model->dim;
    uint64_t tp = m->plan->options.tp, widest = 0;
    for (uint32_t layer = 0; layer < model->layers; layer++) {
        uint64_t attention = prefill_attention(m, layer);
        uint64_t mlp = 3 * (rvli_layer_dim(model, layer, RVLI_DIM_INTERMEDIATE) / tp);
        if (rvli_layer_is(model, layer, RVLI_LAYER_SPARSE))
            mlp = model->experts_per_token *
                  (3 * (d[RVLI_DIM_EXPERT_INTERMEDIATE] * m->plan->options.ep / tp) +
                   d[RVLI_DIM_HIDDEN]);
        widest = attention > widest ? attention : widest;
        widest = mlp > widest ? mlp : widest;
    }
    return BF16_BYTES * (2 * d[RVLI_DIM_HIDDEN] + widest);
}

static void make_buffers(const rvli_maker *m)
{
    rvli_packer packer;
    uint64_t logits = SAMPLED_SEQUENCES * m->model->dim[RVLI_DIM_VOCABULARY];
    if (rvli_maker_is_given(m, RVL_MODEL_BUFFERS))
        return;
    rvli_packer_begin(&packer, rvli_maker_sizes(m, RVL_MODEL_BUFFERS));
    rvli_packer_add(&packer, PREFILL_TOKENS * prefill_bytes(m));
    rvli_packer_add(&packer, (BF16_BYTES + FP32_BYTES) * logits);
    rvli_packer_add(&packer, WORKSPACE_BYTES);
    rvli_packer_end(&packer);
}

/* ppm millionths of bytes, rounded down, without overflow. */
static uint64_t fraction_of(uint64_t bytes, uint64_t ppm)
{
    return bytes / PPM * ppm + bytes % PPM * ppm / PPM;
}

static rvl_status no_room(uint64_t weights, uint64_t allowed)
{
    char message[128];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "no room for a KV cache: the weights of a rank take ");
    rvli_text_add_bytes(&text, weights);
    rvli_text_add(&text, " of ");
    rvli_text_add_bytes(&text, allowed);
    rvli_text_add(&text, "; raise it, or 'tp'");
    return rvli_model_fail(RVL_ERR_INVALID, "mem-fraction", "%s", message);
}

/* Weights of a rank on another pipeline stage. UINT64_MAX: out of host memory. */
static uint64_t weights_of_stage(const rvli_maker *m, const rvli_plan *plan)
{
    rvli_sizes sizes = {0};
    rvli_packer packer;
    rvli_packer_begin(&packer, &sizes);
    rvli_model_walk_engine(m->model, plan, pack_bytes, &packer);
    rvli_packer_end(&packer);
    uint64_t total = sizes.failed ? UINT64_MAX : sizes.total;
    rvli_sizes_free(&sizes);
    return total;
}

/* All stages hold the same number of tokens: as many as the stage with the least room. */
static rvl_status count_tokens(const rvli_maker *m, uint64_t allowed)
{
    rvli_plan plan = *m->plan;
    uint64_t own = rvli_maker_total(m, RVL_MODEL_WEIGHTS);
    m->terms->tokens = UINT64_MAX;
    for (uint32_t stage = 0; stage < plan.options.pp; stage++) {
        bool is_own = stage == m->plan->options.pp_rank;
        if (!is_own && rvli_maker_is_given(m, RVL_MODEL_WEIGHTS))
            continue;
        rvli_plan_set_stage(m->model, stage, &plan);
        uint64_t weights = is_own ? own : weights_of_stage(m, &plan);
        if (weights == UINT64_MAX)
            return rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a step");
        uint64_t tokens =
            allowed > weights ? rvli_cache_tokens(m->model, &plan, allowed - weights) : 0;
        if (tokens == 0)
            return no_room(weights, allowed);
        m->terms->tokens = tokens < m->terms->tokens ? tokens : m->terms->tokens;
    }
    return RVL_OK;
}

static rvl_status make_cache(const rvli_maker *m)
{
    const rvli_plan *plan = m->plan;
    uint64_t context =
        rvli_maker_total(m, RVL_MODEL_ENGINE_CONTEXT) + rvli_maker_total(m, RVL_MODEL_ENGINE_NCCL);
    uint64_t capacity = plan->device.capacity_bytes;
    uint64_t free_before = capacity > context ? capacity - context : 0;
    uint64_t allowed = fraction_of(free_before, plan->options.mem_fraction_ppm);
    if (rvli_maker_is_given(m, RVL_MODEL_KV_CACHE))
        return RVL_OK;
    rvl_status status = count_tokens(m, allowed);
    if (status == RVL_OK)
        rvli_cache_add(m->model, plan, m->terms->tokens, rvli_maker_sizes(m, RVL_MODEL_KV_CACHE));
    return status;
}

/* ---- All terms ---- */

/* Adds a size that was measured with other programs. */
static void assume(const rvli_maker *m, rvl_model_term term, uint64_t bytes)
{
    rvli_maker_add(m, term, bytes);
    m->terms->term[term].assumed = !rvli_maker_is_given(m, term);
}

static void make_nccl(const rvli_maker *m, rvl_model_term term, rvli_communicators count)
{
    uint64_t bytes = rvli_plan_nccl_bytes(count);
    bool counted = (m->plan->options.flags & RVL_MODEL_NCCL) != 0;
    if (counted && bytes > 0)
        rvli_maker_add(m, term, bytes);
    m->terms->without_nccl[term] = !counted && bytes > 0 && !rvli_maker_is_given(m, term);
}

/* ---- Training ---- */

/* Makes the terms of a rank of Megatron. */
static void make_rank(const rvli_maker *m)
{
    rvli_training_shape shape = rvli_program_shape(&m->plan->options);
    rvli_program_pack_rank(m, &shape);
    if (shape.stage + 1 == shape.pp)
        make_logits(m, shape.cp,
                    rvli_rank_vocabulary(m->model->dim[RVLI_DIM_VOCABULARY], shape.tp));
}

/* Makes what a rank of FSDP, DDP or plain training has of each parameter. */
static void make_states(const rvli_maker *m)
{
    rvli_optimizer_kind chosen = rvli_optimizer_kinds[m->plan->options.optimizer];
    bool mixed = rvli_is_mixed(m->plan->options.flags);
    make_shares(m, RVL_MODEL_SHARDED_WEIGHTS, 1, mixed ? FP32_BYTES : BF16_BYTES, false);
    if (chosen.master && !mixed && m->plan->options.lora_rank == 0)
        make_shares(m, RVL_MODEL_MASTER_WEIGHTS, 1, FP32_BYTES, false);
    make_shares(m, RVL_MODEL_OPTIMIZER, chosen.states, chosen.bytes, chosen.blocks);
    make_shares(m, RVL_MODEL_GRADIENTS, 1, mixed ? FP32_BYTES : BF16_BYTES, false);
}

static void make_trainer(const rvli_maker *m)
{
    if (m->plan->options.train == RVL_MODEL_TRAIN_MEGATRON) {
        make_rank(m);
        return;
    }
    bool sharded = m->plan->options.train == RVL_MODEL_TRAIN_FSDP;
    if ((m->plan->options.flags & RVL_MODEL_CPU_OFFLOAD) == 0)
        make_states(m);
    if (sharded)
        make_all_gather(m);
    else if (m->plan->options.train == RVL_MODEL_TRAIN_DDP)
        make_shares(m, RVL_MODEL_GRADIENT_BUCKETS, 1, BF16_BYTES, false);
    make_logits(m, m->plan->options.train_cp, m->model->dim[RVLI_DIM_VOCABULARY]);
}

static void make_engine(const rvli_maker *m)
{
    const rvl_model_options *o = &m->plan->options;
    assume(m, RVL_MODEL_ENGINE_CONTEXT, CONTEXT_BYTES);
    make_nccl(m, RVL_MODEL_ENGINE_NCCL, rvli_nccl_of_engine(o));
    if (!rvli_maker_is_given(m, RVL_MODEL_WEIGHTS))
        make_engine_weights(m);
    if (o->use == RVL_MODEL_USE_RL && o->train == RVL_MODEL_TRAIN_NONE) {
        assume(m, RVL_MODEL_ASLEEP, CONTEXT_BYTES + CUDA_GRAPH_BYTES);
        return;
    }
    assume(m, RVL_MODEL_CUDA_GRAPH, CUDA_GRAPH_BYTES);
    make_buffers(m);
}

/* Makes the trainer's context, and everything else that it has if it trains on this GPU. */
static rvl_status make_training(const rvli_maker *m)
{
    const rvl_model_options *o = &m->plan->options;
    assume(m, RVL_MODEL_TRAINER_CONTEXT, TRAINER_CONTEXT_BYTES);
    make_nccl(m, RVL_MODEL_TRAINER_NCCL, rvli_nccl_of_trainer(m->model, o));
    if (o->train == RVL_MODEL_TRAIN_NONE) {
        assume(m, RVL_MODEL_TRAINER_RESIDUE, TRAINER_RESIDUE_BYTES);
        return RVL_OK;
    }
    rvl_status status = make_activations(m);
    if (status != RVL_OK)
        return status;
    make_trainer(m);
    return rvli_program_train(m);
}

static rvl_status make_all(const rvli_maker *m)
{
    rvl_status status = RVL_OK;
    rvl_model_use use = m->plan->options.use;
    if (use != RVL_MODEL_USE_FINE_TUNE)
        make_engine(m);
    if (use != RVL_MODEL_USE_SERVE)
        status = make_training(m);
    if (use == RVL_MODEL_USE_RL && status == RVL_OK)
        make_update(m);
    if (use == RVL_MODEL_USE_FINE_TUNE || status != RVL_OK)
        return status;
    return make_cache(m);
}

/* ---- Given sizes ---- */

static bool has_place(rvl_model_term term, const rvl_model_options *o)
{
    const rvl_model_train train = o->train;
    bool by_terms = train != RVL_MODEL_TRAIN_NONE && train != RVL_MODEL_TRAIN_MEGATRON;
    bool waits = o->use == RVL_MODEL_USE_RL && train == RVL_MODEL_TRAIN_NONE;
    switch (term) {
    case RVL_MODEL_WEIGHTS:
    case RVL_MODEL_KV_CACHE:
    case RVL_MODEL_ENGINE_CONTEXT:
    case RVL_MODEL_ENGINE_NCCL:
        return o->use != RVL_MODEL_USE_FINE_TUNE;
    case RVL_MODEL_TRAINER_CONTEXT:
        return o->use != RVL_MODEL_USE_SERVE;
    case RVL_MODEL_UPDATE_BUCKET:
        return o->use == RVL_MODEL_USE_RL;
    case RVL_MODEL_DEQUANTISED:
    case RVL_MODEL_TRAINER_HOST:
    case RVL_MODEL_PAGED_OPTIMIZER:
        return false; /* only from the program */
    case RVL_MODEL_TRAINING_COPY:
    case RVL_MODEL_TRAINER_RESIDUE:
    case RVL_MODEL_ASLEEP:
        return waits;
    case RVL_MODEL_ALL_GATHER:
        return train == RVL_MODEL_TRAIN_FSDP;
    case RVL_MODEL_GRADIENT_BUCKETS:
        return train == RVL_MODEL_TRAIN_DDP;
    case RVL_MODEL_CUDA_GRAPH:
    case RVL_MODEL_BUFFERS:
        return o->use != RVL_MODEL_USE_FINE_TUNE && !waits;
    case RVL_MODEL_TRAINER_NCCL:
        return train != RVL_MODEL_TRAIN_NONE;
    default:
        return by_terms; /* Megatron's come only from the program */
    }
}

static rvl_status read_given(const rvl_model_options *options, size_t index,
                             rvl_model_given *given_out)
{
    const rvli_element *element = RVLI_ELEMENT(rvl_model_given, bytes);
    if (options->given == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "given", "given_count without given");
    rvl_status status = rvli_element_check(element, options->given_size);
    if (status == RVL_OK)
        status =
            rvli_element_read_at(element, given_out, options->given, options->given_size, index);
    return status == RVL_OK ? rvli_flags_check(0, 0, given_out->reserved) : status;
}

static rvl_status take_given(const rvli_maker *m)
{
    const rvl_model_options *o = &m->plan->options;
    for (size_t i = 0; i < o->given_count; i++) {
        rvl_model_given given;
        rvl_status status = read_given(o, i, &given);
        if (status != RVL_OK)
            return status;
        if ((unsigned)given.term >= RVL_MODEL_TERM_COUNT || given.bytes > STEP_BYTES_MAX)
            return rvli_model_fail(RVL_ERR_INVALID, "given",
                                   "no such term, or more than 2^60 bytes");
        if (!has_place(given.term, o) || rvli_maker_is_given(m, given.term))
            return rvli_model_fail(RVL_ERR_INVALID, "given",
                                   "%s has no place in a step with this 'train', or is there twice",
                                   rvli_term_tag(given.term, o->train));
        m->terms->term[given.term].given = true;
        if (given.bytes > 0)
            rvli_sizes_add(rvli_maker_sizes(m, given.term), given.bytes);
    }
    return RVL_OK;
}

/* A size of `asleep` that was read on a card includes NCCL's buffers. */
static rvl_status check_asleep(const rvli_maker *m)
{
    if ((m->plan->options.flags & RVL_MODEL_NCCL) && rvli_maker_is_given(m, RVL_MODEL_ASLEEP))
        return rvli_model_fail(RVL_ERR_INVALID, "nccl",
                               "the given size of asleep has NCCL's buffers in it: leave it out");
    return RVL_OK;
}

static bool any_failed(const rvli_terms *terms)
{
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++) {
        if (terms->term[term].sizes.failed || terms->forward[term].failed)
            return true;
    }
    return false;
}

rvl_status rvli_terms_make(const rvl_model *model, const rvli_plan *plan, rvli_terms *terms_out)
{
    rvli_maker m = {model, plan, terms_out};
    *terms_out = (rvli_terms){0};
    rvl_status status = take_given(&m);
    if (status == RVL_OK)
        status = check_asleep(&m);
    if (status == RVL_OK)
        status = make_all(&m);
    if (any_failed(terms_out))
        status = rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a step");
    if (status != RVL_OK)
        rvli_terms_free(terms_out);
    else if (plan->options.use == RVL_MODEL_USE_RL && plan->options.train == RVL_MODEL_TRAIN_NONE)
        /* The context is part of `asleep`. It was needed only for the size of the cache. */
        rvli_sizes_free(rvli_maker_sizes(&m, RVL_MODEL_ENGINE_CONTEXT));
    return status;
}

void rvli_terms_free(rvli_terms *terms)
{
    rvli_shown_destroy(terms->shown);
    terms->shown = NULL;
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++) {
        rvli_sizes_free(&terms->term[term].sizes);
        rvli_sizes_free(&terms->forward[term]);
    }
}
