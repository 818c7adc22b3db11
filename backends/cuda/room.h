/* SPDX-License-Identifier: MIT */
/*
 * Reads the free memory of a device from outside this process. While the process is locked or off
 * its devices, neither CUDA nor NVML works inside it (H100, driver 580: NVML's next call never
 * returns).
 */
#ifndef RVL_BACKENDS_CUDA_ROOM_H
#define RVL_BACKENDS_CUDA_ROOM_H

#include <stdint.h>

#include "reveille/status.h"

/*
 * bus_id: from cuDeviceGetPCIBusId(). Runs nvidia-smi and waits for it. If RVL_NVML_LIBRARY is set,
 * calls that library in this process instead. RVL_ERR_NOT_SUPPORTED: neither works.
 */
rvl_status rvli_room_of(const char *bus_id, uint64_t *free_out);

#endif
