/* SPDX-License-Identifier: MIT */
/* Steps as objects: made from a model and options, asked for terms and events, written as
 * traces. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/trace_element.h"
#include "predict/llm/llm_internal.h"

rvl_status rvl_model_step_make(const rvl_model *model, const rvl_model_options *options,
                               rvl_model_step **step_out)
{
    rvli_plan plan;
    if (model == NULL || step_out == NULL)
        return rvli_model_fail(RVL_ERR_INVALID, "", "the model or the output is NULL");
    rvl_status status = rvli_plan_make(model, options, &plan);
    if (status != RVL_OK)
        return status;
    rvl_model_step *step = calloc(1, sizeof *step);
    if (step == NULL)
        return rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a step");
    status = rvli_terms_make(model, &plan, &step->terms);
    if (status != RVL_OK) {
        free(step);
        return status;
    }
    step->train = plan.options.train;
    step->device = (rvl_trace_device){.profile = plan.device.name,
                                      .capacity_bytes = plan.device.capacity_bytes,
                                      .granularity_bytes = plan.device.granularity_bytes};
    rvli_step_play(step, &plan);
    step->header = rvli_step_describe(step, model, &plan);
    if (step->failed || step->header == NULL) {
        rvl_model_step_close(step);
        return rvli_model_fail(RVL_ERR_HOST_OOM, "", "no host memory for a step");
    }
    *step_out = step;
    return RVL_OK;
}

void rvl_model_step_close(rvl_model_step *step)
{
    if (step == NULL)
        return;
    rvli_terms_free(&step->terms);
    free(step->events);
    free(step->header);
    free(step);
}

uint64_t rvl_model_step_bytes(const rvl_model_step *step, rvl_model_term term)
{
    return step != NULL && (unsigned)term < RVL_MODEL_TERM_COUNT
               ? step->terms.term[term].sizes.total
               : 0;
}

size_t rvl_model_step_allocation_count(const rvl_model_step *step, rvl_model_term term)
{
    return step != NULL && (unsigned)term < RVL_MODEL_TERM_COUNT
               ? step->terms.term[term].sizes.count
               : 0;
}

const char *rvl_model_step_tag(const rvl_model_step *step, rvl_model_term term)
{
    return step != NULL && (unsigned)term < RVL_MODEL_TERM_COUNT ? rvli_term_tag(term, step->train)
                                                                 : "?";
}

rvl_model_doubt rvl_model_step_doubt(const rvl_model_step *step, rvl_model_term term)
{
    if (step == NULL || (unsigned)term >= RVL_MODEL_TERM_COUNT)
        return RVL_MODEL_DOUBT_NONE;
    if (step->terms.without_nccl[term])
        return RVL_MODEL_DOUBT_LEFT_OUT;
    const rvli_term *it = &step->terms.term[term];
    return it->assumed && it->sizes.count > 0 ? RVL_MODEL_DOUBT_ASSUMED : RVL_MODEL_DOUBT_NONE;
}

uint64_t rvl_model_step_token_count(const rvl_model_step *step)
{
    return step != NULL ? step->terms.tokens : 0;
}

rvl_status rvl_model_step_get_device(const rvl_model_step *step, rvl_trace_device *device_out,
                                     size_t device_size)
{
    if (step == NULL || device_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "the step or device_out is NULL");
    rvl_status status = rvli_element_check(RVLI_TRACE_DEVICE, device_size);
    if (status == RVL_OK)
        rvli_element_write(RVLI_TRACE_DEVICE, device_out, device_size, &step->device);
    return status;
}

rvl_status rvl_model_step_get_events(const rvl_model_step *step, rvl_trace_event *events_out,
                                     size_t event_size, size_t capacity, size_t *count_out)
{
    if (step == NULL)
        return rvli_error(RVL_ERR_INVALID, "the step is NULL");
    const rvli_elements_out out = {
        .element = RVLI_TRACE_EVENT, .array = events_out, .size = event_size, .capacity = capacity};
    return rvli_elements_fill(&out, step->events, step->event_count, count_out);
}

rvl_status rvl_model_step_replay(const rvl_model_step *step, const rvl_replay_options *options,
                                 rvl_replay **replay_out)
{
    if (step == NULL)
        return rvli_error(RVL_ERR_INVALID, "the step is NULL");
    const rvl_replay_events events = {.struct_size = sizeof events,
                                      .name = "the step",
                                      .devices = &step->device,
                                      .device_count = 1,
                                      .device_size = sizeof step->device,
                                      .events = step->events,
                                      .event_count = step->event_count,
                                      .event_size = sizeof *step->events};
    return rvl_replay_run_events(&events, options, replay_out);
}

/* ---- Writing ---- */

static rvl_status write_events(const rvl_model_step *step, rvl_trace_writer *writer)
{
    size_t comment = 0;
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < step->event_count && status == RVL_OK; i++) {
        while (comment < step->comment_count && step->comments[comment].event == i &&
               status == RVL_OK)
            status = rvl_trace_writer_add_comment(writer, step->comments[comment++].text);
        if (status == RVL_OK)
            status = rvl_trace_writer_add_event(writer, &step->events[i], sizeof step->events[i]);
    }
    return status;
}

rvl_status rvl_model_step_write(const rvl_model_step *step, const char *path)
{
    if (step == NULL || path == NULL)
        return rvli_error(RVL_ERR_INVALID, "the step or the path is NULL");
    rvl_trace_header header = {.struct_size = sizeof header,
                               .devices = &step->device,
                               .device_count = 1,
                               .device_size = sizeof step->device,
                               .comment = step->header,
                               .minor = step->terms.by_program ? 1 : 0};
    rvl_trace_writer *writer;
    rvl_status status = rvl_trace_writer_open_draft(path, &header, &writer);
    if (status != RVL_OK)
        return status;
    status = rvl_trace_writer_add_process(writer, "engine", 0);
    if (status == RVL_OK)
        status = rvl_trace_writer_add_process(writer, "trainer", 0);
    if (status == RVL_OK)
        status = write_events(step, writer);
    if (status == RVL_OK)
        return rvl_trace_writer_close(writer);
    rvl_trace_writer_discard(writer);
    return status;
}
