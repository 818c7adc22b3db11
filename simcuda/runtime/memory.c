/* SPDX-License-Identifier: MIT */
/* Memory, copies and fills. */
#include <string.h>

#include "simcuda/runtime/runtime.h"

/* A size of 0 succeeds, and stores NULL. */
cudaError_t cudaMalloc(void **addr, size_t size_bytes)
{
    CUdeviceptr got = 0;
    if (addr == NULL)
        return rvli_done(cudaErrorInvalidValue);
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS && size_bytes > 0)
        result = cuMemAlloc(&got, size_bytes);
    if (result == CUDA_SUCCESS)
        *addr = (void *)got;
    return rvli_driven(result);
}

RVLI_PASSED(cudaFree, cuMemFree, (void *addr), ((CUdeviceptr)addr))
RVLI_PASSED(cudaMemGetInfo, cuMemGetInfo, (size_t * free_bytes, size_t *total_bytes),
            (free_bytes, total_bytes))
RVLI_PASSED(cudaHostAlloc, cuMemHostAlloc, (void **memory, size_t size_bytes, unsigned int flags),
            (memory, size_bytes, flags))

cudaError_t cudaMallocHost(void **memory, size_t size_bytes)
{
    return cudaHostAlloc(memory, size_bytes, 0);
}

cudaError_t cudaFreeHost(void *memory)
{
    if (memory == NULL)
        return cudaSuccess;
    RVLI_PASS(cuMemFreeHost(memory));
}

RVLI_PASSED(cudaHostRegister, cuMemHostRegister,
            (void *memory, size_t size_bytes, unsigned int flags), (memory, size_bytes, flags))
RVLI_PASSED(cudaHostUnregister, cuMemHostUnregister, (void *memory), (memory))
RVLI_PASSED(cudaHostGetDevicePointer, cuMemHostGetDevicePointer,
            (void **addr, void *memory, unsigned int flags), ((CUdeviceptr *)addr, memory, flags))
RVLI_PASSED(cudaHostGetFlags, cuMemHostGetFlags, (unsigned int *flags, void *memory),
            (flags, memory))

/* ---- Memory and events of other processes ---- */

_Static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CUipcMemHandle), "a handle of memory");
_Static_assert(sizeof(cudaIpcEventHandle_t) == sizeof(CUipcEventHandle), "a handle of an event");

RVLI_PASSED(cudaIpcGetMemHandle, cuIpcGetMemHandle, (cudaIpcMemHandle_t * handle, void *addr),
            ((CUipcMemHandle *)handle, (CUdeviceptr)addr))

cudaError_t cudaIpcOpenMemHandle(void **addr, cudaIpcMemHandle_t handle, unsigned int flags)
{
    CUipcMemHandle wanted;
    memcpy(&wanted, &handle, sizeof wanted);
    RVLI_PASS(cuIpcOpenMemHandle((CUdeviceptr *)addr, wanted, flags));
}

RVLI_PASSED(cudaIpcCloseMemHandle, cuIpcCloseMemHandle, (void *addr), ((CUdeviceptr)addr))
RVLI_PASSED(cudaIpcGetEventHandle, cuIpcGetEventHandle,
            (cudaIpcEventHandle_t * handle, cudaEvent_t event), ((CUipcEventHandle *)handle, event))

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle wanted;
    memcpy(&wanted, &handle, sizeof wanted);
    RVLI_PASS(cuIpcOpenEventHandle(event, wanted));
}

/* Memory that CUDA does not know is reported as unregistered, without an error. */
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *facts, const void *addr)
{
    unsigned type = 0;
    int device = 0;
    CUresult result = facts == NULL ? CUDA_ERROR_INVALID_VALUE : rvli_runtime_ready();
    if (result != CUDA_SUCCESS)
        return rvli_driven(result);
    memset(facts, 0, sizeof *facts);
    CUdeviceptr at = (CUdeviceptr)addr;
    if (cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at) != CUDA_SUCCESS) {
        facts->type = cudaMemoryTypeUnregistered;
        facts->device = -2;
        facts->hostPointer = (void *)(uintptr_t)addr;
        return cudaSuccess;
    }
    unsigned managed = 0;
    (void)cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
    (void)cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
    facts->type = managed                      ? cudaMemoryTypeManaged
                  : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                               : cudaMemoryTypeDevice;
    facts->device = device;
    facts->devicePointer = (void *)(uintptr_t)addr;
    facts->hostPointer = managed || type == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)addr : NULL;
    return cudaSuccess;
}

/* ---- Copies ---- */

static CUresult copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                     cudaStream_t stream)
{
    CUdeviceptr into = (CUdeviceptr)to, out = (CUdeviceptr)from;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return cuMemcpyHtoDAsync(into, from, bytes, stream);
    case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoHAsync(to, out, bytes, stream);
    case cudaMemcpyDeviceToDevice:
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return cuMemcpyAsync(into, out, bytes, stream);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Returns when the copy is complete, unless both sides are on a device. */
static CUresult copy_now(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    CUdeviceptr into = (CUdeviceptr)to, out = (CUdeviceptr)from;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return cuMemcpyHtoD(into, from, bytes);
    case cudaMemcpyDeviceToHost:
        return cuMemcpyDtoH(to, out, bytes);
    case cudaMemcpyDeviceToDevice:
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return cuMemcpy(into, out, bytes);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* stream NULL: copies synchronously. */
static CUresult copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                          size_t width, size_t height, enum cudaMemcpyKind kind,
                          const cudaStream_t *stream)
{
    CUresult result =
        to_pitch < width || from_pitch < width ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (size_t row = 0; result == CUDA_SUCCESS && row < height; row++) {
        char *into = (char *)to + row * to_pitch;
        const char *out = (const char *)from + row * from_pitch;
        result = stream != NULL ? copy(into, out, width, kind, *stream)
                                : copy_now(into, out, width, kind);
    }
    return result;
}

RVLI_PASSED(cudaMemcpy, copy_now,
            (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind),
            (to, from, bytes, kind))
RVLI_PASSED(cudaMemcpyAsync, copy,
            (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
             cudaStream_t stream),
            (to, from, bytes, kind, stream))
RVLI_PASSED(cudaMemcpy2D, copy_rows,
            (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
             size_t height, enum cudaMemcpyKind kind),
            (to, to_pitch, from, from_pitch, width, height, kind, NULL))
RVLI_PASSED(cudaMemcpy2DAsync, copy_rows,
            (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
             size_t height, enum cudaMemcpyKind kind, cudaStream_t stream),
            (to, to_pitch, from, from_pitch, width, height, kind, &stream))

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    RVLI_PASS(copy(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

/* Asynchronous with respect to the host, like any copy from device to device. */
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes)
{
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, NULL);
}

RVLI_PASSED(cudaMemset, cuMemsetD8, (void *addr, int value, size_t bytes),
            ((CUdeviceptr)addr, (unsigned char)value, bytes))
RVLI_PASSED(cudaMemsetAsync, cuMemsetD8Async,
            (void *addr, int value, size_t bytes, cudaStream_t stream),
            ((CUdeviceptr)addr, (unsigned char)value, bytes, stream))

/* A single row needs no pitch. */
static CUresult fill_rows(void *addr, size_t pitch, int value, size_t width, size_t height,
                          cudaStream_t stream)
{
    CUresult result = height > 1 && pitch < width ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    for (size_t row = 0; result == CUDA_SUCCESS && row < height; row++)
        result =
            cuMemsetD8Async((CUdeviceptr)addr + row * pitch, (unsigned char)value, width, stream);
    return result;
}

RVLI_PASSED(cudaMemset2D, fill_rows,
            (void *addr, size_t pitch, int value, size_t width, size_t height),
            (addr, pitch, value, width, height, NULL))
RVLI_PASSED(cudaMemset2DAsync, fill_rows,
            (void *addr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
            (addr, pitch, value, width, height, stream))
