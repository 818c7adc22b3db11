/* SPDX-License-Identifier: MIT */
/*
 * Forwarders know only the inner table, kept in the instance. The counters are atomic, so that
 * threads may be failed as well.
 */
#include "fault.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"

struct fault_injector {
    rvli_backend_ops inner;
    void *self;
    _Atomic uint64_t op_mask;
    _Atomic uint64_t countdown; /* 0: none left to fail */
    _Atomic bool for_good;
    _Atomic int status;
    _Atomic uint64_t failures;
    _Atomic uint64_t calls[RVLI_OP_COUNT];
};

/* What a failing call of an op answers unless the plan says otherwise. */
static rvl_status usual_failure(rvli_op op)
{
    switch (op) {
    case RVLI_OP_create:
    case RVLI_OP_external_set:
        return RVL_ERR_DEVICE_OOM;
    case RVLI_OP_host_alloc:
        return RVL_ERR_HOST_OOM;
    default:
        return RVL_ERR_IO;
    }
}

/* Counts a call; whether it is to fail. */
static bool is_due(fault_injector *fault, rvli_op op)
{
    atomic_fetch_add(&fault->calls[op], 1);
    if (!(atomic_load(&fault->op_mask) >> op & 1))
        return false;
    uint64_t left = atomic_load(&fault->countdown);
    while (left > 0) {
        if (left == 1 && atomic_load(&fault->for_good))
            return true;
        if (atomic_compare_exchange_weak(&fault->countdown, &left, left - 1))
            return left == 1;
    }
    return false;
}

static rvl_status fail(fault_injector *fault, rvli_op op)
{
    rvl_status status = (rvl_status)atomic_load(&fault->status);
    atomic_fetch_add(&fault->failures, 1);
    return rvli_error(status != RVL_OK ? status : usual_failure(op), "a fault was injected");
}

#define FORWARD(op, parameters, arguments)                                                         \
    static rvl_status fault_##op parameters                                                        \
    {                                                                                              \
        fault_injector *fault = self;                                                              \
        if (is_due(fault, RVLI_OP_##op))                                                           \
            return fail(fault, RVLI_OP_##op);                                                      \
        self = fault->self;                                                                        \
        return fault->inner.op arguments;                                                          \
    }
RVLI_BACKEND_ALL_OPS_MAP(FORWARD)
#undef FORWARD

static rvl_status fault_device_facts(void *self, int device, rvli_device_facts *facts_out)
{
    fault_injector *fault = self;
    return fault->inner.device_facts(fault->self, device, facts_out);
}

static void fault_close(void *self)
{
    fault_injector *fault = self;
    fault->inner.close(fault->self);
    free(fault);
}

/* ---- Opening ---- */

/* What stands in for the backend's options while a context is opened. */
typedef struct opening {
    const rvli_backend_ops *inner;
    const void *inner_options;
    fault_injector **fault_out;
} opening;

static rvl_status fault_open(const void *options, rvli_clock *clock, void **self_out,
                             int *device_count_out)
{
    const opening *asked = options;
    fault_injector *new = calloc(1, sizeof *new);
    if (new == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a fault");
    rvl_status status = rvli_backend_ops_copy(&new->inner, asked->inner);
    if (status == RVL_OK)
        status = new->inner.open(asked->inner_options, clock, &new->self, device_count_out);
    if (status != RVL_OK) {
        free(new);
        return status;
    }
    *self_out = *asked->fault_out = new;
    return RVL_OK;
}

rvl_status fault_context_open(const rvli_backend_ops *ops, const rvl_context_options *options,
                              fault_injector **fault_out, rvl_context **context_out)
{
    const rvli_backend_ops around = {.size = sizeof around,
                                     .version = RVLI_BACKEND_VERSION,
                                     .name = ops->name,
                                     .simulated = ops->simulated,
                                     .open = fault_open,
                                     .close = fault_close,
                                     .device_facts = fault_device_facts,
#define FAULT_OP(op, parameters, arguments) .op = fault_##op,
                                     RVLI_BACKEND_ALL_OPS_MAP(FAULT_OP)
#undef FAULT_OP
    };
    const opening asked = {ops, options->backend_options, fault_out};
    rvl_context_options with = *options;
    with.backend_options = &asked;
    return rvli_context_open_ops(&around, &with, context_out);
}

/* ---- Plans ---- */

void fault_set(fault_injector *fault, const fault_plan *plan)
{
    atomic_store(&fault->countdown, 0);
    for (int op = 0; op < RVLI_OP_COUNT; op++)
        atomic_store(&fault->calls[op], 0);
    atomic_store(&fault->failures, 0);
    atomic_store(&fault->op_mask, plan->op_mask);
    atomic_store(&fault->for_good, plan->for_good);
    atomic_store(&fault->status, (int)plan->status);
    atomic_store(&fault->countdown, plan->countdown);
}

uint64_t fault_calls(const fault_injector *fault, rvli_op op)
{
    return atomic_load(&((fault_injector *)fault)->calls[op]);
}

uint64_t fault_failures(const fault_injector *fault)
{
    return atomic_load(&((fault_injector *)fault)->failures);
}
