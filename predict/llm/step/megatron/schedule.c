/* SPDX-License-Identifier: MIT */
/*
 * 1F1B: forward and backward passes alternate (megatron/core/pipeline_parallel/schedules.py). Stage
 * p of P runs P - p - 1 micro-batches ahead, and so has P - p in flight.
 *
 * What a stage sends to the next is freed after it has been sent. What it received stays until the
 * next arrives. With TransformerEngine's layers it stays until the next forward pass has ended,
 * since their graph is still held. The model holds its last input (set_input_tensor), and the input
 * its gradient, until the next step.
 */
#include <stdlib.h>

#include "predict/llm/step/megatron/rank.h"

#define STEPS_MAX 5
#define LOTS_MAX 16 /* of experts: a program for each expert would take long */

/* ---- Passes of one micro-batch ---- */

static rvli_in_flight *flight_of(rvli_rank *r, uint32_t number)
{
    return &r->flights[number % (r->warm_up + 1)];
}

void rvli_rank_set_part(rvli_rank *r, uint32_t part)
{
    const rvli_training_shape *o = r->options;
    r->part = part;
    r->first_layer = (part * o->pp + o->stage) * r->layer_count;
    r->has_embedding = o->stage == 0 && part == 0;
    r->has_head = o->stage + 1 == o->pp && part + 1 == r->parts;
}

void rvli_rank_send(rvli_rank *r, rvli_block gradient)
{
    for (uint32_t part = 0; part < r->parts; part++) {
        if (r->given[part].gradient == r->sent_gradient)
            r->sent_gradient = NULL; /* the part still holds it */
    }
    rvli_rank_drop(r, &r->sent_gradient);
    r->sent_gradient = gradient;
}

static void give(rvli_rank *r, const rvli_in_flight *flight)
{
    rvli_given *given = &r->given[r->part];
    if (r->holds_graph && given->input != NULL) {
        r->used_input = given->input;
        given->input = NULL;
    }
    rvli_rank_drop(r, &given->input);
    if (given->gradient != r->sent_gradient)
        rvli_rank_drop(r, &given->gradient);
    *given = (rvli_given){.flight = flight};
}

/* After the backward pass. The part may hold the input, and so the input's gradient. */
static void use_input(rvli_rank *r, rvli_in_flight *flight)
{
    rvli_given *given = &r->given[r->part];
    if (given->flight == flight) {
        given->input = flight->received;
        given->gradient = r->sent_gradient;
    } else {
        r->used_input = flight->received;
    }
    flight->received = NULL;
}

void rvli_rank_forward(rvli_rank *r, rvli_in_flight *flight)
{
    give(r, flight);
    r->hidden = flight->received;
    rvli_rank_embed(r);
    for (uint32_t i = 0; i < r->layer_count; i++) {
        rvli_rank_layer_forward(r, &flight->layers[i], i);
        rvli_tape_between(&r->tape);
    }
    if (r->has_head)
        rvli_rank_loss(r);
    rvli_tape_between(&r->tape);
}

void rvli_rank_backward(rvli_rank *r, rvli_in_flight *flight)
{
    r->flow = r->received_gradient;
    r->flow_is_lent = true;
    if (r->has_head)
        rvli_rank_loss_backward(r);
    else if (rvli_rank_is_local(r))
        rvli_rank_workspace(r, true);
    for (uint32_t i = r->layer_count; i > 0; i--) {
        rvli_rank_layer_backward(r, &flight->layers[i - 1], i - 1, i == 1 && !r->has_embedding);
        rvli_tape_between(&r->tape);
    }
    if (r->has_embedding) {
        rvli_rank_embed_backward(r);
        rvli_rank_send(r, NULL);
        return;
    }
    rvli_rank_send(r, r->flow);
    r->flow = NULL;
    use_input(r, flight);
}

static void forward(rvli_rank *r, uint32_t number)
{
    rvli_rank_forward(r, flight_of(r, number));
}

static void backward(rvli_rank *r, uint32_t number)
{
    rvli_rank_backward(r, flight_of(r, number));
}

/* ---- Exchanges between stages ---- */

static void receive_input(rvli_rank *r, uint32_t number)
{
    if (!r->has_embedding)
        flight_of(r, number)->received = rvli_rank_take(r, r->part_bytes);
}

static void receive_gradient(rvli_rank *r)
{
    if (r->has_head)
        return;
    rvli_block gradient = rvli_rank_take(r, r->part_bytes);
    rvli_rank_drop(r, &r->received_gradient);
    r->received_gradient = gradient;
}

/* The last stage has nothing to free. */
static void sent(rvli_rank *r)
{
    if (!r->has_head)
        rvli_rank_drop(r, &r->hidden);
}

static void run_schedule(rvli_rank *r)
{
    if (r->parts > 1) {
        rvli_rank_run_interleaved(r);
        return;
    }
    uint32_t count = r->options->accumulate > 0 ? r->options->accumulate : 1;
    uint32_t ahead = r->warm_up;
    for (uint32_t i = 0; i < ahead; i++) {
        receive_input(r, i);
        forward(r, i);
        sent(r);
    }
    if (ahead < count)
        receive_input(r, ahead);
    for (uint32_t i = ahead; i < count; i++) {
        forward(r, i);
        rvli_rank_drop(r, &r->used_input);
        receive_gradient(r);
        sent(r);
        backward(r, i - ahead);
        r->holds_graph = !rvli_rank_is_local(r);
        if (i + 1 < count)
            receive_input(r, i + 1);
        if (!r->holds_graph)
            rvli_rank_drop(r, &r->used_input);
    }
    r->holds_graph = false;
    rvli_rank_drop(r, &r->used_input);
    for (uint32_t i = count - ahead; i < count; i++) {
        receive_gradient(r);
        backward(r, i);
        rvli_rank_drop(r, &r->used_input);
    }
    rvli_rank_drop(r, &r->received_gradient);
    rvli_rank_send(r, NULL);
}

/* ---- A training ---- */

/* The largest number of lots, up to LOTS_MAX, that divides the experts evenly. */
static uint64_t lots_of(uint64_t experts)
{
    uint64_t lots = experts < LOTS_MAX ? experts : LOTS_MAX;
    while (lots > 1 && experts % lots != 0)
        lots--;
    return lots;
}

static void measure(rvli_rank *r)
{
    const rvli_training_shape *o = r->options;
    const uint64_t *d = r->model->dim;
    uint32_t count = o->accumulate > 0 ? o->accumulate : 1;
    r->parts = o->vpp > 1 ? o->vpp : 1;
    r->layer_count = r->model->layers / o->pp / r->parts;
    rvli_rank_set_part(r, 0);
    r->is_tied = (r->model->features & RVLI_HEAD) == 0;
    r->splits_sequence = (o->flags & RVL_MODEL_SEQUENCE_PARALLEL) != 0;
    uint32_t ahead = o->pp - o->stage - 1;
    if (r->parts > 1) {
        ahead = 2 * ahead + (r->parts - 1) * o->pp;
        count *= r->parts;
    }
    r->warm_up = ahead < count ? ahead : count;
    r->tokens = (uint64_t)o->micro_batch * o->seq_len / o->cp;
    r->hidden_bytes = RVLI_HALF * r->tokens * d[RVLI_DIM_HIDDEN];
    r->part_bytes = r->splits_sequence ? r->hidden_bytes / o->tp : r->hidden_bytes;
    r->q_width = d[RVLI_DIM_Q] / o->tp;
    r->kv_width = d[RVLI_DIM_KV] / o->tp;
    r->heads = r->model->heads / o->tp;
    r->groups = r->model->kv_heads / o->tp;
    r->inner = d[RVLI_DIM_INTERMEDIATE] / o->tp;
    r->vocabulary = rvli_rank_vocabulary(d[RVLI_DIM_VOCABULARY], o->tp);
    r->experts = r->model->experts / o->ep;
    r->lots = rvli_rank_groups(r) && r->experts > 0 ? 1 : lots_of(r->experts);
}

/* Gives each layer of each flight its part of the experts' blocks. */
static void deal_experts(rvli_rank *r, size_t layers)
{
    for (size_t i = 0; i < layers; i++) {
        r->layers[i].routed.fc1 = &r->expert_blocks[2 * i * r->lots];
        r->layers[i].routed.activated = &r->expert_blocks[(2 * i + 1) * r->lots];
    }
}

static void make_flights(rvli_rank *r)
{
    size_t count = r->warm_up + 1, layers = count * r->layer_count;
    size_t lots = r->lots > 0 ? r->lots : 1;
    r->flights = calloc(count, sizeof *r->flights);
    r->given = calloc(r->parts, sizeof *r->given);
    r->graphs = calloc((size_t)r->parts * r->layer_count, sizeof *r->graphs);
    r->layers = calloc(layers, sizeof *r->layers);
    r->expert_blocks = calloc(2 * layers * lots, sizeof(rvli_block));
    r->expert_outputs = calloc(lots, sizeof(rvli_block));
    if (r->flights == NULL || r->given == NULL || r->graphs == NULL || r->layers == NULL ||
        r->expert_blocks == NULL || r->expert_outputs == NULL) {
        r->tape.failed = true;
        return;
    }
    for (size_t i = 0; i < count; i++)
        r->flights[i].layers = r->layers + i * r->layer_count;
    deal_experts(r, layers);
}

static void step(rvli_rank *r, rvli_trained *trained)
{
    rvli_tape_begin_step(&r->tape);
    rvli_rank_zero_gradients(r);
    rvli_tape_watch(&r->tape, &trained->passes);
    run_schedule(r);
    rvli_tape_watch(&r->tape, &trained->update);
    rvli_tape_between(&r->tape);
    rvli_rank_update(r);
    rvli_tape_between(&r->tape);
    rvli_tape_watch(&r->tape, NULL);
}

static void pack(rvli_packer *packer, uint64_t bytes)
{
    if (bytes > 0)
        rvli_packer_add(packer, bytes);
}

bool rvli_rank_pack(const rvl_model *model, const rvli_training_shape *shape,
                    rvli_packer packers[3])
{
    rvli_rank r = {.model = model, .options = shape};
    measure(&r);
    rvli_rank_make_parameters(&r);
    for (uint32_t i = 0; i < r.parameter_count; i++) {
        const rvli_rank_parameter *parameter = &r.parameters[i];
        if (parameter->is_hosted)
            continue;
        pack(&packers[1], RVLI_FULL * parameter->share_elements);
        for (int state = 0; state < 2; state++)
            pack(&packers[2], RVLI_FULL * parameter->share_elements);
    }
    for (uint32_t part = 0; part < r.parts; part++) {
        pack(&packers[0], RVLI_HALF * rvli_rank_elements(&r, part, false));
        pack(&packers[0], RVLI_HALF * rvli_rank_elements(&r, part, true));
    }
    free(r.parameters);
    return !r.tape.failed;
}

static void end(rvli_rank *r)
{
    free(r->parameters);
    free(r->flights);
    free(r->given);
    free(r->graphs);
    free(r->layers);
    free(r->expert_blocks);
    free(r->expert_outputs);
    rvli_tape_end(&r->tape);
}

rvl_status rvli_rank_run(const rvl_model *model, const rvli_training_shape *shape,
                         const rvli_tape_listener *listener, rvli_trained *trained_out)
{
    rvli_rank r = {.model = model, .options = shape};
    rvli_tape_begin(&r.tape, shape->limit_bytes);
    rvli_tape_listen(&r.tape, listener);
    measure(&r);
    make_flights(&r);
    if (!r.tape.failed)
        rvli_rank_make_parameters(&r);
    if (!r.tape.failed)
        rvli_rank_load(&r);
    for (int i = 0; i < STEPS_MAX && !r.tape.failed; i++) {
        *trained_out = (rvli_trained){0};
        if (!rvli_tape_repeat_step(&r.tape))
            step(&r, trained_out);
        if (rvli_tape_is_settled(&r.tape))
            break;
    }
    rvli_tape_show(&r.tape, &trained_out->passes, &trained_out->update);
    trained_out->reserved_bytes = r.tape.reserved_bytes;
    trained_out->requested_bytes = r.tape.requested_bytes;
    trained_out->host_bytes = rvli_rank_host_bytes(&r);
    bool failed = rvli_tape_failed(&r.tape);
    end(&r);
    return failed ? RVL_ERR_HOST_OOM : RVL_OK;
}
