/* SPDX-License-Identifier: MIT */
/*
 * The CUDA runtime of the program, whichever version it is.
 *
 * No libcudart is linked. A function is looked up in this order: the next one in the global scope,
 * which the program would call without us; if the program loaded its runtime privately (dlopen()
 * without RTLD_GLOBAL), the one that the caller's library depends on; or one that is loaded
 * already. The library of the function then stays loaded.
 */
#ifndef RVL_HOOKS_SHIM_RUNTIME_H
#define RVL_HOOKS_SHIM_RUNTIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "hooks/process/cuda_values.h"

/*
 * X(function, (parameters)): all return cudaError_t, and structures of CUDA are passed as pointers.
 * RVLI_RUNTIME_FRONT_MAP has those that the preload library intercepts.
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

/* Looks up a function for the caller at this address. Returns NULL if there is none. */
void *rvli_runtime_search(rvli_runtime_slot slot, const void *caller);

/* Stores a function that the program looked up itself, unless one is stored. */
void rvli_runtime_note(rvli_runtime_slot slot, void *function);

/* The slot of a function's name; -1 if there is none. */
int rvli_runtime_slot_of(const char *name);

/* Whether an address is in this library, or in libreveille. */
bool rvli_is_own(const void *address);

/* The first address of this library. */
const void *rvli_own_begin(void);

static inline void *rvli_runtime_get(rvli_runtime_slot slot, const void *caller)
{
    void *function = atomic_load_explicit(&rvli_runtime_found[slot], memory_order_acquire);
    return function != NULL ? function : rvli_runtime_search(slot, caller);
}

/* rvli_next_cudaFree(caller): the program's function; NULL if there is none. */
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

/* For the caller of the enclosing function: RVLI_RUNTIME(cudaFree)(pointer). */
#define RVLI_RUNTIME(name) rvli_next_##name(__builtin_return_address(0))

#endif
