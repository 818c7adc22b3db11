/* SPDX-License-Identifier: MIT */
/*
 * The log decorator: an ops table around another, which logs every call with its status, one line
 * each, at RVL_LOG_DEBUG.
 *
 * Use *ops_out and *self_out in place of ops and self. Closing the decorator closes the inner
 * instance.
 */
#ifndef RVL_CORE_LOG_OPS_H
#define RVL_CORE_LOG_OPS_H

#include "core/backend.h"
#include "reveille/context.h"

/* RVL_ERR_HOST_OOM leaves the inner instance unchanged. */
rvl_status rvli_log_wrap(const rvli_backend_ops *ops, void *self, rvl_log_fn log, void *log_user,
                         rvli_backend_ops *ops_out, void **self_out);

#endif
