/* SPDX-License-Identifier: MIT */
/*
 * Fuzzes the config reader with any bytes at all. A model that it accepts has as many parameters as
 * its tensors have elements, and makes steps that add up, or is refused with a reason. Seeds:
 * tests/corpus/model/.
 */
#include <stdlib.h>
#include <string.h>

#include "reveille/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Models of more tensors than any published one has take too long a run. */
#define TENSORS_MAX 5000

typedef struct totals {
    uint64_t elements;
    uint64_t tensors;
} totals;

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void add_tensor(void *user, const rvl_model_tensor *tensor)
{
    totals *sum = user;
    require(tensor->rows > 0 && tensor->columns > 0);
    require(strlen(tensor->name) > 0 && strchr(tensor->name, '%') == NULL);
    sum->elements += tensor->rows * tensor->columns;
    sum->tensors++;
}

static void check_step(const rvl_model_step *step)
{
    const rvl_trace_event *events;
    size_t count = rvl_model_step_events(step, &events);
    uint64_t live = 0, taken = 0;
    for (size_t i = 0; i < count; i++) {
        require(i == 0 || events[i].time_ns >= events[i - 1].time_ns);
        taken += events[i].kind == RVL_EVENT_ALLOC ? events[i].bytes : 0;
        live += events[i].kind == RVL_EVENT_ALLOC;
        live -= events[i].kind == RVL_EVENT_FREE;
    }
    require(live <= count);
    require(taken >= rvl_model_step_bytes(step, RVL_MODEL_WEIGHTS) +
                         rvl_model_step_bytes(step, RVL_MODEL_KV_CACHE));
}

static void try_step(const rvl_model *model, rvl_model_options options)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model_step *step = NULL;
    options.struct_size = sizeof options;
    options.device = "1024TiB";
    rvl_status status = rvl_model_step_make(model, &options, &step);
    rvl_last_error(&error);
    require((status == RVL_OK) == (step != NULL));
    require(status == RVL_OK || error.message[0] != '\0');
    if (step != NULL)
        check_step(step);
    rvl_model_step_close(step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model *model = NULL;
    totals sum = {0};
    rvl_status status = rvl_model_parse((const char *)data, size, &model);
    rvl_last_error(&error);
    require((status == RVL_OK) == (model != NULL));
    require(status == RVL_OK || error.message[0] != '\0');
    if (model == NULL)
        return 0;
    rvl_model_visit_tensors(model, add_tensor, &sum);
    require(sum.elements == rvl_model_parameter_count(model));
    if (sum.tensors <= TENSORS_MAX) {
        try_step(model, (rvl_model_options){.pp = 3, .pp_rank = 1});
        try_step(model, (rvl_model_options){.tp = 2, .weights_dtype = RVL_MODEL_BF16});
        try_step(model, (rvl_model_options){.weights_dtype = RVL_MODEL_INT8});
        try_step(model, (rvl_model_options){.train = RVL_MODEL_TRAIN_FSDP,
                                            .train_ranks = 3,
                                            .weights_dtype = RVL_MODEL_INT4,
                                            .optimizer = RVL_MODEL_ADAMW_8BIT});
        try_step(model, (rvl_model_options){.train = RVL_MODEL_TRAIN_DDP,
                                            .strategy = RVL_MODEL_V1,
                                            .pp = 2,
                                            .pp_rank = 1,
                                            .weights_dtype = RVL_MODEL_FP8});
    }
    rvl_model_close(model);
    return 0;
}
