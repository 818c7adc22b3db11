/* SPDX-License-Identifier: MIT */
/*
 * cudaIpcGetMemHandle(), cudaIpcOpenMemHandle() and cudaIpcCloseMemHandle() as a caller sees them,
 * for Reveille's memory, which the driver's own IPC refuses.
 *
 * Each answers whether the memory or the handle is Reveille's at all; if so, *error_out is what the
 * call answers: a value of cudaError_t, which is also one of CUresult. A line on stderr says why.
 */
#ifndef RVL_HOOKS_IPC_IPC_H
#define RVL_HOOKS_IPC_IPC_H

#include <stdbool.h>
#include <stdint.h>

#include "hooks/process/cuda_values.h"

/* As CUDA does, any address of an allocation gives the handle of its beginning. */
bool rvli_ipc_get(uint64_t addr, rvli_ipc_handle *handle_out, int *error_out);

/* Asks for the device on which to open; answers a value of cudaError_t. */
typedef int (*rvli_ipc_device)(int *device_out);

/* The same handle opened twice for a device has the same address, and is to be closed twice. */
bool rvli_ipc_open(const rvli_ipc_handle *handle, rvli_ipc_device device_of, uint64_t *addr_out,
                   int *error_out);

bool rvli_ipc_close(uint64_t addr, int *error_out);

#endif
