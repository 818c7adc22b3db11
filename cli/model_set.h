/* SPDX-License-Identifier: MIT */
/* Options of a step by their names on the command line. */
#ifndef RVL_CLI_MODEL_SET_H
#define RVL_CLI_MODEL_SET_H

#include "options.h"
#include "reveille/model.h"

#define MODEL_WHY_BYTES 512

#define MODEL_FROM_1 "a whole number from 1 to 16777216"

/*
 * All settings of a step but the device, in the order of the help, which is the order of a sweep:
 * GROUP(title), SETTING(field, name, value, expected, default, help), and SWITCH(field, name,
 * default, help), which takes yes or no where it takes a value.
 */
#define MODEL_SETTING_MAP(GROUP, SETTING, SWITCH)                                                  \
    GROUP("Use")                                                                                   \
    SWITCH(serve, "serve", "a step of reinforcement learning", "an engine alone")                  \
    SWITCH(fine_tune, "fine-tune", "a step of reinforcement learning", "a trainer alone")          \
    GROUP("Engine")                                                                                \
    SETTING(tp, "tp", "N", MODEL_FROM_1, "1", "tensor parallel")                                   \
    SETTING(pp, "pp", "N", MODEL_FROM_1, "1", "pipeline stages")                                   \
    SETTING(pp_rank, "pp-rank", "N", "a whole number from 0 to 16777216", "0",                     \
            "the stage that is predicted")                                                         \
    SETTING(ep, "ep", "N", MODEL_FROM_1, "1", "expert parallel, within tp")                        \
    SETTING(mem_fraction, "mem-fraction", "X",                                                     \
            "more than 0 and at most 1, such as 0.9, with at most six decimals", "0.9",            \
            "part of the memory that weights and KV cache take")                                   \
    SETTING(weights_dtype, "weights-dtype", "bf16|fp8|int4|int8", "bf16, fp8, int4 or int8",       \
            "what the config's quantization_config says, or bf16", "type of the weights")          \
    SETTING(kv_dtype, "kv-dtype", "bf16|fp8", "bf16 or fp8", "what the config says, or bf16",      \
            "type of the KV cache")                                                                \
    GROUP("Trainer")                                                                               \
    SETTING(train, "train", "fsdp:N|ddp|plain|megatron:N|none",                                    \
            "fsdp:N, ddp, plain, megatron:N or none", "none; with --fine-tune: plain",             \
            "fsdp:N: sharded over N GPUs; ddp: whole on each; plain: on one GPU; megatron:N: "     \
            "split over N GPUs by the settings that begin with train-, the rest is data "          \
            "parallel; none: the trainer runs elsewhere, and sends new weights")                   \
    SETTING(train_tp, "train-tp", "N", MODEL_FROM_1, "1", "Megatron: tensor parallel")             \
    SETTING(train_pp, "train-pp", "N", MODEL_FROM_1, "1", "Megatron: pipeline stages, by 1F1B")    \
    SETTING(train_stage, "train-stage", "N", "a whole number from 0 to 16777216", "0",             \
            "Megatron: the stage that is predicted")                                               \
    SETTING(train_vpp, "train-vpp", "N", MODEL_FROM_1, "1",                                        \
            "Megatron: parts of the model on each stage (interleaved 1F1B)")                       \
    SETTING(train_cp, "train-cp", "N", MODEL_FROM_1, "1", "Megatron, FSDP: context parallel")      \
    SETTING(train_ep, "train-ep", "N", MODEL_FROM_1, "1",                                          \
            "Megatron: expert parallel, over the ranks of a stage")                                \
    SWITCH(sequence_parallel, "sequence-parallel", "whole on each rank",                           \
           "Megatron: the sequence is split over train-tp between matrices")                       \
    SWITCH(recompute_attention, "recompute-attention", "all are kept",                             \
           "Megatron: attention alone is computed again")                                          \
    SWITCH(bf16_gradients, "bf16-gradients", "fp32",                                               \
           "Megatron: gradients are added up and reduced in bf16")                                 \
    SETTING(transformer_impl, "transformer-impl", "transformer_engine|local",                      \
            "transformer_engine or local", "transformer_engine",                                   \
            "Megatron: where its layers come from; transformer_engine brings its Adam, too")       \
    SWITCH(moe_grouped_gemm, "moe-grouped-gemm", "one after the other",                            \
           "Megatron: the experts of a rank are one product")                                      \
    SWITCH(moe_use_legacy_grouped_gemm, "moe-use-legacy-grouped-gemm", "TransformerEngine's",      \
           "Megatron: that product is the older class's, with one parameter for all experts")      \
    SETTING(optimizer_offload, "optimizer-offload", "X",                                           \
            "more than 0 and at most 1, such as 0.5, with at most six decimals", "none",           \
            "Megatron: part of the optimizer that is on the host and steps there")                 \
    SWITCH(reshard, "reshard", "all are kept", "gathered layers are freed after use")              \
    SETTING(micro_batch, "micro-batch", "N", MODEL_FROM_1, "1", "sequences")                       \
    SETTING(seq_len, "seq-len", "N", MODEL_FROM_1, "4096",                                         \
            "tokens of a sequence, in training and in the cache")                                  \
    SETTING(accumulate, "accumulate", "N", MODEL_FROM_1, "1",                                      \
            "micro-batches before the optimizer's step")                                           \
    SWITCH(recompute, "recompute", "all are kept",                                                 \
           "activations are computed again, layer by layer")                                       \
    SETTING(attention, "attention", "cudnn|flash|efficient|math",                                  \
            "cudnn, flash, efficient or math", "cudnn on Hopper and B200, else flash",             \
            "which of PyTorch's attentions trains")                                                \
    SETTING(loss, "loss", "plain|chunked[:N]|fused",                                               \
            "plain, chunked, chunked:N with N from 1 to 4096, or fused", "plain",                  \
            "chunked: N parts of the tokens, 8 if not said; fused: Liger's kernel")                \
    SETTING(lora_rank, "lora", "RANK", MODEL_FROM_1, "all is trained",                             \
            "adapters of this rank are trained, and all else is frozen")                           \
    SETTING(lora_targets, "lora-targets", "peft|all-linear", "peft or all-linear", "peft",         \
            "layers with adapters; peft: q and v; all-linear: all of attention and MLP")           \
    SETTING(base_dtype, "base-dtype", "bf16|nf4|nf4-single", "bf16, nf4 or nf4-single", "bf16",    \
            "with --lora: type of the frozen linear layers; nf4: 4 bits, scales quantised again "  \
            "(QLoRA); nf4-single: scales in fp32")                                                 \
    SETTING(adapter_dtype, "adapter-dtype", "fp32|bf16", "fp32 or bf16", "fp32",                   \
            "with --lora: type of the adapters; fp32: PEFT's default; bf16: as TRL beside nf4")    \
    SWITCH(prepare_kbit, "prepare-kbit", "in bf16",                                                \
           "with nf4 and --autocast: embedding, norms and head are in fp32, as PEFT's "            \
           "prepare_model_for_kbit_training() leaves them")                                        \
    SWITCH(autocast, "autocast", "types as they are",                                              \
           "with nf4: the forward pass is in torch.autocast (bf16), as with bf16=True of a "       \
           "transformers Trainer")                                                                 \
    SETTING(optimizer, "optimizer", "NAME",                                                        \
            "adamw, adamw-bf16, adamw-8bit, paged-adamw-8bit, paged-adamw-32bit, sgd-momentum "    \
            "or sgd",                                                                              \
            "adamw",                                                                               \
            "what the trainer steps with: adamw, adamw-bf16, adamw-8bit, sgd-momentum, sgd, or "   \
            "paged-adamw-8bit and paged-adamw-32bit, bitsandbytes' with states in managed memory") \
    SWITCH(mixed_precision, "mixed-precision", "all in bf16",                                      \
           "FSDP: shards and gradients in fp32, the passes in bf16")                               \
    SWITCH(reduce_fp32, "reduce-fp32", "as they are",                                              \
           "FSDP: bf16 gradients are summed over ranks in fp32")                                   \
    SWITCH(bucket_freed, "bucket-freed", "in the second backward pass",                            \
           "DDP: the first bucket goes before the second forward pass")                            \
    SWITCH(cpu_offload, "cpu-offload", "on the GPU",                                               \
           "FSDP: shards, their gradients and the optimizer are on the host")                      \
    SWITCH(offload_activations, "offload-activations", "on the GPU",                               \
           "with --recompute: what is kept goes to the host, as in TRL")                           \
    SWITCH(fused, "fused", "foreach", "AdamW works in one kernel, without temporaries")            \
    GROUP("Both")                                                                                  \
    SETTING(strategy, "strategy", "v0|v1|v2|v3", "v0, v1, v2 or v3", "v3",                         \
            "how they share the GPU, see docs/strategies.md in the sources")                       \
    SETTING(wake, "wake", "staged|together", "staged or together", "staged",                       \
            "together: v3 resumes all of the engine at once")                                      \
    SETTING(update_bucket, "update-bucket", "SIZE|whole", "a size such as 512MiB, or whole",       \
            "512MiB, as in slime and verl",                                                        \
            "new weights come to the engine in buckets of this size, or all at once")              \
    SWITCH(nccl, "nccl", "left out",                                                               \
           "NCCL's own buffers are counted, for each communicator of engine and trainer")

/*
 * Sets the option of that name ("tp", "mem-fraction"; switches take yes or no). A device is not
 * copied. false: why has "--tp 0: expected ...".
 */
bool model_set(rvl_model_options *options, const char *name, const char *value,
               char why[MODEL_WHY_BYTES]);

/*
 * Why a setting changes nothing beside the others, with the remedy; NULL: it may change something.
 * sought: the tag to find the largest size of, or NULL.
 */
const char *model_setting_idle(const rvl_model_options *options, const char *name,
                               const char *sought);

/* Whether the KV cache of an engine is meant: the memory fraction sets its size. */
bool model_is_cache(const char *tag);

/* A term by its name, with its size. false as model_set(). */
bool model_set_given(const char *name, const char *size, rvl_model_given *given_out,
                     char why[MODEL_WHY_BYTES]);

/* A fraction in millionths, without a detour through a double. */
bool model_parse_fraction(const char *text, uint32_t *ppm_out);

/* Says why a config or a step was refused. Returns the exit status. */
int model_explain(rvl_status status, const char *config);

/* The same as text, cut where the room ends. Returns the exit status. */
int model_describe(rvl_status status, const char *config, char *text, size_t size);

#endif
