/* SPDX-License-Identifier: MIT */
/*
 * cudaIpcGetMemHandle(), cudaIpcOpenMemHandle() and cudaIpcCloseMemHandle() for Reveille's memory,
 * which the driver's own IPC refuses.
 *
 * Each returns whether the memory or handle is Reveille's. If so, *error_out is the result of the
 * call: a value of cudaError_t, which is also valid as a CUresult. A line on stderr explains an
 * error.
 */
#ifndef RVL_HOOKS_IPC_IPC_H
#define RVL_HOOKS_IPC_IPC_H

#include <stdbool.h>
#include <stdint.h>

#include "hooks/process/cuda_values.h"

/* As in CUDA, any address of an allocation returns the handle of its beginning. */
bool rvli_ipc_get(uint64_t addr, rvli_ipc_handle *handle_out, int *error_out);

/* Stores the device on which to open. Returns a value of cudaError_t. */
typedef int (*rvli_ipc_device)(int *device_out);

/* A handle that is opened twice for a device has one address, and must be closed twice. */
bool rvli_ipc_open(const rvli_ipc_handle *handle, rvli_ipc_device device_of, uint64_t *addr_out,
                   int *error_out);

bool rvli_ipc_close(uint64_t addr, int *error_out);

#endif
