/* SPDX-License-Identifier: MIT */
/* Nodes that a program adds to a graph itself. */
#include "simcuda/driver/graph.h"

#include <string.h>

/*
 * NODE(name in the entry points, type of the node, type of the parameters, member, whether they
 * are valid). Defines the functions that get and set a node's parameters, by copying.
 */
#define NODE(name, kind, described, member, good)                                                  \
    CUresult cuGraph##name##NodeGetParams(CUgraphNode node, described *params)                     \
    {                                                                                              \
        if (node == NULL || params == NULL || node->type != (kind))                                \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        *params = node->params.member;                                                             \
        return CUDA_SUCCESS;                                                                       \
    }                                                                                              \
    CUresult cuGraph##name##NodeSetParams(CUgraphNode node, const described *params)               \
    {                                                                                              \
        if (node == NULL || params == NULL || node->type != (kind) || !good(params))               \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        node->params.member = *params;                                                             \
        return CUDA_SUCCESS;                                                                       \
    }

/* As cuLaunchKernel() checks it, except the size of shared memory. */
static bool is_launch(const CUDA_KERNEL_NODE_PARAMS *of)
{
    return (of->func != NULL || of->kern != NULL) && of->gridDimX > 0 && of->gridDimY > 0 &&
           of->gridDimZ > 0 && of->blockDimX > 0 && of->blockDimY > 0 && of->blockDimZ > 0 &&
           (uint64_t)of->blockDimX * of->blockDimY * of->blockDimZ <= 1024;
}

static bool is_copy(const CUDA_MEMCPY3D *of)
{
    return of->WidthInBytes > 0 && of->Height > 0 && of->Depth > 0;
}

static bool is_fill(const CUDA_MEMSET_NODE_PARAMS *of)
{
    return (of->elementSize == 1 || of->elementSize == 2 || of->elementSize == 4) &&
           of->width > 0 && of->height > 0 &&
           (of->height == 1 || of->pitch >= of->width * of->elementSize);
}

static bool is_call(const CUDA_HOST_NODE_PARAMS *of)
{
    return of->fn != NULL;
}

NODE(Kernel, CU_GRAPH_NODE_TYPE_KERNEL, CUDA_KERNEL_NODE_PARAMS, kernel, is_launch)
NODE(Memcpy, CU_GRAPH_NODE_TYPE_MEMCPY, CUDA_MEMCPY3D, copy, is_copy)
NODE(Memset, CU_GRAPH_NODE_TYPE_MEMSET, CUDA_MEMSET_NODE_PARAMS, fill, is_fill)
NODE(Host, CU_GRAPH_NODE_TYPE_HOST, CUDA_HOST_NODE_PARAMS, host, is_call)

static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                         CUgraphNodeType type, const rvli_node_params *params)
{
    return rvli_graph_add(graph, type, params, before, count, node);
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS *launched)
{
    if (launched == NULL || !is_launch(launched))
        return CUDA_ERROR_INVALID_VALUE;
    rvli_node_params params = {.kernel = *launched};
    params.kernel.kernelParams = params.kernel.extra = NULL; /* valid only during the call */
    return add_node(node, graph, before, count, CU_GRAPH_NODE_TYPE_KERNEL, &params);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, const CUDA_MEMCPY3D *copy, CUcontext context)
{
    (void)context;
    if (copy == NULL || !is_copy(copy))
        return CUDA_ERROR_INVALID_VALUE;
    const rvli_node_params params = {.copy = *copy};
    return add_node(node, graph, before, count, CU_GRAPH_NODE_TYPE_MEMCPY, &params);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context)
{
    (void)context;
    if (fill == NULL || !is_fill(fill))
        return CUDA_ERROR_INVALID_VALUE;
    const rvli_node_params params = {.fill = *fill};
    return add_node(node, graph, before, count, CU_GRAPH_NODE_TYPE_MEMSET, &params);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                            size_t count, const CUDA_HOST_NODE_PARAMS *call)
{
    if (call == NULL || !is_call(call))
        return CUDA_ERROR_INVALID_VALUE;
    const rvli_node_params params = {.host = *call};
    return add_node(node, graph, before, count, CU_GRAPH_NODE_TYPE_HOST, &params);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                             size_t count)
{
    return add_node(node, graph, before, count, CU_GRAPH_NODE_TYPE_EMPTY, NULL);
}

/* The child is copied, so later changes to it do not affect the node. */
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                  size_t count, CUgraph child)
{
    if (child == NULL || child == graph)
        return CUDA_ERROR_INVALID_VALUE;
    rvli_node_params params = {.child = rvli_graph_copy(child)};
    if (params.child == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    params.child->owned = true;
    CUresult result = add_node(node, graph, before, count, CU_GRAPH_NODE_TYPE_GRAPH, &params);
    if (result != CUDA_SUCCESS)
        rvli_graph_free(params.child);
    return result;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *child)
{
    if (node == NULL || child == NULL || node->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *child = node->params.child;
    return CUDA_SUCCESS;
}

/* ---- Events ---- */

#define EVENT_NODE(name, kind)                                                                     \
    CUresult cuGraphAdd##name##Node(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,   \
                                    size_t count, CUevent event)                                   \
    {                                                                                              \
        const rvli_node_params params = {.event = event};                                          \
        return event == NULL ? CUDA_ERROR_INVALID_VALUE                                            \
                             : add_node(node, graph, before, count, kind, &params);                \
    }                                                                                              \
    CUresult cuGraph##name##NodeGetEvent(CUgraphNode node, CUevent *event)                         \
    {                                                                                              \
        if (node == NULL || event == NULL || node->type != (kind))                                 \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        *event = node->params.event;                                                               \
        return CUDA_SUCCESS;                                                                       \
    }                                                                                              \
    CUresult cuGraph##name##NodeSetEvent(CUgraphNode node, CUevent event)                          \
    {                                                                                              \
        if (node == NULL || event == NULL || node->type != (kind))                                 \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        node->params.event = event;                                                                \
        return CUDA_SUCCESS;                                                                       \
    }

EVENT_NODE(EventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD)
EVENT_NODE(EventWait, CU_GRAPH_NODE_TYPE_WAIT_EVENT)
