/* SPDX-License-Identifier: MIT */
/*
 * The two functions for torch.cuda.memory.CUDAPluggableAllocator. Memory inside a region is
 * Reveille's; outside, it comes from the program's CUDA runtime. NULL tells PyTorch that there is
 * no memory.
 */
#include <sys/types.h>

#include "hooks/process/message.h"
#include "hooks/process/settings.h"
#include "hooks/region/region.h"
#include "hooks/shim/library.h"
#include "hooks/shim/runtime.h"

RVL_API void *tms_torch_malloc(ssize_t size, int device, void *stream);
RVL_API void tms_torch_free(void *pointer, ssize_t size, int device, void *stream);

const char *const rvli_shim_mode = "torch";

/* Switches to the device for the call, because the runtime allocates on the thread's device. */
static void *alloc_outside(size_t size, int device)
{
    void *pointer = NULL;
    int before = 0;
    rvli_runtime_cudaMalloc next = RVLI_RUNTIME(cudaMalloc);
    rvli_runtime_cudaGetDevice get_device = RVLI_RUNTIME(cudaGetDevice);
    rvli_runtime_cudaSetDevice set_device = RVLI_RUNTIME(cudaSetDevice);
    if (next == NULL || get_device == NULL || set_device == NULL) {
        rvli_say("tms_torch_malloc outside a region: no CUDA runtime (libcudart) is loaded");
        return NULL;
    }
    if (get_device(&before) != RVLI_CUDA_SUCCESS ||
        (before != device && set_device(device) != RVLI_CUDA_SUCCESS))
        return NULL;
    if (next(&pointer, size) != RVLI_CUDA_SUCCESS)
        pointer = NULL;
    if (before != device)
        set_device(before);
    return pointer;
}

void *tms_torch_malloc(ssize_t size, int device, void *stream)
{
    void *pointer = NULL;
    (void)stream;
    if (size <= 0)
        return NULL;
    if (rvli_thread_settings_get()->region != RVLI_REGION_INSIDE)
        return alloc_outside((size_t)size, device);
    return rvli_region_alloc(device, (size_t)size, &pointer) == RVLI_CUDA_SUCCESS ? pointer : NULL;
}

void tms_torch_free(void *pointer, ssize_t size, int device, void *stream)
{
    int error;
    (void)size;
    (void)device;
    (void)stream;
    if (pointer == NULL || rvli_region_free(pointer, &error))
        return;
    rvli_runtime_cudaFree next = RVLI_RUNTIME(cudaFree);
    if (next != NULL)
        next(pointer);
}
