/* SPDX-License-Identifier: MIT */
/* Memory pools, and memory that graphs allocate. */
#include "simcuda/runtime/runtime.h"

/* A size of 0 succeeds, and stores NULL. */
cudaError_t cudaMallocAsync(void **addr, size_t bytes, cudaStream_t stream)
{
    CUdeviceptr got = 0;
    if (addr == NULL)
        return rvli_done(cudaErrorInvalidValue);
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS && bytes > 0)
        result = cuMemAllocAsync(&got, bytes, stream);
    if (result == CUDA_SUCCESS)
        *addr = (void *)got;
    return rvli_driven(result);
}

cudaError_t cudaMallocFromPoolAsync(void **addr, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream)
{
    CUdeviceptr got = 0;
    if (addr == NULL)
        return rvli_done(cudaErrorInvalidValue);
    CUresult result = rvli_runtime_ready();
    if (result == CUDA_SUCCESS && bytes > 0)
        result = cuMemAllocFromPoolAsync(&got, bytes, pool, stream);
    if (result == CUDA_SUCCESS)
        *addr = (void *)got;
    return rvli_driven(result);
}

RVLI_PASSED(cudaFreeAsync, cuMemFreeAsync, (void *addr, cudaStream_t stream),
            ((CUdeviceptr)addr, stream))

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "a kind of pool");
_Static_assert(sizeof(struct cudaMemAccessDesc) == sizeof(CUmemAccessDesc), "who may use it");

RVLI_PASSED(cudaMemPoolCreate, cuMemPoolCreate,
            (cudaMemPool_t * pool, const struct cudaMemPoolProps *kind),
            (pool, (const CUmemPoolProps *)kind))
RVLI_PASSED(cudaMemPoolDestroy, cuMemPoolDestroy, (cudaMemPool_t pool), (pool))
RVLI_PASSED(cudaMemPoolTrimTo, cuMemPoolTrimTo, (cudaMemPool_t pool, size_t keep_bytes),
            (pool, keep_bytes))
RVLI_PASSED(cudaMemPoolSetAttribute, cuMemPoolSetAttribute,
            (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
            (pool, (CUmemPool_attribute)attribute, value))
RVLI_PASSED(cudaMemPoolGetAttribute, cuMemPoolGetAttribute,
            (cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value),
            (pool, (CUmemPool_attribute)attribute, value))
RVLI_PASSED(cudaMemPoolSetAccess, cuMemPoolSetAccess,
            (cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count),
            (pool, (const CUmemAccessDesc *)access, count))
RVLI_PASSED(cudaMemPoolGetAccess, cuMemPoolGetAccess,
            (enum cudaMemAccessFlags * flags, cudaMemPool_t pool, struct cudaMemLocation *location),
            ((CUmemAccess_flags *)flags, pool, (CUmemLocation *)location))
RVLI_PASSED(cudaDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool,
            (cudaMemPool_t * pool, int device), (pool, device))
RVLI_PASSED(cudaDeviceGetMemPool, cuDeviceGetMemPool, (cudaMemPool_t * pool, int device),
            (pool, device))
RVLI_PASSED(cudaDeviceSetMemPool, cuDeviceSetMemPool, (int device, cudaMemPool_t pool),
            (device, pool))

/* ---- Graphs ---- */

RVLI_PASSED(cudaDeviceGraphMemTrim, cuDeviceGraphMemTrim, (int device), (device))
RVLI_PASSED(cudaDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute,
            (int device, enum cudaGraphMemAttributeType attribute, void *value),
            (device, (CUgraphMem_attribute)attribute, value))
RVLI_PASSED(cudaDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute,
            (int device, enum cudaGraphMemAttributeType attribute, void *value),
            (device, (CUgraphMem_attribute)attribute, value))
