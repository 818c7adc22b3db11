/* SPDX-License-Identifier: MIT */
/* What the fake CUDA runtime has, with the real one's names. Errors are values of cudaError_t. */
#ifndef RVL_TESTS_HOOKS_CUDART_FAKE_H
#define RVL_TESTS_HOOKS_CUDART_FAKE_H

#include <stddef.h>

#define CUDART_API __attribute__((visibility("default")))

CUDART_API int cudaMalloc(void **pointer, size_t size);
CUDART_API int cudaFree(void *pointer);
CUDART_API int cudaMallocAsync(void **pointer, size_t size, void *stream);
CUDART_API int cudaMallocFromPoolAsync(void **pointer, size_t size, void *pool, void *stream);
CUDART_API int cudaMallocManaged(void **pointer, size_t size, unsigned flags);
CUDART_API int cudaFreeAsync(void *pointer, void *stream);
CUDART_API int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
typedef struct ipc_handle { /* cudaIpcMemHandle_t */
    char bytes[64];
} ipc_handle;
CUDART_API int cudaIpcGetMemHandle(ipc_handle *handle, void *pointer);
CUDART_API int cudaIpcOpenMemHandle(void **pointer, ipc_handle handle, unsigned flags);
CUDART_API int cudaIpcCloseMemHandle(void *pointer);
CUDART_API int cudaMemset(void *pointer, int value, size_t size);
CUDART_API int cudaMemcpy(void *to, const void *from, size_t size, int kind);
CUDART_API int cudaGetDevice(int *device);
CUDART_API int cudaSetDevice(int device);
CUDART_API int cudaGetLastError(void);
CUDART_API int cudaHostGetFlags(unsigned *flags, void *pointer);
CUDART_API int cudaStreamCreate(void **stream);
CUDART_API int cudaStreamDestroy(void *stream);
CUDART_API int cudaStreamBeginCapture(void *stream, int mode);
CUDART_API int cudaStreamEndCapture(void *stream, void *graph);
CUDART_API int cudaGetDriverEntryPointByVersion(const char *symbol, void **pointer,
                                                unsigned version, unsigned long long flags,
                                                void *result);
CUDART_API int cudaGetDriverEntryPoint(const char *symbol, void **pointer, unsigned long long flags,
                                       void *result);
CUDART_API int cudaRuntimeGetVersion(int *version);

CUDART_API int cudaStreamBeginCaptureToGraph(void *stream, void *graph, const void *dependencies,
                                             const void *data, size_t count, int mode);
CUDART_API int cudaMallocAsync_ptsz(void **pointer, size_t size, void *stream);
CUDART_API int cudaMallocFromPoolAsync_ptsz(void **pointer, size_t size, void *pool, void *stream);
CUDART_API int cudaFreeAsync_ptsz(void *pointer, void *stream);
CUDART_API int cudaStreamBeginCapture_ptsz(void *stream, int mode);
CUDART_API int cudaStreamBeginCaptureToGraph_ptsz(void *stream, void *graph,
                                                  const void *dependencies, const void *data,
                                                  size_t count, int mode);
CUDART_API int cudaStreamEndCapture_ptsz(void *stream, void *graph);

#endif
