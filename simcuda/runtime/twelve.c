/* SPDX-License-Identifier: MIT */
/* The parts of CUDA 12's runtime that differ from CUDA 13's (twelve.h). */
#include <string.h>

#include "simcuda/runtime/runtime.h"
#include "simcuda/runtime/twelve_types.h"
#include "simcuda/wire/stub.h"

/* From here on, names are CUDA 12's. */
#undef cudaGetDeviceProperties
#undef cudaPointerGetAttributes
#undef cudaGraphAddDependencies
#undef cudaGraphAddNode
#undef cudaGraphGetEdges
#undef cudaGraphNodeGetDependencies
#undef cudaGraphNodeGetDependentNodes
#undef cudaGraphRemoveDependencies
#undef cudaStreamGetCaptureInfo
#undef cudaStreamUpdateCaptureDependencies
#undef cudaMemAdvise
#undef cudaMemPrefetchAsync
#undef cudaChooseDevice
#undef cudaCreateTextureObject
#undef cudaCreateSurfaceObject
#undef cudaGetTextureObjectResourceDesc
#undef cudaGetSurfaceObjectResourceDesc
#undef cudaImportExternalMemory
#undef cudaImportExternalSemaphore
#undef cudaMemcpyBatchAsync
#undef cudaMemcpy3DBatchAsync

cudaError_t cudaGetDeviceProperties_v2(rvli_properties_12 *facts, int device);
cudaError_t cudaPointerGetAttributes(rvli_pointer_12 *facts, const void *addr);
cudaError_t cudaThreadSynchronize(void);
cudaError_t cudaThreadExit(void);

/* ---- Structs ---- */

static int attribute(enum cudaDeviceAttr which, int device)
{
    int value = 0;
    (void)cudaDeviceGetAttribute(&value, which, device);
    return value;
}

static void copy_facts(rvli_properties_12 *to, const struct cudaDeviceProp *from)
{
#define SAME(field)                                                                                \
    _Static_assert(sizeof to->field == sizeof from->field, #field);                                \
    memcpy(&to->field, &from->field, sizeof to->field)
    SAME(name);
    SAME(uuid);
    SAME(luid);
    SAME(luidDeviceNodeMask);
    SAME(totalGlobalMem);
    SAME(sharedMemPerBlock);
    SAME(regsPerBlock);
    SAME(warpSize);
    SAME(memPitch);
    SAME(maxThreadsPerBlock);
    SAME(maxThreadsDim);
    SAME(maxGridSize);
    SAME(totalConstMem);
    SAME(major);
    SAME(minor);
    SAME(textureAlignment);
    SAME(texturePitchAlignment);
    SAME(multiProcessorCount);
    SAME(integrated);
    SAME(canMapHostMemory);
    SAME(surfaceAlignment);
    SAME(concurrentKernels);
    SAME(ECCEnabled);
    SAME(pciBusID);
    SAME(pciDeviceID);
    SAME(pciDomainID);
    SAME(tccDriver);
    SAME(asyncEngineCount);
    SAME(unifiedAddressing);
    SAME(memoryBusWidth);
    SAME(l2CacheSize);
    SAME(persistingL2CacheMaxSize);
    SAME(maxThreadsPerMultiProcessor);
    SAME(streamPrioritiesSupported);
    SAME(globalL1CacheSupported);
    SAME(localL1CacheSupported);
    SAME(sharedMemPerMultiprocessor);
    SAME(regsPerMultiprocessor);
    SAME(managedMemory);
    SAME(isMultiGpuBoard);
    SAME(multiGpuBoardGroupID);
    SAME(hostNativeAtomicSupported);
    SAME(pageableMemoryAccess);
    SAME(concurrentManagedAccess);
    SAME(computePreemptionSupported);
    SAME(canUseHostPointerForRegisteredMem);
    SAME(cooperativeLaunch);
    SAME(sharedMemPerBlockOptin);
    SAME(pageableMemoryAccessUsesHostPageTables);
    SAME(directManagedMemAccessFromHost);
    SAME(maxBlocksPerMultiProcessor);
    SAME(accessPolicyMaxWindowSize);
    SAME(reservedSharedMemPerBlock);
    SAME(hostRegisterSupported);
    SAME(sparseCudaArraySupported);
    SAME(hostRegisterReadOnlySupported);
    SAME(timelineSemaphoreInteropSupported);
    SAME(memoryPoolsSupported);
    SAME(gpuDirectRDMASupported);
    SAME(gpuDirectRDMAFlushWritesOptions);
    SAME(gpuDirectRDMAWritesOrdering);
    SAME(memoryPoolSupportedHandleTypes);
    SAME(deferredMappingCudaArraySupported);
    SAME(ipcEventSupported);
    SAME(clusterLaunch);
    SAME(unifiedFunctionPointers);
#undef SAME
}

/* The struct for programs before CUDA 12, under the name without _v2, is a stub. */
cudaError_t cudaGetDeviceProperties_v2(rvli_properties_12 *facts, int device)
{
    struct cudaDeviceProp all;
    cudaError_t error = facts == NULL ? rvli_done(cudaErrorInvalidValue)
                                      : rvli_13_cudaGetDeviceProperties(&all, device);
    if (error != cudaSuccess)
        return error;
    memset(facts, 0, sizeof *facts);
    copy_facts(facts, &all);
    facts->clockRate = attribute(cudaDevAttrClockRate, device);
    facts->memoryClockRate = attribute(cudaDevAttrMemoryClockRate, device);
    facts->computeMode = attribute(cudaDevAttrComputeMode, device);
    facts->deviceOverlap = all.asyncEngineCount > 0;
    facts->singleToDoublePrecisionPerfRatio =
        attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio, device);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(rvli_pointer_12 *facts, const void *addr)
{
    struct cudaPointerAttributes all;
    cudaError_t error = rvli_13_cudaPointerGetAttributes(facts != NULL ? &all : NULL, addr);
    if (error == cudaSuccess)
        *facts = (rvli_pointer_12){(int)all.type, all.device, all.devicePointer, all.hostPointer};
    return error;
}

/* ---- Graphs: edges without data, and under _v2 with data ---- */

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, size_t count);
cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                        size_t count);
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, size_t count);
cudaError_t cudaGraphRemoveDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t *from,
                                           const cudaGraphNode_t *to,
                                           const cudaGraphEdgeData *edges, size_t count);
cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
                             const cudaGraphNode_t *before, size_t count,
                             struct cudaGraphNodeParams *what);
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t *node, cudaGraph_t graph,
                                const cudaGraphNode_t *before, const cudaGraphEdgeData *edges,
                                size_t count, struct cudaGraphNodeParams *what);
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              size_t *count);
cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                                 cudaGraphEdgeData *edges, size_t *count);
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *others,
                                         size_t *count);
cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t *others,
                                            cudaGraphEdgeData *edges, size_t *count);
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *others,
                                           size_t *count);
cudaError_t cudaGraphNodeGetDependentNodes_v2(cudaGraphNode_t node, cudaGraphNode_t *others,
                                              cudaGraphEdgeData *edges, size_t *count);
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **nodes, size_t *count);
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **nodes,
                                        const cudaGraphEdgeData **edges, size_t *count);
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                size_t count, unsigned int flags);
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                   const cudaGraphEdgeData *edges, size_t count,
                                                   unsigned int flags);

cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
                                        size_t count)
{
    return rvli_13_cudaGraphAddDependencies(graph, from, to, edges, count);
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, size_t count)
{
    return rvli_13_cudaGraphAddDependencies(graph, from, to, NULL, count);
}

cudaError_t cudaGraphRemoveDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t *from,
                                           const cudaGraphNode_t *to,
                                           const cudaGraphEdgeData *edges, size_t count)
{
    return rvli_13_cudaGraphRemoveDependencies(graph, from, to, edges, count);
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                        const cudaGraphNode_t *to, size_t count)
{
    return rvli_13_cudaGraphRemoveDependencies(graph, from, to, NULL, count);
}

cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t *node, cudaGraph_t graph,
                                const cudaGraphNode_t *before, const cudaGraphEdgeData *edges,
                                size_t count, struct cudaGraphNodeParams *what)
{
    return rvli_13_cudaGraphAddNode(node, graph, before, edges, count, what);
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
                             const cudaGraphNode_t *before, size_t count,
                             struct cudaGraphNodeParams *what)
{
    return rvli_13_cudaGraphAddNode(node, graph, before, NULL, count, what);
}

cudaError_t cudaGraphGetEdges_v2(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                                 cudaGraphEdgeData *edges, size_t *count)
{
    return rvli_13_cudaGraphGetEdges(graph, from, to, edges, count);
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to,
                              size_t *count)
{
    return rvli_13_cudaGraphGetEdges(graph, from, to, NULL, count);
}

cudaError_t cudaGraphNodeGetDependencies_v2(cudaGraphNode_t node, cudaGraphNode_t *others,
                                            cudaGraphEdgeData *edges, size_t *count)
{
    return rvli_13_cudaGraphNodeGetDependencies(node, others, edges, count);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *others,
                                         size_t *count)
{
    return rvli_13_cudaGraphNodeGetDependencies(node, others, NULL, count);
}

cudaError_t cudaGraphNodeGetDependentNodes_v2(cudaGraphNode_t node, cudaGraphNode_t *others,
                                              cudaGraphEdgeData *edges, size_t *count)
{
    return rvli_13_cudaGraphNodeGetDependentNodes(node, others, edges, count);
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *others,
                                           size_t *count)
{
    return rvli_13_cudaGraphNodeGetDependentNodes(node, others, NULL, count);
}

cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **nodes,
                                        const cudaGraphEdgeData **edges, size_t *count)
{
    return rvli_13_cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, edges, count);
}

cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                        unsigned long long *id, cudaGraph_t *graph,
                                        const cudaGraphNode_t **nodes, size_t *count)
{
    return rvli_13_cudaStreamGetCaptureInfo(stream, status, id, graph, nodes, NULL, count);
}

cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                   const cudaGraphEdgeData *edges, size_t count,
                                                   unsigned int flags)
{
    return rvli_13_cudaStreamUpdateCaptureDependencies(stream, nodes, edges, count, flags);
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *nodes,
                                                size_t count, unsigned int flags)
{
    return rvli_13_cudaStreamUpdateCaptureDependencies(stream, nodes, NULL, count, flags);
}

/* ---- Locations ---- */

cudaError_t cudaMemAdvise(const void *addr, size_t bytes, enum cudaMemoryAdvise advice, int device);
cudaError_t cudaMemAdvise_v2(const void *addr, size_t bytes, enum cudaMemoryAdvise advice,
                             struct cudaMemLocation place);
cudaError_t cudaMemPrefetchAsync(const void *addr, size_t bytes, int device, cudaStream_t stream);
cudaError_t cudaMemPrefetchAsync_v2(const void *addr, size_t bytes, struct cudaMemLocation place,
                                    unsigned int flags, cudaStream_t stream);

static struct cudaMemLocation place_of(int device)
{
    return (struct cudaMemLocation){.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost
                                                                      : cudaMemLocationTypeDevice,
                                    .id = device == cudaCpuDeviceId ? 0 : device};
}

cudaError_t cudaMemAdvise_v2(const void *addr, size_t bytes, enum cudaMemoryAdvise advice,
                             struct cudaMemLocation place)
{
    return rvli_13_cudaMemAdvise(addr, bytes, advice, place);
}

cudaError_t cudaMemAdvise(const void *addr, size_t bytes, enum cudaMemoryAdvise advice, int device)
{
    return rvli_13_cudaMemAdvise(addr, bytes, advice, place_of(device));
}

cudaError_t cudaMemPrefetchAsync_v2(const void *addr, size_t bytes, struct cudaMemLocation place,
                                    unsigned int flags, cudaStream_t stream)
{
    return rvli_13_cudaMemPrefetchAsync(addr, bytes, place, flags, stream);
}

cudaError_t cudaMemPrefetchAsync(const void *addr, size_t bytes, int device, cudaStream_t stream)
{
    return rvli_13_cudaMemPrefetchAsync(addr, bytes, place_of(device), 0, stream);
}

/* ---- Older names ---- */

cudaError_t cudaEventElapsedTime_v2(float *milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaEventElapsedTime_v2(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    return cudaEventElapsedTime(milliseconds, start, end);
}

cudaError_t cudaThreadSynchronize(void)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaThreadExit(void)
{
    return cudaDeviceReset();
}

/* ---- Not simulated (simcuda/wire/stub.h) ---- */

#define NOT_SUPPORTED 801
RVLI_STUB(cudaGetDeviceProperties, NOT_SUPPORTED)
RVLI_STUB(cudaStreamGetCaptureInfo, NOT_SUPPORTED)
RVLI_STUB(cudaStreamGetCaptureInfo_ptsz, NOT_SUPPORTED)
RVLI_STUB(cudaChooseDevice, NOT_SUPPORTED)
RVLI_STUB(cudaCreateTextureObject, NOT_SUPPORTED)
RVLI_STUB(cudaCreateSurfaceObject, NOT_SUPPORTED)
RVLI_STUB(cudaGetTextureObjectResourceDesc, NOT_SUPPORTED)
RVLI_STUB(cudaGetSurfaceObjectResourceDesc, NOT_SUPPORTED)
RVLI_STUB(cudaImportExternalMemory, NOT_SUPPORTED)
RVLI_STUB(cudaImportExternalSemaphore, NOT_SUPPORTED)
RVLI_STUB(cudaMemcpyBatchAsync, NOT_SUPPORTED)
RVLI_STUB(cudaMemcpy3DBatchAsync, NOT_SUPPORTED)
RVLI_STUB(cudaLaunchCooperativeKernelMultiDevice, NOT_SUPPORTED)
RVLI_STUB(cudaSignalExternalSemaphoresAsync_v2, NOT_SUPPORTED)
RVLI_STUB(cudaSignalExternalSemaphoresAsync_ptsz, NOT_SUPPORTED)
RVLI_STUB(cudaWaitExternalSemaphoresAsync_v2, NOT_SUPPORTED)
RVLI_STUB(cudaWaitExternalSemaphoresAsync_ptsz, NOT_SUPPORTED)
RVLI_STUB(cudaSetDoubleForDevice, NOT_SUPPORTED)
RVLI_STUB(cudaSetDoubleForHost, NOT_SUPPORTED)
RVLI_STUB(cudaThreadGetCacheConfig, NOT_SUPPORTED)
RVLI_STUB(cudaThreadGetLimit, NOT_SUPPORTED)
RVLI_STUB(cudaThreadSetCacheConfig, NOT_SUPPORTED)
RVLI_STUB(cudaThreadSetLimit, NOT_SUPPORTED)
