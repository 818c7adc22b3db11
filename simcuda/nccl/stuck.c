/* SPDX-License-Identifier: MIT */
#include "simcuda/nccl/stuck.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "simcuda/driver/client.h"

/* Reports the operation, also to the machine. Once for each communicator. For destroyed ones,
 * once in a row. */
static void tell_left(const rvli_stuck_call *call, int gone)
{
    static _Atomic uint64_t last;
    if (atomic_exchange(&last, call->meeting) == call->meeting)
        return;
    fprintf(stderr,
            "reveille: NCCL: rank %d of %d calls %s, and rank %d has left without calling it: rank "
            "%d waits, as on cards, and fails in %" PRIu64 " s (" RVLI_NCCL_LEFT_VARIABLE ")\n",
            call->rank, call->ranks, call->name, gone, call->rank,
            rvli_nccl_left_timeout_ns() / RVLI_SECOND_NS);
}

/* ---- State of a communicator, while it cannot be destroyed ---- */

static void fail(rvli_comm *comm, rvli_nccl_result result)
{
    comm->stuck.failed_ns = rvli_nccl_now_ns();
    comm->result = result;
    comm->state = RVLI_COMM_OVER;
    fprintf(stderr,
            "reveille: NCCL: %s: its communicator fails, as ncclCommGetAsyncError() says. A wait "
            "for it ends with CUDA_ERROR_LAUNCH_TIMEOUT in %" PRIu64 " s\n",
            comm->stuck.sentence, rvli_nccl_left_timeout_ns() / RVLI_SECOND_NS);
}

static void fail_if_due(rvli_comm *comm)
{
    if (comm->stuck.since_ns == 0 || comm->stuck.failed_ns != 0 ||
        rvli_nccl_now_ns() - comm->stuck.since_ns < rvli_nccl_left_timeout_ns())
        return;
    fail(comm, RVLI_NCCL_REMOTE_ERROR);
}

static rvli_stuck state_of(const rvli_comm *comm)
{
    return comm->stuck.failed_ns != 0 &&
                   rvli_nccl_now_ns() - comm->stuck.failed_ns >= rvli_nccl_left_timeout_ns()
               ? RVLI_STUCK_FAILED
               : RVLI_STUCK_WAITS;
}

/* ---- Incidents ---- */

typedef struct incident {
    const rvli_stuck_call *call;
    int gone;
    const char *sentence;
    rvli_stuck state;
} incident;

static void leave(rvli_comm *comm, void *user)
{
    incident *of = user;
    if (comm->stuck.since_ns == 0) {
        comm->stuck.since_ns = rvli_nccl_now_ns();
        snprintf(comm->stuck.sentence, sizeof comm->stuck.sentence,
                 "rank %d of %d has waited for rank %d, which has left without calling %s",
                 of->call->rank, of->call->ranks, of->gone, of->call->name);
        tell_left(of->call, of->gone);
    }
    fail_if_due(comm);
    of->state = state_of(comm);
}

rvli_stuck rvli_stuck_by_leaving(const rvli_stuck_call *call, int gone)
{
    incident of = {.call = call, .gone = gone, .state = RVLI_STUCK_ENDED};
    if (!rvli_comm_with(call->meeting, call->rank, leave, &of))
        tell_left(call, gone);
    return of.state;
}

static void be_late(rvli_comm *comm, void *user)
{
    incident *of = user;
    if (comm->stuck.failed_ns == 0) {
        rvli_client_note(RVLI_WIRE_WAITS, 0, of->sentence);
        snprintf(comm->stuck.sentence, sizeof comm->stuck.sentence, "%s", of->sentence);
        fail(comm, RVLI_NCCL_SYSTEM_ERROR);
    }
    of->state = state_of(comm);
}

rvli_stuck rvli_stuck_by_lateness(const rvli_stuck_call *call, const char *sentence)
{
    incident of = {.call = call, .sentence = sentence, .state = RVLI_STUCK_ENDED};
    if (!rvli_comm_with(call->meeting, call->rank, be_late, &of)) {
        rvli_client_note(RVLI_WIRE_WAITS, 0, sentence);
        fprintf(stderr, "reveille: NCCL: %s\n", sentence);
    }
    return of.state;
}

static void ask(rvli_comm *comm, void *user)
{
    ((incident *)user)->state = state_of(comm);
}

rvli_stuck rvli_stuck_ask(const rvli_stuck_call *call)
{
    incident of = {.call = call, .state = RVLI_STUCK_ENDED};
    (void)rvli_comm_with(call->meeting, call->rank, ask, &of);
    return of.state;
}

static void look(rvli_comm *comm, void *user)
{
    (void)user;
    fail_if_due(comm);
}

void rvli_stuck_look(rvli_comm *comm)
{
    if (comm->stuck.since_ns != 0)
        (void)rvli_comm_with(comm->meeting, comm->rank, look, NULL);
}
