/* SPDX-License-Identifier: MIT */
/*
 * The trainer's terms from the program of its step. The program runs on the model of PyTorch's
 * allocator. What is reserved at its fullest moment is divided among the terms.
 */
#include <stdlib.h>

#include "predict/llm/llm_internal.h"
#include "predict/llm/step/megatron/rank.h"
#include "predict/llm/step/training.h"
#include "predict/llm/terms.h"

#define PASSES_MAX 3 /* later passes find the same as the third */
#define ROUNDS 3u
#define SEGMENT_STEP_BYTES (2 * RVLI_MIB) /* all segments are multiples of this */

/* What a step holds for a while, in the order in which the terms are laid out in the reserved
 * memory. */
static const rvl_model_term passing_terms[] = {RVL_MODEL_GRADIENT_BUCKETS,
                                               RVL_MODEL_BLAS_WORKSPACES,
                                               RVL_MODEL_GRADIENTS,
                                               RVL_MODEL_ALL_GATHER,
                                               RVL_MODEL_OPTIMIZER_TEMPORARIES,
                                               RVL_MODEL_DEQUANTISED,
                                               RVL_MODEL_ACTIVATIONS,
                                               RVL_MODEL_LOGITS};
static const rvl_model_term state_terms[] = {RVL_MODEL_SHARDED_WEIGHTS, RVL_MODEL_MASTER_WEIGHTS,
                                             RVL_MODEL_OPTIMIZER};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The program's sizes do not fit a given size. If one is given, the trainer's terms are formulas,
 * and add up. */
static bool any_given(const rvli_maker *m)
{
    bool given = rvli_maker_is_given(m, RVL_MODEL_CACHED);
    for (size_t i = 0; i < COUNT(passing_terms); i++)
        given = given || rvli_maker_is_given(m, passing_terms[i]);
    for (size_t i = 0; i < COUNT(state_terms); i++)
        given = given || rvli_maker_is_given(m, state_terms[i]);
    return given;
}

static uint64_t state_bytes(const rvli_maker *m)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < COUNT(state_terms); i++)
        bytes += rvli_maker_total(m, state_terms[i]);
    return bytes;
}

/*
 * Divides what is reserved among the terms. States are packed separately. Each other term has its
 * blocks, and what is free is cached. The device allocates granules, so each border is moved to the
 * nearest one.
 */
static void divide(const rvli_maker *m, const rvli_moment *moment, uint64_t reserved,
                   uint64_t bytes_out[RVL_MODEL_TERM_COUNT])
{
    uint64_t granule = m->plan->device.granularity_bytes, states = state_bytes(m);
    uint64_t at = states, laid = states;
    for (size_t i = 0; i < COUNT(passing_terms); i++) {
        at += moment->held[passing_terms[i]];
        uint64_t end = (at + granule / 2) / granule * granule;
        bytes_out[passing_terms[i]] = end > laid ? end - laid : 0;
        laid += bytes_out[passing_terms[i]];
    }
    bytes_out[RVL_MODEL_CACHED] = reserved > laid ? reserved - laid : 0;
}

/* A term's printed size is that at the first moment at which it has any. The formula's sizes move
 * to terms->forward. */
static void keep_first(const rvli_maker *m, rvl_model_term term)
{
    uint64_t bytes = 0;
    m->terms->forward[term] = m->terms->term[term].sizes;
    m->terms->term[term].sizes = (rvli_sizes){0};
    for (int i = 0; i < RVLI_MOMENT_COUNT && bytes == 0; i++)
        bytes = m->terms->moments[i][term];
    if (bytes > 0)
        rvli_sizes_add(rvli_maker_sizes(m, term), bytes);
}

/* What the trainer may reserve. While it trains, the engine has only its context and NCCL's buffers
 * on the device, except in v0. 0: no limit. */
static uint64_t limit_of(const rvli_maker *m)
{
    uint64_t contexts = rvli_maker_total(m, RVL_MODEL_ENGINE_CONTEXT) +
                        rvli_maker_total(m, RVL_MODEL_TRAINER_CONTEXT) +
                        rvli_maker_total(m, RVL_MODEL_ENGINE_NCCL) +
                        rvli_maker_total(m, RVL_MODEL_TRAINER_NCCL);
    uint64_t capacity = m->plan->device.capacity_bytes;
    bool alone = m->plan->options.strategy != RVL_MODEL_V0;
    return alone && capacity > contexts ? capacity - contexts : 0;
}

rvli_training_shape rvli_program_shape(const rvl_model_options *o)
{
    rvli_training_shape shape = {.train = o->train,
                                 .train_ranks = o->train_ranks,
                                 .flags = o->flags,
                                 .micro_batch = o->micro_batch,
                                 .seq_len = o->seq_len,
                                 .optimizer = o->optimizer,
                                 .attention = o->attention,
                                 .loss = o->loss,
                                 .loss_chunks = o->loss_chunks,
                                 .lora_rank = o->lora_rank,
                                 .lora_targets = o->lora_targets,
                                 .base_dtype = o->base_dtype};
    shape.accumulate = o->accumulate < PASSES_MAX ? o->accumulate : PASSES_MAX;
    if (o->train == RVL_MODEL_TRAIN_FSDP && o->train_cp > 1) {
        shape.cp = o->train_cp;
        shape.seq_len = o->seq_len / o->train_cp;
    }
    if (o->train == RVL_MODEL_TRAIN_MEGATRON) {
        shape.tp = o->train_tp;
        shape.pp = o->train_pp;
        shape.cp = o->train_cp;
        shape.ep = o->train_ep;
        shape.dp = o->train_ranks / (o->train_tp * o->train_pp * o->train_cp);
        shape.stage = o->train_stage;
        shape.vpp = o->train_vpp;
        shape.optimizer_offload_ppm = o->optimizer_offload_ppm;
        uint32_t passes = o->train_pp - o->train_stage + 1; /* those in flight, and one more */
        if (o->train_vpp > 1)
            passes = ROUNDS * o->train_pp; /* more would not add to those in flight */
        shape.accumulate = o->accumulate < passes ? o->accumulate : passes;
    }
    return shape;
}

/* A run of the program, with its segments if they are wanted. */
typedef struct attempt {
    rvli_trained trained;
    rvli_shown *shown; /* NULL: not wanted */
} attempt;

/* Segments are shown only if the device's granules divide them. */
static bool wants_segments(const rvli_maker *m)
{
    return (m->plan->options.flags & RVL_MODEL_SEGMENTS) != 0 &&
           SEGMENT_STEP_BYTES % m->plan->device.granularity_bytes == 0;
}

/* Runs the program. The caller destroys attempt_out->shown. */
static rvl_status try(const rvli_maker *m, const rvli_training_shape *shape, attempt *attempt_out)
{
    *attempt_out = (attempt){0};
    if (wants_segments(m)) {
        attempt_out->shown = calloc(1, sizeof *attempt_out->shown);
        if (attempt_out->shown == NULL)
            return RVL_ERR_HOST_OOM;
    }
    return rvli_training_recall(m->model, shape, attempt_out->shown, &attempt_out->trained);
}

/* Freeing the cache may make a step fit, if everything that is live at once fits. */
static bool may_fit(const rvli_trained *trained, uint64_t limit)
{
    return trained->reserved_bytes > limit && trained->requested_bytes <= limit;
}

/* Runs the program again with the device's limit. Replaces the attempt if the step then fits. */
static rvl_status try_within(const rvli_maker *m, rvli_training_shape shape, uint64_t limit,
                             attempt *attempt_io)
{
    attempt bounded;
    shape.limit_bytes = limit;
    rvl_status status = try(m, &shape, &bounded);
    bool fits = status == RVL_OK && bounded.trained.reserved_bytes <= limit;
    rvli_shown *unused = fits ? attempt_io->shown : bounded.shown;
    if (fits)
        *attempt_io = bounded;
    rvli_shown_destroy(unused);
    return status;
}

/*
 * Keeps the segments with their contents. States get their own allocations. If that leaves no
 * segments, only the moments are shown.
 */
static rvl_status keep_segments(const rvli_maker *m, rvli_shown *shown)
{
    if (shown == NULL)
        return RVL_OK;
    if (rvli_shown_leave_out_states(shown, state_bytes(m), m->plan->device.granularity_bytes)) {
        m->terms->shown = shown;
        return RVL_OK;
    }
    rvl_status status = shown->failed ? RVL_ERR_HOST_OOM : RVL_OK;
    rvli_shown_destroy(shown);
    return status;
}

/* A step that does not fit is shown as it would be with more memory. */
static rvl_status run_program(const rvli_maker *m, rvli_trained *trained_out)
{
    attempt tried;
    rvli_training_shape shape = rvli_program_shape(&m->plan->options);
    uint64_t limit = limit_of(m);
    rvl_status status = try(m, &shape, &tried);
    if (status == RVL_OK && limit > 0 && may_fit(&tried.trained, limit))
        status = try_within(m, shape, limit, &tried);
    *trained_out = tried.trained;
    if (status == RVL_OK)
        status = keep_segments(m, tried.shown);
    else
        rvli_shown_destroy(tried.shown);
    return status == RVL_OK ? RVL_OK
                            : rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a step");
}

/* Managed memory yields to other memory. Returns the bytes that have no room beside the segments,
 * and so are on the host. */
static uint64_t give_way(const rvli_maker *m, uint64_t reserved)
{
    uint64_t limit = limit_of(m), bytes = rvli_maker_total(m, RVL_MODEL_PAGED_OPTIMIZER);
    uint64_t room = limit > reserved ? (limit - reserved) / RVLI_PAGE_BYTES * RVLI_PAGE_BYTES : 0;
    if (limit == 0 || bytes <= room)
        return 0;
    rvli_sizes_free(rvli_maker_sizes(m, RVL_MODEL_PAGED_OPTIMIZER));
    rvli_maker_add(m, RVL_MODEL_PAGED_OPTIMIZER, room);
    return bytes - room;
}

rvl_status rvli_program_train(const rvli_maker *m)
{
    rvli_trained trained;
    if (any_given(m))
        return RVL_OK;
    rvl_status status = run_program(m, &trained);
    if (status != RVL_OK)
        return status;
    m->terms->by_program = true;
    rvli_maker_add(m, RVL_MODEL_TRAINER_HOST,
                   trained.host_bytes + give_way(m, trained.reserved_bytes));
    divide(m, &trained.passes, trained.reserved_bytes, m->terms->moments[RVLI_MOMENT_PASSES]);
    divide(m, &trained.update, trained.reserved_bytes, m->terms->moments[RVLI_MOMENT_UPDATE]);
    for (size_t i = 0; i < COUNT(passing_terms); i++)
        keep_first(m, passing_terms[i]);
    keep_first(m, RVL_MODEL_CACHED);
    return RVL_OK;
}

void rvli_program_pack_rank(const rvli_maker *m, const rvli_training_shape *shape)
{
    rvli_packer packers[COUNT(state_terms)];
    for (size_t i = 0; i < COUNT(state_terms); i++)
        rvli_packer_begin(&packers[i], rvli_maker_sizes(m, state_terms[i]));
    if (!rvli_rank_pack(m->model, shape, packers))
        rvli_maker_sizes(m, state_terms[0])->failed = true;
    for (size_t i = 0; i < COUNT(state_terms); i++)
        rvli_packer_end(&packers[i]);
}
