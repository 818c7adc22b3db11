/* SPDX-License-Identifier: MIT */
/*
 * Communicators that release their memory for a while, since NCCL 2.29.7.
 *
 * As in NCCL, all ranks take part. A suspend waits for them and then releases memory. A resume
 * takes memory and then waits. So a rank without room does not come to the meeting, and the
 * others wait until it has room.
 */
#include <stdlib.h>

#include "simcuda/nccl/comm.h"

#define SINCE 22907

static rvli_nccl_result check_known(rvli_nccl_result checked)
{
    int version = 0;
    if (checked != RVLI_NCCL_SUCCESS || ncclGetVersion(&version) != RVLI_NCCL_SUCCESS)
        return checked;
    return version >= SINCE ? RVLI_NCCL_SUCCESS
                            : rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE,
                                             "NCCL %d is asked for, and gives no memory back: "
                                             "that came with %d",
                                             version, SINCE);
}

static rvli_nccl_result check_own(const rvli_comm *comm, rvli_nccl_result checked)
{
    checked = check_known(checked);
    return checked == RVLI_NCCL_SUCCESS && comm->shares && comm->ranks > 1
               ? rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE,
                                "the communicator shares the memory of its parent (splitShare)")
               : checked;
}

/* A call that waits for the other ranks, now or when the group ends. */
typedef struct move {
    rvli_comm *comm;
    uint64_t meeting;
} move;

static rvli_nccl_result begin(void *job)
{
    (void)job; /* it has come to the meeting already */
    return RVLI_NCCL_SUCCESS;
}

static rvli_nccl_result hand_over(rvli_comm *comm, const char *what,
                                  rvli_nccl_result (*end)(void *))
{
    move *made = malloc(sizeof *made);
    if (made == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    made->comm = comm;
    rvli_nccl_result result = rvli_comm_meet(comm, what, &made->meeting);
    if (result == RVLI_NCCL_SUCCESS && !rvli_group_is_open())
        return end(made);
    if (result == RVLI_NCCL_SUCCESS)
        result = rvli_group_add(begin, end, made);
    if (result != RVLI_NCCL_SUCCESS)
        free(made);
    return result;
}

/* ---- Suspending ---- */

static rvli_nccl_result end_suspend(void *job)
{
    move *made = job;
    rvli_comm *comm = made->comm;
    rvli_nccl_result result = rvli_comm_wait(comm, &made->meeting);
    free(made);
    if (result != RVLI_NCCL_SUCCESS)
        return rvli_comm_give_up(comm, result);
    rvli_comm_give_memory(comm);
    comm->state = RVLI_COMM_SUSPENDED;
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result ncclCommSuspend(rvli_comm *comm, int flags)
{
    rvli_nccl_result result = check_own(comm, rvli_comm_check_ready(comm));
    if (result == RVLI_NCCL_SUCCESS && flags != RVLI_NCCL_SUSPEND_MEMORY)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclCommSuspend: flags are %d, not NCCL_SUSPEND_MEM", flags);
    return result == RVLI_NCCL_SUCCESS ? hand_over(comm, "suspend", end_suspend) : result;
}

/* ---- Resuming ---- */

static rvli_nccl_result end_resume(void *job)
{
    move *made = job;
    rvli_comm *comm = made->comm;
    rvli_nccl_result result = rvli_comm_wait(comm, &made->meeting);
    free(made);
    if (result != RVLI_NCCL_SUCCESS) {
        rvli_comm_give_memory(comm);
        return rvli_comm_give_up(comm, result);
    }
    comm->state = RVLI_COMM_READY;
    return RVLI_NCCL_SUCCESS;
}

/* On a full device, the communicator stays suspended. */
rvli_nccl_result ncclCommResume(rvli_comm *comm)
{
    rvli_nccl_result result = check_own(comm, rvli_comm_check(comm));
    if (result == RVLI_NCCL_SUCCESS && comm->state != RVLI_COMM_SUSPENDED)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_USAGE,
                              "ncclCommResume: the communicator is not suspended");
    if (result == RVLI_NCCL_SUCCESS && comm->suspendable_bytes > 0)
        result = rvli_comm_take_memory(comm);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    result = hand_over(comm, "resume", end_resume);
    if (result != RVLI_NCCL_SUCCESS)
        rvli_comm_give_memory(comm);
    return result;
}

/* ---- Memory of a communicator ---- */

rvli_nccl_result ncclCommMemStats(rvli_comm *comm, rvli_nccl_memory what, uint64_t *value)
{
    rvli_nccl_result result = check_known(rvli_comm_check(comm));
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (value == NULL)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclCommMemStats: value is NULL");
    switch (what) {
    case RVLI_NCCL_MEMORY_SUSPENDABLE:
        *value = comm->suspendable_bytes;
        return RVLI_NCCL_SUCCESS;
    case RVLI_NCCL_MEMORY_SUSPENDED:
        *value = comm->state == RVLI_COMM_SUSPENDED;
        return RVLI_NCCL_SUCCESS;
    case RVLI_NCCL_MEMORY_PERSISTENT:
        *value = comm->total_bytes - comm->suspendable_bytes;
        return RVLI_NCCL_SUCCESS;
    case RVLI_NCCL_MEMORY_TOTAL:
        *value = comm->total_bytes;
        return RVLI_NCCL_SUCCESS;
    }
    return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclCommMemStats: %d is not a statistic",
                          (int)what);
}

RVLI_NCCL_ALSO(ncclCommSuspend)
RVLI_NCCL_ALSO(ncclCommResume)
RVLI_NCCL_ALSO(ncclCommMemStats)
