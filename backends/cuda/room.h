/* SPDX-License-Identifier: MIT */
/*
 * What is free on a device, asked from outside this process: while it is locked or off its devices,
 * neither CUDA nor NVML answers in it (an H100, driver 580: NVML's next call never returns).
 */
#ifndef RVL_BACKENDS_CUDA_ROOM_H
#define RVL_BACKENDS_CUDA_ROOM_H

#include <stdint.h>

#include "reveille/status.h"

/*
 * bus_id: as cuDeviceGetPCIBusId() says it. Runs nvidia-smi and waits for it; or asks the library
 * that RVL_NVML_LIBRARY names, here. RVL_ERR_NOT_SUPPORTED: there is neither.
 */
rvl_status rvli_room_of(const char *bus_id, uint64_t *free_out);

#endif
