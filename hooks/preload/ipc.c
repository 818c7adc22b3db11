/* SPDX-License-Identifier: MIT */
/*
 * Memory that processes share, by the CUDA runtime: Reveille's own is passed over a socket of ours
 * (hooks/ipc/ipc.h), everything else is passed on.
 */
#include "hooks/ipc/foreign.h"
#include "hooks/ipc/ipc.h"
#include "hooks/preload/runtime_calls.h"

#define ABSENT RVLI_CUDA_INSUFFICIENT_DRIVER /* there is no CUDA runtime */

int cudaIpcGetMemHandle(rvli_ipc_handle *handle, void *pointer)
{
    int error;
    if (rvli_ipc_get((uintptr_t)pointer, handle, &error))
        return error;
    rvli_runtime_cudaIpcGetMemHandle next = RVLI_RUNTIME(cudaIpcGetMemHandle);
    return next != NULL ? next(handle, pointer) : ABSENT;
}

/* On behalf of the caller of the function below. */
static int current_device(int *device_out)
{
    rvli_runtime_cudaGetDevice next = rvli_next_cudaGetDevice(NULL);
    return next != NULL ? next(device_out) : ABSENT;
}

int cudaIpcOpenMemHandle(void **pointer, rvli_ipc_handle handle, unsigned flags)
{
    int error;
    uint64_t addr = 0;
    (void)RVLI_RUNTIME(cudaGetDevice); /* found for this caller, for current_device() */
    if (pointer != NULL && rvli_ipc_open(&handle, current_device, &addr, &error)) {
        if (error == RVLI_CUDA_SUCCESS)
            *pointer = (void *)(uintptr_t)addr;
        return error;
    }
    rvli_runtime_cudaIpcOpenMemHandle next = RVLI_RUNTIME(cudaIpcOpenMemHandle);
    int result = next != NULL ? next(pointer, handle, flags) : ABSENT;
    if (result == RVLI_CUDA_SUCCESS && pointer != NULL)
        rvli_foreign_open((uintptr_t)*pointer);
    return result;
}

int cudaIpcCloseMemHandle(void *pointer)
{
    int error;
    if (rvli_ipc_close((uintptr_t)pointer, &error))
        return error;
    rvli_runtime_cudaIpcCloseMemHandle next = RVLI_RUNTIME(cudaIpcCloseMemHandle);
    int result = next != NULL ? next(pointer) : ABSENT;
    if (result == RVLI_CUDA_SUCCESS)
        rvli_foreign_close((uintptr_t)pointer);
    return result;
}
