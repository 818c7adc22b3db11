/* SPDX-License-Identifier: MIT */
/*
 * Managed memory: host memory that a device may have, too. Here it is the program's own memory. A
 * page of it has memory on a device from the first prefetch or fill there until it is freed; what
 * kernels touch is not seen. Where the device is full nothing is taken: a card moves other pages
 * away.
 */
#ifndef RVL_SIMCUDA_MANAGED_H
#define RVL_SIMCUDA_MANAGED_H

#include "simcuda/driver/driver.h"

/* Some of a range of RVLI_RANGE_MANAGED is used on this device. */
void rvli_managed_touch(const rvli_range *range, uint64_t addr, size_t bytes, int device);

/* Frees what a range says, which is in the map no more. */
void rvli_managed_free(const rvli_range *range);

#endif
