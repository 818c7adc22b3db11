/* SPDX-License-Identifier: MIT */
/*
 * Managed memory: host memory that may also be on a device. Here, it is the program's own
 * memory. A page takes memory on a device from the first prefetch or fill there until it is
 * freed. Accesses of kernels are not seen. If the device is full, no memory is taken: a card
 * would evict other pages.
 */
#ifndef RVL_SIMCUDA_MANAGED_H
#define RVL_SIMCUDA_MANAGED_H

#include "simcuda/driver/driver.h"

/* The device uses part of a range of RVLI_RANGE_MANAGED. */
void rvli_managed_touch(const rvli_range *range, uint64_t addr, size_t bytes, int device);

/* Frees the memory of a range that was removed from the map. */
void rvli_managed_free(const rvli_range *range);

#endif
