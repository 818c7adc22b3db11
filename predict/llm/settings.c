/* SPDX-License-Identifier: MIT */
/*
 * Settings of a step. One table has each setting's name, field, values and needs. Commands and
 * Python read it (rvl_model_setting_get()) and set fields with it. A step is checked against it.
 *
 * A setting changes nothing if one of its needs is not met. A step refuses some of these settings.
 * It accepts the others, so that one list of settings can serve several ways to train. Messages put
 * settings in quotes: 'train' megatron:N.
 */
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "predict/llm/llm_internal.h"

#define PPM 1000000

typedef enum kind {
    NUMBER,   /* uint32_t */
    FRACTION, /* uint32_t, in millionths */
    WORD,     /* an enum; its count, if any, is in the uint32_t behind it */
    FLAG,     /* a bit of flags; the second of two words sets it */
    USE,      /* a value of rvl_model_use; yes sets it */
    SIZE,     /* uint64_t */
    TEXT      /* const char * */
} kind;

/* Needs of settings: unmet() has a row for each. */
enum {
    SHARING = 1 << 0, /* engine and trainer share the GPU */
    UPDATES = 1 << 1,
    ENGINE = 1 << 2,
    NO_SERVE = 1 << 3,
    TRAINER = 1 << 4, /* like TRAINED, but a step does not refuse it */
    TRAINED = 1 << 5,
    FSDP_MEGATRON = 1 << 6,
    MEGATRON = 1 << 7,
    TRANSFORMERS = 1 << 8, /* transformers' layers */
    PROGRAM = 1 << 9,      /* the program of a step; the formulas do not support it */
    FLAT_PROGRAM = 1 << 10,
    GATHERS = 1 << 11,
    FSDP = 1 << 12,
    DDP = 1 << 13,
    UNMIXED = 1 << 14,
    RECOMPUTES = 1 << 15,
    TE_LAYERS = 1 << 16,
    FUSIBLE = 1 << 17,
    ADAPTED = 1 << 18,
    FROZEN = 1 << 19,
    ADAPTERS = 1 << 20,
    STAGED = 1 << 21,
    OPEN_CACHE = 1 << 22,
};

typedef struct setting {
    const char *group; /* heading in the help */
    const char *name;
    const char *values; /* NULL: a switch */
    kind kind;
    size_t field;
    size_t end;        /* offset of the field's end */
    const char *words; /* by value, each followed by a bar; an empty word cannot be given */
    uint64_t bit;      /* FLAG: its bit; USE: its value */
    uint64_t preset;   /* default: what 0 stands for */
    uint32_t least;
    uint32_t most; /* of a number or a count */
    const char *expected;
    const char *usual;
    unsigned needs;
    const char *help;
} setting;

#define END(field_)                                                                                \
    (offsetof(rvl_model_options, field_) + sizeof((rvl_model_options *)NULL)->field_)
#define AT(field_) .field = offsetof(rvl_model_options, field_), .end = END(field_)
#define OF_NUMBER(field_, least_, most_, preset_)                                                  \
    .kind = NUMBER, AT(field_), .least = (least_), .most = (most_), .preset = (preset_),           \
    .expected = "a whole number from " #least_ " to " #most_
#define OF_FRACTION(field_, preset_, such)                                                         \
    .kind = FRACTION, AT(field_), .most = PPM, .preset = (preset_),                                \
    .expected = "more than 0 and at most 1, such as " such ", with at most six decimals"
#define OF_SIZE(field_, preset_, expected_)                                                        \
    .kind = SIZE, AT(field_), .preset = (preset_), .expected = (expected_)
#define OF_WORD(field_, words_, expected_)                                                         \
    .kind = WORD, AT(field_), .words = (words_), .expected = (expected_)
#define OF_COUNTED(field_, count, words_, most_, expected_)                                        \
    .kind = WORD, .field = offsetof(rvl_model_options, field_), .end = END(count),                 \
    .words = (words_), .most = (most_), .expected = (expected_)
#define OF_DEVICE                                                                                  \
    .kind = TEXT, AT(device), .expected = "a size or a profile that `reveille devices` lists"
#define OF_BIT(bit_, ...) .kind = FLAG, AT(flags), .bit = (bit_), __VA_ARGS__
#define OF_USE(use_) .kind = USE, AT(use), .bit = (use_), NO_YES
#define NO_YES .words = "no|yes|", .expected = "yes or no"
#define SETTING(group_, name_, values_, kind_, usual_, needs_, help_)                              \
    {                                                                                              \
        .group = (group_), .name = (name_), .values = (values_), kind_, .usual = (usual_),         \
        .needs = (needs_), .help = (help_)                                                         \
    }
#define SWITCH(group_, name_, bit_, usual_, needs_, help_)                                         \
    SETTING(group_, name_, NULL, OF_BIT(bit_, NO_YES), usual_, needs_, help_)

_Static_assert(offsetof(rvl_model_options, train_ranks) == END(train) &&
                   offsetof(rvl_model_options, loss_chunks) == END(loss),
               "a count is behind its enum");

#define OPTIMIZER_WORD(name, word, states, bytes, blocks, master, paged) word "|"

/* In the order of the help and of sweeps. */
static const setting settings[] = {
    SETTING("Use", "device", "DEVICE", OF_DEVICE, "h200", 0,
            "a profile, the file of one, or a size"),
    SETTING("Use", "serve", NULL, OF_USE(RVL_MODEL_USE_SERVE), "a step of reinforcement learning",
            0, "an engine alone"),
    SETTING("Use", "fine-tune", NULL, OF_USE(RVL_MODEL_USE_FINE_TUNE),
            "a step of reinforcement learning", 0, "a trainer alone"),
    SETTING("Engine", "tp", "N", OF_NUMBER(tp, 1, 4096, 1), "1", ENGINE, "tensor parallel"),
    SETTING("Engine", "pp", "N", OF_NUMBER(pp, 1, 4096, 1), "1", ENGINE, "pipeline stages"),
    SETTING("Engine", "pp-rank", "N", OF_NUMBER(pp_rank, 0, 4095, 0), "0", ENGINE,
            "the stage that is predicted"),
    SETTING("Engine", "ep", "N", OF_NUMBER(ep, 1, 4096, 1), "1", ENGINE,
            "expert parallel, within tp"),
    SETTING("Engine", "mem-fraction", "X", OF_FRACTION(mem_fraction_ppm, 900000, "0.9"), "0.9",
            ENGINE | OPEN_CACHE, "part of the memory that weights and KV cache take"),
    SETTING("Engine", "weights-dtype", "bf16|fp8|int4|int8",
            OF_WORD(weights_dtype, "|bf16|fp8|int4|int8|", "bf16, fp8, int4 or int8"),
            "what the config's quantization_config says, or bf16", ENGINE, "type of the weights"),
    SETTING("Engine", "kv-dtype", "bf16|fp8", OF_WORD(kv_dtype, "|bf16|fp8|", "bf16 or fp8"),
            "what the config says, or bf16", ENGINE, "type of the KV cache"),
    SETTING("Trainer", "train", "fsdp:N|ddp|plain|megatron:N|none",
            OF_COUNTED(train, train_ranks, "none|fsdp:N|ddp|megatron:N|plain|", 4096,
                       "fsdp:N, ddp, plain, megatron:N or none, with N from 1 to 4096"),
            "none; with 'fine-tune': plain", NO_SERVE,
            "fsdp:N: sharded over N GPUs; ddp: whole on each; plain: on one GPU; megatron:N: "
            "split over N GPUs by the settings that begin with train-, the rest is data "
            "parallel; none: the trainer runs elsewhere, and sends new weights"),
    SETTING("Trainer", "train-tp", "N", OF_NUMBER(train_tp, 1, 4096, 1), "1", MEGATRON,
            "Megatron: tensor parallel"),
    SETTING("Trainer", "train-pp", "N", OF_NUMBER(train_pp, 1, 4096, 1), "1", MEGATRON,
            "Megatron: pipeline stages, by 1F1B"),
    SETTING("Trainer", "train-stage", "N", OF_NUMBER(train_stage, 0, 4095, 0), "0", MEGATRON,
            "Megatron: the stage that is predicted"),
    SETTING("Trainer", "train-vpp", "N", OF_NUMBER(train_vpp, 1, 4096, 1), "1", MEGATRON,
            "Megatron: parts of the model on each stage (interleaved 1F1B)"),
    SETTING("Trainer", "train-cp", "N", OF_NUMBER(train_cp, 1, 4096, 1), "1",
            FSDP_MEGATRON | PROGRAM, "Megatron, FSDP: context parallel"),
    SETTING("Trainer", "train-ep", "N", OF_NUMBER(train_ep, 1, 4096, 1), "1", MEGATRON,
            "Megatron: expert parallel, over the ranks of a stage"),
    SWITCH("Trainer", "sequence-parallel", RVL_MODEL_SEQUENCE_PARALLEL, "whole on each rank",
           MEGATRON, "Megatron: the sequence is split over train-tp between matrices"),
    SWITCH("Trainer", "recompute-attention", RVL_MODEL_SELECTIVE, "all are kept", MEGATRON,
           "Megatron: attention alone is computed again"),
    SWITCH("Trainer", "bf16-gradients", RVL_MODEL_BF16_GRADIENTS, "fp32", MEGATRON,
           "Megatron: gradients are added up and reduced in bf16"),
    SETTING("Trainer", "transformer-impl", "transformer_engine|local",
            OF_BIT(RVL_MODEL_LOCAL_LAYERS, .words = "transformer_engine|local|",
                   .expected = "transformer_engine or local"),
            "transformer_engine", MEGATRON,
            "Megatron: where its layers come from; transformer_engine brings its Adam, too"),
    SWITCH("Trainer", "moe-grouped-gemm", RVL_MODEL_GROUPED_GEMM, "one after the other", MEGATRON,
           "Megatron: the experts of a rank are one product"),
    SWITCH("Trainer", "moe-use-legacy-grouped-gemm", RVL_MODEL_LEGACY_GROUPED_GEMM,
           "TransformerEngine's", MEGATRON | TE_LAYERS,
           "Megatron: that product is the older class's, with one parameter for all experts"),
    SETTING("Trainer", "optimizer-offload", "X", OF_FRACTION(optimizer_offload_ppm, 0, "0.5"),
            "none", MEGATRON,
            "Megatron: part of the optimizer that is on the host and steps there"),
    SWITCH("Trainer", "reshard", RVL_MODEL_RESHARD, "all are kept", TRAINER | GATHERS,
           "gathered layers are freed after use"),
    SETTING("Trainer", "micro-batch", "N", OF_NUMBER(micro_batch, 1, 16777216, 1), "1", TRAINER,
            "sequences"),
    SETTING("Trainer", "seq-len", "N", OF_NUMBER(seq_len, 1, 16777216, 4096), "4096", 0,
            "tokens of a sequence, in training and in the cache"),
    SETTING("Trainer", "accumulate", "N", OF_NUMBER(accumulate, 1, 4096, 1), "1", TRAINER | PROGRAM,
            "micro-batches before the optimizer's step"),
    SWITCH("Trainer", "recompute", RVL_MODEL_RECOMPUTE, "all are kept", TRAINER,
           "activations are computed again, layer by layer"),
    SETTING("Trainer", "attention", "cudnn|flash|efficient|math",
            OF_WORD(attention, "|cudnn|flash|efficient|math|", "cudnn, flash, efficient or math"),
            "cudnn on Hopper and B200, else flash", TRAINER | TRANSFORMERS | FLAT_PROGRAM,
            "which of PyTorch's attentions trains"),
    SETTING("Trainer", "loss", "plain|chunked[:N]|fused",
            OF_COUNTED(loss, loss_chunks, "plain|chunked[:N]|fused|", 4096,
                       "plain, chunked, chunked:N with N from 1 to 4096, or fused"),
            "plain", TRAINER | TRANSFORMERS | PROGRAM,
            "chunked: N parts of the tokens, 8 if not said; fused: Liger's kernel"),
    SETTING("Trainer", "lora", "RANK", OF_NUMBER(lora_rank, 1, 65536, 0), "all is trained",
            TRAINED | TRANSFORMERS, "adapters of this rank are trained, and all else is frozen"),
    SETTING("Trainer", "lora-targets", "peft|all-linear",
            OF_WORD(lora_targets, "peft|all-linear|", "peft or all-linear"), "peft",
            TRAINER | TRANSFORMERS | ADAPTED,
            "layers with adapters; peft: q and v; all-linear: every linear layer, "
            "and experts where PEFT adapts them"),
    SETTING("Trainer", "base-dtype", "bf16|nf4|nf4-single",
            OF_WORD(base_dtype, "bf16|nf4|nf4-single|", "bf16, nf4 or nf4-single"), "bf16",
            TRAINER | TRANSFORMERS | FROZEN,
            "with 'lora': type of the frozen linear layers; nf4: 4 bits, scales quantised again "
            "(QLoRA); nf4-single: scales in fp32"),
    SETTING("Trainer", "adapter-dtype", "fp32|bf16",
            OF_BIT(RVL_MODEL_BF16_ADAPTERS, .words = "fp32|bf16|", .expected = "fp32 or bf16"),
            "fp32", TRAINER | TRANSFORMERS | ADAPTERS,
            "with 'lora': type of the adapters; fp32: PEFT's default; bf16: as TRL beside nf4"),
    SWITCH("Trainer", "prepare-kbit", RVL_MODEL_PREPARE_KBIT, "in bf16",
           TRAINER | TRANSFORMERS | PROGRAM | ADAPTERS,
           "with nf4 and 'autocast': embedding, norms and head are in fp32, as PEFT's "
           "prepare_model_for_kbit_training() leaves them"),
    SWITCH("Trainer", "autocast", RVL_MODEL_AUTOCAST, "types as they are",
           TRAINER | TRANSFORMERS | PROGRAM | ADAPTERS,
           "with nf4: the forward pass is in torch.autocast (bf16), as with bf16=True of a "
           "transformers Trainer"),
    SETTING(
        "Trainer", "optimizer", "NAME",
        OF_WORD(optimizer, RVL_MODEL_OPTIMIZER_MAP(OPTIMIZER_WORD),
                "adamw, adamw-bf16, adamw-8bit, paged-adamw-8bit, paged-adamw-32bit, sgd-momentum "
                "or sgd"),
        "adamw", TRAINER,
        "what the trainer steps with: adamw, adamw-bf16, adamw-8bit, sgd-momentum, sgd, or "
        "paged-adamw-8bit and paged-adamw-32bit, bitsandbytes' with states in managed memory"),
    SWITCH("Trainer", "mixed-precision", RVL_MODEL_MIXED, "all in bf16", TRAINER | FSDP,
           "FSDP: shards and gradients in fp32, the passes in bf16"),
    SWITCH("Trainer", "reduce-fp32", RVL_MODEL_REDUCE_FP32, "as they are",
           TRAINER | PROGRAM | FSDP | UNMIXED,
           "FSDP: bf16 gradients are summed over ranks in fp32"),
    SWITCH("Trainer", "bucket-freed", RVL_MODEL_BUCKET_FREED, "in the second backward pass",
           TRAINER | PROGRAM | DDP, "DDP: the first bucket goes before the second forward pass"),
    SWITCH("Trainer", "cpu-offload", RVL_MODEL_CPU_OFFLOAD, "on the GPU", TRAINER | FSDP,
           "FSDP: shards, their gradients and the optimizer are on the host"),
    SWITCH("Trainer", "offload-activations", RVL_MODEL_OFFLOAD, "on the GPU",
           TRAINED | TRANSFORMERS | PROGRAM | RECOMPUTES,
           "with 'recompute': what is kept goes to the host, as in TRL"),
    SWITCH("Trainer", "fused", RVL_MODEL_FUSED, "foreach", TRAINER | PROGRAM | FUSIBLE,
           "AdamW works in one kernel, without temporaries"),
    SETTING("Both", "strategy", "v0|v1|v2|v3",
            OF_WORD(strategy, "v3|v0|v1|v2|", "v0, v1, v2 or v3"), "v3", SHARING,
            "how they share the GPU, see docs/strategies.md in the sources"),
    SETTING("Both", "wake", "staged|together",
            OF_WORD(wake, "staged|together|", "staged or together"), "staged", SHARING | STAGED,
            "together: v3 resumes all of the engine at once"),
    SETTING("Both", "update-bucket", "SIZE|whole",
            OF_SIZE(update_bucket_bytes, UINT64_C(512) << 20, "a size such as 512MiB, or whole"),
            "512MiB, as in slime and verl", UPDATES,
            "new weights come to the engine in buckets of this size, or all at once"),
    SWITCH("Both", "nccl", RVL_MODEL_NCCL, "left out", 0,
           "NCCL's own buffers are counted, for each communicator of engine and trainer"),
};

#define SETTING_COUNT (sizeof settings / sizeof settings[0])

/* ---- Needs of settings ---- */

static bool is_given(const rvl_model_options *o, rvl_model_term first, rvl_model_term last)
{
    if (o->given == NULL || o->given_size < sizeof o->given->term)
        return false; /* the step reports what is wrong with them */
    for (size_t i = 0; i < o->given_count; i++) {
        rvl_model_term term;
        memcpy(&term, (const char *)o->given + i * o->given_size, sizeof term);
        if (term >= first && term <= last)
            return true;
    }
    return false;
}

/* If one of these sizes is given, the trainer's terms are formulas (docs/model.md). */
static bool is_training_given(const rvl_model_options *o)
{
    return o->train != RVL_MODEL_TRAIN_MEGATRON &&
           (is_given(o, RVL_MODEL_SHARDED_WEIGHTS, RVL_MODEL_LOGITS) ||
            is_given(o, RVL_MODEL_OPTIMIZER_TEMPORARIES, RVL_MODEL_CACHED));
}

/*
 * Returns why a setting changes nothing together with the others, and the remedy. NULL: it may
 * change something. refused: looks only at needs that a step enforces.
 */
static const char *unmet(unsigned needs, const rvl_model_options *o, bool refused)
{
    const bool rl = o->use == RVL_MODEL_USE_RL;
    const bool trains = o->train != RVL_MODEL_TRAIN_NONE, fsdp = o->train == RVL_MODEL_TRAIN_FSDP;
    const bool megatron = o->train == RVL_MODEL_TRAIN_MEGATRON,
               ddp = o->train == RVL_MODEL_TRAIN_DDP;
    const bool local = (o->flags & RVL_MODEL_LOCAL_LAYERS) != 0;
    const bool flat = o->attention != RVL_MODEL_ATTENTION_MATH;
    const bool by_formulas = is_training_given(o);
    static const char not_shared[] =
        "changes nothing where engine and trainer do not share the GPU: leave it out, or 'serve' "
        "and 'fine-tune'";
    static const char no_trainer[] =
        "changes nothing with 'train' none: leave it out, or say with 'train' how it trains";
    static const char formulas[] =
        "changes nothing where 'given' says the size of one of the trainer's terms: leave "
        "one of them out";
    const struct {
        unsigned needs;
        bool refused;
        bool met;
        const char *why;
    } rows[] = {
        {SHARING, true, rl, not_shared},
        {UPDATES, false, rl, not_shared},
        {ENGINE, false, o->use != RVL_MODEL_USE_FINE_TUNE,
         "is a setting of the engine, which 'fine-tune' has none of: leave it out"},
        {NO_SERVE, true, o->use != RVL_MODEL_USE_SERVE || !trains,
         "changes nothing with 'serve', which has no trainer: leave one of them out"},
        {UPDATES, false, !trains || o->strategy == RVL_MODEL_V2 || o->strategy == RVL_MODEL_V3,
         "changes nothing with this 'strategy': v2 and v3 send new weights in buckets"},
        {TRAINER, false, trains, no_trainer},
        {TRAINED, true, trains, no_trainer},
        {FSDP_MEGATRON, true, megatron || fsdp,
         "is a setting of Megatron and FSDP: leave it out, or say 'train' megatron:N or fsdp:N"},
        {MEGATRON, true, megatron,
         "is a setting of Megatron: leave it out, or say 'train' megatron:N"},
        {TRANSFORMERS, true, !megatron,
         "changes nothing with 'train' megatron, which has other layers: leave it out"},
        {PROGRAM, false, !by_formulas, formulas},
        {FLAT_PROGRAM, false, !by_formulas || !flat, formulas},
        {GATHERS, false, !ddp && o->train != RVL_MODEL_TRAIN_PLAIN,
         "changes nothing with 'train' ddp and plain, where every rank has all layers: leave it "
         "out"},
        {GATHERS, false, !megatron,
         "changes nothing with 'train' megatron, which gathers no layers: leave it out"},
        {FSDP, true, fsdp, "is a policy of FSDP: leave it out, or say 'train' fsdp:N"},
        {DDP, true, ddp, "is of DDP's buckets: leave it out, or say 'train' ddp"},
        {UNMIXED, true, !rvli_is_mixed(o->flags),
         "changes nothing with 'mixed-precision', which reduces in fp32: leave it out"},
        {RECOMPUTES, true, (o->flags & RVL_MODEL_RECOMPUTE) != 0,
         "is predicted for layers that are computed again: say 'recompute' too, or leave it out"},
        {TE_LAYERS, false, !local,
         "changes nothing with 'transformer-impl' local, which has no other: leave it out"},
        {FUSIBLE, false, (o->flags & RVL_MODEL_CPU_OFFLOAD) == 0,
         "changes nothing with 'cpu-offload', where the optimizer runs on the host: leave it out"},
        {FUSIBLE, false, !megatron || local,
         "changes nothing with TransformerEngine's layers: its Adam is fused. Leave it out, or say "
         "'transformer-impl' local"},
        {FUSIBLE, false, o->optimizer_offload_ppm == 0,
         "changes nothing with 'optimizer-offload': its optimizers are fused. Leave it out"},
        {FUSIBLE, false, o->optimizer == RVL_MODEL_ADAMW || o->optimizer == RVL_MODEL_ADAMW_BF16,
         "changes nothing with this 'optimizer': only adamw and adamw-bf16 can be fused"},
        {ADAPTED, true, o->lora_rank > 0,
         "changes nothing without 'lora': say 'lora' RANK, or leave it out"},
        {FROZEN, true, o->lora_rank > 0,
         "changes nothing without 'lora', for weights of 4 bits are not trained: say 'lora' RANK, "
         "or leave it out"},
        {ADAPTERS, true, o->lora_rank > 0, "goes with adapters: say 'lora' RANK, or leave it out"},
        {STAGED, false, o->strategy == RVL_MODEL_V3,
         "changes nothing with this 'strategy': only v3 wakes in stages"},
        {OPEN_CACHE, false, !is_given(o, RVL_MODEL_KV_CACHE, RVL_MODEL_KV_CACHE),
         "changes nothing where 'given' says the size of kv_cache: leave one of them out"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if ((rows[i].needs & needs) && !rows[i].met && (rows[i].refused || !refused))
            return rows[i].why;
    }
    return NULL;
}

/* ---- Values as text ---- */

static const setting *find(const char *name)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (strcmp(settings[i].name, name) == 0)
            return &settings[i];
    }
    return NULL;
}

static bool parse_number(const char *text, uint32_t least, uint32_t most, uint32_t *number_out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value < least || value > most)
        return false;
    *number_out = (uint32_t)value;
    return true;
}

/* Parses millionths, without rounding through a double. */
static bool parse_fraction(const char *text, uint32_t *ppm_out)
{
    uint32_t ppm = 0, unit = PPM;
    const char *c = text;
    if (*c == '0' || *c == '1')
        ppm = *c++ == '1' ? unit : 0;
    if (c != text && *c == '.')
        for (c++; *c >= '0' && *c <= '9' && unit > 1; c++) {
            unit /= 10;
            ppm += unit * (uint32_t)(*c - '0');
        }
    if (*c != '\0' || c[-(c != text)] == '.' || ppm == 0 || ppm > PPM)
        return false;
    *ppm_out = ppm;
    return true;
}

/* Index of a word. N stands for a count; "[:N]" may be left out, and *count_out is 0 then. -1: no
 * such word. */
static int find_word(const setting *s, const char *text, uint32_t *count_out)
{
    int index = 0;
    *count_out = 0;
    for (const char *at = s->words; *at != '\0'; at += strcspn(at, "|") + 1, index++) {
        size_t length = strcspn(at, "|:[");
        if (length == 0 || strncmp(at, text, length) != 0)
            continue;
        const char *rest = text + length;
        if (*rest == '\0' && at[length] != ':')
            return index;
        if (*rest == ':' && at[length] != '|' && parse_number(rest + 1, 1, s->most, count_out))
            return index;
    }
    return -1;
}

static bool set_word(const setting *s, const char *text, rvl_model_options *o)
{
    uint32_t count, *field = (uint32_t *)((char *)o + s->field);
    int index = find_word(s, text, &count);
    if (index < 0)
        return false;
    if (s->kind == FLAG) {
        o->flags = index == 1 ? o->flags | s->bit : o->flags & ~s->bit;
    } else if (s->kind == USE) { /* no undoes the yes of this setting, and nothing else */
        if (index == 1 || o->use == (rvl_model_use)s->bit)
            o->use = index == 1 ? (rvl_model_use)s->bit : RVL_MODEL_USE_RL;
    } else {
        *field = (uint32_t)index;
        if (s->most > 0)
            field[1] = count;
    }
    return true;
}

static bool set_size(const char *text, uint64_t *field)
{
    uint64_t bytes = RVL_MODEL_UPDATE_WHOLE;
    if (strcmp(text, "whole") != 0 && (rvl_size_parse(text, &bytes) != RVL_OK || bytes == 0))
        return false;
    *field = bytes;
    return true;
}

static bool set(const setting *s, const char *text, rvl_model_options *o)
{
    void *field = (char *)o + s->field;
    switch (s->kind) {
    case NUMBER:
        return parse_number(text, s->least, s->most, field);
    case FRACTION:
        return parse_fraction(text, field);
    case SIZE:
        return set_size(text, field);
    case TEXT: /* unknown devices are refused when the step is made */
        *(const char **)field = text;
        return true;
    default:
        return set_word(s, text, o);
    }
}

static rvl_status refuse(const setting *s, const char *before, const char *why)
{
    return rvli_model_fail(RVL_ERR_INVALID, s->name, "%s%s", before, why);
}

static rvl_status refuse_name(const char *name)
{
    return rvli_model_fail(RVL_ERR_NOT_FOUND, name, "no such setting of a step");
}

rvl_status rvl_model_options_set(rvl_model_options *options, const char *name, const char *value)
{
    if (options == NULL || name == NULL || value == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "", "the options, the name or the value is NULL");
    const setting *s = find(name);
    if (s == NULL)
        return refuse_name(name);
    if (options->struct_size < s->end)
        return rvli_model_fail(RVL_ERR_VERSION, name,
                               "struct_size says that the options have no such field");
    return set(s, value, options) ? RVL_OK : refuse(s, "expected ", s->expected);
}

/* ---- Values of options ---- */

static uint64_t value_of(const setting *s, const rvl_model_options *o)
{
    const void *field = (const char *)o + s->field;
    switch (s->kind) {
    case SIZE:
        return *(const uint64_t *)field;
    case FLAG:
        return o->flags & s->bit;
    case USE:
        return o->use == (rvl_model_use)s->bit;
    case TEXT:
        return 0;
    default:
        return *(const uint32_t *)field;
    }
}

void rvli_model_settings_fill(rvl_model_options *o)
{
    for (const setting *s = settings; s < settings + SETTING_COUNT; s++) {
        void *field = (char *)o + s->field;
        if (s->kind == SIZE && value_of(s, o) == 0)
            *(uint64_t *)field = s->preset;
        else if ((s->kind == NUMBER || s->kind == FRACTION) && value_of(s, o) == 0)
            *(uint32_t *)field = (uint32_t)s->preset;
    }
    if (o->use == RVL_MODEL_USE_FINE_TUNE && o->train == RVL_MODEL_TRAIN_NONE)
        o->train = RVL_MODEL_TRAIN_PLAIN;
}

uint64_t rvli_model_settings_flags(void)
{
    uint64_t flags = 0;
    for (const setting *s = settings; s < settings + SETTING_COUNT; s++)
        flags |= s->kind == FLAG ? s->bit : 0;
    return flags;
}

static bool is_in_range(const setting *s, const rvl_model_options *o)
{
    const uint32_t *field = (const uint32_t *)((const char *)o + s->field);
    uint64_t words = 0;
    if (s->kind == NUMBER || s->kind == FRACTION)
        return *field <= s->most;
    if (s->kind == USE)
        return (unsigned)o->use <= RVL_MODEL_USE_FINE_TUNE;
    if (s->kind != WORD)
        return true;
    for (const char *at = s->words; *at != '\0'; at++)
        words += *at == '|';
    return *field < words && (s->most == 0 || field[1] <= s->most);
}

rvl_status rvli_model_settings_check(const rvl_model_options *o)
{
    for (const setting *s = settings; s < settings + SETTING_COUNT; s++) {
        if (!is_in_range(s, o))
            return refuse(s, "expected ", s->expected);
    }
    for (const setting *s = settings; s < settings + SETTING_COUNT; s++) {
        const char *why = value_of(s, o) != s->preset ? unmet(s->needs, o, true) : NULL;
        if (why != NULL)
            return refuse(s, "", why);
    }
    return RVL_OK;
}

rvl_status rvl_model_options_check(const rvl_model_options *options, const char *name)
{
    rvl_model_options filled;
    if (options == NULL || name == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "", "the options or the name is NULL");
    const setting *s = find(name);
    if (s == NULL)
        return refuse_name(name);
    rvl_status status = rvli_options_read(&filled, sizeof filled, options);
    if (status != RVL_OK)
        return status;
    rvli_model_settings_fill(&filled);
    const char *why = unmet(s->needs, &filled, false);
    return why == NULL ? RVL_OK : refuse(s, "", why);
}

rvl_status rvl_model_setting_get(size_t index, rvl_model_setting *setting_out)
{
    if (index >= SETTING_COUNT)
        return RVL_ERR_NOT_FOUND; /* the end of the list: not an error to report */
    const setting *s = &settings[index];
    const rvl_model_setting shown = {.group = s->group,
                                     .name = s->name,
                                     .values = s->values,
                                     .expected = s->expected,
                                     .usual = s->usual,
                                     .help = s->help};
    return rvli_result_write(setting_out, &shown, sizeof shown);
}
