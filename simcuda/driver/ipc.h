/* SPDX-License-Identifier: MIT */
/*
 * Memory and events of other processes of the machine, by handles of CUDA's IPC. The machine knows
 * who has what (simcuda/machine/shared.h); here is what this process has opened.
 */
#ifndef RVL_SIMCUDA_IPC_H
#define RVL_SIMCUDA_IPC_H

#include "simcuda/driver/driver.h"

/* Whether memory of another process is open. */
bool rvli_ipc_any_open(void);

/* Closes what is opened at an address, however often it was. */
void rvli_ipc_close(uint64_t addr);

/* This process has an exported or an opened event no more. */
void rvli_ipc_event_gone(CUevent event);

#endif
