/* SPDX-License-Identifier: MIT */
/*
 * Kernels: a compiler's start-up code registers them, and programs launch them. A launch is
 * checked against the device's limits, and accepted.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/registered.h"
#include "simcuda/runtime/runtime.h"

#undef cudaGetDriverEntryPoint

typedef struct configuration {
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    cudaStream_t stream;
} configuration;

#define DEPTH_MAX 8
static __thread configuration pushed[DEPTH_MAX];
static __thread unsigned depth;

/* The public headers declare these only in C++. */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, void *thread_id, void *block_id, void *block_dim,
                            void *grid_dim, int *size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t size_bytes, int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream);
char __cudaInitModule(void **handle);
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStop(void);

/* ---- Registration ---- */

void **__cudaRegisterFatBinary(void *binary)
{
    return rvli_registered_begin(binary);
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    rvli_registered_end(handle);
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, void *thread_id, void *block_id, void *block_dim,
                            void *grid_dim, int *size)
{
    (void)device, (void)threads, (void)thread_id, (void)block_id, (void)block_dim;
    (void)grid_dim, (void)size;
    rvli_registered_kernel(handle, host, name);
}

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external,
                       size_t size_bytes, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name;
    (void)external, (void)size_bytes, (void)constant, (void)global;
}

/* Returns 1: the module is ready. */
char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

/* ---- Launches ---- */

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream)
{
    if (depth == DEPTH_MAX)
        return 1;
    pushed[depth++] = (configuration){grid, block, shared_bytes, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    if (depth == 0)
        return rvli_done(cudaErrorMissingConfiguration);
    const configuration *top = &pushed[--depth];
    *grid = top->grid;
    *block = top->block;
    *shared_bytes = top->shared_bytes;
    memcpy(stream, &top->stream, sizeof top->stream);
    return cudaSuccess;
}

typedef CUresult (*launcher)(CUfunction function, const CUlaunchConfig *shape);

static CUresult by_driver(CUfunction function, const CUlaunchConfig *shape)
{
    return cuLaunchKernelEx(shape, function, NULL, NULL);
}

static CUresult together_by_driver(CUfunction function, const CUlaunchConfig *shape)
{
    return cuLaunchCooperativeKernel(function, shape->gridDimX, shape->gridDimY, shape->gridDimZ,
                                     shape->blockDimX, shape->blockDimY, shape->blockDimZ,
                                     shape->sharedMemBytes, shape->hStream, NULL);
}

static cudaError_t launch(const void *function, dim3 grid, dim3 block, size_t shared_bytes,
                          cudaStream_t stream, launcher call)
{
    CUresult result = rvli_runtime_ready();
    if (result != CUDA_SUCCESS)
        return rvli_driven(result);
    if (function == NULL)
        return rvli_done(cudaErrorInvalidDeviceFunction);
    const CUlaunchConfig shape = {.gridDimX = grid.x,
                                  .gridDimY = grid.y,
                                  .gridDimZ = grid.z,
                                  .blockDimX = block.x,
                                  .blockDimY = block.y,
                                  .blockDimZ = block.z,
                                  .sharedMemBytes = (unsigned)shared_bytes,
                                  .hStream = stream};
    result = call((CUfunction)(uintptr_t)function, &shape);
    return rvli_done(result == CUDA_ERROR_INVALID_VALUE ? cudaErrorInvalidConfiguration
                                                        : rvli_error_of(result));
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream)
{
    (void)arguments;
    return launch(function, grid, block, shared_bytes, stream, by_driver);
}

cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared_bytes, cudaStream_t stream)
{
    (void)arguments;
    return launch(function, grid, block, shared_bytes, stream, together_by_driver);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function,
                                void **arguments)
{
    (void)arguments;
    if (config == NULL)
        return rvli_done(cudaErrorInvalidValue);
    return launch(function, config->gridDim, config->blockDim, config->dynamicSmemBytes,
                  config->stream, by_driver);
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    if (kernel == NULL || function == NULL)
        return rvli_done(cudaErrorInvalidValue);
    *kernel = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream)
{
    (void)arguments;
    return launch(kernel, grid, block, shared_bytes, stream, by_driver);
}

/* No profiler is attached, so these do nothing. */
cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}

/* ---- Attributes of a kernel ---- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *facts, const void *function)
{
    int major = 0, minor = 0, device = 0;
    if (facts == NULL || function == NULL)
        return rvli_done(cudaErrorInvalidDeviceFunction);
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    memset(facts, 0, sizeof *facts);
    facts->maxThreadsPerBlock = 1024;
    facts->numRegs = 32;
    facts->binaryVersion = facts->ptxVersion = major * 10 + minor;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    (void)attribute;
    (void)value;
    return rvli_done(function == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                   const void *function,
                                                                   int threads, size_t shared_bytes,
                                                                   unsigned int flags)
{
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS && function == NULL)
        return rvli_done(cudaErrorInvalidDeviceFunction);
    return rvli_driven(
        result != CUDA_SUCCESS
            ? result
            : cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                  blocks, (CUfunction)(uintptr_t)function, threads, shared_bytes, flags));
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
                                                          int threads, size_t shared_bytes)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                  shared_bytes, 0);
}

/* ---- The driver's functions ---- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function,
                                             unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (name == NULL || function == NULL)
        return rvli_done(cudaErrorInvalidValue);
    CUresult result = cuGetProcAddress(name, function, (int)version, flags, &found);
    if (status != NULL)
        *status = (enum cudaDriverEntryPointQueryResult)found;
    return rvli_driven(result);
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status);
cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status)
{
    return cudaGetDriverEntryPointByVersion(name, function, RVLI_RUNTIME_VERSION, flags, status);
}
