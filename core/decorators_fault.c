/* SPDX-License-Identifier: MIT */
/*
 * The fault decorator: chosen calls fail without being made.
 *
 * Forwarders know only the inner table, kept in the instance; the counters are atomic, so that
 * threads may be failed as well.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "core/decorators.h"

struct rvli_fault {
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
static bool is_due(rvli_fault *fault, rvli_op op)
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

static rvl_status fail(rvli_fault *fault, rvli_op op)
{
    rvl_status status = (rvl_status)atomic_load(&fault->status);
    atomic_fetch_add(&fault->failures, 1);
    return rvli_error(status != RVL_OK ? status : usual_failure(op), "a fault was injected");
}

/* A forwarder: FORWARD(op, (parameters), (arguments)). */
#define FORWARD(op, parameters, arguments)                                                         \
    static rvl_status fault_##op parameters                                                        \
    {                                                                                              \
        rvli_fault *fault = self;                                                                  \
        if (is_due(fault, RVLI_OP_##op))                                                           \
            return fail(fault, RVLI_OP_##op);                                                      \
        self = fault->self;                                                                        \
        return fault->inner.op arguments;                                                          \
    }
#include "core/forwarders.inc"
#undef FORWARD

static rvl_status fault_device_facts(void *self, int device, rvli_device_facts *facts_out)
{
    rvli_fault *fault = self;
    return fault->inner.device_facts(fault->self, device, facts_out);
}

static void fault_close(void *self)
{
    rvli_fault *fault = self;
    fault->inner.close(fault->self);
    free(fault);
}

rvl_status rvli_fault_wrap(const rvli_backend_ops *ops, void *self, rvli_backend_ops *ops_out,
                           rvli_fault **fault_out)
{
    rvli_fault *fault = calloc(1, sizeof *fault);
    if (fault == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a decorator");
    fault->inner = *ops;
    fault->self = self;
    *ops_out = *ops;
    ops_out->close = fault_close;
    ops_out->device_facts = fault_device_facts;
#define WRAP(name, parameters) ops_out->name = fault_##name;
    RVLI_BACKEND_ALL_OPS_MAP(WRAP)
#undef WRAP
    *fault_out = fault;
    return RVL_OK;
}

void rvli_fault_set(rvli_fault *fault, const rvli_fault_plan *plan)
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

uint64_t rvli_fault_calls(const rvli_fault *fault, rvli_op op)
{
    return atomic_load(&((rvli_fault *)fault)->calls[op]);
}

uint64_t rvli_fault_failures(const rvli_fault *fault)
{
    return atomic_load(&((rvli_fault *)fault)->failures);
}
