/* SPDX-License-Identifier: MIT */
/*
 * A call of NCCL on a communicator, which waits for the other ranks in its own thread. Nothing can
 * end that wait, so a caller that gives up leaves the call running. The thread and the callers
 * share it. The last user frees it.
 */
#ifndef RVL_HOOKS_NCCL_CALL_H
#define RVL_HOOKS_NCCL_CALL_H

#include "hooks/nccl/library.h"

typedef struct rvli_nccl_call rvli_nccl_call;

/* RVL_ERR_HOST_OOM: no memory or no thread. The caller becomes a user. */
rvl_status rvli_nccl_call_start(const rvli_nccl *nccl, rvl_transition_kind kind, void *comm,
                                int device, rvli_nccl_call **call_out);

/* Adds or removes a user. NULL is allowed. */
rvli_nccl_call *rvli_nccl_call_share(rvli_nccl_call *call);
void rvli_nccl_call_drop(rvli_nccl_call *call);

rvl_transition_kind rvli_nccl_call_kind(const rvli_nccl_call *call);

/* Whether it has returned; true for NULL. */
bool rvli_nccl_call_is_done(const rvli_nccl_call *call);

bool rvli_nccl_call_has_failed(const rvli_nccl_call *call);

/* Returns RVL_OK, also while the call runs, or the call's failure with its error record. */
rvl_status rvli_nccl_call_check(const rvli_nccl_call *call);

#endif
