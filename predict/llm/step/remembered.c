/* SPDX-License-Identifier: MIT */
/*
 * A model's results of program runs, by their shapes.
 *
 * A sweep needs the same training step beside many engines, so the program runs once for each
 * shape. Threads may ask at the same time: two may then run the same shape, and both results are
 * stored.
 */
#include <pthread.h>
#include <stdlib.h>

#include "predict/llm/step/training.h"

typedef struct run {
    struct run *next;
    rvli_training_shape shape;
    rvli_trained trained;
} run;

struct rvli_remembered {
    pthread_mutex_t lock;
    run *first;
};

rvli_remembered *rvli_remembered_new(void)
{
    rvli_remembered *memory = calloc(1, sizeof *memory);
    if (memory != NULL)
        pthread_mutex_init(&memory->lock, NULL);
    return memory;
}

void rvli_remembered_free(rvli_remembered *memory)
{
    if (memory == NULL)
        return;
    for (run *next, *one = memory->first; one != NULL; one = next) {
        next = one->next;
        free(one);
    }
    pthread_mutex_destroy(&memory->lock);
    free(memory);
}

static bool same(const rvli_training_shape *a, const rvli_training_shape *b)
{
    return a->train == b->train && a->train_ranks == b->train_ranks && a->flags == b->flags &&
           a->micro_batch == b->micro_batch && a->seq_len == b->seq_len &&
           a->optimizer == b->optimizer && a->accumulate == b->accumulate && a->tp == b->tp &&
           a->pp == b->pp && a->cp == b->cp && a->ep == b->ep && a->dp == b->dp &&
           a->stage == b->stage && a->vpp == b->vpp &&
           a->optimizer_offload_ppm == b->optimizer_offload_ppm && a->attention == b->attention &&
           a->loss == b->loss && a->loss_chunks == b->loss_chunks && a->lora_rank == b->lora_rank &&
           a->lora_targets == b->lora_targets && a->base_dtype == b->base_dtype &&
           a->limit_bytes == b->limit_bytes;
}

static bool find(const rvli_remembered *memory, const rvli_training_shape *shape,
                 rvli_trained *trained_out)
{
    for (const run *one = memory->first; one != NULL; one = one->next) {
        if (same(&one->shape, shape)) {
            *trained_out = one->trained;
            return true;
        }
    }
    return false;
}

static rvl_status remember(rvli_remembered *memory, const rvli_training_shape *shape,
                           const rvli_trained *trained)
{
    run *one = malloc(sizeof *one);
    if (one == NULL)
        return RVL_ERR_HOST_OOM;
    pthread_mutex_lock(&memory->lock);
    *one = (run){.next = memory->first, .shape = *shape, .trained = *trained};
    memory->first = one;
    pthread_mutex_unlock(&memory->lock);
    return RVL_OK;
}

rvl_status rvli_training_recall(const rvl_model *model, const rvli_training_shape *shape,
                                rvli_shown *shown, rvli_trained *trained_out)
{
    rvli_remembered *memory = model->remembered;
    pthread_mutex_lock(&memory->lock);
    bool found = find(memory, shape, trained_out);
    pthread_mutex_unlock(&memory->lock);
    if (found && shown == NULL)
        return RVL_OK;
    const rvli_tape_listener listener = {.shown = shown};
    rvl_status status = rvli_training_run(model, shape, &listener, trained_out);
    return status == RVL_OK && !found ? remember(memory, shape, trained_out) : status;
}
