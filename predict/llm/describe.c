/* SPDX-License-Identifier: MIT */
/* The header comment of a trace: what the trace shows, and the source of each size in it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "predict/llm/llm_internal.h"

static const char *const abouts[] = {
    [RVL_MODEL_V0] = "nothing is released. Trainer and engine hold all they have, always.",
    [RVL_MODEL_V1] =
        "one process at a time. The engine is shut down before the trainer starts; the\n"
        "trainer saves its state to disk and ends before the engine is launched again; nothing is\n"
        "kept on the host.",
    [RVL_MODEL_V2] =
        "the engine sleeps and wakes as a whole; the trainer's state is offloaded to the\n"
        "host.",
    [RVL_MODEL_V3] =
        "the engine wakes in stages: weights and buffers, update, then KV cache and graphs;\n"
        "the trainer's state is offloaded to the host.",
};

static const char *const wakes[] = {
    [RVL_MODEL_V0] = "The engine never sleeps.",
    [RVL_MODEL_V1] = "",
    [RVL_MODEL_V2] = "The engine sleeps, and wakes as a whole for the update.",
    [RVL_MODEL_V3] = "The engine sleeps, and wakes in stages: weights, update, then KV cache.",
};

/* --wake together turns v3 into v2. */
static rvl_model_strategy strategy_of(const rvl_model_options *o)
{
    bool whole = o->strategy == RVL_MODEL_V3 && o->wake == RVL_WAKE_TOGETHER;
    return whole ? RVL_MODEL_V2 : o->strategy;
}

static void describe_wake(FILE *out, const rvl_model_step *step, const rvl_model_options *o)
{
    bool in_buckets = step->terms.term[RVL_MODEL_UPDATE_BUCKET].sizes.count > 0;
    fprintf(out,
            "One step of reinforcement learning, %s, GPU 0 of tensor parallel %" PRIu32
            " on %s,\nengine and trainer on the same card: %s "
            "for the update.\n%s\n"
            "The engine's allocations are there from the start, without memory (flags=paused): "
            "the\ntrace begins with it asleep. Nothing is backed up: weights are overwritten by "
            "the update,\nthe cache is filled again.\n",
            o->name, o->tp, o->device,
            in_buckets ? "buckets of the new weights come"
                       : "a whole copy of the new weights comes",
            wakes[strategy_of(o)]);
}

static void describe_megatron(FILE *out, const rvl_model_options *o)
{
    fprintf(out,
            "Megatron over %" PRIu32 " GPUs (tensor parallel %" PRIu32 ", pipeline %" PRIu32
            ",\ncontext %" PRIu32 ", expert %" PRIu32 "; stage %" PRIu32,
            o->train_ranks, o->train_tp, o->train_pp, o->train_cp, o->train_ep, o->train_stage);
    if (o->train_vpp > 1)
        fprintf(out, ", %" PRIu32 " parts interleaved", o->train_vpp);
    fputc(')', out);
}

static void describe_trainer(FILE *out, const rvl_model_options *o)
{
    if (o->train == RVL_MODEL_TRAIN_FSDP)
        fprintf(out, "FSDP over %" PRIu32 " GPUs", o->train_ranks);
    else if (o->train == RVL_MODEL_TRAIN_MEGATRON)
        describe_megatron(out, o);
    else
        fputs(o->train == RVL_MODEL_TRAIN_DDP ? "DDP" : "plain PyTorch", out);
}

static void describe_fine_tuning(FILE *out, const rvl_model_options *o)
{
    fprintf(out, "One step of fine-tuning %s on %s, ", o->name, o->device);
    describe_trainer(out, o);
    fputs("; GPU 0.\n", out);
}

static void describe_full_step(FILE *out, const rvl_model_options *o)
{
    static const char digits[] = {
        [RVL_MODEL_V0] = '0', [RVL_MODEL_V1] = '1', [RVL_MODEL_V2] = '2', [RVL_MODEL_V3] = '3'};
    fprintf(out, "One full step of %s on %s, ", o->name, o->device);
    describe_trainer(out, o);
    fprintf(out,
            " and an engine of tensor parallel %" PRIu32 "; GPU 0.\nStrategy v%c: %s\n"
            "A step mark stands where a version of the weights begins: before the first rollout\n"
            "and before the update.\n",
            o->tp, digits[strategy_of(o)], abouts[strategy_of(o)]);
}

static void describe_terms(FILE *out, const rvl_model_step *step)
{
    static const char *const meanings[] = {
#define MEANING(name, tag, meaning) meaning,
        RVL_MODEL_TERM_MAP(MEANING)
#undef MEANING
    };
    for (int i = 0; i < RVL_MODEL_TERM_COUNT; i++) {
        const rvli_term *term = &step->terms.term[i];
        if (term->sizes.count > 0)
            fprintf(out, "  %-16s %13" PRIu64 "  %s\n",
                    rvli_term_tag((rvl_model_term)i, step->train), term->sizes.total,
                    term->given ? "given" : meanings[i]);
    }
}

/* Some layers keep less than every token. The token count of the cache then means little without
 * the sequence length. */
static void describe_sequence(FILE *out, const rvl_model *model, const rvli_plan *plan)
{
    if (rvli_has_layers(model, RVLI_LAYER_WINDOW | RVLI_LAYER_STATE))
        fprintf(
            out,
            "\nLayers with a window, or with a state in the place of attention: of a sequence of "
            "%" PRIu32 "\ntokens the cache keeps %" PRIu64 " bytes.\n",
            plan->options.seq_len, rvli_cache_sequence_bytes(model, plan));
}

char *rvli_step_describe(const rvl_model_step *step, const rvl_model *model, const rvli_plan *plan)
{
    const rvl_model_options *o = &plan->options;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL)
        return NULL;
    if (o->use == RVL_MODEL_USE_SERVE)
        fprintf(out, "An engine of %s on %s, GPU 0 of tensor parallel %" PRIu32 ".\n", o->name,
                o->device, o->tp);
    else if (o->use == RVL_MODEL_USE_FINE_TUNE)
        describe_fine_tuning(out, o);
    else if (o->train == RVL_MODEL_TRAIN_NONE)
        describe_wake(out, step, o);
    else
        describe_full_step(out, o);
    for (size_t i = 0; i < o->note_count; i++)
        fprintf(out, "%s\n", o->notes[i]);
    fprintf(out,
            "\nWritten by `reveille model`; docs/model.md has its formulas. Model type %s, "
            "%" PRIu64 "\nparameters. Bytes of this GPU, as PyTorch asks the device for them:\n",
            model->type, model->parameters);
    describe_terms(out, step);
    describe_sequence(out, model, plan);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
