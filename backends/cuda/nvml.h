/* SPDX-License-Identifier: MIT */
/*
 * What is free on a device, asked of NVML: it answers also while this process is off its devices,
 * when the CUDA driver does not. RVL_NVML_LIBRARY names another library than libnvidia-ml.so.1.
 */
#ifndef RVL_BACKENDS_CUDA_NVML_H
#define RVL_BACKENDS_CUDA_NVML_H

#include <stdint.h>

#include "reveille/status.h"

/* bus_id: as cuDeviceGetPCIBusId() says it. RVL_ERR_NOT_SUPPORTED: there is no NVML here. */
rvl_status rvli_nvml_free(const char *bus_id, uint64_t *free_out);

#endif
