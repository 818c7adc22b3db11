/* SPDX-License-Identifier: MIT */
/*
 * Captures and graphs. Handles are the driver's. Only the descriptions of nodes have another
 * form.
 */
#include <stdbool.h>

#include "simcuda/runtime/runtime.h"

/* ---- Captures ---- */

RVLI_PASSED(cudaStreamBeginCapture, cuStreamBeginCapture,
            (cudaStream_t stream, enum cudaStreamCaptureMode mode),
            (stream, (CUstreamCaptureMode)mode))
RVLI_PASSED(cudaStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph,
            (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *nodes,
             const cudaGraphEdgeData *data, size_t count, enum cudaStreamCaptureMode mode),
            (stream, graph, nodes, (const CUgraphEdgeData *)data, count, (CUstreamCaptureMode)mode))
RVLI_PASSED(cudaStreamEndCapture, cuStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph),
            (stream, graph))
RVLI_PASSED(cudaStreamIsCapturing, cuStreamIsCapturing,
            (cudaStream_t stream, enum cudaStreamCaptureStatus *status),
            (stream, (CUstreamCaptureStatus *)status))
RVLI_PASSED(cudaStreamGetCaptureInfo, cuStreamGetCaptureInfo,
            (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
             cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **data,
             size_t *count),
            (stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph, nodes,
             (const CUgraphEdgeData **)data, count))
RVLI_PASSED(cudaStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies,
            (cudaStream_t stream, cudaGraphNode_t *nodes, const cudaGraphEdgeData *data,
             size_t count, unsigned int flags),
            (stream, nodes, (const CUgraphEdgeData *)data, count, flags))

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return rvli_driven(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

/* ---- Graphs ---- */

RVLI_PASSED(cudaGraphCreate, cuGraphCreate, (cudaGraph_t * graph, unsigned int flags),
            (graph, flags))
RVLI_PASSED(cudaGraphDestroy, cuGraphDestroy, (cudaGraph_t graph), (graph))
RVLI_PASSED(cudaGraphClone, cuGraphClone, (cudaGraph_t * clone, cudaGraph_t graph), (clone, graph))
RVLI_PASSED(cudaGraphNodeFindInClone, cuGraphNodeFindInClone,
            (cudaGraphNode_t * node, cudaGraphNode_t original, cudaGraph_t clone),
            (node, original, clone))
RVLI_PASSED(cudaGraphGetNodes, cuGraphGetNodes,
            (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count), (graph, nodes, count))
RVLI_PASSED(cudaGraphGetRootNodes, cuGraphGetRootNodes,
            (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count), (graph, nodes, count))
RVLI_PASSED(cudaGraphGetEdges, cuGraphGetEdges,
            (cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, cudaGraphEdgeData *data,
             size_t *count),
            (graph, from, to, (CUgraphEdgeData *)data, count))
RVLI_PASSED(cudaGraphNodeGetType, cuGraphNodeGetType,
            (cudaGraphNode_t node, enum cudaGraphNodeType *type), (node, (CUgraphNodeType *)type))
RVLI_PASSED(cudaGraphNodeGetDependencies, cuGraphNodeGetDependencies,
            (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *count),
            (node, nodes, (CUgraphEdgeData *)data, count))
RVLI_PASSED(cudaGraphNodeGetDependentNodes, cuGraphNodeGetDependentNodes,
            (cudaGraphNode_t node, cudaGraphNode_t *nodes, cudaGraphEdgeData *data, size_t *count),
            (node, nodes, (CUgraphEdgeData *)data, count))
RVLI_PASSED(cudaGraphAddDependencies, cuGraphAddDependencies,
            (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
             const cudaGraphEdgeData *data, size_t count),
            (graph, from, to, (const CUgraphEdgeData *)data, count))
RVLI_PASSED(cudaGraphRemoveDependencies, cuGraphRemoveDependencies,
            (cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
             const cudaGraphEdgeData *data, size_t count),
            (graph, from, to, (const CUgraphEdgeData *)data, count))
RVLI_PASSED(cudaGraphDestroyNode, cuGraphDestroyNode, (cudaGraphNode_t node), (node))
RVLI_PASSED(cudaGraphDebugDotPrint, cuGraphDebugDotPrint,
            (cudaGraph_t graph, const char *path, unsigned int flags), (graph, path, flags))

/* ---- Instantiated graphs ---- */

RVLI_PASSED(cudaGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,
            (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
            (exec, graph, flags))

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *parameters)
{
    if (parameters == NULL)
        return rvli_done(cudaErrorInvalidValue);
    cudaError_t error = cudaGraphInstantiateWithFlags(exec, graph, parameters->flags);
    parameters->errNode_out = NULL;
    parameters->result_out =
        error == cudaSuccess ? cudaGraphInstantiateSuccess : cudaGraphInstantiateError;
    return error;
}

RVLI_PASSED(cudaGraphExecDestroy, cuGraphExecDestroy, (cudaGraphExec_t exec), (exec))
RVLI_PASSED(cudaGraphExecGetFlags, cuGraphExecGetFlags,
            (cudaGraphExec_t exec, unsigned long long *flags), (exec, (cuuint64_t *)flags))
RVLI_PASSED(cudaGraphUpload, cuGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream),
            (exec, stream))
RVLI_PASSED(cudaGraphLaunch, cuGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream),
            (exec, stream))
RVLI_PASSED(cudaGraphNodeSetEnabled, cuGraphNodeSetEnabled,
            (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled),
            (exec, node, enabled))
RVLI_PASSED(cudaGraphNodeGetEnabled, cuGraphNodeGetEnabled,
            (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *enabled),
            (exec, node, enabled))

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    CUgraphExecUpdateResultInfo found = {0};
    CUresult result = info == NULL ? CUDA_ERROR_INVALID_VALUE : rvli_runtime_ready();
    if (result != CUDA_SUCCESS)
        return rvli_driven(result);
    result = cuGraphExecUpdate(exec, graph, &found);
    info->result = (enum cudaGraphExecUpdateResult)found.result;
    info->errorNode = found.errorNode;
    info->errorFromNode = found.errorFromNode;
    return rvli_driven(result);
}

/* ---- Nodes ---- */

RVLI_PASSED(cudaGraphAddEmptyNode, cuGraphAddEmptyNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *before,
             size_t count),
            (node, graph, before, count))
RVLI_PASSED(cudaGraphAddChildGraphNode, cuGraphAddChildGraphNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *before, size_t count,
             cudaGraph_t child),
            (node, graph, before, count, child))
RVLI_PASSED(cudaGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph,
            (cudaGraphNode_t node, cudaGraph_t *child), (node, child))
RVLI_PASSED(cudaGraphAddEventRecordNode, cuGraphAddEventRecordNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *before, size_t count,
             cudaEvent_t event),
            (node, graph, before, count, event))
RVLI_PASSED(cudaGraphAddEventWaitNode, cuGraphAddEventWaitNode,
            (cudaGraphNode_t * node, cudaGraph_t graph, const cudaGraphNode_t *before, size_t count,
             cudaEvent_t event),
            (node, graph, before, count, event))

/* The structs for a call and for a fill are the driver's, under another name. */
_Static_assert(sizeof(struct cudaHostNodeParams) == sizeof(CUDA_HOST_NODE_PARAMS_v1), "a call");
_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS), "a fill");

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *before, size_t count,
                                 const struct cudaHostNodeParams *call)
{
    CUDA_HOST_NODE_PARAMS made = {0};
    if (call == NULL)
        return rvli_done(cudaErrorInvalidValue);
    made.fn = call->fn;
    made.userData = call->userData;
    RVLI_PASS(cuGraphAddHostNode(node, graph, before, count, &made));
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *call)
{
    CUDA_HOST_NODE_PARAMS found = {0};
    CUresult result =
        call == NULL ? CUDA_ERROR_INVALID_VALUE : cuGraphHostNodeGetParams(node, &found);
    if (result == CUDA_SUCCESS)
        *call = (struct cudaHostNodeParams){.fn = found.fn, .userData = found.userData};
    return rvli_driven(result);
}

static CUDA_MEMSET_NODE_PARAMS driver_fill(const struct cudaMemsetParams *of)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = (CUdeviceptr)of->dst,
                                     .pitch = of->pitch,
                                     .value = of->value,
                                     .elementSize = of->elementSize,
                                     .width = of->width,
                                     .height = of->height};
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *before, size_t count,
                                   const struct cudaMemsetParams *fill)
{
    if (fill == NULL)
        return rvli_done(cudaErrorInvalidValue);
    const CUDA_MEMSET_NODE_PARAMS made = driver_fill(fill);
    RVLI_PASS(cuGraphAddMemsetNode(node, graph, before, count, &made, NULL));
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *fill)
{
    CUDA_MEMSET_NODE_PARAMS found = {0};
    CUresult result =
        fill == NULL ? CUDA_ERROR_INVALID_VALUE : cuGraphMemsetNodeGetParams(node, &found);
    if (result == CUDA_SUCCESS)
        *fill = (struct cudaMemsetParams){.dst = (void *)found.dst,
                                          .pitch = found.pitch,
                                          .value = found.value,
                                          .elementSize = found.elementSize,
                                          .width = found.width,
                                          .height = found.height};
    return rvli_driven(result);
}

static CUDA_KERNEL_NODE_PARAMS driver_launch(const struct cudaKernelNodeParams *of)
{
    return (CUDA_KERNEL_NODE_PARAMS){.func = (CUfunction)of->func,
                                     .gridDimX = of->gridDim.x,
                                     .gridDimY = of->gridDim.y,
                                     .gridDimZ = of->gridDim.z,
                                     .blockDimX = of->blockDim.x,
                                     .blockDimY = of->blockDim.y,
                                     .blockDimZ = of->blockDim.z,
                                     .sharedMemBytes = of->sharedMemBytes};
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *node, cudaGraph_t graph,
                                   const cudaGraphNode_t *before, size_t count,
                                   const struct cudaKernelNodeParams *launch)
{
    if (launch == NULL)
        return rvli_done(cudaErrorInvalidValue);
    const CUDA_KERNEL_NODE_PARAMS made = driver_launch(launch);
    RVLI_PASS(cuGraphAddKernelNode(node, graph, before, count, &made));
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *launch)
{
    CUDA_KERNEL_NODE_PARAMS found = {0};
    CUresult result =
        launch == NULL ? CUDA_ERROR_INVALID_VALUE : cuGraphKernelNodeGetParams(node, &found);
    if (result == CUDA_SUCCESS)
        *launch = (struct cudaKernelNodeParams){
            .func = found.func,
            .gridDim = {found.gridDimX, found.gridDimY, found.gridDimZ},
            .blockDim = {found.blockDimX, found.blockDimY, found.blockDimZ},
            .sharedMemBytes = found.sharedMemBytes};
    return rvli_driven(result);
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaKernelNodeParams *launch)
{
    if (launch == NULL)
        return rvli_done(cudaErrorInvalidValue);
    const CUDA_KERNEL_NODE_PARAMS made = driver_launch(launch);
    RVLI_PASS(cuGraphKernelNodeSetParams(node, &made));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *launch)
{
    if (launch == NULL)
        return rvli_done(cudaErrorInvalidValue);
    const CUDA_KERNEL_NODE_PARAMS made = driver_launch(launch);
    RVLI_PASS(cuGraphExecKernelNodeSetParams(exec, node, &made));
}

/* A copy of rows without an array. A pitch of 0 means the width. */
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *node, cudaGraph_t graph,
                                     const cudaGraphNode_t *before, size_t count, void *to,
                                     const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    const CUDA_MEMCPY3D made = {
        .srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
        .srcHost = from,
        .srcDevice = (CUdeviceptr)from,
        .srcPitch = bytes,
        .dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED,
        .dstHost = to,
        .dstDevice = (CUdeviceptr)to,
        .dstPitch = bytes,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1};
    RVLI_PASS(cuGraphAddMemcpyNode(node, graph, before, count, &made, NULL));
}

/* ---- User objects ---- */

RVLI_PASSED(cudaUserObjectCreate, cuUserObjectCreate,
            (cudaUserObject_t * object, void *user, cudaHostFn_t destroy, unsigned int references,
             unsigned int flags),
            (object, user, destroy, references, flags))
RVLI_PASSED(cudaUserObjectRetain, cuUserObjectRetain, (cudaUserObject_t object, unsigned int count),
            (object, count))
RVLI_PASSED(cudaUserObjectRelease, cuUserObjectRelease,
            (cudaUserObject_t object, unsigned int count), (object, count))
RVLI_PASSED(cudaGraphRetainUserObject, cuGraphRetainUserObject,
            (cudaGraph_t graph, cudaUserObject_t object, unsigned int count, unsigned int flags),
            (graph, object, count, flags))
RVLI_PASSED(cudaGraphReleaseUserObject, cuGraphReleaseUserObject,
            (cudaGraph_t graph, cudaUserObject_t object, unsigned int count),
            (graph, object, count))
