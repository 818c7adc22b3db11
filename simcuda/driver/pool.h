/* SPDX-License-Identifier: MIT */
/*
 * Memory pools: stream-ordered memory (cuMemAllocAsync). A pool has a long range of addresses,
 * with physical memory in pieces of 32 MiB. When memory is freed, it keeps as much as its
 * release threshold allows. It behaves as an H200's (tests/simcuda/facts.c, pools).
 */
#ifndef RVL_SIMCUDA_POOL_H
#define RVL_SIMCUDA_POOL_H

#include "simcuda/driver/driver.h"

/*
 * Frees the memory of a range of RVLI_RANGE_POOL that was removed from the map. counted:
 * subtract it from the pool's bytes in use. Other streams may get it once the driver knows that
 * this stream's work is complete.
 */
void rvli_pool_free(const rvli_range *range, CUstream stream, bool counted);

/* The program has waited for the device: releases what is above the threshold. */
void rvli_pools_settle(void);

/* The device is full: releases all unused memory. Returns whether there was any. */
bool rvli_pools_relieve(int device);

#endif
