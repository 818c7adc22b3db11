/* SPDX-License-Identifier: MIT */
/*
 * Memory and events of other processes of the machine, by handles of CUDA's IPC. The machine
 * records which process holds what (simcuda/machine/shared.h). This file keeps what this process
 * has opened.
 */
#ifndef RVL_SIMCUDA_IPC_H
#define RVL_SIMCUDA_IPC_H

#include "simcuda/driver/driver.h"

/* Whether memory of another process is open. */
bool rvli_ipc_any_open(void);

/* Closes the memory opened at an address, regardless of its number of opens. */
void rvli_ipc_close(uint64_t addr);

/* This process has dropped an exported or opened event. */
void rvli_ipc_event_gone(CUevent event);

#endif
