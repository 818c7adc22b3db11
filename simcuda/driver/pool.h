/* SPDX-License-Identifier: MIT */
/*
 * Memory pools: memory in the order of streams (cuMemAllocAsync). A pool has a long range of
 * addresses, and physical memory below them in pieces of 32 MiB, which it keeps when memory is
 * freed: how much of it is its release threshold. As an H200 has it (tests/simcuda/facts.c, pools).
 */
#ifndef RVL_SIMCUDA_POOL_H
#define RVL_SIMCUDA_POOL_H

#include "simcuda/driver/driver.h"

/*
 * Frees what a range of RVLI_RANGE_POOL says, which is in the map no more. counted: the pool's
 * bytes in use become less. Other streams may have it when the driver has heard that the work of
 * this one is done.
 */
void rvli_pool_free(const rvli_range *range, CUstream stream, bool counted);

/* The program has waited for the device: what is beyond the threshold goes back. */
void rvli_pools_settle(void);

/* The device is full: gives back all that is not in use. Whether there was something. */
bool rvli_pools_relieve(int device);

#endif
