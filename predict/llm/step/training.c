/* SPDX-License-Identifier: MIT */
/*
 * Loading, and steps: forward, loss, backward, the sum over ranks, the optimizer.
 *
 * The second step is the first that begins with the optimizer's states. Steps run until one
 * reserves no more than the one before it, as in a long training.
 */
#include "predict/llm/step/training.h"
#include "predict/llm/graph/graph.h"
#include "predict/llm/step/megatron/rank.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 5
#define INDEX_BYTES UINT64_C(8) /* of a token's index */

/* Sizes on Hopper, and of cuBLASLt (torch/aten/src/ATen/cuda/CublasHandlePool.cpp). */
void rvli_workspace(rvli_training *t, rvli_workspace_name name)
{
    static const uint64_t bytes[] = {[RVLI_WORKSPACE_FORWARD] = 32 * RVLI_MIB,
                                     [RVLI_WORKSPACE_BACKWARD] = 32 * RVLI_MIB,
                                     [RVLI_WORKSPACE_BIAS] = RVLI_MIB,
                                     [RVLI_WORKSPACE_RECOMPUTED_BIAS] = RVLI_MIB};
    if (t->workspaces[name] == NULL)
        t->workspaces[name] = rvli_take(&t->tape, RVL_MODEL_BLAS_WORKSPACES, bytes[name]);
}

static bool keeps_master(const rvli_training *t)
{
    return rvli_optimizer_kinds[t->options->optimizer].master &&
           !rvli_is_mixed(t->options->flags) && !rvli_is_frozen(t) && !rvli_is_on_host(t);
}

/*
 * Allocates the parameters of a model on the meta device (to_empty). A tied head is first a
 * separate parameter. When it is tied again, the first copy is freed.
 */
static void load_parameters(rvli_training *t)
{
    for (uint32_t i = 0; i < t->parameter_count; i++) {
        rvli_parameter *parameter = &t->parameters[i];
        bool adapter = parameter->role == RVLI_ROLE_ADAPTER;
        bool wide = !parameter->is_quantised && rvli_is_wide_router(t, parameter->role);
        uint64_t plain = wide ? RVLI_FULL : rvli_share_bytes(t);
        uint64_t each = adapter ? rvli_adapter_bytes(t) : plain;
        parameter->share =
            rvli_take(&t->tape, RVL_MODEL_SHARDED_WEIGHTS, each * parameter->share_elements);
    }
    if ((t->model->features & RVLI_HEAD) == 0) {
        rvli_block tied = rvli_take(&t->tape, RVL_MODEL_SHARDED_WEIGHTS,
                                    rvli_share_bytes(t) * t->parameters[0].share_elements);
        rvli_release(t, &t->parameters[0].share);
        t->parameters[0].share = tied;
    }
}

/* Loads the parameters, everything else that stays, and the tokens. */
static void load(rvli_training *t)
{
    if (rvli_is_base_quantised(t))
        rvli_nf4_load(t);
    else if (!rvli_is_on_host(t))
        load_parameters(t);
    for (uint32_t i = 0; keeps_master(t) && i < t->parameter_count; i++) {
        if (t->parameters[i].trained)
            t->parameters[i].master = rvli_take(&t->tape, RVL_MODEL_MASTER_WEIGHTS,
                                                RVLI_FULL * t->parameters[i].share_elements);
    }
    rvli_activation(t, INDEX_BYTES * t->tokens);
    if (t->options->train == RVL_MODEL_TRAIN_DDP)
        rvli_buckets_make(t);
}

uint64_t rvli_rotary_width(const rvl_model *model)
{
    if (model->features & RVLI_MLA)
        return model->dim[RVLI_DIM_KV_DOWN] - model->dim[RVLI_DIM_KV_LORA];
    return model->dim[model->features & RVLI_JOINED_ROTARY ? RVLI_DIM_ROTARY : RVLI_DIM_HEAD];
}

bool rvli_angles_are_wide(const rvli_training *t)
{
    static const char family[] = "ernie4_5";
    return strncmp(t->model->type, family, sizeof family - 1) == 0;
}

/* First in fp32, then in the layers' type. Sequences share positions, unless each has parts. */
void rvli_rotary_make(rvli_training *t, uint64_t width, rvli_block *rotary)
{
    if (t->model->features & RVLI_NO_ROTARY)
        return;
    bool wide = rvli_is_wide(t) || rvli_angles_are_wide(t);
    uint64_t angles = (rvli_is_ring(t) ? t->tokens : t->options->seq_len) * width;
    rvli_block half = rvli_activation(t, RVLI_FULL * angles / 2);
    rvli_workspace(t, RVLI_WORKSPACE_FORWARD);
    rvli_block whole = rvli_activation(t, RVLI_FULL * angles);
    rvli_block scaled[2];
    for (int i = 0; i < 2; i++) {
        rvli_block plain = rvli_activation(t, RVLI_FULL * angles);
        scaled[i] = rvli_activation(t, RVLI_FULL * angles);
        rvli_release(t, &plain);
    }
    for (int i = 0; i < 2; i++)
        rotary[i] = wide ? scaled[i] : rvli_activation(t, RVLI_HALF * angles);
    rvli_release(t, &half);
    rvli_release(t, &whole);
    for (int i = 0; i < 2 && !wide; i++)
        rvli_release(t, &scaled[i]);
}

static void zero_gradients(rvli_training *t)
{
    for (uint32_t i = 0; i < t->parameter_count; i++)
        rvli_release(t, &t->parameters[i].gradient);
    for (uint32_t i = 0; i <= t->model->layers; i++)
        rvli_release(t, &t->units[i].reduced);
}

static void step(rvli_training *t, rvli_trained *trained)
{
    rvli_tape_begin_step(&t->tape);
    rvli_tape_watch(&t->tape, &trained->passes);
    for (uint32_t pass = 0; pass == 0 || pass < t->options->accumulate; pass++) {
        if (pass == 1)
            rvli_buckets_rebuild(t);
        rvli_graph_forward(t->graph);
        rvli_graph_backward(t->graph);
    }
    rvli_tape_watch(&t->tape, &trained->update);
    rvli_tape_between(&t->tape);
    rvli_optimizer_step(t);
    rvli_tape_between(&t->tape);
    rvli_tape_watch(&t->tape, NULL);
    zero_gradients(t);
    rvli_tape_between(&t->tape);
}

static void end(rvli_training *t)
{
    rvli_graph_free(t->graph);
    free(t->parameters);
    free(t->units);
    free(t->chunks);
    rvli_tape_end(&t->tape);
}

rvl_status rvli_training_run(const rvl_model *model, const rvli_training_shape *shape,
                             const rvli_tape_listener *listener, rvli_trained *trained_out)
{
    if (shape->train == RVL_MODEL_TRAIN_MEGATRON)
        return rvli_rank_run(model, shape, listener, trained_out);
    rvli_training t = {.model = model,
                       .options = shape,
                       .sharded = shape->train == RVL_MODEL_TRAIN_FSDP,
                       .tokens = (uint64_t)shape->micro_batch * shape->seq_len,
                       .at = RVL_MODEL_NO_LAYER,
                       .units = calloc(model->layers + 1, sizeof(rvli_unit)),
                       .chunks = calloc((size_t)shape->loss_chunks + 1, sizeof(rvli_block))};
    rvli_tape_begin(&t.tape, shape->limit_bytes);
    rvli_tape_listen(&t.tape, listener);
    t.tape.failed = t.units == NULL || t.chunks == NULL;
    if (!t.tape.failed)
        rvli_parameters_make(&t);
    if (!t.tape.failed)
        load(&t);
    if (!t.tape.failed) {
        t.graph = rvli_graph_make(&t);
        t.tape.failed = t.graph == NULL;
    }
    for (int i = 0; i < STEPS_MAX && !t.tape.failed; i++) {
        bool rebuilt = i == 1 && rvli_buckets_rebuild(&t);
        *trained_out = (rvli_trained){0};
        if (rebuilt || !rvli_tape_repeat_step(&t.tape))
            step(&t, trained_out);
        if (rvli_tape_is_settled(&t.tape))
            break;
    }
    rvli_tape_show(&t.tape, &trained_out->passes, &trained_out->update);
    trained_out->reserved_bytes = t.tape.reserved_bytes;
    trained_out->requested_bytes = t.tape.requested_bytes;
    trained_out->host_bytes = rvli_host_bytes(&t);
    bool failed = rvli_tape_failed(&t.tape);
    end(&t);
    return failed ? RVL_ERR_HOST_OOM : RVL_OK;
}
