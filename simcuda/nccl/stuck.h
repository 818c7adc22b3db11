/* SPDX-License-Identifier: MIT */
/*
 * Operations that never end: a rank has left without calling them, or does not come for too long.
 *
 * On cards the kernel of such an operation waits until its communicator is aborted. PyTorch's
 * watchdog ends the process instead, when ncclCommGetAsyncError() names an error or its own time is
 * over. Here the rank that waits says so at once, and the machine keeps it for the verdict. After
 * RVLI_NCCL_LEFT_VARIABLE its communicator fails, for a watchdog to read. As long after that a wait
 * for its stream ends with an error of the driver: a program that has no watchdog would wait
 * forever.
 */
#ifndef RVL_SIMCUDA_NCCL_STUCK_H
#define RVL_SIMCUDA_NCCL_STUCK_H

#include <stddef.h>

#include "simcuda/nccl/comm.h"

/*
 * Launchers end a job within seconds after a rank of it has failed (torchrun looks every 0.1 s),
 * and say why. So they come first, and a job of which no rank has failed loses a few seconds.
 */
#define RVLI_NCCL_LEFT_VARIABLE "REVEILLE_NCCL_LEFT_TIMEOUT_S"
#define RVLI_NCCL_LEFT_USUAL_S 10

/* The operation of a rank that waits. */
typedef struct rvli_stuck_call {
    uint64_t meeting; /* of the communicator, which may have been destroyed since */
    int rank, ranks;
    const char *name; /* of the function */
} rvli_stuck_call;

typedef enum rvli_stuck {
    RVLI_STUCK_ENDED, /* the communicator has been destroyed or aborted: nothing waits any more */
    RVLI_STUCK_WAITS,
    RVLI_STUCK_FAILED, /* long enough ago: a wait ends with an error */
} rvli_stuck;

/* Another rank has left without calling it. */
rvli_stuck rvli_stuck_by_leaving(const rvli_stuck_call *call, int gone);

/* Others have not come for too long: "rank 0 of 2 has waited 600 s for ...". */
rvli_stuck rvli_stuck_by_lateness(const rvli_stuck_call *call, const char *sentence);

/* What has become of it, if anything was stuck before. */
rvli_stuck rvli_stuck_ask(const rvli_stuck_call *call);

/* It fails if one of its operations has been stuck for too long. */
void rvli_stuck_look(rvli_comm *comm);

#endif
