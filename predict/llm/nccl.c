/* SPDX-License-Identifier: MIT */
/*
 * Memory of NCCL's own buffers, from the communicators of a rank.
 *
 * Measured with two ranks on H200s with NVLink, without NVLS (docs/fidelity/libraries.md, "What
 * NCCL takes"). A communicator allocates memory for its channels when it is made, more at its first
 * collective, and other memory at its first send. Stacks of kernels and the like are allocated once
 * in each process. Other numbers of ranks are assumed to cost the same. This has not been measured.
 */
#include "predict/llm/llm_internal.h"

#define PROCESS_BYTES (290 * RVLI_MIB)
#define COLLECTIVE_BYTES (484 * RVLI_MIB)
#define SENDING_BYTES (320 * RVLI_MIB) /* as PyTorch makes a communicator for sends */

uint64_t rvli_plan_nccl_bytes(rvli_communicators count)
{
    uint64_t bytes = count.collective * COLLECTIVE_BYTES + count.sending * SENDING_BYTES;
    return bytes > 0 ? PROCESS_BYTES + bytes : 0;
}

rvli_communicators rvli_nccl_of_engine(const rvl_model_options *o)
{
    return (rvli_communicators){.collective = o->tp > 1, .sending = o->pp > 1};
}

/* The two stages that share a tied embedding sum its gradients. */
static bool shares_embedding(const rvl_model *model, const rvl_model_options *o)
{
    bool is_end = o->train_stage == 0 || o->train_stage + 1 == o->train_pp;
    return o->train_pp > 1 && is_end && (model->features & RVLI_HEAD) == 0;
}

/* Two communicators span all ranks: the job's, and one for the norm of all gradients. */
static rvli_communicators of_megatron(const rvl_model *model, const rvl_model_options *o)
{
    uint32_t stage_ranks = o->train_ranks / o->train_pp;
    rvli_communicators count = {.collective = o->train_ranks > 1 ? 2 : 0};
    count.collective += o->train_tp > 1;
    count.collective += stage_ranks > o->train_tp;
    count.collective += o->train_ep > 1;
    count.collective += model->experts > 0 && stage_ranks > o->train_ep;
    count.collective += shares_embedding(model, o);
    count.sending += o->train_pp > 1;
    count.sending += o->train_cp > 1; /* with one neighbour */
    count.sending += o->train_cp > 2; /* with the other neighbour */
    return count;
}

/* Ranks that share a sequence have a second communicator, unless they are all ranks. */
static rvli_communicators of_fsdp(const rvl_model_options *o)
{
    rvli_communicators count = {.collective = o->train_ranks > 1};
    count.collective += o->train_cp > 1 && o->train_cp < o->train_ranks;
    return count;
}

rvli_communicators rvli_nccl_of_trainer(const rvl_model *model, const rvl_model_options *o)
{
    switch (o->train) {
    case RVL_MODEL_TRAIN_FSDP:
        return of_fsdp(o);
    case RVL_MODEL_TRAIN_DDP:
        return (rvli_communicators){.collective = 1};
    case RVL_MODEL_TRAIN_MEGATRON:
        return of_megatron(model, o);
    default:
        return (rvli_communicators){0};
    }
}
