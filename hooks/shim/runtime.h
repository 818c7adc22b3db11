/* SPDX-License-Identifier: MIT */
/*
 * The CUDA runtime of the program, whichever it is.
 *
 * No libcudart is linked: a function is what the program would have got without us, the next in the
 * global scope; else, where a program has its runtime for itself (dlopen without RTLD_GLOBAL), the
 * one that the caller's own libraries depend on; else one that is loaded already. The library that
 * it lies in stays loaded from then on.
 */
#ifndef RVL_HOOKS_SHIM_RUNTIME_H
#define RVL_HOOKS_SHIM_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "hooks/process/cuda_values.h"

/*
 * X(function, (parameters)): all return cudaError_t; structures of CUDA pass as pointers. First
 * those that the preload library stands in front of.
 */
#define RVLI_RUNTIME_FRONT_MAP(X)                                                                  \
    X(cudaMalloc, (void **pointer, size_t size))                                                   \
    X(cudaFree, (void *pointer))                                                                   \
    X(cudaMallocManaged, (void **pointer, size_t size, unsigned flags))                            \
    X(cudaMallocAsync, (void **pointer, size_t size, void *stream))                                \
    X(cudaMallocAsync_ptsz, (void **pointer, size_t size, void *stream))                           \
    X(cudaMallocFromPoolAsync, (void **pointer, size_t size, void *pool, void *stream))            \
    X(cudaMallocFromPoolAsync_ptsz, (void **pointer, size_t size, void *pool, void *stream))       \
    X(cudaFreeAsync, (void *pointer, void *stream))                                                \
    X(cudaFreeAsync_ptsz, (void *pointer, void *stream))                                           \
    X(cudaIpcGetMemHandle, (rvli_ipc_handle * handle, void *pointer))                              \
    X(cudaIpcOpenMemHandle, (void **pointer, rvli_ipc_handle handle, unsigned flags))              \
    X(cudaIpcCloseMemHandle, (void *pointer))                                                      \
    X(cudaStreamBeginCapture, (void *stream, int mode))                                            \
    X(cudaStreamBeginCapture_ptsz, (void *stream, int mode))                                       \
    X(cudaStreamBeginCaptureToGraph, (void *stream, void *graph, const void *dependencies,         \
                                      const void *data, size_t count, int mode))                   \
    X(cudaStreamBeginCaptureToGraph_ptsz, (void *stream, void *graph, const void *dependencies,    \
                                           const void *data, size_t count, int mode))              \
    X(cudaStreamEndCapture, (void *stream, void *graph))                                           \
    X(cudaStreamEndCapture_ptsz, (void *stream, void *graph))                                      \
    X(cudaStreamDestroy, (void *stream))                                                           \
    X(cudaGetDriverEntryPoint,                                                                     \
      (const char *symbol, void **pointer, unsigned long long flags, void *result))                \
    X(cudaGetDriverEntryPoint_ptsz,                                                                \
      (const char *symbol, void **pointer, unsigned long long flags, void *result))                \
    X(cudaGetDriverEntryPointByVersion, (const char *symbol, void **pointer, unsigned version,     \
                                         unsigned long long flags, void *result))                  \
    X(cudaGetDriverEntryPointByVersion_ptsz,                                                       \
      (const char *symbol, void **pointer, unsigned version, unsigned long long flags,             \
       void *result))
#define RVLI_RUNTIME_MAP(X)                                                                        \
    RVLI_RUNTIME_FRONT_MAP(X)                                                                      \
    X(cudaGetDevice, (int *device))                                                                \
    X(cudaSetDevice, (int device))                                                                 \
    X(cudaGetLastError, (void))                                                                    \
    X(cudaHostGetFlags, (unsigned *flags, void *pointer))

typedef enum rvli_runtime_slot {
#define RVLI_RUNTIME_SLOT(name, parameters) RVLI_RUNTIME_##name,
    RVLI_RUNTIME_MAP(RVLI_RUNTIME_SLOT)
#undef RVLI_RUNTIME_SLOT
        RVLI_RUNTIME_COUNT
} rvli_runtime_slot;

#define RVLI_RUNTIME_TYPE(name, parameters) typedef int(*rvli_runtime_##name) parameters;
RVLI_RUNTIME_MAP(RVLI_RUNTIME_TYPE)
#undef RVLI_RUNTIME_TYPE

extern _Atomic(void *) rvli_runtime_found[RVLI_RUNTIME_COUNT];

/* Looks for a function on behalf of code at an address. NULL: there is none. */
void *rvli_runtime_search(rvli_runtime_slot slot, const void *caller);

/* Notes a function that the program has found itself, unless one is known. */
void rvli_runtime_note(rvli_runtime_slot slot, void *function);

/* The slot of a function's name, -1 if it has none. */
int rvli_runtime_slot_of(const char *name);

/* Whether an address lies in this library, or in libreveille. */
bool rvli_is_own(const void *address);

/* Where this library begins. */
const void *rvli_own_begin(void);

static inline void *rvli_runtime_get(rvli_runtime_slot slot, const void *caller)
{
    void *function = atomic_load_explicit(&rvli_runtime_found[slot], memory_order_acquire);
    return function != NULL ? function : rvli_runtime_search(slot, caller);
}

/* rvli_next_cudaFree(caller): the program's function, NULL if there is none. */
#define RVLI_RUNTIME_NEXT(name, parameters)                                                        \
    static inline rvli_runtime_##name rvli_next_##name(const void *caller)                         \
    {                                                                                              \
        void *function = rvli_runtime_get(RVLI_RUNTIME_##name, caller);                            \
        rvli_runtime_##name next;                                                                  \
        memcpy(&next, &function, sizeof next);                                                     \
        return next;                                                                               \
    }
RVLI_RUNTIME_MAP(RVLI_RUNTIME_NEXT)
#undef RVLI_RUNTIME_NEXT

/* On behalf of the caller of this function: RVLI_RUNTIME(cudaFree)(pointer). */
#define RVLI_RUNTIME(name) rvli_next_##name(__builtin_return_address(0))

#endif
