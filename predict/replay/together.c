/* SPDX-License-Identifier: MIT */
/*
 * Wake together: finds the tags that every step resumes, before the step begins.
 *
 * This reads the trace once in advance. It only looks at resumes and steps. The replay itself finds
 * all other faults, so a bad trace gets the same message with either wake.
 */
#include <stdlib.h>

#include "base/grow.h"

#include "predict/replay/replay_internal.h"

static rvl_status no_memory(rvl_replay *replay)
{
    return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_HOST_OOM,
                              "no host memory for the resumes of a step");
}

static int compare_pairs(const void *left, const void *right)
{
    const rvli_replay_pair *a = left;
    const rvli_replay_pair *b = right;
    if (a->process_index != b->process_index)
        return a->process_index < b->process_index ? -1 : 1;
    if (a->tag_slot != b->tag_slot)
        return a->tag_slot < b->tag_slot ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Ends a step. Of several resumes of one tag within it, keeps the first. */
static void end_step(rvli_replay_together *together)
{
    size_t begin = together->first[together->step_count];
    size_t count = together->pair_count - begin;
    if (count == 0)
        return;
    rvli_replay_pair *pairs = together->pairs + begin;
    qsort(pairs, count, sizeof *pairs, compare_pairs);
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        if (pairs[i].process_index != pairs[kept - 1].process_index ||
            pairs[i].tag_slot != pairs[kept - 1].tag_slot)
            pairs[kept++] = pairs[i];
    }
    together->pair_count = begin + kept;
}

/* Begins the next step, or step 0. false: no memory. */
static bool begin_step(rvli_replay_together *together, size_t step)
{
    if (step + 1 >= together->step_capacity) {
        size_t capacity = together->step_capacity ? together->step_capacity * 2 : 64;
        size_t *first = realloc(together->first, capacity * sizeof *first);
        if (first == NULL)
            return false;
        together->first = first;
        together->step_capacity = capacity;
    }
    together->first[step] = together->pair_count;
    together->step_count = step;
    return true;
}

static bool add_pair(rvli_replay_together *together, const rvl_trace_event *event)
{
    if (!RVLI_ROOM(together->pairs, together->pair_count, together->pair_capacity, 64))
        return false;
    size_t order = together->pair_count - together->first[together->step_count];
    together->pairs[together->pair_count++] = (rvli_replay_pair){
        .process_index = event->process_index,
        .tag_slot = rvli_replay_tag_slot(event),
        .order = (uint32_t)order,
        .no_restore = event->skip_content,
    };
    return true;
}

static bool collect_event(rvli_replay_together *together, rvli_replay_conductor *conductor,
                          const rvl_trace_event *event)
{
    switch (event->kind) {
    case RVL_EVENT_RESUME:
        return add_pair(together, event);
    case RVL_EVENT_STAGE:
        rvli_replay_conducts(conductor, event); /* may choose the conductor */
        return true;
    case RVL_EVENT_STEP:
        if (!rvli_replay_conducts(conductor, event))
            return true;
        end_step(together);
        return begin_step(together, together->step_count + 1);
    default:
        return true;
    }
}

/* Collects the resumes of all steps. reader NULL: from the source. */
static rvl_status collect(rvl_replay *replay, rvl_trace_reader *reader)
{
    rvli_replay_together *together = &replay->together;
    rvli_replay_conductor conductor = {.name = replay->options.conductor};
    rvl_trace_event event;

    if (!begin_step(together, 0))
        return no_memory(replay);
    rvl_status status = rvli_replay_input_begin(replay);
    if (status != RVL_OK)
        return status;
    status = rvli_replay_input_next(replay, reader, &event);
    while (status == RVL_OK) {
        if (!collect_event(together, &conductor, &event))
            return no_memory(replay);
        status = rvli_replay_input_next(replay, reader, &event);
    }
    /* The replay itself will find the same line, after any fault before it. */
    if (status != RVL_ERR_NOT_FOUND && status != RVL_ERR_CORRUPT_TRACE)
        return status;
    end_step(together);
    together->step_count++;
    together->first[together->step_count] = together->pair_count;
    return RVL_OK;
}

static rvl_status collect_from_files(rvl_replay *replay)
{
    rvl_trace_progress progress = {.struct_size = sizeof progress};
    rvl_trace_reader_get_progress(replay->reader, &progress);
    if (progress.bytes_total == 0)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "waking together reads the trace twice: it cannot be a pipe");
    rvl_trace_reader *reader;
    rvl_status status = rvli_replay_input_reader(replay, &reader);
    if (status != RVL_OK)
        return status;
    status = collect(replay, reader);
    rvl_trace_reader_close(reader);
    return status;
}

rvl_status rvli_replay_together_collect(rvl_replay *replay)
{
    if (replay->reader != NULL)
        return collect_from_files(replay);
    if (replay->memory.source.rewind == NULL)
        return rvli_replay_refuse(replay, NULL, 0, RVL_ERR_INVALID,
                                  "waking together reads the events twice: give the source rewind");
    rvl_status status = collect(replay, NULL);
    return status == RVL_OK ? rvli_replay_input_rewind(replay) : status;
}

const rvli_replay_pair *rvli_replay_together_step(const rvli_replay_together *together, size_t step,
                                                  size_t *count_out)
{
    if (step >= together->step_count) {
        *count_out = 0;
        return NULL;
    }
    *count_out = together->first[step + 1] - together->first[step];
    return together->pairs + together->first[step];
}

void rvli_replay_together_destroy(rvli_replay_together *together)
{
    free(together->pairs);
    free(together->first);
    *together = (rvli_replay_together){0};
}
