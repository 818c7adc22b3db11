/* SPDX-License-Identifier: MIT */
/*
 * The memory calls of the CUDA runtime. Reveille serves cudaMalloc() inside a region, and
 * cudaFree() of memory from a region. Other calls are forwarded and reported to the observer.
 */
#include "hooks/preload/observe.h"
#include "hooks/preload/runtime_calls.h"
#include "hooks/process/settings.h"
#include "hooks/region/region.h"
#include "hooks/region/saver.h"

#define ABSENT RVLI_CUDA_INSUFFICIENT_DRIVER /* no CUDA runtime */

static uint64_t pointee(void *const *pointer)
{
    return (uintptr_t)*pointer;
}

static int alloc_outside(rvli_runtime_cudaMalloc next, void **pointer, size_t size,
                         const void *caller)
{
    if (next == NULL)
        return ABSENT;
    rvli_call_begin();
    int error = next(pointer, size);
    rvli_call_end(error, "cudaMalloc", RVLI_SEEN_ALLOC, error == 0 ? pointee(pointer) : 0, size, -1,
                  caller);
    return error;
}

int cudaMalloc(void **pointer, size_t size)
{
    if (rvli_thread_settings_get()->region != RVLI_REGION_INSIDE || pointer == NULL || size == 0)
        return alloc_outside(RVLI_RUNTIME(cudaMalloc), pointer, size, __builtin_return_address(0));
    int device = 0;
    rvli_runtime_cudaGetDevice get_device = RVLI_RUNTIME(cudaGetDevice);
    int error = get_device != NULL ? get_device(&device) : ABSENT;
    if (error != RVLI_CUDA_SUCCESS)
        return error;
    return rvli_region_alloc(device, size, pointer);
}

int cudaFree(void *pointer)
{
    int error;
    if (pointer != NULL && rvli_region_free(pointer, &error))
        return error;
    rvli_runtime_cudaFree next = RVLI_RUNTIME(cudaFree);
    if (next == NULL)
        return ABSENT;
    rvli_return_begin("cudaFree", RVLI_SEEN_FREE, (uintptr_t)pointer);
    error = next(pointer);
    rvli_return_end();
    return error;
}

/*
 * FRONT_ALLOC(function, (parameters), (arguments)): parameters begin with `void **pointer` and
 * `size`.
 */
#define FRONT_ALLOC(name, parameters, arguments)                                                   \
    int name parameters                                                                            \
    {                                                                                              \
        rvli_runtime_##name next = RVLI_RUNTIME(name);                                             \
        if (next == NULL)                                                                          \
            return ABSENT;                                                                         \
        rvli_call_begin();                                                                         \
        int error = next arguments;                                                                \
        rvli_call_end(error, #name, RVLI_SEEN_ALLOC, error == 0 ? pointee(pointer) : 0, size, -1,  \
                      __builtin_return_address(0));                                                \
        return error;                                                                              \
    }

#define FRONT_FREE(name, parameters, arguments)                                                    \
    int name parameters                                                                            \
    {                                                                                              \
        rvli_runtime_##name next = RVLI_RUNTIME(name);                                             \
        if (next == NULL)                                                                          \
            return ABSENT;                                                                         \
        rvli_return_begin(#name, RVLI_SEEN_FREE, (uintptr_t)pointer);                              \
        int error = next arguments;                                                                \
        rvli_return_end();                                                                         \
        return error;                                                                              \
    }

FRONT_ALLOC(cudaMallocManaged, (void **pointer, size_t size, unsigned flags),
            (pointer, size, flags))
FRONT_ALLOC(cudaMallocAsync, (void **pointer, size_t size, void *stream), (pointer, size, stream))
FRONT_ALLOC(cudaMallocAsync_ptsz, (void **pointer, size_t size, void *stream),
            (pointer, size, stream))
FRONT_ALLOC(cudaMallocFromPoolAsync, (void **pointer, size_t size, void *pool, void *stream),
            (pointer, size, pool, stream))
FRONT_ALLOC(cudaMallocFromPoolAsync_ptsz, (void **pointer, size_t size, void *pool, void *stream),
            (pointer, size, pool, stream))
FRONT_FREE(cudaFreeAsync, (void *pointer, void *stream), (pointer, stream))
FRONT_FREE(cudaFreeAsync_ptsz, (void *pointer, void *stream), (pointer, stream))

void *rvli_runtime_front(rvli_runtime_slot slot)
{
    typedef void (*function)(void);
    static const function fronts[RVLI_RUNTIME_COUNT] = {
#define FRONT(name, parameters) [RVLI_RUNTIME_##name] = (function)name,
        RVLI_RUNTIME_FRONT_MAP(FRONT)
#undef FRONT
    };
    void *front;
    memcpy(&front, &fronts[slot], sizeof front);
    return front;
}
