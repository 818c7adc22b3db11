/* SPDX-License-Identifier: MIT */
/*
 * Operations that never end: a rank has left without calling them, or does not come in time.
 *
 * On cards, the kernel of such an operation waits until its communicator is aborted. PyTorch's
 * watchdog ends the process when ncclCommGetAsyncError() reports an error, or when its own
 * timeout is over. Here, the waiting rank reports the problem at once, and the machine keeps it
 * for the verdict. After RVLI_NCCL_LEFT_VARIABLE, the communicator fails, which a watchdog can
 * see. After that time again, a wait for its stream ends with a driver error, since a program
 * without a watchdog would wait forever.
 */
#ifndef RVL_SIMCUDA_NCCL_STUCK_H
#define RVL_SIMCUDA_NCCL_STUCK_H

#include <stddef.h>

#include "simcuda/nccl/comm.h"

/*
 * Launchers end a job within seconds after a rank has failed (torchrun polls every 0.1 s), and
 * report why. This delay lets them come first. A job without a failed rank loses a few seconds.
 */
#define RVLI_NCCL_LEFT_VARIABLE "REVEILLE_NCCL_LEFT_TIMEOUT_S"
#define RVLI_NCCL_LEFT_USUAL_S 10

/* The operation on which a rank waits. */
typedef struct rvli_stuck_call {
    uint64_t meeting; /* of the communicator, which may be destroyed by now */
    int rank, ranks;
    const char *name; /* the function's name */
} rvli_stuck_call;

typedef enum rvli_stuck {
    RVLI_STUCK_ENDED, /* the communicator was destroyed or aborted: nothing waits any more */
    RVLI_STUCK_WAITS,
    RVLI_STUCK_FAILED, /* long enough ago that a wait ends with an error */
} rvli_stuck;

/* Another rank has left without calling the operation. */
rvli_stuck rvli_stuck_by_leaving(const rvli_stuck_call *call, int gone);

/* Other ranks have not come in time: "rank 0 of 2 has waited 600 s for ...". */
rvli_stuck rvli_stuck_by_lateness(const rvli_stuck_call *call, const char *sentence);

/* The state, if an operation was stuck before. */
rvli_stuck rvli_stuck_ask(const rvli_stuck_call *call);

/* Fails the communicator if one of its operations has been stuck for too long. */
void rvli_stuck_look(rvli_comm *comm);

#endif
