/* SPDX-License-Identifier: MIT */
/*
 * Communicators and sleep: the rule for when a process with communicators may sleep.
 *
 * A communicator has memory of other ranks open, and a process with such memory cannot be restored
 * to its device. Pausing a communicator closes memory of other devices. Host memory that ranks
 * share stays open: NCCL uses it where devices do not reach each other. It comes from the driver
 * (NCCL_CUMEM_HOST_ENABLE=1, the default) or from files. A process with the driver's cannot be
 * restored either; one with files can. So the driver's mappings of this process are checked
 * (bench/gpu/driver/checkpoint_ranks.py, docs/sleep.md).
 */
#ifndef RVL_HOOKS_NCCL_ASLEEP_H
#define RVL_HOOKS_NCCL_ASLEEP_H

/* Makes each sleep check the named communicators from now on. */
void rvli_nccl_watch_sleep(void);

#endif
