/* SPDX-License-Identifier: MIT */
/*
 * A backend with chosen calls that fail without being made: an ops table around any other.
 *
 * fault_context_open() opens a context on it. The fault lives as long as the context.
 */
#ifndef RVL_TESTS_SUPPORT_FAULT_H
#define RVL_TESTS_SUPPORT_FAULT_H

#include "core/context/context.h"

/* All fields may be changed between calls, atomically. */
typedef struct fault_plan {
    uint64_t op_mask;   /* bit (1 << RVLI_OP_x): calls that are counted and may fail */
    uint64_t countdown; /* the countdown-th such call from now fails; 0: none */
    bool for_good;      /* every such call after it fails too */
    rvl_status status;  /* what a failed call answers; RVL_OK: one that suits the op */
} fault_plan;

typedef struct fault_injector fault_injector;

/* As rvli_context_open_ops(); *fault_out: what fails its calls. */
rvl_status fault_context_open(const rvli_backend_ops *ops, const rvl_context_options *options,
                              fault_injector **fault_out, rvl_context **context_out);

/* Sets the plan; counts start at 0 again. */
void fault_set(fault_injector *fault, const fault_plan *plan);
/* Calls made of an op (failed ones included) and failures injected since the last set. */
uint64_t fault_calls(const fault_injector *fault, rvli_op op);
uint64_t fault_failures(const fault_injector *fault);

#endif
