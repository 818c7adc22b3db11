/* SPDX-License-Identifier: MIT */
/* Devices, the current device, and errors. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "simcuda/runtime/runtime.h"

#define DEVICES_MAX 64

static __thread cudaError_t last;
static __thread int current;
static __thread int entered = -1; /* the device of this thread's context, if set by the runtime */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static CUcontext contexts[DEVICES_MAX];
static atomic_uint generation; /* number of forks and resets: contexts are entered again */
static __thread unsigned entered_in;

static void in_child(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset(contexts, 0, sizeof contexts);
    atomic_fetch_add(&generation, 1);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* ---- Errors ---- */

cudaError_t rvli_done(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last = error;
    return error;
}

cudaError_t rvli_error_of(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_INVALID_CONTEXT:
        return cudaErrorDeviceUninitialized;
    case CUDA_ERROR_INVALID_HANDLE:
        return cudaErrorInvalidResourceHandle;
    default:
        return (cudaError_t)result;
    }
}

cudaError_t rvli_driven(CUresult result)
{
    return rvli_done(rvli_error_of(result));
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch ((int)error) {
#define RVLI_RESULT(name)                                                                          \
    case name:                                                                                     \
        return #name;
#include "cudart_results.inc"
#undef RVLI_RESULT
    default:
        return "unrecognized error code";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    return cuGetErrorString((CUresult)error, &text) == CUDA_SUCCESS ? text
                                                                    : cudaGetErrorName(error);
}

/* ---- The current device ---- */

static CUresult retain(int device, CUcontext *context_out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (contexts[device] == NULL)
        result = cuDevicePrimaryCtxRetain(&contexts[device], device);
    *context_out = contexts[device];
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Whether the context is active. After a release or reset through the driver, it is made again. */
static bool is_there(int device)
{
    unsigned flags = 0;
    int active = 0;
    return cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

static void lose(int device)
{
    pthread_mutex_lock(&mutex);
    contexts[device] = NULL;
    pthread_mutex_unlock(&mutex);
}

/* A context that the program made current through the driver is used unchanged. */
CUresult rvli_runtime_ready(void)
{
    CUcontext there = NULL;
    CUresult result = CUDA_SUCCESS;
    unsigned now = atomic_load(&generation);
    if (entered == current && entered_in == now && is_there(current))
        return CUDA_SUCCESS;
    if (entered == current && entered_in == now)
        lose(current);
    result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuCtxGetCurrent(&there);
    if (result == CUDA_SUCCESS && there != NULL && entered < 0)
        return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = retain(current, &there);
    if (result == CUDA_SUCCESS)
        result = cuCtxSetCurrent(there);
    if (result == CUDA_SUCCESS) {
        entered = current;
        entered_in = now;
    }
    return result;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetCount(count);
    else if (count != NULL)
        *count = 0;
    return rvli_driven(result);
}

cudaError_t cudaGetDevice(int *device)
{
    if (device == NULL)
        return rvli_done(cudaErrorInvalidValue);
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return error;
    if (device < 0 || device >= count)
        return rvli_done(cudaErrorInvalidDevice);
    current = device;
    return rvli_driven(rvli_runtime_ready());
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    CUcontext context;
    (void)device_flags;
    (void)flags;
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return error;
    if (device < 0 || device >= count)
        return rvli_done(cudaErrorInvalidDevice);
    return rvli_driven(retain(device, &context));
}

/* The next call that needs the device makes its context again, in any thread. */
cudaError_t cudaDeviceReset(void)
{
    CUresult result = cuInit(0);
    pthread_mutex_lock(&mutex);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxReset(current);
    if (result == CUDA_SUCCESS && contexts[current] != NULL)
        result = cuDevicePrimaryCtxRelease(current);
    if (result == CUDA_SUCCESS) {
        contexts[current] = NULL;
        atomic_fetch_add(&generation, 1);
    }
    pthread_mutex_unlock(&mutex);
    return rvli_driven(result);
}

RVLI_PASSED(cudaDeviceSynchronize, cuCtxSynchronize, (void), ())
RVLI_PASSED(cudaDeviceGetStreamPriorityRange, cuCtxGetStreamPriorityRange,
            (int *least, int *greatest), (least, greatest))

/* ---- Flags of a device ---- */

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    unsigned how = flags & cudaDeviceScheduleMask;
    CUresult result = (flags & ~(unsigned)cudaDeviceMask) != 0 || (how & (how - 1)) != 0
                          ? CUDA_ERROR_INVALID_VALUE
                          : cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDevicePrimaryCtxSetFlags(current, flags & ~(unsigned)cudaDeviceMapHost);
    return rvli_driven(result == CUDA_SUCCESS ? rvli_runtime_ready() : result);
}

/* The runtime's contexts always map host memory. */
cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
    CUresult result = flags == NULL ? CUDA_ERROR_INVALID_VALUE : rvli_runtime_ready();
    if (result == CUDA_SUCCESS)
        result = cuCtxGetFlags(flags);
    if (result == CUDA_SUCCESS && entered >= 0)
        *flags |= cudaDeviceMapHost;
    return rvli_driven(result);
}

/* A preference without effect, since nothing computes. */
static enum cudaFuncCache preferred;

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
    if ((unsigned)config > cudaFuncCachePreferEqual)
        return rvli_done(cudaErrorInvalidValue);
    preferred = config;
    return rvli_driven(rvli_runtime_ready());
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
    if (config == NULL)
        return rvli_done(cudaErrorInvalidValue);
    *config = preferred;
    return rvli_driven(rvli_runtime_ready());
}

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config)
{
    if (function == NULL)
        return rvli_done(cudaErrorInvalidDeviceFunction);
    return rvli_done((unsigned)config > cudaFuncCachePreferEqual ? cudaErrorInvalidValue
                                                                 : cudaSuccess);
}

/* ---- Properties of a device ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    return rvli_driven(cuDriverGetVersion(version));
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (version == NULL)
        return rvli_done(cudaErrorInvalidValue);
    *version = RVLI_RUNTIME_VERSION;
    return cudaSuccess;
}

/* Attributes have the driver's numbers. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device);
    return rvli_driven(result);
}

static int fact(CUdevice_attribute attribute, int device)
{
    int value = 0;
    (void)cuDeviceGetAttribute(&value, attribute, device);
    return value;
}

static void fill_limits(struct cudaDeviceProp *facts, int device)
{
#define FACT(field, name) facts->field = fact(CU_DEVICE_ATTRIBUTE_##name, device)
#define FACT_SIZE(field, name) facts->field = (size_t)fact(CU_DEVICE_ATTRIBUTE_##name, device)
    FACT_SIZE(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
    FACT_SIZE(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    FACT_SIZE(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    FACT_SIZE(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK);
    FACT_SIZE(memPitch, MAX_PITCH);
    FACT_SIZE(totalConstMem, TOTAL_CONSTANT_MEMORY);
    FACT_SIZE(textureAlignment, TEXTURE_ALIGNMENT);
    FACT_SIZE(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
    FACT_SIZE(surfaceAlignment, SURFACE_ALIGNMENT);
    FACT(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
    FACT(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
    FACT(warpSize, WARP_SIZE);
    FACT(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
    FACT(maxThreadsDim[0], MAX_BLOCK_DIM_X);
    FACT(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
    FACT(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
    FACT(maxGridSize[0], MAX_GRID_DIM_X);
    FACT(maxGridSize[1], MAX_GRID_DIM_Y);
    FACT(maxGridSize[2], MAX_GRID_DIM_Z);
    FACT(major, COMPUTE_CAPABILITY_MAJOR);
    FACT(minor, COMPUTE_CAPABILITY_MINOR);
    FACT(multiProcessorCount, MULTIPROCESSOR_COUNT);
    FACT(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
    FACT(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
    FACT(l2CacheSize, L2_CACHE_SIZE);
    FACT(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
    FACT(pciBusID, PCI_BUS_ID);
    FACT(asyncEngineCount, ASYNC_ENGINE_COUNT);
}

static void fill_abilities(struct cudaDeviceProp *facts, int device)
{
    FACT(unifiedAddressing, UNIFIED_ADDRESSING);
    FACT(managedMemory, MANAGED_MEMORY);
    FACT(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
    FACT(concurrentKernels, CONCURRENT_KERNELS);
    FACT(canMapHostMemory, CAN_MAP_HOST_MEMORY);
    FACT(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
    FACT(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED);
    FACT(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED);
    FACT(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED);
    FACT(cooperativeLaunch, COOPERATIVE_LAUNCH);
    FACT(hostRegisterSupported, HOST_REGISTER_SUPPORTED);
    FACT(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
    FACT(ECCEnabled, ECC_ENABLED);
#undef FACT
#undef FACT_SIZE
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *facts, int device)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
        return error;
    if (facts == NULL || device < 0 || device >= count)
        return rvli_done(facts == NULL ? cudaErrorInvalidValue : cudaErrorInvalidDevice);
    memset(facts, 0, sizeof *facts);
    (void)cuDeviceGetName(facts->name, sizeof facts->name, device);
    (void)cuDeviceGetUuid((CUuuid *)&facts->uuid, device);
    (void)cuDeviceTotalMem(&facts->totalGlobalMem, device);
    fill_limits(facts, device);
    fill_abilities(facts, device);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    CUresult result = cuInit(0);
    return rvli_driven(result == CUDA_SUCCESS ? cuDeviceCanAccessPeer(can, device, peer) : result);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device)
{
    CUresult result = cuInit(0);
    return rvli_driven(result == CUDA_SUCCESS ? cuDeviceGetPCIBusId(text, length, device) : result);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    CUcontext context = NULL;
    CUresult result = rvli_runtime_ready();
    int count = 0;
    if (result == CUDA_SUCCESS)
        result = cuDeviceGetCount(&count);
    if (result == CUDA_SUCCESS && (peer < 0 || peer >= count))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        result = retain(peer, &context);
    if (result == CUDA_SUCCESS)
        result = cuCtxEnablePeerAccess(context, flags);
    return rvli_driven(result);
}
