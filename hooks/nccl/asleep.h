/* SPDX-License-Identifier: MIT */
/*
 * Communicators and a sleep: the one rule of when a process that has some may sleep.
 *
 * A communicator has memory of the other ranks open, and no process comes back to its device with
 * that. Once it is paused, the memory of other devices is closed. Host memory that ranks share
 * stays open: NCCL takes it where devices do not reach each other, from the driver
 * (NCCL_CUMEM_HOST_ENABLE=1, its default) or as files. A process with the first is lost as well;
 * files come back. So what the driver has mapped here is looked at (bench/gpu/driver/
 * checkpoint_ranks.py, docs/sleep.md).
 */
#ifndef RVL_HOOKS_NCCL_ASLEEP_H
#define RVL_HOOKS_NCCL_ASLEEP_H

/* From now on each sleep asks for the communicators that are named. */
void rvli_nccl_watch_sleep(void);

#endif
