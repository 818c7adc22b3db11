/* SPDX-License-Identifier: MIT */
/*
 * The config reader. A model that it accepts has as many parameters as its tensors have elements,
 * and makes a step that adds up, or is refused with a reason. The options of the step are the
 * numbers of the config's "_step", which the reader passes over.
 */
#include <jansson.h>
#include <string.h>

#include "fuzz.h"
#include "predict/llm/llm_internal.h"
#include "reveille/model.h"

/* What is done once for each matrix takes long for many: what is wrong with a few is found sooner.
 */
#define MATRICES_MAX 32u
#define GIVEN_MAX 4u

typedef struct totals {
    uint64_t elements;
    uint64_t tensors;
} totals;

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
    size_t count = 0;
    require(rvl_model_step_get_events(step, NULL, 0, 0, &count) == RVL_OK);
    rvl_trace_event *events = calloc(count + 1, sizeof *events);
    require(events != NULL);
    require(rvl_model_step_get_events(step, events, sizeof *events, count, &count) == RVL_OK);
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
    free(events);
}

static uint32_t option(const json_t *step, const char *name)
{
    return (uint32_t)json_integer_value(json_object_get(step, name));
}

static uint64_t flag(const json_t *step, const char *name, uint64_t of)
{
    return option(step, name) != 0 ? of : 0;
}

/* Most models fit on the first one; which attention trains is another one's to say. */
static const char *device_in(const json_t *step)
{
    static const char *const devices[] = {"1024TiB", "h200", "b200", "a100-80g"};
    return devices[option(step, "device") % (sizeof devices / sizeof devices[0])];
}

/* Sizes of terms by their numbers, of which one that there is not is to be refused. */
static size_t read_given(const json_t *step, rvl_model_given given[GIVEN_MAX])
{
    const json_t *list = json_object_get(step, "given"), *pair;
    size_t count = 0, index;
    json_array_foreach(list, index, pair)
    {
        if (count < GIVEN_MAX)
            given[count++] = (rvl_model_given){
                .term = (rvl_model_term)json_integer_value(json_array_get(pair, 0)),
                .bytes = (uint64_t)json_integer_value(json_array_get(pair, 1))};
    }
    return count;
}

/* Enumerations are taken as they are: out of bounds is to be refused. */
static rvl_model_options options_in(const json_t *step)
{
    return (rvl_model_options){
        .struct_size = sizeof(rvl_model_options),
        .device = device_in(step),
        .tp = option(step, "tp"),
        .pp = option(step, "pp"),
        .pp_rank = option(step, "pp_rank"),
        .ep = option(step, "ep"),
        .train = (rvl_model_train)option(step, "train"),
        .train_ranks = option(step, "train_ranks"),
        .train_tp = option(step, "train_tp"),
        .train_pp = option(step, "train_pp"),
        .train_cp = option(step, "train_cp"),
        .train_ep = option(step, "train_ep"),
        .train_stage = option(step, "train_stage"),
        .train_vpp = option(step, "train_vpp"),
        .mem_fraction_ppm = option(step, "mem_fraction_ppm"),
        .strategy = (rvl_model_strategy)option(step, "strategy"),
        .wake = (rvl_wake)option(step, "wake"),
        .micro_batch = option(step, "micro_batch"),
        .seq_len = option(step, "seq_len"),
        .flags = flag(step, "recompute", RVL_MODEL_RECOMPUTE) |
                 flag(step, "reshard", RVL_MODEL_RESHARD) | flag(step, "mixed", RVL_MODEL_MIXED) |
                 flag(step, "reduce_fp32", RVL_MODEL_REDUCE_FP32) |
                 flag(step, "fused", RVL_MODEL_FUSED) |
                 (option(step, "seq_len") % 2 == 0 ? RVL_MODEL_SEGMENTS : 0) |
                 flag(step, "nccl", RVL_MODEL_NCCL) |
                 flag(step, "cpu_offload", RVL_MODEL_CPU_OFFLOAD) |
                 flag(step, "bucket_freed", RVL_MODEL_BUCKET_FREED) |
                 flag(step, "offload_activations", RVL_MODEL_OFFLOAD) |
                 flag(step, "bf16_adapters", RVL_MODEL_BF16_ADAPTERS) |
                 flag(step, "autocast", RVL_MODEL_AUTOCAST) |
                 flag(step, "prepare_kbit", RVL_MODEL_PREPARE_KBIT) |
                 option(step, "megatron") % 8 * RVL_MODEL_SEQUENCE_PARALLEL |
                 option(step, "layers") % 8 * RVL_MODEL_LOCAL_LAYERS,
        .optimizer_offload_ppm = option(step, "optimizer_offload_ppm"),
        .use = (rvl_model_use)option(step, "use"),
        .update_bucket_bytes = option(step, "update_bucket_bytes"),
        .accumulate = option(step, "accumulate"),
        .attention = (rvl_model_attention)option(step, "attention"),
        .loss = (rvl_model_loss)option(step, "loss"),
        .loss_chunks = option(step, "loss_chunks"),
        .lora_rank = option(step, "lora_rank"),
        .lora_targets = (rvl_model_lora_targets)option(step, "lora_targets"),
        .base_dtype = (rvl_model_base_dtype)option(step, "base_dtype"),
        .optimizer = (rvl_model_optimizer)option(step, "optimizer"),
        .weights_dtype = (rvl_model_dtype)option(step, "weights_dtype"),
        .kv_dtype = (rvl_model_dtype)option(step, "kv_dtype")};
}

/* Each setting is looked at beside the others, and takes some of the values that there are. */
static void check_settings(const rvl_model_options *options)
{
    static const char *const values[] = {
        "yes",    "no",   "2",       "0.5",        "1GiB",       "whole",
        "fsdp:8", "none", "chunked", "chunked:4",  "flash",      "together",
        "local",  "sgd",  "fsdp:0",  "all-linear", "5000000000", ""};
    rvl_model_setting setting = {.struct_size = sizeof setting};
    size_t count = 0;
    for (; rvl_model_setting_get(count, &setting) == RVL_OK; count++) {
        rvl_status status = rvl_model_options_check(options, setting.name);
        require(status == RVL_OK || status == RVL_ERR_INVALID);
        rvl_model_options changed = *options;
        size_t taken = 0;
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
            taken += rvl_model_options_set(&changed, setting.name, values[i]) == RVL_OK;
        require(taken < sizeof values / sizeof values[0] || strcmp(setting.name, "device") == 0);
    }
    require(count > 0);
}

static bool try_step(const rvl_model *model, const uint8_t *data, size_t size)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model_step *step = NULL;
    json_t *config = json_loadb((const char *)data, size, 0, NULL);
    rvl_model_given given[GIVEN_MAX];
    rvl_model_options options = options_in(json_object_get(config, "_step"));
    options.given = given;
    options.given_size = sizeof given[0];
    options.given_count = read_given(json_object_get(config, "_step"), given);
    json_decref(config);
    check_settings(&options);
    rvl_status status = rvl_model_step_make(model, &options, &step);
    rvl_last_error(&error);
    require((status == RVL_OK) == (step != NULL));
    require(status == RVL_OK || error.message[0] != '\0');
    if (step != NULL)
        check_step(step);
    rvl_model_step_close(step);
    return status == RVL_OK;
}

bool fuzz_run(const uint8_t *data, size_t size)
{
    rvl_error error = {.struct_size = sizeof error};
    rvl_model *model = NULL;
    totals sum = {0};
    rvl_status status = rvl_model_parse((const char *)data, size, &model);
    rvl_last_error(&error);
    require((status == RVL_OK) == (model != NULL));
    require(status == RVL_OK || error.message[0] != '\0');
    if (model == NULL)
        return false;
    bool good = false;
    if ((uint64_t)model->layers * (1 + model->experts) <= MATRICES_MAX) {
        rvl_model_visit_tensors(model, add_tensor, &sum);
        require(sum.elements == rvl_model_parameter_count(model) && sum.tensors > 0);
        good = try_step(model, data, size);
    }
    rvl_model_close(model);
    return good;
}
