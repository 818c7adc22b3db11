/* SPDX-License-Identifier: MIT */
/*
 * A CUDA runtime that is none, on top of the fake driver: what tests of the hooks call.
 *
 * Like the real one it finds the driver when it is first needed, by dlopen(), dlsym() and
 * cuGetProcAddress(). Device memory is memory of the process. Allocations are blocks of their own.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

#include "cudart_fake.h"

#define GRANULE (UINT64_C(2) << 20)

#define ENTRY_MAP(X)                                                                               \
    X(cuInit, 2000)                                                                                \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuCtxSetCurrent, 4000)                                                                       \
    X(cuMemGetInfo, 3020)                                                                          \
    X(cuMemCreate, 10020)                                                                          \
    X(cuMemRelease, 10020)                                                                         \
    X(cuMemAddressReserve, 10020)                                                                  \
    X(cuMemAddressFree, 10020)                                                                     \
    X(cuMemMap, 10020)                                                                             \
    X(cuMemUnmap, 10020)                                                                           \
    X(cuMemSetAccess, 10020)                                                                       \
    X(cuMemsetD8Async, 3020)                                                                       \
    X(cuMemcpyDtoHAsync, 3020)                                                                     \
    X(cuStreamSynchronize, 2000)                                                                   \
    X(cuMemHostRegister, 6050)                                                                     \
    X(cuMemHostUnregister, 4000)                                                                   \
    X(cuStreamCreate, 2000)                                                                        \
    X(cuStreamDestroy, 4000)

typedef struct allocation {
    struct allocation *next;
    CUdeviceptr addr;
    size_t size;
    CUmemGenericAllocationHandle handle;
} allocation;

static struct {
#define POINTER(name, version) __typeof__(&name) name;
    ENTRY_MAP(POINTER)
#undef POINTER
    bool (*set_capturing)(CUstream stream, bool capturing);
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool ready;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static allocation *allocations;
static _Thread_local int current;
static _Thread_local int last_error;
static _Thread_local bool current_set;

static void load(void)
{
    const char *path = getenv("RVL_CUDA_LIBRARY");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (symbol == NULL)
        return;
    memcpy(&driver.get, &symbol, sizeof driver.get);
    symbol = dlsym(library, "fake_stream_set_capturing");
    memcpy(&driver.set_capturing, &symbol, sizeof symbol);
    ready = true;
#define LOAD(name, version)                                                                        \
    ready = ready && driver.get(#name, &symbol, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL) ==     \
                         CUDA_SUCCESS;                                                             \
    memcpy(&driver.name, &symbol, sizeof symbol);
    ENTRY_MAP(LOAD)
#undef LOAD
    ready = ready && driver.cuInit(0) == CUDA_SUCCESS;
}

/* The thread's device has its primary context current. */
static int enter(void)
{
    CUcontext context;
    pthread_once(&once, load);
    if (!ready)
        return 35;
    if (current_set)
        return 0;
    if (driver.cuDevicePrimaryCtxRetain(&context, current) != 0)
        return 100;
    current_set = true;
    return (int)driver.cuCtxSetCurrent(context);
}

static int remember(int error)
{
    if (error != 0)
        last_error = error;
    return error;
}

/* ---- Memory ---- */

static int give_memory(allocation *new, size_t size)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = current},
    };
    CUmemAccessDesc access = {.location = properties.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    new->size = (size + GRANULE - 1) / GRANULE *GRANULE;
    CUresult result = driver.cuMemCreate(&new->handle, new->size, &properties, 0);
    if (result != CUDA_SUCCESS)
        return (int)result;
    result = driver.cuMemAddressReserve(&new->addr, new->size, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemMap(new->addr, new->size, 0, new->handle, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuMemSetAccess(new->addr, new->size, &access, 1);
    return (int)result;
}

int cudaMalloc(void **pointer, size_t size)
{
    int error = enter();
    if (error != 0)
        return remember(error);
    if (pointer == NULL)
        return remember(1);
    *pointer = NULL;
    if (size == 0)
        return 0;
    allocation *new = calloc(1, sizeof *new);
    error = give_memory(new, size);
    if (error != 0) {
        free(new);
        return remember(error);
    }
    pthread_mutex_lock(&lock);
    new->next = allocations;
    allocations = new;
    pthread_mutex_unlock(&lock);
    *pointer = (void *)(uintptr_t) new->addr;
    return 0;
}

int cudaFree(void *pointer)
{
    int error = enter();
    if (pointer == NULL || error != 0)
        return remember(error);
    pthread_mutex_lock(&lock);
    allocation **at = &allocations;
    while (*at != NULL && (*at)->addr != (uintptr_t)pointer)
        at = &(*at)->next;
    allocation *gone = *at;
    if (gone != NULL)
        *at = gone->next;
    pthread_mutex_unlock(&lock);
    if (gone == NULL)
        return remember(1);
    driver.cuMemUnmap(gone->addr, gone->size);
    driver.cuMemRelease(gone->handle);
    driver.cuMemAddressFree(gone->addr, gone->size);
    free(gone);
    return 0;
}

int cudaMallocAsync(void **pointer, size_t size, void *stream)
{
    (void)stream;
    return cudaMalloc(pointer, size);
}

int cudaMallocFromPoolAsync(void **pointer, size_t size, void *pool, void *stream)
{
    (void)pool;
    return cudaMallocAsync(pointer, size, stream);
}

int cudaMallocManaged(void **pointer, size_t size, unsigned flags)
{
    (void)flags;
    return cudaMalloc(pointer, size);
}

int cudaFreeAsync(void *pointer, void *stream)
{
    (void)stream;
    return cudaFree(pointer);
}

static int wait_for(CUresult result)
{
    if (result == CUDA_SUCCESS)
        result = driver.cuStreamSynchronize(NULL);
    return remember((int)result);
}

int cudaMemset(void *pointer, int value, size_t size)
{
    int error = enter();
    if (error != 0)
        return remember(error);
    return wait_for(driver.cuMemsetD8Async((uintptr_t)pointer, (unsigned char)value, size, NULL));
}

/* To the host alone. */
int cudaMemcpy(void *to, const void *from, size_t size, int kind)
{
    int error = kind == 2 ? enter() : 21;
    if (error != 0)
        return remember(error);
    return wait_for(driver.cuMemcpyDtoHAsync(to, (uintptr_t)from, size, NULL));
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    int error = enter();
    if (error == 0)
        error = (int)driver.cuMemGetInfo(free_bytes, total_bytes);
    return remember(error);
}

/* ---- Between processes ---- */

#define IPC_MAGIC "cudart-fake handle"

/* Of what cudaMalloc() gave alone. */
int cudaIpcGetMemHandle(ipc_handle *handle, void *pointer)
{
    pthread_mutex_lock(&lock);
    const allocation *each = allocations;
    while (each != NULL && each->addr != (uintptr_t)pointer)
        each = each->next;
    pthread_mutex_unlock(&lock);
    if (each == NULL || handle == NULL)
        return remember(1);
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, IPC_MAGIC, sizeof IPC_MAGIC);
    return 0;
}

int cudaIpcOpenMemHandle(void **pointer, ipc_handle handle, unsigned flags)
{
    (void)flags;
    if (pointer == NULL || memcmp(handle.bytes, IPC_MAGIC, sizeof IPC_MAGIC) != 0)
        return remember(400);
    *pointer = (void *)(uintptr_t)GRANULE; /* which nobody can have */
    return 0;
}

int cudaIpcCloseMemHandle(void *pointer)
{
    return remember(pointer == (void *)(uintptr_t)GRANULE ? 0 : 1);
}

/* ---- Devices and errors ---- */

int cudaGetDevice(int *device)
{
    *device = current;
    return 0;
}

int cudaSetDevice(int device)
{
    if (device < 0 || device > 1)
        return remember(101);
    current_set = current_set && current == device;
    current = device;
    return remember(enter());
}

int cudaGetLastError(void)
{
    int error = last_error;
    last_error = 0;
    return error;
}

/* The driver refuses to register what is registered already. */
int cudaHostGetFlags(unsigned *flags, void *pointer)
{
    int error = enter();
    if (error != 0)
        return remember(error);
    void *page = (void *)((uintptr_t)pointer & ~(uintptr_t)4095);
    CUresult result = driver.cuMemHostRegister(page, 4096, 0);
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
        *flags = 1;
        return 0;
    }
    if (result == CUDA_SUCCESS)
        driver.cuMemHostUnregister(page);
    return remember(1);
}

/* ---- Streams ---- */

int cudaStreamCreate(void **stream)
{
    int error = enter();
    if (error == 0)
        error = (int)driver.cuStreamCreate((CUstream *)stream, 1);
    return remember(error);
}

int cudaStreamDestroy(void *stream)
{
    return remember((int)driver.cuStreamDestroy(stream));
}

/* The capture that was begun last, and the thread that must end it; 0: any may. */
static void *_Atomic captured;
static _Atomic pid_t capturing;

int cudaStreamBeginCapture(void *stream, int mode)
{
    if (!driver.set_capturing(stream, true))
        return remember(400);
    captured = stream;
    capturing = mode != 2 ? gettid() : 0;
    return remember(0);
}

int cudaStreamEndCapture(void *stream, void *graph)
{
    (void)graph;
    bool wrong_thread = stream == captured && capturing != 0 && capturing != gettid();
    int error = driver.set_capturing(stream, false) ? 0 : 400; /* also by the wrong thread */
    return remember(wrong_thread ? 908 : error);
}

int cudaStreamBeginCaptureToGraph(void *stream, void *graph, const void *dependencies,
                                  const void *data, size_t count, int mode)
{
    (void)graph;
    (void)dependencies;
    (void)data;
    (void)count;
    return cudaStreamBeginCapture(stream, mode);
}

/* ---- The driver ---- */

int cudaGetDriverEntryPointByVersion(const char *symbol, void **pointer, unsigned version,
                                     unsigned long long flags, void *result)
{
    (void)result;
    int error = enter();
    if (error != 0)
        return remember(error);
    return remember((int)driver.get(symbol, pointer, (int)version, flags, NULL));
}

#ifdef CUDART_FAKE_12 /* CUDA 13 has it no more */
int cudaGetDriverEntryPoint(const char *symbol, void **pointer, unsigned long long flags,
                            void *result)
{
    return cudaGetDriverEntryPointByVersion(symbol, pointer, 12000, flags, result);
}
#endif

int cudaRuntimeGetVersion(int *version)
{
#ifdef CUDART_FAKE_12
    *version = 12000;
#else
    *version = 13000;
#endif
    return 0;
}

/* ---- With a default stream a thread ---- */

int cudaMallocAsync_ptsz(void **pointer, size_t size, void *stream)
{
    return cudaMallocAsync(pointer, size, stream);
}

int cudaMallocFromPoolAsync_ptsz(void **pointer, size_t size, void *pool, void *stream)
{
    return cudaMallocFromPoolAsync(pointer, size, pool, stream);
}

int cudaFreeAsync_ptsz(void *pointer, void *stream)
{
    return cudaFreeAsync(pointer, stream);
}

int cudaStreamBeginCapture_ptsz(void *stream, int mode)
{
    return cudaStreamBeginCapture(stream, mode);
}

int cudaStreamBeginCaptureToGraph_ptsz(void *stream, void *graph, const void *dependencies,
                                       const void *data, size_t count, int mode)
{
    return cudaStreamBeginCaptureToGraph(stream, graph, dependencies, data, count, mode);
}

int cudaStreamEndCapture_ptsz(void *stream, void *graph)
{
    return cudaStreamEndCapture(stream, graph);
}
