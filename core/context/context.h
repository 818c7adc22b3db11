/* SPDX-License-Identifier: MIT */
/*
 * Functions of core for the rest of the project, beyond the public API: opening a context on any
 * ops table.
 */
#ifndef RVL_CORE_CONTEXT_CONTEXT_H
#define RVL_CORE_CONTEXT_CONTEXT_H

#include "core/backend.h"
#include "reveille/context.h"

/* Like rvl_context_open(), with an ops table instead of a name. */
rvl_status rvli_context_open_ops(const rvli_backend_ops *ops, const rvl_context_options *options,
                                 rvl_context **context_out);

#endif
