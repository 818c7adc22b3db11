/* SPDX-License-Identifier: MIT */
/*
 * The CUDA runtime's calls for memory that processes share. Reveille's own memory is passed over
 * our socket (hooks/ipc/ipc.h). Other calls are forwarded.
 */
#include "hooks/ipc/foreign.h"
#include "hooks/ipc/ipc.h"
#include "hooks/preload/runtime_calls.h"

#define ABSENT RVLI_CUDA_INSUFFICIENT_DRIVER /* no CUDA runtime */

int cudaIpcGetMemHandle(rvli_ipc_handle *handle, void *pointer)
{
    int error;
    if (rvli_ipc_get((uintptr_t)pointer, handle, &error))
        return error;
    rvli_runtime_cudaIpcGetMemHandle next = RVLI_RUNTIME(cudaIpcGetMemHandle);
    return next != NULL ? next(handle, pointer) : ABSENT;
}

/* For the caller of the function below, which has looked it up. */
static int current_device(int *device_out)
{
    rvli_runtime_cudaGetDevice next = rvli_next_cudaGetDevice(NULL);
    return next != NULL ? next(device_out) : ABSENT;
}

int cudaIpcOpenMemHandle(void **pointer, rvli_ipc_handle handle, unsigned flags)
{
    int error;
    uint64_t addr = 0;
    (void)RVLI_RUNTIME(cudaGetDevice); /* looked up for this caller; current_device() uses it */
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
