/* SPDX-License-Identifier: MIT */
/* Options of a step by their names on the command line: for every command that takes them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "command.h"
#include "model_set.h"
#include "options.h"

#define NUMBER_MAX 16777216

/* Index of a word in a list that ends with NULL; -1: not there. */
static int index_of(const char *word, const char *const *list)
{
    for (int i = 0; list[i] != NULL; i++) {
        if (strcmp(word, list[i]) == 0)
            return i;
    }
    return -1;
}

static bool parse_number(const char *text, uint32_t *number_out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value > NUMBER_MAX)
        return false;
    *number_out = (uint32_t)value;
    return true;
}

bool model_parse_fraction(const char *text, uint32_t *ppm_out)
{
    uint32_t ppm = 0, unit = 1000000;
    const char *c = text;
    if (*c == '0' || *c == '1')
        ppm = *c++ == '1' ? unit : 0;
    if (c != text && *c == '.')
        for (c++; *c >= '0' && *c <= '9' && unit > 1; c++) {
            unit /= 10;
            ppm += unit * (uint32_t)(*c - '0');
        }
    if (*c != '\0' || c[-(c != text)] == '.' || ppm == 0 || ppm > 1000000)
        return false;
    *ppm_out = ppm;
    return true;
}

/* ---- One function a kind of value; what they expect is in the table ---- */

static bool set_mem_fraction(rvl_model_options *o, const char *text)
{
    return model_parse_fraction(text, &o->mem_fraction_ppm);
}

static bool set_optimizer_offload(rvl_model_options *o, const char *text)
{
    return model_parse_fraction(text, &o->optimizer_offload_ppm);
}

static bool set_train(rvl_model_options *o, const char *text)
{
    uint32_t ranks = 0;
    if (strcmp(text, "none") == 0)
        o->train = RVL_MODEL_TRAIN_NONE;
    else if (strcmp(text, "ddp") == 0)
        o->train = RVL_MODEL_TRAIN_DDP;
    else if (strcmp(text, "plain") == 0)
        o->train = RVL_MODEL_TRAIN_PLAIN;
    else if (strncmp(text, "fsdp:", 5) == 0 && parse_number(text + 5, &ranks) && ranks > 0)
        o->train = RVL_MODEL_TRAIN_FSDP;
    else if (strncmp(text, "megatron:", 9) == 0 && parse_number(text + 9, &ranks) && ranks > 0)
        o->train = RVL_MODEL_TRAIN_MEGATRON;
    else
        return false;
    o->train_ranks = ranks;
    return true;
}

static bool set_strategy(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"v3", "v0", "v1", "v2", NULL};
    int index = index_of(text, words);
    if (index >= 0)
        o->strategy = (rvl_model_strategy)index;
    return index >= 0;
}

static bool set_wake(rvl_model_options *o, const char *text)
{
    return options_wake(text, &o->wake);
}

static bool set_optimizer(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {
#define WORD(name, word, states, bytes, blocks, master, paged) word,
        RVL_MODEL_OPTIMIZER_MAP(WORD)
#undef WORD
            NULL};
    int index = index_of(text, words);
    if (index >= 0)
        o->optimizer = (rvl_model_optimizer)index;
    return index >= 0;
}

static bool set_attention(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"", "cudnn", "flash", "efficient", "math", NULL};
    int index = index_of(text, words);
    if (index >= 1)
        o->attention = (rvl_model_attention)index;
    return index >= 1;
}

static bool set_loss(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"plain", "chunked", "fused", NULL};
    uint32_t chunks = 0;
    int index = index_of(text, words);
    if (strncmp(text, "chunked:", 8) == 0 && parse_number(text + 8, &chunks) && chunks > 0)
        index = RVL_MODEL_LOSS_CHUNKED;
    if (index < 0)
        return false;
    o->loss = (rvl_model_loss)index;
    o->loss_chunks = chunks;
    return true;
}

static bool set_lora_targets(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"peft", "all-linear", NULL};
    int index = index_of(text, words);
    if (index >= 0)
        o->lora_targets = (rvl_model_lora_targets)index;
    return index >= 0;
}

static bool set_base_dtype(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"bf16", "nf4", "nf4-single", NULL};
    int index = index_of(text, words);
    if (index >= 0)
        o->base_dtype = (rvl_model_base_dtype)index;
    return index >= 0;
}

static bool set_adapter_dtype(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"fp32", "bf16", NULL};
    int index = index_of(text, words);
    o->flags = index == 1 ? o->flags | RVL_MODEL_BF16_ADAPTERS
                          : o->flags & ~(uint64_t)RVL_MODEL_BF16_ADAPTERS;
    return index >= 0;
}

static bool set_weights_dtype(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"", "bf16", "fp8", "int4", "int8", NULL};
    int index = index_of(text, words);
    if (index >= 1)
        o->weights_dtype = (rvl_model_dtype)index;
    return index >= 1;
}

static bool set_kv_dtype(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"", "bf16", "fp8", NULL};
    int index = index_of(text, words);
    if (index >= 1)
        o->kv_dtype = (rvl_model_dtype)index;
    return index >= 1;
}

/* Whether there is such a device is for the library to say. */
static bool set_device(rvl_model_options *o, const char *text)
{
    o->device = text;
    return true;
}

static bool set_switch(const char *text, uint64_t flag, uint64_t *flags)
{
    bool on = strcmp(text, "yes") == 0;
    *flags = on ? *flags | flag : *flags & ~flag;
    return on || strcmp(text, "no") == 0;
}

/* No takes back what yes has said, and nothing else. */
static bool set_use(rvl_model_options *o, const char *text, rvl_model_use use)
{
    bool on = strcmp(text, "yes") == 0;
    if (on)
        o->use = use;
    else if (o->use == use)
        o->use = RVL_MODEL_USE_RL;
    return on || strcmp(text, "no") == 0;
}

static bool set_serve(rvl_model_options *o, const char *text)
{
    return set_use(o, text, RVL_MODEL_USE_SERVE);
}

static bool set_fine_tune(rvl_model_options *o, const char *text)
{
    return set_use(o, text, RVL_MODEL_USE_FINE_TUNE);
}

static bool set_update_bucket(rvl_model_options *o, const char *text)
{
    uint64_t bytes = RVL_MODEL_UPDATE_WHOLE;
    if (strcmp(text, "whole") != 0 && (rvl_size_parse(text, &bytes) != RVL_OK || bytes == 0))
        return false;
    o->update_bucket_bytes = bytes;
    return true;
}

static bool set_reshard(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_RESHARD, &o->flags);
}

static bool set_recompute(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_RECOMPUTE, &o->flags);
}

static bool set_fused(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_FUSED, &o->flags);
}

static bool set_mixed_precision(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_MIXED, &o->flags);
}

static bool set_sequence_parallel(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_SEQUENCE_PARALLEL, &o->flags);
}

static bool set_recompute_attention(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_SELECTIVE, &o->flags);
}

static bool set_bf16_gradients(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_BF16_GRADIENTS, &o->flags);
}

static bool set_transformer_impl(rvl_model_options *o, const char *text)
{
    static const char *const words[] = {"transformer_engine", "local", NULL};
    int index = index_of(text, words);
    o->flags = index == 1 ? o->flags | RVL_MODEL_LOCAL_LAYERS
                          : o->flags & ~(uint64_t)RVL_MODEL_LOCAL_LAYERS;
    return index >= 0;
}

static bool set_moe_grouped_gemm(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_GROUPED_GEMM, &o->flags);
}

static bool set_moe_use_legacy_grouped_gemm(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_LEGACY_GROUPED_GEMM, &o->flags);
}

static bool set_nccl(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_NCCL, &o->flags);
}

static bool set_reduce_fp32(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_REDUCE_FP32, &o->flags);
}

static bool set_bucket_freed(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_BUCKET_FREED, &o->flags);
}

static bool set_prepare_kbit(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_PREPARE_KBIT, &o->flags);
}

static bool set_autocast(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_AUTOCAST, &o->flags);
}

static bool set_cpu_offload(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_CPU_OFFLOAD, &o->flags);
}

static bool set_offload_activations(rvl_model_options *o, const char *text)
{
    return set_switch(text, RVL_MODEL_OFFLOAD, &o->flags);
}

static bool set_number(uint32_t *number, const char *text, uint32_t min)
{
    uint32_t value;
    if (!parse_number(text, &value) || value < min)
        return false;
    *number = value;
    return true;
}

#define SET_NUMBER(field, min)                                                                     \
    static bool set_##field(rvl_model_options *o, const char *text)                                \
    {                                                                                              \
        return set_number(&o->field, text, min);                                                   \
    }
SET_NUMBER(tp, 1)
SET_NUMBER(pp, 1)
SET_NUMBER(pp_rank, 0)
SET_NUMBER(ep, 1)
SET_NUMBER(micro_batch, 1)
SET_NUMBER(seq_len, 1)
SET_NUMBER(accumulate, 1)
SET_NUMBER(train_tp, 1)
SET_NUMBER(train_pp, 1)
SET_NUMBER(train_stage, 0)
SET_NUMBER(train_cp, 1)
SET_NUMBER(train_ep, 1)
SET_NUMBER(train_vpp, 1)
SET_NUMBER(lora_rank, 1)
#undef SET_NUMBER

#define NO_GROUP(title)
#define AS_SETTING(field, word, value, expect, usual, help) {word, set_##field, expect},
#define AS_SWITCH(field, word, usual, help) {word, set_##field, "yes or no"},

static const struct {
    const char *name;
    bool (*set)(rvl_model_options *options, const char *text);
    const char *expected;
} settings[] = {{"device", set_device, "a size or a profile that `reveille devices` lists"},
                MODEL_SETTING_MAP(NO_GROUP, AS_SETTING, AS_SWITCH)};

#define SETTING_COUNT (sizeof settings / sizeof settings[0])

bool model_set(rvl_model_options *options, const char *name, const char *value,
               char why[MODEL_WHY_BYTES])
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (strcmp(settings[i].name, name) != 0)
            continue;
        if (settings[i].set(options, value))
            return true;
        snprintf(why, MODEL_WHY_BYTES, "--%s %.80s: expected %s", name, value,
                 settings[i].expected);
        return false;
    }
    snprintf(why, MODEL_WHY_BYTES, "no such setting of a step: %.80s", name);
    return false;
}

/* ---- What cannot matter ---- */

bool model_is_cache(const char *tag)
{
    return tag != NULL && (strcmp(tag, "kv_cache") == 0 || strcmp(tag, "engine/kv_cache") == 0);
}

static bool is_cache_given(const rvl_model_options *options)
{
    for (size_t i = 0; i < options->given_count; i++) {
        if (options->given[i].term == RVL_MODEL_KV_CACHE)
            return true;
    }
    return false;
}

static bool is_of_trainer(const char *name)
{
    static const char *const names[] = {
        "reshard",  "micro-batch",  "accumulate",          "recompute",     "attention",
        "loss",     "optimizer",    "mixed-precision",     "fused",         "reduce-fp32",
        "lora",     "lora-targets", "base-dtype",          "adapter-dtype", "prepare-kbit",
        "autocast", "cpu-offload",  "offload-activations", "bucket-freed",  NULL};
    return index_of(name, names) >= 0;
}

static bool is_of_engine(const char *name)
{
    static const char *const names[] = {
        "tp", "pp", "pp-rank", "ep", "mem-fraction", "weights-dtype", "kv-dtype", NULL};
    return index_of(name, names) >= 0;
}

static bool is_of_sharing(const char *name)
{
    static const char *const names[] = {"strategy", "wake", "update-bucket", NULL};
    return index_of(name, names) >= 0;
}

static bool is_of_megatron(const char *name)
{
    static const char *const names[] = {"train-tp",          "train-pp",
                                        "train-stage",       "train-cp",
                                        "train-ep",          "train-vpp",
                                        "sequence-parallel", "recompute-attention",
                                        "bf16-gradients",    "transformer-impl",
                                        "moe-grouped-gemm",  "moe-use-legacy-grouped-gemm",
                                        "optimizer-offload", NULL};
    return index_of(name, names) >= 0;
}

static bool is_of_transformers(const char *name)
{
    static const char *const names[] = {
        "attention",     "loss",         "lora",     "lora-targets",        "base-dtype",
        "adapter-dtype", "prepare-kbit", "autocast", "offload-activations", NULL};
    return index_of(name, names) >= 0;
}

/* What the program of a step alone knows: the formulas do not. */
static bool is_of_program(const rvl_model_options *options, const char *name)
{
    static const char *const names[] = {
        "accumulate",   "loss",         "fused",    "reduce-fp32", "offload-activations",
        "bucket-freed", "prepare-kbit", "autocast", "train-cp",    NULL};
    bool flat = options->attention != RVL_MODEL_ATTENTION_MATH;
    return index_of(name, names) >= 0 || (flat && strcmp(name, "attention") == 0);
}

/* With a given size of one of these the trainer's terms are formulas (docs/model.md). */
static bool is_training_given(const rvl_model_options *options)
{
    bool adds_up = options->train != RVL_MODEL_TRAIN_MEGATRON;
    for (size_t i = 0; adds_up && i < options->given_count; i++) {
        rvl_model_term term = options->given[i].term;
        bool of_step = term >= RVL_MODEL_SHARDED_WEIGHTS && term <= RVL_MODEL_LOGITS;
        if (of_step || (term >= RVL_MODEL_OPTIMIZER_TEMPORARIES && term <= RVL_MODEL_CACHED))
            return true;
    }
    return false;
}

/* What another way to train would use, or what sizes that are given leave without effect. */
static const char *idle_by_trainer(const rvl_model_options *options, const char *name)
{
    const bool megatron = options->train == RVL_MODEL_TRAIN_MEGATRON;
    const bool shared = strcmp(name, "train-cp") == 0;
    if (is_of_trainer(name) && options->train == RVL_MODEL_TRAIN_NONE)
        return "changes nothing with --train none: leave it out, or say with --train how it trains";
    if (shared && !megatron && options->train != RVL_MODEL_TRAIN_FSDP)
        return "is a setting of Megatron and FSDP: leave it out, or say --train megatron:N or "
               "fsdp:N";
    if (!shared && is_of_megatron(name) && !megatron)
        return "is a setting of Megatron: leave it out, or say --train megatron:N";
    if (is_of_transformers(name) && megatron)
        return "changes nothing with --train megatron, which has other layers: leave it out";
    if (is_of_program(options, name) && is_training_given(options))
        return "changes nothing where --given says the size of one of the trainer's terms: leave "
               "one of them out";
    return NULL;
}

/* Policies: what is kept, gathered, reduced or offloaded. */
static const char *idle_policy(const rvl_model_options *options, const char *name)
{
    static const char *const of_fsdp[] = {"mixed-precision", "reduce-fp32", "cpu-offload", NULL};
    bool whole = options->train == RVL_MODEL_TRAIN_DDP || options->train == RVL_MODEL_TRAIN_PLAIN;
    if (strcmp(name, "reshard") == 0 && whole)
        return "changes nothing with --train ddp and plain, where every rank has all layers: leave "
               "it out";
    if (strcmp(name, "reshard") == 0 && options->train == RVL_MODEL_TRAIN_MEGATRON)
        return "changes nothing with --train megatron, which gathers no layers: leave it out";
    if (index_of(name, of_fsdp) >= 0 && options->train != RVL_MODEL_TRAIN_FSDP)
        return "is a policy of FSDP: leave it out, or say --train fsdp:N";
    if (strcmp(name, "bucket-freed") == 0 && options->train != RVL_MODEL_TRAIN_DDP)
        return "is of DDP's buckets: leave it out, or say --train ddp";
    if (strcmp(name, "reduce-fp32") == 0 && (options->flags & RVL_MODEL_MIXED))
        return "changes nothing with --mixed-precision, which reduces in fp32: leave it out";
    if (strcmp(name, "offload-activations") == 0 && (options->flags & RVL_MODEL_RECOMPUTE) == 0)
        return "is predicted for layers that are computed again: say --recompute too, or leave it "
               "out";
    if (strcmp(name, "moe-use-legacy-grouped-gemm") == 0 &&
        (options->flags & RVL_MODEL_LOCAL_LAYERS))
        return "changes nothing with --transformer-impl local, which has no other: leave it out";
    return NULL;
}

static const char *idle_fused(const rvl_model_options *options, const char *name)
{
    if (strcmp(name, "fused") != 0)
        return NULL;
    if (options->flags & RVL_MODEL_CPU_OFFLOAD)
        return "changes nothing with --cpu-offload, where the optimizer runs on the host: leave it "
               "out";
    if (options->train == RVL_MODEL_TRAIN_MEGATRON &&
        (options->flags & RVL_MODEL_LOCAL_LAYERS) == 0)
        return "changes nothing with TransformerEngine's layers: its Adam is fused. Leave it out, "
               "or say --transformer-impl local";
    if (options->optimizer_offload_ppm > 0)
        return "changes nothing with --optimizer-offload: its optimizers are fused. Leave it out";
    if (options->optimizer != RVL_MODEL_ADAMW && options->optimizer != RVL_MODEL_ADAMW_BF16)
        return "changes nothing with this --optimizer: only adamw and adamw-bf16 can be fused";
    return NULL;
}

static const char *idle_without_adapters(const rvl_model_options *options, const char *name)
{
    static const char *const of_adapters[] = {"adapter-dtype", "prepare-kbit", "autocast", NULL};
    if (options->lora_rank > 0)
        return NULL;
    if (strcmp(name, "lora-targets") == 0)
        return "changes nothing without --lora: say --lora RANK, or leave it out";
    if (strcmp(name, "base-dtype") == 0)
        return "changes nothing without --lora, for weights of 4 bits are not trained: say --lora "
               "RANK, or leave it out";
    return index_of(name, of_adapters) >= 0 ? "goes with adapters: say --lora RANK, or leave it out"
                                            : NULL;
}

static const char *idle_in_engine(const rvl_model_options *options, const char *name,
                                  const char *sought)
{
    if (strcmp(name, "wake") == 0 && options->strategy != RVL_MODEL_V3)
        return "changes nothing with this --strategy: only v3 wakes in stages";
    if (strcmp(name, "mem-fraction") != 0)
        return NULL;
    if (is_cache_given(options))
        return "changes nothing where --given says the size of kv_cache: leave one of them out";
    return model_is_cache(sought) ? "is what --max kv_cache looks for: leave one of them out"
                                  : NULL;
}

/* What one half of a step alone has no use for, and the update of one that is shared. */
static const char *idle_by_use(const rvl_model_options *options, const char *name)
{
    if (options->use != RVL_MODEL_USE_RL && is_of_sharing(name))
        return "changes nothing where engine and trainer do not share the GPU: leave it out, or "
               "--serve and --fine-tune";
    if (options->use == RVL_MODEL_USE_FINE_TUNE && is_of_engine(name))
        return "is a setting of the engine, which --fine-tune has none of: leave it out";
    if (options->use == RVL_MODEL_USE_SERVE && strcmp(name, "train") == 0 &&
        options->train != RVL_MODEL_TRAIN_NONE)
        return "changes nothing with --serve, which has no trainer: leave one of them out";
    if (strcmp(name, "update-bucket") == 0 && options->train != RVL_MODEL_TRAIN_NONE &&
        (options->strategy == RVL_MODEL_V0 || options->strategy == RVL_MODEL_V1))
        return "changes nothing with this --strategy: v2 and v3 send new weights in buckets";
    return NULL;
}

static const char *idle_by_part(const rvl_model_options *options, const char *name,
                                const char *sought)
{
    const char *why = idle_by_use(options, name);
    why = why != NULL ? why : idle_by_trainer(options, name);
    why = why != NULL ? why : idle_policy(options, name);
    why = why != NULL ? why : idle_fused(options, name);
    why = why != NULL ? why : idle_without_adapters(options, name);
    return why != NULL ? why : idle_in_engine(options, name, sought);
}

const char *model_setting_idle(const rvl_model_options *options, const char *name,
                               const char *sought)
{
    rvl_model_options filled = *options;
    if (filled.use == RVL_MODEL_USE_FINE_TUNE && filled.train == RVL_MODEL_TRAIN_NONE)
        filled.train = RVL_MODEL_TRAIN_PLAIN;
    return idle_by_part(&filled, name, sought);
}

bool model_set_given(const char *name, const char *size, rvl_model_given *given_out,
                     char why[MODEL_WHY_BYTES])
{
    static const char *const tags[] = {
#define TAG(name, tag, meaning) tag,
        RVL_MODEL_TERM_MAP(TAG)
#undef TAG
            NULL};
    rvl_model_given given = {0};
    if (strcmp(size, "0") != 0 && rvl_size_parse(size, &given.bytes) != RVL_OK) {
        snprintf(why, MODEL_WHY_BYTES,
                 "--given %.40s=%.40s: expected a size such as 2.5GiB, or 0, after the =", name,
                 size);
        return false;
    }
    int index = index_of(name, tags);
    if (index < 0) {
        snprintf(why, MODEL_WHY_BYTES,
                 "--given %.80s: no such term; a step's terms are what `reveille model` prints",
                 name);
        return false;
    }
    given.term = (rvl_model_term)index;
    *given_out = given;
    return true;
}

int model_describe(rvl_status status, const char *config, char *text, size_t size)
{
    const rvl_error *error = rvli_error_get();
    if (error->line > 0)
        snprintf(text, size, "%s:%" PRIu32 ": %s", config, error->line, error->message);
    else if (error->key[0] == '\0')
        snprintf(text, size, "%s: %s", config, error->message);
    else
        snprintf(text, size, "%s: %s: %s", config, error->key, error->message);
    return status == RVL_ERR_HOST_OOM ? EXIT_INTERNAL : EXIT_BAD_INPUT;
}

int model_explain(rvl_status status, const char *config)
{
    char text[EXPLANATION_BYTES];
    int code = model_describe(status, config, text, sizeof text);
    return complain(code, "%s", text);
}
