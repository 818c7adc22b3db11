/* SPDX-License-Identifier: MIT */
#include "hooks/preload/driver_calls.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include <cuda.h>

#include "hooks/ipc/foreign.h"
#include "hooks/ipc/ipc.h"
#include "hooks/preload/growth.h"
#include "hooks/preload/observe.h"
#include "hooks/preload/runtime_calls.h"
#include "hooks/process/captures.h"
#include "hooks/record/recorder.h"
#include "hooks/region/region.h"
#include "hooks/region/saver.h"
#include "hooks/shim/name_table.h"

/* Undo cuda.h's macros for versioned names: below, versions are explicit. */
#undef cuMemAlloc
#undef cuMemAllocPitch
#undef cuMemFree
#undef cuDevicePrimaryCtxRelease
#undef cuDevicePrimaryCtxReset
#undef cuStreamBeginCapture
#undef cuStreamDestroy
#undef cuGetProcAddress
#undef cuIpcOpenMemHandle
#undef cuStreamBeginCaptureToGraph
#undef cuLaunchKernel
#undef cuLaunchKernelEx
#undef cuLaunchCooperativeKernel
#undef cuGraphInstantiateWithParams
#undef cuGraphUpload
#undef cuGraphLaunch

/* Declared here, because older headers lack the types. */
#define TO_GRAPH                                                                                   \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const void *data,            \
     size_t count, CUstreamCaptureMode mode)

/* Parameters and arguments that several entry points share. */
#define LAUNCH                                                                                     \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **values,          \
     void **packed)
#define LAUNCHED                                                                                   \
    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, values, packed)
#define LAUNCH_TOGETHER                                                                            \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **values)
#define LAUNCHED_TOGETHER                                                                          \
    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, values)
#define LAUNCH_BY (const CUlaunchConfig *config, CUfunction function, void **values, void **packed)
#define LOAD_LIBRARY                                                                               \
    (CUlibrary * out, const void *code, CUjit_option *jit_options, void **jit_values,              \
     unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
#define INSTANTIATE (CUgraphExec * out, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * how)
#define OF_GRAPH (CUgraphExec graph, CUstream stream)

/*
 * X(exported name, name for cuGetProcAddress, version, for per-thread default streams,
 * (parameters), action, (arguments), bytes, device). Entries of one name are adjacent.
 *
 * DRIVER_MAP has the calls that allocate, free or share memory, or affect these. They are always
 * intercepted.
 */
#define DRIVER_MAP(X)                                                                              \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, false, (CUdeviceptr * out, size_t size), ALLOC,           \
      (out, size), size, -1)                                                                       \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, false,                                          \
      (CUdeviceptr * out, size_t * pitch, size_t width, size_t height, unsigned element), ALLOC,   \
      (out, pitch, width, height, element), (result == CUDA_SUCCESS ? *pitch : width) * height,    \
      -1)                                                                                          \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, false,                                         \
      (CUdeviceptr * out, size_t size, unsigned flags), ALLOC, (out, size, flags), size, -1)       \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, false,                                            \
      (CUdeviceptr * out, size_t size, CUstream stream), ALLOC, (out, size, stream), size, -1)     \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, true,                                        \
      (CUdeviceptr * out, size_t size, CUstream stream), ALLOC, (out, size, stream), size, -1)     \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, false,                            \
      (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream), ALLOC,                 \
      (out, size, pool, stream), size, -1)                                                         \
    X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, true,                        \
      (CUdeviceptr * out, size_t size, CUmemoryPool pool, CUstream stream), ALLOC,                 \
      (out, size, pool, stream), size, -1)                                                         \
    X(cuMemCreate, "cuMemCreate", 10020, false,                                                    \
      (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *properties,     \
       unsigned long long flags),                                                                  \
      CREATE, (out, size, properties, flags), size, device_of(properties))                         \
    X(cuMemFree_v2, "cuMemFree", 3020, false, (CUdeviceptr id), FREE, (id), 0, 0)                  \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, false, (CUdeviceptr id, CUstream stream), FREE,     \
      (id, stream), 0, 0)                                                                          \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, true, (CUdeviceptr id, CUstream stream), FREE, \
      (id, stream), 0, 0)                                                                          \
    X(cuMemRelease, "cuMemRelease", 10020, false, (CUmemGenericAllocationHandle id), RELEASE,      \
      (id), 0, 0)                                                                                  \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, false,                    \
      (CUmemGenericAllocationHandle * out, void *addr), HOLD, (out, addr), 0, 0)                   \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, false,                           \
      (CUcontext * out, CUdevice number), RETAIN, (out, number), 0, 0)                             \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, false, (CUdevice number),  \
      LET_GO, (number), 0, 0)                                                                      \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, false, (CUdevice number),      \
      RESET, (number), 0, 0)                                                                       \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, false,                                         \
      (CUipcMemHandle * handle, CUdeviceptr addr), IPC_GET, (handle, addr), 0, 0)                  \
    X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, false,                                       \
      (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags), IPC_OPEN, (out, handle, flags),  \
      0, 0)                                                                                        \
    X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, false,                                   \
      (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags), IPC_OPEN, (out, handle, flags),  \
      0, 0)                                                                                        \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, false, (CUdeviceptr addr), IPC_CLOSE,      \
      (addr), 0, 0)                                                                                \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, false,              \
      (CUmemGenericAllocationHandle * out, void *file, CUmemAllocationHandleType type), IMPORT,    \
      (out, file, type), 0, 0)                                                                     \
    X(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle", 11020, false,      \
      (CUmemoryPool * out, void *file, CUmemAllocationHandleType type, unsigned long long flags),  \
      IMPORT_POOL, (out, file, type, flags), 0, 0)                                                 \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, false, (CUmemoryPool pool), POOL_GONE, (pool),  \
      0, 0)                                                                                        \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, false,                               \
      (CUstream stream, CUstreamCaptureMode mode), BEGIN, (stream, mode), 0, 0)                    \
    X(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, true,                           \
      (CUstream stream, CUstreamCaptureMode mode), BEGIN, (stream, mode), 0, 0)                    \
    X(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, false, TO_GRAPH, BEGIN,   \
      (stream, graph, dependencies, data, count, mode), 0, 0)                                      \
    X(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, true, TO_GRAPH,      \
      BEGIN, (stream, graph, dependencies, data, count, mode), 0, 0)                               \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, false, (CUstream stream, CUgraph * graph),  \
      END, (stream, graph), 0, 0)                                                                  \
    X(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, true,                                  \
      (CUstream stream, CUgraph * graph), END, (stream, graph), 0, 0)                              \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, false, (CUstream stream), END, (stream), 0, 0)  \
    X(cuGetProcAddress, "cuGetProcAddress", 11030, false,                                          \
      (const char *name, void **out, int version, cuuint64_t flags), LOOK_UP,                      \
      (name, out, version, flags), 0, 0)                                                           \
    X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false,                                       \
      (const char *name, void **out, int version, cuuint64_t flags,                                \
       CUdriverProcAddressQueryResult *answer),                                                    \
      LOOK_UP, (name, out, version, flags, answer), 0, 0)

/*
 * Calls in which the driver allocates memory for itself, intercepted only while recording. Instead
 * of bytes, they have the object of which only the first use counts, or NULL.
 */
#define GROWTH_MAP(X)                                                                              \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, false, (CUmodule * out, const void *image),      \
      KERNELS, (out, image), NULL, -1)                                                             \
    X(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, false,                                       \
      (CUmodule * out, const void *image, unsigned count, CUjit_option *options, void **values),   \
      KERNELS, (out, image, count, options, values), NULL, -1)                                     \
    X(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, false,                                 \
      (CUmodule * out, const void *image), KERNELS, (out, image), NULL, -1)                        \
    X(cuLibraryLoadData, "cuLibraryLoadData", 12000, false, LOAD_LIBRARY, KERNELS,                 \
      (out, code, jit_options, jit_values, jit_count, options, values, count), NULL, -1)           \
    X(cuLaunchKernel, "cuLaunchKernel", 4000, false, LAUNCH, KERNELS, LAUNCHED, function, -1)      \
    X(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, true, LAUNCH, KERNELS, LAUNCHED, function, -1)  \
    X(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, false, LAUNCH_BY, KERNELS,                      \
      (config, function, values, packed), function, -1)                                            \
    X(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, true, LAUNCH_BY, KERNELS,                  \
      (config, function, values, packed), function, -1)                                            \
    X(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, false, LAUNCH_TOGETHER,        \
      KERNELS, LAUNCHED_TOGETHER, function, -1)                                                    \
    X(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, true, LAUNCH_TOGETHER,    \
      KERNELS, LAUNCHED_TOGETHER, function, -1)                                                    \
    X(cuStreamCreate, "cuStreamCreate", 2000, false, (CUstream * out, unsigned flags), STREAMS,    \
      (out, flags), NULL, -1)                                                                      \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, false,                       \
      (CUstream * out, unsigned flags, int priority), STREAMS, (out, flags, priority), NULL, -1)   \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, false,                    \
      (CUgraphExec * out, CUgraph graph, unsigned long long flags), GRAPHS, (out, graph, flags),   \
      NULL, -1)                                                                                    \
    X(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, false, INSTANTIATE,     \
      GRAPHS, (out, graph, how), NULL, -1)                                                         \
    X(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, true, INSTANTIATE, \
      GRAPHS, (out, graph, how), NULL, -1)                                                         \
    X(cuGraphUpload, "cuGraphUpload", 11010, false, OF_GRAPH, GRAPHS, (graph, stream), graph, -1)  \
    X(cuGraphUpload_ptsz, "cuGraphUpload", 11010, true, OF_GRAPH, GRAPHS, (graph, stream), graph,  \
      -1)                                                                                          \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, false, OF_GRAPH, GRAPHS, (graph, stream), graph, -1)  \
    X(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, true, OF_GRAPH, GRAPHS, (graph, stream), graph,  \
      -1)

typedef enum driver_call {
#define CALL(symbol, ...) CALL_##symbol,
    DRIVER_MAP(CALL) GROWTH_MAP(CALL)
#undef CALL
        CALL_COUNT,
    CALL_OF_GROWTH = CALL_cuModuleLoadData /* the first of GROWTH_MAP */
} driver_call;

/* The driver's functions that the program last looked up. */
static _Atomic(void *) reals[CALL_COUNT];

static int device_of(const CUmemAllocationProp *properties)
{
    return properties != NULL && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE
               ? properties->location.id
               : -1;
}

/* ---- The actions around a call; `result` is what it returns ---- */

#define AROUND_ALLOC(symbol, kind, call, bytes, device)                                            \
    rvli_call_begin();                                                                             \
    CUresult result = call;                                                                        \
    rvli_call_end((int)result, #symbol, kind, result == CUDA_SUCCESS ? *out : 0, bytes, device,    \
                  __builtin_return_address(0))
#define AROUND_FREE(symbol, kind, call)                                                            \
    rvli_return_begin(#symbol, kind, id);                                                          \
    CUresult result = call;                                                                        \
    rvli_return_end()

#define DO_ALLOC(symbol, call, bytes, device)                                                      \
    AROUND_ALLOC(symbol, RVLI_SEEN_ALLOC, call, bytes, device)
#define DO_CREATE(symbol, call, bytes, device)                                                     \
    AROUND_ALLOC(symbol, RVLI_SEEN_CREATE, call, bytes, device)
#define DO_FREE(symbol, call, bytes, device) AROUND_FREE(symbol, RVLI_SEEN_FREE, call)
#define DO_RELEASE(symbol, call, bytes, device)                                                    \
    AROUND_FREE(symbol, RVLI_SEEN_RELEASE, call);                                                  \
    if (result == CUDA_SUCCESS)                                                                    \
    rvli_foreign_close(id)
#define DO_RETAIN(symbol, call, bytes, device)                                                     \
    uint64_t before_bytes = rvli_recorder_growth_begin(RVLI_GROWTH_CONTEXT, number);               \
    CUresult result = call;                                                                        \
    rvli_recorder_growth_end(RVLI_GROWTH_CONTEXT, number, before_bytes)
#define AROUND_GROWTH(growth, call, key)                                                           \
    uint64_t before_bytes = rvli_growth_begin(growth, key);                                        \
    CUresult result = call;                                                                        \
    rvli_growth_end(growth, before_bytes)
#define DO_KERNELS(symbol, call, key, device) AROUND_GROWTH(RVLI_GROWTH_KERNELS, call, key)
#define DO_STREAMS(symbol, call, key, device) AROUND_GROWTH(RVLI_GROWTH_STREAMS, call, key)
#define DO_GRAPHS(symbol, call, key, device) AROUND_GROWTH(RVLI_GROWTH_GRAPHS, call, key)
#define DO_HOLD(symbol, call, bytes, device)                                                       \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS && out != NULL)                                                     \
    rvli_recorder_retain(RVLI_RECORDED_HANDLE, *out)
#define DO_LET_GO(symbol, call, bytes, device)                                                     \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS && rvli_recorder_context_released(number))                          \
    rvli_growth_forget()
#define DO_RESET(symbol, call, bytes, device)                                                      \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS && rvli_recorder_context_reset(number))                             \
    rvli_growth_forget()
#define DO_BEGIN(symbol, call, bytes, device)                                                      \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS)                                                                    \
    rvli_capture_begin(rvli_capture_stream(stream, by_thread), (int)mode)
#define DO_END(symbol, call, bytes, device)                                                        \
    CUresult result = call;                                                                        \
    rvli_capture_end((int)result, rvli_capture_stream(stream, by_thread));                         \
    rvli_saver_free_deferred()
#define DO_IPC_GET(symbol, call, bytes, device)                                                    \
    int error;                                                                                     \
    CUresult result = rvli_ipc_get(addr, (rvli_ipc_handle *)handle, &error) ? (CUresult)error : call
#define DO_IPC_OPEN(symbol, call, bytes, device)                                                   \
    int error;                                                                                     \
    uint64_t addr = 0;                                                                             \
    bool ours = out != NULL && rvli_ipc_open((const rvli_ipc_handle *)&handle,                     \
                                             rvli_region_current_device, &addr, &error);           \
    CUresult result = ours ? (CUresult)error : call;                                               \
    if (ours && result == CUDA_SUCCESS)                                                            \
        *out = addr;                                                                               \
    else if (result == CUDA_SUCCESS && out != NULL)                                                \
    rvli_foreign_open(*out)
#define DO_IPC_CLOSE(symbol, call, bytes, device)                                                  \
    int error;                                                                                     \
    bool ours = rvli_ipc_close(addr, &error);                                                      \
    CUresult result = ours ? (CUresult)error : call;                                               \
    if (!ours && result == CUDA_SUCCESS)                                                           \
    rvli_foreign_close(addr)
#define DO_IMPORT(symbol, call, bytes, device)                                                     \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS && out != NULL)                                                     \
    rvli_foreign_open(*out)
#define DO_IMPORT_POOL(symbol, call, bytes, device)                                                \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS && out != NULL)                                                     \
    rvli_foreign_open((uintptr_t)*out)
#define DO_POOL_GONE(symbol, call, bytes, device)                                                  \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS)                                                                    \
    rvli_foreign_close((uintptr_t)pool)
#define DO_LOOK_UP(symbol, call, bytes, device)                                                    \
    CUresult result = call;                                                                        \
    if (result == CUDA_SUCCESS && out != NULL)                                                     \
    *out = rvli_driver_front_of(                                                                   \
        name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, *out)

#define FRONT(symbol, name, version, per_thread, parameters, what, arguments, bytes, device)       \
    static CUresult front_##symbol parameters                                                      \
    {                                                                                              \
        enum { by_thread = per_thread };                                                           \
        CUresult(*next) parameters;                                                                \
        void *real = atomic_load_explicit(&reals[CALL_##symbol], memory_order_acquire);            \
        memcpy(&next, &real, sizeof next);                                                         \
        DO_##what(symbol, next arguments, bytes, device);                                          \
        return result;                                                                             \
    }
DRIVER_MAP(FRONT)
GROWTH_MAP(FRONT)
#undef FRONT

/* ---- Look-ups ---- */

static const struct {
    const char *symbol;
    const char *name;
    int version;
    bool per_thread;
    void (*front)(void);
} fronts[] = {
#define ROW(symbol, name, version, per_thread, ...)                                                \
    {#symbol, name, version, per_thread, (void (*)(void))front_##symbol},
    DRIVER_MAP(ROW) GROWTH_MAP(ROW)
#undef ROW
};

static const char *symbol_at(int call)
{
    return call < CALL_COUNT ? fronts[call].symbol : NULL;
}

static const char *name_at(int call)
{
    return call < CALL_COUNT ? fronts[call].name : NULL;
}

/* The first call of a name; CALL_COUNT if there is none. */
static int first_of(const char *name)
{
    static rvli_name_table table = {.at = name_at};
    int call = name != NULL ? rvli_name_table_find(&table, name) : -1;
    return call >= 0 ? call : CALL_COUNT;
}

void *rvli_driver_front_at(int call, void *found)
{
    bool wanted = call < CALL_OF_GROWTH || rvli_recorder_on();
    if (found == NULL || !wanted || rvli_is_own(found))
        return found;
    atomic_store_explicit(&reals[call], found, memory_order_release);
    void *front;
    memcpy(&front, &fronts[call].front, sizeof front);
    return front;
}

int rvli_driver_call_of(const char *symbol)
{
    static rvli_name_table table = {.at = symbol_at};
    _Static_assert(CALL_COUNT <= RVLI_NAME_TABLE_MAX, "the table is too small");
    return rvli_name_table_find(&table, symbol);
}

/*
 * Chooses the newest entry of that name up to the version, and the requested stream flavour if
 * there are two.
 */
void *rvli_driver_front_of(const char *name, int version, bool per_thread, void *found)
{
    int best = -1;
    for (int call = first_of(name); call < CALL_COUNT && strcmp(fronts[call].name, name) == 0;
         call++) {
        if (fronts[call].version > version || (fronts[call].per_thread && !per_thread))
            continue;
        if (best < 0 || fronts[call].version > fronts[best].version ||
            (fronts[call].version == fronts[best].version && fronts[call].per_thread))
            best = call;
    }
    return best >= 0 ? rvli_driver_front_at(best, found) : found;
}

/* ---- Look-ups by the runtime ---- */

#define ABSENT RVLI_CUDA_INSUFFICIENT_DRIVER

static int pass_on(int error, const char *name, void **pointer, int version, bool per_thread)
{
    if (error == RVLI_CUDA_SUCCESS && pointer != NULL)
        *pointer = rvli_driver_front_of(name, version, per_thread, *pointer);
    return error;
}

#define PER_THREAD(flags) (((flags)&CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0)
/* Flags without a flavour mean the flavour of the calling code. */
#define PER_THREAD_HERE(flags) ((flags) == CU_GET_PROC_ADDRESS_DEFAULT || PER_THREAD(flags))

#define FRONT_ENTRY_POINT(function, flavour)                                                       \
    int function(const char *symbol, void **pointer, unsigned long long flags, void *result)       \
    {                                                                                              \
        rvli_runtime_##function next = RVLI_RUNTIME(function);                                     \
        return next != NULL ? pass_on(next(symbol, pointer, flags, result), symbol, pointer,       \
                                      INT_MAX, flavour(flags))                                     \
                            : ABSENT;                                                              \
    }
#define FRONT_ENTRY_POINT_BY_VERSION(function, flavour)                                            \
    int function(const char *symbol, void **pointer, unsigned version, unsigned long long flags,   \
                 void *result)                                                                     \
    {                                                                                              \
        rvli_runtime_##function next = RVLI_RUNTIME(function);                                     \
        return next != NULL ? pass_on(next(symbol, pointer, version, flags, result), symbol,       \
                                      pointer, (int)version, flavour(flags))                       \
                            : ABSENT;                                                              \
    }

FRONT_ENTRY_POINT(cudaGetDriverEntryPoint, PER_THREAD)
FRONT_ENTRY_POINT(cudaGetDriverEntryPoint_ptsz, PER_THREAD_HERE)
FRONT_ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion, PER_THREAD)
FRONT_ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion_ptsz, PER_THREAD_HERE)
