/* SPDX-License-Identifier: MIT */
/*
 * Decorators: an ops table wrapped around another.
 *
 * A decorator is an instance of its own: rvli_fault_wrap(ops, self) gives a table and a self that
 * stand wherever the inner ones stood. Closing the decorated instance closes the inner one.
 */
#ifndef RVL_CORE_DECORATORS_H
#define RVL_CORE_DECORATORS_H

#include "core/backend.h"
#include "reveille/context.h"

/* Fails chosen calls without making them. All fields may be changed between calls, atomically. */
typedef struct rvli_fault_plan {
    uint64_t op_mask;   /* bit (1 << RVLI_OP_x): calls that are counted and may fail */
    uint64_t countdown; /* the countdown-th such call from now fails; 0: none */
    bool for_good;      /* every such call after it fails too */
    rvl_status status;  /* what a failed call answers; RVL_OK: one that suits the op */
} rvli_fault_plan;

typedef struct rvli_fault rvli_fault;

/* Wraps ops/self. *ops_out is valid while the decorator is. RVL_ERR_HOST_OOM. */
rvl_status rvli_fault_wrap(const rvli_backend_ops *ops, void *self, rvli_backend_ops *ops_out,
                           rvli_fault **fault_out);
/* Sets the plan; counts start anew. */
void rvli_fault_set(rvli_fault *fault, const rvli_fault_plan *plan);
/* Calls made of an op (failed ones included) and failures injected since the last set. */
uint64_t rvli_fault_calls(const rvli_fault *fault, rvli_op op);
uint64_t rvli_fault_failures(const rvli_fault *fault);

/* Logs every call with its arguments and its status, one line each, at RVL_LOG_DEBUG. */
rvl_status rvli_log_wrap(const rvli_backend_ops *ops, void *self, rvl_log_fn log, void *log_user,
                         rvli_backend_ops *ops_out, void **self_out);

#endif
