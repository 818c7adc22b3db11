/* SPDX-License-Identifier: MIT */
/*
 * FSDP2 around the units of a model (torch/distributed/fsdp/_fully_shard).
 *
 * A unit is gathered into a buffer on a separate stream, and its parameters are copied out of the
 * buffer. In the forward pass the buffer stays until the next unit has been copied out. In the
 * backward pass it is freed at once, and the next unit's buffer is fetched ahead. To reduce a unit,
 * its gradients are copied into one buffer, which stays until the next unit is reduced. The share
 * of their sum is kept.
 */
#include "predict/llm/step/training.h"

/* The table with which a kernel copies gradients into the buffer: INDEX_BYTES for each parameter,
 * and a byte for each 512 (as memory histories show). */
#define INDEX_BYTES 52
#define INDEXED_BYTES 512

static rvli_block take_passing(rvli_training *t, uint64_t bytes)
{
    return rvli_take_on(&t->tape, RVLI_STREAM_GATHER, RVL_MODEL_ALL_GATHER, bytes);
}

/* Brings the shards from the host one by one, and converts those in fp32. They stay until they have
 * been copied into the buffer. Returns the buffer. */
static rvli_block take_from_host(rvli_training *t, const rvli_unit *unit)
{
    bool mixed = rvli_is_mixed(t->options->flags);
    for (uint32_t i = 0; i < unit->count; i++) {
        rvli_parameter *parameter = rvli_parameter_of(t, unit, i);
        uint64_t each = parameter->element_bytes * parameter->share_elements;
        rvli_block full = take_passing(t, mixed ? RVLI_FULL * parameter->share_elements : 0);
        parameter->share = take_passing(t, each);
        rvli_release(t, &full);
    }
    rvli_block buffer = take_passing(t, unit->gathered_bytes);
    for (uint32_t i = unit->count; i > 0; i--)
        rvli_release(t, &rvli_parameter_of(t, unit, i - 1)->share);
    return buffer;
}

/* Shards in fp32 are converted before they are gathered. */
static rvli_block take_buffer(rvli_training *t, const rvli_unit *unit)
{
    bool mixed = rvli_is_mixed(t->options->flags);
    if (rvli_is_on_host(t))
        return take_from_host(t, unit);
    rvli_block converted = rvli_take_on(&t->tape, RVLI_STREAM_GATHER, RVL_MODEL_ALL_GATHER,
                                        mixed ? unit->share_bytes : 0);
    rvli_block buffer =
        rvli_take_on(&t->tape, RVLI_STREAM_GATHER, RVL_MODEL_ALL_GATHER, unit->gathered_bytes);
    rvli_release(t, &converted);
    return buffer;
}

static void copy_out(rvli_training *t, rvli_unit *unit)
{
    for (uint32_t i = 0; i < unit->count; i++) {
        rvli_parameter *parameter = rvli_parameter_of(t, unit, i);
        uint64_t bytes =
            parameter->share_elements * t->options->train_ranks * parameter->element_bytes;
        parameter->whole = rvli_take(&t->tape, RVL_MODEL_ALL_GATHER, bytes);
    }
}

static bool is_gathered(const rvli_training *t, const rvli_unit *unit)
{
    return unit->count > 0 && rvli_parameter_of(t, unit, 0)->whole != NULL;
}

void rvli_gather_forward(rvli_training *t, rvli_unit *unit)
{
    if (!t->sharded)
        return;
    rvli_block buffer = take_buffer(t, unit);
    copy_out(t, unit);
    rvli_release(t, &t->gather_buffer);
    t->gather_buffer = buffer;
}

void rvli_gather_backward(rvli_training *t, rvli_unit *unit, rvli_unit *next)
{
    if (!t->sharded || is_gathered(t, unit))
        return;
    if (t->gather_buffer == NULL)
        t->gather_buffer = take_buffer(t, unit);
    copy_out(t, unit);
    rvli_release(t, &t->gather_buffer);
    if (next != NULL)
        t->gather_buffer = take_buffer(t, next);
}

static void reshard(rvli_training *t, rvli_unit *unit)
{
    for (uint32_t i = 0; t->sharded && i < unit->count; i++)
        rvli_release(t, &rvli_parameter_of(t, unit, i)->whole);
}

void rvli_reshard_forward(rvli_training *t, rvli_unit *unit)
{
    if (t->options->flags & RVL_MODEL_RESHARD)
        reshard(t, unit);
}

/* Index of the module's last parameter + 1; 0: none. In hybrid layers attention or the state comes
 * last. */
static uint32_t last_of(const rvli_training *t, const rvli_unit *unit)
{
    static const rvli_role hybrid[] = {RVLI_ROLE_MAMBA_SKIP, RVLI_ROLE_O, RVLI_ROLE_SHARED_DOWN,
                                       RVLI_ROLE_DOWN};
    if (unit == rvli_root(t))
        return unit->by_role[RVLI_ROLE_LAST_NORM];
    for (size_t i = 0; rvli_has_layers(t->model, RVLI_LAYER_MAMBA) && i < 4; i++) {
        if (unit->by_role[hybrid[i]] != 0)
            return unit->by_role[hybrid[i]];
    }
    return unit->by_role[RVLI_ROLE_NORM_BEFORE_MLP];
}

/* Frees gradients in the order in which they were made. A variable holds the first until the share
 * exists: that one is returned. */
static rvli_block drop_gradients(rvli_training *t, rvli_unit *unit)
{
    static const rvli_role order[] = {RVLI_ROLE_NORM_BEFORE_ATTENTION,
                                      RVLI_ROLE_DOWN,
                                      RVLI_ROLE_UP,
                                      RVLI_ROLE_GATE,
                                      RVLI_ROLE_O_BIAS,
                                      RVLI_ROLE_O,
                                      RVLI_ROLE_V_BIAS,
                                      RVLI_ROLE_V,
                                      RVLI_ROLE_K_NORM,
                                      RVLI_ROLE_K_BIAS,
                                      RVLI_ROLE_K,
                                      RVLI_ROLE_Q_NORM,
                                      RVLI_ROLE_Q_BIAS,
                                      RVLI_ROLE_Q};
    uint32_t last = last_of(t, unit);
    rvli_block late = NULL;
    if (last != 0) {
        late = t->parameters[last - 1].gradient;
        t->parameters[last - 1].gradient = NULL;
    }
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (unit->by_role[order[i]] != 0)
            rvli_release(t, &t->parameters[unit->by_role[order[i]] - 1].gradient);
    }
    for (uint32_t i = 0; i < unit->count; i++)
        rvli_release(t, &rvli_parameter_of(t, unit, i)->gradient);
    return late;
}

/* Bytes of an element of the gradients' shares; below, of an element while it is reduced. */
static uint64_t gradient_element_bytes(const rvli_training *t)
{
    return rvli_is_frozen(t) ? rvli_adapter_bytes(t) : rvli_share_bytes(t);
}

static uint64_t reduced_element_bytes(const rvli_training *t)
{
    return t->options->flags & RVL_MODEL_REDUCE_FP32 ? RVLI_FULL : gradient_element_bytes(t);
}

/* The share of the sum, in the type of the shards. A sum in another type is converted. */
static rvli_block take_share(rvli_training *t, const rvli_unit *unit)
{
    uint64_t elements = unit->trained_elements;
    rvli_block sum = rvli_take_on(&t->tape, RVLI_STREAM_REDUCE, RVL_MODEL_GRADIENTS,
                                  elements * reduced_element_bytes(t));
    if (reduced_element_bytes(t) == gradient_element_bytes(t))
        return sum;
    rvli_block converted = rvli_take_on(&t->tape, RVLI_STREAM_REDUCE, RVL_MODEL_GRADIENTS,
                                        elements * gradient_element_bytes(t));
    rvli_release(t, &sum);
    return converted;
}

void rvli_reduce(rvli_training *t, rvli_unit *unit)
{
    if (!t->sharded)
        return;
    reshard(t, unit);
    if (unit->trained_elements == 0)
        return;
    rvli_release(t, &t->reduce_input);
    uint64_t reduced_bytes =
        unit->trained_elements * t->options->train_ranks * reduced_element_bytes(t);
    t->reduce_input = rvli_take(&t->tape, RVL_MODEL_GRADIENTS, reduced_bytes);
    rvli_block index =
        rvli_activation(t, reduced_bytes / INDEXED_BYTES + (uint64_t)INDEX_BYTES * unit->count);
    rvli_release(t, &index);
    rvli_block late = drop_gradients(t, unit);
    rvli_block share = take_share(t, unit);
    if (unit->reduced == NULL && !rvli_is_on_host(t))
        unit->reduced = share;
    else
        rvli_release(t, &share);
    rvli_release(t, &late);
}
