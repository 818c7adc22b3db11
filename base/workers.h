/* SPDX-License-Identifier: MIT */
/*
 * A few threads that run small jobs in the order in which they were queued.
 */
#ifndef RVL_BASE_WORKERS_H
#define RVL_BASE_WORKERS_H

#include "reveille/status.h"

/* A unit of work. The caller owns it until it is queued, and again once it has begun. */
typedef struct rvli_job rvli_job;
struct rvli_job {
    void (*run)(rvli_job *job);
    rvli_job *next;
};

typedef struct rvli_workers rvli_workers;

/*
 * Starts count threads, or fewer if the system allows fewer. Each calls begin(user) first, unless
 * begin is NULL. Returns after all have: a thread that begins late could call the driver while the
 * process is locked. RVL_ERR_HOST_OOM if none can be started.
 */
rvl_status rvli_workers_start(unsigned count, void (*begin)(void *user), void *user,
                              rvli_workers **workers_out);
/* Runs the queued jobs, then ends the threads. */
void rvli_workers_stop(rvli_workers *workers);

void rvli_workers_queue(rvli_workers *workers, rvli_job *job);

#endif
