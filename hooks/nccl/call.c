/* SPDX-License-Identifier: MIT */
#include "hooks/nccl/call.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/error.h"
#include "hooks/nccl/device.h"
#include "hooks/process/thread.h"

struct rvli_nccl_call {
    rvli_nccl nccl;
    rvl_transition_kind kind;
    void *comm;
    int device;
    rvl_error failure; /* status RVL_OK: none. Written before `done` */
    atomic_bool done;
    atomic_int users;
};

rvli_nccl_call *rvli_nccl_call_share(rvli_nccl_call *call)
{
    if (call != NULL)
        atomic_fetch_add(&call->users, 1);
    return call;
}

void rvli_nccl_call_drop(rvli_nccl_call *call)
{
    if (call != NULL && atomic_fetch_sub(&call->users, 1) == 1)
        free(call);
}

rvl_transition_kind rvli_nccl_call_kind(const rvli_nccl_call *call)
{
    return call->kind;
}

bool rvli_nccl_call_is_done(const rvli_nccl_call *call)
{
    return call == NULL || atomic_load(&call->done);
}

bool rvli_nccl_call_has_failed(const rvli_nccl_call *call)
{
    return call != NULL && atomic_load(&call->done) && call->failure.status != RVL_OK;
}

rvl_status rvli_nccl_call_check(const rvli_nccl_call *call)
{
    if (!rvli_nccl_call_has_failed(call))
        return RVL_OK;
    rvli_error_set(&call->failure);
    return call->failure.status;
}

/* ---- The thread ---- */

static rvl_status make(const rvli_nccl_call *call)
{
    rvl_status status = rvli_device_enter(call->device);
    if (status != RVL_OK)
        return status;
    status = rvli_nccl_move(&call->nccl, call->kind, call->comm);
    if (status != RVL_OK)
        rvli_error_bytes(call->device, 0, 0);
    rvli_device_leave(call->device);
    return status;
}

static void *run(void *user)
{
    rvli_nccl_call *call = user;
    if (make(call) != RVL_OK)
        call->failure = *rvli_error_get();
    atomic_store(&call->done, true);
    rvli_nccl_call_drop(call);
    return NULL;
}

rvl_status rvli_nccl_call_start(const rvli_nccl *nccl, rvl_transition_kind kind, void *comm,
                                int device, rvli_nccl_call **call_out)
{
    rvli_nccl_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a call of NCCL");
    call->nccl = *nccl;
    call->kind = kind;
    call->comm = comm;
    call->device = device;
    atomic_init(&call->users, 2); /* the caller and the thread */
    rvl_status status = rvli_start_thread(run, call,
                                          "no thread for a call of NCCL could be started: see the "
                                          "limit of processes (ulimit -u)");
    if (status == RVL_OK)
        *call_out = call;
    else
        free(call);
    return status;
}
