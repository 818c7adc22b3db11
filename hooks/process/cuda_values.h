/* SPDX-License-Identifier: MIT */
/* Values and structures of the CUDA runtime that the hooks return: those of CUDA 12 and 13. */
#ifndef RVL_HOOKS_PROCESS_CUDA_VALUES_H
#define RVL_HOOKS_PROCESS_CUDA_VALUES_H

/* Values of cudaError_t. */
enum {
    RVLI_CUDA_SUCCESS = 0,
    RVLI_CUDA_INVALID_VALUE = 1,
    RVLI_CUDA_MEMORY_ALLOCATION = 2,
    RVLI_CUDA_INITIALIZATION = 3,
    RVLI_CUDA_UNLOADING = 4,
    RVLI_CUDA_INSUFFICIENT_DRIVER = 35,
    RVLI_CUDA_NO_DEVICE = 100,
    RVLI_CUDA_INVALID_CONTEXT = 201,
    RVLI_CUDA_MAP_FAILED = 205,
    RVLI_CUDA_INVALID_HANDLE = 400,
    RVLI_CUDA_NOT_SUPPORTED = 801,
    RVLI_CUDA_CAPTURE_UNSUPPORTED = 900,
    RVLI_CUDA_UNKNOWN = 999
};

/* cudaIpcMemHandle_t, which is passed by value. */
typedef struct rvli_ipc_handle {
    char bytes[64];
} rvli_ipc_handle;

#endif
