/* SPDX-License-Identifier: MIT */
/*
 * A call of NCCL on a communicator that waits for the other ranks, in a thread of its own. Nothing
 * ends that wait, so a caller that gives up leaves the call running. Its users share it, the thread
 * among them; the last one frees it.
 */
#ifndef RVL_HOOKS_NCCL_CALL_H
#define RVL_HOOKS_NCCL_CALL_H

#include "hooks/nccl/library.h"

typedef struct rvli_nccl_call rvli_nccl_call;

/* RVL_ERR_HOST_OOM: no memory or thread. The caller is a user. */
rvl_status rvli_nccl_call_start(const rvli_nccl *nccl, rvl_transition_kind kind, void *comm,
                                int device, rvli_nccl_call **call_out);

/* One more user, one less. NULL is fine. */
rvli_nccl_call *rvli_nccl_call_share(rvli_nccl_call *call);
void rvli_nccl_call_drop(rvli_nccl_call *call);

rvl_transition_kind rvli_nccl_call_kind(const rvli_nccl_call *call);

/* Whether it has come back, or there is none. */
bool rvli_nccl_call_is_done(const rvli_nccl_call *call);

bool rvli_nccl_call_has_failed(const rvli_nccl_call *call);

/* RVL_OK, also while it runs; else what it failed with, in the caller's record. */
rvl_status rvli_nccl_call_check(const rvli_nccl_call *call);

#endif
