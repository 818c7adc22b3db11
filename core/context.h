/* SPDX-License-Identifier: MIT */
/* What core offers inside the project beyond the public API: opening a context on any ops table. */
#ifndef RVL_CORE_CONTEXT_H
#define RVL_CORE_CONTEXT_H

#include "core/backend.h"
#include "core/decorators.h"
#include "reveille/context.h"

/*
 * As rvl_context_open(), on an ops table instead of a name. With fault_out not NULL the instance is
 * wrapped in the fault decorator, which lives as long as the context.
 */
rvl_status rvli_context_open_ops(const rvli_backend_ops *ops, const rvl_context_options *options,
                                 rvli_fault **fault_out, rvl_context **context_out);

#endif
