/* SPDX-License-Identifier: MIT */
/*
 * Functions as programs for older versions of CUDA call them, where the current header has other
 * arguments or another name. Programs find them by name, or by the version that they request
 * (entry.c). Each calls the current function. _ptsz: for programs in which stream 0 is the
 * thread's own.
 */
#define __CUDA_API_VERSION_INTERNAL /* makes the header declare older forms */
#include "simcuda/driver/driver.h"

/* The header does not declare these. */
CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr addr, size_t bytes, CUmemLocation location,
                                    unsigned int flags, CUstream stream);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                        cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                        const CUgraphEdgeData **data, size_t *count);
CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *nodes,
                                                   const CUgraphEdgeData *data, size_t count,
                                                   unsigned int flags);

static CUstream of_thread(CUstream stream)
{
    return stream == NULL ? CU_STREAM_PER_THREAD : stream;
}

/* ---- Managed memory: a device before CUDA 12.2, a location since ---- */

static CUmemLocation location_of(CUdevice device)
{
    return (CUmemLocation){.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST
                                                           : CU_MEM_LOCATION_TYPE_DEVICE,
                           .id = device == CU_DEVICE_CPU ? 0 : device};
}

CUresult cuMemAdvise(CUdeviceptr addr, size_t bytes, CUmem_advise advice, CUdevice device)
{
    return cuMemAdvise_v2(addr, bytes, advice, location_of(device));
}

CUresult cuMemPrefetchAsync(CUdeviceptr addr, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync_v2(addr, bytes, location_of(device), 0, stream);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr addr, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync(addr, bytes, device, of_thread(stream));
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr addr, size_t bytes, CUmemLocation location,
                                    unsigned int flags, CUstream stream)
{
    return cuMemPrefetchAsync_v2(addr, bytes, location, flags, of_thread(stream));
}

/* ---- Captures: modes since CUDA 10.1, the graph since 11.3, data of edges since 12.3 ---- */

CUresult cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return cuStreamBeginCapture(of_thread(stream));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return cuStreamBeginCapture_v2(of_thread(stream), mode);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo(of_thread(stream), status, id);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, nodes, NULL, count);
}

CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                        cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                        size_t *count)
{
    return cuStreamGetCaptureInfo_v2(of_thread(stream), status, id, graph, nodes, count);
}

CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                        cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                        const CUgraphEdgeData **data, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(of_thread(stream), status, id, graph, nodes, data, count);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count,
                                           unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode *nodes, size_t count,
                                                unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies(of_thread(stream), nodes, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode *nodes,
                                                   const CUgraphEdgeData *data, size_t count,
                                                   unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(of_thread(stream), nodes, data, count, flags);
}

/* ---- Graphs: data of edges since CUDA 12.3 ---- */

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count);
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count)
{
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count)
{
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}

/* ---- Graphs: kernels and contexts of nodes since CUDA 12.0 ---- */

static CUDA_KERNEL_NODE_PARAMS launch_of(const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = params->func,
                                     .gridDimX = params->gridDimX,
                                     .gridDimY = params->gridDimY,
                                     .gridDimZ = params->gridDimZ,
                                     .blockDimX = params->blockDimX,
                                     .blockDimY = params->blockDimY,
                                     .blockDimZ = params->blockDimZ,
                                     .sharedMemBytes = params->sharedMemBytes,
                                     .kernelParams = params->kernelParams,
                                     .extra = params->extra};
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS launch = launch_of(params);
    return cuGraphAddKernelNode_v2(node, graph, before, count, &launch);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS found;
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphKernelNodeGetParams_v2(node, &found);
    if (result == CUDA_SUCCESS && found.func == NULL)
        result = cuKernelGetFunction(&found.func, found.kern);
    if (result == CUDA_SUCCESS)
        *params = (CUDA_KERNEL_NODE_PARAMS_v1){.func = found.func,
                                               .gridDimX = found.gridDimX,
                                               .gridDimY = found.gridDimY,
                                               .gridDimZ = found.gridDimZ,
                                               .blockDimX = found.blockDimX,
                                               .blockDimY = found.blockDimY,
                                               .blockDimZ = found.blockDimZ,
                                               .sharedMemBytes = found.sharedMemBytes,
                                               .kernelParams = found.kernelParams,
                                               .extra = found.extra};
    return result;
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS launch = launch_of(params);
    return cuGraphKernelNodeSetParams_v2(node, &launch);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    if (params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    const CUDA_KERNEL_NODE_PARAMS launch = launch_of(params);
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &launch);
}

/* ---- Graphs: results of an update in one struct since CUDA 12.0 ---- */

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *node,
                           CUgraphExecUpdateResult *why)
{
    CUgraphExecUpdateResultInfo info = {0};
    if (why == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphExecUpdate_v2(exec, graph, &info);
    *why = info.result;
    if (node != NULL)
        *node = info.errorNode;
    return result;
}

/* With a log of errors, which is always empty here. */
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                               size_t log_bytes)
{
    if (node != NULL)
        *node = NULL;
    if (log != NULL && log_bytes > 0)
        log[0] = '\0';
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                            size_t log_bytes)
{
    return cuGraphInstantiate_v2(exec, graph, node, log, log_bytes);
}

/* ---- Only the name differs ---- */

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *addr, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(addr, handle, flags);
}
