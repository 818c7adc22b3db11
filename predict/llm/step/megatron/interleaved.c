/* SPDX-License-Identifier: MIT */
/*
 * Interleaved 1F1B (megatron/core/pipeline_parallel/schedules.py,
 * forward_backward_pipelining_with_interleaving, without overlap). A stage has several parts of the
 * model, and P micro-batches at a time go through each part in turn, P: stages. A pass is one
 * micro-batch through one part. Backward passes take the parts in reverse order.
 *
 * What a pass receives waits in the queue of its part. What it sends is freed after the exchange
 * that follows. The last gradient that arrived stays until the next exchange, even if it was used.
 */
#include <stdlib.h>

#include "predict/llm/step/megatron/rank.h"

/* Waiting blocks, first in, first out. */
typedef struct queue {
    rvli_block *blocks;
    uint32_t first;
    uint32_t count;
} queue;

typedef struct schedule {
    rvli_rank *r;
    uint32_t pp;
    uint32_t count;     /* forward passes of a step */
    queue *inputs;      /* received, by part */
    queue *gradients;   /* received, by part */
    rvli_block last;    /* the gradient of the last exchange */
    uint32_t *flights;  /* index of the flight + 1, by part and micro-batch */
    rvli_block *blocks; /* storage for the queues */
    bool *taken;        /* by flight */
} schedule;

static void push(const schedule *s, queue *to, rvli_block block)
{
    to->blocks[(to->first + to->count++) % s->count] = block;
}

static rvli_block pop(const schedule *s, queue *from)
{
    if (from->count == 0)
        return NULL;
    rvli_block block = from->blocks[from->first];
    from->first = (from->first + 1) % s->count;
    from->count--;
    return block;
}

/* ---- The order ---- */

static uint32_t part_of(const schedule *s, uint32_t pass, bool forward)
{
    uint32_t part = pass % s->count / s->pp % s->r->parts;
    return forward ? part : s->r->parts - 1 - part;
}

static uint32_t batch_of(const schedule *s, uint32_t pass)
{
    return pass / (s->pp * s->r->parts) * s->pp + pass % s->pp;
}

/*
 * The part for which a stage receives after a pass; -1: nothing arrives. An end of the pipeline
 * receives from the other end. What it receives was made P - 1 passes ago.
 */
static int receives_for(const schedule *s, uint32_t pass, bool forward)
{
    uint32_t stage = s->r->options->stage;
    bool leads = forward ? stage == 0 : stage + 1 == s->pp;
    int last = forward ? (int)s->r->parts - 1 : 0;
    if (!leads)
        return (int)part_of(s, pass + 1, forward);
    if (pass < s->pp - 1)
        return -1;
    int part = (int)part_of(s, pass - (s->pp - 1), forward);
    if (part == last)
        return -1;
    return forward ? part + 1 : part - 1;
}

/* ---- Passes ---- */

static uint32_t *slot_of(const schedule *s, uint32_t part, uint32_t batch)
{
    return &s->flights[part * (s->count / s->r->parts) + batch];
}

static rvli_in_flight *begin_flight(const schedule *s, uint32_t part, uint32_t batch)
{
    uint32_t number = 0;
    while (s->taken[number])
        number++;
    s->taken[number] = true;
    *slot_of(s, part, batch) = number + 1;
    return &s->r->flights[number];
}

static rvli_in_flight *end_flight(const schedule *s, uint32_t part, uint32_t batch)
{
    uint32_t number = *slot_of(s, part, batch) - 1;
    s->taken[number] = false;
    return &s->r->flights[number];
}

/* Returns the output to send. NULL: the last part of all makes a loss. */
static rvli_block pass_forward(const schedule *s, uint32_t pass)
{
    rvli_rank *r = s->r;
    uint32_t part = part_of(s, pass, true);
    rvli_in_flight *flight = begin_flight(s, part, batch_of(s, pass));
    rvli_rank_set_part(r, part);
    if (!r->has_embedding)
        flight->received = pop(s, &s->inputs[part]);
    rvli_rank_forward(r, flight);
    rvli_block output = NULL;
    if (!r->has_head) {
        output = r->hidden;
        r->hidden = NULL;
    }
    return output;
}

/* The gradient to send is r->sent_gradient. */
static void pass_backward(const schedule *s, uint32_t pass)
{
    rvli_rank *r = s->r;
    uint32_t part = part_of(s, pass, false);
    rvli_in_flight *flight = end_flight(s, part, batch_of(s, pass));
    rvli_rank_set_part(r, part);
    if (!r->has_head)
        r->received_gradient = pop(s, &s->gradients[part]);
    rvli_rank_backward(r, flight);
    rvli_rank_drop(r, &r->used_input);
    if (r->received_gradient != s->last)
        rvli_rank_drop(r, &r->received_gradient);
}

static rvli_block receive(const schedule *s, queue *queues, int part)
{
    if (part < 0)
        return NULL;
    rvli_block block = rvli_rank_take(s->r, s->r->part_bytes);
    push(s, &queues[part], block);
    return block;
}

static void receive_gradient(schedule *s, int part)
{
    rvli_block block = receive(s, s->gradients, part);
    rvli_rank_drop(s->r, &s->r->received_gradient);
    s->last = block;
}

/* The last stage makes the first gradients itself. */
static int first_gradient(const schedule *s)
{
    return s->r->options->stage + 1 < s->pp ? (int)s->r->parts - 1 : -1;
}

static void run(schedule *s)
{
    rvli_rank *r = s->r;
    uint32_t ahead = r->warm_up;
    if (r->options->stage > 0)
        receive(s, s->inputs, 0);
    for (uint32_t i = 0; i < ahead; i++) {
        rvli_block output = pass_forward(s, i);
        receive(s, s->inputs, i + 1 < s->count ? receives_for(s, i, true) : -1);
        if (i + 1 == ahead && ahead < s->count)
            receive_gradient(s, first_gradient(s));
        rvli_rank_drop(r, &output);
    }
    for (uint32_t i = 0; i + ahead < s->count; i++) {
        rvli_block output = pass_forward(s, i + ahead);
        pass_backward(s, i);
        receive(s, s->inputs, i + ahead + 1 < s->count ? receives_for(s, i + ahead, true) : -1);
        receive_gradient(s, receives_for(s, i, false));
        rvli_rank_drop(r, &output);
    }
    if (ahead == s->count)
        receive(s, s->gradients, first_gradient(s));
    for (uint32_t i = s->count - ahead; i < s->count; i++) {
        pass_backward(s, i);
        receive_gradient(s, i + 1 < s->count ? receives_for(s, i, false) : -1);
    }
    rvli_rank_send(r, NULL);
    rvli_rank_set_part(r, 0);
}

void rvli_rank_run_interleaved(rvli_rank *r)
{
    schedule s = {.r = r, .pp = r->options->pp, .count = r->options->accumulate * r->parts};
    s.blocks = calloc((size_t)2 * r->parts * s.count, sizeof(rvli_block));
    s.inputs = calloc((size_t)2 * r->parts, sizeof *s.inputs);
    s.flights = calloc(s.count, sizeof *s.flights);
    s.taken = calloc((size_t)r->warm_up + 2, sizeof *s.taken);
    if (s.blocks == NULL || s.inputs == NULL || s.flights == NULL || s.taken == NULL) {
        r->tape.failed = true;
    } else {
        s.gradients = s.inputs + r->parts;
        for (uint32_t i = 0; i < 2 * r->parts; i++)
            s.inputs[i].blocks = s.blocks + (size_t)i * s.count;
        run(&s);
    }
    free(s.blocks);
    free(s.inputs);
    free(s.flights);
    free(s.taken);
}
